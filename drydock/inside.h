/* drydock/inside.h - shared declarations of the stand-in CUDA.
 *
 * Layers, lowest first: table.c (the cards) · device.c (memory, contexts, which cards this process sees) ·
 * driver*.c (libcuda) · runtime*.c, pools.c (libcudart) · math.c, cudnn.c, tools.c (the few entries of the
 * other libraries whose results a caller reads) · python.c (asks PyTorch for its figures). Together they are
 * libplimsoll-drydock.so, the core. It has no symbol versions, so that one core satisfies CUDA 12 and 13: the
 * libraries that programs name (libcudart.so.13 ...) are written by `plimsoll drydock` for the torch at hand
 * and need the core.
 *
 * Own declarations throughout, no vendor header. Handles are void *, enums are int. Every out-struct is
 * written as the oldest served version has it. Device numbers below are those that the process sees, unless a
 * name says card.
 */
#ifndef DRYDOCK_INSIDE_H
#define DRYDOCK_INSIDE_H
#include "table.h"

#define DD_API     __attribute__((visibility("default")))
#define DD_GRANULE ((size_t)2 << 20) /* device memory comes in units of this */

/* Error numbers that the driver and the runtime share. */
enum {
    DD_OK = 0,
    DD_INVALID_VALUE = 1,
    DD_OUT_OF_MEMORY = 2,
    DD_NO_DEVICE = 100,
    DD_INVALID_DEVICE = 101,
    DD_NOT_FOUND = 500,
    DD_NOT_READY = 600,
    DD_NOT_SUPPORTED = 801,
    DD_CAPTURE_UNSUPPORTED = 900,
    DD_UNKNOWN = 999, /* what a card that fell off the bus answers */
};

/* --- settings of this process, read once from PLIMSOLL_DRYDOCK_* */
struct dd_settings {
    uint64_t copy_max; /* bigger writes to the device are not carried out */
    uint64_t workspace;
    long lag_us; /* events complete that much later */
    int driver, runtime, cudnn;
    bool trace, values;
};
const struct dd_settings *dd_settings(void);
/* The reporters of the written stubs: success. `dd_stub` is silent but for the trace; `dd_lacks` names the
 * function once. */
DD_API int dd_stub(const char *name);
DD_API int dd_lacks(const char *name);

/* --- device.c */
enum dd_kind { DD_NONE = -1, DD_DEVICE = 0, DD_PINNED = 1, DD_RESERVED = 2 };
int dd_count(void);
int dd_card(int dev); /* the card behind a device of this process */
int dd_current(void);
int dd_set_current(int dev);
bool dd_has_context(int dev);
int dd_context(void);   /* charges the context at the first use of the current device: 0 or an error number */
int dd_answer(int dev); /* waits while the device is silent; 0, or DD_UNKNOWN when it is lost */
void *dd_alloc(size_t bytes, enum dd_kind kind, int *error);
int dd_free(void *p); /* 0, or -1: no such allocation */
enum dd_kind dd_range(const void *p, void **base, size_t *bytes, int *dev);
void dd_range_add(void *start, size_t bytes,
                  enum dd_kind kind); /* of the current device, charged elsewhere */
void dd_copy(void *to, const void *from, size_t bytes);
void dd_set(void *to, int value, size_t bytes);
int dd_info(size_t *free_bytes, size_t *total);
int dd_attribute(int attribute, int dev);

/* --- others */
void *dd_driver_symbol(const char *name); /* driver_lookup.c; the newest version of a name wins */
void dd_ask_python(bool news);            /* python.c: at the next chance PyTorch's figures go to the table */
#endif
