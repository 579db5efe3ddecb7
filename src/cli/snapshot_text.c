/* snapshot_text.c - the report in words, for a terminal of 100 columns. */
#include <stdio.h>
#include <string.h>

#include "cli/snapshot_out.h"

enum {
    NARROWEST_CONF = 34,
    WIDEST_CONF = 72,
    BAR = 60,
    CURVE_COLUMNS = 72,
    CURVE_ROWS = 8,
    TEXT_BYTES = 160
};
#define MIB(bytes) ((double)(bytes) / (1 << 20))

static void row(struct pl_buf *out, const char *label, uint64_t bytes, uint64_t of, const char *note) {
    char text[PL_SNAPSHOT_BYTES_TEXT], share[16] = "";
    if (of > 0) snprintf(share, sizeof share, "%3.0f %%", 100.0 * (double)bytes / (double)of);
    pl_buf_addf(out, "  %-14s %12s %6s  %s\n", label, pl_snapshot_bytes(bytes, text), share, note);
}

static void head(const struct pl_snapshot_doc *d, struct pl_buf *out) {
    char text[PL_SNAPSHOT_BYTES_TEXT];
    const struct pl_snap *s = d->s;
    const char *conf = pl_snap_conf(s);
    pl_buf_addf(out, "%s: %s, pickle protocol %u, torch %s\n", d->file,
                pl_snapshot_bytes(s->file_bytes, text), s->protocol, pl_snap_version_text(s));
    pl_buf_adds(out, "settings: ");
    if (conf[0] != '\0')
        pl_snapshot_put(out, conf, strlen(conf), 200);
    else
        pl_buf_adds(out, s->settings.present ? "PyTorch's defaults" : "not in a file of this version");
    pl_buf_adds(out, "\n");
    struct pl_alloc_conf c;
    pl_alloc_conf_recorded(s, &c);
    if (pl_whatif_is_bad_mix(&c))
        pl_buf_adds(out, "warning: max_split_size_mb together with expandable_segments grows without end "
                         "(pytorch#193400); use one\n");
    if (c.gc > 0 && c.fraction >= 1.0 && d->options.fraction >= 1.0)
        pl_buf_adds(
            out, "warning: garbage_collection_threshold does nothing without per_process_memory_fraction\n");
    if (s->trailing_bytes > 0)
        pl_buf_addf(out, "warning: %zu bytes behind the end of the pickle were not read\n",
                    s->trailing_bytes);
    if (s->clamped > 0) pl_buf_addf(out, "warning: %zu sizes below zero were read as zero\n", s->clamped);
    if (d->report_count == 0) pl_buf_adds(out, "no device held memory: was it a process without CUDA?\n");
}

static void memory(const struct pl_snapshot_doc *d, const struct pl_report *r, struct pl_buf *out) {
    char text[PL_SNAPSHOT_BYTES_TEXT], note[96];
    const struct pl_snap_sums *m = &r->sums;
    snprintf(note, sizeof note, "from the driver, in %llu segments%s", (unsigned long long)m->segments,
             m->expandable_segments > 0 ? ", expandable" : "");
    row(out, "reserved", m->reserved, 0, note);
    snprintf(note, sizeof note, "in %llu blocks; %s of it rounding", (unsigned long long)m->live_blocks,
             pl_snapshot_bytes(m->rounding, text));
    row(out, "allocated", m->allocated, m->reserved, note);
    if (m->pending > 0)
        row(out, "pending free", m->pending, m->reserved,
            "freed, but used on another stream: waits for its event");
    row(out, "releasable", m->releasable, m->reserved, "empty_cache() would give it back to the driver");
    row(out, "stuck", m->stuck, m->reserved, "free, but live blocks in the same segments pin it");
    row(out, "largest free", m->largest_free, 0, "the largest request that needs no new memory");
    if (d->options.capacity > 0) {
        uint64_t used = m->reserved + d->options.other, total = d->options.capacity;
        snprintf(note, sizeof note, "of %s (%s)", pl_snapshot_bytes(total, text), d->capacity_from);
        row(out, "device free", total > used ? total - used : 0, 0, note);
        row(out, "headroom", (total > used ? total - used : 0) + m->releasable, 0,
            "device free + releasable: what can still be had");
    }
}

