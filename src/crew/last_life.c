#include "crew/last_life.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "crew/more.h"
#include "sample/proc.h"
#include "watch/host.h"

enum { WRITE_EVERY_MS = 5000, WRITE_SOON_MS = 1000, NEARLY_FULL_PCT = 95, FILE_PATH = 512 };
static const char file_name[] = "last-life.json", proc_root[] = "/proc";

struct pl_last_life {
    struct pl_crew *crew;
    uv_work_t work;
    uv_mutex_t one;     /* writer at a time; guards `ended` */
    bool writing, ours; /* the loop's */
    bool ended;
    char folder[FILE_PATH];
    struct pl_life now; /* what does not change: boot, keeper, machine, group */
    uint64_t written_ms;
    char *text, *written; /* on its way; last written, without its time */
    uint64_t workers_hash;
    struct pl_life last;
    const char *cause, *scope; /* NULL: nothing was told */
    char sentence[320];
};

/* --- the file's text */

static uint64_t number(const json_t *o, const char *key) {
    const json_t *j = json_object_get(o, key);
    return json_is_integer(j) && json_integer_value(j) >= 0 ? (uint64_t)json_integer_value(j) : UINT64_MAX;
}

static bool word(const json_t *o, const char *key, char *out, size_t room) {
    const char *s = json_string_value(json_object_get(o, key));
    if (s == NULL || strlen(s) >= room) return false;
    for (const char *c = s; *c != '\0'; c++)
        if ((unsigned char)*c < ' ') return false;
    snprintf(out, room, "%s", s);
    return true;
}

static void read_services(const json_t *list, struct pl_life *out) {
    size_t i, k;
    const json_t *s, *w;
    json_array_foreach(list, i, s) {
        out->services++;
        json_array_foreach(json_object_get(s, "workers"), k, w) {
            const char *state = json_string_value(json_object_get(w, "state"));
            uint64_t in_flight = number(w, "in_flight");
            out->workers++;
            out->ready += state != NULL && strcmp(state, "ready") == 0;
            if (in_flight < 1000000) out->in_flight += (uint32_t)in_flight;
        }
    }
}

bool pl_life_read(const char *text, size_t len, struct pl_life *out) {
    json_t *o = json_loadb(text, len, 0, NULL);
    char boot[20], *end;
    *out = (struct pl_life){ 0 };
    const json_t *memory = json_object_get(o, "memory");
    bool ok = number(o, "v") == 1 && word(o, "boot", boot, sizeof boot) && boot[0] != '\0' &&
              word(o, "machine", out->machine, sizeof out->machine) &&
              word(o, "group", out->group, sizeof out->group) && word(o, "seen", out->seen, sizeof out->seen);
    if (ok) out->boot = strtoull(boot, &end, 16);
    ok = ok && *end == '\0';
    out->keeper_pid = number(o, "keeper_pid");
    out->keeper_start = number(o, "keeper_start");
    out->goodbye = json_is_object(json_object_get(o, "goodbye"));
    out->current = number(memory, "current_bytes");
    out->limit = number(memory, "limit_bytes");
    out->kills = number(memory, "oom_kill");
    if (ok) read_services(json_object_get(o, "services"), out);
    json_decref(o);
    return ok;
}

static void set_known(json_t *o, const char *key, uint64_t value) {
    if (value != PL_PROC_UNKNOWN) json_object_set_new(o, key, json_integer((json_int_t)value));
}

static json_t *services_json(const struct pl_crew *c) {
    json_t *list = json_array();
    for (size_t i = 0; i < c->every_count; i++) {
        json_t *workers = json_array();
        for (const struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next)
            if (w->generation != 0 && w->state != PL_WORKER_GONE) {
                json_t *o = json_pack("{s:i,s:I,s:i,s:s,s:i}", "worker", (int)w->slot, "generation",
                                      (json_int_t)w->generation, "pid", (int)w->pid, "state",
                                      pl_worker_state_name(w->state), "in_flight", (int)w->in_flight);
                if (w->more->host.seen_ms != 0)
                    set_known(o, "host_bytes", w->more->host.anon + w->more->host.swap);
                json_array_append_new(workers, o);
            }
        json_array_append_new(list,
                              json_pack("{s:s,s:o}", "name", c->every[i]->config->id, "workers", workers));
    }
    return list;
}

