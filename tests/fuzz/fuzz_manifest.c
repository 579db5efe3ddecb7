/* fuzz_manifest.c - YAML that others wrote: what is read as a tree goes through every rule on Kubernetes
 * objects and on bentofiles, and the configuration of a manifest is made of it.
 *
 * USES ship base
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ship/bentofile.h"
#include "ship/kube.h"
#include "ship/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok) {
    if (!ok) abort();
}

/* Every finding is of an object and at a place of the text. */
static void check_objects(const struct pl_tree *tree, struct pl_arena *arena, const char *text, size_t size) {
    struct pl_err err;
    struct pl_kube k;
    const struct pl_kube_measured measured = {
        .boot_s = 40, .drain_s = 30, .worker_stop_s = 10, .host_peak_bytes = 1e9
    };
    must(pl_kube_init(&k, arena, &err));
    pl_kube_add(&k, "f.yaml", tree);
    pl_kube_check(&k, &measured);
    for (size_t i = 0; i < k.finding_count; i++) {
        const struct pl_kube_finding *f = &k.findings[i];
        must(f->rule < PL_KUBE_RULES && f->object >= k.objects && f->object < k.objects + k.object_count);
        must(f->line >= 1 && f->col >= 1 && f->line <= size + 2);
        pl_kube_ignored(text, size, f->line, pl_kube_rules[f->rule].id);
    }
}

static void check_bento(const struct pl_tree *tree) {
    static struct pl_bento_finding rows[PL_BENTO_FINDINGS];
    const struct pl_bento_facts facts[] = { { 0 },
                                            { .known = true, .fetches_models = true, .device = true } };
    for (size_t i = 0; i < tree->count; i++)
        for (size_t k = 0; k < 2; k++) {
            size_t n = pl_bentofile_check(tree->documents[i], &facts[k], rows);
            must(n <= PL_BENTO_FINDINGS);
            for (size_t r = 1; r < n; r++) must(rows[r - 1].line <= rows[r].line);
        }
}

static void ship(const struct pl_tree *tree, const char *text, size_t size) {
    const struct pl_measured measured = { 0 };
    struct pl_manifest m = { .name = "a",
                             .service = "a",
                             .port = 3000,
                             .admin_port = 3001,
                             .kube = 29,
                             .measured = &measured,
                             .ask = { .replicas = 1, .workers = 1 },
                             .run_dir = "/run",
                             .state_dir = "/var/lib" };
    struct pl_buf out;
    pl_ship_size(&measured, &m.ask, &m.size);
    pl_buf_init(&out, 0);
    pl_manifest_config(&m, text, size, tree->count > 0 ? tree->documents[0] : NULL, &out);
    must(out.len <= 2 * size + 4096);
    pl_buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_err err;
    struct pl_arena arena;
    struct pl_tree tree;
    double number;
    char *text = malloc(size + 1);
    must(text != NULL);
    if (size > 0) memcpy(text, data, size);
    text[size] = '\0';
    pl_arena_init(&arena, 0);
    if (pl_tree_read("f.yaml", text, size, &arena, &tree, &err)) {
        check_objects(&tree, &arena, text, size);
        check_bento(&tree);
        ship(&tree, text, size);
    } else {
        must(err.msg[0] != '\0');
    }
    pl_kube_quantity(text, &number);
    pl_arena_free(&arena);
    free(text);
    return 0;
}
