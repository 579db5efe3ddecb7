/* snapshot_json.c - everything the report knows, as one document. Figures that are not known are absent. */
#include <string.h>

#include "cli/snapshot_out.h"

enum { MOST_FRAMES = 100 };

static void number(struct pl_buf *out, const char *key, uint64_t n) {
    pl_buf_addf(out, ",\"%s\":%llu", key, (unsigned long long)n);
}
static void boolean(struct pl_buf *out, const char *key, bool b) {
    pl_buf_addf(out, ",\"%s\":%s", key, b ? "true" : "false");
}
static void own_text(struct pl_buf *out, const char *key, const char *text) {
    pl_buf_addf(out, ",\"%s\":", key);
    pl_buf_add_json(out, text, strlen(text));
}

void pl_snapshot_json_string(struct pl_buf *out, const struct pl_snap *s, uint32_t string) {
    size_t len;
    const char *text = pl_snap_text(s, string, &len);
    pl_buf_add_json(out, text, len);
}

static void frame(struct pl_buf *out, const struct pl_snap *s, uint32_t id) {
    const struct pl_snap_frame *f = &s->frames[id];
    pl_buf_adds(out, "{\"file\":");
    pl_snapshot_json_string(out, s, f->file);
    pl_buf_addf(out, ",\"line\":%u,\"name\":", f->line);
    pl_snapshot_json_string(out, s, f->name);
    pl_buf_adds(out, "}");
}

void pl_snapshot_json_stack(struct pl_buf *out, const struct pl_snap *s, uint32_t stack, size_t most) {
    pl_buf_adds(out, "[");
    if (stack < s->stack_count) {
        const struct pl_snap_stack *x = &s->stacks[stack];
        for (uint32_t i = 0; i < x->count && i < most; i++) {
            if (i > 0) pl_buf_adds(out, ",");
            frame(out, s, s->frame_ids[x->first + i]);
        }
    }
    pl_buf_adds(out, "]");
}

/* "top" = the frame to look at, "stack" = all. */
static void stack(struct pl_buf *out, const struct pl_snap *s, uint32_t id) {
    uint32_t top = pl_snap_top_frame(s, id);
    if (top == PL_SNAP_NONE) return;
    pl_buf_adds(out, ",\"top\":");
    frame(out, s, top);
    pl_buf_adds(out, ",\"stack\":");
    pl_snapshot_json_stack(out, s, id, MOST_FRAMES);
}

static void sums(struct pl_buf *out, const struct pl_snap_sums *m) {
    pl_buf_addf(out, "\"reserved_bytes\":%llu", (unsigned long long)m->reserved);
    number(out, "allocated_bytes", m->allocated);
    number(out, "active_bytes", m->active);
    number(out, "requested_bytes", m->requested);
    number(out, "gap_bytes", m->reserved - m->allocated);
    number(out, "rounding_bytes", m->rounding);
    number(out, "pending_bytes", m->pending);
    number(out, "free_bytes", m->free);
    number(out, "releasable_bytes", m->releasable);
    number(out, "stuck_bytes", m->stuck);
    number(out, "inactive_split_bytes", m->inactive_split);
    number(out, "largest_free_bytes", m->largest_free);
    number(out, "segments", m->segments);
    number(out, "expandable_segments", m->expandable_segments);
    number(out, "blocks", m->blocks);
    number(out, "live_blocks", m->live_blocks);
}

static void settings(struct pl_buf *out, const struct pl_snap *s) {
    const struct pl_snap_settings *x = &s->settings;
    if (!x->present) return;
    pl_buf_adds(out, ",\"settings\":{\"conf\":");
    pl_snapshot_json_string(out, s, x->conf);
    boolean(out, "expandable_segments", x->expandable);
    if (x->max_split >= 0) number(out, "max_split_bytes", (uint64_t)x->max_split);
    if (x->gc > 0) pl_buf_addf(out, ",\"garbage_collection_threshold\":%.6g", x->gc);
    pl_buf_adds(out, "}");
}

static void head(struct pl_buf *out, const struct pl_snapshot_doc *d, const char *kind) {
    const struct pl_snap *s = d->s;
    pl_buf_addf(out, "{\"v\":1,\"kind\":\"%s\",\"file\":", kind);
    pl_buf_add_json(out, d->file, strlen(d->file));
    number(out, "file_bytes", s->file_bytes);
    number(out, "protocol", s->protocol);
    own_text(out, "torch", pl_snap_version_text(s));
    settings(out, s);
    if (d->options.capacity > 0) number(out, "capacity_bytes", d->options.capacity);
    if (d->options.other > 0) number(out, "other_bytes", d->options.other);
    number(out, "stacks", s->stack_count);
    number(out, "frames", s->frame_count);
    number(out, "annotations", s->annotations);
    if (s->has_host) {
        number(out, "host_segments", s->host_segments);
        number(out, "host_traces", s->host_traces);
    }
    if (s->trailing_bytes > 0) number(out, "trailing_bytes", s->trailing_bytes);
}

