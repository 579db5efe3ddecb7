/* What the writer writes, the reader reads. */
#include "cli/drydock_elf.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

struct seen {
    char libraries[256], wants[512], has[2048];
    size_t has_count, want_count;
};

static void add(char *list, size_t room, const char *name, const char *version) {
    size_t n = strlen(list);
    snprintf(list + n, room - n, "%s%s%s ", name, version[0] != '\0' ? "@" : "", version);
}
static void on_library(void *ctx, const char *name) {
    struct seen *s = ctx;
    add(s->libraries, sizeof s->libraries, name, "");
}
static void on_want(void *ctx, const char *name, const char *version) {
    struct seen *s = ctx;
    s->want_count++;
    add(s->wants, sizeof s->wants, name, version);
}
static void on_has(void *ctx, const char *name) {
    struct seen *s = ctx;
    s->has_count++;
    add(s->has, sizeof s->has, name, "");
}

static bool read_into(const void *data, size_t len, struct seen *s, struct pl_err *err) {
    struct pl_elf_sink sink = { .library = on_library, .wants = on_want, .has = on_has, .ctx = s };
    memset(s, 0, sizeof *s);
    return pl_elf_read(data, len, &sink, err);
}

static const struct pl_stub stubs[] = {
    { .name = "cublasOne", .kinds = "", .versioned = true },
    { .name = "cublasGetNothing", .kinds = "", .lacking = true },
    { .name = "cublasTwo_bufferSize",
      .kinds = "iidfiiiii",
      .outs = { { 1, PL_STUB_I32 }, { 8, PL_STUB_I64 }, { 0, PL_STUB_HANDLE } },
      .out_count = 3,
      .versioned = true },
};

static void write_library(struct pl_buf *b, const char *node) {
    struct pl_err err = { 0 };
    pl_buf_init(b, 1 << 20);
    if (!pl_elf_write(b, "libx.so.13", "libcore.so", stubs, 3, node, &err)) fail_msg("%s", err.msg);
}

TEST(a_written_library_says_what_it_has_and_needs) {
    struct pl_buf b;
    struct seen s;
    struct pl_err err = { 0 };
    write_library(&b, "libx.so.13");
    assert_true(read_into(b.data, b.len, &s, &err));
    assert_string_equal(s.libraries, "libcore.so ");
    assert_string_equal(s.wants, "dd_stub dd_lacks ");
    assert_string_equal(s.has, "cublasOne cublasGetNothing cublasTwo_bufferSize ");
    pl_buf_free(&b);
    write_library(&b, "");
    assert_true(read_into(b.data, b.len, &s, &err));
    assert_int_equal(s.has_count, 3);
    pl_buf_free(&b);
}

TEST(a_written_library_may_be_empty) {
    struct pl_buf b;
    struct seen s;
    struct pl_err err = { 0 };
    pl_buf_init(&b, 1 << 20);
    assert_true(pl_elf_write(&b, "libcudart.so.13", "libcore.so", stubs, 0, "libcudart.so.13", &err));
    assert_true(read_into(b.data, b.len, &s, &err));
    assert_int_equal(s.has_count, 0);
    pl_buf_free(&b);
}

TEST(an_out_parameter_that_is_no_pointer_argument_is_refused) {
    static const struct pl_stub bad[] = {
        { .name = "f", .kinds = "id", .outs = { { 1, PL_STUB_I32 } }, .out_count = 1 },
        { .name = "g", .kinds = "i", .outs = { { 1, PL_STUB_I32 } }, .out_count = 1 },
        { .name = "h", .kinds = "i", .outs = { { -1, PL_STUB_I32 } }, .out_count = 1 },
    };
    for (size_t i = 0; i < 3; i++) {
        struct pl_buf b;
        struct pl_err err = { 0 };
        pl_buf_init(&b, 1 << 20);
        assert_false(pl_elf_write(&b, "libx.so", "libcore.so", &bad[i], 1, "", &err));
        assert_non_null(strstr(err.msg, bad[i].name));
        pl_buf_free(&b);
    }
}

TEST(this_program_itself_is_read_with_its_versions) {
    struct stat st;
    struct seen s;
    struct pl_err err = { 0 };
    int fd = open("/proc/self/exe", O_RDONLY);
    assert_int_equal(fstat(fd, &st), 0);
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(data != MAP_FAILED);
    assert_true(read_into(data, (size_t)st.st_size, &s, &err));
    assert_non_null(strstr(s.libraries, "libcmocka.so"));
    assert_non_null(strstr(s.wants, "@GLIBC_2."));
    munmap(data, (size_t)st.st_size);
    close(fd);
}

TEST(what_is_no_library_is_refused_in_words) {
    struct seen s;
    struct pl_err err = { 0 };
    unsigned char other[64] = { 0x7f, 'E', 'L', 'F', 1, 1 };
    assert_false(read_into("hello", 5, &s, &err));
    assert_string_equal(err.msg, "not an ELF file");
    err = (struct pl_err){ 0 };
    assert_false(read_into(other, sizeof other, &s, &err));
    assert_string_equal(err.msg, "not a 64-bit little-endian ELF file");
}

/* Every shorter file: an error or less, never more than is there. A copy of the exact size lets ASan see. */
TEST(a_file_that_is_cut_off_anywhere_is_read_without_harm) {
    struct pl_buf b;
    write_library(&b, "libx.so.13");
    for (size_t len = 0; len < b.len; len += len < 1200 ? 1 : 61) {
        struct seen s;
        struct pl_err err = { 0 };
        void *copy = malloc(len != 0 ? len : 1);
        memcpy(copy, b.data, len);
        read_into(copy, len, &s, &err);
        assert_true(s.has_count <= 3);
        free(copy);
    }
    pl_buf_free(&b);
}

RUN(cmocka_unit_test(a_written_library_says_what_it_has_and_needs),
    cmocka_unit_test(a_written_library_may_be_empty),
    cmocka_unit_test(an_out_parameter_that_is_no_pointer_argument_is_refused),
    cmocka_unit_test(this_program_itself_is_read_with_its_versions),
    cmocka_unit_test(what_is_no_library_is_refused_in_words),
    cmocka_unit_test(a_file_that_is_cut_off_anywhere_is_read_without_harm))
