/* Which GPUs a worker gets: the whole rule as tables. */
#include <string.h>

#include "unit.h"
#include "worker/devices.h"

static struct pl_err err;

static struct pl_config *with(const char *gpus, const char *each) {
    struct pl_config *c = pl_config_create();
    assert_true(pl_config_add_target(c, "s:C", "c", false, &err));
    assert_true(pl_config_set(c, 0, "gpus", gpus, PL_FROM_FILE, "here", &err));
    assert_true(pl_config_set(c, 0, "gpus_per_worker", each, PL_FROM_FILE, "here", &err));
    return c;
}

TEST(every_slot_gets_its_group) {
    static const struct {
        const char *gpus, *each, *visible;
        uint32_t slot;
        const char *want; /* NULL: as inherited */
    } rows[] = {
        /* nothing said: as inherited, or the whole of it */
        { "all", "all", NULL, 1, NULL },
        { "all", "all", "0,1", 1, "0,1" },
        { "all", "all", "0,1", 2, "0,1" },
        { "all", "all", "", 1, "" },
        { "all", "1", "2,3", 1, "2" },
        { "all", "1", "2,3", 2, "3" },
        { "all", "1", " 2 , 3 ", 2, "3" },
        { "all", "2", "2,3,-1,5", 1, "2,3" }, /* CUDA stops at -1 */
        /* a list */
        { "0", "all", NULL, 1, "" }, /* how many: none */
        { "[0]", "all", NULL, 1, "0" },
        { "[1,0]", "all", NULL, 2, "1,0" },
        { "[0,1]", "1", NULL, 1, "0" },
        { "[0,1]", "1", NULL, 2, "1" },
        { "[0,1]", "1", NULL, 3, "0" }, /* more workers than GPUs: they share */
        { "[0,1,2,3]", "2", NULL, 1, "0,1" },
        { "[0,1,2,3]", "2", NULL, 2, "2,3" },
        { "[0,1,2]", "2", NULL, 2, "0,1" }, /* the third is no whole group */
        { "GPU-aa,GPU-bb", "1", NULL, 2, "GPU-bb" },
        { "[3]", "all", "2,3", 1, "3" },
        { "GPU-aabb", "all", "GPU-aabb-cc,GPU-dd", 1, "GPU-aabb" }, /* its beginning is enough */
        /* how many */
        { "2", "1", NULL, 2, "1" },
        { "12", "all", NULL, 1, "0,1,2,3,4,5,6,7,8,9,10,11" },
        { "1", "all", "2,3", 1, "2" },
        { "2", "1", "GPU-aa,GPU-bb", 2, "GPU-bb" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char got[PL_DEVICES_TEXT];
        bool told;
        struct pl_config *c = with(rows[i].gpus, rows[i].each);
        if (!pl_devices_of(&c->services[0], rows[i].visible, rows[i].slot, got, &told, &err))
            fail_msg("row %zu: %s", i, err.msg);
        assert_int_equal(told, rows[i].want != NULL);
        if (told && strcmp(got, rows[i].want) != 0) fail_msg("row %zu: '%s'", i, got);
        pl_config_destroy(c);
    }
}

TEST(what_cannot_be_had_is_refused_with_the_reason) {
    static const struct {
        const char *gpus, *each, *visible, *message, *hint;
    } rows[] = {
        { "all", "1", NULL, "gpus_per_worker of service c: it is not known which GPUs there are",
          "say which the service may use, as in gpus: [0, 1]" },
        { "[0]", "all", "2,3", "gpus of service c: 0 is not among CUDA_VISIBLE_DEVICES (2,3)",
          "name the GPUs as CUDA_VISIBLE_DEVICES does, or start plimsoll with more of them" },
        { "[2]", "all", "GPU-aa", "gpus of service c: 2 is not among CUDA_VISIBLE_DEVICES (GPU-aa)", NULL },
        { "[1]", "all", "", "gpus of service c: 1 is not among CUDA_VISIBLE_DEVICES ()", NULL },
        { "1,01", "all", NULL, "gpus of service c: 01 is there twice", NULL },
        { "3", "all", "0,1", "gpus of service c: 3 are wanted and CUDA_VISIBLE_DEVICES has 2", NULL },
        { "[0]", "2", NULL, "gpus_per_worker of service c: 2 are wanted and there are 1", NULL },
        { "100", "all", NULL, "gpus of service c: more than 64", NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char got[PL_DEVICES_TEXT];
        bool told;
        struct pl_config *c = with(rows[i].gpus, rows[i].each);
        err = (struct pl_err){ 0 };
        assert_false(pl_devices_of(&c->services[0], rows[i].visible, 1, got, &told, &err));
        assert_string_equal(err.msg, rows[i].message);
        assert_int_equal(err.code, PL_E_CONFIG);
        if (rows[i].hint != NULL) assert_string_equal(err.hint, rows[i].hint);
        pl_config_destroy(c);
    }
}

static const char two[] = "GPU 0: NVIDIA H200 (UUID: GPU-aaaa)\nGPU 1: NVIDIA H200 (UUID: GPU-bbbb)\n";
static const char mig[] = "GPU 0: NVIDIA A100 (UUID: GPU-aaaa)\n"
                          "  MIG 1g.5gb     Device  0: (UUID: MIG-1111)\n"
                          "  MIG 1g.5gb     Device  1: (UUID: MIG-2222)\n"
                          "GPU 1: NVIDIA A100 (UUID: GPU-bbbb)";

TEST(what_nvidia_smi_lists_are_uuids) {
    char out[PL_DEVICES_TEXT];
    assert_int_equal(pl_devices_listed(two, sizeof two - 1, out), 2);
    assert_string_equal(out, "GPU-aaaa,GPU-bbbb");
    assert_int_equal(pl_devices_listed(mig, sizeof mig - 1, out), 3);
    assert_string_equal(out, "MIG-1111,MIG-2222,GPU-bbbb");
    assert_int_equal(pl_devices_listed("No devices were found\n", 22, out), 0);
    assert_int_equal(pl_devices_listed("(UUID: GPU-a", 12, out), 0);
    for (size_t len = 0; len < sizeof mig; len++) pl_devices_listed(mig, len, out);
}

TEST(an_instance_below_a_name_that_is_none_takes_nobodys_place) {
    static const char odd[] = "GPU 0: NVIDIA (UUID: IA-0000)\n  MIG 1g.5gb Device 0: (UUID: MIG-1111)\n";
    char out[PL_DEVICES_TEXT];
    assert_int_equal(pl_devices_listed(odd, sizeof odd - 1, out), 1);
    assert_string_equal(out, "MIG-1111");
}

TEST(indexes_become_uuids_where_both_are_known) {
    static const struct {
        const char *gpus, *each, *visible, *want; /* NULL: stays */
    } rows[] = {
        { "[1,0]", "all", NULL, "GPU-bbbb,GPU-aaaa" },
        { "[1]", "all", "GPU-bbbb", "GPU-bbbb" },
        { "[1]", "all", "1,2", NULL },
        { "GPU-bbbb", "all", NULL, NULL },
        { "[2]", "all", NULL, NULL },
        { "all", "all", NULL, NULL },
        { "all", "1", NULL, "GPU-aaaa,GPU-bbbb" },
        { "all", "1", "0", NULL },
        { "2", "1", NULL, NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char out[PL_DEVICES_TEXT];
        struct pl_config *c = with(rows[i].gpus, rows[i].each);
        bool changed = pl_devices_by_uuid(&c->services[0], "GPU-aaaa,GPU-bbbb", rows[i].visible, out);
        if (changed != (rows[i].want != NULL)) fail_msg("row %zu", i);
        if (changed) assert_string_equal(out, rows[i].want);
        assert_false(pl_devices_by_uuid(&c->services[0], "", rows[i].visible, out));
        pl_config_destroy(c);
    }
}

RUN(cmocka_unit_test(every_slot_gets_its_group),
    cmocka_unit_test(what_cannot_be_had_is_refused_with_the_reason),
    cmocka_unit_test(what_nvidia_smi_lists_are_uuids),
    cmocka_unit_test(an_instance_below_a_name_that_is_none_takes_nobodys_place),
    cmocka_unit_test(indexes_become_uuids_where_both_are_known))
