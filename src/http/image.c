/* A machine that collects or skips a number of bytes and then takes a step; each step says what is next. */
#include "http/image.h"

#include <string.h>

enum stage {
    FIRST, /* enough to tell the kinds apart */
    PNG_HEAD,
    GIF_SCREEN,
    GIF_BLOCK,
    GIF_LABEL,
    GIF_FRAME,
    GIF_CODE_SIZE,
    GIF_PIECE,
    WEBP_CHUNK,
    WEBP_LOSSY,
    WEBP_LOSSLESS,
    WEBP_CANVAS,
    JPEG_MARK,
    JPEG_TYPE,
    JPEG_LENGTH,
    JPEG_FRAME,
};

static void next(struct pl_image *i, enum stage stage, uint8_t want, uint64_t skip) {
    i->stage = (uint8_t)stage;
    i->want = want;
    i->have = 0;
    i->skip = skip;
}

static void finish(struct pl_image *i) { i->over = true; }

static void take_size(struct pl_image *i, uint32_t width, uint32_t height) {
    if (width == 0 || height == 0) return;
    if (width > i->width) i->width = width;
    if (height > i->height) i->height = height;
}

static uint32_t big16(const uint8_t *p) { return (uint32_t)p[0] << 8 | p[1]; }
static uint32_t big32(const uint8_t *p) { return big16(p) << 16 | big16(p + 2); }
static uint32_t little16(const uint8_t *p) { return (uint32_t)p[1] << 8 | p[0]; }
static uint32_t little24(const uint8_t *p) { return (uint32_t)p[2] << 16 | little16(p); }

static void first(struct pl_image *i) {
    const uint8_t *b = i->bytes;
    if (b[0] == 0xff && b[1] == 0xd8) {
        /* what was read beyond it is the first marker, or garbage before one */
        uint8_t rest[4] = { b[2], b[3], b[4], b[5] };
        i->kind = PL_IMAGE_JPEG;
        next(i, JPEG_MARK, 1, 0);
        pl_image_feed(i, rest, sizeof rest);
    } else if (memcmp(b, "\x89PNG\r\n", 6) == 0) {
        i->kind = PL_IMAGE_PNG;
        next(i, PNG_HEAD, 18, 0);
    } else if (memcmp(b, "GIF87a", 6) == 0 || memcmp(b, "GIF89a", 6) == 0) {
        i->kind = PL_IMAGE_GIF;
        next(i, GIF_SCREEN, 7, 0);
    } else if (memcmp(b, "RIFF", 4) == 0) {
        next(i, WEBP_CHUNK, 14, 0); /* the rest of the size, WEBP, name and size of the first chunk */
    } else {
        finish(i);
    }
}

/* --- PNG, WebP */

static void png_head(struct pl_image *i) {
    if (memcmp(i->bytes, "\x1a\n\0\0\0\rIHDR", 10) == 0)
        take_size(i, big32(i->bytes + 10), big32(i->bytes + 14));
    finish(i);
}

static void webp_chunk(struct pl_image *i) {
    const uint8_t *name = i->bytes + 6;
    if (memcmp(i->bytes + 2, "WEBP", 4) != 0) {
        finish(i);
        return;
    }
    i->kind = PL_IMAGE_WEBP;
    if (memcmp(name, "VP8 ", 4) == 0)
        next(i, WEBP_LOSSY, 10, 0);
    else if (memcmp(name, "VP8L", 4) == 0)
        next(i, WEBP_LOSSLESS, 5, 0);
    else if (memcmp(name, "VP8X", 4) == 0)
        next(i, WEBP_CANVAS, 10, 0);
    else
        finish(i);
}

static void webp_lossy(struct pl_image *i) {
    const uint8_t *b = i->bytes;
    if (b[3] == 0x9d && b[4] == 0x01 && b[5] == 0x2a)
        take_size(i, little16(b + 6) & 0x3fff, little16(b + 8) & 0x3fff);
    finish(i);
}

