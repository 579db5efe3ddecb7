#include "base/events.h"

#include <string.h>

static const struct pl_event_info events[] = {
#define EVENT(name, level, fields) { name, level, fields },
#include "base/events.def"
#undef EVENT
};

enum { COUNT = sizeof events / sizeof events[0] };

const struct pl_event_info *pl_event_at(size_t i) { return i < COUNT ? &events[i] : NULL; }

const struct pl_event_info *pl_event_find(const char *name) {
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(events[i].name, name) == 0) return &events[i];
    return NULL;
}
