/* What the keeper holds for the door: written, read back, and refused when it is not that. */
#include <string.h>

#include "door/papers.h"
#include "unit.h"

static struct pl_papers sample(void) {
    struct pl_papers p = { 0 };
    struct pl_err err;
    assert_true(pl_papers_add(&p, PL_PAPER_KEYS, "/etc/keys with space.yaml", "- a\n", 4, &err));
    assert_true(pl_papers_add(&p, PL_PAPER_CERTIFICATE, "a.pem", "A\0\n1 2\n", 7, &err));
    assert_true(pl_papers_add(&p, PL_PAPER_PRIVATE_KEY, "", "", 0, &err));
    assert_true(pl_papers_add(&p, PL_PAPER_CERTIFICATE, "b.pem", "B", 1, &err));
    return p;
}

TEST(papers_come_back_as_they_were) {
    struct pl_papers p = sample(), back = { 0 };
    struct pl_buf text;
    struct pl_err err;
    pl_buf_init(&text, 0);
    assert_true(pl_papers_write(&p, &text));
    assert_true(pl_papers_read(&back, text.data, text.len, &err));
    assert_true(pl_papers_same(&p, &back));
    assert_string_equal(pl_papers_find(&back, PL_PAPER_CERTIFICATE, 1)->bytes, "B");
    assert_string_equal(pl_papers_find(&back, PL_PAPER_KEYS, 0)->place, "/etc/keys with space.yaml");
    assert_null(pl_papers_find(&back, PL_PAPER_CERTIFICATE, 2));
    assert_null(pl_papers_find(&back, PL_PAPER_AUTHORITIES, 0));
    back.at[3].bytes[0] = 'C';
    assert_false(pl_papers_same(&p, &back));
    pl_papers_free(&back);
    pl_buf_free(&text);
    pl_papers_free(&p);
}

TEST(a_kind_of_a_later_version_is_skipped) {
    struct pl_papers p = { 0 };
    struct pl_err err;
    static const char text[] = "hologram 1 3\nxabckeys 0 2\nhi";
    assert_true(pl_papers_read(&p, text, sizeof text - 1, &err));
    assert_int_equal(p.count, 1);
    assert_string_equal(p.at[0].bytes, "hi");
    pl_papers_free(&p);
}

TEST(what_is_cut_is_refused) {
    static const char *const all[] = { "keys 0 3\nab", "keys 0 3", "keys 9 0\nab",
                                       "keys x 0\n",   "keys\n",   "keys 0 99999999999999999999\n",
                                       "keys 600 1\n" };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct pl_papers p = { 0 };
        struct pl_err err;
        assert_false(pl_papers_read(&p, all[i], strlen(all[i]), &err));
        pl_papers_free(&p);
    }
}

RUN(cmocka_unit_test(papers_come_back_as_they_were), cmocka_unit_test(a_kind_of_a_later_version_is_skipped),
    cmocka_unit_test(what_is_cut_is_refused))