static void parts(const struct pl_snapshot_doc *d, const struct pl_report *r, struct pl_buf *out) {
    const struct pl_snap *s = d->s;
    if (r->pool_count < 2 && r->stream_count < 2) return;
    pl_buf_adds(out,
                "\n                        reserved    allocated   releasable        stuck  largest free\n");
    for (size_t i = 0; i < r->pool_count + r->stream_count; i++) {
        bool pool = i < r->pool_count;
        const struct pl_report_part *p = pool ? &r->pools[i] : &r->streams[i - r->pool_count];
        char name[40], a[PL_SNAPSHOT_BYTES_TEXT], b[PL_SNAPSHOT_BYTES_TEXT], c[PL_SNAPSHOT_BYTES_TEXT],
            e[PL_SNAPSHOT_BYTES_TEXT], f[PL_SNAPSHOT_BYTES_TEXT];
        if (pool)
            snprintf(name, sizeof name, "pool (%u, %u)", s->pools[p->key].a, s->pools[p->key].b);
        else
            snprintf(name, sizeof name, "stream 0x%llx", (unsigned long long)s->streams[p->key]);
        pl_buf_addf(out, "  %-18s %12s %12s %12s %12s %12s%s\n", name, pl_snapshot_bytes(p->sums.reserved, a),
                    pl_snapshot_bytes(p->sums.allocated, b), pl_snapshot_bytes(p->sums.releasable, c),
                    pl_snapshot_bytes(p->sums.stuck, e), pl_snapshot_bytes(p->sums.largest_free, f),
                    pool && p->key != 0 ? "  private" : "");
    }
}

/* ---- the map ---- */

/* '#' in use, '+' pending, '.' free; a cell shows what fills most of it, but a live byte is never hidden by a
 * free one. */
static void bar(const struct pl_snap *s, const struct pl_snap_segment *g, char out[BAR + 1]) {
    uint64_t offset = 0;
    memset(out, '.', BAR);
    out[BAR] = '\0';
    for (uint32_t i = 0; i < g->block_count; i++) {
        const struct pl_snap_block *b = &s->blocks[g->first_block + i];
        uint64_t begin = offset * BAR / (g->total > 0 ? g->total : 1),
                 end = (offset + b->size) * BAR / (g->total > 0 ? g->total : 1);
        offset += b->size;
        if (b->state == PL_SNAP_INACTIVE) continue;
        for (uint64_t k = begin; k < BAR && (k < end || k == begin); k++)
            out[k] = b->state == PL_SNAP_ACTIVE ? '#' : '+';
    }
}

static uint32_t stack_of(const struct pl_snap *s, const struct pl_report *r, uint32_t block) {
    if (s->blocks[block].stack != PL_SNAP_NONE) return s->blocks[block].stack;
    for (size_t i = r->lives.count; i-- > 0;)
        if (r->lives.at[i].addr == s->blocks[block].addr && r->lives.at[i].completed == PL_SNAP_NONE)
            return r->lives.at[i].stack;
    return PL_SNAP_NONE;
}

static void stuck(const struct pl_snapshot_doc *d, const struct pl_report *r, struct pl_buf *out) {
    const struct pl_snap *s = d->s;
    char a[PL_SNAPSHOT_BYTES_TEXT], b[PL_SNAPSHOT_BYTES_TEXT], cells[BAR + 1];
    if (r->stuck_count == 0) return;
    pl_buf_adds(out, "\nSEGMENTS WITH STUCK MEMORY   # in use, + pending, . free\n");
    for (size_t i = 0; i < r->stuck_count; i++) {
        const struct pl_snap_pinned *p = &r->stuck[i];
        const struct pl_snap_segment *g = &s->segments[p->segment];
        bar(s, g, cells);
        pl_buf_addf(out, "  0x%012llx %10s, %10s stuck  |%s|\n", (unsigned long long)g->addr,
                    pl_snapshot_bytes(g->total, a), pl_snapshot_bytes(p->stuck, b), cells);
        if (p->block == PL_SNAP_NONE) {
            pl_buf_adds(out, "                 nothing live: a private pool keeps it\n");
            continue;
        }
        pl_buf_addf(out, "                 pinned by %s at 0x%llx, ",
                    pl_snapshot_bytes(s->blocks[p->block].size, a),
                    (unsigned long long)s->blocks[p->block].addr);
        pl_snapshot_put_frame(out, s, pl_snap_top_frame(s, stack_of(s, r, p->block)));
        pl_buf_adds(out, "\n");
    }
}