static void webp_lossless(struct pl_image *i) {
    const uint8_t *b = i->bytes;
    uint32_t bits = little24(b + 1) | (uint32_t)b[4] << 24;
    if (b[0] == 0x2f) take_size(i, (bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1);
    finish(i);
}

static void webp_canvas(struct pl_image *i) {
    take_size(i, little24(i->bytes + 4) + 1, little24(i->bytes + 7) + 1);
    finish(i);
}

/* --- GIF: blocks until the trailer; what is no block is passed over, as decoders do */

static uint64_t table_bytes(uint8_t flags) { return flags & 0x80 ? (uint64_t)3 << ((flags & 7) + 1) : 0; }

static void gif_screen(struct pl_image *i) {
    take_size(i, little16(i->bytes), little16(i->bytes + 2));
    next(i, GIF_BLOCK, 1, table_bytes(i->bytes[4]));
}

static void gif_block(struct pl_image *i) {
    if (i->bytes[0] == 0x3b)
        finish(i);
    else if (i->bytes[0] == 0x21)
        next(i, GIF_LABEL, 1, 0);
    else if (i->bytes[0] == 0x2c)
        next(i, GIF_FRAME, 9, 0);
    else
        next(i, GIF_BLOCK, 1, 0);
}

static void gif_frame(struct pl_image *i) {
    const uint8_t *b = i->bytes;
    take_size(i, little16(b) + little16(b + 4), little16(b + 2) + little16(b + 6));
    next(i, GIF_CODE_SIZE, 1, table_bytes(b[8]));
}

static void gif_piece(struct pl_image *i) {
    if (i->bytes[0] == 0)
        next(i, GIF_BLOCK, 1, 0);
    else
        next(i, GIF_PIECE, 1, i->bytes[0]);
}

/* --- JPEG: markers until the data begin */

static bool begins_frame(uint8_t type) {
    return type >= 0xc0 && type <= 0xcf && type != 0xc4 && type != 0xc8 && type != 0xcc;
}

static void jpeg_type(struct pl_image *i) {
    uint8_t type = i->bytes[0];
    if (type == 0xff)
        next(i, JPEG_TYPE, 1, 0); /* fill bytes */
    else if (type == 0xda || type == 0xd9)
        finish(i);
    else if (type == 0 || type == 1 || (type >= 0xd0 && type <= 0xd8))
        next(i, JPEG_MARK, 1, 0);
    else if (begins_frame(type))
        next(i, JPEG_FRAME, 7, 0);
    else
        next(i, JPEG_LENGTH, 2, 0);
}

static void jpeg_frame(struct pl_image *i) {
    uint32_t length = big16(i->bytes);
    take_size(i, big16(i->bytes + 5), big16(i->bytes + 3));
    if (length < 7)
        finish(i);
    else
        next(i, JPEG_MARK, 1, length - 7);
}

static void jpeg_length(struct pl_image *i) {
    uint32_t length = big16(i->bytes);
    if (length < 2)
        finish(i);
    else
        next(i, JPEG_MARK, 1, length - 2);
}

static void step(struct pl_image *i) {
    switch ((enum stage)i->stage) {
    case FIRST:
        first(i);
        break;
    case PNG_HEAD:
        png_head(i);
        break;
    case GIF_SCREEN:
        gif_screen(i);
        break;
    case GIF_BLOCK:
        gif_block(i);
        break;
    case GIF_FRAME:
        gif_frame(i);
        break;
    case GIF_LABEL:
    case GIF_CODE_SIZE:
        next(i, GIF_PIECE, 1, 0);
        break;
    case GIF_PIECE:
        gif_piece(i);
        break;
    case WEBP_CHUNK:
        webp_chunk(i);
        break;
    case WEBP_LOSSY:
        webp_lossy(i);
        break;
    case WEBP_LOSSLESS:
        webp_lossless(i);
        break;
    case WEBP_CANVAS:
        webp_canvas(i);
        break;
    case JPEG_MARK:
        if (i->bytes[0] == 0xff)
            next(i, JPEG_TYPE, 1, 0);
        else
            next(i, JPEG_MARK, 1, 0);
        break;
    case JPEG_TYPE:
        jpeg_type(i);
        break;
    case JPEG_LENGTH:
        jpeg_length(i);
        break;
    case JPEG_FRAME:
        jpeg_frame(i);
        break;
    }
}

void pl_image_init(struct pl_image *i) {
    *i = (struct pl_image){ 0 };
    next(i, FIRST, 6, 0);
}

void pl_image_feed(struct pl_image *i, const void *bytes, size_t len) {
    const uint8_t *p = bytes, *end = p + len;
    while (!i->over && p < end) {
        if (i->skip != 0) {
            uint64_t n = (uint64_t)(end - p) < i->skip ? (uint64_t)(end - p) : i->skip;
            i->skip -= n;
            p += n;
            continue;
        }
        i->bytes[i->have++] = *p++;
        if (i->have == i->want) step(i);
    }
}

/* --- base64 */

void pl_base64_image_init(struct pl_base64_image *i) {
    pl_image_init(&i->image);
    i->bits = 0;
    i->count = 0;
}

static int letter(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '+' || c == '-') return 62;
    return c == '/' || c == '_' ? 63 : -1;
}

void pl_base64_image_feed(struct pl_base64_image *i, const char *text, size_t len) {
    for (size_t k = 0; k < len && !i->image.over; k++) {
        int value = letter(text[k]);
        if (value < 0) continue;
        i->bits = i->bits << 6 | (uint32_t)value;
        if (++i->count < 4) continue;
        uint8_t three[3] = { (uint8_t)(i->bits >> 16), (uint8_t)(i->bits >> 8), (uint8_t)i->bits };
        pl_image_feed(&i->image, three, 3);
        i->bits = 0;
        i->count = 0;
    }
}

void pl_base64_image_end(struct pl_base64_image *i) {
    uint32_t bits = i->bits << (6 * (4 - i->count) & 31);
    uint8_t two[2] = { (uint8_t)(bits >> 16), (uint8_t)(bits >> 8) };
    if (i->count >= 2) pl_image_feed(&i->image, two, i->count - 1u);
    i->count = 0;
}

bool pl_base64_image_begins(const char *text, size_t len) {
    static const char *const begins[] = { "iVBORw0KGgo", "/9j/", "R0lGODdh", "R0lGODlh", "UklGR" };
    for (size_t k = 0; k < sizeof begins / sizeof begins[0]; k++) {
        size_t n = strlen(begins[k]);
        if (len >= n && memcmp(text, begins[k], n) == 0) return true;
    }
    return false;
}
