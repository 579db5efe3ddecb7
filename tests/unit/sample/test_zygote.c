#include <stdlib.h>
#include <string.h>

#include "base/wire.h"
#include "sample/zygote.h"
#include "unit.h"

/* As python/plimsoll/zygote.py packs it; tests/python/test_zygote.py reads the same bytes. */
static unsigned char page[PL_ZYGOTE_PAGE_BYTES];
static struct pl_zygote_page out;

static void put(size_t at, uint32_t value) { memcpy(page + at, &value, sizeof value); }

static void fill(uint32_t magic, uint32_t state) {
    memset(page, 0, sizeof page);
    put(0, magic);
    put(4, state);
    put(8, 4711);
    put(12, 1157);
    put(16, 900);
    memcpy(page + 24, "numpy starts\na thread", 22);
    memcpy(page + 264, "numpy", 6);
}

TEST(what_was_written_is_read_and_made_printable) {
    fill(PL_ZYGOTE_MAGIC, PL_ZYGOTE_REFUSED);
    assert_true(pl_zygote_read(page, sizeof page, &out));
    assert_int_equal(out.state, PL_ZYGOTE_REFUSED);
    assert_int_equal(out.standby, 4711);
    assert_int_equal(out.modules, 1157);
    assert_int_equal(out.took_ms, 900);
    assert_string_equal(out.reason, "numpy starts?a thread");
    assert_string_equal(out.module, "numpy");
}

TEST(what_is_no_page_is_nothing_yet) {
    assert_false(pl_zygote_read(NULL, 0, &out));
    fill(PL_ZYGOTE_MAGIC + 1, PL_ZYGOTE_READY);
    assert_false(pl_zygote_read(page, sizeof page, &out));
    fill(PL_ZYGOTE_MAGIC, 0);
    assert_false(pl_zygote_read(page, sizeof page, &out));
    fill(PL_ZYGOTE_MAGIC, 4);
    assert_false(pl_zygote_read(page, sizeof page, &out));
    fill(PL_ZYGOTE_MAGIC, PL_ZYGOTE_READY);
    assert_false(pl_zygote_read(page, 100, &out));
    assert_int_equal(out.state, PL_ZYGOTE_NOTHING);
}

TEST(texts_without_an_end_are_cut) {
    fill(PL_ZYGOTE_MAGIC, PL_ZYGOTE_READY);
    memset(page + 24, 'x', sizeof page - 24);
    assert_true(pl_zygote_read(page, sizeof page, &out));
    assert_int_equal(strlen(out.reason), sizeof out.reason - 1);
    assert_int_equal(strlen(out.module), sizeof out.module - 1);
    for (unsigned n = 0; n < 2000; n++) { /* and whatever else is there */
        for (size_t i = 8; i < 400; i++) page[i] = (unsigned char)rand();
        if (!pl_zygote_read(page, sizeof page, &out)) continue;
        for (const char *c = out.reason; *c != '\0'; c++) assert_true((unsigned char)*c >= ' ');
    }
}

RUN(cmocka_unit_test(what_was_written_is_read_and_made_printable),
    cmocka_unit_test(what_is_no_page_is_nothing_yet), cmocka_unit_test(texts_without_an_end_are_cut))
