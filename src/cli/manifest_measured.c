/* manifest_measured.c - figures for a manifest: out of a flight record (boots, host memory, GPU), or out of a
 * JSON file that names them. Both may be another machine's: every figure is held against a range. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/flight.h"
#include "cli/manifest.h"

static bool number(const json_t *o, const char *path, const char *key, double most, double *out,
                   struct pl_err *err) {
    const json_t *v = json_object_get(o, key);
    if (v == NULL) return true;
    double x = json_number_value(v);
    if (!json_is_number(v) || !(x >= 0 && x <= most))
        return PL_FAIL(err, PL_E_CONFIG, "%s: %s: a number from 0 to %.0f is wanted", path, key, most);
    *out = x;
    return true;
}

static bool bytes(const json_t *o, const char *path, const char *key, uint64_t *out, struct pl_err *err) {
    double x = (double)*out;
    if (!number(o, path, key, 0x1p48, &x, err)) return false;
    *out = (uint64_t)x;
    return true;
}

static bool boots(const json_t *doc, const char *path, struct pl_measured *m, struct pl_err *err) {
    const json_t *list = json_object_get(doc, "boots_s"), *one;
    size_t i;
    if (list == NULL) return true;
    if (!json_is_array(list) || json_array_size(list) > PL_SIZE_BOOTS)
        return PL_FAIL(err, PL_E_CONFIG, "%s: boots_s: a list of at most %d seconds is wanted", path,
                       PL_SIZE_BOOTS);
    json_array_foreach((json_t *)(uintptr_t)list, i, one) {
        double s = json_number_value(one);
        if (!json_is_number(one) || !(s > 0 && s <= 86400))
            return PL_FAIL(err, PL_E_CONFIG, "%s: boots_s[%zu]: seconds from 0 to 86400 are wanted", path, i);
        m->boots_s[m->boot_count++] = s;
    }
    return true;
}

static bool from_json(const json_t *doc, const char *path, struct pl_measured *m, struct pl_size_ask *ask,
                      struct pl_err *err) {
    const json_t *host = json_object_get(doc, "host");
    double workers = ask->workers, replicas = 0;
    enum { DAY_S = 86400 };
    m->cold_boot = json_is_true(json_object_get(doc, "cold_boot_measured"));
    if (json_is_string(json_object_get(doc, "replace")))
        ask->overlap = strcmp(json_string_value(json_object_get(doc, "replace")), "overlap") == 0;
    if (json_object_get(doc, "keep_weights_cached") != NULL)
        ask->keep_weights_cached = json_is_true(json_object_get(doc, "keep_weights_cached"));
    if (json_is_string(json_object_get(doc, "measured_on")))
        snprintf(m->gpu_name, sizeof m->gpu_name, "%s",
                 json_string_value(json_object_get(doc, "measured_on")));
    m->shm_known = json_object_get(host, "shm_peak_bytes") != NULL;
    if (!boots(doc, path, m, err) || !number(doc, path, "pull_s", DAY_S, &m->pull_s, err) ||
        !number(doc, path, "schedule_s", DAY_S, &m->schedule_s, err) ||
        !number(doc, path, "longest_request_s", DAY_S, &m->longest_request_s, err) ||
        !number(doc, path, "queue_max_wait_s", DAY_S, &m->queue_max_wait_s, err) ||
        !number(doc, path, "worker_stop_s", DAY_S, &m->worker_stop_s, err) ||
        !number(doc, path, "cpu_p95_cores", 1024, &m->cpu_p95, err) ||
        !number(doc, path, "workers", 256, &workers, err) ||
        !number(doc, path, "replicas", 10000, &replicas, err) ||
        !bytes(doc, path, "weights_bytes", &m->weights_bytes, err) ||
        !bytes(host, path, "main_bytes", &m->main_bytes, err) ||
        !bytes(host, path, "worker_steady_bytes", &m->worker_steady_bytes, err) ||
        !bytes(host, path, "worker_load_peak_bytes", &m->worker_load_peak_bytes, err) ||
        !bytes(host, path, "shm_peak_bytes", &m->shm_peak_bytes, err))
        return false;
    if (workers >= 1) ask->workers = (uint32_t)workers;
    return true;
}

/* --- a flight record */