/* ---- who ---- */

static void shares(const struct pl_snapshot_doc *d, const char *title, const struct pl_report_share *at,
                   size_t count, uint64_t of, bool tags, struct pl_buf *out) {
    char a[PL_SNAPSHOT_BYTES_TEXT];
    if (count == 0 || (count == 1 && at[0].key == PL_SNAP_NONE)) return;
    pl_buf_addf(out, "\n%s\n", title);
    for (size_t i = 0; i < count; i++) {
        pl_buf_addf(out, "  %10s %4.0f %% %7llu blocks  ", pl_snapshot_bytes(at[i].bytes, a),
                    of > 0 ? 100.0 * (double)at[i].bytes / (double)of : 0.0,
                    (unsigned long long)at[i].blocks);
        if (tags && at[i].key != PL_SNAP_NONE) {
            size_t len;
            const char *tag = pl_snap_text(d->s, at[i].key, &len);
            pl_snapshot_put(out, tag, pl_report_tag_len(tag, len), TEXT_BYTES);
        } else if (tags) {
            pl_buf_adds(out, "(no tag)");
        } else {
            pl_snapshot_put_frame(out, d->s, pl_snap_top_frame(d->s, at[i].key));
        }
        pl_buf_adds(out, "\n");
    }
}

static void growth(const struct pl_snapshot_doc *d, const struct pl_report *r, struct pl_buf *out) {
    if (r->growth_count == 0) return;
    pl_buf_adds(out, "\nSTACKS THAT ONLY RISE   live MiB at 25, 50, 75, 100 % of the trace\n");
    for (size_t i = 0; i < r->growth_count; i++) {
        const struct pl_report_growth *g = &r->growth[i];
        pl_buf_addf(out, "  %9.1f %9.1f %9.1f %9.1f  ", MIB(g->bytes[0]), MIB(g->bytes[1]), MIB(g->bytes[2]),
                    MIB(g->bytes[3]));
        pl_snapshot_put_frame(out, d->s, pl_snap_top_frame(d->s, g->stack));
        pl_buf_adds(out, "\n");
    }
}

static void since(const struct pl_snapshot_doc *d, const struct pl_report *r, struct pl_buf *out) {
    char a[PL_SNAPSHOT_BYTES_TEXT], b[PL_SNAPSHOT_BYTES_TEXT];
    if (!r->has_since) return;
    pl_buf_addf(out, "\nSINCE %s   live then %s, now %s\n", d->since, pl_snapshot_bytes(r->since_before, a),
                pl_snapshot_bytes(r->since_now, b));
    if (!r->since_stacks)
        pl_buf_adds(out, "  one of the files has no stacks: record both with context=\"all\"\n");
    else if (r->since_count == 0)
        pl_buf_adds(out, "  no stack holds more than it did\n");
    for (size_t i = 0; i < r->since_count; i++) {
        const struct pl_report_since *x = &r->since[i];
        pl_buf_addf(out, "  %+9.1f MiB  from %9.1f to %9.1f  ", MIB(x->now) - MIB(x->before), MIB(x->before),
                    MIB(x->now));
        pl_snapshot_put_frame(out, d->s, pl_snap_top_frame(d->s, x->stack));
        pl_buf_adds(out, "\n");
    }
}

/* ---- over time ---- */

