/* life.c - the starts of main in the record: hello, goodbye, and what became of those that said none.
 *
 * Of the same life of the keeper: main died and the keeper started it again. Of another one that is no more:
 * keeper, main and workers were killed together, which nobody of ours was left to tell. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "record/store.h"

enum { NEAR_MS = 15000, NEAR_PCT = 95, LOOP_MS = 60000, LOOP_CRASHES = 4 };

static void read_word(const char *path, char *out, size_t room) {
    PL_AUTO_FILE FILE *f = fopen(path, "re");
    out[0] = '\0';
    if (f == NULL || fgets(out, (int)room, f) == NULL) out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

/* Start of a process in clock ticks since the machine's, field 22 of /proc/PID/stat; 0: there is none. */
static int64_t start_of(int64_t pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    read_word(path, text, sizeof text);
    char *at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < 22; field++) at = strchr(at + 1, ' ');
    return at != NULL ? strtoll(at + 1, NULL, 10) : 0;
}

struct old_boot {
    int64_t boot, keeper, keeper_start, seen_ms;
    char life[20], machine[48];
    bool known;
};

static void take_text(sqlite3_stmt *st, int column, char *out, size_t room) {
    const char *text = (const char *)sqlite3_column_text(st, column);
    snprintf(out, room, "%s", text != NULL ? text : "");
}

/* The newest start of another life that has not ended. */
static int unfinished(struct pl_store *s, struct old_boot *out) {
    static const char sql[] =
        "SELECT boot, keeper_pid, keeper_start, coalesce(seen_ms, ts_ms), life, machine FROM boot"
        " WHERE ended_ms IS NULL AND life <> ?1 ORDER BY boot DESC LIMIT 1";
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(s->db, sql, -1, &st, NULL);
    if (rc != SQLITE_OK) return rc;
    sqlite3_bind_text(st, 1, s->life, -1, SQLITE_STATIC);
    rc = sqlite3_step(st);
    *out = (struct old_boot){ .known = rc == SQLITE_ROW };
    if (out->known) {
        out->boot = sqlite3_column_int64(st, 0);
        out->keeper = sqlite3_column_int64(st, 1);
        out->keeper_start = sqlite3_column_int64(st, 2);
        out->seen_ms = sqlite3_column_int64(st, 3);
        take_text(st, 4, out->life, sizeof out->life);
        take_text(st, 5, out->machine, sizeof out->machine);
    }
    sqlite3_finalize(st);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* Last known memory of the whole instance, not long before the end. */
static bool last_memory(struct pl_store *s, const struct old_boot *b, struct pl_record_host *out) {
    static const char sql[] =
        "SELECT used_bytes, limit_bytes, coalesce(oom_kills, 0) FROM sample WHERE scope = 'instance'"
        " AND boot = ?1 AND ts_ms >= ?2 ORDER BY ts_ms DESC LIMIT 1";
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) != SQLITE_OK) return false;
    sqlite3_bind_int64(st, 1, b->boot);
    sqlite3_bind_int64(st, 2, b->seen_ms - NEAR_MS);
    bool found = sqlite3_step(st) == SQLITE_ROW;
    if (found)
        *out = (struct pl_record_host){ .used = (uint64_t)sqlite3_column_int64(st, 0),
                                        .limit = (uint64_t)sqlite3_column_int64(st, 1),
                                        .oom_kills = (uint64_t)sqlite3_column_int64(st, 2) };
    sqlite3_finalize(st);
    return found;
}

/* Crashes of main in that life's last minute: five, the last without a row, and the keeper gives up. */
static int64_t crashes(struct pl_store *s, const struct old_boot *b) {
    static const char sql[] = "SELECT count(*) FROM exit WHERE kind = 'main' AND life = ?1 AND ts_ms > ?2";
    sqlite3_stmt *st;
    int64_t n = 0;
    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) != SQLITE_OK) return 0;
    sqlite3_bind_text(st, 1, b->life, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 2, b->seen_ms - LOOP_MS);
    if (sqlite3_step(st) == SQLITE_ROW) n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return n;
}

/* What can be said, and no more: a kernel that killed shows in the counter of a group that is still there; a
 * container that is started again has a new group, and then the last samples are all there is. */
static void judge(struct pl_store *s, const struct old_boot *b, const char *machine,
                  const struct pl_record_host *now, struct pl_record_look *out) {
    struct pl_record_host last = { 0 };
    char memory[80] = "its memory is not known";
    bool sampled = last_memory(s, b, &last), same_machine = strcmp(b->machine, machine) == 0;
    bool full = sampled && last.limit != 0 && last.used >= last.limit / 100 * NEAR_PCT;
    bool kernel = same_machine && sampled && now != NULL && now->oom_kills > last.oom_kills;
    if (sampled && last.limit != 0)
        snprintf(memory, sizeof memory, "memory was at %" PRIu64 " of %" PRIu64 " MiB", last.used >> 20,
                 last.limit >> 20);
    else if (sampled)
        snprintf(memory, sizeof memory, "memory was at %" PRIu64 " MiB, without a limit", last.used >> 20);
    bool loop = crashes(s, b) >= LOOP_CRASHES;
    const char *cause = kernel ? "killed_by_kernel_oom" : loop ? "crashed" : full ? "killed" : "unknown";
    const char *why = kernel          ? "the kernel ran out of memory and killed the whole container"
                      : loop          ? "the gateway process crashed again and again, and the keeper gave up"
                      : full          ? "probably the kernel killed the whole container for its memory"
                      : !same_machine ? "the machine, or the container's host, was started anew"
                                      : "somebody sent SIGKILL to all of them, or took the container away";
    out->unfinished = true;
    out->seen_ms = (uint64_t)b->seen_ms;
    snprintf(out->death, sizeof out->death, "i%.16s", b->life);
    snprintf(out->cause, sizeof out->cause, "%s", cause);
    snprintf(out->sentence, sizeof out->sentence,
             "keeper, main and workers ended together without a goodbye: %s (%s at the last sign of life)",
             why, memory);
}

