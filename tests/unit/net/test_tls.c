/* TLS inside one loop: who handshakes when, what is handed over, and what a paused reader is spared. */
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/sock.h"
#include "unit.h"

enum { CROWD = 40 };

static char cert_pem[4096], key_pem[4096];

static void to_text(BIO *bio, char out[4096]) {
    int n = BIO_read(bio, out, 4095);
    assert_true(n > 0);
    out[n] = '\0';
    BIO_free(bio);
}

/* A self-signed certificate for localhost. */
static void make_certificate(void) {
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    X509_NAME *name = X509_get_subject_name(x);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), 0);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1, -1, 0);
    X509_set_issuer_name(x, name);
    assert_true(X509_sign(x, key, EVP_sha256()) > 0);
    BIO *bio = BIO_new(BIO_s_mem());
    assert_int_equal(PEM_write_bio_X509(bio, x), 1);
    to_text(bio, cert_pem);
    bio = BIO_new(BIO_s_mem());
    assert_int_equal(PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL), 1);
    to_text(bio, key_pem);
    X509_free(x);
    EVP_PKEY_free(key);
}

static struct pl_tls *make_tls(struct pl_err *err) {
    struct pl_tls_pair pair = { .certificate = { "cert", cert_pem, strlen(cert_pem) },
                                .key = { "key", key_pem, strlen(key_pem) } };
    struct pl_tls_options o = { .pairs = &pair, .pair_count = 1 };
    return pl_tls_create(&o, err);
}

/* One connection: our end, and OpenSSL as its client. */
struct end {
    struct pl_sock sock; /* first */
    SSL *client;
    int fd;
    size_t got;
    bool ended, orderly, freed;
    char text[65536];
};
static uv_loop_t loop;
static struct pl_tls *tls;
static struct pl_tls_desk *desk;
static SSL_CTX *clients;
static struct end ends[CROWD];

static void on_bytes(struct pl_sock *s, const char *data, size_t len) {
    struct end *e = (struct end *)(void *)s;
    assert_true(e->sock.reading);
    assert_true(e->got + len <= sizeof e->text);
    memcpy(e->text + e->got, data, len);
    e->got += len;
    if (len >= 5 && memcmp(data, "pause", 5) == 0) pl_sock_read(s, false);
}
static void on_ended(struct pl_sock *s, bool orderly) {
    struct end *e = (struct end *)(void *)s;
    assert_false(e->ended);
    e->ended = true;
    e->orderly = orderly;
}
static void on_drained(struct pl_sock *s) { (void)s; }
static void on_freed(struct pl_sock *s) { ((struct end *)(void *)s)->freed = true; }
static const struct pl_sock_calls calls = { on_bytes, on_ended, on_drained, on_freed };

static void begin(struct end *e, bool plain_ok) {
    int pair[2];
    memset(e, 0, sizeof *e);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    assert_true(pl_sock_open(&e->sock, &loop, pair[0], false, &calls));
    assert_true(pl_sock_secure(&e->sock, tls, desk, plain_ok));
    pl_sock_read(&e->sock, true);
    e->fd = pair[1];
    e->client = SSL_new(clients);
    SSL_set_fd(e->client, e->fd);
    SSL_set_connect_state(e->client);
}
static void turn(void) { uv_run(&loop, UV_RUN_NOWAIT); }
static void turns(void) {
    for (int i = 0; i < 200; i++) turn();
}
static void shake(struct end *e) {
    for (int i = 0; i < 400 && SSL_do_handshake(e->client) != 1; i++) turn();
    assert_true(SSL_is_init_finished(e->client));
    turns();
    assert_true(pl_sock_is_secure(&e->sock));
}
static void finish(struct end *e) {
    pl_sock_close(&e->sock);
    turns();
    assert_true(e->freed);
    SSL_free(e->client);
    close(e->fd);
}

static int world_begins(void **state) {
    struct pl_err err = { 0 };
    (void)state;
    uv_loop_init(&loop);
    make_certificate();
    tls = make_tls(&err);
    if (tls == NULL) fail_msg("%s", err.msg);
    desk = pl_tls_desk_create(&loop);
    clients = SSL_CTX_new(TLS_client_method());
    return 0;
}
static int world_ends(void **state) {
    (void)state;
    SSL_CTX_free(clients);
    pl_tls_unref(tls);
    pl_tls_desk_destroy(desk);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    return 0;
}
#define IN_WORLD(test) cmocka_unit_test_setup_teardown(test, world_begins, world_ends)

TEST(bytes_go_both_ways_and_the_end_is_orderly) {
    struct end *e = &ends[0];
    static char big[200000], back[200000];
    begin(e, false);
    assert_false(pl_sock_is_secure(&e->sock));
    shake(e);
    assert_int_equal(SSL_write(e->client, "hello", 5), 5);
    turns();
    assert_int_equal(e->got, 5);
    memset(big, 'x', sizeof big);
    uv_buf_t parts[2] = { { big, 100 }, { big, sizeof big - 100 } };
    assert_true(pl_sock_send(&e->sock, parts, 2));
    assert_int_equal(e->sock.given, sizeof big); /* before encryption */
    size_t got = 0;
    for (int i = 0; i < 10000 && got < sizeof back; i++) {
        int n = SSL_read(e->client, back + got, (int)(sizeof back - got));
        if (n > 0) got += (size_t)n;
        turn();
    }
    assert_int_equal(got, sizeof back);
    assert_memory_equal(big, back, sizeof back);
    SSL_shutdown(e->client);
    turns();
    assert_true(e->ended && e->orderly);
    assert_false(pl_sock_broke_tls(&e->sock));
    finish(e);
}

