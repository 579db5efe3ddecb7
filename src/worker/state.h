/* worker/state.h - the life of one generation (one worker process), as a pure function.
 *
 * No clocks, no pids, no I/O: crew feeds events in and obeys the state that comes out. The whole policy is
 * the table in state.c; tests walk every (state, event) pair.
 *
 *     IDLE -START-> SPAWNING -SPAWNED-> LOADING -LOADED-> WARMING -WARMED-> READY -REPLACE-> DRAINING
 *     from each of these  -STOP, EXITED->  STOPPING
 *     before READY too    -START_TIMEOUT, WARM_FAILED, REPLACE->  STOPPING
 *     DRAINING            -DRAINED, DRAIN_TIMEOUT->  STOPPING
 *     STOPPING -EMPTY-> GONE    -WAIT-> BACKOFF -RETRY-> GONE    -GIVE_UP-> FAILED -RETRY-> GONE
 *     STOPPING -UNREAPED-> STUCK -EXITED-> STOPPING
 *
 * STOPPING is the one way out of life: it has been told to end, or its leader is dead and its group must
 * empty. So a death that nobody ordered also passes STOPPING. When the group is empty, exactly one of three
 * is fed: EMPTY (the slot is free: GONE), WAIT (a failed start; BACKOFF keeps the slot until RETRY makes it
 * GONE and a new generation starts), GIVE_UP (FAILED keeps it until somebody asks for a RETRY). An adopted
 * worker is fed what it had already seen.
 */
#ifndef PL_WORKER_STATE_H
#define PL_WORKER_STATE_H
#include <stdbool.h>

/* X(SYMBOL, "name in labels and JSON"). GONE: reaped, process group empty. STUCK: not reaped 30 s after
 * SIGKILL. */
/* clang-format off */
#define PL_WORKER_STATES(X) \
    X(IDLE, "idle") X(SPAWNING, "spawning") X(LOADING, "loading") X(WARMING, "warming") X(READY, "ready") \
    X(DRAINING, "draining") X(STOPPING, "stopping") X(GONE, "gone") X(BACKOFF, "backoff") X(FAILED, "failed") \
    X(STUCK, "stuck")
/* START: crew ordered a spawn. SPAWNED: exec is proven. LOADED: its own readiness said yes for the first time.
 * WARMED: the warm-up passed (or there is none). WARM_FAILED, START_TIMEOUT: it will be killed. REPLACE: a successor is
 * ready, or it must go without one; what is not READY has nothing to drain. DRAINED, DRAIN_TIMEOUT. STOP: it ends now.
 * EXITED: the leader was reaped. EMPTY: its group is empty and its output drained. WAIT, GIVE_UP: in place of EMPTY, see
 * above. RETRY: the wait is over. UNREAPED: 30 s after SIGKILL. */
#define PL_WORKER_EVENTS(X) \
    X(START, "start") X(SPAWNED, "spawned") X(LOADED, "loaded") X(WARMED, "warmed") X(WARM_FAILED, "warm_failed") \
    X(START_TIMEOUT, "start_timeout") X(REPLACE, "replace") X(DRAINED, "drained") X(DRAIN_TIMEOUT, "drain_timeout") \
    X(STOP, "stop") X(EXITED, "exited") X(EMPTY, "empty") X(UNREAPED, "unreaped") X(WAIT, "wait") X(RETRY, "retry") \
    X(GIVE_UP, "give_up")
/* clang-format on */

enum pl_worker_state {
#define X(s, name) PL_WORKER_##s,
    PL_WORKER_STATES(X)
#undef X
        PL_WORKER_STATE_COUNT
};
enum pl_worker_event {
#define X(e, name) PL_WEV_##e,
    PL_WORKER_EVENTS(X)
#undef X
        PL_WORKER_EVENT_COUNT
};

/* Puts the next state in *next and returns true; an event that has no meaning in `from` returns false and
 * leaves *next alone (the caller logs it: late events are normal, crashing on them is not). */
bool pl_worker_next(enum pl_worker_state from, enum pl_worker_event ev, enum pl_worker_state *next);
/* Only a READY worker may be handed a new request. */
bool pl_worker_accepts(enum pl_worker_state s);
/* A process exists (or is being made) in this state. */
bool pl_worker_has_process(enum pl_worker_state s);
/* Static texts; "unknown" for a number that is none. */
const char *pl_worker_state_name(enum pl_worker_state s);
const char *pl_worker_event_name(enum pl_worker_event e);
#endif
