#include "gateway/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* --- what is to be looked at */

bool pl_tokens_wanted(const struct pl_gate *gate, const struct pl_http_head *h) {
    return pl_http_dialect_of(pl_http_at(h, h->target), h->target_len) == PL_DIALECT_OPENAI ||
           pl_gate_is_llm(gate) || gate->service->config->limits_input_tokens > 0;
}

/* Limits that hold for what is inside a body, the depth apart, which every service has. */
static bool has_limits(const struct pl_service_config *c) {
    return c->limits_image_pixels > 0 || c->limits_array_items > 0 || c->limits_output_tokens > 0 ||
           c->limits_input_tokens > 0;
}

static struct pl_text value_of(const struct pl_http_head *h, enum pl_http_field id) {
    const struct pl_http_header *f = pl_http_find(h, id);
    if (f == NULL) return (struct pl_text){ "", 0 };
    return (struct pl_text){ pl_http_at(h, f->value), f->value_len };
}

static bool begins(struct pl_text t, const char *word) {
    size_t n = strlen(word);
    return t.len >= n && strncasecmp(t.at, word, n) == 0;
}

/* application/json, application/problem+json, text/json; charset=utf-8 */
static bool is_json_type(struct pl_text t) {
    for (size_t i = 1; i + 4 <= t.len && t.at[i - 1] != ';'; i++)
        if ((t.at[i - 1] == '/' || t.at[i - 1] == '+') && strncasecmp(t.at + i, "json", 4) == 0) return true;
    return false;
}

static bool is_openai_route(const struct pl_http_head *h) {
    return pl_http_dialect_of(pl_http_at(h, h->target), h->target_len) == PL_DIALECT_OPENAI;
}

/* --- the judgement */

bool pl_inspect_judge(struct pl_request *r, enum pl_reason reason, const char *code, const char *text) {
    struct pl_inspect *i = r->inspect;
    if (r->gate->service->config->mode != PL_CFG_MODE_OBSERVE) {
        pl_refuse_as(r, reason, code, text);
        return false;
    }
    if (!i->told) pl_refuse_would(r, reason, 0);
    i->told = true;
    i->kind = PL_INSPECT_DONE;
    return true;
}

static bool judge_image(struct pl_request *r, uint64_t pixels, bool unread) {
    long long limit = (long long)r->gate->service->config->limits_image_pixels;
    char text[200];
    if (limit <= 0) return true;
    if (pixels > (uint64_t)limit) {
        snprintf(text, sizeof text, "an image of %llu pixels is larger than limits.image_pixels, %lld",
                 (unsigned long long)pixels, limit);
        return pl_inspect_judge(r, PL_REASON_TOO_LARGE, NULL, text);
    }
    if (!unread) return true;
    snprintf(
        text, sizeof text,
        "the size of an image cannot be read, and limits.image_pixels is %lld: send PNG, JPEG, WebP or GIF",
        limit);
    return pl_inspect_judge(r, PL_REASON_INVALID, "invalid_value", text);
}

static bool judge_json(struct pl_request *r, enum pl_json_state state) {
    struct pl_inspect *i = r->inspect;
    const struct pl_service_config *c = r->gate->service->config;
    const struct pl_json_facts *f = pl_json_scan_facts(i->scan);
    char text[200];
    if (state == PL_JSON_TOO_DEEP) {
        snprintf(text, sizeof text, "the JSON is nested deeper than limits.json_depth, %lld levels",
                 (long long)c->limits_json_depth);
        return pl_inspect_judge(r, PL_REASON_INVALID, "invalid_value", text);
    }
    if (c->limits_array_items > 0 && f->array_items > (uint64_t)c->limits_array_items) {
        snprintf(text, sizeof text, "an array is longer than limits.array_items, %lld",
                 (long long)c->limits_array_items);
        return pl_inspect_judge(r, PL_REASON_TOO_LARGE, NULL, text);
    }
    if (!judge_image(r, f->image_pixels, f->images_unread > 0)) return false;
    if (state != PL_JSON_MALFORMED || i->kind == PL_INSPECT_DONE) return true;
    i->kind = PL_INSPECT_DONE;
    if (!i->strict || !i->said_json) return true; /* the worker will say so itself, or it is no JSON */
    snprintf(text, sizeof text, "the body is no JSON: byte %llu cannot stand where it does",
             (unsigned long long)pl_json_scan_offset(i->scan));
    return pl_inspect_judge(r, PL_REASON_INVALID, "invalid_json", text);
}

