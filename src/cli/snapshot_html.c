/* snapshot_html.c - one page that holds everything it shows: timeline, segment map, flame graph. What it
 * shows is cut to a few thousand shapes here, so that the page of a file of gigabytes opens like that of a
 * small one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "cli/page.h"
#include "cli/snapshot_out.h"
#include "embed/page_snapshot_html.h"
#include "snapshot/holders.h"
#include "snapshot/map.h"

enum { MOST_SEGMENTS = 300, MOST_CELLS = 300, MOST_NODES = 4000, MOST_DEPTH = 200 };

/* ---- frames: the page knows only those it shows ---- */

struct page {
    const struct pl_snap *s;
    struct pl_buf *out;
    struct pl_arena arena;
    uint32_t *number_of; /* frame -> its number on the page */
    uint32_t *shown;     /* and back */
    uint32_t shown_count;
};

static int64_t frame_number(struct page *p, uint32_t frame) {
    if (frame >= p->s->frame_count) return -1;
    if (p->number_of[frame] == 0) {
        p->shown[p->shown_count] = frame;
        p->number_of[frame] = ++p->shown_count;
    }
    return (int64_t)p->number_of[frame] - 1;
}

/* ---- segment map ---- */

struct line {
    uint32_t segment;
    uint64_t stuck, total;
};

static int by_stuck(const void *a, const void *b) {
    const struct line *x = a, *y = b;
    if (x->stuck != y->stuck) return x->stuck < y->stuck ? 1 : -1;
    if (x->total != y->total) return x->total < y->total ? 1 : -1;
    return x->segment < y->segment ? -1 : x->segment > y->segment;
}

/* Blocks one by one; where there are too many, cells of equal width that show the fullest state in them. */
static void blocks(struct page *p, const struct pl_snap_segment *g) {
    const struct pl_snap *s = p->s;
    uint64_t done = 0, cell = g->block_count > MOST_CELLS ? g->total / MOST_CELLS + 1 : 0, in_cell[3] = { 0 },
             shown = 0;
    bool first = true;
    for (uint32_t i = 0; i < g->block_count; i++) {
        const struct pl_snap_block *b = &s->blocks[g->first_block + i];
        done += b->size;
        in_cell[b->state] += b->size;
        if (done - shown < cell && i + 1 < g->block_count) continue;
        int state = in_cell[0] >= in_cell[1] ? 0 : 1;
        if (in_cell[2] > in_cell[state]) state = 2;
        int64_t frame = b->state == PL_SNAP_INACTIVE ? -1 : frame_number(p, pl_snap_top_frame(s, b->stack));
        pl_buf_addf(p->out, "%s[%llu,%d,%lld]", first ? "" : ",", (unsigned long long)(done - shown), state,
                    (long long)frame);
        memset(in_cell, 0, sizeof in_cell);
        shown = done;
        first = false;
    }
}

static bool segment_map(struct page *p, const struct pl_report *r) {
    struct pl_snap_trace g = pl_snap_segments_of(p->s, r->device);
    struct line *lines = pl_arena_alloc(&p->arena, ((size_t)g.count + 1) * sizeof *lines);
    uint64_t large_page = pl_snap_large_page(p->s);
    if (lines == NULL) return false;
    for (uint32_t i = 0; i < g.count; i++) {
        struct pl_snap_sums sums = { 0 };
        pl_snap_measure(p->s, &p->s->segments[g.first + i], large_page, &sums);
        lines[i] = (struct line){ g.first + i, sums.stuck, sums.reserved };
    }
    qsort(lines, g.count, sizeof *lines, by_stuck);
    pl_buf_adds(p->out, ",\"map\":[");
    for (uint32_t i = 0; i < g.count && i < MOST_SEGMENTS; i++) {
        const struct pl_snap_segment *x = &p->s->segments[lines[i].segment];
        pl_buf_addf(p->out,
                    "%s{\"address\":\"%llx\",\"total\":%llu,\"stuck\":%llu,\"pool\":%d,\"expandable\":%d,"
                    "\"blocks\":[",
                    i > 0 ? "," : "", (unsigned long long)x->addr, (unsigned long long)x->total,
                    (unsigned long long)lines[i].stuck, x->pool != 0, x->expandable);
        blocks(p, x);
        pl_buf_adds(p->out, "]}");
    }
    return pl_buf_adds(p->out, "]");
}

/* ---- flame graph ---- */

struct node {
    uint64_t bytes;
    uint32_t parent, frame, number; /* number on the page + 1 */
};
struct flame {
    const struct pl_snap *s;
    struct node *at;
    size_t count, room;
    struct pl_map children; /* parent and frame -> node */
};