static void curve(const struct pl_report *r, struct pl_buf *out) {
    char a[PL_SNAPSHOT_BYTES_TEXT];
    uint64_t columns[2][CURVE_COLUMNS] = { 0 }, top = r->peak_reserved > 0 ? r->peak_reserved : 1;
    size_t width = r->point_count < CURVE_COLUMNS ? r->point_count : (size_t)CURVE_COLUMNS;
    for (size_t i = 0; i < r->point_count; i++) {
        size_t at = i * width / r->point_count;
        if (r->points[i].reserved > columns[0][at]) columns[0][at] = r->points[i].reserved;
        if (r->points[i].allocated > columns[1][at]) columns[1][at] = r->points[i].allocated;
    }
    for (int line = CURVE_ROWS; line > 0; line--) {
        pl_buf_addf(out, "  %10s |", line == CURVE_ROWS ? pl_snapshot_bytes(top, a) : line == 1 ? "0" : "");
        for (size_t i = 0; i < width; i++) {
            uint64_t floor = top / CURVE_ROWS * (uint64_t)(line - 1);
            pl_buf_adds(out, columns[1][i] > floor ? "#" : columns[0][i] > floor ? "." : " ");
        }
        pl_buf_adds(out, "\n");
    }
}

static void timeline(const struct pl_snapshot_doc *d, const struct pl_report *r, struct pl_buf *out) {
    char a[PL_SNAPSHOT_BYTES_TEXT], b[PL_SNAPSHOT_BYTES_TEXT];
    const struct pl_snap_lives *l = &r->lives;
    if (l->trace.count == 0) {
        pl_buf_adds(out, "\nno trace: _record_memory_history(enabled=\"all\") was not on, so nothing is "
                         "known over time\n");
        return;
    }
    pl_buf_addf(out, "\nOVER TIME   # allocated, . reserved; %u events, %zu allocations\n", l->trace.count,
                l->counts[PL_SNAP_ALLOC]);
    curve(r, out);
    pl_buf_addf(out, "  peak reserved %s, peak allocated %s at event %u\n",
                pl_snapshot_bytes(r->peak_reserved, a), pl_snapshot_bytes(r->peak_allocated, b),
                r->peak_event);
    if (pl_snap_lives_wrapped(l) || d->s->overflowed)
        pl_buf_addf(
            out,
            "  the ring wrapped: %zu blocks (%s) are older than the trace, %zu frees have no allocation\n",
            l->before, pl_snapshot_bytes(l->before_bytes, a), l->unknown_frees);
}

static void ooms(const struct pl_snapshot_doc *d, const struct pl_report *r, struct pl_buf *out) {
    char a[PL_SNAPSHOT_BYTES_TEXT], b[PL_SNAPSHOT_BYTES_TEXT], c[PL_SNAPSHOT_BYTES_TEXT];
    if (r->oom_count == 0) return;
    pl_buf_addf(out, "\nOUT OF MEMORY   %zu times\n", r->lives.counts[PL_SNAP_OOM]);
    for (size_t i = 0; i < r->oom_count; i++) {
        const struct pl_report_oom *o = &r->ooms[i];
        pl_buf_addf(out, "  event %u: %s wanted, %s free on the device\n", o->event,
                    pl_snapshot_bytes(o->request, a), pl_snapshot_bytes(o->device_free, b));
        pl_buf_adds(out, "    by ");
        pl_snapshot_put_frame(out, d->s, pl_snap_top_frame(d->s, o->stack));
        pl_buf_adds(out, "\n");
        if (!o->known) {
            pl_buf_adds(out, "    what was cached then is not known: the trace does not replay (plimsoll "
                             "snapshot replay)\n");
            continue;
        }
        pl_buf_addf(out, "    just before: cached %s, largest piece %s, releasable %s\n",
                    pl_snapshot_bytes(o->cached, a), pl_snapshot_bytes(o->largest_free, b),
                    pl_snapshot_bytes(o->releasable, c));
        pl_buf_addf(out, "    %s\n", pl_snapshot_why_text(o->why));
    }
    pl_buf_adds(out, "  would another setting have helped? plimsoll snapshot what-if ");
    pl_buf_addf(out, "%s\n", d->file);
}

