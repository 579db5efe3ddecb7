#include "cli/out.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "cli/page.h"

bool pl_out_print(const struct pl_cli *cli, const json_t *doc,
                  void (*as_text)(const json_t *, struct pl_buf *), FILE *to) {
    struct pl_buf out;
    pl_buf_init(&out, 0);
    if (cli->args.json) {
        char *text = json_dumps(doc, JSON_COMPACT | JSON_REAL_PRECISION(9));
        if (text != NULL) pl_buf_addf(&out, "%s\n", text);
        free(text);
    } else {
        as_text(doc, &out);
    }
    bool ok = fwrite(out.data, 1, out.len, to) == out.len && fflush(to) == 0;
    pl_buf_free(&out);
    return ok;
}

bool pl_out_file(const char *path, const struct pl_buf *text, struct pl_err *err) {
    PL_AUTO_FILE FILE *f = fopen(path, "we");
    if (f == NULL || fwrite(text->data, 1, text->len, f) != text->len || fflush(f) != 0)
        return PL_FAIL_SYS(err, errno, "write %s", path);
    return true;
}

bool pl_out_page(const char *path, json_t *sections, struct pl_err *err) {
    struct pl_buf out;
    pl_buf_init(&out, 0);
    bool ok = pl_page_sections(sections, &out) ? pl_out_file(path, &out, err)
                                               : PL_FAIL(err, PL_E_NOMEM, "no memory for the page");
    json_decref(sections);
    pl_buf_free(&out);
    return ok;
}

void pl_out_xml(struct pl_buf *out, const char *text) {
    for (const char *s = text; s != NULL && *s != '\0'; s++) {
        unsigned char c = (unsigned char)*s;
        const char *as = c == '&'   ? "&amp;"
                         : c == '<' ? "&lt;"
                         : c == '>' ? "&gt;"
                         : c == '"' ? "&quot;"
                                    : NULL;
        if (as != NULL)
            pl_buf_adds(out, as);
        else if (c >= ' ' || c == '\n' || c == '\t')
            pl_buf_add(out, s, 1);
        else
            pl_buf_adds(out, " ");
    }
}
