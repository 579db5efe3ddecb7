#include "cli/client.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cli/accept.h"
#include "cli/client_tls.h"
#include "cli/papers.h"
#include "cli/paths.h"
#include "http/parser.h"

enum { REPLY_BYTES = 64 << 20, MAX_FOUND = 16 };

static bool is_socket_path(const char *text) {
    return text[0] == '/' || strncmp(text, "unix:", 5) == 0 || text[0] == '.';
}

static int connect_unix(const char *path) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd != -1 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    int error = errno;
    if (fd != -1) close(fd);
    errno = error;
    return -1;
}

enum { HOST_BYTES = 200 };

/* "host:port" or "[::1]:port": the host without its brackets. NULL: there is no port. */
static const char *split(const char *text, char host[HOST_BYTES]) {
    const char *colon = strrchr(text, ':');
    if (colon == NULL) return NULL;
    snprintf(host, HOST_BYTES, "%.*s", (int)(colon - text), text);
    if (host[0] == '[') {
        memmove(host, host + 1, strlen(host));
        host[strcspn(host, "]")] = '\0';
    }
    return colon;
}

static int connect_tcp(const char *text) {
    char host[HOST_BYTES];
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
    const char *colon = split(text, host);
    if (colon == NULL) {
        errno = EINVAL;
        return -1;
    }
    if (getaddrinfo(host, colon + 1, &hints, &found) != 0) {
        errno = EHOSTUNREACH;
        return -1;
    }
    int fd = -1;
    for (struct addrinfo *a = found; a != NULL && fd == -1; a = a->ai_next) { /* localhost is ::1, too */
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd == -1 || connect(fd, a->ai_addr, a->ai_addrlen) == 0) continue;
        int error = errno;
        close(fd);
        fd = -1;
        errno = error;
    }
    freeaddrinfo(found);
    return fd;
}

static bool is_secure(const char *where) { return strncmp(where, "https://", 8) == 0; }

/* "host:port" of an address over TCP. */
static const char *authority_of(const char *where) {
    if (is_secure(where)) return where + 8;
    return strncmp(where, "http://", 7) == 0 ? where + 7 : where;
}

static int dial(const char *where) {
    if (!is_socket_path(where)) return connect_tcp(authority_of(where));
    return connect_unix(strncmp(where, "unix:", 5) == 0 ? where + 5 : where);
}

/* --- finding the server */

struct found {
    char paths[MAX_FOUND][200];
    size_t count;
};

static void look_in(const char *parent, struct found *f) {
    DIR *d = opendir(parent);
    if (d == NULL) return;
    for (struct dirent *e; (e = readdir(d)) != NULL && f->count < MAX_FOUND;) {
        if (e->d_name[0] == '.') continue;
        snprintf(f->paths[f->count], sizeof f->paths[0], "%.90s/%.80s/admin.sock", parent, e->d_name);
        int fd = connect_unix(f->paths[f->count]);
        if (fd == -1) continue;
        close(fd);
        f->count++;
    }
    closedir(d);
}

static void look_everywhere(struct found *f) {
    char parent[PL_PATH_BYTES];
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    look_in("/run/plimsoll", f);
    if (runtime != NULL) {
        snprintf(parent, sizeof parent, "%s/plimsoll", runtime);
        look_in(parent, f);
    }
    snprintf(parent, sizeof parent, "/tmp/plimsoll-%u", (unsigned)geteuid());
    look_in(parent, f);
}

static bool use(struct pl_client *c, const char *where, struct pl_err *err) {
    snprintf(c->where, sizeof c->where, "%s", where);
    int fd = dial(where);
    if (fd == -1) {
        PL_FAIL_SYS(err, errno, "no server answers at %s", where);
        return pl_err_hint(err, "is it running? plimsoll serve starts one");
    }
    close(fd);
    return true;
}

/* What the configuration file says: its run_dir's socket, if somebody serves it. */
static bool from_file(const struct pl_cli *cli, struct pl_client *c) {
    struct pl_err err;
    char run[PL_PATH_BYTES], path[PL_PATH_BYTES + 16];
    struct pl_config *cfg = pl_accept_quietly(&cli->args, &err);
    bool ok =
        cfg != NULL && (cfg->run_dir != NULL || cfg->file != NULL) && pl_path_run_dir(cfg, false, run, &err);
    if (ok) {
        snprintf(path, sizeof path, "%s/admin.sock", run);
        ok = use(c, path, &err);
    }
    pl_config_destroy(cfg);
    return ok;
}

