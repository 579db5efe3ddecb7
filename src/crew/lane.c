/* lane.c - what a worker says of its fast lane: which routes are in it, and why others are not. The answer is
 * foreign bytes: bounded, and text only. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "crew/look.h"
#include "crew/more.h"

enum { MOST_ROUTES = 512, MOST_TEXT = 256, PATIENCE_MS = 10000 };

static bool is_off(const char *word) { return strncmp(word, "off: ", 5) == 0; }

/* A table of texts of our own, or NULL. */
static json_t *table_of(const char *line, size_t len) {
    json_t *root = json_loadb(line, len, 0, NULL), *from = json_object_get(root, "lane"), *out = NULL;
    const char *route;
    json_t *word;
    if (json_is_object(from) && json_object_size(from) <= MOST_ROUTES) {
        out = json_object();
        json_object_foreach(from, route,
                            word) if (json_is_string(word) && json_string_length(word) < MOST_TEXT &&
                                      strlen(route) < MOST_TEXT) json_object_set(out, route, word);
    }
    json_decref(root);
    return out;
}

static void tell(struct pl_worker *w, json_t *table) {
    const char *route, *reason = "";
    json_t *word;
    int off = 0;
    json_object_foreach(table, route, word) if (is_off(json_string_value(word))) {
        if (off++ == 0) reason = json_string_value(word) + 5;
    }
    pl_log(w->service->crew->app->log, PL_INFO, "worker.fast_lane", F_STR("service", w->service->config->id),
           F_INT("worker", w->slot), F_INT("routes", (int64_t)json_object_size(table) - off),
           F_INT("off", off), F_STR("reason", reason));
}

static void on_answer(void *ctx, struct pl_worker *w, const char *line, size_t len) {
    (void)ctx;
    json_t *table = line != NULL ? table_of(line, len) : NULL;
    if (table == NULL) return; /* a launcher from before the lane, or one that does not answer */
    free(w->more->lane);
    w->more->lane = json_dumps(table, JSON_COMPACT);
    if (json_object_size(table) > 0) tell(w, table);
    json_decref(table);
}

void pl_lane_ask(struct pl_worker *w) {
    if (w->more->lane_asked || w->more->watched || w->service->more->description == NULL) return;
    w->more->lane_asked = pl_control_ask(w, "lane", NULL, PATIENCE_MS, on_answer, NULL);
}

const char *pl_look_lane(const struct pl_worker *w) { return w->more->lane; }

void pl_lane_free(struct pl_worker *w) {
    free(w->more->lane);
    w->more->lane = NULL;
}
