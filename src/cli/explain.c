/* explain.c - `plimsoll explain`: orders two looks at a worker and shows who holds its memory. All texts of
 * the report come from the worker: they are shown escaped. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/client.h"
#include "cli/figures.h"
#include "cli/snapshot_out.h"
#include "cli/wait.h"
#include "crew/crew.h"

enum { FIELD_CHARS = 240, QUIET_SHOWN = 5, LEFT_SHOWN = 3 };

/* --- words */

static void put(struct pl_buf *out, const char *text) {
    if (text != NULL) pl_snapshot_put(out, text, strlen(text), FIELD_CHARS);
}

static const char *text_of(const json_t *o, const char *key) {
    return json_string_value(json_object_get(o, key));
}
static long long number_of(const json_t *o, const char *key) {
    return (long long)json_integer_value(json_object_get(o, key));
}

static void put_bytes(struct pl_buf *out, long long bytes) {
    char text[PL_SNAPSHOT_BYTES_TEXT];
    pl_buf_adds(out, pl_snapshot_bytes((uint64_t)(bytes > 0 ? bytes : 0), text));
}

/* "service.py:18 predict: FAILED.append(error)" of the first places of a list. */
static void put_places(struct pl_buf *out, const char *label, const json_t *list) {
    size_t i;
    const json_t *at;
    for (i = 0; i < json_array_size(list) && i < 2; i++) {
        at = json_array_get(list, i);
        pl_buf_addf(out, "      %-13s ", i == 0 ? label : "");
        put(out, text_of(at, "file"));
        pl_buf_addf(out, ":%lld ", number_of(at, "line"));
        put(out, text_of(at, "func"));
        if (text_of(at, "code") != NULL) pl_buf_adds(out, ": ");
        put(out, text_of(at, "code"));
        if (json_object_get(at, "bytes") != NULL) {
            pl_buf_adds(out, ", ");
            put_bytes(out, number_of(at, "bytes"));
        }
        pl_buf_adds(out, "\n");
    }
}

static void put_row(struct pl_buf *out, const json_t *row) {
    const json_t *via = json_object_get(row, "via"), *hint;
    size_t i;
    pl_buf_adds(out, "  ");
    put(out, text_of(row, "words"));
    pl_buf_adds(out, "\n");
    put_places(out, "grows at", json_object_get(row, "grown_at"));
    put_places(out, "allocated at", json_object_get(row, "allocated_at"));
    if (json_is_object(via)) {
        pl_buf_adds(out, "      through       ");
        put(out, text_of(via, "name"));
        pl_buf_adds(out, ", ");
        put(out, text_of(via, "file"));
        pl_buf_addf(out, ":%lld\n", number_of(via, "line"));
    }
    if (json_is_integer(json_object_get(row, "bound")))
        pl_buf_addf(out, "      its bound is  %lld\n", number_of(row, "bound"));
    json_array_foreach(json_object_get(row, "hints"), i, hint) {
        pl_buf_adds(out, "      hint          ");
        put(out, json_string_value(hint));
        pl_buf_adds(out, "\n");
    }
}

/* Those that grow, then those of which one look says nothing, then a few of the rest. */
static void put_findings(struct pl_buf *out, const json_t *doc) {
    const json_t *list = json_object_get(doc, "findings"), *row;
    size_t i, growing = 0, quiet = 0, shown = 0;
    bool once = number_of(doc, "looks") < 2;
    json_array_foreach(list, i, row) {
        growing += json_is_true(json_object_get(row, "growing"));
        quiet += json_is_false(json_object_get(row, "growing"));
    }
    if (json_array_size(list) == 0)
        pl_buf_adds(out, "  nothing of what came after READY is held by anybody\n");
    else if (growing == 0 && !once)
        pl_buf_adds(out, "  nothing grows\n");
    json_array_foreach(list, i, row) {
        if (json_is_true(json_object_get(row, "growing"))) put_row(out, row);
    }
    if (once && json_array_size(list) > 0) pl_buf_adds(out, "  one look: whether these grow is not known\n");
    json_array_foreach(list, i, row) {
        if (json_is_null(json_object_get(row, "growing"))) put_row(out, row);
    }
    if (quiet > 0) pl_buf_addf(out, "  %zu that %s not grow:\n", quiet, quiet == 1 ? "does" : "do");
    json_array_foreach(list, i, row) {
        if (!json_is_false(json_object_get(row, "growing")) || shown++ >= QUIET_SHOWN) continue;
        pl_buf_adds(out, "    ");
        put(out, text_of(row, "words"));
        pl_buf_adds(out, "\n");
    }
}

