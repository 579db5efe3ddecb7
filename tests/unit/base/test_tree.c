#include "base/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

static char base[32];
static int at;

static const char *in(const char *name) {
    static char paths[4][256];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", base, name);
    return path;
}
static void touch(const char *path) {
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd != -1);
    close(fd);
}
static bool exists(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}
static int begin(void **state) {
    (void)state;
    strcpy(base, "/tmp/pltreeXXXXXX");
    if (mkdtemp(base) == NULL) return -1;
    at = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return at == -1 ? -1 : 0;
}
static int end(void **state) {
    (void)state;
    pl_tree_clear(at); /* takes it */
    return rmdir(base);
}

TEST(a_folder_goes_with_its_content_and_links_go_alone) {
    assert_int_equal(mkdir(in("outside"), 0700), 0);
    touch(in("outside/precious"));
    assert_int_equal(mkdir(in("gone"), 0700), 0);
    assert_int_equal(mkdir(in("gone/deeper"), 0700), 0);
    touch(in("gone/deeper/file"));
    assert_int_equal(symlink(in("outside"), in("gone/link")), 0);
    assert_int_equal(symlink("/none", in("gone/dangling")), 0);
    assert_true(pl_tree_remove(at, "gone"));
    assert_false(exists(in("gone")));
    assert_true(exists(in("outside/precious")));
}
TEST(a_link_in_place_of_the_folder_is_removed_and_not_followed) {
    assert_int_equal(mkdir(in("outside"), 0700), 0);
    touch(in("outside/precious"));
    assert_int_equal(symlink("outside", in("gone")), 0);
    assert_int_equal(pl_tree_open(at, "gone"), -1);
    assert_true(pl_tree_remove(at, "gone"));
    assert_false(exists(in("gone")));
    assert_true(exists(in("outside/precious")));
}
TEST(what_is_not_there_is_gone_already) {
    assert_true(pl_tree_remove(at, "never"));
    assert_false(pl_tree_remove(-1, "never"));
}
TEST(many_files_are_no_trouble) {
    char name[32];
    assert_int_equal(mkdir(in("many"), 0700), 0);
    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, "many/%d", i);
        touch(in(name));
    }
    assert_true(pl_tree_remove(at, "many"));
}
TEST(a_path_is_made_with_all_above_it) {
    struct stat st;
    assert_true(pl_tree_make(in("one/two/three")));
    assert_true(pl_tree_make(in("one/two/three"))); /* it is there already */
    assert_int_equal(stat(in("one/two/three"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    touch(in("one/file"));
    errno = 0;
    assert_false(pl_tree_make(in("one/file/below")));
    assert_int_equal(errno, ENOTDIR);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)
RUN(CASE(a_folder_goes_with_its_content_and_links_go_alone),
    CASE(a_link_in_place_of_the_folder_is_removed_and_not_followed), CASE(what_is_not_there_is_gone_already),
    CASE(many_files_are_no_trouble), CASE(a_path_is_made_with_all_above_it))
