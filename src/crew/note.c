/* note.c - the small versioned note that main leaves at the keeper with each worker, for the next main. An
 * unreadable one means: warm once more, never kill. New fields at the end. */
#include <stddef.h>
#include <string.h>

#include "crew/more.h"

enum { NOTE_VERSION = 1 };
struct note {
    uint32_t version;
    uint32_t ready;
    uint32_t warm;
    uint32_t source;
    uint64_t spawned_ms, imported_ms, loaded_ms, socket_ms, warm_ms, ready_ms, first_request_ms;
    uint64_t first_us, settled_us, first_request_us;
    uint64_t boot_ms; /* measured for the service */
    uint64_t served;
    uint32_t draining; /* its successor is READY */
    uint32_t pad;
    uint64_t uses;
};

void pl_note_leave(struct pl_worker *w) {
    struct pl_wire_message m;
    const struct pl_worker_more *o = w->more;
    if (w->generation == 0) return; /* somebody else's: the keeper knows nothing of it */
    struct note note = { .version = NOTE_VERSION,
                         .ready = w->state == PL_WORKER_READY || w->state == PL_WORKER_DRAINING,
                         .warm = o->warm,
                         .source = o->source,
                         .spawned_ms = o->time.spawned,
                         .imported_ms = o->time.imported,
                         .loaded_ms = o->time.loaded,
                         .socket_ms = o->time.socket,
                         .warm_ms = o->time.warm,
                         .ready_ms = o->time.ready,
                         .first_request_ms = o->time.first_request,
                         .first_us = o->time.first_us,
                         .settled_us = o->time.settled_us,
                         .first_request_us = o->time.first_request_us,
                         .boot_ms = w->service->boot_ms,
                         .served = w->served,
                         .draining = w->state == PL_WORKER_DRAINING,
                         .uses = o->uses };
    pl_wire_init(&m, PL_WIRE_NOTE, offsetof(struct pl_wire_note, note) + sizeof note, 0);
    m.note.generation = w->generation;
    m.note.note_bytes = sizeof note;
    memcpy(m.note.note, &note, sizeof note);
    pl_link_order(w->service->crew->link, &m, NULL, NULL);
}

bool pl_note_read(struct pl_worker *w, const void *bytes, size_t count) {
    struct note note = { 0 };
    struct pl_worker_more *o = w->more;
    if (count < offsetof(struct note, served)) return false;
    memcpy(&note, bytes, count < sizeof note ? count : sizeof note);
    if (note.version != NOTE_VERSION) return false;
    o->warm = note.warm != 0;
    o->source = note.source <= PL_SAMPLE_EXAMPLES ? (enum pl_sample_source)note.source : PL_SAMPLE_NONE;
    o->time = (struct pl_timeline){ .spawned = note.spawned_ms,
                                    .imported = note.imported_ms,
                                    .loaded = note.loaded_ms,
                                    .socket = note.socket_ms,
                                    .warm = note.warm_ms,
                                    .ready = note.ready_ms,
                                    .first_request = note.first_request_ms,
                                    .first_us = note.first_us,
                                    .settled_us = note.settled_us,
                                    .first_request_us = note.first_request_us };
    w->served = note.served;
    o->replaced = note.draining != 0;
    o->uses = note.uses;
    if (note.boot_ms != 0) w->service->boot_ms = note.boot_ms;
    return note.ready != 0;
}