bool pl_snapshot_write_text(const struct pl_snapshot_doc *d, struct pl_buf *out) {
    head(d, out);
    for (size_t i = 0; i < d->report_count; i++) {
        const struct pl_report *r = &d->reports[i];
        pl_buf_addf(out, "\nDEVICE %u\n", r->device);
        memory(d, r, out);
        parts(d, r, out);
        ooms(d, r, out);
        stuck(d, r, out);
        shares(d, "WHO HOLDS IT   live bytes by stack (first frame outside torch)", r->holders,
               r->holder_count, r->sums.active, false, out);
        shares(d, "BY TAG   live bytes by user_metadata", r->tags, r->tag_count, r->sums.active, true, out);
        since(d, r, out);
        growth(d, r, out);
        timeline(d, r, out);
        shares(d, "AT THE PEAK   requested bytes by stack", r->peak_holders, r->peak_holder_count,
               r->peak_allocated, false, out);
    }
    return true;
}

/* ---- replay and what-if ---- */

static void fidelity(const struct pl_snapshot_doc *d, const struct pl_snapshot_replay *r,
                     struct pl_buf *out) {
    char a[PL_SNAPSHOT_BYTES_TEXT], b[PL_SNAPSHOT_BYTES_TEXT];
    const struct pl_replay_fidelity *f = &r->fidelity;
    pl_buf_addf(out, "%s, device %u: %u events replayed\n", d->file, r->device, r->lives->trace.count);
    if (f->exact)
        pl_buf_adds(
            out, "fidelity: exact - peak, final state, every block, every call of the driver as recorded\n");
    else
        pl_buf_addf(out, "fidelity: off by %.2f %% of the peak at worst; blocks at the end %s\n",
                    100 * f->off, r->baseline.same_layout ? "as recorded" : "differ");
    pl_buf_addf(out, "  peak reserved: recorded %s, replayed %s\n", pl_snapshot_bytes(f->recorded_peak, a),
                pl_snapshot_bytes(r->baseline.stats.peak_reserved, b));
    pl_buf_addf(out, "  out of memory: recorded %llu, replayed %llu; retries %llu\n",
                (unsigned long long)f->recorded_ooms, (unsigned long long)r->baseline.stats.ooms,
                (unsigned long long)r->baseline.stats.retries);
    if (f->larger)
        pl_buf_addf(
            out, "  recorded on a larger device than the %s given: replayed without a limit, tried with it\n",
            pl_snapshot_bytes(d->options.capacity, a));
    else if (f->capacity == PL_REPLAY_ENDLESS)
        pl_buf_adds(out,
                    "  the size of the device is not in the file: replayed without a limit (--capacity)\n");
    else
        pl_buf_addf(out, "  device of %s, %s of it for others%s\n", pl_snapshot_bytes(f->capacity, a),
                    pl_snapshot_bytes(f->other, b),
                    f->capacity_known ? "" : "; at least that, by what was free at its OOM");
}

static void distrust(const struct pl_snapshot_replay *r, struct pl_buf *out) {
    const char *why = pl_snapshot_distrust(r);
    if (why[0] != '\0') pl_buf_addf(out, "no advice: %s\n", why);
}

