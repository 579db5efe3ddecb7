/* cli/soak_scene.h - one scenario under way, for the three files that make it: soak_scenarios.c sends and
 * decides when it has seen enough, soak_holder.c finds who holds the memory, soak_document.c says what came
 * of it. */
#ifndef PL_CLI_SOAK_SCENE_H
#define PL_CLI_SOAK_SCENE_H
#include "cli/soak.h"

struct pl_scene {
    const struct pl_soak_wish *wish;
    struct pl_soak_place *place;
    enum pl_scenario what;
    struct pl_soak_books books;
    struct pl_soak_load load;
    char target[512];
    char *text; /* what is sent; owned */
    size_t len;
    /* shapes */
    struct pl_soak_spot spot;
    uint64_t longest;
    uint64_t of, began_ms;
    bool late, cut;
    json_t *doc, *notes;
};

uint64_t pl_scene_now_ms(void); /* monotonic */
void pl_scene_nap(long ms);
/* One sentence among the notes of the document. */
void pl_scene_note(struct pl_scene *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A bad word that more requests would not change. */
bool pl_scene_is_certain(const struct pl_ledger_verdict *v);

/* --- soak_holder.c */

/* Asks the server who holds what grows in that worker, sending requests meanwhile; `holder` and `finding` of
 * the document are set, or a note says why not. */
void pl_scene_find_holder(struct pl_scene *s, const struct pl_soak_worker *w, bool of_host);

/* --- soak_document.c */

/* Everything that the books know, and the result where the scenario has not set one. */
void pl_scene_finish(struct pl_scene *s);
void pl_scene_note_death(struct pl_scene *s);
void pl_scene_set_bytes(json_t *o, const char *key, uint64_t n); /* 0: the key is left out */
json_t *pl_scene_latency(const struct pl_soak_counts *c);        /* owned */
#endif
