/* rows.c - /rows/SERVICE?worker=N&from=K: a worker's last requests with their memory, for `plimsoll soak` and
 * for people. Nothing is kept for a reader: it says where it was, and reads often enough (the worker's ring
 * has 1,024 records). Without `from` it is told where the end is now. */
#include <stdlib.h>
#include <string.h>

#include "admin/inside.h"
#include "crew/look.h"

enum { ROWS_MOST = 256 };

/* The columns of a row, in this order. */
static const char *const columns[] = { "n",         "id",       "tag",    "outcome",  "status",
                                       "flags",     "batch",    "device", "took_us",  "allocated_before",
                                       "allocated", "reserved", "peak",   "host_anon" };

static json_t *row_json(const struct pl_page_record *r) {
    char id[17];
    snprintf(id, sizeof id, "%016llx", (unsigned long long)r->id);
    return json_pack("[I,s,i,i,i,I,I,i,I,I,I,I,I,I]", (json_int_t)r->n, id, (int)r->tag, (int)r->outcome,
                     (int)r->status, (json_int_t)r->flags, (json_int_t)r->batch, (int)r->device,
                     (json_int_t)r->duration_us, (json_int_t)r->allocated_before, (json_int_t)r->allocated,
                     (json_int_t)r->reserved, (json_int_t)r->peak, (json_int_t)r->host_anon);
}

static void set_known(json_t *o, const char *key, uint64_t value) {
    if (value != 0) json_object_set_new(o, key, json_integer((json_int_t)value));
}

static json_t *sample_json(struct pl_worker *w, uint64_t now) {
    struct pl_ledger_sample s;
    pl_look_sample(w, now, &s);
    json_t *o = json_pack("{s:i,s:i}", "holders", (int)s.holders, "holders_ok", (int)s.holders_ok);
    json_t *gpus = json_array();
    set_known(o, "host_bytes", s.host_bytes);
    set_known(o, "host_max_bytes", s.host_max);
    for (int i = 0; i < PL_LEDGER_GPUS; i++) {
        json_t *g = json_object();
        set_known(g, "total_bytes", s.gpu[i].total);
        set_known(g, "used_bytes", s.gpu[i].used);
        set_known(g, "process_bytes", s.gpu[i].process);
        set_known(g, "inactive_split_bytes", s.gpu[i].inactive_split);
        set_known(g, "retries", s.gpu[i].retries);
        set_known(g, "ooms", s.gpu[i].ooms);
        if (json_object_size(g) > 0) {
            json_object_set_new(g, "device", json_integer(i));
            json_array_append(gpus, g);
        }
        json_decref(g);
    }
    json_object_set_new(o, "gpus", gpus);
    return o;
}

static struct pl_worker *worker_of(const struct pl_service *s, const char *slot) {
    long wanted = slot != NULL ? strtol(slot, NULL, 10) : 0;
    struct pl_worker *found = NULL;
    for (struct pl_worker *w = s->workers; w != NULL; w = w->next) {
        bool fits = wanted == 0 || (long)w->slot == wanted;
        if (fits && w->state != PL_WORKER_GONE && (found == NULL || w->state == PL_WORKER_READY)) found = w;
        if (found == w && w->state == PL_WORKER_READY) break;
    }
    return found;
}

static void add_rows(struct pl_worker *w, json_t *doc, uint64_t from) {
    static struct pl_page_record records[ROWS_MOST];
    uint64_t lost = 0;
    char text[PL_PAGE_TAG_ROOM], number[8];
    json_t *rows = json_array(), *tags = json_object(), *names = json_array();
    size_t n = pl_look_rows(w, &from, records, ROWS_MOST, &lost);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        json_array_append_new(names, json_string(columns[i]));
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(rows, row_json(&records[i]));
        snprintf(number, sizeof number, "%u", (unsigned)records[i].tag);
        if (json_object_get(tags, number) == NULL && pl_look_tag(w, records[i].tag, text))
            json_object_set_new(tags, number, json_string(text));
    }
    json_object_set_new(doc, "next", json_integer((json_int_t)from));
    json_object_set_new(doc, "lost", json_integer((json_int_t)lost));
    json_object_set_new(doc, "more", json_boolean(n == ROWS_MOST));
    json_object_set_new(doc, "columns", names);
    json_object_set_new(doc, "rows", rows);
    json_object_set_new(doc, "tags", tags);
}

void pl_rows_answer(struct pl_admin *a, struct pl_conn *c, const struct pl_http_query *t,
                    const char *service) {
    struct pl_service *s = pl_crew_find(a->o.crew, service, strlen(service));
    struct pl_worker *w = s != NULL ? worker_of(s, pl_http_query_get(t, "worker")) : NULL;
    const char *from = pl_http_query_get(t, "from");
    char *end = NULL;
    uint64_t n = from != NULL ? strtoull(from, &end, 10) : 0;
    if (w == NULL) {
        pl_admin_reply_error(c, 404, "not_found", s == NULL ? "no such service" : "no such worker", NULL);
        return;
    }
    if (from != NULL && (from[0] < '0' || from[0] > '9' || *end != '\0')) {
        pl_admin_reply_error(c, 400, "bad_request", "from: the number of a row, as `next` told it", NULL);
        return;
    }
    uint64_t now = pl_now_ms(a->o.app->clock);
    json_t *doc = json_pack("{s:i,s:s,s:s,s:i,s:I,s:s}", "v", 1, "kind", "rows", "service", s->config->id,
                            "worker", (int)w->slot, "generation", (json_int_t)w->generation, "state",
                            pl_worker_state_name(w->state));
    if (from == NULL)
        json_object_set_new(doc, "next", json_integer((json_int_t)pl_look_ended(w)));
    else
        add_rows(w, doc, n);
    json_object_set_new(doc, "sample", sample_json(w, now));
    pl_admin_reply_json(c, 200, doc);
}
