/* worker/engine.h - what kind of worker a service has, and what is known about the server behind a command:
 * how it is told where to listen, where its readiness is asked, which settings suit it. The table is
 * engines.def.
 */
#ifndef PL_WORKER_ENGINE_H
#define PL_WORKER_ENGINE_H
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "config/config.h"

#define PL_KINDS(X) X(PYTHON, "python") X(COMMAND, "command") X(LLAMA, "llama") X(REMOTE, "remote")
enum pl_kind {
#define X(sym, name) PL_KIND_##sym,
    PL_KINDS(X)
#undef X
};
/* By the key that is set: run, command, model, url. */
enum pl_kind pl_kind_of(const struct pl_service_config *s);
const char *pl_kind_name(enum pl_kind k);

/* What happens when the KV cache is full: engines.def. */
enum pl_overcommit {
    PL_OVERCOMMIT_NO_KV,
    PL_OVERCOMMIT_PREEMPTS,
    PL_OVERCOMMIT_KILLS,
    PL_OVERCOMMIT_BATCHES,
};

struct pl_engine {
    enum pl_cfg_engine word;
    const char *program, *module, *verb;
    const char *port_flag, *port_letter, *host_flag; /* "" or NULL: it cannot be told by one */
    const char *socket_flag, *place_variable;        /* the same */
    const char *ready_path;                          /* NULL: not known, see pl_ready_path */
    bool llm, multiprocess_metrics;
    enum pl_overcommit overcommit;
    const char *tokenize; /* route that counts a body's prompt; "" or NULL: none */
    const char *always;
    const char *dead; /* words of a reply of one whose engine is gone, between bars; "" = not known */
};
/* By `engine`, else by the command's first words. Never NULL: at worst the one that knows nothing. */
const struct pl_engine *pl_engine_of(const struct pl_service_config *s);
const char *pl_engine_name(const struct pl_engine *e);

/* What a command lets us choose. */
enum pl_place {
    PL_PLACE_SOCKET, /* {socket} */
    PL_PLACE_PORT,   /* {port} */
    PL_PLACE_FLAGS,  /* a port, by the engine's own flags */
    PL_PLACE_FIXED,  /* worker_port: it always listens there */
    PL_PLACE_NONE,
    PL_PLACE_OWN_SOCKET, /* a socket, by the engine's own flag */
    PL_PLACE_VARIABLE,   /* a port, by the engine's own variable */
};
static inline bool pl_place_is_socket(enum pl_place p) {
    return p == PL_PLACE_SOCKET || p == PL_PLACE_OWN_SOCKET;
}
enum pl_place pl_place_of(const struct pl_service_config *s);
/* False and err: the command is empty, nobody could find its server, or two workers would share a port. */
bool pl_command_check(const struct pl_service_config *s, const char *place, struct pl_err *err);
/* The command says itself where to listen, which is not where its workers will: the flag, or NULL. */
const char *pl_command_own_port(const struct pl_service_config *s);

/* Settings that suit the engine, at origin `preset`. They must stand before anybody reads them. */
bool pl_engine_presets(struct pl_config *c, size_t service, struct pl_err *err);
/* Where a worker's own readiness is asked: what is configured, else the engine's, else the `turn`-th usual
 * place, round and round. */
const char *pl_ready_path(const struct pl_config *c, size_t service, unsigned turn);
/* How many usual places there are to try; 1 when the path is known. */
unsigned pl_ready_paths(const struct pl_config *c, size_t service);
#endif
