#include "keeper/options.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

enum { MOST_WORDS = 100 };
static struct pl_keeper_options got;
static struct pl_err err;

/* Splits at blanks and reads; the texts stay valid until the next call. */
static bool read_words(const char *line) {
    static char text[4096];
    static char *argv[MOST_WORDS + 1];
    int argc = 0;
    snprintf(text, sizeof text, "keeper %s", line);
    for (char *at = strtok(text, " "); at != NULL && argc < MOST_WORDS; at = strtok(NULL, " "))
        argv[argc++] = at;
    argv[argc] = NULL;
    err = (struct pl_err){ .code = PL_OK };
    return pl_keeper_read_options(argc, argv, &got, &err);
}

TEST(what_is_not_given_has_the_default_of_the_contract) {
    assert_true(read_words("--run /r -- main a --run"));
    assert_string_equal(got.run_path, "/r");
    assert_string_equal(got.main_argv[0], "main");
    assert_string_equal(got.main_argv[2], "--run");
    assert_null(got.main_argv[3]);
    assert_int_equal(got.set.hello_ms, 30000);
    assert_int_equal(got.set.hang_ms, 10000);
    assert_int_equal(got.set.abort_ms, 2000);
    assert_int_equal(got.set.crash_window_ms, 60000);
    assert_int_equal(got.set.crash_limit, 5);
    assert_int_equal(got.set.take_ms, 60000);
    assert_int_equal(got.set.stand_ms, 2000);
    assert_int_equal(got.set.leave_ms, 600000);
    assert_int_equal(got.set.stop_ms, 30000);
    assert_int_equal(got.set.stuck_ms, 30000);
    assert_int_equal(got.set.verbose, 0);
    assert_int_equal(got.hold_count, 0);
}

TEST(what_is_given_is_taken) {
    assert_true(read_words(
        "--hang-ms 0 --hold listen:0=7 --run /r --crash-limit 64 --verbose 1 --hold admin=8 -- m"));
    assert_int_equal(got.set.hang_ms, 0);
    assert_int_equal(got.set.crash_limit, 64);
    assert_int_equal(got.set.verbose, 1);
    assert_int_equal(got.hold_count, 2);
    assert_string_equal(got.holds[0].name, "listen:0");
    assert_int_equal(got.holds[0].fd, 7);
    assert_string_equal(got.holds[1].name, "admin");
    assert_int_equal(got.holds[1].fd, 8);
}

TEST(wrong_words_are_usage_and_named) {
    static const struct {
        const char *line, *said;
    } rows[] = {
        { "", "usage: keeper --run DIR" },
        { "--run /r", "usage: keeper --run DIR" },
        { "--run /r --", "usage: keeper --run DIR" },
        { "-- main", "usage: keeper --run DIR" },
        { "--run", "--run: its value is missing" },
        { "--run /r --hold", "--hold: its value is missing" },
        { "--run /r --what 1 -- m", "--what: no such option" },
        { "--run /r main", "main: its value is missing" },
        { "--run /r --hang-ms ten -- m", "--hang-ms ten: it takes a number from 0 to 86400000" },
        { "--run /r --hang-ms -1 -- m", "--hang-ms -1" },
        { "--run /r --hang-ms +1 -- m", "--hang-ms +1" },
        { "--run /r --hang-ms 1s -- m", "--hang-ms 1s" },
        { "--run /r --hang-ms 99999999999999999999999 -- m", "--hang-ms 9" },
        { "--run /r --hello-ms 0 -- m", "--hello-ms 0" },
        { "--run /r --crash-limit 0 -- m", "from 1 to 64" },
        { "--run /r --crash-limit 65 -- m", "from 1 to 64" },
        { "--run /r --crash-window-ms 0 -- m", "--crash-window-ms 0" },
        { "--run /r --verbose 2 -- m", "from 0 to 1" },
        { "--run /r --hold listen -- m", "--hold listen: it takes NAME=FD" },
        { "--run /r --hold =5 -- m", "--hold =5" },
        { "--run /r --hold listen= -- m", "--hold listen=" },
        { "--run /r --hold listen=2 -- m", "above 2" },
        { "--run /r --hold listen=5x -- m", "--hold listen=5x" },
        { "--run /r --hold listen=4294967299 -- m", "--hold listen=4294967299" },
        { "--run /r --hold a123456789012345678901234567890123=5 -- m", "1 to 31 bytes" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_false(read_words(rows[i].line));
        assert_int_equal(err.code, PL_E_USAGE);
        if (strstr(err.msg, rows[i].said) == NULL) fail_msg("%s: %s", rows[i].line, err.msg);
    }
}

TEST(more_holds_than_there_is_room_for_are_usage) {
    char line[2048] = "--run /r";
    for (int i = 0; i <= PL_KEEPER_MOST_HOLDS; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line), " --hold h%d=%d", i, i + 3);
    strcat(line, " -- m");
    assert_false(read_words(line));
    assert_non_null(strstr(err.msg, "at most 32"));
}

RUN(cmocka_unit_test(what_is_not_given_has_the_default_of_the_contract),
    cmocka_unit_test(what_is_given_is_taken), cmocka_unit_test(wrong_words_are_usage_and_named),
    cmocka_unit_test(more_holds_than_there_is_room_for_are_usage))