static bool read_token(const struct pl_cli *cli, struct pl_client *c, struct pl_err *err) {
    char secret[PL_PATH_BYTES + 8];
    const char *file = cli->args.token_file != NULL ? cli->args.token_file : getenv("PLIMSOLL_TOKEN_FILE");
    c->token[0] = '\0';
    if (file == NULL || file[0] == '\0') return true;
    snprintf(secret, sizeof secret, "file:%s", file);
    if (!pl_secret_read(secret, c->token, err)) return pl_err_wrap(err, "--token-file");
    for (const char *s = c->token; *s != '\0'; s++) /* it goes into a header */
        if (*s <= ' ' || *s > '~') return PL_FAIL(err, PL_E_CONFIG, "--token-file: %.200s is no token", file);
    return true;
}

bool pl_client_find(const struct pl_cli *cli, struct pl_client *c, struct pl_err *err) {
    const char *named = cli->args.admin != NULL ? cli->args.admin : getenv("PLIMSOLL_ADMIN");
    struct found f = { .count = 0 };
    if (!read_token(cli, c, err)) return false;
    if (named != NULL) return use(c, named, err);
    if (from_file(cli, c)) return true;
    look_everywhere(&f);
    if (f.count == 1) return use(c, f.paths[0], err);
    if (f.count == 0) {
        PL_FAIL(err, PL_E_SYS, "no running server was found");
        return pl_err_hint(err, "plimsoll serve starts one; --admin ADDR|SOCKET names one elsewhere");
    }
    PL_FAIL(err, PL_E_USAGE, "%zu servers run: %s, %s%s", f.count, f.paths[0], f.paths[1],
            f.count > 2 ? ", ..." : "");
    return pl_err_hint(err, "name one with --admin");
}

/* --- one exchange */

static bool send_all(const struct pl_client *c, const char *bytes, size_t len) {
    if (c->tls != NULL) return pl_client_tls_send(c->tls, bytes, len);
    while (len > 0) {
        ssize_t n = send(c->fd, bytes, len, MSG_NOSIGNAL);
        if (n <= 0) return false;
        bytes += n;
        len -= (size_t)n;
    }
    return true;
}

/* The server looks whether the name is one of its own. */
static const char *host_of(const struct pl_client *c) {
    return is_socket_path(c->where) ? "localhost" : authority_of(c->where);
}

