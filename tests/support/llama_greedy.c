/* llama_greedy MODEL TOKENS PROMPT: the likeliest continuation, one sequence, one token at a time. What
 * plimsoll-llama's greedy answers are compared with. */
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void quiet(enum ggml_log_level level, const char *text, void *user) {
    (void)level, (void)text, (void)user;
}

static llama_token likeliest(const float *logits, int32_t count) {
    llama_token best = 0;
    for (llama_token t = 1; t < count; t++)
        if (logits[t] > logits[best]) best = t;
    return best;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    llama_log_set(quiet, NULL);
    llama_backend_init();
    struct llama_model *m = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (m == NULL) return 1;
    const struct llama_vocab *v = llama_model_get_vocab(m);
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = 2048;
    struct llama_context *c = llama_init_from_model(m, p);
    int32_t room = (int32_t)strlen(argv[3]) + 8, left = atoi(argv[2]);
    llama_token *tokens = malloc((size_t)room * sizeof *tokens);
    if (c == NULL || tokens == NULL) return 1;
    int32_t n = llama_tokenize(v, argv[3], (int32_t)strlen(argv[3]), tokens, room, true, true);
    struct llama_batch batch = llama_batch_get_one(tokens, n);
    for (llama_token t; left-- > 0 && llama_decode(c, batch) == 0; batch = llama_batch_get_one(tokens, 1)) {
        char piece[256];
        t = likeliest(llama_get_logits_ith(c, -1), llama_vocab_n_tokens(v));
        if (llama_vocab_is_eog(v, t)) break;
        n = llama_token_to_piece(v, t, piece, sizeof piece, 0, false);
        fwrite(piece, 1, n > 0 ? (size_t)n : 0, stdout);
        tokens[0] = t;
    }
    free(tokens);
    llama_free(c);
    llama_model_free(m);
    return 0;
}
