/* settings.c - what PLIMSOLL_DRYDOCK_* says to this process; and the reporters of the written stubs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

static struct dd_settings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint64_t number(const char *name, uint64_t otherwise) {
    uint64_t value = otherwise;
    char error[DD_ERROR];
    const char *text = getenv(name);
    if (text != NULL && *text != '\0' && !dd_bytes_parse(text, &value, error))
        fprintf(stderr, "plimsoll drydock: %s: %s\n", name, error);
    return value;
}

static void read_all(void) {
    settings = (struct dd_settings){
        .copy_max = number("PLIMSOLL_DRYDOCK_COPY_MAX", (uint64_t)1 << 20),
        .workspace = number("PLIMSOLL_DRYDOCK_WORKSPACE", 0),
        .lag_us = (long)number("PLIMSOLL_DRYDOCK_LAG_US", 0),
        .driver = (int)number("PLIMSOLL_DRYDOCK_DRIVER", 13020),
        .runtime = (int)number("PLIMSOLL_DRYDOCK_RUNTIME", 13020),
        .cudnn = (int)number("PLIMSOLL_DRYDOCK_CUDNN", 92600),
        .trace = number("PLIMSOLL_DRYDOCK_TRACE", 0) != 0,
        .values = number("PLIMSOLL_DRYDOCK_VALUES", 0) != 0,
    };
}

const struct dd_settings *dd_settings(void) {
    pthread_once(&once, read_all);
    return &settings;
}

int dd_stub(const char *name) {
    if (dd_settings()->trace) fprintf(stderr, "plimsoll drydock: stub %s\n", name);
    return DD_OK;
}

int dd_lacks(const char *name) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static const char *told[DD_LACKS];
    static int count;
    bool known = false;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < count && !known; i++) known = strcmp(told[i], name) == 0;
    if (!known && count < DD_LACKS) told[count++] = name;
    pthread_mutex_unlock(&mutex);
    if (!known) {
        fprintf(stderr,
                "plimsoll drydock: the dry dock lacks %s: it reported success and gave nothing back; what "
                "follows from its "
                "result is not right (PLIMSOLL_DRYDOCK_TRACE=1 shows every call)\n",
                name);
        dd_note_lack(name);
    }
    return dd_stub(name);
}
