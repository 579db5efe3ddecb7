#include "base/access.h"

#include <string.h>

#include "base/log_format.h"

enum { MOST_FIELDS = 32, ID_BYTES = 17 };

static const char *id_text(uint64_t id, char out[ID_BYTES]) {
    for (size_t i = 0; i < 16; i++) out[i] = "0123456789abcdef"[id >> (60 - 4 * i) & 15];
    out[16] = '\0';
    return out;
}

static struct pl_access_text path_of(struct pl_access_text target) {
    const char *query = target.at != NULL ? memchr(target.at, '?', target.len) : NULL;
    if (query != NULL) target.len = (size_t)(query - target.at);
    return target;
}

struct field_list {
    struct pl_field at[MOST_FIELDS];
    size_t count;
};

static void text(struct field_list *f, const char *key, struct pl_access_text t) {
    if (t.at != NULL) f->at[f->count++] = F_TEXT(key, t.at, t.len);
}
static void word(struct field_list *f, const char *key, const char *s) {
    if (s != NULL) f->at[f->count++] = F_STR(key, s);
}
static void number(struct field_list *f, const char *key, int64_t value) {
    if (value >= 0) f->at[f->count++] = F_INT(key, value);
}
static void count(struct field_list *f, const char *key, uint64_t value) {
    if (value != 0) number(f, key, (int64_t)value);
}
static void millis(struct field_list *f, const char *key, int64_t us) {
    if (us >= 0) f->at[f->count++] = F_REAL(key, (double)us / 1000);
}

static void fill(struct field_list *f, const struct pl_access *a, const char *id) {
    f->count = 0;
    word(f, "remote", a->remote);
    word(f, "scheme", a->scheme);
    text(f, "method", a->method);
    text(f, "path", path_of(a->target));
    text(f, "request_type", a->request_type);
    number(f, "request_length", a->request_length);
    number(f, "status", a->status != 0 ? (int64_t)a->status : -1);
    text(f, "response_type", a->response_type);
    number(f, "response_length", a->response_length);
    millis(f, "duration_ms", a->duration_us);
    text(f, "trace_id", a->trace_id);
    text(f, "span_id", a->span_id);
    word(f, "service", a->service);
    text(f, "request_id", a->request_id);
    word(f, "id", id);
    millis(f, "queue_ms", a->queue_us);
    millis(f, "first_byte_ms", a->first_byte_us);
    word(f, "outcome", a->outcome);
    word(f, "reason", a->reason);
    number(f, "worker", a->worker != 0 ? (int64_t)a->worker : -1);
    number(f, "generation", a->generation != 0 ? (int64_t)a->generation : -1);
    word(f, "model", a->model);
    count(f, "input_tokens", a->input_tokens);
    count(f, "output_tokens", a->output_tokens);
    count(f, "charged_bytes", a->charged_bytes);
    word(f, "replay", a->replay);
    word(f, "key", a->key);
}

/* ",key=value" as BentoML writes it: an unknown value is empty, the key stays. */
static void part(struct pl_buf *out, const char *key, struct pl_access_text t) {
    pl_buf_adds(out, key);
    if (t.at != NULL) pl_log_add_escaped(out, t.at, t.len);
}
static void part_int(struct pl_buf *out, const char *key, int64_t value) {
    pl_buf_adds(out, key);
    if (value >= 0) pl_log_add_int(out, value);
}
static void part_count(struct pl_buf *out, const char *key, uint64_t value) {
    if (value != 0) part_int(out, key, (int64_t)value);
}
static void part_word(struct pl_buf *out, const char *key, const char *s) {
    if (s == NULL) return;
    pl_buf_adds(out, key);
    pl_log_add_escaped(out, s, strlen(s));
}

void pl_access_format(struct pl_buf *out, bool color, uint64_t wall_ms, const struct pl_access *a) {
    char id[ID_BYTES];
    pl_log_line_stamp(out, color, PL_INFO, wall_ms);
    pl_buf_adds(out, " [service:");
    pl_buf_adds(out, a->service != NULL ? a->service : "");
    if (a->worker != 0) part_int(out, ":", a->worker);
    part_word(out, "] ", a->remote != NULL ? a->remote : "-");
    part_word(out, " (scheme=", a->scheme != NULL ? a->scheme : "");
    part(out, ",method=", a->method);
    part(out, ",path=", path_of(a->target));
    part(out, ",type=", a->request_type);
    part_int(out, ",length=", a->request_length);
    part_int(out, ") (status=", a->status != 0 ? (int64_t)a->status : -1);
    part(out, ",type=", a->response_type);
    part_int(out, ",length=", a->response_length);
    pl_buf_addf(out, ") %.1fms (trace=", a->duration_us > 0 ? (double)a->duration_us / 1000 : 0.0);
    part(out, "", a->trace_id);
    part(out, ",span=", a->span_id);
    if (a->queue_us >= 0) pl_buf_addf(out, ",queue=%.1fms", (double)a->queue_us / 1000);
    part_word(out, ",outcome=", a->outcome);
    part_word(out, ",reason=", a->reason);
    part_count(out, ",in=", a->input_tokens);
    part_count(out, ",out=", a->output_tokens);
    part_count(out, ",charged=", a->charged_bytes);
    part_word(out, ",replay=", a->replay);
    part_word(out, ",key=", a->key);
    if (a->id != 0) part_word(out, ",id=", id_text(a->id, id));
    pl_buf_adds(out, ")\n");
}

void pl_log_access(struct pl_logger *l, const struct pl_access *a) {
    if (!pl_log_wants(l, PL_INFO)) return;
    const struct pl_log_options *o = pl_log_options_of(l);
    uint64_t wall_ms = pl_wall_ms(o->clock);
    char id[ID_BYTES];
    struct field_list f;
    struct pl_buf line;
    fill(&f, a, a->id != 0 ? id_text(a->id, id) : NULL);
    pl_buf_init(&line, 0);
    if (o->format == PL_LOG_TERMINAL) pl_access_format(&line, o->color, wall_ms, a);
    pl_log_emit_as(l, o->format == PL_LOG_TERMINAL ? &line : NULL, PL_INFO, "access", wall_ms, f.at, f.count);
    pl_buf_free(&line);
}
