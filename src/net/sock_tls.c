/* net/sock_tls.c - a socket that speaks TLS. What comes off the wire goes into a memory buffer of OpenSSL's,
 * what it wants to say comes out of another one and goes the way of all bytes (pl_sock_raw_send), so that
 * queueing, back-pressure and errors are the same as without.
 *
 * Nothing is handed over while reading is not wanted: it stays with OpenSSL and is looked at again at the
 * desk, in the next turn of the loop, because nobody expects to be called from inside pl_sock_read. */
#include <openssl/bio.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/stalls.h"
#include "net/tls_inside.h"

enum { RECORD_BYTES = 16384, HANDSHAKE = 0x16 };

struct pl_sock_session {
    SSL *ssl;
    struct pl_tls *tls;
    struct pl_tls_desk *desk;
    struct queue *in; /* of the desk; NULL: it waits for nothing */
    struct pl_sock *next, *before;
    bool begun;    /* its first byte was one of TLS */
    bool plain_ok; /* it may also not be TLS at all */
    bool done;     /* the handshake is */
    bool failed;   /* it never will be, or the peer broke the protocol */
};

/* First come, first served. */
struct queue {
    struct pl_sock *first, *last;
    size_t count;
};
struct pl_tls_desk {
    uv_idle_t idle; /* runs while somebody waits, so that the loop does not sleep */
    uv_loop_t *loop;
    struct queue handshakes, wakes; /* wakes: there may be something to hand over */
    uint64_t turn_ms;               /* the loop's time when `steps` was set */
    unsigned steps;                 /* of handshakes, still to be had in this turn */
};

static void run(struct pl_sock *s, bool called);

/* --- the desk */

static void on_idle(uv_idle_t *idle);

static void line_up(struct queue *q, struct pl_sock *s) {
    struct pl_sock_session *t = s->tls;
    if (t->in != NULL) return;
    t->in = q;
    t->next = NULL;
    t->before = q->last;
    if (q->last != NULL)
        q->last->tls->next = s;
    else
        q->first = s;
    q->last = s;
    q->count++;
    uv_idle_start(&t->desk->idle, on_idle);
}

static void leave(struct pl_sock *s) {
    struct pl_sock_session *t = s->tls;
    struct queue *q = t->in;
    if (q == NULL) return;
    if (t->before != NULL)
        t->before->tls->next = t->next;
    else
        q->first = t->next;
    if (t->next != NULL)
        t->next->tls->before = t->before;
    else
        q->last = t->before;
    t->in = NULL;
    q->count--;
}

static void on_idle(uv_idle_t *idle) {
    struct pl_tls_desk *d = idle->data;
    pl_stalls_enter("net.tls");
    d->turn_ms = uv_now(d->loop);
    d->steps = PL_TLS_STEPS_A_TURN;
    /* Those that line up anew meanwhile wait for the next turn. */
    for (size_t n = d->wakes.count; n > 0 && d->wakes.first != NULL; n--) {
        struct pl_sock *s = d->wakes.first;
        leave(s);
        run(s, true);
    }
    for (size_t n = d->handshakes.count; n > 0 && d->steps > 0 && d->handshakes.first != NULL; n--) {
        struct pl_sock *s = d->handshakes.first;
        leave(s);
        run(s, true);
    }
    if (d->wakes.count + d->handshakes.count == 0) uv_idle_stop(idle);
}

static bool take_step(struct pl_tls_desk *d, bool called) {
    uint64_t now = uv_now(d->loop);
    if (now != d->turn_ms) {
        d->turn_ms = now;
        d->steps = PL_TLS_STEPS_A_TURN;
    }
    if (d->steps == 0 || (!called && d->handshakes.count > 0)) return false;
    d->steps--;
    return true;
}

struct pl_tls_desk *pl_tls_desk_create(uv_loop_t *loop) {
    struct pl_tls_desk *d = calloc(1, sizeof *d);
    if (d == NULL) return NULL;
    d->loop = loop;
    uv_idle_init(loop, &d->idle);
    d->idle.data = d;
    return d;
}

static void on_desk_closed(uv_handle_t *handle) { free(handle->data); }

void pl_tls_desk_destroy(struct pl_tls_desk *d) {
    if (d == NULL) return;
    PL_CHECK(d->wakes.count + d->handshakes.count == 0);
    uv_close((uv_handle_t *)&d->idle, on_desk_closed);
}

/* --- bytes out */

static bool flush(struct pl_sock *s) {
    BIO *out = SSL_get_wbio(s->tls->ssl);
    char *at = NULL;
    long n = BIO_get_mem_data(out, &at);
    if (n <= 0) return true;
    uv_buf_t all = uv_buf_init(at, (unsigned)n);
    bool ok = pl_sock_raw_send(s, &all, 1);
    (void)BIO_reset(out);
    return ok;
}

static void fail(struct pl_sock *s) {
    s->tls->failed = true;
    flush(s); /* the alert that says why */
    ERR_clear_error();
    pl_sock_raw_end(s, false);
}

static bool encrypt(struct pl_sock *s, const char *bytes, size_t len) {
    if (SSL_write(s->tls->ssl, bytes, (int)len) == (int)len) return true;
    pl_sock_raw_cut(s);
    return false;
}

