#include "llama/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT_BYTES = 256 << 20 };

/* The ways in which templates write "there is no system message, so this is it": after a test of the first
 * message's role, a literal between system markers. The text is what stands between `system` markers of
 * ChatML, as in
 *   {% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n TEXT <|im_end|>\n' }}
 *   {{- '<|im_start|>system\n TEXT <|im_end|>\n' }} */
char *pl_llm_default_system(const char *jinja) {
    static const char begin[] = "<|im_start|>system", finish[] = "<|im_end|>";
    for (const char *at = jinja; (at = strstr(at, begin)) != NULL; at++) {
        const char *text = at + strlen(begin);
        size_t line = *text == '\n'                  ? 1
                      : strncmp(text, "\\n", 2) == 0 ? 2
                                                     : 0; /* as it is, or as an escape */
        if (line == 0) continue;
        text += line;
        const char *end = strstr(text, finish);
        size_t quote = strcspn(text, "'\"");
        if (end == NULL || (size_t)(end - text) == 0 || quote < (size_t)(end - text))
            continue; /* put together, not plain */
        char *out = malloc((size_t)(end - text) + 1);
        size_t n = 0;
        for (const char *c = text; out != NULL && c < end; c++) {
            bool escape = *c == '\\' && c + 1 < end;
            if (escape) c++;
            out[n++] = escape && *c == 'n' ? '\n' : escape && *c == 't' ? '\t' : *c;
        }
        if (out != NULL) out[n] = '\0';
        return out;
    }
    return NULL;
}

void pl_llm_chat_open(struct pl_llm_chat *c, const struct pl_llm_model *m, const struct pl_llm_options *o) {
    static const struct llama_chat_message hello = { "user", "hello" };
    const char *own = llama_model_chat_template(m->model, NULL);
    *c = (struct pl_llm_chat){ .name = o->template_name != NULL ? o->template_name : own };
    if (c->name == NULL)
        c->why_not =
            "this model has no chat template; name one of llama.cpp's with services.NAME.llama.template";
    else if (llama_chat_apply_template(c->name, &hello, 1, true, NULL, 0) < 0)
        c->why_not = o->template_name != NULL
                         ? "services.NAME.llama.template is not in llama.cpp's list"
                         : "this model's chat template is not in llama.cpp's list: name the one nearest to "
                           "it with services.NAME.llama.template, or run llama-server as a `command` worker";
    if (c->why_not != NULL) c->name = NULL;
    if (o->system_default != NULL)
        c->system = strdup(o->system_default);
    else if (o->template_name == NULL && own != NULL)
        c->system = pl_llm_default_system(own);
}

void pl_llm_chat_close(struct pl_llm_chat *c) {
    free(c->system);
    *c = (struct pl_llm_chat){ 0 };
}

char *pl_llm_chat_text(const struct pl_llm_chat *c, const struct pl_llm_ask *a, size_t *len,
                       struct pl_llm_fault *f) {
    bool add = c->system != NULL && c->system[0] != '\0' && strcmp(a->messages[0].role, "system") != 0;
    struct llama_chat_message *all = NULL;
    char *text = NULL;
    if (c->name == NULL) {
        *f = (struct pl_llm_fault){ .status = 400, .code = "invalid_value" };
        snprintf(f->message, sizeof f->message, "%s", c->why_not);
        return NULL;
    }
    size_t count = a->message_count + add;
    all = malloc(count * sizeof *all);
    if (all != NULL) {
        if (add) all[0] = (struct llama_chat_message){ "system", c->system };
        memcpy(all + add, a->messages, a->message_count * sizeof *all);
        int32_t n = llama_chat_apply_template(c->name, all, count, true, NULL, 0);
        text = n >= 0 && n < PROMPT_BYTES ? malloc((size_t)n + 1) : NULL;
        if (text != NULL) *len = (size_t)llama_chat_apply_template(c->name, all, count, true, text, n);
    }
    free(all);
    if (text != NULL) return text;
    *f = (struct pl_llm_fault){ .status = 503 };
    snprintf(f->message, sizeof f->message, "the prompt could not be made");
    return NULL;
}
