/* sample.c - `plimsoll sample`: warm-up samples from real requests or from a file. They lie in the server's
 * state folder, which is this user's own. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/client.h"
#include "cli/wait.h"

enum { BODY_BYTES = 64 << 20, MOST_NEXT = 100 };

struct place {
    char service[64], folder[600];
};

/* The service (the only one, if none was named) and the folder of its samples. */
static bool find_place(struct pl_client *c, const char *named, struct place *p, struct pl_err *err) {
    size_t i;
    json_t *s;
    json_t *doc = pl_client_document(c, "/status", err);
    if (doc == NULL) return false;
    json_t *services = json_object_get(doc, "services");
    const char *state = json_string_value(json_object_get(doc, "state_dir"));
    const char *found = NULL;
    json_array_foreach(services, i, s) {
        const char *name = json_string_value(json_object_get(s, "name"));
        if (name != NULL && (named != NULL ? strcmp(name, named) == 0 : json_array_size(services) == 1))
            found = name;
    }
    bool ok = found != NULL && state != NULL;
    if (found == NULL)
        PL_FAIL(err, PL_E_USAGE, named != NULL ? "no service %s" : "%s services run: name one",
                named != NULL ? named : "several");
    else if (state == NULL)
        PL_FAIL(err, PL_E_SYS, "the server has no state folder to keep samples in");
    if (ok) {
        snprintf(p->service, sizeof p->service, "%s", found);
        snprintf(p->folder, sizeof p->folder, "%s/samples/%s", state, found);
    }
    json_decref(doc);
    return ok;
}

static int list(struct pl_cli *cli, const struct place *p) {
    DIR *d = opendir(p->folder);
    int count = 0;
    if (d != NULL) {
        for (struct dirent *e; (e = readdir(d)) != NULL;) {
            const char *dot = strrchr(e->d_name, '.');
            char path[900];
            struct stat st;
            if (dot == NULL || strcmp(dot, ".json") != 0) continue;
            snprintf(path, sizeof path, "%s/%s", p->folder, e->d_name);
            json_t *meta = json_load_file(path, 0, NULL);
            snprintf(path, sizeof path, "%s/%.*s.body", p->folder, (int)(dot - e->d_name), e->d_name);
            if (meta != NULL && stat(path, &st) == 0) {
                printf(
                    cli->args.json
                        ? "{\"v\":1,\"kind\":\"sample\",\"id\":\"%.*s\",\"path\":\"%s\",\"bytes\":%lld%s}\n"
                        : "%.*s  %s  %lld bytes%s\n",
                    (int)(dot - e->d_name), e->d_name, json_string_value(json_object_get(meta, "path")),
                    (long long)st.st_size,
                    !json_is_true(json_object_get(meta, "canary")) ? ""
                    : cli->args.json                               ? ",\"canary\":true"
                                                                   : "  canary");
                count++;
            }
            json_decref(meta);
        }
        closedir(d);
    }
    return count > 0 ? 0 : 1;
}

static bool is_id(const char *id) { return id[0] != '\0' && strspn(id, "0123456789abcdef") == strlen(id); }

static int forget(struct pl_cli *cli, const struct place *p, const char *id) {
    struct pl_err err = { 0 };
    char path[900];
    snprintf(path, sizeof path, "%s/%s.json", p->folder, is_id(id) ? id : "none");
    if (!is_id(id) || unlink(path) != 0) {
        PL_FAIL(&err, PL_E_LIMIT, "no sample %s of %s", id, p->service);
        return pl_cli_fail(cli, &err);
    }
    snprintf(path, sizeof path, "%s/%s.body", p->folder, id);
    unlink(path);
    printf("%s removed\n", id);
    return 0;
}

static bool put(const struct place *p, const char *id, const char *kind, const char *bytes, size_t len,
                struct pl_err *err) {
    char path[900];
    snprintf(path, sizeof path, "%s/%s.%s", p->folder, id, kind);
    PL_AUTO_FD int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd != -1 && write(fd, bytes, len) == (ssize_t)len) return true;
    return PL_FAIL_SYS(err, errno, "write %s", path);
}

