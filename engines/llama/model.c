#include "llama/model.h"

#include <ggml-backend.h>
#include <ggml.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- what llama.cpp says while it works */

static struct {
    pthread_mutex_t lock;  /* lines come from whatever thread loads or computes */
    bool verbose, opening; /* while opening, errors are told by whoever asked for it, in one line */
    char error[256];       /* the first one since it was cleared */
    struct pl_llm_bytes bytes;
} heard = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* "… size =   92.10 MiB": the number behind `mark`, in bytes. False: it is not there. */
static bool mebibytes(const char *line, const char *mark, uint64_t *out) {
    const char *at = strstr(line, mark);
    char *end;
    if (at == NULL) return false;
    double n = strtod(at + strlen(mark), &end);
    if (end == at + strlen(mark) || strncmp(end, " MiB", 4) != 0 || n < 0 || n > 1e9) return false;
    *out = (uint64_t)(n * 1048576 + 0.5);
    return true;
}

/* The lines of llama.cpp 0.5 that carry sizes; tests/data/llama holds whole logs. In a run that reads no
 * weights the buffers of weights and KV say 0, the cache's own line does not: so KV is taken from there. */
static void read_sizes(const char *line) {
    uint64_t n;
    struct pl_llm_bytes *b = &heard.bytes;
    if (line[0] == '~') return; /* the destructor repeats the compute buffer */
    if (mebibytes(line, "model buffer size =", &n))
        b->weights += n;
    else if (strstr(line, "llama_kv_cache: size =") != NULL && mebibytes(line, "size =", &n))
        b->kv += n;
    else if (strstr(line, "llama_memory_recurrent: size =") != NULL && mebibytes(line, "size =", &n))
        b->state += n;
    else if (mebibytes(line, "compute buffer size =", &n))
        b->compute += n;
    else if (mebibytes(line, "output buffer size =", &n))
        b->output += n;
}

static void on_log(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    pthread_mutex_lock(&heard.lock);
    if (level == GGML_LOG_LEVEL_ERROR && heard.error[0] == '\0') {
        snprintf(heard.error, sizeof heard.error, "%s", text);
        heard.error[strcspn(heard.error, "\n")] = '\0';
    }
    read_sizes(text);
    pthread_mutex_unlock(&heard.lock);
    bool error = level == GGML_LOG_LEVEL_ERROR && !heard.opening;
    if (error || level == GGML_LOG_LEVEL_WARN || heard.verbose) fputs(text, stderr);
}

/* The last words before abort(): what a death is explained by. Only write(2) is safe here. */
static void on_abort(const char *message) {
    static const char head[] = "plimsoll-llama: llama.cpp gave up: ";
    if (write(STDERR_FILENO, head, sizeof head - 1) < 0 ||
        write(STDERR_FILENO, message, strlen(message)) < 0 || write(STDERR_FILENO, "\n", 1) < 0)
        return;
}

void pl_llm_start(bool verbose) {
    heard.verbose = verbose;
    llama_log_set(on_log, NULL);
    ggml_set_abort_callback(on_abort);
    llama_backend_init();
}

static void listen_anew(void) {
    pthread_mutex_lock(&heard.lock);
    heard.error[0] = '\0';
    heard.opening = true;
    heard.bytes = (struct pl_llm_bytes){ 0 };
    pthread_mutex_unlock(&heard.lock);
}

static bool refused(struct pl_err *err, const char *what) {
    return PL_FAIL(err, PL_E_CONFIG, "%s: %s", what,
                   heard.error[0] != '\0' ? heard.error : "llama.cpp gave no reason");
}

/* --- parameters */

static bool on_progress(float part, void *user) {
    atomic_int *progress = user;
    atomic_store(progress, (int)(part * 1000));
    return true;
}

static struct llama_model_params model_params(const struct pl_llm_options *o, bool measure) {
    struct llama_model_params p = llama_model_default_params();
    p.n_gpu_layers = o->n_gpu_layers;
    p.split_mode = o->split_mode;
    p.main_gpu = o->main_gpu;
    if (o->has_tensor_split) p.tensor_split = o->tensor_split;
    if (measure) {
        p.no_alloc = true;
        p.load_mode = LLAMA_LOAD_MODE_NONE;
    }
    return p;
}

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

static struct llama_context_params context_params(const struct pl_llm_options *o, uint32_t cells,
                                                  uint32_t sequences) {
    struct llama_context_params p = llama_context_default_params();
    uint32_t ubatch = min_u32(o->ubatch_size, min_u32(o->batch_size, cells));
    p.n_ctx = cells;
    p.n_batch = p.n_ubatch = ubatch; /* one step computes one micro-batch */
    p.n_seq_max = sequences;
    p.n_outputs_max = sequences; /* the default makes room for the logits of every token of a batch */
    p.n_threads = p.n_threads_batch = (int32_t)o->threads;
    p.kv_unified = true; /* one pool: a long request may have what short ones leave */
    p.swa_full = o->swa_full;
    p.flash_attn_type = o->flash_attn;
    p.type_k = o->cache_type_k;
    p.type_v = o->cache_type_v;
    return p;
}

/* Keeping a beginning means keeping all its cells: not with windows that forget, nor with recurrent states.
 */
static bool can_share(const struct pl_llm_options *o, const struct llama_model *m) {
    bool forgets = llama_model_n_swa(m) > 0 && !o->swa_full;
    return o->prefix_sharing && !forgets && !llama_model_is_recurrent(m) && !llama_model_is_hybrid(m);
}