static bool send_question(const struct pl_client *c, const char *method, const char *target,
                          const char *body) {
    struct pl_buf text;
    pl_buf_init(&text, 0);
    pl_buf_addf(&text, "%s %s HTTP/1.1\r\nHost: %s\r\nx-plimsoll-admin: 1\r\nConnection: close\r\n", method,
                target, host_of(c));
    if (c->token[0] != '\0' && !is_socket_path(c->where))
        pl_buf_addf(&text, "Authorization: Bearer %s\r\n", c->token);
    if (body != NULL)
        pl_buf_addf(&text, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
    pl_buf_adds(&text, "\r\n");
    if (body != NULL) pl_buf_adds(&text, body);
    bool ok = send_all(c, text.data, text.len);
    pl_buf_free(&text);
    return ok;
}

/* Reads the reply to its end, handing the body on. */
static bool receive(const struct pl_client *c, int *status, pl_client_piece *each, void *ctx,
                    const char **problem) {
    static const struct pl_http_limits limits = { .request_line = 8192, .head_bytes = 65536, .headers = 200 };
    struct pl_http_parser p;
    char bytes[65536];
    bool done = false, ok = false;
    pl_http_parser_init(&p, true, &limits);
    *problem = "the connection was closed";
    while (!done) {
        ssize_t n = c->tls != NULL ? pl_client_tls_recv(c->tls, bytes, sizeof bytes)
                                   : recv(c->fd, bytes, sizeof bytes, 0);
        if (n < 0 && c->tls == NULL && errno == EINTR) continue;
        if (n <= 0) {
            done = true;
            ok = pl_http_parse_close(&p) == PL_HTTP_END;
            break;
        }
        for (size_t at = 0; at < (size_t)n && !done;) {
            size_t used = 0;
            enum pl_http_event e = pl_http_parse(&p, bytes + at, (size_t)n - at, &used);
            at += used;
            if (e == PL_HTTP_HEAD) *status = p.head.status;
            if (e == PL_HTTP_BODY && !each(ctx, p.piece, p.piece_len)) done = ok = true;
            if (e == PL_HTTP_END) done = ok = true;
            if (e == PL_HTTP_FAULT) {
                *problem = p.fault_reason;
                done = true;
            }
        }
    }
    pl_http_parser_free(&p);
    return ok;
}

static bool exchange(struct pl_client *c, const char *method, const char *target, const char *body,
                     int *status, pl_client_piece *each, void *ctx, struct pl_err *err) {
    const char *problem = "it does not take a request";
    *status = 0;
    c->fd = dial(c->where);
    if (c->fd == -1) return PL_FAIL_SYS(err, errno, "connect to %s", c->where);
    c->tls = NULL;
    if (is_secure(c->where)) {
        char host[HOST_BYTES] = "";
        split(authority_of(c->where), host);
        c->tls = pl_client_tls_open(c->fd, host, err);
        if (c->tls == NULL) {
            close(c->fd);
            return false;
        }
    }
    bool ok = send_question(c, method, target, body) && receive(c, status, each, ctx, &problem);
    pl_client_tls_close(c->tls);
    c->tls = NULL;
    close(c->fd);
    return ok || PL_FAIL(err, PL_E_SYS, "%s: %s", c->where, problem);
}

static bool keep(void *ctx, const char *bytes, size_t len) { return pl_buf_add(ctx, bytes, len); }

bool pl_client_ask(struct pl_client *c, const char *method, const char *target, const char *body, int *status,
                   struct pl_buf *out, struct pl_err *err) {
    pl_buf_init(out, REPLY_BYTES);
    if (!exchange(c, method, target, body, status, keep, out, err)) return false;
    pl_buf_text(out);
    return true;
}

/* For a stream only the pieces of a good reply are handed on; an error's body is kept. */
struct streaming {
    int *status;
    pl_client_piece *each;
    void *ctx;
    struct pl_buf error;
};

static bool stream_piece(void *ctx, const char *bytes, size_t len) {
    struct streaming *s = ctx;
    if (*s->status == 200) return s->each(s->ctx, bytes, len);
    return pl_buf_add(&s->error, bytes, len);
}

bool pl_client_stream(struct pl_client *c, const char *target, int *status, pl_client_piece *each, void *ctx,
                      struct pl_err *err) {
    struct streaming s = { .status = status, .each = each, .ctx = ctx };
    pl_buf_init(&s.error, 65536);
    bool ok = exchange(c, "GET", target, NULL, status, stream_piece, &s, err);
    if (ok && *status != 200) {
        pl_buf_text(&s.error);
        pl_client_error(c, *status, &s.error, err);
        ok = false;
    }
    pl_buf_free(&s.error);
    return ok;
}

void pl_client_error(const struct pl_client *c, int status, const struct pl_buf *body, struct pl_err *err) {
    json_t *doc = json_loadb(body->data != NULL ? body->data : "", body->len, 0, NULL);
    json_t *e = json_object_get(doc, "error");
    const char *message = json_string_value(json_object_get(e, "message"));
    const char *hint = json_string_value(json_object_get(e, "hint"));
    enum pl_code code = status == 404 || status == 409 ? PL_E_LIMIT : status >= 500 ? PL_E_SYS : PL_E_USAGE;
    PL_FAIL(err, code, "%s", message != NULL ? message : "the server answered with an error");
    if (message == NULL) pl_err_wrap(err, "%s: status %d", c->where, status);
    if (hint != NULL) pl_err_hint(err, "%s", hint);
    json_decref(doc);
}

json_t *pl_client_document(struct pl_client *c, const char *target, struct pl_err *err) {
    struct pl_buf body;
    int status;
    json_t *doc = NULL;
    if (!pl_client_ask(c, "GET", target, NULL, &status, &body, err)) return NULL;
    if (status == 200)
        doc = json_loadb(body.data, body.len, 0, NULL);
    else
        pl_client_error(c, status, &body, err);
    if (status == 200 && doc == NULL) PL_FAIL(err, PL_E_SYS, "%s: the answer cannot be read", c->where);
    pl_buf_free(&body);
    return doc;
}

bool pl_client_order(struct pl_client *c, const char *target, const json_t *order, json_t **reply,
                     struct pl_err *err) {
    struct pl_buf body;
    int status;
    char *text = json_dumps(order, JSON_COMPACT);
    bool asked = pl_client_ask(c, "POST", target, text, &status, &body, err);
    free(text);
    if (!asked) return false;
    if (status == 202)
        *reply = json_loadb(body.data, body.len, 0, NULL);
    else
        pl_client_error(c, status, &body, err);
    pl_buf_free(&body);
    return status == 202;
}
