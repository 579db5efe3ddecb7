#include "cli/page.h"

#include <stdlib.h>
#include <string.h>

#include "embed/page_kit_js.h"
#include "embed/page_sections_html.h"
#include "embed/page_style_css.h"

/* A '<' could end the script element; in JSON it is only ever inside a text. */
static bool put_data(const struct pl_buf *json, struct pl_buf *out) {
    bool ok = true;
    for (size_t i = 0, begin = 0; ok && i <= json->len; i++) {
        if (i < json->len && json->data[i] != '<') continue;
        ok =
            pl_buf_add(out, json->data + begin, i - begin) && (i == json->len || pl_buf_adds(out, "\\u003c"));
        begin = i + 1;
    }
    return ok;
}

bool pl_page_write(const char *page, size_t page_bytes, const struct pl_buf *json, struct pl_buf *out) {
    const struct {
        const char *mark;
        const unsigned char *bytes;
        size_t len;
    } parts[] = { { "@STYLE@", page_style_css, page_style_css_bytes },
                  { "@DATA@", NULL, 0 },
                  { "@KIT@", page_kit_js, page_kit_js_bytes } }; /* in the order of the page */
    const char *end = page + page_bytes;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *at = memmem(page, (size_t)(end - page), parts[i].mark, strlen(parts[i].mark));
        if (at == NULL || !pl_buf_add(out, page, (size_t)(at - page))) return false;
        if (parts[i].bytes != NULL ? !pl_buf_add(out, parts[i].bytes, parts[i].len) : !put_data(json, out))
            return false;
        page = at + strlen(parts[i].mark);
    }
    return pl_buf_add(out, page, (size_t)(end - page));
}

bool pl_page_sections(const json_t *sections, struct pl_buf *out) {
    char *text = json_dumps(sections, JSON_COMPACT | JSON_REAL_PRECISION(15));
    struct pl_buf json;
    pl_buf_init(&json, 0);
    bool ok = text != NULL && pl_buf_adds(&json, text) &&
              pl_page_write((const char *)page_sections_html, page_sections_html_bytes, &json, out);
    pl_buf_free(&json);
    free(text);
    return ok;
}
