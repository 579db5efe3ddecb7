#include "ship/bentofile.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct list {
    struct pl_bento_finding *at;
    size_t count;
};

static void add(struct list *l, const char *rule, const struct pl_node *n, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void add(struct list *l, const char *rule, const struct pl_node *n, const char *fmt, ...) {
    va_list words;
    if (l->count == PL_BENTO_FINDINGS) return;
    struct pl_bento_finding *f = &l->at[l->count++];
    *f = (struct pl_bento_finding){ .rule = rule, .line = n->line, .col = n->col };
    va_start(words, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, words);
    va_end(words);
}

/* The pair as a reader sees it: the place of its key. NULL: not there. */
static const struct pl_node *key_of(const struct pl_node *doc, const char *key) {
    for (const struct pl_node *n = pl_node_first(doc); n != NULL; n = n->next)
        if (pl_node_is(n->key, key)) return n->key;
    return NULL;
}

/* The length of a package's name in "torch[extra]==2.8.0; python_version…". */
static size_t name_length(const char *text) {
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || strchr("-_.", text[n]) != NULL) {
        if (text[n] == '\0') break;
        n++;
    }
    return n;
}

static bool is_pinned(const char *text) {
    return strstr(text, "==") != NULL || strstr(text, " @ ") != NULL || strstr(text, "git+") != NULL ||
           text[0] == '.' || text[0] == '/' || text[0] == '-';
}

static bool is_gpu_package(const char *text) {
    static const char *const names[] = { "torch",      "torchvision",     "vllm",     "sglang",  "tensorflow",
                                         "flash-attn", "onnxruntime-gpu", "xformers", "cupy",    "diffusers",
                                         "deepspeed",  "bitsandbytes",    "triton",   "jax[cuda" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i]);
        if (strncasecmp(text, names[i], n) == 0 && (strchr(names[i], '[') != NULL || name_length(text) == n))
            return true;
    }
    return false;
}

static void check_packages(struct list *l, const struct pl_node *python, bool *gpu) {
    bool locked = pl_node_true(pl_node_get(python, "lock_packages"));
    const struct pl_node *packages = pl_node_get(python, "packages");
    for (const struct pl_node *n = pl_node_first(packages); n != NULL; n = n->next) {
        const char *text = pl_node_text(n);
        *gpu = *gpu || is_gpu_package(text);
        if (!locked && text[0] != '\0' && !is_pinned(text))
            add(l, "PL030", n, "`%.60s` is whatever is newest on the day of the build", text);
    }
}

static void check_include(struct list *l, const struct pl_node *doc) {
    for (const struct pl_node *n = pl_node_first(pl_node_get(doc, "include")); n != NULL; n = n->next) {
        const char *text = pl_node_text(n);
        if (strcmp(text, "*") == 0 || strcmp(text, "**") == 0 || strcmp(text, "**/*") == 0 ||
            strcmp(text, ".") == 0 || strcmp(text, "./") == 0 || strcmp(text, "*.*") == 0)
            add(l, "PL031", n, "`%s` takes the whole folder into the image", text);
    }
}

static int by_place(const void *a, const void *b) {
    const struct pl_bento_finding *x = a, *y = b;
    if (x->line != y->line) return x->line < y->line ? -1 : 1;
    return strcmp(x->rule, y->rule);
}

size_t pl_bentofile_check(const struct pl_node *doc, const struct pl_bento_facts *facts,
                          struct pl_bento_finding out[PL_BENTO_FINDINGS]) {
    struct list l = { .at = out };
    const struct pl_node *python = pl_node_get(doc, "python"), *docker = pl_node_get(doc, "docker");
    const struct pl_node *service = key_of(doc, "service"), *models = pl_node_get(doc, "models");
    bool gpu = facts->known && facts->device;
    if (service == NULL) service = pl_node_see(doc);
    if (service == NULL) return 0;
    bool wants = !facts->known || (facts->holds_models && !facts->records_models);
    if (wants && pl_node_first(models) == NULL)
        add(&l, "PL029", service, "no `models`: what the service loads from the store is not in the image");
    check_packages(&l, python, &gpu);
    check_include(&l, doc);
    bool cuda = !pl_node_is_null(pl_node_get(docker, "cuda_version")) ||
                !pl_node_is_null(pl_node_get(docker, "base_image")) ||
                !pl_node_is_null(pl_node_get(docker, "dockerfile_template"));
    if (gpu && !cuda) {
        const struct pl_node *at = key_of(doc, "docker");
        add(&l, "PL032", at != NULL ? at : service, "a GPU service on an image without CUDA");
    }
    qsort(out, l.count, sizeof *out, by_place);
    return l.count;
}
