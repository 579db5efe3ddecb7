#include "snapshot/snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "snapshot/inside.h"

void pl_snap_destroy(struct pl_snap *s) {
    if (s == NULL) return;
    void *const all[] = { s->bytes,  s->strings, s->frames, s->stacks,  s->frame_ids, s->segments,
                          s->blocks, s->events,  s->traces, s->streams, s->pools };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    free(s);
}

const char *pl_snap_text(const struct pl_snap *s, uint32_t string, size_t *len) {
    if (string >= s->string_count) {
        if (len != NULL) *len = 0;
        return "";
    }
    if (len != NULL) *len = s->strings[string].len;
    return s->bytes + s->strings[string].at;
}

const char *pl_snap_conf(const struct pl_snap *s) { return pl_snap_text(s, s->settings.conf, NULL); }

size_t pl_snap_device_count(const struct pl_snap *s) {
    size_t count = 0;
    if (s->segment_count > 0) count = (size_t)s->segments[s->segment_count - 1].device + 1;
    for (size_t i = count; i < s->trace_count; i++)
        if (s->traces[i].count > 0) count = i + 1;
    return count;
}

struct pl_snap_trace pl_snap_trace_of(const struct pl_snap *s, uint32_t device) {
    return device < s->trace_count ? s->traces[device] : (struct pl_snap_trace){ 0 };
}

/* The first segment at or behind (device, addr). */
static size_t lower_bound(const struct pl_snap *s, int64_t device, uint64_t addr) {
    size_t low = 0, high = s->segment_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct pl_snap_segment *g = &s->segments[middle];
        if (g->device < device || (g->device == device && g->addr < addr))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct pl_snap_trace pl_snap_segments_of(const struct pl_snap *s, uint32_t device) {
    size_t first = lower_bound(s, device, 0), end = lower_bound(s, (int64_t)device + 1, 0);
    return (struct pl_snap_trace){ (uint32_t)first, (uint32_t)(end - first) };
}

uint32_t pl_snap_segment_at(const struct pl_snap *s, uint32_t device, uint64_t addr) {
    size_t at = lower_bound(s, device, addr);
    if (at < s->segment_count && s->segments[at].device == (int32_t)device && s->segments[at].addr == addr)
        return (uint32_t)at;
    if (at == 0 || s->segments[at - 1].device != (int32_t)device) return PL_SNAP_NONE;
    return addr - s->segments[at - 1].addr < s->segments[at - 1].total ? (uint32_t)at - 1 : PL_SNAP_NONE;
}

uint16_t pl_snap_pool_of(const struct pl_snap *s, uint32_t device, const struct pl_snap_event *e) {
    if (e->pool != PL_SNAP_NO_POOL) return e->pool;
    if (e->action == PL_SNAP_OOM) return 0;
    uint32_t g = pl_snap_segment_at(s, device, e->addr);
    return g != PL_SNAP_NONE ? s->segments[g].pool : 0;
}

const char *pl_snap_version_text(const struct pl_snap *s) {
    if (s->has_host) return "about 2.14 or newer";
    if (s->has_pools) return "about 2.12 or 2.13";
    if (s->has_tags) return "about 2.10 or 2.11";
    if (s->settings.present) return "about 2.3 to 2.9";
    return s->bare_list ? "1.13 or older, or memory_snapshot()" : "about 2.0 to 2.2";
}

bool pl_snap_orders_by_age(const struct pl_snap *s) { return s->has_host; }

static bool has(const char *text, size_t len, const char *part) {
    return memmem(text, len, part, strlen(part)) != NULL;
}

/* Not where a user can do something: torch, its C++, and what has no source. */
static bool is_inside_torch(const struct pl_snap *s, const struct pl_snap_frame *f) {
    size_t len;
    const char *file = pl_snap_text(s, f->file, &len);
    if (len < 3 || memcmp(file + len - 3, ".py", 3) != 0) return true;
    return has(file, len, "/torch/") || has(file, len, "/torch_");
}

uint32_t pl_snap_top_frame(const struct pl_snap *s, uint32_t stack) {
    if (stack >= s->stack_count || s->stacks[stack].count == 0) return PL_SNAP_NONE;
    const uint32_t *ids = s->frame_ids + s->stacks[stack].first;
    for (uint32_t i = 0; i < s->stacks[stack].count; i++)
        if (!is_inside_torch(s, &s->frames[ids[i]])) return ids[i];
    return ids[0];
}

uint64_t pl_snap_stack_key(const struct pl_snap *s, uint32_t stack) {
    uint64_t key = UINT64_C(0x706c696d736f6c6c);
    if (stack >= s->stack_count) return 0;
    const struct pl_snap_stack *x = &s->stacks[stack];
    for (uint64_t i = x->first; i < x->first + x->count; i++) {
        const struct pl_snap_frame *f = &s->frames[s->frame_ids[i]];
        size_t name_len, file_len;
        const char *name = pl_snap_text(s, f->name, &name_len), *file = pl_snap_text(s, f->file, &file_len);
        key = pl_snap_mix(pl_snap_hash(key, name, name_len), pl_snap_hash(f->line, file, file_len));
    }
    return key;
}
