/* The shared corpora (tests/data/http), judged as far as a parser and a writer can: what needs a server is
 * tested end to end. Every case is fed whole, byte by byte and in random pieces, and must say the same each
 * time. */
#include "unit.h"

#include "http/write.h"
#include "json.h"
#include "transcript.h"

static const struct pl_http_limits limits = { .request_line = 8192, .head_bytes = 32768, .headers = 100 };
/* for what we wrote: our own headers come on top */
static const struct pl_http_limits wider = { .request_line = 8192, .head_bytes = 65536, .headers = 110 };

static void add_bytes(struct pl_buf *out, const struct json *c) {
    const struct json *bytes = json_get(c, "bytes");
    if (bytes != NULL) assert_true(pl_buf_add(out, bytes->text, bytes->len));
    for (struct json *p = json_first(c, "parts"); p != NULL; p = p->next)
        for (int i = 0; i < (int)p->first->next->number; i++)
            assert_true(pl_buf_add(out, p->first->text, p->first->len));
    for (struct json *s = json_first(c, "steps"); s != NULL; s = s->next)
        assert_true(pl_buf_add(out, s->first->text, s->first->len));
    const struct json *then = json_get(c, "then"); /* of a request: bytes; of a reply: a word */
    if (then != NULL && json_get(c, "interim") != NULL) assert_true(pl_buf_add(out, then->text, then->len));
}

enum feeding { WHOLE, BYTES, RANDOM };

static void feed(struct transcript *t, const struct pl_buf *bytes, enum feeding how, bool once) {
    size_t at = 0;
    while (at < bytes->len) {
        size_t n = how == WHOLE ? bytes->len : how == BYTES ? 1 : (size_t)(1 + rand() % 40);
        if (n > bytes->len - at) n = bytes->len - at;
        char *exact = malloc(n); /* so that a sanitizer sees a read behind the piece */
        assert_non_null(exact);
        memcpy(exact, bytes->data + at, n);
        transcript_feed(t, exact, n, once);
        free(exact);
        at += n;
    }
    transcript_feed(t, "", 0, once);
}

