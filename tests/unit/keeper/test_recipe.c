#include "keeper/recipe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ring.h"
#include "base/wire.h"
#include "unit.h"

static struct pl_keeper_recipe got;

/* `words` with their NULs; the number of bytes without the one that C adds. */
static bool read_bytes(uint32_t argc, uint32_t envc, const char *words, size_t count) {
    uint8_t text[512];
    struct pl_recipe_head head = { .argc = argc, .envc = envc };
    memcpy(text, &head, sizeof head);
    memcpy(text + sizeof head, words, count);
    int fd = pl_memfd_of("recipe", text, sizeof head + count);
    bool good = pl_keeper_read_recipe(fd, "MARK=1", &got);
    int error = errno;
    close(fd);
    errno = error;
    return good;
}
#define READ(argc, envc, words) read_bytes(argc, envc, words, sizeof(words) - 1)

TEST(folder_words_and_environment_come_out_with_the_marker_first) {
    assert_true(READ(3, 3, "/folder\0/bin/x\0\0c d\0A=1\0PLIMSOLL_GENERATION=old\0B=\0"));
    assert_string_equal(got.folder, "/folder");
    assert_string_equal(got.argv[0], "/bin/x");
    assert_string_equal(got.argv[1], "");
    assert_string_equal(got.argv[2], "c d");
    assert_null(got.argv[3]);
    assert_string_equal(got.envp[0], "MARK=1");
    assert_string_equal(got.envp[1], "A=1");
    assert_string_equal(got.envp[2], "B=");
    assert_null(got.envp[3]);
    pl_keeper_free_recipe(&got);
}

TEST(an_environment_may_be_empty) {
    assert_true(READ(1, 0, "/\0/bin/x\0"));
    assert_string_equal(got.envp[0], "MARK=1");
    assert_null(got.envp[1]);
    pl_keeper_free_recipe(&got);
}

TEST(what_does_not_add_up_is_a_bad_message) {
    static const struct {
        uint32_t argc, envc;
        const char *words;
        size_t count;
    } rows[] = {
#define ROW(argc, envc, words) { argc, envc, words, sizeof(words) - 1 }
        ROW(0, 0, "/\0"),
        ROW(1, 0, "/\0"),
        ROW(1, 0, "/\0abc"),
        ROW(2, 0, "/\0a\0"),
        ROW(1, 1, "/\0a\0"),
        ROW(1, 1, "/\0a\0b"),
        ROW(1, 0, "/\0a\0more\0"),
        ROW(1, 0, "/\0a\0x"),
        ROW(1, 0, "/"),
        ROW(UINT32_MAX, 0, "/\0a\0"),
        ROW(1, UINT32_MAX, "/\0a\0"),
        ROW(1, 0, ""),
#undef ROW
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_false(read_bytes(rows[i].argc, rows[i].envc, rows[i].words, rows[i].count));
        assert_int_equal(errno, EBADMSG);
        pl_keeper_free_recipe(&got);
    }
}

TEST(a_size_that_no_recipe_has_is_refused_unread) {
    static const size_t sizes[] = { 0, 7, PL_KEEPER_RECIPE_BYTES + 1 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *text = calloc(1, sizes[i] + 1);
        int fd = pl_memfd_of("recipe", text, sizes[i]);
        assert_false(pl_keeper_read_recipe(fd, "MARK=1", &got));
        assert_int_equal(errno, EMSGSIZE);
        pl_keeper_free_recipe(&got);
        close(fd);
        free(text);
    }
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_false(pl_keeper_read_recipe(ends[0], "MARK=1", &got));
    assert_int_equal(errno, EMSGSIZE);
    close(ends[0]);
    close(ends[1]);
    assert_false(pl_keeper_read_recipe(-1, "MARK=1", &got));
    assert_int_equal(errno, EBADF);
}

TEST(the_largest_recipe_is_read) {
    char *text = calloc(1, PL_KEEPER_RECIPE_BYTES);
    struct pl_recipe_head head = { .argc = 1, .envc = 1 };
    memset(text, 'x', PL_KEEPER_RECIPE_BYTES - 1);
    memcpy(text, &head, sizeof head);
    text[sizeof head + 1] = text[sizeof head + 3] = 0;
    int fd = pl_memfd_of("recipe", text, PL_KEEPER_RECIPE_BYTES);
    assert_true(pl_keeper_read_recipe(fd, "MARK=1", &got));
    assert_int_equal(strlen(got.envp[1]), PL_KEEPER_RECIPE_BYTES - sizeof head - 5);
    pl_keeper_free_recipe(&got);
    close(fd);
    free(text);
}

RUN(cmocka_unit_test(folder_words_and_environment_come_out_with_the_marker_first),
    cmocka_unit_test(an_environment_may_be_empty), cmocka_unit_test(what_does_not_add_up_is_a_bad_message),
    cmocka_unit_test(a_size_that_no_recipe_has_is_refused_unread),
    cmocka_unit_test(the_largest_recipe_is_read))
