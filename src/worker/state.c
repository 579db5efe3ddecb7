#include "worker/state.h"

#include <stddef.h>

/* clang-format off */
static const struct {
    enum pl_worker_state from;
    enum pl_worker_event on;
    enum pl_worker_state to;
} edges[] = {
    { PL_WORKER_IDLE,     PL_WEV_START,         PL_WORKER_SPAWNING },
    { PL_WORKER_IDLE,     PL_WEV_STOP,          PL_WORKER_GONE },

    { PL_WORKER_SPAWNING, PL_WEV_SPAWNED,       PL_WORKER_LOADING },
    { PL_WORKER_SPAWNING, PL_WEV_START_TIMEOUT, PL_WORKER_STOPPING },
    { PL_WORKER_SPAWNING, PL_WEV_REPLACE,       PL_WORKER_STOPPING },
    { PL_WORKER_SPAWNING, PL_WEV_STOP,          PL_WORKER_STOPPING },
    { PL_WORKER_SPAWNING, PL_WEV_EXITED,        PL_WORKER_STOPPING },

    { PL_WORKER_LOADING,  PL_WEV_LOADED,        PL_WORKER_WARMING },
    { PL_WORKER_LOADING,  PL_WEV_START_TIMEOUT, PL_WORKER_STOPPING },
    { PL_WORKER_LOADING,  PL_WEV_REPLACE,       PL_WORKER_STOPPING },
    { PL_WORKER_LOADING,  PL_WEV_STOP,          PL_WORKER_STOPPING },
    { PL_WORKER_LOADING,  PL_WEV_EXITED,        PL_WORKER_STOPPING },

    { PL_WORKER_WARMING,  PL_WEV_WARMED,        PL_WORKER_READY },
    { PL_WORKER_WARMING,  PL_WEV_WARM_FAILED,   PL_WORKER_STOPPING },
    { PL_WORKER_WARMING,  PL_WEV_START_TIMEOUT, PL_WORKER_STOPPING },
    { PL_WORKER_WARMING,  PL_WEV_REPLACE,       PL_WORKER_STOPPING },
    { PL_WORKER_WARMING,  PL_WEV_STOP,          PL_WORKER_STOPPING },
    { PL_WORKER_WARMING,  PL_WEV_EXITED,        PL_WORKER_STOPPING },

    { PL_WORKER_READY,    PL_WEV_REPLACE,       PL_WORKER_DRAINING },
    { PL_WORKER_READY,    PL_WEV_STOP,          PL_WORKER_STOPPING },
    { PL_WORKER_READY,    PL_WEV_EXITED,        PL_WORKER_STOPPING },

    { PL_WORKER_DRAINING, PL_WEV_DRAINED,       PL_WORKER_STOPPING },
    { PL_WORKER_DRAINING, PL_WEV_DRAIN_TIMEOUT, PL_WORKER_STOPPING },
    { PL_WORKER_DRAINING, PL_WEV_STOP,          PL_WORKER_STOPPING },
    { PL_WORKER_DRAINING, PL_WEV_EXITED,        PL_WORKER_STOPPING },

    { PL_WORKER_STOPPING, PL_WEV_EXITED,        PL_WORKER_STOPPING },
    { PL_WORKER_STOPPING, PL_WEV_EMPTY,         PL_WORKER_GONE },
    { PL_WORKER_STOPPING, PL_WEV_WAIT,          PL_WORKER_BACKOFF },
    { PL_WORKER_STOPPING, PL_WEV_GIVE_UP,       PL_WORKER_FAILED },
    { PL_WORKER_STOPPING, PL_WEV_UNREAPED,      PL_WORKER_STUCK },

    { PL_WORKER_STUCK,    PL_WEV_EXITED,        PL_WORKER_STOPPING },
    { PL_WORKER_STUCK,    PL_WEV_EMPTY,         PL_WORKER_GONE },

    { PL_WORKER_BACKOFF,  PL_WEV_RETRY,         PL_WORKER_GONE },
    { PL_WORKER_BACKOFF,  PL_WEV_STOP,          PL_WORKER_GONE },
    { PL_WORKER_FAILED,   PL_WEV_RETRY,         PL_WORKER_GONE },
    { PL_WORKER_FAILED,   PL_WEV_STOP,          PL_WORKER_GONE },
};
/* clang-format on */

bool pl_worker_next(enum pl_worker_state from, enum pl_worker_event ev, enum pl_worker_state *next) {
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        if (edges[i].from != from || edges[i].on != ev) continue;
        *next = edges[i].to;
        return true;
    }
    return false;
}

bool pl_worker_accepts(enum pl_worker_state s) { return s == PL_WORKER_READY; }

bool pl_worker_has_process(enum pl_worker_state s) {
    return (s >= PL_WORKER_SPAWNING && s <= PL_WORKER_STOPPING) || s == PL_WORKER_STUCK;
}

const char *pl_worker_state_name(enum pl_worker_state s) {
    static const char *const names[PL_WORKER_STATE_COUNT] = {
#define X(sym, name) [PL_WORKER_##sym] = name,
        PL_WORKER_STATES(X)
#undef X
    };
    return (unsigned)s < PL_WORKER_STATE_COUNT ? names[s] : "unknown";
}

const char *pl_worker_event_name(enum pl_worker_event e) {
    static const char *const names[PL_WORKER_EVENT_COUNT] = {
#define X(sym, name) [PL_WEV_##sym] = name,
        PL_WORKER_EVENTS(X)
#undef X
    };
    return (unsigned)e < PL_WORKER_EVENT_COUNT ? names[e] : "unknown";
}
