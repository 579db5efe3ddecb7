#include "worker/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/similar.h"

/* Names, as slices of texts that outlive them, or of its own numbers. */
struct pool {
    struct {
        const char *at;
        size_t len;
    } name[PL_DEVICES_MOST];
    size_t count;
    char numbers[PL_DEVICES_MOST][4];
};

static void add(struct pool *p, const char *at, size_t len) {
    if (p->count == PL_DEVICES_MOST) return;
    p->name[p->count].at = at;
    p->name[p->count++].len = len;
}

/* "0,1" or "GPU-...": CUDA stops at the first word that is no device, like -1. */
static void read_list(struct pool *p, const char *text) {
    for (const char *s = text; *s != '\0';) {
        s += strspn(s, " \t");
        size_t len = strcspn(s, ","), trimmed = len;
        while (trimmed > 0 && (s[trimmed - 1] == ' ' || s[trimmed - 1] == '\t')) trimmed--;
        if (trimmed == 0 || s[0] == '-') return;
        add(p, s, trimmed);
        s += len + (s[len] == ',');
    }
}

static bool is_index(const char *at, size_t len) { return len > 0 && strspn(at, "0123456789") >= len; }

/* CUDA takes a UUID's beginning for the whole. */
static bool same(const char *a, size_t a_len, const char *b, size_t b_len) {
    if (is_index(a, a_len) || is_index(b, b_len))
        return is_index(a, a_len) && is_index(b, b_len) && strtol(a, NULL, 10) == strtol(b, NULL, 10);
    return strncasecmp(a, b, a_len < b_len ? a_len : b_len) == 0;
}

static bool has(const struct pool *p, const char *name) {
    for (size_t i = 0; i < p->count; i++)
        if (same(p->name[i].at, p->name[i].len, name, strlen(name))) return true;
    return false;
}

static bool not_allowed(const struct pl_service_config *s, const char *name, const char *visible,
                        struct pl_err *err) {
    PL_FAIL(err, PL_E_CONFIG, "gpus of service %s: %s is not among CUDA_VISIBLE_DEVICES (%.100s)", s->id,
            pl_quote(name).text, visible);
    return pl_err_hint(err,
                       "name the GPUs as CUDA_VISIBLE_DEVICES does, or start plimsoll with more of them");
}

static bool named(const struct pl_service_config *s, const char *visible, const struct pool *seen,
                  struct pool *p, struct pl_err *err) {
    if (s->gpus.list.count > PL_DEVICES_MOST)
        return PL_FAIL(err, PL_E_CONFIG, "gpus of service %s: more than %d", s->id, PL_DEVICES_MOST);
    for (size_t i = 0; i < s->gpus.list.count; i++) {
        const char *name = s->gpus.list.at[i];
        if (visible != NULL && !has(seen, name)) return not_allowed(s, name, visible, err);
        if (has(p, name))
            return PL_FAIL(err, PL_E_CONFIG, "gpus of service %s: %s is there twice", s->id,
                           pl_quote(name).text);
        add(p, name, strlen(name));
    }
    return true;
}

/* The first so many: of those that are seen, or by index when nobody knows which there are. */
static bool counted(const struct pl_service_config *s, const char *visible, const struct pool *seen,
                    struct pool *p, struct pl_err *err) {
    size_t wanted = (size_t)s->gpus.count;
    if (visible != NULL && wanted > seen->count)
        return PL_FAIL(err, PL_E_CONFIG,
                       "gpus of service %s: %zu are wanted and CUDA_VISIBLE_DEVICES has %zu", s->id, wanted,
                       seen->count);
    if (wanted > PL_DEVICES_MOST)
        return PL_FAIL(err, PL_E_CONFIG, "gpus of service %s: more than %d", s->id, PL_DEVICES_MOST);
    for (size_t i = 0; i < wanted; i++) {
        if (visible != NULL) {
            add(p, seen->name[i].at, seen->name[i].len);
            continue;
        }
        int n = snprintf(p->numbers[i], sizeof p->numbers[i], "%zu", i);
        add(p, p->numbers[i], (size_t)n);
    }
    return true;
}

static bool write_names(const struct pool *p, size_t from, size_t count, char out[PL_DEVICES_TEXT]) {
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = from; i < from + count; i++) {
        int n = snprintf(out + used, PL_DEVICES_TEXT - used, "%s%.*s", i > from ? "," : "",
                         (int)p->name[i].len, p->name[i].at);
        if (n < 0 || (size_t)n >= PL_DEVICES_TEXT - used) return false;
        used += (size_t)n;
    }
    return true;
}

