/* A page that lies: headers that point elsewhere, and bytes of any kind. */
#include <stdlib.h>

#include "page_writer.h"
#include "sample/page.h"
#include "unit.h"

static union page_memory m;

struct lie {
    const char *name;
    void (*tell)(struct pl_page_head *h);
};

#define LIE(name, statement) \
    static void name(struct pl_page_head *h) { statement; }
LIE(other_magic, h->magic = 0x12345678)
LIE(next_major, h->major = PL_PAGE_MAJOR + 1)
LIE(major_zero, h->major = 0)
LIE(short_header, h->head_bytes = 16)
LIE(huge_header, h->head_bytes = UINT32_MAX)
LIE(header_over_the_page, h->head_bytes = 4097)
LIE(larger_than_it_is, h->total_bytes *= 2)
LIE(smaller_than_it_is, h->total_bytes = 4096)
LIE(another_kind, h->kind = PL_PAGE_WATCH)
LIE(counters_behind_the_end, h->counters.at = PL_PAGE_BYTES)
LIE(counters_over_the_end, h->counters.at = PL_PAGE_BYTES - 64)
LIE(small_counters, h->counters.stride = 64)
LIE(crooked_ring, h->begins.at += 8)
LIE(ring_that_wraps_around, h->begins.at = UINT32_MAX - 63)
LIE(ring_over_the_end, h->ends.count = 4096)
LIE(empty_ring, h->begins.count = 0)
LIE(ring_not_a_power_of_two, h->begins.count = 1000)
LIE(endless_ring, h->begins.count = 0x80000000u)
LIE(small_records, h->ends.stride = 64)
LIE(huge_records, h->begins.stride = 1 << 20)
LIE(crooked_records, h->begins.stride = 72)
LIE(devices_over_the_end, h->devices.count = 4096)
LIE(small_devices, h->devices.stride = 64)
LIE(host_behind_the_end, h->host.at = PL_PAGE_BYTES)
LIE(crooked_engine, h->engine.at += 4)
LIE(tags_not_a_power_of_two, h->tags.count = 255)
LIE(small_tags, h->tags.stride = 64)

static const struct lie lies[] = {
#define ROW(name) \
    { #name, name }
    ROW(other_magic),
    ROW(next_major),
    ROW(major_zero),
    ROW(short_header),
    ROW(huge_header),
    ROW(header_over_the_page),
    ROW(larger_than_it_is),
    ROW(smaller_than_it_is),
    ROW(another_kind),
    ROW(counters_behind_the_end),
    ROW(counters_over_the_end),
    ROW(small_counters),
    ROW(crooked_ring),
    ROW(ring_that_wraps_around),
    ROW(ring_over_the_end),
    ROW(empty_ring),
    ROW(ring_not_a_power_of_two),
    ROW(endless_ring),
    ROW(small_records),
    ROW(huge_records),
    ROW(crooked_records),
    ROW(devices_over_the_end),
    ROW(small_devices),
    ROW(host_behind_the_end),
    ROW(crooked_engine),
    ROW(tags_not_a_power_of_two),
    ROW(small_tags),
};

TEST(every_lie_of_the_header_is_refused_and_answers_unknown) {
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct pl_page p;
        struct pl_page_counters c;
        struct pl_err err = { 0 };
        page_write_head(&m);
        lies[i].tell(&m.head);
        if (m.head.head_bytes == sizeof m.head) page_sign_head(&m.head);
        if (pl_page_open(&p, &m, sizeof m, &err)) fail_msg("%s was believed", lies[i].name);
        assert_int_not_equal(err.msg[0], 0);
        assert_false(pl_page_counters(&p, &c));
        assert_int_equal(pl_page_began(&p, 1, 0), PL_SEEN_UNKNOWN);
        assert_int_equal(pl_page_ended(&p, 1, 0, NULL), PL_SEEN_UNKNOWN);
        assert_int_equal(pl_page_devices(&p), 0);
        page_write_head(&m); /* a page once refused is not asked again */
        assert_false(pl_page_counters(&p, &c));
    }
}