static bool make_folder(const struct place *p, struct pl_err *err) {
    char parent[600];
    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(p->folder, '/') - p->folder), p->folder);
    if ((mkdir(parent, 0700) == 0 || errno == EEXIST) && (mkdir(p->folder, 0700) == 0 || errno == EEXIST))
        return true;
    return PL_FAIL_SYS(err, errno, "make %s", p->folder);
}

static int from_file(struct pl_cli *cli, const struct place *p, const char *route, const char *file) {
    struct pl_err err = { 0 };
    struct pl_buf body;
    char piece[65536], id[17];
    uint64_t number = 0;
    const char *type = pl_args_value(&cli->args, "content-type");
    PL_AUTO_FILE FILE *f = fopen(file, "re");
    pl_buf_init(&body, BODY_BYTES);
    bool ok = f != NULL || PL_FAIL_SYS(&err, errno, "open %s", file);
    for (size_t n; ok && (n = fread(piece, 1, sizeof piece, f)) > 0;)
        if (!pl_buf_add(&body, piece, n))
            ok = PL_FAIL(&err, PL_E_TOO_LARGE, "%s is larger than 64 MiB", file);
    if (getrandom(&number, sizeof number, 0) != sizeof number) number = (uint64_t)getpid();
    snprintf(id, sizeof id, "%016llx", (unsigned long long)number);
    json_t *meta = json_pack("{s:i,s:s,s:s,s:s}", "v", 1, "method", "POST", "path", route, "content_type",
                             type != NULL ? type : "application/json");
    if (pl_args_has(&cli->args, "canary")) json_object_set_new(meta, "canary", json_true());
    char *text = json_dumps(meta, JSON_COMPACT);
    ok = ok && make_folder(p, &err) &&
         put(p, id, "body", body.data != NULL ? body.data : "", body.len, &err) &&
         put(p, id, "json", text, strlen(text), &err);
    if (ok) printf("sample %s, %zu bytes, %s/%s.body\n", id, body.len, p->folder, id);
    free(text);
    json_decref(meta);
    pl_buf_free(&body);
    return ok ? 0 : pl_cli_fail(cli, &err);
}

static int from_next(struct pl_cli *cli, struct pl_client *c, const struct place *p, const char *route) {
    struct pl_err err = { 0 };
    uint64_t count = 1;
    if (!pl_args_count(&cli->args, "from-next", 1, MOST_NEXT, &count, &err)) return pl_cli_fail(cli, &err);
    json_t *order =
        json_pack("{s:s,s:s,s:I}", "service", p->service, "route", route, "count", (json_int_t)count);
    if (pl_args_has(&cli->args, "canary")) json_object_set_new(order, "canary", json_true());
    struct pl_wait w = { .path = "/sample", .what = p->service, .late = "no such request came in time" };
    int result = pl_wait_action(cli, c, &w, order);
    json_decref(order);
    return result;
}

int pl_verb_sample(struct pl_cli *cli) {
    struct pl_client c;
    struct pl_err err = { 0 };
    struct place p;
    const struct pl_strings *words = &cli->args.words;
    const char *file = pl_args_value(&cli->args, "file"), *id = pl_args_value(&cli->args, "remove");
    bool listing = pl_args_has(&cli->args, "list"), next = pl_args_has(&cli->args, "from-next");
    bool wants_route = file != NULL || next;
    const char *route = wants_route && words->count > 0 ? words->at[words->count - 1] : NULL;
    const char *service = words->count == 2                   ? words->at[0]
                          : !wants_route && words->count == 1 ? words->at[0]
                                                              : NULL;
    if ((file != NULL) + next + listing + (id != NULL) != 1 ||
        (wants_route && (route == NULL || route[0] != '/'))) {
        PL_FAIL(&err, PL_E_USAGE,
                "one of --from-next, --file with a route like /predict, or --list, --remove ID");
        return pl_cli_fail(cli, &err);
    }
    if (!pl_client_find(cli, &c, &err) || !find_place(&c, service, &p, &err)) return pl_cli_fail(cli, &err);
    if (listing) return list(cli, &p);
    if (id != NULL) return forget(cli, &p, id);
    return file != NULL ? from_file(cli, &p, route, file) : from_next(cli, &c, &p, route);
}
