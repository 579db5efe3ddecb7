/* status.c - `plimsoll status`: at most 24 lines of what matters, from /status. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/client.h"
#include "cli/figures.h"

enum { LINES = 24, GPU_LINES = 4 };

/* How fast, and how sure; or how much, when nothing grows any more. */
static void print_growth(const json_t *v) {
    char mid[24], low[24], high[24];
    if (json_object_get(v, "bytes_per_request") == NULL) {
        if (pl_fig_number(v, "growth_bytes") > 0)
            printf(", %s more than at the start",
                   pl_fig_size(pl_fig_number(v, "growth_bytes"), mid, sizeof mid));
        if (pl_fig_number(v, "since_requests") > 0)
            printf(", since request %.0f", pl_fig_number(v, "since_requests"));
        return;
    }
    printf(", %s a request (%s to %s), %s, since request %.0f",
           pl_fig_size(pl_fig_number(v, "bytes_per_request"), mid, sizeof mid),
           pl_fig_size(pl_fig_number(v, "low"), low, sizeof low),
           pl_fig_size(pl_fig_number(v, "high"), high, sizeof high), pl_fig_dash(v, "confidence"),
           pl_fig_number(v, "since_requests"));
}

/* Who holds it, or why that is not known although a verdict has asked. */
static void print_holder(const json_t *v) {
    const json_t *x = json_object_get(v, "explain");
    const char *state = pl_fig_dash(x, "state");
    if (json_object_get(v, "holder") != NULL) {
        printf(", held by %s", pl_fig_dash(v, "holder"));
        return;
    }
    if (strcmp(state, "under_way") == 0 || strcmp(state, "waits") == 0)
        printf(", its holder is being looked for (try %.0f)", pl_fig_number(x, "tries"));
    else if (x != NULL && strcmp(state, "done") != 0)
        printf(", its holder was not found (%s after %.0f tries: plimsoll explain --force --deadline 60s)",
               json_object_get(x, "reason") != NULL ? pl_fig_dash(x, "reason") : state,
               pl_fig_number(x, "tries"));
}

/* One line for what is not plain: a worker that is stable or still warms has none. */
static int print_verdict(const json_t *w, bool below) {
    const json_t *v = json_object_get(w, "verdict");
    const char *word = pl_fig_dash(v, "word");
    char left[24];
    bool plain = pl_fig_is_plain(v);
    if (plain && json_object_get(v, "holder") == NULL && json_object_get(v, "explain") == NULL) return 0;
    if (plain) { /* an operator has asked who holds the most, or the memory of the host has */
        printf("%s      memory of the worker", below ? "  " : "");
        print_holder(v);
        printf("\n");
        return 1;
    }
    printf("%s      memory of %s: %s", below ? "  " : "", pl_fig_dash(v, "scope"), word);
    print_growth(v);
    print_holder(v);
    if (pl_fig_number(v, "copies") > 0) printf(", %.0f copies", pl_fig_number(v, "copies"));
    if (json_object_get(v, "top_tag") != NULL)
        printf(", %.0f %% by %s", 100 * pl_fig_number(v, "share"), pl_fig_dash(v, "top_tag"));
    if (json_object_get(v, "forecast_s") != NULL)
        printf("; the limit comes in %s", pl_fig_duration(pl_fig_number(v, "forecast_s"), left, sizeof left));
    if (pl_fig_number(v, "again") > 0) printf("; it was replaced for this before");
    printf("\n");
    return 1;
}

/* `below`: of a dependency, which is warmed by its callers only. */
static int print_worker(const json_t *w, bool below) {
    char age[24];
    char pid[24] = "not ours";
    if (pl_fig_number(w, "pid") > 0) snprintf(pid, sizeof pid, "pid %d", (int)pl_fig_number(w, "pid"));
    printf("%s    worker %d.%-5lld %-9s %-11s age %-7s requests %-8.0f in flight %-4.0f %s",
           below ? "  " : "", (int)pl_fig_number(w, "worker"), (long long)pl_fig_number(w, "generation"),
           pl_fig_dash(w, "state"), pid, pl_fig_duration(pl_fig_number(w, "age_s"), age, sizeof age),
           pl_fig_number(w, "requests"), pl_fig_number(w, "in_flight"),
           below || strcmp(pl_fig_dash(w, "state"), "ready") != 0 ? ""
           : json_is_true(json_object_get(w, "warm"))             ? "warm"
                                                                  : "unwarmed");
    if (pl_fig_number(w, "zombies") > 0) printf("  zombies %.0f", pl_fig_number(w, "zombies"));
    if (pl_fig_number(w, "tasks") > 0) printf("  tasks %.0f", pl_fig_number(w, "tasks"));
    printf("\n");
    return 1 + print_verdict(w, below);
}

