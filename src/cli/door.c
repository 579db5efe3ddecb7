/* door.c - from papers to a door: rows of keys, the token's hash, certificates ready for use. */
#include "cli/door.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>

#include "base/ring.h"

enum { HELD_BYTES = 64 << 20 };

static bool digest_of(const struct pl_paper *p, struct pl_key_digest *out, struct pl_err *err) {
    if (p->len != sizeof out->bytes) return PL_FAIL(err, PL_E_SYS, "what is held for the door is cut");
    memcpy(out->bytes, p->bytes, sizeof out->bytes);
    return true;
}

static bool open_token(const struct pl_papers *p, struct pl_door *d, struct pl_err *err) {
    const struct pl_paper *token = pl_papers_find(p, PL_PAPER_ADMIN_TOKEN, 0);
    d->has_token = token != NULL;
    return token == NULL || digest_of(token, &d->token, err);
}

static bool open_keys(const struct pl_papers *p, struct pl_door *d, struct pl_err *err) {
    const struct pl_paper *file = pl_papers_find(p, PL_PAPER_KEYS, 0),
                          *one = pl_papers_find(p, PL_PAPER_API_KEY, 0);
    if (file != NULL && (d->keys = pl_keyring_read(file->place, file->bytes, file->len, err)) == NULL)
        return false;
    if (one == NULL) return true;
    struct pl_key_digest digest;
    if (!digest_of(one, &digest, err)) return false;
    struct pl_keyring *ring = pl_keyring_add(d->keys, "default", &digest, err);
    if (ring == NULL) return false;
    d->keys = ring;
    return true;
}

static struct pl_tls_text text_of(const struct pl_paper *p) {
    return p != NULL ? (struct pl_tls_text){ p->place, p->bytes, p->len } : (struct pl_tls_text){ 0 };
}

static bool open_tls(const struct pl_config *c, const struct pl_papers *p, struct pl_door *d,
                     struct pl_err *err) {
    static const enum pl_tls_clients clients[] = { [PL_CFG_TLS_CERT_REQS_NONE] = PL_TLS_CLIENTS_ANY,
                                                   [PL_CFG_TLS_CERT_REQS_OPTIONAL] = PL_TLS_CLIENTS_MAY,
                                                   [PL_CFG_TLS_CERT_REQS_REQUIRED] = PL_TLS_CLIENTS_MUST };
    struct pl_tls_pair pairs[PL_PAPERS_MOST / 2];
    const struct pl_paper *password = pl_papers_find(p, PL_PAPER_PASSWORD, 0);
    size_t n = 0;
    for (; n < PL_PAPERS_MOST / 2 && pl_papers_find(p, PL_PAPER_CERTIFICATE, n) != NULL; n++)
        pairs[n] = (struct pl_tls_pair){ .certificate = text_of(pl_papers_find(p, PL_PAPER_CERTIFICATE, n)),
                                         .key = text_of(pl_papers_find(p, PL_PAPER_PRIVATE_KEY, n)) };
    if (n == 0) return true;
    const struct pl_tls_options o = { .pairs = pairs,
                                      .pair_count = n,
                                      .password = password != NULL ? password->bytes : NULL,
                                      .authorities = text_of(pl_papers_find(p, PL_PAPER_AUTHORITIES, 0)),
                                      .clients = clients[c->tls_cert_reqs],
                                      .only_1_3 = c->tls_min_version == PL_CFG_TLS_MIN_VERSION_1_3 };
    d->tls = pl_tls_create(&o, err);
    return d->tls != NULL || pl_err_wrap(err, "tls");
}

bool pl_door_open(const struct pl_config *c, struct pl_papers *papers, struct pl_door *out,
                  struct pl_err *err) {
    *out = (struct pl_door){ .papers = *papers };
    *papers = (struct pl_papers){ 0 };
    if (open_keys(&out->papers, out, err) && open_token(&out->papers, out, err) &&
        open_tls(c, &out->papers, out, err))
        return true;
    pl_door_free(out);
    return false;
}

bool pl_door_collect(struct pl_config *c, struct pl_door *out, struct pl_err *err) {
    struct pl_papers papers = { 0 };
    return pl_papers_collect(c, &papers, err) && pl_door_open(c, &papers, out, err);
}

void pl_door_free(struct pl_door *d) {
    pl_papers_free(&d->papers);
    pl_keyring_free(d->keys);
    pl_tls_unref(d->tls);
    *d = (struct pl_door){ 0 };
}

int pl_door_memfd(const struct pl_papers *p) {
    struct pl_buf text;
    pl_buf_init(&text, HELD_BYTES);
    errno = ENOMEM;
    bool ok = pl_buf_reserve(&text, 1) && pl_papers_write(p, &text);
    int fd = ok ? pl_memfd_of("plimsoll-door", text.data, text.len) : -1;
    int error = errno;
    if (text.data != NULL) OPENSSL_cleanse(text.data, text.size);
    pl_buf_free(&text);
    errno = error;
    return fd;
}
