/* restart.c - `plimsoll restart`: orders a replacement, says what gap is to be expected, and waits for its
 * end. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client.h"
#include "cli/wait.h"
#include "crew/crew.h"

static const char *seconds(double ms, char *out, size_t room) {
    snprintf(out, room, ms < 9950 ? "%.1f s" : "%.0f s", ms / 1000);
    return out;
}

/* What is about to happen, before it does: a gap that nobody expects is an outage. */
static void announce(const struct pl_wait *w, const json_t *reply) {
    const char *service = w->what;
    char gap[32], hold[32];
    const char *mode = json_string_value(json_object_get(reply, "mode"));
    const json_t *expected = json_object_get(reply, "expected_gap_ms");
    double gap_ms = json_number_value(expected);
    double hold_ms = json_number_value(json_object_get(reply, "hold_ms"));
    if (mode == NULL || strcmp(mode, "handover") != 0) return;
    if (expected == NULL) {
        printf("%s: handover; how long nobody serves is not known: no start was measured yet\n", service);
    } else if (gap_ms == 0) {
        printf("%s: handover; its other workers serve meanwhile\n", service);
    } else {
        seconds(gap_ms, gap, sizeof gap);
        seconds(hold_ms, hold, sizeof hold);
        printf("%s: handover; nobody serves for about %s, requests are held up to %s\n", service, gap, hold);
        if (gap_ms > hold_ms)
            printf("%s: what cannot be held that long is answered 503 with Retry-After%s\n", service,
                   json_is_true(json_object_get(reply, "waits"))
                       ? "; waits for a quiet moment, --now does not"
                       : "");
    }
    fflush(stdout);
}

/* `slot` 0: all of them. */
static int restart_one(struct pl_cli *cli, struct pl_client *c, const char *service, uint64_t slot) {
    const char *mode = pl_args_value(&cli->args, "mode");
    json_t *order = json_pack("{s:s}", "service", service);
    if (slot != 0) json_object_set_new(order, "worker", json_integer((json_int_t)slot));
    if (pl_args_has(&cli->args, "now")) json_object_set_new(order, "now", json_true());
    if (mode != NULL) json_object_set_new(order, "mode", json_string(mode));
    const struct pl_wait w = { .path = "/restart",
                               .what = service,
                               .done = "restarted",
                               .failed = "not restarted",
                               .late = "the successor is not ready yet; it goes on: plimsoll status",
                               .accepted = announce,
                               .no_wait = pl_args_has(&cli->args, "no-wait") };
    int result = pl_wait_action(cli, c, &w, order);
    json_decref(order);
    return result;
}

static int restart_all(struct pl_cli *cli, struct pl_client *c, uint64_t slot) {
    struct pl_err err = { 0 };
    int worst = 0;
    size_t i;
    json_t *s;
    json_t *doc = pl_client_document(c, "/status", &err);
    if (doc == NULL) return pl_cli_fail(cli, &err);
    json_array_foreach(json_object_get(doc, "services"), i, s) {
        int one = restart_one(cli, c, json_string_value(json_object_get(s, "name")), slot);
        if (one > worst) worst = one;
    }
    json_decref(doc);
    return worst;
}

int pl_verb_restart(struct pl_cli *cli) {
    struct pl_client c;
    struct pl_err err = { 0 };
    bool all = pl_args_has(&cli->args, "all");
    uint64_t slot = 0;
    if (all == (cli->args.words.count > 0)) {
        PL_FAIL(&err, PL_E_USAGE, "restart wants a service, or --all");
        return pl_cli_fail(cli, &err);
    }
    if (!pl_args_count(&cli->args, "worker", 1, PL_CREW_SLOTS_MOST, &slot, &err) ||
        !pl_client_find(cli, &c, &err))
        return pl_cli_fail(cli, &err);
    return all ? restart_all(cli, &c, slot) : restart_one(cli, &c, cli->args.words.at[0], slot);
}