/* Without `seen`, so that two texts can be compared; memory in MiB steps for the same reason. */
static json_t *life_json(const struct pl_last_life *l) {
    const struct pl_crew *c = l->crew;
    struct pl_watch_host g;
    pl_host_now(c, &g);
    char boot[20];
    snprintf(boot, sizeof boot, "%" PRIx64, l->now.boot);
    json_t *memory = json_object();
    set_known(memory, "current_bytes",
              g.current != PL_WATCH_UNKNOWN ? g.current >> 20 << 20 : PL_WATCH_UNKNOWN);
    set_known(memory, "limit_bytes", g.limit);
    set_known(memory, "oom_kill", g.events_oom_kill);
    json_t *o =
        json_pack("{s:i,s:s,s:s,s:I,s:I,s:s,s:s,s:o,s:o}", "v", 1, "kind", "life", "boot", boot, "keeper_pid",
                  (json_int_t)l->now.keeper_pid, "keeper_start", (json_int_t)l->now.keeper_start, "machine",
                  l->now.machine, "group", l->now.group, "services", services_json(c), "memory", memory);
    return o;
}

static char *stamped(const struct pl_last_life *l, json_t *o) {
    char ts[PL_TIME_TEXT];
    json_object_set_new(o, "seen", json_string(pl_time_rfc3339(pl_wall_ms(l->crew->app->clock), ts)));
    return json_dumps(o, JSON_INDENT(1));
}

/* --- what ended it */

static void gib_of(const struct pl_life *l, char *out, size_t room) {
    const double gib = (double)((uint64_t)1 << 30);
    out[0] = '\0';
    if (l->current != UINT64_MAX && l->limit != UINT64_MAX)
        snprintf(out, room, ", memory at %.2f of %.2f GiB", (double)l->current / gib, (double)l->limit / gib);
    else if (l->current != UINT64_MAX)
        snprintf(out, room, ", memory at %.2f GiB without a limit", (double)l->current / gib);
}

const char *pl_life_judge(const struct pl_life *last, const struct pl_life *now, const char **scope,
                          char *sentence, size_t room) {
    bool same_machine = strcmp(last->machine, now->machine) == 0;
    bool counted = same_machine && strcmp(last->group, now->group) == 0 && last->kills != UINT64_MAX &&
                   now->kills != UINT64_MAX;
    bool full = last->current != UINT64_MAX && last->limit != UINT64_MAX && last->limit != 0 &&
                (double)last->current * 100 > (double)last->limit * NEARLY_FULL_PCT;
    const char *cause = "unknown", *what = "the cause is not known";
    char memory[64];
    *scope = NULL;
    if (counted && now->kills > last->kills) {
        cause = pl_cause_name(PL_CAUSE_KILLED_BY_KERNEL_OOM);
        what = "killed by the kernel, which had no memory left";
        *scope = "container";
    } else if (!same_machine) {
        what = "the machine has been started since, or it was another one";
    } else if (full) {
        cause = pl_cause_name(PL_CAUSE_KILLED);
        what = "probably killed by the kernel for want of memory";
    }
    gib_of(last, memory, sizeof memory);
    snprintf(sentence, room,
             "the last life ended without a goodbye after %s: %s; then %u of %u workers were ready, %u "
             "requests in "
             "flight%s",
             last->seen, what, last->ready, last->workers, last->in_flight, memory);
    return cause;
}

/* --- reading and writing it */

static int write_file(const char *folder, const char *text) {
    char path[FILE_PATH + 32], half[FILE_PATH + 40];
    size_t len = strlen(text);
    snprintf(path, sizeof path, "%s/%s", folder, file_name);
    snprintf(half, sizeof half, "%s.new", path);
    int fd = open(half, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd == -1) return errno;
    bool ok = write(fd, text, len) == (ssize_t)len && fsync(fd) == 0;
    int error = ok ? 0 : errno != 0 ? errno : ENOSPC;
    close(fd);
    if (ok && rename(half, path) == -1) error = errno;
    PL_AUTO_FD int dir = ok ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (dir != -1) fsync(dir);
    return error;
}

static void write_now(uv_work_t *work) {
    struct pl_last_life *l = work->data;
    uv_mutex_lock(&l->one);
    if (!l->ended) write_file(l->folder, l->text);
    uv_mutex_unlock(&l->one);
}

static void written(uv_work_t *work, int status) {
    struct pl_last_life *l = work->data;
    (void)status;
    free(l->text);
    l->text = NULL;
    l->writing = false;
}