static uint32_t child(struct flame *f, uint32_t parent, uint32_t frame) {
    uint64_t key = (uint64_t)parent << 32 | frame;
    uint32_t id = pl_map_get(&f->children, key);
    if (id != PL_SNAP_NONE) return id;
    if (f->count == f->room) {
        size_t room = f->room * 2;
        struct node *p = realloc(f->at, room * sizeof *p);
        if (p == NULL) return PL_SNAP_NONE;
        f->at = p;
        f->room = room;
    }
    id = (uint32_t)f->count;
    f->at[f->count++] = (struct node){ .parent = parent, .frame = frame };
    return pl_map_put(&f->children, key, id) ? id : PL_SNAP_NONE;
}

static bool burn(void *ctx, uint32_t block, uint64_t bytes, uint32_t stack, uint32_t tag) {
    struct flame *f = ctx;
    uint32_t node = 0;
    (void)block;
    (void)tag;
    if (stack >= f->s->stack_count) return true;
    const struct pl_snap_stack *x = &f->s->stacks[stack];
    f->at[0].bytes += bytes;
    for (uint32_t i = x->count, depth = 0; i-- > 0 && depth < MOST_DEPTH; depth++) {
        node = child(f, node, f->s->frame_ids[x->first + i]);
        if (node == PL_SNAP_NONE) return false;
        f->at[node].bytes += bytes;
    }
    return true;
}

static int by_size(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return *x < *y ? 1 : *x > *y ? -1 : 0;
}

/* The bytes a node must have to be shown. A parent has at least its child's, so what is shown is one tree. */
static uint64_t least_shown(struct flame *f) {
    if (f->count <= MOST_NODES) return 1;
    uint64_t *sizes = malloc(f->count * sizeof *sizes), least = UINT64_MAX;
    if (sizes != NULL) {
        for (size_t i = 0; i < f->count; i++) sizes[i] = f->at[i].bytes;
        qsort(sizes, f->count, sizeof *sizes, by_size);
        least = sizes[MOST_NODES] + 1;
    }
    free(sizes);
    return least;
}

static bool flame(struct page *p, const struct pl_report *r) {
    struct flame f = { .s = p->s, .room = 256, .count = 1 };
    f.at = calloc(f.room, sizeof *f.at);
    bool ok = f.at != NULL && pl_each_live(p->s, r->device, &r->lives, burn, &f);
    pl_buf_adds(p->out, ",\"flame\":[");
    if (ok && f.at[0].bytes > 0) {
        uint64_t least = least_shown(&f);
        uint32_t shown = 0;
        for (size_t i = 0; i < f.count; i++) { /* parents come first */
            struct node *n = &f.at[i];
            if (i > 0 && (n->bytes < least || f.at[n->parent].number == 0)) continue;
            n->number = ++shown;
            long long parent = i == 0 ? -1 : (long long)f.at[n->parent].number - 1;
            long long frame = i == 0 ? -1 : (long long)frame_number(p, n->frame);
            pl_buf_addf(p->out, "%s[%lld,%lld,%llu]", i > 0 ? "," : "", parent, frame,
                        (unsigned long long)n->bytes);
        }
    }
    pl_map_free(&f.children);
    free(f.at);
    return pl_buf_adds(p->out, "]") && ok;
}

/* ---- lists ---- */

