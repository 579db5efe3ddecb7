/* door_main.c - the door that is in force in main: put there at the start, by a reload, and when a file that
 * it was made of has changed; kept with the keeper, so that the next main has the same one. */
#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/door.h"
#include "crew/hello.h"

enum { HELD_BYTES = 64 << 20, LOOK_EVERY_MS = 2000, QUIET_MS = 300 };
enum { DAY_MS = 24 * 3600 * 1000, EXPIRES_SOON_S = 14 * 24 * 3600 };

static struct {
    struct pl_door_options o;
    unsigned generation; /* of `now` */
    int64_t until_s;     /* of the certificates; 0: none */
    uv_timer_t day;
    struct pl_papers now, before; /* before: the way back when a reload is rolled back */
} door;

/* Files that are looked at, and what was read when one had changed. */
static struct {
    uv_fs_poll_t polls[PL_PAPERS_MOST];
    char paths[PL_PAPERS_MOST][PL_PAPER_PLACE];
    size_t count;
    uv_timer_t quiet; /* two files that belong together are seldom written at once */
    uv_work_t work;
    struct pl_config *config;
    struct pl_door fresh;
    struct pl_err err;
    char told[sizeof(struct pl_err)]; /* the last rejection: a file that stays wrong is told once */
    unsigned generation;
    bool made, busy, again, ok;
    bool frozen, missed; /* missed: something has changed meanwhile */
} watching;

static void on_quiet(uv_timer_t *t);
static void watch_files(void);

static void look_soon(void) { uv_timer_start(&watching.quiet, on_quiet, QUIET_MS, 0); }

static void tell_rejected(void) {
    if (strcmp(watching.told, watching.err.msg) == 0) return;
    snprintf(watching.told, sizeof watching.told, "%s", watching.err.msg);
    pl_log(door.o.app->log, PL_ERROR, "config.rejected", F_STR("message", watching.err.msg));
}

static size_t rows_of(const struct pl_keyring *ring) { return ring != NULL ? ring->row_count : 0; }

static bool same_kind(const struct pl_papers *a, const struct pl_papers *b, enum pl_paper_kind kind) {
    for (size_t i = 0;; i++) {
        const struct pl_paper *x = pl_papers_find(a, kind, i), *y = pl_papers_find(b, kind, i);
        if (x == NULL || y == NULL) return x == y;
        if (x->len != y->len || memcmp(x->bytes, y->bytes, x->len) != 0) return false;
    }
}

static void tell_changed(const struct pl_door *d) {
    bool same =
        same_kind(&d->papers, &door.now, PL_PAPER_KEYS) && same_kind(&d->papers, &door.now, PL_PAPER_API_KEY);
    if (!same) pl_log(door.o.app->log, PL_INFO, "keys.reloaded", F_INT("keys", rows_of(d->keys)));
    same = same_kind(&d->papers, &door.now, PL_PAPER_CERTIFICATE) &&
           same_kind(&d->papers, &door.now, PL_PAPER_PRIVATE_KEY) &&
           same_kind(&d->papers, &door.now, PL_PAPER_AUTHORITIES);
    if (same || d->tls == NULL) return;
    char ts[PL_TIME_TEXT];
    pl_log(door.o.app->log, PL_INFO, "tls.reloaded",
           F_STR("not_after", pl_time_rfc3339((uint64_t)pl_tls_not_after_s(d->tls) * 1000, ts)));
}

static void keep(void) {
    int fd = pl_door_memfd(&door.now);
    if (fd == -1) return; /* the next main starts with the one before: it was accepted, too */
    door.o.hold("door", fd);
    close(fd);
}

/* Once when it comes into force, then once a day; loud in the last two weeks. */
static void tell_expiry(void) {
    char ts[PL_TIME_TEXT];
    struct pl_metrics *m = door.o.app->metrics;
    if (door.until_s == 0) {
        pl_metrics_drop(m, PL_M_TLS_NOT_AFTER_SECONDS, NULL, 0);
        return;
    }
    pl_series_set(pl_series0(m, PL_M_TLS_NOT_AFTER_SECONDS), (double)door.until_s);
    int64_t left_s = door.until_s - (int64_t)(pl_wall_ms(door.o.app->clock) / 1000);
    if (left_s > EXPIRES_SOON_S) return;
    pl_log(door.o.app->log, PL_WARN, "tls.expires",
           F_STR("not_after", pl_time_rfc3339((uint64_t)door.until_s * 1000, ts)),
           F_INT("days_left", left_s / (24 * 3600)));
}

static void on_day(uv_timer_t *t) {
    (void)t;
    tell_expiry();
}

static void use(struct pl_door *d) {
    pl_gateway_set_keys(door.o.gateway, d->keys);
    d->keys = NULL;
    pl_admin_set_token(door.o.admin, d->has_token ? &d->token : NULL);
    pl_gateway_set_tls(door.o.gateway, d->tls);
    pl_admin_set_tls(door.o.admin, d->tls);
    door.until_s = d->tls != NULL ? pl_tls_not_after_s(d->tls) : 0;
    pl_tls_unref(d->tls);
    d->tls = NULL;
    tell_expiry();
}