/* --- limits.output_tokens */

/* The digits of max_tokens become those of the limit, filled up with spaces: nothing else of the body
 * changes. */
bool pl_inspect_clamp(struct pl_request *r, uint64_t limit) {
    const struct pl_json_asked *asked = &r->inspect->asked.max_tokens;
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)limit);
    if (asked->times != 1 || asked->len < (uint32_t)n || r->body_mode != PL_BODY_KEEP) return false;
    if (asked->at + asked->len > r->body.len) return false;
    memset(r->body.data + asked->at, ' ', asked->len);
    memcpy(r->body.data + asked->at, digits, (size_t)n);
    r->inspect->clamped = limit;
    return true;
}

static bool judge_output(struct pl_request *r) {
    const struct pl_service_config *c = r->gate->service->config;
    const struct pl_json_asked *asked = &r->inspect->asked.max_tokens;
    char text[200];
    if (c->limits_output_tokens <= 0 || !asked->there) return true;
    uint64_t limit = (uint64_t)c->limits_output_tokens;
    if (!asked->unbounded && asked->value <= limit) return true;
    if (c->openai_over_limit == PL_CFG_OPENAI_OVER_LIMIT_CLAMP && c->mode != PL_CFG_MODE_OBSERVE &&
        pl_inspect_clamp(r, limit))
        return true;
    snprintf(text, sizeof text, "max_tokens is larger than limits.output_tokens, %llu",
             (unsigned long long)limit);
    return pl_inspect_judge(r, PL_REASON_INVALID, "invalid_value", text);
}

/* --- as the body comes */

/* Zeros, but for a scan that an earlier request has left. */
static struct pl_inspect *take_one(struct pl_gateway *g) {
    struct pl_inspect *i = g->inspects;
    if (i == NULL) return calloc(1, sizeof *i);
    g->inspects = i->next;
    g->inspect_count--;
    *i = (struct pl_inspect){ .scan = i->scan };
    return i;
}

bool pl_inspect_begin(struct pl_request *r) {
    const struct pl_service_config *c = r->gate->service->config;
    const struct pl_http_head *h = pl_conn_head(r->conn);
    struct pl_text type = value_of(h, PL_HF_CONTENT_TYPE), coding = value_of(h, PL_HF_CONTENT_ENCODING);
    bool strict = has_limits(c) || pl_gate_is_llm(r->gate);
    bool said_json = is_json_type(type) || (is_openai_route(h) && !begins(type, "multipart/"));
    if (h->framing == PL_HTTP_NO_BODY || h->upgrade || (!strict && !said_json)) return true;
    struct pl_inspect *i = take_one(r->g);
    if (i == NULL) {
        pl_refuse(r, PL_REASON_BUFFER_FULL, 1000, NULL);
        return false;
    }
    r->inspect = i;
    i->strict = strict;
    i->said_json = said_json;
    i->said_image = begins(type, "image/");
    i->counts = pl_tokens_wanted(r->gate, h);
    i->whole = pl_whole_wanted(r->gate, h);
    if (coding.len != 0 && !begins(coding, "identity")) {
        i->kind = PL_INSPECT_DONE;
        if (!strict) return true;
        return pl_inspect_judge(
            r, PL_REASON_INVALID, "invalid_value",
            "a body with Content-Encoding cannot be held against this service's limits: send it plain");
    }
    if (i->said_image) {
        i->kind = PL_INSPECT_IMAGE;
        pl_image_init(&i->at.image);
    } else if (begins(type, "multipart/")) {
        i->kind = pl_multipart_init(&i->at.form, type.at, type.len) ? PL_INSPECT_FORM : PL_INSPECT_DONE;
    }
    return true;
}