static bool same_text(const struct pl_buf *a, const struct pl_buf *b) {
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

static void show(const char *id, const struct transcript *t) {
    fprintf(stderr, "--- %s\n%.*s\n", id, (int)t->text.len, t->text.len > 0 ? t->text.data : "");
}

/* What the worker would get: each request written, then read again by the same strict parser. */
struct forwarded {
    struct pl_buf written;
    struct json *expected; /* next of `upstream` */
    const char *id;
};

static void forward(void *ctx, const struct pl_http_head *h) {
    struct forwarded *f = ctx;
    struct pl_http_forward how = { .id = 0xabc, .peer_address = "192.0.2.7", .scheme = "http" };
    struct transcript again;
    f->written.len = 0;
    assert_true(pl_http_write_request(&f->written, h, h->framing, h->content_length, &how));
    transcript_init(&again, false, &wider);
    size_t used;
    if (pl_http_parse(&again.parser, f->written.data, f->written.len, &used) != PL_HTTP_HEAD)
        fail_msg("%s: we refuse what we wrote: %s", f->id, again.parser.fault_reason);
    assert_int_equal(used, f->written.len);
    const struct pl_http_head *g = &again.parser.head;
    assert_int_equal(g->framing, h->framing);
    assert_int_equal(g->minor, 1);
    struct json *want = f->expected;
    if (want != NULL) {
        const char *method = json_str(want, "method"), *target = json_str(want, "target");
        if (*method != '\0') assert_memory_equal(pl_http_at(g, g->method), method, strlen(method));
        if (*target != '\0') {
            assert_int_equal(g->target_len, strlen(target));
            assert_memory_equal(pl_http_at(g, g->target), target, strlen(target));
        }
        for (struct json *n = json_first(want, "absent"); n != NULL; n = n->next)
            assert_null(pl_http_find_named(g, n->text));
        struct json *name = json_first(want, "header");
        if (name != NULL) {
            const struct pl_http_header *got = pl_http_find_named(g, name->text);
            assert_non_null(got);
            assert_int_equal(got->value_len, name->next->len);
            assert_memory_equal(pl_http_at(g, got->value), name->next->text, got->value_len);
        }
        f->expected = want->next;
    }
    transcript_free(&again);
}

/* Which status a client would be told for the reply number `n`, as far as the parser decides; 0: a worker's.
 */
static uint16_t told(const struct transcript *t, size_t n) {
    return n < t->ends ? 0 : t->faulted ? t->parser.fault_status : 1;
}

static bool request_is_right(const struct json *c, const struct transcript *t) {
    const char *group = json_str(c, "group"), *id = json_str(c, "id");
    struct json *wanted = json_first(c, "statuses");
    if (strcmp(id, "limit-body-declared") == 0 || strcmp(id, "continue-too-large") == 0)
        return t->open &&
               t->parser.head.content_length == 1099511627776; /* 413 is for who knows the body's limit */
    if (strcmp(group, "measured") == 0 || strcmp(group, "refuse") == 0) {
        if (t->ends != 0) return false;
    }
    for (size_t n = 0; wanted != NULL; n++, wanted = wanted->next) {
        uint16_t got = told(t, n);
        if (got == 0 ? !json_has(wanted, 200)
                     : !json_has(wanted, got) && !(n == 0 && json_has(json_get(c, "also"), got)))
            return false;
    }
    return json_flag(c, "close") != 0 || (!t->faulted && pl_http_parser_idle(&t->parser));
}

TEST(every_request_of_the_corpus_is_judged_as_it_says_however_it_arrives) {
    struct json *cases = json_lines(PL_TEST_DATA "/http/requests.jsonl");
    int judged = 0, wrong = 0;
    for (struct json *c = cases->first; c != NULL; c = c->next) {
        if (strcmp(json_str(c, "group"), "timing") == 0 || strcmp(json_str(c, "needs"), "admission") == 0)
            continue;
        struct pl_buf bytes = { 0 };
        struct transcript first, again;
        struct forwarded f = { .id = json_str(c, "id") };
        add_bytes(&bytes, c);
        f.expected = json_first(c, "upstream");
        transcript_init(&first, false, &limits);
        first.on_head = forward;
        first.ctx = &f;
        feed(&first, &bytes, WHOLE, false);
        bool right = request_is_right(c, &first);
        struct pl_buf body = { 0 };
        for (struct json *u = json_first(c, "upstream"); u != NULL; u = u->next) {
            const struct json *part = json_get(u, "body");
            if (part != NULL) pl_buf_add(&body, part->text, part->len);
        }
        right = right && f.expected == NULL && (body.len == 0 || same_text(&body, &first.body));
        pl_buf_free(&body);
        for (int round = 0; round < 6; round++) {
            transcript_init(&again, false, &limits);
            feed(&again, &bytes, round == 0 ? BYTES : RANDOM, false);
            if (!same_text(&first.text, &again.text)) {
                show("in pieces", &again);
                right = false;
            }
            transcript_free(&again);
        }
        if (!right) show(json_str(c, "id"), &first), wrong++;
        judged++;
        transcript_free(&first);
        pl_buf_free(&f.written);
        pl_buf_free(&bytes);
    }
    json_free(cases);
    assert_int_equal(wrong, 0);
    assert_int_equal(judged, 141);
}

static void feed_reply(struct transcript *t, const struct json *c, const struct pl_buf *bytes,
                       enum feeding how) {
    transcript_init(t, true, &limits);
    pl_http_parser_answers_head(&t->parser, strcmp(json_str(c, "method"), "HEAD") == 0);
    feed(t, bytes, how, true);
    if (strcmp(json_str(c, "then"), "close") == 0) transcript_close(t);
}

static bool reply_is_right(const struct json *c, const struct transcript *t) {
    const struct json *status = json_get(c, "status"), *body = json_get(c, "body");
    const struct json *strict = json_get(c, "strict");
    int reuse = json_flag(c, "reuse");
    uint16_t final = !pl_http_parser_idle(&t->parser) && t->heads > 0 && (t->open || t->ends == t->heads)
                         ? t->parser.head.status
                         : 0;
    bool cut = strcmp(json_str(c, "outcome"), "cut") == 0;
    if (final < 200 || (t->faulted && !t->open)) /* no final reply: the client is told 502 */
        return json_has(status, 502) || json_has(json_get(c, "also_status"), 502);
    if (strict != NULL && strict->number != final) return false;
    if (!json_has(status, final)) return false;
    if (cut) return t->faulted && t->open;
    if (t->faulted || t->open) return false;
    struct pl_buf wanted = { 0 };
    if (body != NULL) wanted = (struct pl_buf){ .data = body->text, .len = body->len };
    if (body != NULL && !same_text(&t->body, &wanted)) return false;
    bool reusable = t->parser.head.keep_alive && t->leftover == 0 && strcmp(json_str(c, "then"), "keep") == 0;
    return reuse == -1 || (reuse == 1) == reusable;
}

TEST(every_reply_of_the_corpus_is_understood_as_it_says_however_it_arrives) {
    struct json *cases = json_lines(PL_TEST_DATA "/http/replies.jsonl");
    int judged = 0, wrong = 0;
    for (struct json *c = cases->first; c != NULL; c = c->next) {
        struct pl_buf bytes = { 0 };
        struct transcript first, again;
        add_bytes(&bytes, c);
        feed_reply(&first, c, &bytes, WHOLE);
        bool right = reply_is_right(c, &first);
        for (int round = 0; round < 6; round++) {
            feed_reply(&again, c, &bytes, round == 0 ? BYTES : RANDOM);
            if (!same_text(&first.text, &again.text) || again.leftover != first.leftover) {
                show("in pieces", &again);
                right = false;
            }
            transcript_free(&again);
        }
        if (!right) show(json_str(c, "id"), &first), wrong++;
        judged++;
        transcript_free(&first);
        pl_buf_free(&bytes);
    }
    json_free(cases);
    assert_int_equal(wrong, 0);
    assert_int_equal(judged, 46);
}

RUN(cmocka_unit_test(every_request_of_the_corpus_is_judged_as_it_says_however_it_arrives),
    cmocka_unit_test(every_reply_of_the_corpus_is_understood_as_it_says_however_it_arrives))
