#include "record/rows.h"

#include <math.h>
#include <string.h>

struct head {
    uint32_t bytes;
    uint16_t kind, count;
};

struct pl_value pl_v_int(int64_t i) {
    return (struct pl_value){ .kind = i < 0 ? PL_V_NULL : PL_V_INT, .i = i };
}
struct pl_value pl_v_count(uint64_t n) {
    return (struct pl_value){ .kind = n == 0 ? PL_V_NULL : PL_V_INT, .i = (int64_t)n };
}
struct pl_value pl_v_id(uint64_t n) {
    return (struct pl_value){ .kind = PL_V_INT, .i = (int64_t)n };
}
struct pl_value pl_v_signed(double d) {
    return (struct pl_value){ .kind = isfinite(d) ? PL_V_REAL : PL_V_NULL, .d = d };
}
struct pl_value pl_v_real(double d) {
    return pl_v_signed(d < 0 ? (double)NAN : d);
}
struct pl_value pl_v_bytes(const char *s, size_t len) {
    return (struct pl_value){ .kind = s == NULL ? PL_V_NULL : PL_V_TEXT, .text = s, .len = len };
}
struct pl_value pl_v_text(const char *s) {
    return pl_v_bytes(s, s != NULL ? strlen(s) : 0);
}

static size_t body_of(const struct pl_value *v) {
    if (v->kind == PL_V_NULL) return 1;
    return v->kind == PL_V_TEXT ? 1 + sizeof(uint32_t) + v->len : 1 + 8;
}

size_t pl_row_pack(char *out, size_t room, enum pl_row_kind kind, const struct pl_value *values,
                   size_t count) {
    struct head h = { .bytes = sizeof h, .kind = (uint16_t)kind, .count = (uint16_t)count };
    char *at = out + sizeof h;
    for (size_t i = 0; i < count; i++) {
        const struct pl_value *v = &values[i];
        if (body_of(v) > room || h.bytes + body_of(v) > room) return 0;
        h.bytes += (uint32_t)body_of(v);
        *at++ = (char)v->kind;
        if (v->kind == PL_V_TEXT) {
            uint32_t len = (uint32_t)v->len;
            memcpy(at, &len, sizeof len);
            memcpy(at + sizeof len, v->text, v->len);
            at += sizeof len + v->len;
        } else if (v->kind != PL_V_NULL) {
            memcpy(at, v->kind == PL_V_INT ? (const void *)&v->i : (const void *)&v->d, 8);
            at += 8;
        }
    }
    memcpy(out, &h, sizeof h);
    return h.bytes;
}

bool pl_row_first(const char *rows, size_t len, struct pl_row *out) {
    struct head h;
    if (len < sizeof h) return false;
    memcpy(&h, rows, sizeof h);
    *out = (struct pl_row){
        .kind = (enum pl_row_kind)h.kind, .count = h.count, .bytes = h.bytes, .at = rows + sizeof h
    };
    return true;
}

struct pl_value pl_row_value(struct pl_row *r) {
    struct pl_value v = { .kind = (unsigned char)*r->at++ };
    if (v.kind == PL_V_INT || v.kind == PL_V_REAL) {
        memcpy(v.kind == PL_V_INT ? (void *)&v.i : (void *)&v.d, r->at, 8);
        r->at += 8;
    } else if (v.kind == PL_V_TEXT) {
        uint32_t len;
        memcpy(&len, r->at, sizeof len);
        v.text = r->at + sizeof len;
        v.len = len;
        r->at += sizeof len + len;
    }
    return v;
}