/* Small parts become one record. */
bool pl_sock_tls_send(struct pl_sock *s, const uv_buf_t *parts, unsigned count) {
    static char record[RECORD_BYTES];
    struct pl_sock_session *t = s->tls;
    size_t filled = 0;
    if (!t->done || t->failed) {
        pl_sock_raw_cut(s);
        return false;
    }
    ERR_clear_error();
    for (unsigned i = 0; i < count; i++) {
        for (size_t at = 0; at < parts[i].len;) {
            size_t n = parts[i].len - at < RECORD_BYTES - filled ? parts[i].len - at : RECORD_BYTES - filled;
            memcpy(record + filled, parts[i].base + at, n);
            filled += n;
            at += n;
            if (filled < RECORD_BYTES) continue;
            if (!encrypt(s, record, RECORD_BYTES)) return false;
            filled = 0;
        }
    }
    return (filled == 0 || encrypt(s, record, filled)) && flush(s);
}

void pl_sock_tls_goodbye(struct pl_sock *s) {
    if (!s->tls->done || s->tls->failed || s->broken) return;
    ERR_clear_error();
    SSL_shutdown(s->tls->ssl);
    flush(s);
    ERR_clear_error();
}

/* --- bytes in */

/* False: not now, or never. */
static bool shake_hands(struct pl_sock *s, bool called) {
    struct pl_sock_session *t = s->tls;
    if (t->done) return true;
    if (BIO_pending(SSL_get_rbio(t->ssl)) == 0) return false;
    if (!take_step(t->desk, called)) {
        line_up(&t->desk->handshakes, s);
        pl_sock_raw_watch(s);
        return false;
    }
    ERR_clear_error();
    int r = SSL_do_handshake(t->ssl);
    t->done = r == 1;
    if (!t->done && SSL_get_error(t->ssl, r) != SSL_ERROR_WANT_READ) {
        fail(s);
        return false;
    }
    flush(s);
    return t->done && !s->broken;
}

static void run(struct pl_sock *s, bool called) {
    static char plain[RECORD_BYTES];
    struct pl_sock_session *t = s->tls;
    if (s->closing || s->ended || t->failed) return;
    bool ready = shake_hands(s, called);
    if (called) pl_sock_raw_watch(s);
    while (ready && s->reading && !s->closing && !s->ended) {
        ERR_clear_error();
        int n = SSL_read(t->ssl, plain, sizeof plain);
        if (n > 0) {
            s->calls->bytes(s, plain, (size_t)n);
            continue;
        }
        int why = SSL_get_error(t->ssl, n);
        if (why == SSL_ERROR_ZERO_RETURN)
            pl_sock_raw_end(s, true);
        else if (why != SSL_ERROR_WANT_READ)
            fail(s);
        else if (!flush(s)) /* an answer to a key update */
            return;
        return;
    }
}

/* A browser or curl that was told http:// finds out why. */
static void refuse_plain(struct pl_sock *s) {
    static const char body[] = "{\"error\":\"this port speaks TLS: use https://\",\"code\":\"bad_request\"}";
    char text[256];
    int n = snprintf(text, sizeof text,
                     "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     sizeof body - 1, body);
    uv_buf_t all = uv_buf_init(text, (unsigned)n);
    s->tls->failed = true;
    pl_sock_raw_send(s, &all, 1);
    pl_sock_raw_end(s, false);
}

void pl_sock_tls_read(struct pl_sock *s, const char *data, size_t len) {
    struct pl_sock_session *t = s->tls;
    if (!t->begun && data[0] != HANDSHAKE) {
        if (!t->plain_ok) {
            refuse_plain(s);
            return;
        }
        pl_sock_tls_free(s);
        s->calls->bytes(s, data, len);
        return;
    }
    t->begun = true;
    if (BIO_write(SSL_get_rbio(t->ssl), data, (int)len) != (int)len) {
        fail(s);
        return;
    }
    run(s, false);
}

void pl_sock_tls_wanted(struct pl_sock *s) {
    struct pl_sock_session *t = s->tls;
    bool more = t->done && (SSL_pending(t->ssl) > 0 || BIO_pending(SSL_get_rbio(t->ssl)) > 0);
    if (more) line_up(&t->desk->wakes, s);
}

bool pl_sock_tls_waits(const struct pl_sock *s) { return s->tls->in == &s->tls->desk->handshakes; }

/* --- beginning and end */

bool pl_sock_secure(struct pl_sock *s, struct pl_tls *tls, struct pl_tls_desk *desk, bool plain_ok) {
    struct pl_sock_session *t = calloc(1, sizeof *t);
    if (t == NULL) return false;
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    t->ssl = pl_tls_server_side(tls);
    if (in == NULL || out == NULL || t->ssl == NULL) {
        BIO_free(in);
        BIO_free(out);
        SSL_free(t->ssl);
        free(t);
        return false;
    }
    BIO_set_mem_eof_return(in, -1); /* empty is not the end */
    BIO_set_mem_eof_return(out, -1);
    SSL_set_bio(t->ssl, in, out);
    t->tls = pl_tls_ref(tls); /* its callbacks look into it */
    t->desk = desk;
    t->plain_ok = plain_ok;
    s->tls = t;
    return true;
}

bool pl_sock_is_secure(const struct pl_sock *s) { return s->tls != NULL && s->tls->done; }
bool pl_sock_broke_tls(const struct pl_sock *s) { return s->tls != NULL && s->tls->failed; }

void pl_sock_tls_leave(struct pl_sock *s) { leave(s); }

void pl_sock_tls_free(struct pl_sock *s) {
    struct pl_sock_session *t = s->tls;
    leave(s);
    SSL_free(t->ssl);
    pl_tls_unref(t->tls);
    free(t);
    s->tls = NULL;
}
