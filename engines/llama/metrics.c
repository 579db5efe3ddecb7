/* metrics.c - the /metrics page: llama-server's names where it has them, ours for what it does not tell.
 * Cells, preemptions and steps are on the page in shared memory: main makes metrics of them (crew/cells.c).
 */
#include "llama/serve_inside.h"

static const double bounds[PL_LLM_BOUNDS] = { 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60 };

void pl_llm_observe(struct pl_llm_histogram *h, double seconds) {
    size_t i = 0;
    while (i < PL_LLM_BOUNDS && seconds > bounds[i]) i++;
    h->counts[i]++;
    h->sum += seconds;
}

static void histogram(struct pl_buf *b, const char *name, const char *help,
                      const struct pl_llm_histogram *h) {
    uint64_t sum = 0;
    pl_buf_addf(b, "# HELP %s %s\n# TYPE %s histogram\n", name, help, name);
    for (size_t i = 0; i < PL_LLM_BOUNDS; i++)
        pl_buf_addf(b, "%s_bucket{le=\"%g\"} %llu\n", name, bounds[i],
                    (unsigned long long)(sum += h->counts[i]));
    sum += h->counts[PL_LLM_BOUNDS];
    pl_buf_addf(b, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.9g\n%s_count %llu\n", name, (unsigned long long)sum,
                name, h->sum, name, (unsigned long long)sum);
}

static void one(struct pl_buf *b, const char *name, const char *type, const char *help, uint64_t value) {
    pl_buf_addf(b, "# HELP %s %s\n# TYPE %s %s\n%s %llu\n", name, help, name, type, name,
                (unsigned long long)value);
}

struct row {
    const char *label;
    uint64_t value;
};

static void family(struct pl_buf *b, const char *name, const char *label, const char *help,
                   const struct row *rows, size_t count) {
    pl_buf_addf(b, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
    for (size_t i = 0; i < count; i++)
        pl_buf_addf(b, "%s{%s=\"%s\"} %llu\n", name, label, rows[i].label, (unsigned long long)rows[i].value);
}

void pl_llm_metrics(struct pl_llm_server *s, struct pl_buf *b) {
    const struct pl_llm_stats *t = pl_llm_stats(s->sched);
    const struct pl_llm_bytes *m = &s->model.bytes;
    one(b, "llamacpp:prompt_tokens_total", "counter", "Prompt tokens that were computed.", t->prompt_tokens);
    one(b, "llamacpp:prompt_tokens_cached_total", "counter", "Prompt tokens that were shared instead.",
        t->cached_tokens);
    one(b, "llamacpp:tokens_predicted_total", "counter", "Tokens of answers.", t->out_tokens);
    one(b, "llamacpp:n_decode_total", "counter", "Steps.", t->steps);
    one(b, "llamacpp:requests_processing", "gauge", "Sequences that run.", t->running);
    one(b, "llamacpp:requests_deferred", "gauge", "Requests that wait or are parked.",
        t->waiting + t->parked);
    const struct row bytes[] = { { "weights", m->weights },
                                 { "kv", m->kv + m->state },
                                 { "compute", m->compute },
                                 { "output", m->output },
                                 { "parked", t->parked_bytes } };
    family(b, "plimsoll_llama_memory_bytes", "component", "What the model's parts take.", bytes, 5);
    one(b, "plimsoll_llama_no_kv_slot_total", "counter", "Steps without room where room was promised.",
        t->no_cell);
    one(b, "plimsoll_llama_requests_done_total", "counter", "Answers that ended.", t->done);
    one(b, "plimsoll_llama_requests_cancelled_total", "counter", "Answers whose client left.", t->cancelled);
    one(b, "plimsoll_llama_requests_refused_total", "counter", "Requests that were not taken.", t->refused);
    histogram(b, "plimsoll_llama_first_token_seconds", "From the head of a request to its first token.",
              &s->first);
    histogram(b, "plimsoll_llama_token_gap_seconds", "Between two tokens of an answer.", &s->gaps);
}
