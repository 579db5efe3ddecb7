/* ship/manifest_inside.h - inside the room: what the writers of objects share. */
#ifndef PL_SHIP_MANIFEST_INSIDE_H
#define PL_SHIP_MANIFEST_INSIDE_H
#include "ship/manifest.h"

/* A line at a depth of two blanks each; `why` follows as a comment unless it is NULL. */
void pl_line(struct pl_buf *b, unsigned depth, const char *why, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* "measured: FILE", "computed: ..." or "guessed: ...": the comment of a figure that is known or not. Lives in
 * `room`. */
struct pl_why {
    char text[200];
};
const char *pl_why(struct pl_why *room, bool known, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void pl_object_head(struct pl_buf *b, const char *version, const char *kind, const char *name);
void pl_pod_spec_head(struct pl_buf *b, const struct pl_manifest *m, unsigned depth, bool placeholder);
void pl_container_resources(struct pl_buf *b, const struct pl_manifest *m, unsigned depth, bool disk);
void pl_model_volume(struct pl_buf *b, const struct pl_manifest *m, unsigned depth);

const char *pl_secret_word(const char *folder);
void pl_write_deployment(const struct pl_manifest *m, struct pl_buf *b);
void pl_write_prewarm(const struct pl_manifest *m, struct pl_buf *b);
void pl_write_rules(const struct pl_manifest *m, unsigned depth, struct pl_buf *b);
bool pl_wants_cache_claim(const struct pl_manifest *m);
#endif