/* A body of a type that says little: by its first byte that is no white space. */
static bool choose(struct pl_request *r, const char *bytes, size_t len) {
    struct pl_inspect *i = r->inspect;
    const struct pl_service_config *c = r->gate->service->config;
    size_t at = 0;
    while (at < len && strchr(" \t\r\n", bytes[at]) != NULL && bytes[at] != '\0') at++;
    if (!i->said_json && at < len && strchr("{[\"\xef", bytes[at]) == NULL) {
        i->kind = PL_INSPECT_IMAGE;
        pl_image_init(&i->at.image);
        return true;
    }
    i->kind = PL_INSPECT_JSON;
    if (i->scan == NULL || !pl_json_scan_again(i->scan, (uint32_t)c->limits_json_depth, i->counts)) {
        pl_json_scan_destroy(i->scan);
        i->scan = pl_json_scan_create((uint32_t)c->limits_json_depth, i->counts);
    }
    if (i->scan != NULL) return true;
    pl_refuse(r, PL_REASON_BUFFER_FULL, 1000, NULL);
    return false;
}

bool pl_inspect_piece(struct pl_request *r, const char *bytes, size_t len) {
    struct pl_inspect *i = r->inspect;
    if (i == NULL || i->kind == PL_INSPECT_DONE) return true;
    if (i->kind == PL_INSPECT_OPEN && !choose(r, bytes, len)) return false;
    switch ((enum pl_inspect_kind)i->kind) {
    case PL_INSPECT_JSON:
        return judge_json(r, pl_json_scan_feed(i->scan, bytes, len));
    case PL_INSPECT_IMAGE:
        pl_image_feed(&i->at.image, bytes, len);
        return judge_image(r, pl_image_pixels(&i->at.image), false);
    case PL_INSPECT_FORM:
        pl_multipart_feed(&i->at.form, bytes, len);
        return judge_image(r, i->at.form.image_pixels, i->at.form.images_unread > 0);
    default:
        return true;
    }
}

void pl_inspect_moved(struct pl_request *r) {
    struct pl_inspect *i = r->inspect;
    if (i == NULL) return;
    i->strict = has_limits(r->gate->service->config) || pl_gate_is_llm(r->gate);
    i->whole = pl_whole_wanted(r->gate, pl_conn_head(r->conn));
}

bool pl_inspect_end(struct pl_request *r) {
    struct pl_inspect *i = r->inspect;
    enum pl_json_state state = PL_JSON_MALFORMED;
    if (i != NULL && i->kind == PL_INSPECT_JSON) {
        state = pl_json_scan_end(i->scan);
        i->json = state == PL_JSON_WHOLE;
        if (i->json) i->asked = *pl_json_scan_facts(i->scan);
    }
    if (!pl_dialect_choose(r)) return false;
    if (i == NULL) return true;
    switch ((enum pl_inspect_kind)i->kind) {
    case PL_INSPECT_JSON: {
        if (!judge_json(r, state)) return false;
        if (!i->json) return true;
        if (!judge_output(r) || (i->counts && !pl_tokens_arrive(r))) return false;
        pl_dialect_inject(r);
        return true;
    }
    case PL_INSPECT_IMAGE: {
        uint64_t pixels = pl_image_pixels(&i->at.image);
        bool is_image = i->said_image || i->at.image.kind != PL_IMAGE_NONE;
        return judge_image(r, pixels, is_image && pixels == 0);
    }
    case PL_INSPECT_FORM:
        pl_multipart_end(&i->at.form);
        return judge_image(r, i->at.form.image_pixels, i->at.form.images_unread > 0);
    default:
        return true;
    }
}

bool pl_inspect_settled(const struct pl_request *r) {
    const struct pl_inspect *i = r->inspect;
    if (i == NULL || i->kind == PL_INSPECT_DONE) return true;
    return i->kind == PL_INSPECT_IMAGE && i->at.image.over &&
           (pl_image_pixels(&i->at.image) != 0 || !(i->said_image || i->at.image.kind != PL_IMAGE_NONE));
}

static void destroy(struct pl_inspect *i) {
    pl_json_scan_destroy(i->scan);
    free(i);
}

void pl_inspect_free(struct pl_request *r) {
    struct pl_gateway *g = r->g;
    struct pl_inspect *i = r->inspect;
    if (i == NULL) return;
    r->inspect = NULL;
    if (g->inspect_count == PL_REQUESTS_SPARE) {
        destroy(i);
        return;
    }
    i->next = g->inspects;
    g->inspects = i;
    g->inspect_count++;
}

void pl_inspects_free(struct pl_gateway *g) {
    for (struct pl_inspect *i = g->inspects, *next; i != NULL; i = next) {
        next = i->next;
        destroy(i);
    }
    g->inspects = NULL;
}
