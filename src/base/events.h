/* base/events.h - the closed list of event names (base/events.def). Names are API; tests/check_events.py
 * keeps the list and the sources the same. */
#ifndef PL_BASE_EVENTS_H
#define PL_BASE_EVENTS_H
#include "base/log.h"

struct pl_event_info {
    const char *name;
    enum pl_level level; /* as a rule; one that tells of good and bad may come at another level */
    const char *fields;  /* beside the common ones: "pid, way" */
};

/* The table in its own order; NULL past its end. */
const struct pl_event_info *pl_event_at(size_t i);
/* NULL: there is no such event. */
const struct pl_event_info *pl_event_find(const char *name);
#endif