/* One line while something is planned or a gap is to be expected; else none. */
static int print_replacement(const json_t *r) {
    bool planned = json_is_true(json_object_get(r, "planned"));
    double gap_s = pl_fig_number(r, "expected_gap_s");
    char gap[64] = "no gap expected";
    if (gap_s > 0) snprintf(gap, sizeof gap, "a gap of %.1f s expected", gap_s);
    if (json_object_get(r, "expected_gap_s") == NULL) snprintf(gap, sizeof gap, "gap not known");
    if (planned && json_is_true(json_object_get(r, "under_way")))
        printf("    replacing worker %.0f: %s, %s, %s\n", pl_fig_number(r, "worker"),
               pl_fig_dash(r, "reason"), pl_fig_dash(r, "mode"), gap);
    else if (planned)
        printf("    worker %.0f should be replaced (%s, %s, %s): held back by %s\n",
               pl_fig_number(r, "worker"), pl_fig_dash(r, "reason"), pl_fig_dash(r, "mode"), gap,
               pl_fig_dash(r, "held_by"));
    else if (gap_s > 0)
        printf("    a replacement would be a %s, %s\n", pl_fig_dash(r, "mode"), gap);
    return planned || gap_s > 0;
}

/* Only where the limit is short. */
static int print_start_memory(const json_t *m) {
    char peak[24], limit[24], enough[24];
    if (pl_fig_number(m, "limit_bytes") == 0 ||
        pl_fig_number(m, "suggested_limit_bytes") <= pl_fig_number(m, "limit_bytes"))
        return 0;
    printf("    a start takes %s of host memory: the limit of %s is short, %s would be enough\n",
           pl_fig_size(pl_fig_number(m, "peak_anon_bytes"), peak, sizeof peak),
           pl_fig_size(pl_fig_number(m, "limit_bytes"), limit, sizeof limit),
           pl_fig_size(pl_fig_number(m, "suggested_limit_bytes"), enough, sizeof enough));
    return 1;
}

/* What byte admission goes by, of a service that it counts for. */
static int print_budget(const json_t *list) {
    char line[240];
    size_t i;
    json_t *b;
    json_array_foreach(list, i, b) printf("    %s\n", pl_fig_budget(b, line, sizeof line));
    return (int)json_array_size(list);
}

/* What a start will cost, and what the workers have in common. */
static int print_zygote(const json_t *z, const json_t *workers) {
    char own[24], shared[24];
    size_t i;
    json_t *w, *m;
    double both = 0;
    if (strcmp(pl_fig_dash(z, "state"), "refused") == 0) {
        printf("    no zygote: %s\n", pl_fig_dash(z, "reason"));
        return 1;
    }
    if (strcmp(pl_fig_dash(z, "state"), "ready") != 0) return 0;
    json_array_foreach(workers, i, w) {
        size_t k;
        json_array_foreach(json_object_get(w, "memory"), k, m) if (json_object_get(m, "pss_bytes") != NULL)
            both += pl_fig_number(m, "rss_bytes") - pl_fig_number(m, "pss_bytes");
    }
    printf("    zygote ready, %.0f modules, %s", pl_fig_number(z, "modules"),
           pl_fig_size(pl_fig_number(z, "pss_bytes"), own, sizeof own));
    if (both > 0) printf("; the workers share %s", pl_fig_size(both, shared, sizeof shared));
    printf("\n");
    return 1;
}

static int print_workers(const json_t *list, bool below, int lines) {
    size_t i;
    json_t *w;
    int used = 0;
    json_array_foreach(list, i, w) if (lines + used < LINES - 4) used += print_worker(w, below);
    return used;
}

