/* cli/out.h - where a verb's document goes: to stdout as JSON or as text, into files, as a page. */
#ifndef PL_CLI_OUT_H
#define PL_CLI_OUT_H
#include <jansson.h>
#include <stdio.h>

#include "base/buf.h"
#include "cli/verbs.h"

/* With --json the document in one line, else what `as_text` makes of it. False: it was not taken (errno). */
bool pl_out_print(const struct pl_cli *cli, const json_t *doc,
                  void (*as_text)(const json_t *, struct pl_buf *), FILE *to);
/* A file, from its beginning. Told on disk when it is full. */
bool pl_out_file(const char *path, const struct pl_buf *text, struct pl_err *err);
/* Sections (cli/page.h) as one HTML page. Takes `sections`. */
bool pl_out_page(const char *path, json_t *sections, struct pl_err *err);
/* Foreign text inside XML; control characters that XML has no place for become blanks. NULL: nothing. */
void pl_out_xml(struct pl_buf *out, const char *text);
#endif
