/* Other programs that are asked, as a table of shell scripts. */
#include "cli/child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

enum { ROOM = 4096, LONG_MS = 60000 };

static int ask(const char *script, struct pl_buf *out, struct pl_child how) {
    const char *words[] = { "sh", "-c", script, NULL };
    how.argv = words;
    if (how.limit_ms == 0) how.limit_ms = LONG_MS;
    return pl_child_ask(&how, out);
}

static void answers(void **state) {
    static const struct {
        const char *script;
        int status;
        const char *said;
    } rows[] = {
        { "echo yes", 0, "yes\n" },
        { "printf a; exit 9", 9, "a" },
        { "exit 0", 0, "" },
        { "cat", 0, "" }, /* stdin is empty, not ours */
        { "echo aside >&2", 0, "" },
        { "printf a; kill -9 $$", -1, "a" },
        { "head -c 5000 /dev/zero", -1, "" }, /* more than there is room for */
        { "exec no-such-program-at-all", 127, "" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pl_buf out;
        pl_buf_init(&out, ROOM);
        int status = ask(rows[i].script, &out, (struct pl_child){ 0 });
        if (status != rows[i].status) fail_msg("%s: %d", rows[i].script, status);
        if (rows[i].said[0] != '\0') assert_string_equal(pl_buf_text(&out), rows[i].said);
        pl_buf_free(&out);
    }
}

static void a_program_that_is_not_there(void **state) {
    const char *words[] = { "/no/such/program", NULL };
    const struct pl_child how = { .argv = words, .limit_ms = LONG_MS };
    (void)state;
    assert_int_equal(pl_child_ask(&how, NULL), 127);
}

/* It would run for an hour; that the call comes back at all is the test. */
static void one_that_takes_too_long_is_killed(void **state) {
    struct pl_buf out;
    (void)state;
    pl_buf_init(&out, ROOM);
    assert_int_equal(ask("echo begun; exec sleep 3600", &out, (struct pl_child){ .limit_ms = 300 }), -1);
    pl_buf_free(&out);
}

static void folder_and_python_path(void **state) {
    struct pl_buf out;
    (void)state;
    pl_buf_init(&out, ROOM);
    setenv("PYTHONPATH", "/theirs", 1);
    assert_int_equal(
        ask("echo $PWD $PYTHONPATH", &out, (struct pl_child){ .folder = "/", .python_path = "/ours" }), 0);
    assert_string_equal(pl_buf_text(&out), "/ /ours:/theirs\n");
    pl_buf_free(&out);
    pl_buf_init(&out, ROOM);
    unsetenv("PYTHONPATH");
    assert_int_equal(ask("echo $PYTHONPATH", &out, (struct pl_child){ .python_path = "/ours" }), 0);
    assert_string_equal(pl_buf_text(&out), "/ours\n");
    pl_buf_free(&out);
    assert_int_equal(ask("true", NULL, (struct pl_child){ .folder = "/no/such/folder" }), 127);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers),
        cmocka_unit_test(a_program_that_is_not_there),
        cmocka_unit_test(one_that_takes_too_long_is_killed),
        cmocka_unit_test(folder_and_python_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
