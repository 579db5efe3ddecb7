/* http/image.h - how large an image is, from its first bytes as they come: PNG, JPEG, WebP, GIF.
 *
 * Constant memory, nothing is decoded. Where a file can say two things, the larger one counts: a GIF's frames
 * may reach beyond its screen (decoders follow the frame), a JPEG may carry a second frame header.
 * Sources: PNG (RFC 2083 §4.1.1), GIF89a §18-20, JPEG (T.81 B.2.2), WebP container (RFC 9649).
 */
#ifndef PL_HTTP_IMAGE_H
#define PL_HTTP_IMAGE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pl_image_kind { PL_IMAGE_NONE, PL_IMAGE_PNG, PL_IMAGE_JPEG, PL_IMAGE_WEBP, PL_IMAGE_GIF };

struct pl_image {
    uint32_t width, height; /* 0: not read yet */
    uint8_t kind;           /* enum pl_image_kind; NONE: not known yet, or never with `over` */
    bool over; /* nothing more can be learnt: its size is known, or it has none that we can read */
    uint8_t stage, want, have; /* inside */
    uint8_t bytes[32];
    uint64_t skip;
};

void pl_image_init(struct pl_image *i);
void pl_image_feed(struct pl_image *i, const void *bytes, size_t len);
/* Width times height; 0: not known. */
static inline uint64_t pl_image_pixels(const struct pl_image *i) { return (uint64_t)i->width * i->height; }

/* The same for base64 text. What is no letter of it is skipped, as Python's decoder does; `-` and `_` count
 * for `+` and `/`. */
struct pl_base64_image {
    struct pl_image image;
    uint32_t bits;
    uint8_t count; /* letters in `bits` */
};
void pl_base64_image_init(struct pl_base64_image *i);
void pl_base64_image_feed(struct pl_base64_image *i, const char *text, size_t len);
void pl_base64_image_end(struct pl_base64_image *i);
/* Text that can only be the begin of one of these images in base64. `len`: at least 11 or all there is. */
bool pl_base64_image_begins(const char *text, size_t len);
#endif