static uint32_t sequences_of(const struct pl_llm_options *o, const struct llama_model *m, uint32_t parallel) {
    return parallel + (can_share(o, m) ? PL_LLM_SPARE_SEQUENCES : 0);
}

bool pl_llm_measure(const struct pl_llm_options *o, uint32_t cells, uint32_t parallel,
                    struct pl_llm_bytes *out, uint32_t *trained, struct pl_err *err) {
    listen_anew();
    struct llama_model *m = llama_model_load_from_file(o->model, model_params(o, true));
    if (m == NULL) return refused(err, o->model);
    *trained = (uint32_t)llama_model_n_ctx_train(m);
    if (cells == 0) cells = *trained != 0 ? *trained : 2048;
    struct llama_context *c =
        llama_init_from_model(m, context_params(o, cells, sequences_of(o, m, parallel)));
    bool ok = c != NULL || refused(err, o->model);
    *out = heard.bytes;
    out->weights = llama_model_size(m);
    if (c != NULL) llama_free(c);
    llama_model_free(m);
    return ok;
}

/* --- loading */

bool pl_llm_open(struct pl_llm_model *m, const struct pl_llm_options *o, uint32_t cells, uint32_t parallel,
                 atomic_int *progress, struct pl_err *err) {
    *m = (struct pl_llm_model){ 0 };
    listen_anew();
    struct llama_model_params p = model_params(o, false);
    p.progress_callback = on_progress;
    p.progress_callback_user_data = progress;
    m->model = llama_model_load_from_file(o->model, p);
    if (m->model == NULL) return refused(err, o->model);
    m->vocab = llama_model_get_vocab(m->model);
    m->shares = can_share(o, m->model);
    m->trained = (uint32_t)llama_model_n_ctx_train(m->model);
    llama_model_desc(m->model, m->description, sizeof m->description);
    m->ctx = llama_init_from_model(m->model, context_params(o, cells, sequences_of(o, m->model, parallel)));
    if (m->ctx == NULL) {
        refused(err, o->model);
        pl_llm_close(m);
        return false;
    }
    m->memory = llama_get_memory(m->ctx);
    m->cells = llama_n_ctx(m->ctx); /* asked back: llama.cpp rounds */
    m->batch_most = llama_n_batch(m->ctx);
    m->sequences = llama_n_seq_max(m->ctx);
    m->batch = llama_batch_init((int32_t)m->batch_most, 0, 1);
    m->bytes = heard.bytes;
    m->bytes.weights = llama_model_size(m->model);
    if (m->batch.token != NULL && m->memory != NULL) return true;
    if (m->memory == NULL)
        PL_FAIL(err, PL_E_CONFIG, "%s: this model has no memory of its text: it cannot generate", o->model);
    else
        PL_FAIL(err, PL_E_NOMEM, "%s: out of memory", o->model);
    pl_llm_close(m);
    return false;
}

/* A prompt and one token more, on the machine as it will be used; then everything is forgotten. 32 tokens
 * warm a CPU; a GPU's pools take their final size with a whole step. */
static bool run_once(struct pl_llm_model *m) {
    enum { CPU_TOKENS = 32 };
    bool gpu = llama_supports_gpu_offload();
    uint32_t n = gpu ? m->batch_most : min_u32(CPU_TOKENS, m->batch_most);
    n = min_u32(n, m->cells - 1);
    llama_token t = llama_vocab_bos(m->vocab);
    if (t == LLAMA_TOKEN_NULL) t = 0;
    m->batch.n_tokens = 0;
    for (uint32_t i = 0; i < n; i++) pl_llm_add(m, t, (llama_pos)i, 0, i + 1 == n);
    if (llama_decode(m->ctx, m->batch) != 0) return false;
    m->batch.n_tokens = 0;
    pl_llm_add(m, t, (llama_pos)n, 0, true);
    if (llama_decode(m->ctx, m->batch) != 0) return false;
    llama_synchronize(m->ctx);
    llama_memory_clear(m->memory, true);
    return true;
}

bool pl_llm_warm_up(struct pl_llm_model *m, struct pl_err *err) {
    bool ok = run_once(m) || refused(err, "warm-up");
    heard.opening = false;
    return ok;
}

void pl_llm_close(struct pl_llm_model *m) {
    if (m->batch.token != NULL) llama_batch_free(m->batch);
    if (m->ctx != NULL) llama_free(m->ctx);
    if (m->model != NULL) llama_model_free(m->model);
    *m = (struct pl_llm_model){ 0 };
}

/* --- small things */

void pl_llm_add(struct pl_llm_model *m, llama_token t, llama_pos p, llama_seq_id s, bool want_logits) {
    struct llama_batch *b = &m->batch;
    int32_t i = b->n_tokens++;
    b->token[i] = t;
    b->pos[i] = p;
    b->n_seq_id[i] = 1;
    b->seq_id[i][0] = s;
    b->logits[i] = want_logits;
}

llama_token *pl_llm_tokens(const struct llama_vocab *v, const char *text, size_t len, bool add_bos,
                           bool special, int *count) {
    *count = 0;
    if (len > INT32_MAX) return NULL;
    int32_t need = llama_tokenize(v, text, (int32_t)len, NULL, 0, add_bos, special);
    if (need == INT32_MIN) return NULL;
    int32_t room = need < 0 ? -need : 0;
    llama_token *list = malloc(((size_t)room + 1) * sizeof *list);
    if (list == NULL) return NULL;
    *count = room > 0 ? llama_tokenize(v, text, (int32_t)len, list, room, add_bos, special) : 0;
    if (*count >= 0) return list;
    free(list);
    return NULL;
}
