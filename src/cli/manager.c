#include "cli/manager.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/wire.h"

static struct {
    struct pl_link *link;
    bool told, ready; /* told: READY=1 was */
} manager;

static void tell(const char *words) {
    struct pl_wire_message m;
    pl_wire_init(&m, PL_WIRE_TELL, sizeof m.tell, 0);
    snprintf(m.tell.words, sizeof m.tell.words, "%s", words);
    pl_link_order(manager.link, &m, NULL,
                  NULL); /* a keeper from before this kind refuses it, and nothing is lost */
}

void pl_manager_init(struct pl_link *link) { manager.link = link; }

void pl_manager_ready(bool ready, const char *listen) {
    char words[PL_WIRE_WORDS_BYTES];
    if (ready == manager.ready) return;
    manager.ready = ready;
    if (ready)
        snprintf(words, sizeof words, "%sSTATUS=ready on %.200s", manager.told ? "" : "READY=1\n", listen);
    else
        snprintf(words, sizeof words, "STATUS=not ready: see plimsoll status");
    manager.told = manager.told || ready;
    tell(words);
}

void pl_manager_draining(void) { tell("STATUS=draining"); }

void pl_manager_reloading(void) {
    char words[PL_WIRE_WORDS_BYTES];
    struct timespec t;
    if (!manager.told) return;
    clock_gettime(CLOCK_MONOTONIC, &t); /* the manager's clock, which Type=notify-reload wants to see */
    snprintf(words, sizeof words, "RELOADING=1\nMONOTONIC_USEC=%lld\nSTATUS=reloading",
             (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000);
    tell(words);
}

void pl_manager_reloaded(bool accepted) {
    if (!manager.told) return;
    tell(accepted ? "READY=1\nSTATUS=ready, configuration reloaded"
                  : "READY=1\nSTATUS=the last reload was rejected: the configuration before it is in force");
}
