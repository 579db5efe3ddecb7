/* door/papers.h - what was read from files and variables for the door: rows of keys, hashes of tokens,
 * certificates.
 *
 * Kept as one text that the keeper holds beside the accepted configuration. So the next main starts with what
 * was accepted, not with a file that is half edited by then, and a main that has given up root needs no right
 * to read a private key. Of tokens and of a single key only the hash is kept.
 *
 * The text is a run of "KIND PLACE-LENGTH LENGTH\n", place, bytes; a KIND that is not known is skipped.
 */
#ifndef PL_DOOR_PAPERS_H
#define PL_DOOR_PAPERS_H
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/* clang-format off */
#define PL_PAPERS(X)                                                                                         \
    X(KEYS, "keys")               /* text of api_keys.file */                                               \
    X(API_KEY, "api_key")         /* digest of the key of --api-key */                                      \
    X(ADMIN_TOKEN, "admin_token") /* its digest */                                                          \
    X(CERTIFICATE, "certificate") /* PEM; each is followed by its PRIVATE_KEY */                            \
    X(PRIVATE_KEY, "private_key")                                                                           \
    X(PASSWORD, "password")       /* of the private keys */                                                 \
    X(AUTHORITIES, "authorities") /* PEM: who signs client certificates */
/* clang-format on */
enum pl_paper_kind {
#define X(sym, name) PL_PAPER_##sym,
    PL_PAPERS(X)
#undef X
        PL_PAPER_KIND_COUNT
};

enum { PL_PAPERS_MOST = 64, PL_PAPER_BYTES = 4 << 20, PL_PAPER_PLACE = 512 };

struct pl_paper {
    enum pl_paper_kind kind;
    char place[PL_PAPER_PLACE]; /* the file, for messages */
    char *bytes;                /* with a NUL behind them */
    size_t len;
};
struct pl_papers {
    struct pl_paper *at; /* owned; zero it before the first use */
    size_t count;
};

/* Copies. */
bool pl_papers_add(struct pl_papers *p, enum pl_paper_kind kind, const char *place, const void *bytes,
                   size_t len, struct pl_err *err);
/* The n-th of its kind, from 0; NULL: there is none. */
const struct pl_paper *pl_papers_find(const struct pl_papers *p, enum pl_paper_kind kind, size_t n);
bool pl_papers_same(const struct pl_papers *a, const struct pl_papers *b);
bool pl_papers_write(const struct pl_papers *p, struct pl_buf *out);
bool pl_papers_read(struct pl_papers *p, const char *text, size_t len, struct pl_err *err);
void pl_papers_free(struct pl_papers *p); /* wiped before it is given back */
#endif