static void lists(struct page *p, const struct pl_report *r) {
    struct pl_buf *out = p->out;
    pl_buf_adds(out, ",\"timeline\":[");
    for (size_t i = 0; i < r->point_count; i++)
        pl_buf_addf(out, "%s[%u,%llu,%llu,%llu]", i > 0 ? "," : "", r->points[i].event,
                    (unsigned long long)r->points[i].time_us, (unsigned long long)r->points[i].reserved,
                    (unsigned long long)r->points[i].allocated);
    pl_buf_adds(out, "],\"ooms\":[");
    for (size_t i = 0; i < r->oom_count; i++) {
        const struct pl_report_oom *o = &r->ooms[i];
        const char *text = o->known ? pl_snapshot_why_text(o->why) : "the trace does not replay";
        pl_buf_addf(out, "%s[%u,%llu,%llu,", i > 0 ? "," : "", o->event, (unsigned long long)o->request,
                    (unsigned long long)o->device_free);
        pl_buf_add_json(out, text, strlen(text));
        pl_buf_adds(out, "]");
    }
    pl_buf_adds(out, "],\"holders\":[");
    for (size_t i = 0; i < r->holder_count; i++)
        pl_buf_addf(out, "%s[%llu,%llu,%lld]", i > 0 ? "," : "", (unsigned long long)r->holders[i].bytes,
                    (unsigned long long)r->holders[i].blocks,
                    (long long)frame_number(p, pl_snap_top_frame(p->s, r->holders[i].key)));
    pl_buf_adds(out, "],\"growth\":[");
    for (size_t i = 0; i < r->growth_count; i++) {
        const uint64_t *b = r->growth[i].bytes;
        pl_buf_addf(out, "%s[%llu,%llu,%llu,%llu,%lld]", i > 0 ? "," : "", (unsigned long long)b[0],
                    (unsigned long long)b[1], (unsigned long long)b[2], (unsigned long long)b[3],
                    (long long)frame_number(p, pl_snap_top_frame(p->s, r->growth[i].stack)));
    }
    pl_buf_adds(out, "],\"tags\":[");
    bool only_none = r->tag_count == 1 && r->tags[0].key == PL_SNAP_NONE;
    for (size_t i = 0; i < r->tag_count && !only_none; i++) {
        size_t len = 0;
        const char *tag =
            r->tags[i].key == PL_SNAP_NONE ? "(no tag)" : pl_snap_text(p->s, r->tags[i].key, &len);
        pl_buf_addf(out, "%s[%llu,%llu,", i > 0 ? "," : "", (unsigned long long)r->tags[i].bytes,
                    (unsigned long long)r->tags[i].blocks);
        pl_buf_add_json(out, tag, len > 0 ? pl_report_tag_len(tag, len) : strlen(tag));
        pl_buf_adds(out, "]");
    }
    pl_buf_adds(out, "]");
}

static bool device(struct page *p, const struct pl_report *r) {
    const struct pl_snap_sums *m = &r->sums;
    pl_buf_addf(p->out,
                "{\"device\":%u,\"reserved\":%llu,\"allocated\":%llu,\"releasable\":%llu,\"stuck\":%llu",
                r->device, (unsigned long long)m->reserved, (unsigned long long)m->allocated,
                (unsigned long long)m->releasable, (unsigned long long)m->stuck);
    pl_buf_addf(
        p->out, ",\"pending\":%llu,\"rounding\":%llu,\"largest\":%llu,\"segments\":%llu,\"live\":%llu",
        (unsigned long long)m->pending, (unsigned long long)m->rounding, (unsigned long long)m->largest_free,
        (unsigned long long)m->segments, (unsigned long long)m->live_blocks);
    lists(p, r);
    return segment_map(p, r) && flame(p, r) && pl_buf_adds(p->out, "}");
}

static void frames(struct page *p) {
    pl_buf_adds(p->out, "],\"frames\":[");
    for (uint32_t i = 0; i < p->shown_count; i++) {
        const struct pl_snap_frame *f = &p->s->frames[p->shown[i]];
        pl_buf_adds(p->out, i > 0 ? ",[" : "[");
        pl_snapshot_json_string(p->out, p->s, f->name);
        pl_buf_adds(p->out, ",");
        pl_snapshot_json_string(p->out, p->s, f->file);
        pl_buf_addf(p->out, ",%u]", f->line);
    }
}

static bool data(const struct pl_snapshot_doc *d, struct pl_buf *out) {
    struct page p = { .s = d->s, .out = out };
    pl_arena_init(&p.arena, 0);
    p.number_of = pl_arena_alloc(&p.arena, (d->s->frame_count + 1) * sizeof *p.number_of);
    p.shown = pl_arena_alloc(&p.arena, (d->s->frame_count + 1) * sizeof *p.shown);
    bool ok = p.number_of != NULL && p.shown != NULL;
    pl_buf_adds(out, "{\"file\":");
    pl_buf_add_json(out, d->file, strlen(d->file));
    pl_buf_addf(out, ",\"bytes\":%llu,\"torch\":\"%s\",\"conf\":", (unsigned long long)d->s->file_bytes,
                pl_snap_version_text(d->s));
    pl_snapshot_json_string(out, d->s, d->s->settings.conf);
    pl_buf_adds(out, ",\"devices\":[");
    for (size_t i = 0; ok && i < d->report_count; i++)
        ok = (i == 0 || pl_buf_adds(out, ",")) && device(&p, &d->reports[i]);
    if (ok) frames(&p);
    pl_arena_free(&p.arena);
    return ok && pl_buf_adds(out, "]}");
}

bool pl_snapshot_write_html(const struct pl_snapshot_doc *d, struct pl_buf *out) {
    struct pl_buf json;
    pl_buf_init(&json, 0);
    bool ok = data(d, &json) &&
              pl_page_write((const char *)page_snapshot_html, page_snapshot_html_bytes, &json, out);
    pl_buf_free(&json);
    return ok;
}
