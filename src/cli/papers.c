#include "cli/papers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/bound.h"
#include "config/similar.h"
#include "door/keys.h"

enum { TOKEN_LEAST = 16, KEY_LEAST = 16 };

static bool cannot(struct pl_err *err, int error, const char *path) {
    PL_FAIL_SYS(err, error, "open %.200s", path);
    err->code = PL_E_CONFIG;
    return false;
}

static bool is_open_to_others(struct pl_err *err, const char *path, mode_t mode) {
    PL_FAIL(err, PL_E_CONFIG, "%.200s can be read or written by everybody (mode %04o)", path,
            (unsigned)(mode & 07777));
    return pl_err_hint(err, "chmod 640 it, or less; in Kubernetes defaultMode: 0440");
}

/* `secret`: must not be open to others. */
static bool read_whole(const char *path, bool secret, struct pl_buf *out, struct pl_err *err) {
    PL_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd == -1 || fstat(fd, &st) == -1) return cannot(err, errno, path);
    if (!S_ISREG(st.st_mode)) return PL_FAIL(err, PL_E_CONFIG, "%.200s is not a file", path);
    if (secret && (st.st_mode & (S_IROTH | S_IWOTH)) != 0) return is_open_to_others(err, path, st.st_mode);
    for (;;) {
        char piece[8192];
        ssize_t n = read(fd, piece, sizeof piece);
        if (n < 0) return cannot(err, errno, path);
        if (n == 0) return true;
        bool fits = pl_buf_add(out, piece, (size_t)n);
        if (secret) OPENSSL_cleanse(piece, sizeof piece);
        if (!fits) return PL_FAIL(err, PL_E_CONFIG, "%.200s is larger than 4 MiB", path);
    }
}

bool pl_secret_read(const char *secret, char out[PL_SECRET_BYTES], struct pl_err *err) {
    struct pl_buf text;
    bool ok = true;
    pl_buf_init(&text, PL_SECRET_BYTES - 1);
    if (strncmp(secret, "env:", 4) == 0) {
        const char *value = getenv(secret + 4);
        if (value == NULL) return PL_FAIL(err, PL_E_CONFIG, "the variable %.100s is not set", secret + 4);
        ok = pl_buf_adds(&text, value) ||
             PL_FAIL(err, PL_E_CONFIG, "the variable %.100s is longer than 4 KiB", secret + 4);
    } else {
        ok = read_whole(secret + 5, true, &text, err);
    }
    while (ok && text.len > 0 && strchr("\r\n", text.data[text.len - 1]) != NULL) text.len--;
    if (ok && (text.len == 0 || memchr(text.data, 0, text.len) != NULL))
        ok = PL_FAIL(err, PL_E_CONFIG, "%.200s is empty, or not a text", secret);
    if (ok) {
        memcpy(out, text.data, text.len);
        out[text.len] = '\0';
    }
    if (text.data != NULL) OPENSSL_cleanse(text.data, text.size);
    pl_buf_free(&text);
    return ok;
}

/* --- what the keys of the configuration name */

static bool take_file(struct pl_papers *out, enum pl_paper_kind kind, const char *path, bool secret,
                      struct pl_err *err) {
    struct pl_buf text;
    pl_buf_init(&text, PL_PAPER_BYTES);
    bool ok = read_whole(path, secret, &text, err) &&
              pl_papers_add(out, kind, path, text.data != NULL ? text.data : "", text.len, err);
    if (text.data != NULL) OPENSSL_cleanse(text.data, text.size);
    pl_buf_free(&text);
    return ok;
}

/* Only the hash is kept. */
static bool take_digest(struct pl_config *c, struct pl_papers *out, enum pl_paper_kind kind,
                        const char *secret, struct pl_err *err) {
    char text[PL_SECRET_BYTES];
    if (!pl_secret_read(secret, text, err)) return false;
    size_t len = strlen(text);
    struct pl_key_digest d = pl_key_hash(text, len);
    OPENSSL_cleanse(text, sizeof text);
    if (kind == PL_PAPER_ADMIN_TOKEN && len < TOKEN_LEAST) {
        PL_FAIL(err, PL_E_CONFIG, "the token has %zu characters, %d is the least", len, TOKEN_LEAST);
        return pl_err_hint(err, "openssl rand -hex 32 makes one");
    }
    if (kind == PL_PAPER_API_KEY && len < KEY_LEAST)
        pl_config_note_warning(c, "--api-key: a key of less than 16 characters can be guessed");
    return pl_papers_add(out, kind, secret, d.bytes, sizeof d.bytes, err);
}

static bool wrap(struct pl_config *c, const char *key, struct pl_err *err) {
    const char *place = "";
    pl_config_origin(c, PL_CFG_INSTANCE, key, &place);
    return pl_err_wrap(err, "%s%s%s", place, place[0] != '\0' ? ": " : "",
                       strcmp(key, "api_keys.key") == 0 ? "--api-key" : key);
}

static bool collect_keys(struct pl_config *c, struct pl_papers *out, struct pl_err *err) {
    if (c->api_keys_file != NULL && !take_file(out, PL_PAPER_KEYS, c->api_keys_file, true, err))
        return wrap(c, "api_keys.file", err);
    return c->api_keys_key == NULL || take_digest(c, out, PL_PAPER_API_KEY, c->api_keys_key, err) ||
           wrap(c, "api_keys.key", err);
}