static bool read_last(struct pl_last_life *l) {
    static char text[PL_LIFE_BYTES];
    char path[FILE_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", l->folder, file_name);
    PL_AUTO_FD int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd != -1 ? read(fd, text, sizeof text) : -1;
    return n > 0 && (size_t)n < sizeof text && pl_life_read(text, (size_t)n, &l->last);
}

static void read_word(const char *path, char *out, size_t room) {
    PL_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd != -1 ? read(fd, out, room - 1) : -1;
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

static void read_group(char *out, size_t room) {
    char text[4096];
    bool v2;
    PL_AUTO_FD int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd != -1 ? read(fd, text, sizeof text) : -1;
    if (n <= 0 || !pl_proc_read_cgroup(text, (size_t)n, &v2, out, room)) out[0] = '\0';
}

static void tell(struct pl_last_life *l) {
    const struct pl_life *last = &l->last;
    struct pl_watch_host g;
    pl_host_now(l->crew, &g);
    l->now.kills = g.events_oom_kill;
    l->cause = pl_life_judge(last, &l->now, &l->scope, l->sentence, sizeof l->sentence);
    pl_log(l->crew->app->log, PL_ERROR, "instance.died", F_STR("cause", l->cause), F_STR("scope", l->scope),
           F_STR("sentence", l->sentence), F_STR("seen", last->seen), F_INT("workers", last->workers),
           F_INT("in_flight", last->in_flight));
}

void pl_last_life_begin(struct pl_crew *c) {
    struct pl_last_life *l = c->state_dir != NULL ? calloc(1, sizeof *l) : NULL;
    if (l == NULL || strlen(c->state_dir) >= sizeof l->folder || uv_mutex_init(&l->one) != 0) {
        free(l);
        return;
    }
    l->crew = c;
    snprintf(l->folder, sizeof l->folder, "%s", c->state_dir);
    l->now.boot = c->welcome.boot;
    l->now.keeper_pid = c->welcome.keeper_pid;
    l->now.keeper_start = pl_host_start(proc_root, (pid_t)c->welcome.keeper_pid);
    read_word("/proc/sys/kernel/random/boot_id", l->now.machine, sizeof l->now.machine);
    read_group(l->now.group, sizeof l->now.group);
    c->last_life = l;
    bool there = read_last(l), same_life = there && l->last.boot == l->now.boot;
    bool lives = there && !same_life && !l->last.goodbye && strcmp(l->last.machine, l->now.machine) == 0 &&
                 l->last.keeper_start != 0 &&
                 pl_host_start(proc_root, (pid_t)l->last.keeper_pid) == l->last.keeper_start;
    l->ours = !lives;
    if (there && !same_life && !lives && !l->last.goodbye) tell(l);
    /* Kills between two mains of one life are this one's to explain. */
    if (same_life) pl_host_count_from(c, l->last.kills);
    json_t *o = l->ours ? life_json(l) : NULL;
    char *text = o != NULL ? stamped(l, o) : NULL;
    int error = text != NULL ? write_file(l->folder, text) : 0;
    if (error != 0)
        pl_log(c->app->log, PL_WARN, "worker.degraded", F_STR("feature", "last_life"),
               F_STR("reason", strerror(error)));
    free(text);
    json_decref(o);
}

/* Which workers there are, and in which state: what is worth a write of its own. */
static uint64_t hash_of_workers(const struct pl_crew *c) {
    uint64_t h = 14695981039346656037ULL;
    for (size_t i = 0; i < c->every_count; i++)
        for (const struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next)
            h = (h ^ (w->generation << 8 | (uint64_t)w->state)) * 1099511628211ULL;
    return h;
}

void pl_last_life_tick(struct pl_crew *c, uint64_t now) {
    struct pl_last_life *l = c->last_life;
    if (l == NULL || !l->ours || l->writing) return;
    uint64_t hash = hash_of_workers(c), pause = hash != l->workers_hash ? WRITE_SOON_MS : WRITE_EVERY_MS;
    if (now - l->written_ms < pause) return;
    json_t *o = life_json(l);
    char *plain = json_dumps(o, JSON_COMPACT);
    l->written_ms = now;
    if (plain != NULL && (l->written == NULL || strcmp(plain, l->written) != 0)) {
        free(l->written);
        l->written = plain;
        l->workers_hash = hash;
        l->text = stamped(l, o);
        l->work.data = l;
        l->writing = l->text != NULL && uv_queue_work(c->app->loop, &l->work, write_now, written) == 0;
        if (!l->writing) free(l->text);
    } else {
        free(plain);
    }
    json_decref(o);
}

void pl_last_life_goodbye(struct pl_crew *c, int status) {
    struct pl_last_life *l = c->last_life;
    if (l == NULL || !l->ours) return;
    json_t *o = life_json(l);
    json_object_set_new(o, "goodbye", json_pack("{s:i}", "status", status));
    char *text = stamped(l, o);
    uv_mutex_lock(&l->one); /* one that is on its way would say that we live */
    if (text != NULL && !l->ended) write_file(l->folder, text);
    l->ended = true;
    uv_mutex_unlock(&l->one);
    free(text);
    json_decref(o);
}

bool pl_look_last_life(const struct pl_crew *c, struct pl_look_life *out) {
    const struct pl_last_life *l = c->last_life;
    if (l == NULL || l->cause == NULL) return false;
    *out = (struct pl_look_life){
        .seen = l->last.seen, .cause = l->cause, .scope = l->scope, .sentence = l->sentence
    };
    return true;
}
