/* cli/top_screen.h - what `plimsoll top` shows, as lines: a /status document in, text out. No terminal here.
 */
#ifndef PL_CLI_TOP_SCREEN_H
#define PL_CLI_TOP_SCREEN_H
#include <jansson.h>
#include <stddef.h>

enum { PL_TOP_MOST_ROWS = 200, PL_TOP_MOST_COLS = 400 };
enum pl_top_style { PL_TOP_PLAIN, PL_TOP_HEAD, PL_TOP_DIM, PL_TOP_WARN, PL_TOP_BAD };

struct pl_top_screen {
    size_t rows, cols; /* of the terminal: 1 to the limits above */
    size_t count;      /* lines that are used */
    struct {
        enum pl_top_style style;
        char text[PL_TOP_MOST_COLS + 1]; /* printable ASCII, at most `cols` */
    } lines[PL_TOP_MOST_ROWS];
};

/* Fills `lines` with the load of the GPUs and one service of the document (`service` counts from 0, round and
 * round), down to the newest events. `rows` and `cols` are set by the caller and kept within the limits. */
void pl_top_render(const json_t *status, size_t service, struct pl_top_screen *out);
#endif
