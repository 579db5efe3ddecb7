/* chat.h - messages as the text that a model was trained on.
 *
 * llama.cpp's C API knows a list of templates (llama_chat_builtin_templates) and finds out which one a
 * model's own Jinja text is; role and content only. What the model's own template would add to a chat without
 * a system message stands in that text and is taken from there where it is a plain literal (SmolLM2,
 * Qwen2.5); `--system-default` says otherwise.
 */
#ifndef PL_LLAMA_CHAT_H
#define PL_LLAMA_CHAT_H
#include "llama/ask.h"
#include "llama/model.h"

struct pl_llm_chat {
    const char *name; /* what llama_chat_apply_template is given; NULL: no template is known */
    char *system;     /* owned: for chats without a system message; NULL: none */
    const char *why_not;
};
void pl_llm_chat_open(struct pl_llm_chat *c, const struct pl_llm_model *m, const struct pl_llm_options *o);
void pl_llm_chat_close(struct pl_llm_chat *c);
/* The system text in a Jinja template, owned; NULL: none that could be found. Pure; for tests. */
char *pl_llm_default_system(const char *jinja);
/* The prompt's text, owned; NULL and fault. */
char *pl_llm_chat_text(const struct pl_llm_chat *c, const struct pl_llm_ask *a, size_t *len,
                       struct pl_llm_fault *f);
#endif