TEST(who_pauses_is_handed_nothing_until_it_reads_on_and_then_everything) {
    struct end *e = &ends[0];
    begin(e, false);
    shake(e);
    assert_int_equal(SSL_write(e->client, "pause", 5), 5); /* three records, probably one read */
    assert_int_equal(SSL_write(e->client, "pause again", 11), 11);
    assert_int_equal(SSL_write(e->client, "the rest", 8), 8);
    turns();
    assert_int_equal(e->got, 5);
    pl_sock_read(&e->sock, true);
    assert_int_equal(e->got, 5); /* not from inside */
    turns();
    assert_int_equal(e->got, 16);
    shutdown(e->fd, SHUT_WR); /* the end comes after what was sent before it */
    pl_sock_read(&e->sock, true);
    turns();
    assert_int_equal(e->got, 24);
    assert_true(e->ended && e->orderly);
    finish(e);
}

/* Steps of handshakes in one turn of the loop are counted by who has moved on. */
TEST(a_crowd_of_handshakes_takes_several_turns_and_bytes_pass_between_them) {
    struct end *old = &ends[CROWD - 1];
    begin(old, false);
    shake(old);
    for (int i = 0; i < CROWD - 1; i++) {
        begin(&ends[i], false);
        SSL_do_handshake(ends[i].client); /* the ClientHello is on its way */
    }
    assert_int_equal(SSL_write(old->client, "hello", 5), 5);
    int answered = 0, when_served = -1, turns_taken = 0;
    while (answered < CROWD - 1) {
        char byte;
        int before = answered;
        turn();
        answered = 0;
        for (int i = 0; i < CROWD - 1; i++) answered += recv(ends[i].fd, &byte, 1, MSG_PEEK) == 1;
        /* Two turns may share one call: what is due before it polls, and what it polls. */
        assert_in_range(answered - before, 0, 2 * PL_TLS_STEPS_A_TURN);
        if (old->got == 5 && when_served == -1) when_served = answered;
        assert_true(++turns_taken < 1000);
    }
    assert_in_range(when_served, 0, CROWD / 2); /* it did not wait for the crowd */
    for (int i = 0; i < CROWD - 1; i++) shake(&ends[i]);
    for (int i = 0; i < CROWD; i++) finish(&ends[i]);
}

TEST(who_leaves_while_it_waits_for_its_turn_leaves_the_line) {
    for (int i = 0; i < CROWD; i++) {
        begin(&ends[i], false);
        SSL_do_handshake(ends[i].client);
    }
    turn();
    for (int i = 0; i < CROWD; i += 2) finish(&ends[i]);
    for (int i = 1; i < CROWD; i += 2) {
        shake(&ends[i]);
        finish(&ends[i]);
    }
}

TEST(what_is_no_tls_ends_or_passes_as_it_is) {
    struct end *e = &ends[0];
    char text[400] = "";
    begin(e, false);
    assert_int_equal(send(e->fd, "GET / HTTP/1.1\r\n", 16, 0), 16);
    turns();
    assert_true(e->ended && !e->orderly && pl_sock_broke_tls(&e->sock));
    assert_true(recv(e->fd, text, sizeof text - 1, 0) > 0);
    assert_non_null(strstr(text, "use https://"));
    assert_int_equal(e->got, 0);
    finish(e);
    begin(e, true);
    assert_int_equal(send(e->fd, "GET / HTTP/1.1\r\n", 16, 0), 16);
    turns();
    assert_int_equal(e->got, 16);
    assert_false(e->ended || pl_sock_is_secure(&e->sock));
    finish(e);
    begin(e, true);
    assert_int_equal(send(e->fd, "\x16\x03\x01\x00\x05hello", 10, 0), 10);
    turns();
    assert_true(e->ended && pl_sock_broke_tls(&e->sock));
    finish(e);
}

TEST(a_connection_keeps_the_certificate_it_began_with) {
    struct end *e = &ends[0];
    struct pl_err err = { 0 };
    begin(e, false);
    pl_tls_unref(tls);
    make_certificate();
    tls = make_tls(&err);
    shake(e);
    assert_int_equal(SSL_write(e->client, "hello", 5), 5);
    turns();
    assert_int_equal(e->got, 5);
    finish(e);
}

TEST(what_is_wrong_with_a_certificate_is_told) {
    struct pl_err err = { 0 };
    char other[4096];
    memcpy(other, key_pem, sizeof other);
    make_certificate();
    memcpy(key_pem, other, sizeof other);
    assert_null(make_tls(&err));
    assert_string_equal(err.msg, "key: this key does not belong to the certificate: key values mismatch");
    key_pem[0] = '\0';
    assert_null(make_tls(&err));
    assert_non_null(strstr(err.msg, "key: no private key can be read from it"));
    cert_pem[0] = '\0';
    assert_null(make_tls(&err));
    assert_non_null(strstr(err.msg, "cert: no certificate in PEM"));
}

RUN(IN_WORLD(bytes_go_both_ways_and_the_end_is_orderly),
    IN_WORLD(who_pauses_is_handed_nothing_until_it_reads_on_and_then_everything),
    IN_WORLD(a_crowd_of_handshakes_takes_several_turns_and_bytes_pass_between_them),
    IN_WORLD(who_leaves_while_it_waits_for_its_turn_leaves_the_line),
    IN_WORLD(what_is_no_tls_ends_or_passes_as_it_is),
    IN_WORLD(a_connection_keeps_the_certificate_it_began_with),
    IN_WORLD(what_is_wrong_with_a_certificate_is_told))
