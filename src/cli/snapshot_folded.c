/* snapshot_folded.c - "outer;inner bytes", the form that flamegraph.pl, inferno and speedscope read. */
#include "base/arena.h"
#include "cli/snapshot_out.h"
#include "snapshot/holders.h"

struct folding {
    const struct pl_snap *s;
    struct pl_buf *out;
    uint64_t *bytes; /* by stack; the last for blocks without one */
};

static bool add(void *ctx, uint32_t block, uint64_t bytes, uint32_t stack, uint32_t tag) {
    struct folding *f = ctx;
    (void)block;
    (void)tag;
    f->bytes[stack < f->s->stack_count ? stack : f->s->stack_count] += bytes;
    return true;
}

/* A frame must hold neither ';' nor a line end; the last blank parts the number off. */
static void put_part(struct pl_buf *out, const char *text, size_t len) {
    size_t begin = out->len;
    pl_snapshot_put(out, text, len, 200);
    for (size_t i = begin; i < out->len; i++)
        if (out->data[i] == ';') out->data[i] = ',';
}

static void put_stack(struct pl_buf *out, const struct pl_snap *s, uint32_t stack) {
    const struct pl_snap_stack *x = &s->stacks[stack];
    for (uint32_t i = x->count; i-- > 0;) { /* outermost first */
        const struct pl_snap_frame *f = &s->frames[s->frame_ids[x->first + i]];
        size_t len;
        const char *name = pl_snap_text(s, f->name, &len);
        put_part(out, name, len);
        const char *file = pl_snap_text(s, f->file, &len);
        pl_buf_adds(out, " (");
        put_part(out, file, len);
        pl_buf_addf(out, ":%u)%s", f->line, i > 0 ? ";" : "");
    }
}

bool pl_snapshot_write_folded(const struct pl_snapshot_doc *d, struct pl_buf *out) {
    struct folding f = { .s = d->s, .out = out };
    struct pl_arena arena;
    pl_arena_init(&arena, 0);
    f.bytes = pl_arena_alloc(&arena, (d->s->stack_count + 1) * sizeof *f.bytes);
    bool ok = f.bytes != NULL;
    for (size_t i = 0; ok && i < d->report_count; i++)
        ok = pl_each_live(d->s, d->reports[i].device, &d->reports[i].lives, add, &f);
    for (uint32_t i = 0; ok && i <= d->s->stack_count; i++) {
        if (f.bytes[i] == 0) continue;
        if (i < d->s->stack_count && d->s->stacks[i].count > 0)
            put_stack(out, d->s, i);
        else
            pl_buf_adds(out, "(no stack recorded)");
        ok = pl_buf_addf(out, " %llu\n", (unsigned long long)f.bytes[i]);
    }
    pl_arena_free(&arena);
    return ok;
}
