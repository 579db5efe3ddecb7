#include "keeper/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/tree.h"
#include "unit.h"

static char base[32];
static char path[64];
static struct pl_run_folder run;
static struct pl_err err;

static int make_base(void **state) {
    (void)state;
    strcpy(base, "/tmp/plXXXXXX");
    if (mkdtemp(base) == NULL) return -1;
    snprintf(path, sizeof path, "%s/run", base);
    return 0;
}

static int remove_base(void **state) {
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", base);
    return system(command);
}

static const char *in(const char *name) {
    static char text[4][256];
    static int next;
    char *out = text[next++ % 4];
    snprintf(out, sizeof text[0], "%s/%s", path, name);
    return out;
}

static bool exists(const char *name) {
    struct stat st;
    return lstat(name, &st) == 0;
}

static void touch(const char *name) {
    int fd = open(name, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void make_socket(const char *name) {
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    strncpy(at.sun_path, name, sizeof at.sun_path - 1);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    close(fd);
}

TEST(it_is_made_locked_and_removed) {
    struct stat st;
    char text[24] = "";
    char wanted[24];
    assert_true(pl_run_folder_open(&run, path, &err));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat(in("lock"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_true(pread(run.lock_fd, text, sizeof text - 1, 0) > 0);
    snprintf(wanted, sizeof wanted, "%d\n", (int)getpid());
    assert_string_equal(text, wanted);
    assert_true(exists(in("w")) && exists(in("prom")) && exists(in("tmp")) && exists(in("snap")));
    pl_run_folder_close(&run);
    assert_false(exists(path));
    pl_run_folder_close(&run); /* nothing more to do */
}

TEST(a_second_one_is_told_whose_it_is) {
    struct pl_run_folder second;
    char wanted[64];
    assert_true(pl_run_folder_open(&run, path, &err));
    assert_false(pl_run_folder_open(&second, path, &err));
    assert_int_equal(pl_err_exit_status(err.code), 5);
    snprintf(wanted, sizeof wanted, "in use by the keeper with pid %d", (int)getpid());
    assert_non_null(strstr(err.msg, wanted));
    assert_int_equal(second.fd, -1);
    assert_true(ftruncate(run.lock_fd, 0) == 0);
    assert_false(pl_run_folder_open(&second, path, &err));
    assert_non_null(strstr(err.msg, "in use by another keeper"));
    pl_run_folder_close(&run);
    assert_true(pl_run_folder_open(&second, path, &err));
    pl_run_folder_close(&second);
}

TEST(a_lock_file_that_was_removed_under_us_is_no_lock) {
    struct pl_run_folder second;
    assert_true(pl_run_folder_open(&run, path, &err));
    assert_int_equal(unlink(in("lock")), 0);
    assert_true(pl_run_folder_open(&second, path, &err));
    pl_run_folder_close(&second);
    pl_run_folder_close(&run);
}

TEST(leftovers_go_at_the_start) {
    assert_true(pl_run_folder_open(&run, path, &err));
    make_socket(in("admin.sock"));
    make_socket(in("w/1"));
    touch(in("prom/x.db"));
    assert_int_equal(mkdir(in("tmp/a"), 0700), 0);
    touch(in("tmp/a/b"));
    touch(in("other"));
    close(run.lock_fd); /* as a kill would */
    close(run.fd);
    assert_true(pl_run_folder_open(&run, path, &err));
    assert_false(exists(in("admin.sock")) || exists(in("w/1")) || exists(in("prom/x.db")) ||
                 exists(in("tmp/a")));
    assert_true(exists(in("w")) && exists(in("other")));
    pl_run_folder_close(&run);
    assert_true(exists(in("other")));
    assert_false(exists(in("lock")) || exists(in("w")));
}

TEST(a_subfolder_that_is_something_else_is_made_anew) {
    struct stat st;
    char outside[64];
    snprintf(outside, sizeof outside, "%s/outside", base);
    assert_int_equal(mkdir(outside, 0700), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    touch(in("w"));
    assert_int_equal(symlink(outside, in("prom")), 0);
    assert_int_equal(mkdir(in("tmp"), 0777), 0);
    assert_true(pl_run_folder_open(&run, path, &err));
    assert_true(lstat(in("w"), &st) == 0 && S_ISDIR(st.st_mode));
    assert_true(lstat(in("prom"), &st) == 0 && S_ISDIR(st.st_mode));
    assert_true(lstat(in("tmp"), &st) == 0 && (st.st_mode & 07777) == 0700);
    pl_run_folder_close(&run);
    assert_false(exists(path));
    assert_true(exists(outside));
}

TEST(removal_follows_no_link_and_many_files_are_no_trouble) {
    char outside[64];
    char name[96];
    snprintf(outside, sizeof outside, "%s/outside", base);
    assert_int_equal(mkdir(outside, 0700), 0);
    snprintf(name, sizeof name, "%s/precious", outside);
    touch(name);
    assert_true(pl_run_folder_open(&run, path, &err));
    assert_int_equal(symlink(outside, in("tmp/link")), 0);
    assert_int_equal(symlink(name, in("w/link")), 0);
    for (int i = 0; i < 2000; i++) {
        char file[32];
        snprintf(file, sizeof file, "prom/%d.db", i);
        touch(in(file));
    }
    pl_run_folder_close(&run);
    assert_false(exists(path));
    assert_true(exists(name));
}

TEST(what_is_too_deep_stays_and_ends_nothing) {
    char name[256] = "tmp";
    assert_true(pl_run_folder_open(&run, path, &err));
    for (int i = 0; i < PL_TREE_DEPTH + 5; i++) {
        strcat(name, "/d");
        assert_int_equal(mkdir(in(name), 0700), 0);
    }
    pl_run_folder_close(&run);
    assert_true(exists(in("tmp")));
    assert_false(exists(in("lock")) || exists(in("w")));
}

TEST(a_path_that_leaves_no_room_for_sockets_is_refused) {
    char text[160];
    memset(text, 'x', sizeof text);
    memcpy(text, "/tmp/none/", 10);
    text[92] = 0;
    assert_false(pl_run_folder_open(&run, text, &err));
    assert_non_null(strstr(err.msg, "too long by 1 bytes"));
    assert_int_equal(pl_err_exit_status(err.code), 5);
    text[91] = 0;
    assert_false(pl_run_folder_open(&run, text, &err));
    assert_non_null(strstr(err.msg, "the folder above it does not exist"));
}

TEST(a_folder_that_others_may_read_is_refused) {
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, 0750), 0);
    assert_false(pl_run_folder_open(&run, path, &err));
    assert_non_null(strstr(err.msg, "has mode 0750 and must be ours alone: chmod 700"));
    assert_int_equal(run.fd, -1);
    assert_false(exists(in("lock")));
}

TEST(names_of_sockets_stay_in_their_place) {
    static const char *const good[] = { "a", "w/a", "admin.sock", "w/12.3", "...", "w/..x", "w" };
    static const char *const bad[] = { "",    ".",    "..",    "/a",   "a/b",    "w/",   "w/.",  "w/..",
                                       "w//", "w/a/", "w/a/b", "../a", "w/../a", "/w/a", "tmp/a" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(pl_run_folder_socket_name_ok(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(pl_run_folder_socket_name_ok(bad[i]));
}

TEST(only_sockets_are_removed_as_sockets) {
    assert_true(pl_run_folder_open(&run, path, &err));
    make_socket(in("w/1"));
    touch(in("w/2"));
    pl_run_folder_remove_socket(&run, "w/1");
    pl_run_folder_remove_socket(&run, "w/2");
    pl_run_folder_remove_socket(&run, "lock");
    pl_run_folder_remove_socket(&run, "w");
    pl_run_folder_remove_socket(&run, "none");
    assert_false(exists(in("w/1")));
    assert_true(exists(in("w/2")) && exists(in("lock")));
    pl_run_folder_close(&run);
}

#define WITH_BASE(f) cmocka_unit_test_setup_teardown(f, make_base, remove_base)
RUN(WITH_BASE(it_is_made_locked_and_removed), WITH_BASE(a_second_one_is_told_whose_it_is),
    WITH_BASE(a_lock_file_that_was_removed_under_us_is_no_lock), WITH_BASE(leftovers_go_at_the_start),
    WITH_BASE(a_subfolder_that_is_something_else_is_made_anew),
    WITH_BASE(removal_follows_no_link_and_many_files_are_no_trouble),
    WITH_BASE(what_is_too_deep_stays_and_ends_nothing),
    WITH_BASE(a_path_that_leaves_no_room_for_sockets_is_refused),
    WITH_BASE(a_folder_that_others_may_read_is_refused), WITH_BASE(names_of_sockets_stay_in_their_place),
    WITH_BASE(only_sockets_are_removed_as_sockets))
