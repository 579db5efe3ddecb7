#include "cli/snapshot_out.h"

#include <stdio.h>
#include <string.h>

const char *pl_snapshot_bytes(uint64_t bytes, char out[PL_SNAPSHOT_BYTES_TEXT]) {
    double kib = (double)bytes / 1024;
    if (bytes < 1024)
        snprintf(out, PL_SNAPSHOT_BYTES_TEXT, "%llu B", (unsigned long long)bytes);
    else if (kib < 1024)
        snprintf(out, PL_SNAPSHOT_BYTES_TEXT, "%.1f KiB", kib);
    else if (kib < 10.0 * 1024 * 1024)
        snprintf(out, PL_SNAPSHOT_BYTES_TEXT, "%.1f MiB", kib / 1024);
    else
        snprintf(out, PL_SNAPSHOT_BYTES_TEXT, "%.2f GiB", kib / 1024 / 1024);
    return out;
}

void pl_snapshot_put(struct pl_buf *out, const char *text, size_t len, size_t most) {
    struct pl_buf quoted;
    pl_buf_init(&quoted, 0);
    bool cut = len > most;
    if (pl_buf_add_json(&quoted, text, cut ? most : len) && quoted.len >= 2)
        pl_buf_add(out, quoted.data + 1, quoted.len - 2);
    if (cut) pl_buf_adds(out, "…");
    pl_buf_free(&quoted);
}

/* The last two parts of a path: enough to know one's own file. */
static const char *short_path(const char *path, size_t *len) {
    size_t parts = 0, at = *len;
    while (at > 0 && !(path[at - 1] == '/' && ++parts == 3)) at--;
    *len -= at;
    return path + at;
}

void pl_snapshot_put_frame(struct pl_buf *out, const struct pl_snap *s, uint32_t frame) {
    size_t len;
    if (frame >= s->frame_count) {
        pl_buf_adds(out, "(no stack recorded)");
        return;
    }
    const struct pl_snap_frame *f = &s->frames[frame];
    const char *file = pl_snap_text(s, f->file, &len);
    file = short_path(file, &len);
    pl_snapshot_put(out, file, len, 80);
    pl_buf_addf(out, ":%u ", f->line);
    const char *name = pl_snap_text(s, f->name, &len);
    pl_snapshot_put(out, name, len, 80);
}

const char *pl_snapshot_why(enum pl_report_why why) {
    static const char *const words[] = { "limit", "fragmentation", "partly", "shortage" };
    return words[why];
}

const char *pl_snapshot_why_text(enum pl_report_why why) {
    static const char *const texts[] = {
        "the device had room: a limit (per_process_memory_fraction) refused it",
        "fragmentation: the cached bytes alone would hold it, but not in one piece",
        "partly fragmentation: cached and free bytes together would hold it",
        "shortage: not even all cached and free bytes together would hold it",
    };
    return texts[why];
}

const char *pl_snapshot_distrust(const struct pl_snapshot_replay *r) {
    const struct pl_replay_fidelity *f = &r->fidelity;
    if (r->lives->trace.count == 0)
        return "the file has no trace: record with torch.cuda.memory._record_memory_history(enabled=\"all\")";
    if (f->trusted) return "";
    if (r->baseline.start_failed) return "what was live before the trace does not fit the capacity given";
    if (f->l0_share > PL_REPLAY_MOST_L0)
        return "the ring wrapped and most of the memory was allocated before it: record with a larger "
               "max_entries";
    return "the model differs from the record: give --capacity, --other, --fraction as they were, or record "
           "from the start";
}

void pl_snapshot_put_env(struct pl_buf *out, const char *conf) {
    pl_buf_adds(out, "PYTORCH_CUDA_ALLOC_CONF=");
    pl_snapshot_put(out, conf, strlen(conf), 400);
}
