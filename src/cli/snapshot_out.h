/* cli/snapshot_out.h - how a snapshot is shown. One file a form: snapshot_text.c, snapshot_json.c,
 * snapshot_folded.c, snapshot_html.c, snapshot_sqlite.c. Texts in a snapshot are foreign: every writer
 * escapes them in its own way. */
#ifndef PL_CLI_SNAPSHOT_OUT_H
#define PL_CLI_SNAPSHOT_OUT_H
#include "base/buf.h"
#include "base/err.h"
#include "snapshot/report.h"
#include "snapshot/whatif.h"

enum { PL_SNAPSHOT_BYTES_TEXT = 24, PL_SNAPSHOT_TOP = 10 };

/* What a verb has found out; the writers only read it. */
struct pl_snapshot_doc {
    const char *file, *since; /* since: NULL = not asked */
    const struct pl_snap *s;
    struct pl_report *reports; /* one a device that is shown */
    size_t report_count;
    struct pl_report_options options;
    const char *capacity_from; /* "--capacity", "the OOM line of run.log", ... NULL = not known */
};
/* What replay and what-if have found out of one device. */
struct pl_snapshot_replay {
    uint32_t device;
    const struct pl_snap_lives *lives;
    struct pl_replay_fidelity fidelity;
    struct pl_replay_result baseline;
    const char *conf;            /* replay --conf; NULL = the recorded */
    struct pl_replay_result run; /* with --conf */
    const struct pl_whatif_row *rows;
    bool saves[PL_WHATIF_MOST]; /* row by row: nothing runs out of memory, nor does what did */
    size_t row_count, now, best;
    enum pl_whatif_advice by;
    bool bisected;
};

/* "784.0 MiB". */
const char *pl_snapshot_bytes(uint64_t bytes, char out[PL_SNAPSHOT_BYTES_TEXT]);
/* Foreign text for a terminal: control characters and broken UTF-8 escaped, at most `most` bytes of it. */
void pl_snapshot_put(struct pl_buf *out, const char *text, size_t len, size_t most);
/* "app/service.py:41 load", or "(no stack)". */
void pl_snapshot_put_frame(struct pl_buf *out, const struct pl_snap *s, uint32_t frame);
const char *pl_snapshot_why(enum pl_report_why why);
const char *pl_snapshot_why_text(enum pl_report_why why);
/* Why the replay of this file is not believed, or "" when it is. */
const char *pl_snapshot_distrust(const struct pl_snapshot_replay *r);
/* "PYTORCH_CUDA_ALLOC_CONF=...", with what stands in `text`. */
void pl_snapshot_put_env(struct pl_buf *out, const char *conf);

bool pl_snapshot_write_text(const struct pl_snapshot_doc *d, struct pl_buf *out);
bool pl_snapshot_write_json(const struct pl_snapshot_doc *d, struct pl_buf *out);
bool pl_snapshot_write_replay_text(const struct pl_snapshot_doc *d, const struct pl_snapshot_replay *r,
                                   struct pl_buf *out);
bool pl_snapshot_write_replay_json(const struct pl_snapshot_doc *d, const struct pl_snapshot_replay *r,
                                   struct pl_buf *out);
bool pl_snapshot_write_whatif_text(const struct pl_snapshot_doc *d, const struct pl_snapshot_replay *r,
                                   struct pl_buf *out);
bool pl_snapshot_write_whatif_json(const struct pl_snapshot_doc *d, const struct pl_snapshot_replay *r,
                                   struct pl_buf *out);
/* Live bytes by stack in the form that flame graph tools read: "outer;inner bytes". */
bool pl_snapshot_write_folded(const struct pl_snapshot_doc *d, struct pl_buf *out);
bool pl_snapshot_write_html(const struct pl_snapshot_doc *d, struct pl_buf *out);
bool pl_snapshot_write_sqlite(const struct pl_snapshot_doc *d, const char *path, struct pl_err *err);
/* Parts that JSON and page share. */
void pl_snapshot_json_string(struct pl_buf *out, const struct pl_snap *s, uint32_t string);
void pl_snapshot_json_stack(struct pl_buf *out, const struct pl_snap *s, uint32_t stack, size_t most);
#endif
