#include "base/err.h"

#include <errno.h>
#include <string.h>

#include "unit.h"

TEST(context_is_put_in_front_on_the_way_up) {
    struct pl_err err = { 0 };
    assert_false(PL_FAIL_SYS(&err, ENOENT, "open %s", "plimsoll.yaml"));
    assert_false(pl_err_wrap(&err, "service %s", "chat"));
    assert_false(pl_err_hint(&err, "run it in %s", "the folder"));
    assert_string_equal(err.msg, "service chat: open plimsoll.yaml: No such file or directory");
    assert_string_equal(err.hint, "run it in the folder");
    assert_int_equal(err.code, PL_E_SYS);
    assert_int_equal(err.sys, ENOENT);
    assert_true(strstr(err.file, "test_err.c") != NULL && err.line > 0);
}

TEST(a_new_failure_forgets_the_old_hint) {
    struct pl_err err = { 0 };
    PL_FAIL(&err, PL_E_CONFIG, "first");
    pl_err_hint(&err, "old");
    PL_FAIL(&err, PL_E_LIMIT, "second");
    assert_string_equal(err.msg, "second");
    assert_string_equal(err.hint, "");
    assert_int_equal(err.sys, 0);
}

TEST(messages_of_any_length_end_inside_their_array) {
    char word[2 * sizeof((struct pl_err *)0)->msg];
    struct pl_err err = { 0 };
    memset(word, 'x', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    PL_FAIL_SYS(&err, EIO, "%s", word);
    pl_err_wrap(&err, "short");
    pl_err_wrap(&err, "%s", word);
    pl_err_hint(&err, "%s", word);
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
    assert_int_equal(strlen(err.hint), sizeof err.hint - 1);
}

TEST(every_code_has_a_name_and_statuses_of_its_kind) {
    for (int code = PL_OK; code < PL_CODE_COUNT; code++) {
        const char *name = pl_err_name((enum pl_code)code);
        assert_true(name != NULL && strspn(name, "abcdefghijklmnopqrstuvwxyz_") == strlen(name));
        int http = pl_err_http_status((enum pl_code)code);
        int status = pl_err_exit_status((enum pl_code)code);
        assert_true(code == PL_OK ? http == 200 && status == 0 : http >= 400 && http < 600);
        assert_true(status >= 0 && status <= 6);
        for (int other = PL_OK; other < code; other++)
            assert_string_not_equal(name, pl_err_name((enum pl_code)other));
    }
}

RUN(cmocka_unit_test(context_is_put_in_front_on_the_way_up),
    cmocka_unit_test(a_new_failure_forgets_the_old_hint),
    cmocka_unit_test(messages_of_any_length_end_inside_their_array),
    cmocka_unit_test(every_code_has_a_name_and_statuses_of_its_kind))
