#include "cli/dry_run.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "cli/bound.h"

bool pl_dry_run(void) { return dlsym(RTLD_DEFAULT, "dd_stub") != NULL; }

static const char *loopback_of(const char *host) {
    return strcmp(host, "0.0.0.0") == 0 ? "127.0.0.1" : strcmp(host, "::") == 0 ? "::1" : NULL;
}

static bool check_one(struct pl_address *a, bool quiet, struct pl_err *err) {
    if (a->kind != PL_ADDRESS_TCP || pl_bound_is_loopback(a->host)) return true;
    const char *instead = loopback_of(a->host);
    if (instead == NULL) {
        PL_FAIL(err, PL_E_USAGE,
                "dry run: %s is not loopback, and this would answer with values that no model computed",
                a->text);
        return pl_err_hint(err, "listen on 127.0.0.1, or give --allow-drydock");
    }
    if (!quiet)
        fprintf(stderr, "plimsoll: dry run: listening on %s only, not on %s (--allow-drydock lifts that)\n",
                instead, a->text);
    a->host = instead;
    return true;
}

bool pl_dry_run_listeners(struct pl_config *c, bool allowed, bool quiet, struct pl_err *err) {
    if (!pl_dry_run() || allowed) return true;
    for (size_t i = 0; i < c->listen.count; i++)
        if (!check_one(&c->listen.at[i], quiet, err)) return false;
    return check_one(&c->admin, quiet, err);
}