bool pl_devices_of(const struct pl_service_config *s, const char *visible, uint32_t slot,
                   char out[PL_DEVICES_TEXT], bool *told, struct pl_err *err) {
    struct pool seen = { 0 }, p = { 0 };
    out[0] = '\0';
    *told = true;
    if (visible != NULL) read_list(&seen, visible);
    bool parts = s->gpus_per_worker > 0;
    if (s->gpus.all && visible == NULL) {
        *told = false;
        if (!parts) return true;
        PL_FAIL(err, PL_E_CONFIG, "gpus_per_worker of service %s: it is not known which GPUs there are",
                s->id);
        return pl_err_hint(err, "say which the service may use, as in gpus: [0, 1]");
    }
    if (s->gpus.all)
        p = seen;
    else if (s->gpus.list.count > 0 ? !named(s, visible, &seen, &p, err)
                                    : !counted(s, visible, &seen, &p, err))
        return false;
    size_t each = parts ? (size_t)s->gpus_per_worker : p.count;
    if (each > p.count)
        return PL_FAIL(err, PL_E_CONFIG, "gpus_per_worker of service %s: %zu are wanted and there are %zu",
                       s->id, each, p.count);
    size_t groups = each > 0 ? p.count / each : 1;
    size_t group = slot > 0 ? (slot - 1) % groups : 0;
    return write_names(&p, group * each, each, out) ||
           PL_FAIL(err, PL_E_CONFIG, "gpus of service %s: the names are too long", s->id);
}

/* --- UUIDs */

/* Not strncmp: the text need not end in a zero byte, and behind the name there may be nothing at all. */
static bool is_kind(const char *uuid, size_t len, const char kind[static 4]) {
    return len >= 4 && memcmp(uuid, kind, 4) == 0;
}

/* "GPU 0: NVIDIA H200 (UUID: GPU-...)", and below it "  MIG 1g.18gb Device 0: (UUID: MIG-...)". */
size_t pl_devices_listed(const char *text, size_t len, char out[PL_DEVICES_TEXT]) {
    static const char mark[] = "(UUID: ";
    struct pool p = { 0 };
    bool whole = false; /* the last one in the pool is a GPU that no MIG instance has followed yet */
    for (const char *s = text, *end = text + len; s < end;) {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        size_t n = (size_t)((stop != NULL ? stop : end) - s);
        const char *uuid = memmem(s, n, mark, sizeof mark - 1);
        const char *close = uuid != NULL ? memchr(uuid, ')', (size_t)(s + n - uuid)) : NULL;
        if (close != NULL) {
            uuid += sizeof mark - 1;
            size_t uuid_len = (size_t)(close - uuid);
            bool mig = is_kind(uuid, uuid_len, "MIG-"), gpu = is_kind(uuid, uuid_len, "GPU-");
            if (mig && whole) p.count--;
            size_t before = p.count;
            if (mig || gpu) add(&p, uuid, uuid_len);
            whole = gpu && p.count > before;
        }
        s += n + 1;
    }
    return write_names(&p, 0, p.count, out) ? p.count : 0;
}

bool pl_devices_by_uuid(const struct pl_service_config *s, const char *listed, const char *visible,
                        char out[PL_DEVICES_TEXT]) {
    struct pool all = { 0 }, p = { 0 };
    bool by_index = !s->gpus.all && s->gpus.list.count > 0;
    bool all_in_parts = s->gpus.all && visible == NULL && s->gpus_per_worker > 0;
    struct pool seen = { 0 };
    read_list(&all, listed);
    if (visible != NULL) read_list(&seen, visible);
    if (all.count == 0 || (!by_index && !all_in_parts)) return false;
    for (size_t i = 0; i < seen.count; i++) /* they bound by index: then both stay indexes */
        if (is_index(seen.name[i].at, seen.name[i].len)) return false;
    if (all_in_parts) p = all;
    for (size_t i = 0; by_index && i < s->gpus.list.count; i++) {
        const char *name = s->gpus.list.at[i];
        size_t at = is_index(name, strlen(name)) ? (size_t)strtoul(name, NULL, 10) : SIZE_MAX;
        if (at >= all.count || p.count == PL_DEVICES_MOST) return false;
        add(&p, all.name[at].at, all.name[at].len);
    }
    return write_names(&p, 0, p.count, out);
}