/* ---- report ---- */

static void part_list(struct pl_buf *out, const struct pl_snap *s, const char *name,
                      const struct pl_report_part *at, size_t count, bool pool) {
    pl_buf_addf(out, ",\"%s\":[", name);
    for (size_t i = 0; i < count; i++) {
        pl_buf_adds(out, i > 0 ? ",{" : "{");
        if (pool)
            pl_buf_addf(out, "\"pool\":[%u,%u],", s->pools[at[i].key].a, s->pools[at[i].key].b);
        else
            pl_buf_addf(out, "\"stream\":%llu,", (unsigned long long)s->streams[at[i].key]);
        sums(out, &at[i].sums);
        pl_buf_adds(out, "}");
    }
    pl_buf_adds(out, "]");
}

static void share_list(struct pl_buf *out, const struct pl_snap *s, const char *name,
                       const struct pl_report_share *at, size_t count, bool tags) {
    pl_buf_addf(out, ",\"%s\":[", name);
    for (size_t i = 0; i < count; i++) {
        pl_buf_addf(out, "%s{\"bytes\":%llu,\"blocks\":%llu", i > 0 ? "," : "",
                    (unsigned long long)at[i].bytes, (unsigned long long)at[i].blocks);
        if (!tags) stack(out, s, at[i].key);
        if (tags && at[i].key != PL_SNAP_NONE) {
            size_t len;
            const char *tag = pl_snap_text(s, at[i].key, &len);
            pl_buf_adds(out, ",\"tag\":");
            pl_buf_add_json(out, tag, pl_report_tag_len(tag, len));
        }
        pl_buf_adds(out, "}");
    }
    pl_buf_adds(out, "]");
}

static void stuck_list(struct pl_buf *out, const struct pl_snap *s, const struct pl_report *r) {
    pl_buf_adds(out, ",\"stuck\":[");
    for (size_t i = 0; i < r->stuck_count; i++) {
        const struct pl_snap_segment *g = &s->segments[r->stuck[i].segment];
        pl_buf_addf(out, "%s{\"address\":%llu", i > 0 ? "," : "", (unsigned long long)g->addr);
        number(out, "total_bytes", g->total);
        number(out, "stuck_bytes", r->stuck[i].stuck);
        if (r->stuck[i].block != PL_SNAP_NONE) {
            number(out, "pinned_by_address", s->blocks[r->stuck[i].block].addr);
            number(out, "pinned_by_bytes", s->blocks[r->stuck[i].block].size);
            stack(out, s, s->blocks[r->stuck[i].block].stack);
        }
        pl_buf_adds(out, "}");
    }
    pl_buf_adds(out, "]");
}

static void trace(struct pl_buf *out, const struct pl_snap *s, const struct pl_report *r) {
    static const char *const names[] = {
#define X(symbol, word) word,
        PL_SNAP_ACTIONS(X)
#undef X
    };
    const struct pl_snap_lives *l = &r->lives;
    pl_buf_addf(out, ",\"trace\":{\"events\":%u,\"counts\":{", l->trace.count);
    bool first = true;
    for (size_t i = 0; i < PL_SNAP_ACTION_COUNT; i++) {
        if (l->counts[i] == 0) continue;
        pl_buf_addf(out, "%s\"%s\":%zu", first ? "" : ",", names[i], l->counts[i]);
        first = false;
    }
    pl_buf_adds(out, "}");
    boolean(out, "wrapped", pl_snap_lives_wrapped(l) || s->overflowed);
    number(out, "live_before", l->before);
    number(out, "live_before_bytes", l->before_bytes);
    number(out, "unknown_frees", l->unknown_frees);
    if (l->trace.count > 0) {
        number(out, "peak_reserved_bytes", r->peak_reserved);
        number(out, "peak_allocated_bytes", r->peak_allocated);
        number(out, "peak_event", r->peak_event);
    }
    pl_buf_adds(out, ",\"timeline\":[");
    for (size_t i = 0; i < r->point_count; i++)
        pl_buf_addf(out, "%s[%u,%llu,%llu,%llu]", i > 0 ? "," : "", r->points[i].event,
                    (unsigned long long)r->points[i].time_us, (unsigned long long)r->points[i].reserved,
                    (unsigned long long)r->points[i].allocated);
    pl_buf_adds(out, "]}");
}