void pl_door_put(struct pl_door *d) {
    tell_changed(d);
    use(d);
    door.generation++;
    watching.told[0] = '\0';
    pl_papers_free(&door.before);
    door.before = door.now;
    door.now = d->papers;
    d->papers = (struct pl_papers){ 0 };
    keep();
    watch_files();
}

void pl_door_back(void) {
    struct pl_door d = { 0 };
    struct pl_err err;
    struct pl_papers papers = door.before;
    door.before = (struct pl_papers){ 0 };
    if (pl_door_open(door.o.app->config, &papers, &d, &err)) pl_door_put(&d);
    pl_door_free(&d);
}

/* --- changed files */

static void on_read(uv_work_t *work, int status) {
    (void)work;
    (void)status;
    pl_config_destroy(watching.config);
    watching.config = NULL;
    watching.busy = false;
    if (watching.ok) watching.told[0] = '\0';
    if (!watching.ok) {
        tell_rejected();
    } else if (watching.frozen) {
        watching.missed = true;
    } else if (watching.generation == door.generation && !pl_papers_same(&watching.fresh.papers, &door.now)) {
        pl_door_put(&watching.fresh);
    }
    pl_door_free(&watching.fresh);
    if (watching.again) look_soon();
    watching.again = false;
}

static void read_now(uv_work_t *work) {
    (void)work;
    watching.ok = pl_door_collect(watching.config, &watching.fresh, &watching.err);
}

/* A copy, because a reload may drop the configuration while the files are being read. */
static struct pl_config *copy_config(void) {
    struct pl_buf text;
    struct pl_err err;
    pl_buf_init(&text, (size_t)8 << 20);
    bool ok = pl_config_to_json(door.o.app->config, &text);
    struct pl_config *c = ok ? pl_config_from_json(text.data, text.len, &err) : NULL;
    pl_buf_free(&text);
    return c;
}

void pl_door_freeze(bool yes) {
    watching.frozen = yes;
    if (!yes && watching.missed) look_soon();
    if (!yes) watching.missed = false;
}

static void on_quiet(uv_timer_t *t) {
    (void)t;
    if (watching.frozen) {
        watching.missed = true;
        return;
    }
    if (watching.busy) {
        watching.again = true;
        return;
    }
    watching.config = copy_config();
    if (watching.config == NULL) return;
    watching.generation = door.generation;
    watching.err = (struct pl_err){ 0 };
    watching.busy = uv_queue_work(door.o.app->loop, &watching.work, read_now, on_read) == 0;
}

static void on_poll(uv_fs_poll_t *poll, int status, const uv_stat_t *was, const uv_stat_t *is) {
    (void)poll;
    (void)status; /* a file that is away is a change, too */
    (void)was;
    (void)is;
    look_soon();
}

static void watch_file(const char *path) {
    if (watching.count == PL_PAPERS_MOST || path[0] == '\0') return;
    for (size_t i = 0; i < watching.count; i++)
        if (strcmp(watching.paths[i], path) == 0) return;
    uv_fs_poll_t *poll = &watching.polls[watching.count];
    snprintf(watching.paths[watching.count++], PL_PAPER_PLACE, "%s", path);
    uv_fs_poll_start(poll, on_poll, path, LOOK_EVERY_MS);
}

/* Whatever is in force now. */
static void watch_files(void) {
    if (!watching.made) return;
    while (watching.count > 0) uv_fs_poll_stop(&watching.polls[--watching.count]);
    for (size_t i = 0; i < door.now.count; i++) {
        const char *place = door.now.at[i].place;
        if (strncmp(place, "env:", 4) == 0) continue;
        if (door.now.at[i].kind == PL_PAPER_CERTIFICATE) watch_file(door.o.app->config->tls_certfile);
        watch_file(strncmp(place, "file:", 5) == 0 ? place + 5 : place);
    }
}

void pl_door_watch(void) {
    for (size_t i = 0; i < PL_PAPERS_MOST; i++) uv_fs_poll_init(door.o.app->loop, &watching.polls[i]);
    uv_timer_init(door.o.app->loop, &watching.quiet);
    watching.made = true;
    uv_timer_init(door.o.app->loop, &door.day);
    uv_timer_start(&door.day, on_day, DAY_MS, DAY_MS);
    watch_files();
}

bool pl_door_start(const struct pl_door_options *o, int held, struct pl_err *err) {
    struct pl_buf text;
    struct pl_papers papers = { 0 };
    struct pl_door d = { 0 };
    door.o = *o;
    if (held == -1) return true;
    pl_buf_init(&text, HELD_BYTES);
    bool ok = pl_held_read(held, &text) || PL_FAIL(err, PL_E_SYS, "what is held for the door cannot be read");
    ok = ok && pl_papers_read(&papers, text.data != NULL ? text.data : "", text.len, err);
    if (text.data != NULL) OPENSSL_cleanse(text.data, text.size);
    pl_buf_free(&text);
    if (ok) {
        ok = pl_door_open(o->app->config, &papers, &d, err);
    } else {
        pl_papers_free(&papers);
    }
    if (!ok) return false;
    use(&d);
    door.now = d.papers;
    return true;
}
