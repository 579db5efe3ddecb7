/* runtime_streams.c - libcudart: streams, graphs, events. All work is done at once; only events may be told
 * to be late. */
#include <stdlib.h>
#include <time.h>

#include "runtime.h"

struct stream {
    int priority, capturing;
    unsigned long long capture_id;
};
struct event {
    struct timespec recorded_at;
    int recorded;
};
static unsigned long long next_capture_id = 1;

/* 0, 1 and 2 are the default, legacy and per-thread streams. */
static struct stream *real_stream(void *stream) { return (uintptr_t)stream > 2 ? stream : NULL; }

/* --- streams */

DD_API int cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    struct stream *s = calloc(1, sizeof *s);
    if (s == NULL) return dd_fail(DD_OUT_OF_MEMORY);
    s->priority = priority;
    *stream = s;
    return DD_OK;
}

DD_API int cudaStreamCreateWithFlags(void **stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

DD_API int cudaStreamCreate(void **stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

DD_API int cudaStreamDestroy(void *stream) {
    free(real_stream(stream));
    return DD_OK;
}

DD_API int cudaStreamGetPriority(void *stream, int *priority) {
    const struct stream *s = real_stream(stream);
    *priority = s != NULL ? s->priority : 0;
    return DD_OK;
}

DD_API int cudaStreamQuery(void *stream) { return DD_OK; }

DD_API int cudaStreamSynchronize(void *stream) { return dd_fail(dd_answer(dd_current())); }

DD_API int cudaStreamIsCapturing(void *stream, int *status) {
    const struct stream *s = real_stream(stream);
    *status = s != NULL ? s->capturing : 0;
    return DD_OK;
}

/* CUDA 13 has an edge-data argument that the CUDA 12 name (_v2) lacks. */
DD_API int cudaStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id, void **graph,
                                    const void **dependencies, const void **edges, size_t *count) {
    const struct stream *s = real_stream(stream);
    if (status != NULL) *status = s != NULL ? s->capturing : 0;
    if (id != NULL) *id = s != NULL ? s->capture_id : 0;
    if (graph != NULL) *graph = (void *)(uintptr_t)0x40;
    if (dependencies != NULL) *dependencies = NULL;
    if (edges != NULL) *edges = NULL;
    if (count != NULL) *count = 0;
    return DD_OK;
}

DD_API int cudaStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id, void **graph,
                                       const void **dependencies, size_t *count) {
    return cudaStreamGetCaptureInfo(stream, status, id, graph, dependencies, NULL, count);
}

DD_API int cudaStreamAddCallback(void *stream, void (*callback)(void *, int, void *), void *user,
                                 unsigned flags) {
    callback(stream, DD_OK, user);
    return DD_OK;
}

DD_API int cudaLaunchHostFunc(void *stream, void (*function)(void *), void *user) {
    function(user);
    return DD_OK;
}

/* --- graphs */

DD_API int cudaStreamBeginCapture(void *stream, int mode) {
    struct stream *s = real_stream(stream);
    if (s == NULL) return dd_fail(DD_CAPTURE_UNSUPPORTED);
    s->capturing = 1;
    s->capture_id = __atomic_fetch_add(&next_capture_id, 1, __ATOMIC_RELAXED);
    return DD_OK;
}

DD_API int cudaStreamEndCapture(void *stream, void **graph) {
    struct stream *s = real_stream(stream);
    if (s == NULL) return dd_fail(DD_CAPTURE_UNSUPPORTED);
    s->capturing = 0;
    *graph = calloc(1, 8);
    return DD_OK;
}

DD_API int cudaThreadExchangeStreamCaptureMode(int *mode) { return DD_OK; }

DD_API int cudaGraphInstantiate(void **executable, void *graph, unsigned long long flags) {
    *executable = calloc(1, 8);
    return DD_OK;
}

DD_API int cudaGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
    return cudaGraphInstantiate(executable, graph, flags);
}

/* PyTorch warns about an empty graph when this is 0. */
DD_API int cudaGraphGetNodes(void *graph, void **nodes, size_t *count) {
    *count = 1;
    return DD_OK;
}

DD_API int cudaGraphDestroy(void *graph) {
    free(graph);
    return DD_OK;
}

DD_API int cudaGraphExecDestroy(void *executable) {
    free(executable);
    return DD_OK;
}

DD_API int cudaUserObjectCreate(void **object, void *p, void (*destroy)(void *), unsigned refs,
                                unsigned flags) {
    *object = calloc(1, 8);
    return DD_OK;
}

/* --- events. With a lag an event is complete that long after its record, as if kernels took time: it makes
 * PyTorch's allocator keep blocks in the state active_pending_free. */

static long us_left(const struct event *e) {
    struct timespec now;
    long lag = dd_settings()->lag_us;
    if (lag == 0 || !e->recorded) return 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long passed =
        (now.tv_sec - e->recorded_at.tv_sec) * 1000000 + (now.tv_nsec - e->recorded_at.tv_nsec) / 1000;
    return passed >= lag ? 0 : lag - passed;
}

DD_API int cudaEventCreateWithFlags(void **event, unsigned flags) {
    *event = calloc(1, sizeof(struct event));
    return *event != NULL ? DD_OK : dd_fail(DD_OUT_OF_MEMORY);
}

DD_API int cudaEventCreate(void **event) { return cudaEventCreateWithFlags(event, 0); }

DD_API int cudaEventDestroy(void *event) {
    free(event);
    return DD_OK;
}

DD_API int cudaEventRecord(void *event, void *stream) {
    struct event *e = event;
    e->recorded = 1;
    clock_gettime(CLOCK_MONOTONIC, &e->recorded_at);
    return DD_OK;
}

DD_API int cudaEventRecordWithFlags(void *event, void *stream, unsigned flags) {
    return cudaEventRecord(event, stream);
}

DD_API int cudaEventQuery(void *event) { return us_left(event) != 0 ? DD_NOT_READY : DD_OK; }

DD_API int cudaEventSynchronize(void *event) {
    long left = us_left(event);
    struct timespec pause = { left / 1000000, left % 1000000 * 1000 };
    if (left != 0) nanosleep(&pause, NULL);
    return dd_fail(dd_answer(dd_current()));
}

DD_API int cudaEventElapsedTime(float *ms, void *from, void *to) {
    const struct event *a = from, *b = to;
    *ms = (float)((double)(b->recorded_at.tv_sec - a->recorded_at.tv_sec) * 1e3 +
                  (double)(b->recorded_at.tv_nsec - a->recorded_at.tv_nsec) / 1e6);
    return DD_OK;
}
