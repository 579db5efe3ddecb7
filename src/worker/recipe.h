/* worker/recipe.h - how a worker is started: folder, argv and environment, from the configuration.
 *
 * Environment, later ones win: the caller's, less everything of ours (PLIMSOLL* but PLIMSOLL_DRYDOCK_*,
 * NOTIFY_SOCKET, LISTEN_*, variables named by env: secrets) and PYTHONSAFEPATH, which would hide the
 * service's own folder from its imports; what the kind needs, where nothing is set yet; services.NAME.env;
 * what main and the worker share. PYTHONPATH is ours in front of what the service's environment says.
 * `offline: auto` is off in this version: nothing here looks for files. Nothing is read from the machine: the
 * caller gives `environ`.
 */
#ifndef PL_WORKER_RECIPE_H
#define PL_WORKER_RECIPE_H
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "config/config.h"

/* Facts about one start that the configuration does not know. All borrowed. */
struct pl_recipe_facts {
    const char *python;       /* resolved interpreter (python kind) */
    const char *python_path;  /* our folder for PYTHONPATH */
    const char *folder;       /* working folder of the service, absolute */
    const char *ident;        /* import string for BentoML: "service:Class", ".", tag */
    const char *prom_dir;     /* PROMETHEUS_MULTIPROC_DIR, absolute */
    const char *tmp_dir;      /* TMPDIR, or NULL: the inherited one */
    const char *jit_dir;      /* where what engines compile is kept, or NULL: their own places */
    const char *dependency;   /* --service-name of a dependency that runs on its own, or NULL */
    const char *user, *home;  /* USER, LOGNAME and HOME, or NULL: as inherited */
    const char *gpus;         /* CUDA_VISIBLE_DEVICES, or NULL: as inherited */
    const char *socket;       /* command kind: the path it makes its socket at, for {socket} */
    uint16_t port;            /* command kind: for {port} */
    const char *agents;       /* command kind: where plimsoll.watch() finds us */
    const char *engine;       /* llama kind: the program plimsoll-llama */
    const char *legacy_ident; /* command kind: what `bentoml serve` serves instead of a command, or NULL */
    uint32_t worker;          /* slot, 1... */
    uint64_t keep_alive_s;    /* uvicorn's, longer than our pool keeps connections */
    uint64_t graceful_stop_s; /* uvicorn's --timeout-graceful-shutdown */
};

struct pl_recipe {
    const char *folder;
    char **argv; /* NULL-ended, in the arena */
    char **envp; /* the same; every name once */
    uint32_t argc, envc;
};

/* Its words on one line for people and logs: quoted where they need it, secrets left out (the word behind a
 * flag whose name has key, token, secret or password in it, and what is behind such a flag's `=`). Cut to
 * `room`. */
void pl_recipe_say(const struct pl_recipe *r, char *out, size_t room);

/* Folder, argv and environment are copies in the arena. False without memory, when python, python_path,
 * folder, ident or prom_dir is missing, or when services.NAME.env names a variable of ours. */
bool pl_recipe_python(const struct pl_config *c, const struct pl_service_config *s,
                      const struct pl_recipe_facts *f, char *const *environ_in, struct pl_arena *a,
                      struct pl_recipe *out, struct pl_err *err);
/* The command of a service, with {socket}, {port} and {gpus} filled in, the engine's flags for host and port
 * in place of the command's own where it has neither placeholder, and engine_args behind it. The same rules
 * for the environment, less what is for Python workers. False as above. */
bool pl_recipe_command(const struct pl_config *c, const struct pl_service_config *s,
                       const struct pl_recipe_facts *f, char *const *environ_in, struct pl_arena *a,
                       struct pl_recipe *out, struct pl_err *err);
/* plimsoll-llama with the settings of services.NAME.llama as its flags; only those that are set, so that what
 * is left is chosen by what fits when it starts. OpenMP waits passively: spinning threads starve a shared
 * machine. False as above. */
bool pl_recipe_llama(const struct pl_config *c, const struct pl_service_config *s,
                     const struct pl_recipe_facts *f, char *const *environ_in, struct pl_arena *a,
                     struct pl_recipe *out, struct pl_err *err);
/* One number for one recipe: folder, argv, and the environment in any order, without PROMETHEUS_MULTIPROC_DIR
 * and TMPDIR, which are another one's at every start. Never 0. */
uint64_t pl_recipe_hash(const struct pl_recipe *r);
/* The same for what all workers of one zygote have in common: without the worker's number, and without
 * variables that are read again when they are needed (the list is python/plimsoll/imports.py's). Never 0. */
uint64_t pl_recipe_family(const struct pl_recipe *r);
/* Turns the recipe of a worker into that of its zygote. `preload`: further modules. False without memory. */
bool pl_recipe_zygote(struct pl_recipe *r, const struct pl_strings *preload, struct pl_arena *a,
                      struct pl_err *err);
#endif