static bool collect_token(struct pl_config *c, struct pl_papers *out, struct pl_err *err) {
    char line[256];
    if (c->admin_token != NULL)
        return take_digest(c, out, PL_PAPER_ADMIN_TOKEN, c->admin_token, err) || wrap(c, "admin_token", err);
    if (c->admin.kind != PL_ADDRESS_TCP || pl_bound_is_loopback(c->admin.host)) return true;
    snprintf(line, sizeof line,
             "admin is on %.100s and there is no admin_token: from elsewhere only health and metrics answer",
             c->admin.text);
    pl_config_note_warning(c, line);
    return true;
}

/* --- certificates */

static bool has_ending(const char *name, const char *ending) {
    size_t n = strlen(name), e = strlen(ending);
    return n > e && strcmp(name + n - e, ending) == 0;
}

static int is_certificate(const struct dirent *e) {
    return e->d_name[0] != '.' && (has_ending(e->d_name, ".pem") || has_ending(e->d_name, ".crt"));
}

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* A private key that everybody may read is told, not refused: it is how secrets are mounted by default. */
static void warn_of_key(struct pl_config *c, const char *path) {
    struct stat st;
    char line[300];
    if (stat(path, &st) == -1 || (st.st_mode & (S_IROTH | S_IWOTH)) == 0) return;
    snprintf(line, sizeof line, "%.200s holds a private key and can be read by everybody (mode %04o)", path,
             (unsigned)(st.st_mode & 07777));
    pl_config_note_warning(c, line);
}

static bool take_pair(struct pl_config *c, struct pl_papers *out, const char *cert, const char *key,
                      struct pl_err *err) {
    warn_of_key(c, key);
    return take_file(out, PL_PAPER_CERTIFICATE, cert, false, err) &&
           take_file(out, PL_PAPER_PRIVATE_KEY, key, false, err);
}

static bool take_named(struct pl_config *c, struct pl_papers *out, const char *folder, const char *name,
                       struct pl_err *err) {
    char cert[PL_PAPER_PLACE], key[PL_PAPER_PLACE];
    int n = snprintf(cert, sizeof cert, "%s/%s", folder, name);
    int k = snprintf(key, sizeof key, "%s/%.*s.key", folder, (int)strlen(name) - 4, name);
    if (n >= (int)sizeof cert || k >= (int)sizeof key)
        return PL_FAIL(err, PL_E_CONFIG, "%.200s: the path is too long", folder);
    return take_pair(c, out, cert, access(key, F_OK) == 0 ? key : cert, err);
}

/* In the order of their names; the first is for who names no host. */
static bool take_folder(struct pl_config *c, struct pl_papers *out, const char *folder, struct pl_err *err) {
    struct dirent **found = NULL;
    int count = scandir(folder, &found, is_certificate, alphasort);
    if (count < 0) return cannot(err, errno, folder);
    bool ok = count > 0 || PL_FAIL(err, PL_E_CONFIG, "%.200s has no NAME.pem or NAME.crt", folder);
    for (int i = 0; i < count; i++) {
        ok = ok && take_named(c, out, folder, found[i]->d_name, err);
        free(found[i]);
    }
    free(found);
    return ok;
}

static bool take_password(struct pl_papers *out, const char *secret, struct pl_err *err) {
    char text[PL_SECRET_BYTES];
    if (!pl_secret_read(secret, text, err)) return false;
    bool ok = pl_papers_add(out, PL_PAPER_PASSWORD, secret, text, strlen(text), err);
    OPENSSL_cleanse(text, sizeof text);
    return ok;
}

static bool needs(struct pl_config *c, const char *key, const char *other, struct pl_err *err) {
    PL_FAIL(err, PL_E_CONFIG, "has no effect without %s", other);
    return wrap(c, key, err);
}

static bool collect_tls(struct pl_config *c, struct pl_papers *out, struct pl_err *err) {
    const char *cert = c->tls_certfile;
    if (cert == NULL && c->tls_keyfile != NULL) return needs(c, "tls.keyfile", "tls.certfile", err);
    if (cert == NULL && c->tls_ca_certs != NULL) return needs(c, "tls.ca_certs", "tls.certfile", err);
    if (c->tls_cert_reqs != PL_CFG_TLS_CERT_REQS_NONE && (cert == NULL || c->tls_ca_certs == NULL))
        return needs(c, "tls.cert_reqs", "tls.certfile and tls.ca_certs", err);
    if (cert == NULL) return true;
    if (is_folder(cert) && c->tls_keyfile != NULL) {
        PL_FAIL(err, PL_E_CONFIG, "tls.certfile is a folder, which has the keys as NAME.key");
        return wrap(c, "tls.keyfile", err);
    }
    bool ok = is_folder(cert) ? take_folder(c, out, cert, err)
                              : take_pair(c, out, cert, c->tls_keyfile != NULL ? c->tls_keyfile : cert, err);
    if (!ok) return wrap(c, "tls.certfile", err);
    if (c->tls_keyfile_password != NULL && !take_password(out, c->tls_keyfile_password, err))
        return wrap(c, "tls.keyfile_password", err);
    return c->tls_ca_certs == NULL || take_file(out, PL_PAPER_AUTHORITIES, c->tls_ca_certs, false, err) ||
           wrap(c, "tls.ca_certs", err);
}

bool pl_papers_collect(struct pl_config *c, struct pl_papers *out, struct pl_err *err) {
    if (collect_keys(c, out, err) && collect_token(c, out, err) && collect_tls(c, out, err)) return true;
    pl_papers_free(out);
    return false;
}
