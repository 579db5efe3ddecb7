#include "net/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "net/tls_inside.h"

enum { PAIRS_MOST = 64, CHAIN_MOST = 16, AUTHORITIES_MOST = 1000 };

struct pl_tls {
    atomic_uint users;
    size_t count;
    int64_t not_after_s;
    SSL_CTX *side[PAIRS_MOST];
    X509 *leaf[PAIRS_MOST]; /* borrowed from its side */
};

/* The last thing OpenSSL said, which is the nearest to the cause. */
static bool fail(struct pl_err *err, const char *place, const char *what) {
    char why[160] = "";
    unsigned long code = ERR_peek_last_error();
    const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;
    snprintf(why, sizeof why, "%s%s", reason != NULL ? ": " : "", reason != NULL ? reason : "");
    ERR_clear_error();
    return PL_FAIL(err, PL_E_CONFIG, "%.150s: %s%s", place, what, why);
}

static BIO *open_text(const struct pl_tls_text *t) { return BIO_new_mem_buf(t->bytes, (int)t->len); }

static bool read_chain(SSL_CTX *side, const struct pl_tls_text *text, struct pl_err *err) {
    BIO *bio = open_text(text);
    X509 *one = bio != NULL ? PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL) : NULL;
    bool ok = one != NULL || fail(err, text->place, "no certificate in PEM");
    if (ok && SSL_CTX_use_certificate(side, one) != 1)
        ok = fail(err, text->place, "this certificate cannot be used");
    X509_free(one);
    for (int i = 0; ok && i < CHAIN_MOST && (one = PEM_read_bio_X509(bio, NULL, NULL, NULL)) != NULL; i++)
        if (SSL_CTX_add0_chain_cert(side, one) != 1) {
            X509_free(one);
            ok = fail(err, text->place, "its chain cannot be used");
        }
    ERR_clear_error(); /* that there are no more is no fault */
    BIO_free(bio);
    return ok;
}

static int give_password(char *out, int room, int writing, void *ctx) {
    const char *password = ctx;
    size_t len = password != NULL ? strlen(password) : 0;
    (void)writing;
    if (len == 0 || len > (size_t)room) return 0;
    memcpy(out, password, len);
    return (int)len;
}

static bool read_key(SSL_CTX *side, const struct pl_tls_text *text, const char *password,
                     struct pl_err *err) {
    union {
        const char *in;
        void *out;
    } ctx = { .in = password }; /* OpenSSL hands on what is not const */
    BIO *bio = open_text(text);
    EVP_PKEY *key = bio != NULL ? PEM_read_bio_PrivateKey(bio, NULL, give_password, ctx.out) : NULL;
    bool ok = key != NULL;
    if (!ok) {
        fail(err, text->place, "no private key can be read from it");
        pl_err_hint(err, password != NULL ? "is tls.keyfile_password the right one?"
                                          : "if it is encrypted, set tls.keyfile_password: file:PATH");
    } else if (SSL_CTX_use_PrivateKey(side, key) != 1 || SSL_CTX_check_private_key(side) != 1) {
        ok = fail(err, text->place, "this key does not belong to the certificate");
    }
    EVP_PKEY_free(key);
    BIO_free(bio);
    return ok;
}

static bool read_authorities(SSL_CTX *side, const struct pl_tls_text *text, struct pl_err *err) {
    X509_STORE *store = SSL_CTX_get_cert_store(side);
    BIO *bio = open_text(text);
    bool ok = bio != NULL;
    int count = 0;
    for (X509 *one;
         ok && count < AUTHORITIES_MOST && (one = PEM_read_bio_X509(bio, NULL, NULL, NULL)) != NULL;
         count++) {
        ok = X509_STORE_add_cert(store, one) == 1 && SSL_CTX_add_client_CA(side, one) == 1;
        X509_free(one);
    }
    BIO_free(bio);
    if (!ok || count == 0) return fail(err, text->place, "no certificate in PEM");
    ERR_clear_error();
    return true;
}

