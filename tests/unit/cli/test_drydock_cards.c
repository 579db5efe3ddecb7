/* Words to cards: GPU names, bytes, faults. */
#include <string.h>

#include "drydock/table.h"
#include "unit.h"

#define MIB ((uint64_t)1 << 20)

TEST(every_card_of_the_table_is_known_by_its_name) {
    size_t count;
    const struct dd_gpu *known = dd_gpu_known(&count);
    assert_true(count >= 9);
    for (size_t i = 0; i < count; i++) {
        struct dd_gpu g;
        char error[DD_ERROR];
        if (!dd_gpu_parse(known[i].key, &g, error)) fail_msg("%s: %s", known[i].key, error);
        assert_string_equal(g.product, known[i].product);
        assert_true(g.total == known[i].total && g.count == 1);
        assert_true(g.major >= 7 && g.sms >= 14);
    }
}

TEST(a_card_may_be_several_and_of_any_size) {
    static const struct {
        const char *text, *product;
        int count, major, sms;
        uint64_t mib;
    } good[] = {
        { "a100-40", "NVIDIA A100-SXM4-40GB", 1, 8, 108, 40442 },
        { "A100-40x2", "NVIDIA A100-SXM4-40GB", 2, 8, 108, 40442 },
        { "rtx4090", "NVIDIA GeForce RTX 4090", 1, 8, 128, 24081 },
        { "rtx4090x4", "NVIDIA GeForce RTX 4090", 4, 8, 128, 24081 },
        { "h100:24GiB", "NVIDIA H100 80GB HBM3", 1, 9, 132, 24576 },
        { "mine:1024MiB", "mine", 1, 8, 108, 1024 },
        { "mine:1GiBx3", "mine", 3, 8, 108, 1024 },
        { "minex3:1GiB", "mine", 3, 8, 108, 1024 },
        { "a100-40-2g.10gb", "NVIDIA A100-SXM4-40GB MIG 2g.10gb", 1, 8, 28, 9984 },
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct dd_gpu g;
        char error[DD_ERROR];
        if (!dd_gpu_parse(good[i].text, &g, error)) fail_msg("%s: %s", good[i].text, error);
        assert_string_equal(g.product, good[i].product);
        assert_int_equal(g.count, good[i].count);
        assert_int_equal(g.major, good[i].major);
        assert_int_equal(g.sms, good[i].sms);
        assert_true(g.total == good[i].mib * MIB);
    }
}

TEST(what_is_no_card_is_told_what_is_one) {
    static const struct {
        const char *text, *part;
    } bad[] = {
        { "a100", "known: t4 l4" },
        { "", "known:" },
        { ":24GiB", "known:" },
        { "a100-40x99", "at most 16 cards" },
        { "mine:24GB", "two readings" },
        { "mine:lots", "not a number of bytes" },
        { "mine:1MiB", "at least 64MiB" },
        { "mine:99TiB", "more than 16 TiB" },
        { "mine:-1GiB", "not a number" },
        { "mine:24QiB", "unknown unit 'QiB'" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct dd_gpu g;
        char error[DD_ERROR] = "";
        if (dd_gpu_parse(bad[i].text, &g, error)) fail_msg("accepted: %s", bad[i].text);
        if (strstr(error, bad[i].part) == NULL) fail_msg("%s: %s", bad[i].text, error);
    }
}

TEST(faults_are_set_and_cleared_by_words) {
    static struct dd_table t;
    char error[DD_ERROR];
    struct dd_plan p = { .gpu = "t4x2", .faults = "0=silent,1=foreign:2GiB,1=xid:79" };
    assert_true(dd_table_fill(&t, &p, error));
    assert_int_equal(t.cards, 2);
    assert_int_equal(t.card[0].faults, DD_SILENT);
    assert_true(t.card[1].foreign == 2048 * MIB);
    assert_int_equal(t.card[1].xid, 79);
    assert_true(dd_faults_parse(&t, "0=lost,0=kept,1=xid:13", error));
    assert_int_equal(t.card[0].faults, DD_SILENT | DD_LOST | DD_KEPT);
    assert_int_equal(t.card[1].xids, 2);
    assert_true(dd_faults_parse(&t, "0=none,1=none", error));
    assert_int_equal(t.card[0].faults, 0);
    assert_true(t.card[1].foreign == 0);
    static const char *const bad[] = { "silent", "2=lost",      "-1=lost",       "0=broken",
                                       "0=xid:", "0=xid:seven", "0=foreign:2GB", "x=lost" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (dd_faults_parse(&t, bad[i], error)) fail_msg("accepted: %s", bad[i]);
}

RUN(cmocka_unit_test(every_card_of_the_table_is_known_by_its_name),
    cmocka_unit_test(a_card_may_be_several_and_of_any_size),
    cmocka_unit_test(what_is_no_card_is_told_what_is_one),
    cmocka_unit_test(faults_are_set_and_cleared_by_words))
