#include "cli/client_tls.h"

#include <arpa/inet.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <stdlib.h>

struct pl_client_tls {
    SSL_CTX *side;
    SSL *ssl;
};

static bool expect_host(SSL *ssl, const char *host) {
    struct in6_addr any;
    bool ip = inet_pton(AF_INET, host, &any) == 1 || inet_pton(AF_INET6, host, &any) == 1;
    if (ip) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    union {
        const char *in;
        void *out;
    } name = { .in = host }; /* OpenSSL's macro casts the const away, and clang minds */
    return SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name.out) == 1 &&
           SSL_set1_host(ssl, host) == 1;
}

static bool explain(SSL *ssl, const char *host, struct pl_err *err) {
    long verdict = SSL_get_verify_result(ssl);
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    if (verdict != X509_V_OK) {
        PL_FAIL(err, PL_E_SYS, "the certificate of %.100s: %s", host, X509_verify_cert_error_string(verdict));
        return pl_err_hint(err, "SSL_CERT_FILE=FILE names its authority");
    }
    return PL_FAIL(err, PL_E_SYS, "TLS with %.100s: %s", host, reason != NULL ? reason : "it ended");
}

struct pl_client_tls *pl_client_tls_open(int fd, const char *host, struct pl_err *err) {
    struct pl_client_tls *t = calloc(1, sizeof *t);
    signal(SIGPIPE, SIG_IGN); /* OpenSSL writes with write() */
    if (t != NULL) t->side = SSL_CTX_new(TLS_client_method());
    if (t != NULL && t->side != NULL) {
        SSL_CTX_set_min_proto_version(t->side, TLS1_2_VERSION);
        SSL_CTX_set_options(t->side, SSL_OP_IGNORE_UNEXPECTED_EOF); /* replies have a length, or an end */
        SSL_CTX_set_verify(t->side, SSL_VERIFY_PEER, NULL);
        SSL_CTX_set_default_verify_paths(t->side);
        t->ssl = SSL_new(t->side);
    }
    if (t == NULL || t->ssl == NULL || !expect_host(t->ssl, host) || SSL_set_fd(t->ssl, fd) != 1) {
        PL_FAIL(err, PL_E_NOMEM, "TLS with %.100s cannot begin", host);
    } else if (SSL_connect(t->ssl) != 1) {
        explain(t->ssl, host, err);
    } else {
        return t;
    }
    pl_client_tls_close(t);
    return NULL;
}

bool pl_client_tls_send(struct pl_client_tls *t, const char *bytes, size_t len) {
    return len == 0 || (len <= INT_MAX && SSL_write(t->ssl, bytes, (int)len) == (int)len);
}

ssize_t pl_client_tls_recv(struct pl_client_tls *t, char *bytes, size_t room) {
    int n = SSL_read(t->ssl, bytes, room < INT_MAX ? (int)room : INT_MAX);
    if (n > 0) return n;
    return SSL_get_error(t->ssl, n) == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}

void pl_client_tls_close(struct pl_client_tls *t) {
    if (t == NULL) return;
    SSL_free(t->ssl);
    SSL_CTX_free(t->side);
    free(t);
}
