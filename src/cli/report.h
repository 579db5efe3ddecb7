/* cli/report.h - how a report of the flight record is shown: words, or sections of a page. */
#ifndef PL_CLI_REPORT_H
#define PL_CLI_REPORT_H
#include <jansson.h>

#include "base/buf.h"

/* `doc` is what cli/flight.h makes. Its texts are foreign: control characters are escaped. */
void pl_report_text(const json_t *doc, struct pl_buf *out);
void pl_report_would_text(const json_t *doc, struct pl_buf *out);
/* Sections for cli/page.h; owned by the caller. */
json_t *pl_report_sections(const json_t *doc);
#endif
