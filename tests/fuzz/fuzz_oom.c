/* What a worker printed: is there an out-of-memory message in it, and of what kind.
 *
 * USES sample base
 */
#include <stdlib.h>
#include <string.h>

#include "sample/oom.h"

static void check(const struct pl_oom *o, size_t size) {
    char text[64];
    enum pl_oom_verdict v = pl_oom_judge(o);
    pl_oom_say(o, text, sizeof text);
    if (o->kind == PL_OOM_NONE || o->at >= size || o->process_count > PL_OOM_PROCESSES) abort();
    if (memchr(o->name, '\0', sizeof o->name) == NULL) abort();
    if ((v == PL_OOM_NO_VERDICT) != (text[0] == '\0')) abort();
    if (pl_oom_class_of(o->kind) == PL_OOM_CLASS_NONE || pl_oom_kind_name(o->kind) == NULL) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_oom o;
    char *text = malloc(size > 0 ? size : 1); /* so that a read past its end is seen */
    if (text == NULL) abort();
    if (size > 0) memcpy(text, data, size);
    bool any = pl_oom_parse(text, size, &o);
    if (any) check(&o, size);
    if (pl_oom_in_line(text, size, &o)) check(&o, size);
    if (pl_oom_last_torch(text, size, &o)) {
        if (!any) abort();
        check(&o, size);
    }
    if (pl_oom_last_words(text, size, &o)) check(&o, size);
    free(text);
    return 0;
}