static void growth_list(struct pl_buf *out, const struct pl_snap *s, const struct pl_report *r) {
    pl_buf_adds(out, ",\"growth\":[");
    for (size_t i = 0; i < r->growth_count; i++) {
        const uint64_t *b = r->growth[i].bytes;
        pl_buf_addf(out, "%s{\"quarter_bytes\":[%llu,%llu,%llu,%llu]", i > 0 ? "," : "",
                    (unsigned long long)b[0], (unsigned long long)b[1], (unsigned long long)b[2],
                    (unsigned long long)b[3]);
        stack(out, s, r->growth[i].stack);
        pl_buf_adds(out, "}");
    }
    pl_buf_adds(out, "]");
}

static void since_list(struct pl_buf *out, const struct pl_snapshot_doc *d, const struct pl_report *r) {
    if (!r->has_since) return;
    pl_buf_adds(out, ",\"since\":{\"file\":");
    pl_buf_add_json(out, d->since, strlen(d->since));
    number(out, "before_bytes", r->since_before);
    number(out, "now_bytes", r->since_now);
    boolean(out, "comparable_stacks", r->since_stacks);
    pl_buf_adds(out, ",\"grown\":[");
    for (size_t i = 0; i < r->since_count; i++) {
        pl_buf_addf(out, "%s{\"before_bytes\":%llu,\"now_bytes\":%llu", i > 0 ? "," : "",
                    (unsigned long long)r->since[i].before, (unsigned long long)r->since[i].now);
        stack(out, d->s, r->since[i].stack);
        pl_buf_adds(out, "}");
    }
    pl_buf_adds(out, "]}");
}

static void oom_list(struct pl_buf *out, const struct pl_snap *s, const struct pl_report *r) {
    pl_buf_adds(out, ",\"ooms\":[");
    for (size_t i = 0; i < r->oom_count; i++) {
        const struct pl_report_oom *o = &r->ooms[i];
        pl_buf_addf(out, "%s{\"event\":%u", i > 0 ? "," : "", o->event);
        number(out, "time_us", o->time_us);
        number(out, "requested_bytes", o->request);
        number(out, "device_free_bytes", o->device_free);
        if (o->known) {
            number(out, "reserved_bytes", o->reserved);
            number(out, "allocated_bytes", o->allocated);
            number(out, "cached_bytes", o->cached);
            number(out, "largest_free_bytes", o->largest_free);
            number(out, "releasable_bytes", o->releasable);
            own_text(out, "why", pl_snapshot_why(o->why));
        }
        stack(out, s, o->stack);
        pl_buf_adds(out, "}");
    }
    pl_buf_adds(out, "]");
}

bool pl_snapshot_write_json(const struct pl_snapshot_doc *d, struct pl_buf *out) {
    head(out, d, "snapshot");
    pl_buf_adds(out, ",\"devices\":[");
    for (size_t i = 0; i < d->report_count; i++) {
        const struct pl_report *r = &d->reports[i];
        pl_buf_addf(out, "%s{\"device\":%u,", i > 0 ? "," : "", r->device);
        sums(out, &r->sums);
        if (d->options.capacity > 0) {
            uint64_t used = r->sums.reserved + d->options.other,
                     free = d->options.capacity > used ? d->options.capacity - used : 0;
            number(out, "device_free_bytes", free);
            number(out, "headroom_bytes", free + r->sums.releasable);
        }
        part_list(out, d->s, "pools", r->pools, r->pool_count, true);
        part_list(out, d->s, "streams", r->streams, r->stream_count, false);
        stuck_list(out, d->s, r);
        share_list(out, d->s, "holders", r->holders, r->holder_count, false);
        if (d->s->has_tags) share_list(out, d->s, "tags", r->tags, r->tag_count, true);
        trace(out, d->s, r);
        share_list(out, d->s, "peak_holders", r->peak_holders, r->peak_holder_count, false);
        growth_list(out, d->s, r);
        since_list(out, d, r);
        oom_list(out, d->s, r);
        pl_buf_adds(out, "}");
    }
    return pl_buf_adds(out, "]}\n");
}

/* ---- replay and what-if ---- */

static void run(struct pl_buf *out, const struct pl_replay_result *x) {
    const struct pl_sim_stats *m = &x->stats;
    pl_buf_addf(out, "\"peak_reserved_bytes\":%llu", (unsigned long long)m->peak_reserved);
    number(out, "peak_allocated_bytes", m->peak_allocated);
    number(out, "reserved_bytes", m->reserved);
    number(out, "allocated_bytes", m->allocated);
    pl_buf_addf(out, ",\"inactive_split_bytes\":%lld", (long long)m->inactive_split_bytes);
    number(out, "releasable_bytes", x->releasable);
    number(out, "largest_free_bytes", x->largest_free);
    number(out, "retries", m->retries);
    number(out, "ooms", m->ooms);
    number(out, "driver_calls", m->device_allocs + m->device_frees);
    number(out, "segment_alloc", m->segment_events[PL_SIM_SEGMENT_ALLOC]);
    number(out, "segment_free", m->segment_events[PL_SIM_SEGMENT_FREE]);
    number(out, "segment_map", m->segment_events[PL_SIM_SEGMENT_MAP]);
    number(out, "segment_unmap", m->segment_events[PL_SIM_SEGMENT_UNMAP]);
    if (x->first_oom != PL_SNAP_NONE) number(out, "first_oom_event", x->first_oom);
    boolean(out, "start_fits", !x->start_failed);
    number(out, "recorded_ooms_that_fit", x->would_fit);
}

