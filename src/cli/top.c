/* top.c - `plimsoll top`: the page of the admin port for a terminal. Plain control sequences; the screen that
 * was there comes back at the end. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cli/client.h"
#include "cli/top_screen.h"
#include "config/config.h"

enum { USUAL_ROWS = 24, USUAL_COLS = 80, INTERVAL_MS = 1000, LEAST_MS = 100 };

static volatile sig_atomic_t over;
static void on_signal(int number) { over = number; }

static void measure(struct pl_top_screen *t) {
    struct winsize size = { 0 };
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0;
    t->rows = known ? size.ws_row : USUAL_ROWS;
    t->cols = known ? size.ws_col : USUAL_COLS;
}

static const char *sequence(enum pl_top_style style, bool color) {
    static const char *const sequences[] = { "", "\033[1m", "\033[2m", "\033[33m", "\033[1;31m" };
    return color ? sequences[style] : "";
}

/* Line by line over what is there: nothing flickers. */
static void put(const struct pl_top_screen *t, bool control, bool color) {
    if (control) fputs("\033[H", stdout);
    for (size_t i = 0; i < t->count; i++) {
        const char *begin = sequence(t->lines[i].style, color);
        bool last = i + 1 == t->rows; /* a newline there would scroll */
        printf("%s%s%s%s%s", begin, t->lines[i].text, begin[0] != '\0' ? "\033[0m" : "",
               control ? "\033[K" : "", last && control ? "" : "\n");
    }
    if (control && t->count < t->rows) fputs("\033[J", stdout);
    fflush(stdout);
}

struct view {
    struct pl_client client;
    struct pl_top_screen screen;
    size_t service;
    bool json, control, color;
};

/* One look. An error is on the screen while it lasts: the server may come back. */
static bool look(struct view *v, struct pl_err *err) {
    struct pl_buf body;
    int status;
    if (!pl_client_ask(&v->client, "GET", "/status", NULL, &status, &body, err)) return false;
    json_t *doc = status == 200 ? json_loadb(body.data, body.len, 0, NULL) : NULL;
    bool ok = doc != NULL;
    if (status != 200)
        pl_client_error(&v->client, status, &body, err);
    else if (!ok)
        PL_FAIL(err, PL_E_SYS, "%s: the answer cannot be read", v->client.where);
    if (ok && v->json) {
        printf("%s\n", body.data);
        fflush(stdout);
    } else if (ok) {
        measure(&v->screen);
        pl_top_render(doc, v->service, &v->screen);
        put(&v->screen, v->control, v->color);
    }
    json_decref(doc);
    pl_buf_free(&body);
    return ok;
}

static void say_lost(const struct view *v, const struct pl_err *err) {
    printf("\033[H%sno answer: %.200s; trying again\033[0m\033[K", sequence(PL_TOP_BAD, v->color), err->msg);
    fflush(stdout);
}

/* Until the next look is due, or a key was pressed. False: it is to end. */
static bool wait_for_key(struct view *v, int interval_ms) {
    struct pollfd keys = { .fd = STDIN_FILENO, .events = POLLIN };
    char key;
    int n = v->control ? poll(&keys, 1, interval_ms) : poll(NULL, 0, interval_ms);
    if (over != 0) return false;
    if (n <= 0) return true;
    if (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 3) return false;
    if (key == '\t' || key == 'n') v->service++;
    return true;
}

static bool take_terminal(struct termios *before) {
    struct termios raw;
    if (tcgetattr(STDIN_FILENO, before) != 0) return false;
    raw = *before;
    raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) != 0) return false;
    fputs("\033[?1049h\033[?25l\033[2J", stdout);
    return true;
}

static void give_terminal_back(const struct termios *before) {
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSANOW, before);
}

static void watch(struct view *v, int interval_ms) {
    struct pl_err err;
    do {
        err = (struct pl_err){ 0 };
        if (!look(v, &err) && v->control) say_lost(v, &err);
    } while (wait_for_key(v, interval_ms));
}

int pl_verb_top(struct pl_cli *cli) {
    struct view v = { .json = cli->args.json };
    struct pl_err err = { 0 };
    struct termios before;
    int64_t interval = INTERVAL_MS;
    const char *given = pl_args_value(&cli->args, "interval");
    bool once = pl_args_has(&cli->args, "once"), terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    if (given != NULL && (!pl_config_parse_duration(given, &interval, &err) || interval < LEAST_MS)) {
        if (err.msg[0] == '\0') PL_FAIL(&err, PL_E_USAGE, "%s: at least 100ms", given);
        err.code = PL_E_USAGE;
        pl_err_wrap(&err, "--interval");
        return pl_cli_fail(cli, &err);
    }
    if (!once && !v.json && !terminal) {
        PL_FAIL(&err, PL_E_USAGE, "top needs a terminal");
        pl_err_hint(&err, "plimsoll status -w, or plimsoll top --once");
        return pl_cli_fail(cli, &err);
    }
    if (!pl_client_find(cli, &v.client, &err)) return pl_cli_fail(cli, &err);
    v.color = pl_cli_color(cli);
    if (once) return look(&v, &err) ? 0 : pl_cli_fail(cli, &err);
    for (size_t i = 0; i < 3; i++)
        sigaction((const int[]){ SIGTERM, SIGINT, SIGHUP }[i], &(struct sigaction){ .sa_handler = on_signal },
                  NULL);
    v.control = !v.json && take_terminal(&before);
    watch(&v, (int)(interval < INT32_MAX ? interval : INT32_MAX));
    if (v.control) give_terminal_back(&before);
    return 0;
}