static double one_number(sqlite3 *db, const char *sql, const char *service) {
    sqlite3_stmt *s;
    double x = 0;
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK) {
        if (service == NULL)
            sqlite3_bind_null(s, 1);
        else
            sqlite3_bind_text(s, 1, service, -1, SQLITE_STATIC);
        if (sqlite3_step(s) == SQLITE_ROW) x = sqlite3_column_double(s, 0);
    }
    sqlite3_finalize(s);
    return isfinite(x) && x > 0 ? x : 0;
}

static void record_boots(sqlite3 *db, const char *service, struct pl_measured *m) {
    static const char sql[] =
        "SELECT ready_ms FROM timeline WHERE ready_ms > 0 AND ready_ms < 86400000 AND (?1 IS NULL OR "
        "service = ?1) ORDER BY ts_ms DESC LIMIT 32";
    sqlite3_stmt *s;
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK) return;
    if (service == NULL)
        sqlite3_bind_null(s, 1);
    else
        sqlite3_bind_text(s, 1, service, -1, SQLITE_STATIC);
    while (m->boot_count < PL_SIZE_BOOTS && sqlite3_step(s) == SQLITE_ROW)
        m->boots_s[m->boot_count++] = sqlite3_column_double(s, 0) / 1000;
    sqlite3_finalize(s);
}

/* A worker's host memory: the median while it serves, and its largest. The record does not know shm. */
static bool from_record(const char *path, const char *service, struct pl_measured *m, struct pl_err *err) {
    static const char steady[] =
        "SELECT anon_bytes FROM sample WHERE scope = 'host' AND worker IS NOT NULL AND anon_bytes > 0 AND "
        "(?1 IS "
        "NULL OR service = ?1) ORDER BY anon_bytes LIMIT 1 OFFSET (SELECT count(*) / 2 FROM sample WHERE "
        "scope = 'host' AND worker IS NOT NULL AND anon_bytes > 0 AND (?1 IS NULL OR service = ?1))";
    static const char peak[] =
        "SELECT max(anon_bytes) FROM sample WHERE scope = 'host' AND worker IS NOT NULL AND (?1 IS NULL OR "
        "service = ?1)";
    struct pl_flight f;
    if (!pl_flight_open(&f, path, err)) return false;
    record_boots(f.db, service, m);
    m->worker_steady_bytes = (uint64_t)one_number(f.db, steady, service);
    m->worker_load_peak_bytes = (uint64_t)one_number(f.db, peak, service);
    pl_flight_close(&f);
    return true;
}

bool pl_manifest_measured(const char *path, const char *service, struct pl_measured *out,
                          struct pl_size_ask *ask, struct pl_err *err) {
    struct pl_buf text;
    json_error_t why;
    *out = (struct pl_measured){ 0 };
    const char *base = strrchr(path, '/');
    snprintf(out->from, sizeof out->from, "%.150s", base != NULL ? base + 1 : path);
    for (char *at = out->from; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20) *at = '?'; /* it goes into comments */
    pl_buf_init(&text, PL_MANIFEST_FILE_BYTES);
    struct pl_err ignored = { 0 };
    if (!pl_manifest_read(path, &text, &ignored) && ignored.code != PL_E_TOO_LARGE) {
        *err = ignored;
        pl_buf_free(&text);
        return false;
    }
    bool sqlite = text.len > 15 && memcmp(text.data, "SQLite format 3", 15) == 0;
    bool ok;
    if (sqlite) {
        ok = from_record(path, service, out, err);
    } else {
        json_t *doc = json_loadb(text.data != NULL ? text.data : "", text.len, 0, &why);
        ok = json_is_object(doc) ? from_json(doc, path, out, ask, err)
                                 : PL_FAIL(err, PL_E_CONFIG, "%s:%d:%d: neither a flight record nor JSON: %s",
                                           path, why.line > 0 ? why.line : 1, why.column > 0 ? why.column : 1,
                                           doc != NULL ? "an object is wanted" : why.text);
        json_decref(doc);
    }
    pl_buf_free(&text);
    return ok;
}
