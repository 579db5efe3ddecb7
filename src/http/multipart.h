/* http/multipart.h - images among the parts of a multipart body, measured as it comes.
 *
 * Constant memory. Parts are found as RFC 2046 says, and where lenient readers would find them too (a bare LF
 * before the boundary, padding behind it). Whatever a part says about itself, its first bytes are looked at.
 */
#ifndef PL_HTTP_MULTIPART_H
#define PL_HTTP_MULTIPART_H
#include "http/image.h"

enum { PL_BOUNDARY_MOST = 70 }; /* RFC 2046 §5.1.1 */

struct pl_multipart {
    uint64_t images, image_pixels; /* of the largest */
    uint64_t images_unread;        /* said to be one, or begins as one, and has no size that we can read */
    uint32_t width, height;        /* of the largest */
    /* inside */
    char delimiter[PL_BOUNDARY_MOST + 4]; /* LF -- boundary */
    uint8_t delimiter_len, match, stage, line_len;
    bool said;  /* the part is an image by its own words */
    bool fresh; /* the line feed that may begin a delimiter was not content */
    char line[128];
    struct pl_image image;
};

/* `content_type`: of the body. False: it is no multipart, or has no boundary that we can follow. */
bool pl_multipart_init(struct pl_multipart *m, const char *content_type, size_t len);
void pl_multipart_feed(struct pl_multipart *m, const char *bytes, size_t len);
void pl_multipart_end(struct pl_multipart *m);
#endif