bool pl_snapshot_write_replay_text(const struct pl_snapshot_doc *d, const struct pl_snapshot_replay *r,
                                   struct pl_buf *out) {
    char a[PL_SNAPSHOT_BYTES_TEXT], b[PL_SNAPSHOT_BYTES_TEXT], c[PL_SNAPSHOT_BYTES_TEXT];
    fidelity(d, r, out);
    distrust(r, out);
    if (r->conf == NULL || !r->fidelity.trusted) return true;
    pl_buf_adds(out, "with ");
    pl_snapshot_put_env(out, r->conf);
    pl_buf_addf(out, "\n  peak reserved %s, peak allocated %s, at the end releasable %s\n",
                pl_snapshot_bytes(r->run.stats.peak_reserved, a),
                pl_snapshot_bytes(r->run.stats.peak_allocated, b), pl_snapshot_bytes(r->run.releasable, c));
    pl_buf_addf(out, "  retries %llu, calls of the driver %llu\n", (unsigned long long)r->run.stats.retries,
                (unsigned long long)(r->run.stats.device_allocs + r->run.stats.device_frees));
    if (r->run.first_oom == PL_SNAP_NONE) {
        pl_buf_addf(out, "  every recorded allocation fits%s\n",
                    r->run.would_fit > 0 ? ", and so would what ran out of memory" : "");
        return true;
    }
    const struct pl_snap_event *e = &d->s->events[r->lives->trace.first + r->run.first_oom];
    pl_buf_addf(out, "  first out of memory at event %u, %s, by ", r->run.first_oom,
                pl_snapshot_bytes(e->size, a));
    pl_snapshot_put_frame(out, d->s, pl_snap_top_frame(d->s, e->stack));
    pl_buf_adds(out, "\n");
    return true;
}

static void whatif_row(const struct pl_snapshot_replay *r, const struct pl_whatif_row *x, size_t i, int width,
                       struct pl_buf *out) {
    char least[16] = "-", calm[16] = "-", peak[32];
    if (x->min_capacity > 0)
        snprintf(least, sizeof least, "%.0f%s", MIB(x->min_capacity), x->uneven ? "?" : "");
    if (x->min_calm > 0) snprintf(calm, sizeof calm, "%.0f", MIB(x->min_calm));
    if (x->low_peak == x->high_peak)
        snprintf(peak, sizeof peak, "%.0f", MIB(x->high_peak));
    else
        snprintf(peak, sizeof peak, "%.0f-%.0f", MIB(x->low_peak), MIB(x->high_peak));
    pl_buf_addf(out, "%c ", i == r->now ? '*' : i == r->best ? '>' : ' ');
    size_t begin = out->len;
    if (x->conf[0] != '\0')
        pl_snapshot_put(out, x->conf, strlen(x->conf), WIDEST_CONF);
    else
        pl_buf_adds(out, i == r->now ? "(PyTorch's defaults, as recorded)" : "(PyTorch's defaults)");
    pl_buf_addf(out, "%*s", width - (int)(out->len - begin), "");
    pl_buf_addf(out, " %11s %9.1f %7llu %6llu %9s %9s%s\n", peak, MIB(x->run.stats.peak_allocated),
                (unsigned long long)x->run.stats.retries,
                (unsigned long long)(x->run.stats.device_allocs + x->run.stats.device_frees),
                r->bisected ? least : "", r->bisected ? calm : "", r->saves[i] ? "" : "  OOM");
}

static void traps(const char *text, struct pl_buf *out) {
    struct pl_alloc_conf c;
    struct pl_err err;
    pl_alloc_conf_init(&c);
    if (!pl_alloc_conf_parse(&c, text, &err)) return;
    if (c.expandable)
        pl_buf_adds(out, "  traps: no CUDA IPC between processes by default; reserves 9/8 of the device as "
                         "addresses (not with ulimit -v);\n"
                         "         not below torch 2.5 together with garbage collection\n");
    if (c.gc > 0)
        pl_buf_adds(
            out, "  traps: frees whole segments while requests wait; only works below the fraction given\n");
    if (c.max_split != PL_ALLOC_UNLIMITED)
        pl_buf_adds(out, "  traps: never together with expandable_segments (pytorch#193400)\n");
    for (size_t i = 0; i < PL_SNAP_INTERVALS; i++)
        if (c.roundup[i] > 1) {
            pl_buf_adds(
                out, "  traps: every size is rounded up: more bytes in each block, fewer different sizes\n");
            break;
        }
}

static double by_figure(const struct pl_snapshot_replay *r, const struct pl_whatif_row *x) {
    if (r->by == PL_ADVICE_CALM) return MIB(x->min_calm);
    return MIB(r->by == PL_ADVICE_PEAK || !r->bisected ? x->high_peak : x->min_capacity);
}

