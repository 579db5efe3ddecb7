#include "snapshot/conf.h"

#include <string.h>

#include "unit.h"

#define MIB (UINT64_C(1) << 20)

static bool parse(const char *text, struct pl_alloc_conf *c, struct pl_err *err) {
    pl_alloc_conf_init(c);
    return pl_alloc_conf_parse(c, text, err);
}

TEST(every_key_is_read) {
    struct pl_alloc_conf c;
    struct pl_err err;
    assert_true(parse(" expandable_segments : True, max_split_size_mb:128 "
                      ",garbage_collection_threshold:0.6,per_process_memory_fraction:.9,"
                      "roundup_power2_divisions:8,throw_on_cudamalloc_oom:True,max_non_split_rounding_mb:40,"
                      "pinned_use_background_threads:True",
                      &c, &err));
    assert_true(c.expandable && c.throw_on_oom && c.max_split == 128 * MIB &&
                c.non_split_rounding == 40 * MIB);
    assert_true(c.gc > 0.59 && c.gc < 0.61 && c.fraction > 0.89 && c.fraction < 0.91 && c.roundup[0] == 8 &&
                c.roundup[15] == 8);
    assert_true(parse("", &c, &err) && !c.expandable && c.max_split == PL_ALLOC_UNLIMITED &&
                c.large_segment == 20 * MIB);
    assert_true(parse("backend:cudaMallocAsync", &c, &err) && c.async);
}

TEST(the_large_segment_is_read_first) {
    struct pl_alloc_conf c;
    struct pl_err err;
    assert_true(parse("max_split_size_mb:12,large_segment_size_mb:12", &c, &err));
    assert_true(c.large_segment == 12 * MIB && c.non_split_rounding == 12 * MIB && c.max_split == 12 * MIB);
    assert_false(parse("max_split_size_mb:12", &c, &err));
}

TEST(intervals_of_a_list_are_filled) {
    struct pl_alloc_conf c;
    struct pl_err err;
    assert_true(parse("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", &c, &err));
    static const uint32_t want[] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8 };
    assert_memory_equal(c.roundup, want, sizeof want);
}

TEST(what_pytorch_would_refuse_is_refused) {
    static const char *const texts[] = { "expandable_segments:true",
                                         "expandable_segments",
                                         "max_split_size_mb:19",
                                         "max_split_size_mb:x",
                                         "garbage_collection_threshold:1",
                                         "garbage_collection_threshold:0",
                                         "per_process_memory_fraction:1.1",
                                         "roundup_power2_divisions:3",
                                         "roundup_power2_divisions:[3:1]",
                                         "roundup_power2_divisions:[256:3]",
                                         "roundup_power2_divisions:[256:1",
                                         "large_segment_size_mb:10",
                                         "backend:mine",
                                         "max_spilt_size_mb:128",
                                         ":",
                                         "a:" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct pl_alloc_conf c;
        struct pl_err err = { 0 };
        if (parse(texts[i], &c, &err)) fail_msg("%s was accepted", texts[i]);
        assert_int_equal(err.code, PL_E_CONFIG);
        assert_true(strlen(err.msg) > 10);
    }
}

RUN(cmocka_unit_test(every_key_is_read), cmocka_unit_test(the_large_segment_is_read_first),
    cmocka_unit_test(intervals_of_a_list_are_filled), cmocka_unit_test(what_pytorch_would_refuse_is_refused))