static int print_dependency(const json_t *d, int lines) {
    const json_t *death = json_object_get(d, "last_death");
    bool ready = json_is_true(json_object_get(d, "ready"));
    printf("    %s  dependency  %s%s\n", pl_fig_dash(d, "name"),
           ready ? "ready" : "NOT READY: ", ready ? "" : pl_fig_dash(d, "why"));
    int used = 1 + print_workers(json_object_get(d, "workers"), true, lines + 1);
    if (death == NULL) return used;
    printf("    last death %s %s: %s\n", pl_fig_dash(death, "id"), pl_fig_dash(death, "ts"),
           pl_fig_dash(death, "sentence"));
    return used + 1;
}

/* One line: how many routes are in the fast lane, and why the first of the others is not. */
static int print_lane(const json_t *s) {
    json_t *table = json_object_get(json_array_get(json_object_get(s, "workers"), 0), "fast_lane");
    const char *route, *out = NULL, *why = NULL;
    json_t *word;
    size_t off = 0;
    if (json_object_size(table) == 0) return 0;
    json_object_foreach(table, route, word) {
        if (strncmp(json_string_value(word), "off: ", 5) != 0) continue;
        if (off++ == 0) out = route, why = json_string_value(word) + 5;
    }
    if (why != NULL && strcmp(why, "fast_lane is off") == 0) return 0; /* as was asked for */
    printf("    fast lane: %zu of %zu routes", json_object_size(table) - off, json_object_size(table));
    if (off > 0) printf("; not %s%s: %s", out, off > 1 ? " and others" : "", why);
    printf("\n");
    return 1;
}

static int print_service(const json_t *s, int lines) {
    size_t i;
    json_t *d;
    const json_t *queue = json_object_get(s, "queue"), *death = json_object_get(s, "last_death");
    const json_t *replacement = json_object_get(s, "replacement");
    bool ready = json_is_true(json_object_get(s, "ready"));
    printf("  %s  %s  %s%s  mode %s (%s)\n", pl_fig_dash(s, "name"), pl_fig_dash(s, "target"),
           ready ? "ready" : "NOT READY: ",
           ready ? (strcmp(pl_fig_dash(s, "warmth"), "warm") == 0 ? ", warm" : " (unwarmed)")
                 : pl_fig_dash(s, "why"),
           pl_fig_dash(s, "mode"), pl_fig_dash(s, "mode_origin"));
    printf("    running %.0f  waiting %.0f of %.0f\n", pl_fig_number(queue, "running"),
           pl_fig_number(queue, "requests"), pl_fig_number(queue, "max_requests"));
    int used = 2 + print_budget(json_object_get(s, "budget"));
    used += print_workers(json_object_get(s, "workers"), false, lines + used);
    used += print_start_memory(json_object_get(s, "start_memory"));
    used += print_zygote(json_object_get(s, "zygote"), json_object_get(s, "workers"));
    used += print_lane(s);
    if (strcmp(pl_fig_dash(s, "kind"), "remote") == 0)
        printf("    somebody else runs it: no restart, no replacement, no warm-up, no memory\n"), used++;
    else
        used += print_replacement(replacement);
    const json_t *offer = json_object_get(json_object_get(s, "caches"), "offer");
    if (offer != NULL)
        printf("    cold compile cache: %s (plimsoll restart %s)\n", json_string_value(offer),
               pl_fig_dash(s, "name")),
            used++;
    if (death != NULL)
        printf("    last death %s %s: %s\n", pl_fig_dash(death, "id"), pl_fig_dash(death, "ts"),
               pl_fig_dash(death, "sentence")),
            used++;
    json_array_foreach(json_object_get(s, "dependencies"), i, d) if (lines + used < LINES - 4) used +=
        print_dependency(d, lines + used);
    return used;
}

/* A card is one line; of many the first few. */
static int print_gpus(const json_t *list) {
    size_t i;
    json_t *g;
    int used = 0;
    json_array_foreach(list, i, g) {
        double gib = 1 << 30;
        if (used == GPU_LINES) {
            printf("  and %zu more GPUs\n", json_array_size(list) - i);
            return used + 1;
        }
        printf("  gpu %.0f  %s", pl_fig_number(g, "gpu"), pl_fig_dash(g, "name"));
        if (json_object_get(g, "used_bytes") != NULL)
            printf("  %.2f of %.2f GiB used", pl_fig_number(g, "used_bytes") / gib,
                   pl_fig_number(g, "total_bytes") / gib);
        if (pl_fig_number(g, "foreign_bytes") > 0)
            printf(", %.2f GiB not ours", pl_fig_number(g, "foreign_bytes") / gib);
        if (json_object_get(g, "utilization_ratio") != NULL)
            printf(", busy %.0f %%", pl_fig_number(g, "utilization_ratio") * 100);
        printf("%s\n", json_is_true(json_object_get(g, "in_service")) ? "" : "  OUT OF SERVICE");
        used++;
    }
    return used;
}