static void reason(const struct pl_snapshot_replay *r, const struct pl_whatif_row *now,
                   const struct pl_whatif_row *best, struct pl_buf *out) {
    static const char *const does[] = { "what ran out of memory fits; without that request it runs on",
                                        "runs on",
                                        "runs without a single retry (each one stalls the device) on",
                                        "peaks at" };
    const char *word =
        r->by == PL_ADVICE_RESCUE && !r->bisected ? "what ran out of memory fits; peaks at" : does[r->by];
    double from = by_figure(r, now), to = by_figure(r, best);
    pl_buf_addf(out, "\n  why:   %s %.0f MiB", word, to);
    if (from > 0) pl_buf_addf(out, " instead of %.0f (%+.0f %%)", from, 100 * (to / from - 1));
    if (r->by == PL_ADVICE_CALM && best->min_capacity > now->min_capacity)
        pl_buf_addf(out, "\n         (to run at all, with retries, it needs %.0f MiB instead of %.0f)",
                    MIB(best->min_capacity), MIB(now->min_capacity));
}

static void advice(const struct pl_snapshot_doc *d, const struct pl_snapshot_replay *r, struct pl_buf *out) {
    const struct pl_whatif_row *now = &r->rows[r->now], *best = &r->rows[r->best];
    struct pl_alloc_conf c;
    pl_alloc_conf_recorded(d->s, &c);
    if (pl_whatif_is_bad_mix(&c))
        pl_buf_adds(out, "\nFirst: max_split_size_mb together with expandable_segments grows without end "
                         "(pytorch#193400), and on ROCm\n"
                         "corrupted data (legacy-rocm-build#6603). Use one of them.\n");
    if (r->best == r->now) {
        pl_buf_adds(out, "\nNo setting helps by more than 2 %: this is memory in use, not fragmentation.\n");
        return;
    }
    pl_buf_adds(out, "\n");
    pl_snapshot_put_env(out, best->conf);
    reason(r, now, best, out);
    pl_buf_addf(out, "\n  cost:  %llu calls of the driver instead of %llu, %llu retries instead of %llu\n",
                (unsigned long long)(best->run.stats.device_allocs + best->run.stats.device_frees),
                (unsigned long long)(now->run.stats.device_allocs + now->run.stats.device_frees),
                (unsigned long long)best->run.stats.retries, (unsigned long long)now->run.stats.retries);
    traps(best->conf, out);
    pl_buf_adds(out, "  It must be in the environment before the first CUDA allocation of the process.\n");
}

bool pl_snapshot_write_whatif_text(const struct pl_snapshot_doc *d, const struct pl_snapshot_replay *r,
                                   struct pl_buf *out) {
    fidelity(d, r, out);
    distrust(r, out);
    if (!r->fidelity.trusted) return true;
    size_t width = NARROWEST_CONF;
    for (size_t i = 0; i < r->row_count; i++)
        if (strlen(r->rows[i].conf) > width) width = strlen(r->rows[i].conf);
    if (width > WIDEST_CONF) width = WIDEST_CONF;
    int w = (int)width + 2;
    pl_buf_addf(out, "\n%-*s %11s %9s %7s %6s %9s %9s\n%-*s %11s %9s %7s %6s %9s %9s\n", w, "", "peak",
                "peak", "", "driver", r->bisected ? "least" : "", r->bisected ? "without" : "", w,
                "MiB; * now, > best", "reserved", "allocated", "retries", "calls",
                r->bisected ? "capacity" : "", r->bisected ? "retries" : "");
    for (size_t i = 0; i < r->row_count; i++) whatif_row(r, &r->rows[i], i, (int)width, out);
    for (size_t i = 0; i < r->row_count; i++)
        if (r->rows[i].uneven) {
            pl_buf_adds(out,
                        "? a slightly larger device fails, or a smaller one does: leave more room there\n");
            break;
        }
    advice(d, r, out);
    pl_buf_adds(out, "Not in these figures: other timing of events, workspaces cuDNN and cuBLAS choose by "
                     "free memory, cudaMallocAsync,\n"
                     "memory outside PyTorch other than the constant given with --other.\n");
    return true;
}