TEST(a_header_half_written_is_not_yet) {
    struct pl_page p;
    struct pl_err err = { 0 };
    page_write_head(&m);
    m.head.begins.at ^= 64; /* not signed again */
    assert_true(pl_page_open(&p, &m, sizeof m, &err));
    assert_false(p.open);
    m.head.begins.at ^= 64;
    struct pl_page_counters c;
    assert_true(pl_page_counters(&p, &c));
}

TEST(offsets_changed_later_are_not_followed) {
    struct pl_page p;
    struct pl_err err;
    page_write_head(&m);
    page_begin(&m, 4);
    assert_true(pl_page_open(&p, &m, sizeof m, &err));
    m.head.begins.at = UINT32_MAX - 63;
    m.head.counters.at = UINT32_MAX - 63;
    assert_int_equal(pl_page_began(&p, 4, 0), PL_SEEN_YES);
}

TEST(a_page_too_small_or_crooked_is_refused) {
    struct pl_page p;
    struct pl_err err;
    page_write_head(&m);
    for (size_t n = 1; n < sizeof m.head; n += 5) assert_false(pl_page_open(&p, &m, n, &err));
    assert_false(pl_page_open(&p, m.bytes + 4, sizeof m - 4, &err));
}

/* The next minor puts more into records and into the header; its readers are not ours, its pages are. */
TEST(a_later_minor_with_larger_records_is_read) {
    struct pl_page p;
    struct pl_err err = { 0 };
    page_write_head(&m);
    m.head.minor = 9;
    m.head.begins.stride = 128;
    m.head.begins.count = 512;
    page_sign_head(&m.head);
    for (uint64_t n = 0; n < 3; n++) {
        uint8_t *at = m.bytes + PL_PAGE_BEGINS_AT + n * 128;
        struct pl_page_begin_record *r = (struct pl_page_begin_record *)(void *)at;
        r->seq = 2 * n + 2;
        r->id = 10 + n;
        at[100] = 0xee;
        r->crc = pl_crc32(at + 4, 124);
    }
    page_counts(&m)->begun = 3;
    assert_true(pl_page_open(&p, &m, sizeof m, &err));
    assert_int_equal(pl_page_began(&p, 11, 0), PL_SEEN_YES);
    assert_int_equal(pl_page_began(&p, 13, 0), PL_SEEN_NO);
}

TEST(random_bytes_behind_a_good_header_only_ever_answer) {
    struct pl_page p;
    struct pl_err err;
    srandom(20240131);
    for (int round = 0; round < 60; round++) {
        page_write_head(&m);
        assert_true(pl_page_open(&p, &m, sizeof m, &err));
        for (size_t i = sizeof m.head; i < sizeof m.bytes; i++) m.bytes[i] = (uint8_t)random();
        if (round % 3 == 0) page_counts(&m)->begun = (uint64_t)random() % 3000;
        page_counts(&m)->features |= PL_PAGE_F_RECORDS;
        struct pl_page_counters c;
        struct pl_page_end e;
        assert_true(pl_page_counters(&p, &c));
        assert_int_not_equal(pl_page_began(&p, 1, (uint64_t)random()), PL_SEEN_YES);
        assert_int_not_equal(pl_page_ended(&p, 1, c.ended, &e), PL_SEEN_YES);
        uint64_t cursor = (uint64_t)random(), lost = 0;
        struct pl_page_record r[4];
        assert_int_equal(pl_page_take_ends(&p, &cursor, r, 4, &lost), 0);
        assert_int_equal(cursor, c.ended);
        char text[PL_PAGE_TAG_ROOM];
        for (uint32_t i = 0; i < PL_PAGE_TAGS; i++) assert_false(pl_page_tag(&p, i, text));
        struct pl_page_device_now d;
        for (uint32_t i = 0; i < pl_page_devices(&p); i++)
            if (pl_page_device(&p, i, &d)) assert_true(strlen(d.uuid) < sizeof d.uuid);
    }
}

RUN(cmocka_unit_test(every_lie_of_the_header_is_refused_and_answers_unknown),
    cmocka_unit_test(a_header_half_written_is_not_yet),
    cmocka_unit_test(offsets_changed_later_are_not_followed),
    cmocka_unit_test(a_page_too_small_or_crooked_is_refused),
    cmocka_unit_test(a_later_minor_with_larger_records_is_read),
    cmocka_unit_test(random_bytes_behind_a_good_header_only_ever_answer))