static void print_status(const json_t *doc) {
    char up[24];
    size_t i;
    json_t *s, *e;
    const json_t *events = json_object_get(doc, "events");
    const char *listen = json_string_value(json_array_get(json_object_get(doc, "listen"), 0));
    printf("plimsoll %s  instance %s  up %s  %s%s%s  on %s\n", pl_fig_dash(doc, "version"),
           pl_fig_dash(doc, "instance"), pl_fig_duration(pl_fig_number(doc, "uptime_s"), up, sizeof up),
           json_is_true(json_object_get(doc, "ready")) ? "ready" : "NOT READY",
           json_is_true(json_object_get(doc, "draining")) ? ", draining" : "",
           json_is_true(json_object_get(doc, "dry_run")) ? ", DRY RUN: values are not computed" : "",
           listen != NULL ? listen : "-");
    int lines = 1 + print_gpus(json_object_get(doc, "gpus"));
    const json_t *life = json_object_get(doc, "last_life");
    if (life != NULL) printf("  %s\n", pl_fig_dash(life, "sentence")), lines++;
    json_array_foreach(json_object_get(doc, "services"), i, s) if (lines < LINES - 4) lines +=
        print_service(s, lines);
    size_t most = json_array_size(events), room = (size_t)(LINES - lines > 0 ? LINES - lines : 0);
    json_array_foreach(events, i, e) {
        if (i + (room < 6 ? room : 6) < most) continue;
        printf("  %.12s %-5s %s %s\n", strlen(pl_fig_dash(e, "ts")) > 11 ? pl_fig_dash(e, "ts") + 11 : "-",
               pl_fig_dash(e, "level"), pl_fig_dash(e, "event"),
               json_object_get(e, "sentence") != NULL  ? pl_fig_dash(e, "sentence")
               : json_object_get(e, "service") != NULL ? pl_fig_dash(e, "service")
                                                       : "");
    }
}

static int show(struct pl_cli *cli, struct pl_client *c, const char *target) {
    struct pl_err err = { 0 };
    struct pl_buf body;
    int status, result = 5;
    if (!pl_client_ask(c, "GET", target, NULL, &status, &body, &err)) return pl_cli_fail(cli, &err);
    json_t *doc = json_loadb(body.data, body.len, 0, NULL);
    if (status != 200) {
        pl_client_error(c, status, &body, &err);
        result = pl_cli_fail(cli, &err);
    } else {
        if (cli->args.json)
            printf("%s\n", body.data);
        else if (json_object_get(doc, "services") != NULL)
            print_status(doc);
        else if (json_object_get(doc, "queue") != NULL)
            print_service(doc, 0);
        else
            print_dependency(doc, 0);
        result = json_is_true(json_object_get(doc, "ready")) ? 0 : 1;
    }
    json_decref(doc);
    pl_buf_free(&body);
    fflush(stdout);
    return result;
}

int pl_verb_status(struct pl_cli *cli) {
    struct pl_client c;
    struct pl_err err = { 0 };
    char target[64] = "/status";
    if (!pl_client_find(cli, &c, &err)) return pl_cli_fail(cli, &err);
    if (cli->args.words.count > 0) snprintf(target, sizeof target, "/status/%.50s", cli->args.words.at[0]);
    if (!pl_args_has(&cli->args, "watch")) return show(cli, &c, target);
    const char *every = pl_args_value(&cli->args, "watch");
    unsigned seconds = every != NULL ? (unsigned)strtoul(every, NULL, 10) : 2;
    for (;;) {
        if (!cli->args.json) printf("\033[H\033[2J");
        int result = show(cli, &c, target);
        if (result > 1) return result;
        sleep(seconds > 0 ? seconds : 2);
    }
}
