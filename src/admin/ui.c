/* ui.c - the dashboard: files out of the binary, and the status as server-sent events for as long as somebody
 * looks. The page may fetch nothing but these, and act with the token only (guard.c). */
#include <stdlib.h>
#include <string.h>

#include "admin/inside.h"
#include "embed/ui_dashboard_css.h"
#include "embed/ui_dashboard_js.h"
#include "embed/ui_index_html.h"
#include "embed/ui_kit_js.h"
#include "embed/ui_style_css.h"

enum { VIEW_MS = 1000 };

struct pl_viewer {
    struct pl_viewer *next;
    struct pl_conn *conn;
};

bool pl_ui_answer(struct pl_conn *c, const char *path) {
    static const struct {
        const char *path, *type;
        const unsigned char *bytes;
        size_t len;
    } files[] = {
        { "/", "text/html; charset=utf-8", ui_index_html, ui_index_html_bytes },
        { "/ui/dashboard.css", "text/css; charset=utf-8", ui_dashboard_css, ui_dashboard_css_bytes },
        { "/ui/dashboard.js", "text/javascript; charset=utf-8", ui_dashboard_js, ui_dashboard_js_bytes },
        { "/ui/kit.js", "text/javascript; charset=utf-8", ui_kit_js, ui_kit_js_bytes },
        { "/ui/style.css", "text/css; charset=utf-8", ui_style_css, ui_style_css_bytes },
    };
    static const char extra[] =
        "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src "
        "'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
        "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-cache\r\n";
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (strcmp(path, files[i].path) != 0) continue;
        pl_conn_reply(c, &(struct pl_http_reply){ .status = 200,
                                                  .content_type = files[i].type,
                                                  .extra = extra,
                                                  .body = (const char *)files[i].bytes,
                                                  .body_len = files[i].len });
        return true;
    }
    return false;
}

static bool write_status(struct pl_admin *a, struct pl_buf *out) {
    json_t *doc = pl_status_json(a, NULL);
    char *text = json_dumps(doc, JSON_COMPACT | JSON_REAL_PRECISION(9));
    bool ok = text != NULL && pl_buf_adds(out, "event: status\ndata: ") && pl_buf_adds(out, text) &&
              pl_buf_adds(out, "\n\n");
    free(text);
    json_decref(doc);
    return ok;
}

/* Made once for all who look. */
static void on_view(struct pl_timer *t) {
    struct pl_admin *a = PL_TIMER_OWNER(t, struct pl_admin, view);
    struct pl_buf text;
    if (a->viewers == NULL) return;
    pl_buf_init(&text, 0);
    if (write_status(a, &text))
        for (const struct pl_viewer *v = a->viewers; v != NULL; v = v->next)
            if (!pl_conn_full(v->conn)) pl_conn_piece(v->conn, text.data, text.len);
    pl_buf_free(&text);
    pl_timer_start(a->o.timers, &a->view, VIEW_MS, on_view);
}

void pl_ui_follow(struct pl_admin *a, struct pl_conn *c) {
    struct pl_viewer *v = calloc(1, sizeof *v);
    struct pl_buf text;
    if (v == NULL) {
        pl_admin_reply_error(c, 503, "service_unavailable", "out of memory", NULL);
        return;
    }
    if (!pl_conn_start(c, 200, "text/event-stream", "Cache-Control: no-store\r\n")) {
        free(v);
        return;
    }
    *v = (struct pl_viewer){ .next = a->viewers, .conn = c };
    a->viewers = v;
    pl_buf_init(&text, 0);
    if (write_status(a, &text)) pl_conn_piece(c, text.data, text.len);
    pl_buf_free(&text);
    if (!pl_timer_running(&a->view)) pl_timer_start(a->o.timers, &a->view, VIEW_MS, on_view);
}

void pl_ui_gone(struct pl_admin *a, struct pl_conn *c) {
    for (struct pl_viewer **at = &a->viewers; *at != NULL; at = &(*at)->next) {
        struct pl_viewer *v = *at;
        if (v->conn != c) continue;
        *at = v->next;
        free(v);
        return;
    }
}

void pl_ui_end(struct pl_admin *a) {
    pl_timer_stop(&a->view);
    while (a->viewers != NULL) {
        struct pl_viewer *v = a->viewers;
        struct pl_conn *c = v->conn;
        a->viewers = v->next;
        free(v);
        pl_conn_finish(c);
    }
}
