/* serve_inside.h - the server's own: its parts, and one reply in the making. */
#ifndef PL_LLAMA_SERVE_INSIDE_H
#define PL_LLAMA_SERVE_INSIDE_H
#include <uv.h>

#include "llama/answer.h"
#include "llama/ask.h"
#include "llama/chat.h"
#include "llama/embed.h"
#include "llama/fit.h"
#include "llama/page.h"
#include "llama/sched.h"
#include "llama/serve.h"
#include "llama/text.h"
#include "net/server.h"

enum pl_llm_state { PL_LLM_LOADING, PL_LLM_READY, PL_LLM_DRAINING, PL_LLM_BROKEN };

/* Seconds; the last bound is endless. */
enum { PL_LLM_BOUNDS = 12 };
struct pl_llm_histogram {
    uint64_t counts[PL_LLM_BOUNDS + 1];
    double sum;
};

struct pl_llm_server {
    struct pl_llm_options *o;
    uv_loop_t *loop;
    struct pl_timers *timers;
    struct pl_metrics *metrics;
    struct pl_server *server;
    struct pl_server_limits limits;
    uv_work_t load;
    atomic_int progress;
    enum pl_llm_state state;
    int status; /* of the exit */

    /* made by the loading thread, the loop's from READY on */
    struct pl_llm_fit fit;
    struct pl_llm_model model;
    struct pl_llm_embedder embedder;
    struct pl_llm_chat chat;
    struct pl_err problem;
    bool loaded;

    struct pl_llm_sched *sched;
    const char *names[16]; /* that the model answers to */
    size_t name_count;
    char *name_text; /* owned */
    uint64_t next_id, boot;
    struct pl_llm_histogram first, gaps;
    uint64_t steps[PL_METRIC_BUCKETS]; /* by how long they took */
    double steps_s;
    struct pl_llm_page page;
};

struct pl_llm_reply;
struct pl_llm_choice {
    struct pl_llm_reply *reply;
    struct pl_llm_job *job; /* NULL: not begun, or over */
    struct pl_llm_text text;
    struct pl_buf out;      /* text that is not sent yet; without a stream: all of it */
    struct pl_buf logprobs; /* entries that belong to it */
    const char *why;
    bool begun; /* its first chunk went out */
    uint64_t last_us;
};

/* A request from its head to its last byte. */
struct pl_llm_reply {
    struct pl_llm_server *s;
    struct pl_conn *c;
    enum pl_llm_route route;
    struct pl_buf body;
    struct pl_llm_ask ask;
    struct pl_llm_answer answer;
    struct pl_llm_choice choices[PL_LLM_CHOICES];
    size_t count, open; /* choices; those not over */
    struct pl_llm_usage usage;
    enum pl_llm_end worst;
    uint64_t begun_us;
    uint64_t id;     /* x-plimsoll-id; 0: none */
    uint64_t record; /* on the page; 0: it was not begun */
    bool started;    /* the head of a stream is out */
};

void pl_llm_observe(struct pl_llm_histogram *h, double seconds);
void pl_llm_metrics(struct pl_llm_server *s, struct pl_buf *out);

/* routes.c: what is asked of whom. `pl_llm_request` at the head, `pl_llm_act` with the whole body. */
void pl_llm_request(struct pl_llm_server *s, struct pl_conn *c);
void pl_llm_act(struct pl_llm_reply *r);
/* It is over: answered with this status, or given up (0). `whole`: nothing of the answer is missing. */
void pl_llm_drop(struct pl_llm_reply *r, uint16_t status, bool whole);
/* Owned tokens of a text, or of the numbers that came instead; NULL: no memory, or a text that is too long.
 */
llama_token *pl_llm_input_tokens(const struct llama_vocab *v, const struct pl_llm_input *in, int *count);
void pl_llm_fail(struct pl_conn *c, const struct pl_llm_fault *f, unsigned retry_after);
extern const struct pl_llm_calls pl_llm_reply_calls;
/* generate.c */
void pl_llm_generate(struct pl_llm_reply *r);
#endif
