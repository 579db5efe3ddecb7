/* test_kube.c - quantities, comments that silence, the table of rules. What the rules find is
 * tests/e2e/test_manifest_check.py. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "ship/kube.h"

TEST(quantities_are_numbers) {
    static const struct {
        const char *text;
        double value;
    } good[] = { { "1", 1 },
                 { "500m", 0.5 },
                 { "5632Mi", 5905580032 },
                 { "1e3", 1000 },
                 { "2Gi", 2147483648 },
                 { "1.5Gi", 1610612736 },
                 { "2E", 2e18 },
                 { "1E3", 1000 },
                 { "12k", 12000 },
                 { "1e-3", 0.001 },
                 { "0", 0 },
                 { "1Ki", 1024 },
                 { "+3", 3 } };
    static const char *const bad[] = { "",   "Mi", "1mi",   "1 Gi",   "1GiB", "x",
                                       "1e", "--", "1.2.3", "1e3Mi4", "0x10", "inf" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        double x = -1;
        if (!pl_kube_quantity(good[i].text, &x)) fail_msg("%s is a quantity", good[i].text);
        if (x < good[i].value * 0.999999 || x > good[i].value * 1.000001)
            fail_msg("%s is %f", good[i].text, x);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        double x;
        if (pl_kube_quantity(bad[i], &x)) fail_msg("%s is no quantity", bad[i]);
    }
}

TEST(a_comment_silences_what_it_names_on_its_line) {
    static const char text[] = "a: 1 # plimsoll: ignore[K001]\nb: 2 # plimsoll: ignore[K002, K003]\nc: "
                               "\"plimsoll: ignore[K004]\"\nd # plimsoll: ignore[K005";
    static const struct {
        uint32_t line;
        const char *rule;
        bool off;
    } cases[] = { { 1, "K001", true },  { 1, "K002", false }, { 2, "K002", true },
                  { 2, "K003", true },  { 2, "K001", false }, { 3, "K004", false },
                  { 4, "K005", false }, { 5, "K001", false }, { 0, "K001", true } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (pl_kube_ignored(text, sizeof text - 1, cases[i].line, cases[i].rule) != cases[i].off)
            fail_msg("line %u %s", cases[i].line, cases[i].rule);
}

TEST(every_rule_has_an_id_a_sentence_and_a_remedy) {
    for (size_t i = 0; i < PL_KUBE_RULES; i++) {
        char id[8];
        snprintf(id, sizeof id, "K%03zu", i + 1);
        assert_string_equal(pl_kube_rules[i].id, id);
        assert_true(strlen(pl_kube_rules[i].finding) > 10 && strlen(pl_kube_rules[i].remedy) > 6);
    }
}

RUN(cmocka_unit_test(quantities_are_numbers), cmocka_unit_test(a_comment_silences_what_it_names_on_its_line),
    cmocka_unit_test(every_rule_has_an_id_a_sentence_and_a_remedy))