/* What a client may speak besides: nothing, and one that wants only HTTP/2 is told so in TLS itself. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *offered, unsigned offered_len, void *ctx) {
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen = NULL;
    (void)ssl;
    (void)ctx;
    if (SSL_select_next_proto(&chosen, out_len, ours, sizeof ours - 1, offered, offered_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static int choose_certificate(SSL *ssl, int *alert, void *ctx) {
    struct pl_tls *t = ctx;
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    (void)alert;
    for (size_t i = 0; name != NULL && i < t->count; i++) {
        if (X509_check_host(t->leaf[i], name, strlen(name), 0, NULL) != 1) continue;
        if (i != 0) SSL_set_SSL_CTX(ssl, t->side[i]);
        break;
    }
    return SSL_TLSEXT_ERR_OK; /* a name that is not ours gets the first certificate, and the client judges */
}

static bool set_rules(SSL_CTX *side, struct pl_tls *t, const struct pl_tls_options *o, struct pl_err *err) {
    static const unsigned char context[] = "plimsoll";
    SSL_CTX_set_min_proto_version(side, o->only_1_3 ? TLS1_3_VERSION : TLS1_2_VERSION);
    SSL_CTX_set_options(side, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(side, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(side, SSL_SESS_CACHE_OFF); /* tickets only: clients keep them */
    SSL_CTX_set_alpn_select_cb(side, choose_protocol, NULL);
    SSL_CTX_set_tlsext_servername_callback(side, choose_certificate);
    SSL_CTX_set_tlsext_servername_arg(side, t);
    if (SSL_CTX_set_cipher_list(side, "ECDHE+AESGCM:ECDHE+CHACHA20") != 1 ||
        SSL_CTX_set_session_id_context(side, context, sizeof context - 1) != 1)
        return fail(err, "tls", "OpenSSL does not take our settings");
    if (o->authorities.len != 0 && !read_authorities(side, &o->authorities, err)) return false;
    if (o->clients != PL_TLS_CLIENTS_ANY)
        SSL_CTX_set_verify(
            side, SSL_VERIFY_PEER | (o->clients == PL_TLS_CLIENTS_MUST ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
            NULL);
    return true;
}

static int64_t end_of(const X509 *leaf) {
    struct tm at = { 0 };
    return ASN1_TIME_to_tm(X509_get0_notAfter(leaf), &at) == 1 ? (int64_t)timegm(&at) : INT64_MAX;
}

static bool add_pair(struct pl_tls *t, size_t i, const struct pl_tls_options *o, struct pl_err *err) {
    SSL_CTX *side = SSL_CTX_new(TLS_server_method());
    if (side == NULL) return fail(err, "tls", "out of memory");
    t->side[t->count++] = side;
    if (!set_rules(side, t, o, err) || !read_chain(side, &o->pairs[i].certificate, err) ||
        !read_key(side, &o->pairs[i].key, o->password, err))
        return false;
    t->leaf[i] = SSL_CTX_get0_certificate(side);
    int64_t end_s = end_of(t->leaf[i]);
    if (end_s < t->not_after_s) t->not_after_s = end_s;
    return true;
}

struct pl_tls *pl_tls_create(const struct pl_tls_options *o, struct pl_err *err) {
    struct pl_tls *t = calloc(1, sizeof *t);
    if (t == NULL) {
        PL_FAIL(err, PL_E_NOMEM, "out of memory");
        return NULL;
    }
    t->users = 1;
    t->not_after_s = INT64_MAX;
    bool ok = o->pair_count > 0 && o->pair_count <= PAIRS_MOST;
    if (!ok) PL_FAIL(err, PL_E_CONFIG, "%zu certificates: 1 to %d are possible", o->pair_count, PAIRS_MOST);
    ERR_clear_error();
    for (size_t i = 0; ok && i < o->pair_count; i++) ok = add_pair(t, i, o, err);
    if (ok) return t;
    pl_tls_unref(t);
    return NULL;
}

struct pl_tls *pl_tls_ref(struct pl_tls *t) {
    if (t != NULL) t->users++;
    return t;
}

void pl_tls_unref(struct pl_tls *t) {
    if (t == NULL || --t->users > 0) return;
    for (size_t i = 0; i < t->count; i++) SSL_CTX_free(t->side[i]);
    free(t);
}

int64_t pl_tls_not_after_s(const struct pl_tls *t) { return t->not_after_s; }

SSL *pl_tls_server_side(struct pl_tls *t) {
    SSL *ssl = SSL_new(t->side[0]);
    if (ssl != NULL) SSL_set_accept_state(ssl);
    return ssl;
}