static void put_left(struct pl_buf *out, const json_t *doc) {
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(doc, "unexplained"), i, row) {
        if (i >= LEFT_SHOWN) break;
        pl_buf_addf(out, "  held by nobody in Python: %lld blocks, ", number_of(row, "count"));
        put_bytes(out, number_of(row, "bytes"));
        if (json_is_true(json_object_get(row, "private_pool"))) pl_buf_adds(out, ", of a CUDA graph's pool");
        if (text_of(row, "allocated_at") != NULL) pl_buf_adds(out, ", allocated at ");
        put(out, text_of(row, "allocated_at"));
        pl_buf_adds(out, "\n");
    }
    json_array_foreach(json_object_get(doc, "pinned_host"), i, row) {
        pl_buf_adds(out, "  pinned host memory: ");
        put(out, text_of(row, "file"));
        pl_buf_addf(out, ":%lld ", number_of(row, "line"));
        put(out, text_of(row, "holder"));
        pl_buf_addf(out, ", %lld tensors\n", number_of(row, "tensors"));
        put_places(out, "grows at", json_object_get(row, "grown_at"));
    }
}

static void put_host(struct pl_buf *out, const json_t *host) {
    const json_t *row;
    size_t i;
    const char *grown = text_of(host, "grown");
    pl_buf_adds(out, "  host: ");
    put_bytes(out, number_of(host, "anon_bytes"));
    pl_buf_adds(out, " anonymous");
    if (json_object_get(host, "malloc_free_bytes") != NULL) {
        pl_buf_adds(out, ", of that free inside malloc ");
        put_bytes(out, number_of(host, "malloc_free_bytes"));
    }
    if (grown != NULL && strcmp(grown, "stable") != 0) {
        pl_buf_adds(out, "; it grew: ");
        put(out, grown);
    }
    pl_buf_adds(out, "\n");
    json_array_foreach(json_object_get(host, "holders"), i, row) {
        pl_buf_adds(out, "    ");
        put(out, text_of(row, "file"));
        pl_buf_addf(out, ":%lld ", number_of(row, "line"));
        put(out, text_of(row, "holder"));
        pl_buf_addf(out, " is %lld entries longer, about ", number_of(row, "grown"));
        put_bytes(out, number_of(row, "bytes_grown"));
        pl_buf_adds(out, "\n");
        put_places(out, "grows at", json_object_get(row, "grown_at"));
    }
    put_places(out, "allocated at", json_object_get(host, "allocated_at"));
}

static void put_report(struct pl_buf *out, const json_t *doc) {
    const json_t *cost = json_object_get(doc, "cost");
    put(out, text_of(doc, "service"));
    pl_buf_addf(out, " worker %lld: looked at in %.1f s (", number_of(doc, "worker"),
                pl_fig_number(cost, "total_ms") / 1000);
    put(out, text_of(doc, "mode"));
    pl_buf_addf(out, "), its threads stood still for %.0f ms at most", pl_fig_number(cost, "pause_ms"));
    if (number_of(doc, "looks") > 1)
        pl_buf_addf(out, "; %lld requests between the looks", number_of(doc, "requests"));
    pl_buf_adds(out, "\n");
    if (!json_is_true(json_object_get(doc, "complete"))) {
        pl_buf_adds(out, "  not complete: more time with --deadline");
        if (text_of(doc, "error") != NULL) pl_buf_adds(out, "; ");
        put(out, text_of(doc, "error"));
        pl_buf_adds(out, "\n");
    }
    put_findings(out, doc);
    put_left(out, doc);
    if (json_is_object(json_object_get(doc, "host"))) put_host(out, json_object_get(doc, "host"));
}

