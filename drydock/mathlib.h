/* drydock/mathlib.h - what the bodies of the math and tool libraries share: objects that hold nothing, and
 * error texts. */
#ifndef DRYDOCK_MATHLIB_H
#define DRYDOCK_MATHLIB_H
#include <stdlib.h>

#include "inside.h"

/* An object of zeros for *out; callers pass it back and never look inside. */
static inline int dd_object(void **out) {
    *out = calloc(1, 512);
    return 0;
}

/* clang-format off */
#define DD_CREATE(name)     DD_API int name(void **out) { return dd_object(out); }
#define DD_DESTROY(name)    DD_API int name(void *object) { free(object); return 0; }
#define DD_TEXT(name, type) DD_API const char *name(type value) { return #name " (dry dock)"; }
/* clang-format on */
#endif
