/* The delimiter begins with the only line feed it has, so a failed match goes on with the byte that failed.
 */
#include "http/multipart.h"

#include <string.h>
#include <strings.h>

enum stage { PREAMBLE, BEHIND, HEADERS, DATA, OVER };

static const char *find_word(const char *text, size_t len, const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= len; i++)
        if (strncasecmp(text + i, word, n) == 0) return text + i;
    return NULL;
}

static bool ends_boundary(char c, bool quoted) {
    return quoted ? c == '"' : c == ';' || c == ' ' || c == '\t';
}

bool pl_multipart_init(struct pl_multipart *m, const char *content_type, size_t len) {
    const char *end = content_type + len, *at = find_word(content_type, len, "boundary=");
    *m = (struct pl_multipart){ .match = 1, .delimiter = "\n--", .delimiter_len = 3 };
    if (len < 10 || strncasecmp(content_type, "multipart/", 10) != 0 || at == NULL) return false;
    at += 9;
    bool quoted = at < end && *at == '"';
    if (quoted) at++;
    for (; at < end && !ends_boundary(*at, quoted); at++) {
        if (quoted && *at == '\\' && at + 1 < end) at++;
        if (m->delimiter_len == sizeof m->delimiter - 1 || *at == '\n' || *at == '\r') return false;
        m->delimiter[m->delimiter_len++] = *at;
    }
    return m->delimiter_len > 3;
}

static void end_part(struct pl_multipart *m) {
    uint64_t pixels = pl_image_pixels(&m->image);
    if (m->stage != DATA || (!m->said && m->image.kind == PL_IMAGE_NONE)) return;
    m->images++;
    if (pixels == 0) m->images_unread++;
    if (pixels <= m->image_pixels) return;
    m->image_pixels = pixels;
    m->width = m->image.width;
    m->height = m->image.height;
}

static void begin_headers(struct pl_multipart *m) {
    end_part(m);
    m->stage = BEHIND;
    m->line_len = 0;
    m->match = 0;
}

static void end_line(struct pl_multipart *m) {
    static const char name[] = "content-type:";
    size_t len = m->line_len;
    m->line_len = 0;
    if (m->stage == BEHIND) { /* padding, or the two dashes that end it all */
        m->stage = len >= 2 && memcmp(m->line, "--", 2) == 0 ? OVER : HEADERS;
        m->said = false;
        return;
    }
    if (len == 0) {
        m->stage = DATA;
        m->match = 1; /* an empty part: its delimiter's line feed was this one */
        m->fresh = true;
        pl_image_init(&m->image);
    } else if (len > sizeof name && strncasecmp(m->line, name, sizeof name - 1) == 0) {
        m->said |= find_word(m->line, len, "image/") != NULL;
    }
}

static void in_line(struct pl_multipart *m, char c) {
    if (c == '\n')
        end_line(m);
    else if (c != '\r' && m->line_len < sizeof m->line)
        m->line[m->line_len++] = c;
}

static void content(struct pl_multipart *m, const char *bytes, size_t len) {
    if (m->stage == DATA) pl_image_feed(&m->image, bytes, len);
}

/* Returns how many bytes it took. */
static size_t in_data(struct pl_multipart *m, const char *p, size_t len) {
    if (m->match == 0) {
        const char *line_end = memchr(p, '\n', len);
        size_t n = line_end != NULL ? (size_t)(line_end - p) : len;
        content(m, p, n);
        if (line_end != NULL) m->match = 1;
        m->fresh = false;
        return line_end != NULL ? n + 1 : n;
    }
    if (*p != m->delimiter[m->match]) { /* what looked like one was content; the byte is looked at again */
        size_t before = m->fresh ? 1 : 0;
        content(m, m->delimiter + before, m->match - before);
        m->match = 0;
        m->fresh = false;
        return 0;
    }
    if (++m->match == m->delimiter_len) begin_headers(m);
    return 1;
}

void pl_multipart_feed(struct pl_multipart *m, const char *bytes, size_t len) {
    size_t i = 0;
    while (i < len && m->stage != OVER) {
        if (m->stage == BEHIND || m->stage == HEADERS)
            in_line(m, bytes[i++]);
        else
            i += in_data(m, bytes + i, len - i);
    }
}

void pl_multipart_end(struct pl_multipart *m) { end_part(m); }