static void show(struct pl_cli *cli, const struct pl_wait *w, const json_t *action) {
    const json_t *doc = json_object_get(action, "report");
    struct pl_buf out;
    if (!json_is_object(doc)) {
        const char *message = text_of(action, "message");
        if (cli->args.json)
            json_dumpf(action, stdout, JSON_COMPACT);
        else
            printf("%s: %s", w->what, message != NULL ? message : "the action is not known any more");
        printf("\n");
        return;
    }
    if (cli->args.json) {
        json_dumpf(doc, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
        printf("\n");
        return;
    }
    pl_buf_init(&out, 1 << 20);
    put_report(&out, doc);
    fwrite(out.data, 1, out.len, stdout);
    pl_buf_free(&out);
}

static void announce(const struct pl_wait *w, const json_t *reply) {
    const struct pl_wait *self = w;
    (void)reply;
    fprintf(stderr, "%s: two looks, the second after a while or 300 requests; --again 0s makes do with one\n",
            self->what);
}

/* --- the snapshot */

static void keep_path(struct pl_cli *cli, const struct pl_wait *w, const json_t *action) {
    const char *file = text_of(json_object_get(action, "report"), "file");
    const char *message = text_of(action, "message");
    char **path = w->ctx;
    (void)cli;
    if (file != NULL)
        *path = strdup(file);
    else
        fprintf(stderr, "%s: no snapshot: %s\n", w->what, message != NULL ? message : "not told why");
}

static bool copy_file(const char *from, const char *to, struct pl_err *err) {
    char piece[65536];
    PL_AUTO_FD int in = open(from, O_RDONLY | O_CLOEXEC);
    if (in == -1) return PL_FAIL_SYS(err, errno, "open %s", from);
    PL_AUTO_FD int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (out == -1) return PL_FAIL_SYS(err, errno, "open %s", to);
    for (ssize_t n; (n = read(in, piece, sizeof piece)) != 0;) {
        if (n == -1 && errno == EINTR) continue;
        if (n == -1) return PL_FAIL_SYS(err, errno, "read %s", from);
        for (ssize_t done = 0, k; done < n; done += k)
            if ((k = write(out, piece + done, (size_t)(n - done))) <= 0)
                return PL_FAIL_SYS(err, errno, "write %s", to);
    }
    return true;
}

/* As `plimsoll snapshot report FILE` would say it. */
static int analyse(struct pl_cli *cli, const char *file) {
    struct pl_cli other = *cli;
    struct pl_err err = { 0 };
    static char verb[] = "snapshot", word[] = "report";
    char path[4096];
    char *argv[] = { cli->argv[0], verb, word, path, NULL };
    snprintf(path, sizeof path, "%s", file);
    if (!pl_cli_parse(4, argv, "snapshot", &other, &err)) return pl_cli_fail(cli, &err);
    return pl_verb_snapshot(&other);
}

static int snapshot(struct pl_cli *cli, struct pl_client *c, const char *service, json_t *order,
                    const char *file) {
    struct pl_err err = { 0 };
    char *path = NULL;
    const struct pl_wait w = { .path = "/snapshot",
                               .what = service,
                               .late = "no snapshot came in time",
                               .show = keep_path,
                               .ctx = &path };
    int result = pl_wait_action(cli, c, &w, order);
    if (path != NULL && !copy_file(path, file, &err)) result = pl_cli_fail(cli, &err);
    free(path);
    if (result == 0 && !cli->args.json) result = analyse(cli, file);
    return result;
}

/* --- the verb */

static bool set_duration(struct pl_cli *cli, const char *flag, const char *key, json_t *order,
                         struct pl_err *err) {
    const char *text = pl_args_value(&cli->args, flag);
    int64_t ms;
    if (text == NULL) return true;
    if (!pl_config_parse_duration(text, &ms, err)) {
        err->code = PL_E_USAGE;
        return pl_err_wrap(err, "--%s", flag);
    }
    json_object_set_new(order, key, json_integer(ms));
    return true;
}

int pl_verb_explain(struct pl_cli *cli) {
    struct pl_client c;
    struct pl_err err = { 0 };
    const struct pl_strings *words = &cli->args.words;
    const char *service = words->count > 0 ? words->at[0] : NULL;
    const char *mode = pl_args_value(&cli->args, "mode");
    const char *history = pl_args_value(&cli->args, "history"), *file = pl_args_value(&cli->args, "snapshot");
    uint64_t slot = 0;
    json_t *order = json_object();
    int result;
    bool ok = pl_args_count(&cli->args, "worker", 1, PL_CREW_SLOTS_MOST, &slot, &err);
    if (service != NULL) json_object_set_new(order, "service", json_string(service));
    if (slot != 0) json_object_set_new(order, "worker", json_integer((json_int_t)slot));
    json_t *short_order = json_copy(order);
    if (mode != NULL) json_object_set_new(order, "mode", json_string(mode));
    if (history != NULL) json_object_set_new(order, "history", json_string(history));
    if (pl_args_has(&cli->args, "force")) json_object_set_new(order, "force", json_true());
    if (!ok || !set_duration(cli, "deadline", "deadline_ms", order, &err) ||
        !set_duration(cli, "again", "again_ms", order, &err) || !pl_client_find(cli, &c, &err)) {
        result = pl_cli_fail(cli, &err);
    } else {
        const char *what = service != NULL ? service : "explain";
        const json_t *again = json_object_get(order, "again_ms");
        const struct pl_wait w = { .path = "/explain",
                                   .what = what,
                                   .late = "no report came in time; it goes on",
                                   .show = show,
                                   .accepted = again == NULL ? announce : NULL };
        result = pl_wait_action(cli, &c, &w, order);
        if (file != NULL && (result == 0 || result == 4)) {
            int saved = snapshot(cli, &c, what, short_order, file);
            if (saved != 0) result = saved;
        }
    }
    json_decref(order);
    json_decref(short_order);
    return result;
}
