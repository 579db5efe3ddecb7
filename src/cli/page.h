/* cli/page.h - the one writer of HTML pages and plots. A page is one file that holds all it shows: style,
 * code and data; nothing is fetched, so it can be mailed and opened years later.
 *
 * Either a template of its own (src/cli/page/NAME.html, embedded) with the marks @STYLE@ and @KIT@, where the
 * common style and drawing code go, and @DATA@ for its JSON; or sections, for reports that have no chart of
 * their own:
 *
 *   {"title", "about": [text],
 *    "sections": [{"head", "text": [text], "lead": true,
 *                  "cards": [[name, value, note]],
 *                  "plot": {"unit": "bytes|ms|count", "from", "to", "gap" (ms: a hole in the line), "height",
 *                           "x": "requests" (else times in ms),
 *                           "series": [{"name", "kind": "line|bars", "step", "points": [[ms, value]]}],
 *                           "lines": [{"name", "value"}], "marks": [{"name", "time"}]},
 *                  "table": {"heads": [text], "numbers": [columns to the right], "rows": [[text]]}}]}
 *
 * Texts may be foreign: they become text, never markup. */
#ifndef PL_CLI_PAGE_H
#define PL_CLI_PAGE_H
#include <jansson.h>

#include "base/buf.h"

bool pl_page_write(const char *page, size_t page_bytes, const struct pl_buf *json, struct pl_buf *out);
bool pl_page_sections(const json_t *sections, struct pl_buf *out);
#endif