static void fidelity(struct pl_buf *out, const struct pl_snapshot_replay *r) {
    const struct pl_replay_fidelity *f = &r->fidelity;
    pl_buf_addf(out, ",\"device\":%u,\"fidelity\":{\"off_ratio\":%.6f", r->device, f->off);
    boolean(out, "exact", f->exact);
    boolean(out, "trusted", f->trusted);
    boolean(out, "same_blocks", r->baseline.same_layout);
    own_text(out, "order", f->order_by_age ? "age" : "address");
    pl_buf_addf(out, ",\"live_before_ratio\":%.6f", f->l0_share);
    number(out, "live_before", r->lives->before);
    number(out, "recorded_peak_bytes", f->recorded_peak);
    number(out, "recorded_final_bytes", f->recorded_final);
    number(out, "recorded_start_bytes", f->recorded_start);
    number(out, "recorded_ooms", f->recorded_ooms);
    if (f->capacity != PL_REPLAY_ENDLESS) number(out, "capacity_bytes", f->capacity);
    boolean(out, "capacity_known", f->capacity_known);
    if (f->larger) boolean(out, "recorded_on_larger", true);
    if (pl_snapshot_distrust(r)[0] != '\0') own_text(out, "reason", pl_snapshot_distrust(r));
    pl_buf_addf(out, ",\"cache_calls\":[");
    for (size_t i = 0; i < r->baseline.cache_call_count; i++)
        pl_buf_addf(out, "%s%u", i > 0 ? "," : "", r->baseline.cache_calls[i]);
    pl_buf_adds(out, "]},\"recorded\":{");
    run(out, &r->baseline);
    pl_buf_adds(out, "}");
}

bool pl_snapshot_write_replay_json(const struct pl_snapshot_doc *d, const struct pl_snapshot_replay *r,
                                   struct pl_buf *out) {
    head(out, d, "snapshot_replay");
    fidelity(out, r);
    if (r->conf != NULL && r->fidelity.trusted) {
        pl_buf_adds(out, ",\"run\":{\"conf\":");
        pl_buf_add_json(out, r->conf, strlen(r->conf));
        pl_buf_adds(out, ",");
        run(out, &r->run);
        pl_buf_adds(out, "}");
    }
    return pl_buf_adds(out, "}\n");
}

bool pl_snapshot_write_whatif_json(const struct pl_snapshot_doc *d, const struct pl_snapshot_replay *r,
                                   struct pl_buf *out) {
    head(out, d, "snapshot_what_if");
    fidelity(out, r);
    if (!r->fidelity.trusted) return pl_buf_adds(out, "}\n");
    pl_buf_adds(out, ",\"settings_tried\":[");
    for (size_t i = 0; i < r->row_count; i++) {
        const struct pl_whatif_row *x = &r->rows[i];
        pl_buf_adds(out, i > 0 ? ",{\"conf\":" : "{\"conf\":");
        pl_buf_add_json(out, x->conf, strlen(x->conf));
        pl_buf_adds(out, ",");
        run(out, &x->run);
        if (x->low_peak != x->high_peak) {
            number(out, "peak_reserved_low_bytes", x->low_peak);
            number(out, "peak_reserved_high_bytes", x->high_peak);
        }
        if (x->min_capacity > 0) number(out, "min_capacity_bytes", x->min_capacity);
        if (x->min_calm > 0) number(out, "min_capacity_no_retry_bytes", x->min_calm);
        if (r->bisected) boolean(out, "uneven", x->uneven);
        boolean(out, "fits", r->saves[i]);
        boolean(out, "now", i == r->now);
        pl_buf_adds(out, "}");
    }
    pl_buf_adds(out, "]");
    if (r->best != r->now) {
        pl_buf_adds(out, ",\"advice\":{\"conf\":");
        pl_buf_add_json(out, r->rows[r->best].conf, strlen(r->rows[r->best].conf));
        pl_buf_adds(out, ",\"environment\":\"");
        pl_snapshot_put_env(out, r->rows[r->best].conf);
        static const char *const words[] = { "fits", "min_capacity", "min_capacity_no_retry",
                                             "peak_reserved" };
        pl_buf_addf(out, "\",\"by\":\"%s\"}", words[r->by]);
    }
    return pl_buf_adds(out, "}\n");
}