static int write_exit(struct pl_store *s, const struct old_boot *b, const struct pl_record_look *f) {
    const struct pl_value v[] = { pl_v_int(b->seen_ms), pl_v_int(b->boot),   pl_v_text(b->life),
                                  pl_v_text(f->death),  pl_v_text(f->cause), pl_v_text(f->sentence) };
    return pl_store_run(s,
                        "INSERT INTO exit(ts_ms, boot, life, kind, death, cause, sentence)"
                        " VALUES(?1, ?2, ?3, 'instance', ?4, ?5, ?6)",
                        v, sizeof v / sizeof *v);
}

static int close_lives(struct pl_store *s, const char *machine, const struct pl_record_host *now,
                       struct pl_record_look *found) {
    struct old_boot b;
    int rc = unfinished(s, &b);
    /* Another instance that shares our folder, and lives. */
    bool lives =
        b.known && strcmp(b.machine, machine) == 0 && b.keeper > 0 && start_of(b.keeper) == b.keeper_start;
    if (rc != SQLITE_OK || !b.known || lives) return rc;
    judge(s, &b, machine, now, found);
    rc = write_exit(s, &b, found);
    const struct pl_value life = pl_v_text(s->life);
    if (rc == SQLITE_OK)
        rc = pl_store_run(s,
                          "UPDATE boot SET end = 'unfinished', ended_ms = coalesce(seen_ms, ts_ms)"
                          " WHERE ended_ms IS NULL AND life <> ?1",
                          &life, 1);
    return rc;
}

/* Mains of this life that are no more. An upgrade is no death. */
static int close_mains(struct pl_store *s, const char *reason) {
    const struct pl_value v[] = { pl_v_text(s->life),
                                  pl_v_text(strcmp(reason, "upgrade") == 0 ? "upgraded" : "crashed"),
                                  pl_v_int(s->boot) };
    int rc = pl_store_run(
        s,
        "INSERT INTO exit(ts_ms, boot, life, kind, cause, sentence) SELECT coalesce(seen_ms, ts_ms),"
        " boot, life, 'main', 'crashed', 'the gateway process ended without a goodbye; the keeper"
        " started it again and the workers went on' FROM boot WHERE ended_ms IS NULL AND life = ?1"
        " AND boot <> ?3 AND ?2 = 'crashed'",
        v, 3);
    if (rc == SQLITE_OK)
        rc = pl_store_run(s,
                          "UPDATE boot SET end = ?2, ended_ms = coalesce(seen_ms, ts_ms)"
                          " WHERE ended_ms IS NULL AND life = ?1 AND boot <> ?3",
                          v, 3);
    return rc;
}

static int hello(struct pl_store *s, const struct pl_record_boot *b, uint64_t at_ms, const char *machine) {
    const struct pl_value v[] = {
        pl_v_int(s->boot),     pl_v_count(at_ms),       pl_v_text(s->life),
        pl_v_text(b->reason),  pl_v_text(b->version),   pl_v_text(b->instance),
        pl_v_text(b->config),  pl_v_int(b->keeper_pid), pl_v_int(start_of(b->keeper_pid)),
        pl_v_int(b->main_pid), pl_v_text(machine)
    };
    return pl_store_run(
        s,
        "INSERT OR REPLACE INTO boot(boot, ts_ms, life, reason, version, instance, config, keeper_pid,"
        " keeper_start, main_pid, machine, seen_ms) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,"
        " ?11, ?2)",
        v, sizeof v / sizeof *v);
}

bool pl_store_begin(struct pl_store *s, const struct pl_record_boot *b, uint64_t at_ms,
                    const struct pl_record_host *host, struct pl_record_look *found, struct pl_err *err) {
    char machine[48];
    const char *reason = b->reason != NULL ? b->reason : "first";
    read_word("/proc/sys/kernel/random/boot_id", machine, sizeof machine);
    snprintf(s->life, sizeof s->life, "%016" PRIx64, b->life);
    s->boot = (int64_t)at_ms;
    int rc = sqlite3_exec(s->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc == SQLITE_OK) rc = close_lives(s, machine, host, found);
    if (rc == SQLITE_OK) rc = close_mains(s, reason);
    if (rc == SQLITE_OK) rc = hello(s, b, at_ms, machine);
    if (rc == SQLITE_OK) rc = sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL);
    if (rc == SQLITE_OK) return true;
    pl_store_fail(s, "begin", err);
    if (sqlite3_get_autocommit(s->db) == 0) sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return false;
}

bool pl_store_end(struct pl_store *s, uint64_t at_ms, int status, struct pl_err *err) {
    const struct pl_value v[] = { pl_v_count(at_ms), pl_v_id((uint64_t)status), pl_v_id((uint64_t)s->boot) };
    return pl_store_run(s,
                        "UPDATE boot SET end = coalesce(end, 'stopped'), ended_ms = ?1, seen_ms = ?1, status "
                        "= ?2 WHERE boot = ?3",
                        v, 3) == SQLITE_OK ||
           pl_store_fail(s, "say goodbye", err);
}
