/* tools.c - the few entries of NCCL, NVRTC and CUPTI whose results a caller reads. */
#include "mathlib.h"

/* --- NCCL: collectives do nothing */

DD_TEXT(ncclGetErrorString, int)
DD_TEXT(ncclGetLastError, void *)

DD_API int ncclGetVersion(int *version) {
    *version = 23007;
    return 0;
}

/* --- NVRTC: every program compiles to one byte */

DD_TEXT(nvrtcGetErrorString, int)

DD_API int nvrtcVersion(int *major, int *minor) {
    *major = dd_settings()->runtime / 1000;
    *minor = dd_settings()->runtime % 1000 / 10;
    return 0;
}

DD_API int nvrtcCreateProgram(void **program, const char *source, const char *name, int count,
                              const char *const *headers, const char *const *names) {
    return dd_object(program);
}

/* clang-format off */
#define ONE_BYTE(name)   DD_API int name(void *program, size_t *bytes) { *bytes = 1; return 0; }
#define EMPTY_TEXT(name) DD_API int name(void *program, char *out) { *out = '\0'; return 0; }
/* clang-format on */
ONE_BYTE(nvrtcGetPTXSize)
ONE_BYTE(nvrtcGetCUBINSize)
ONE_BYTE(nvrtcGetProgramLogSize)
EMPTY_TEXT(nvrtcGetPTX)
EMPTY_TEXT(nvrtcGetCUBIN)
EMPTY_TEXT(nvrtcGetProgramLog)

DD_API int nvrtcGetLoweredName(void *program, const char *expression, const char **name) {
    *name = expression;
    return 0;
}

/* --- CUPTI */

DD_API int cuptiGetVersion(uint32_t *version) {
    *version = 130200;
    return 0;
}

DD_API int cuptiGetResultString(int result, const char **text) {
    *text = "CUPTI (dry dock)";
    return 0;
}

/* Refused, so that the profiler says that there is no CUPTI rather than wait for records. */
DD_API int cuptiSubscribe(void **subscriber, void *callback, void *user) {
    *subscriber = NULL;
    return 15;
}
