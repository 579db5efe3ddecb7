/* What the writer puts down is what the reader of sample/watch.h finds, and nothing half written passes. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/ring.h"
#include "sample/watch.h"
#include "unit.h"
#include "watch/writer.h"

static struct pl_watch_writer writer;
static struct pl_watch_page page;

static void open_both(void) {
    struct pl_err err;
    int fd = pl_memfd_create("test-watch", PL_WATCH_BYTES);
    assert_int_not_equal(fd, -1);
    const void *at = mmap(NULL, PL_WATCH_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(pl_watch_open(&page, at, PL_WATCH_BYTES, &err)); /* zeros: not yet */
    struct pl_watch_driver d;
    assert_false(pl_watch_read_driver(&page, &d));
    assert_true(pl_watch_writer_open(&writer, fd, 7, 0xb007));
    close(fd);
}

TEST(what_is_written_is_read) {
    open_both();
    struct pl_watch_driver d = { .state = PL_WATCH_DRIVER_RUNS, .gpus = 2, .samples = 3, .version = "580.1" },
                           d2;
    struct pl_watch_gpu g = { .index = 1,
                              .total = 1000,
                              .used = 400,
                              .free = 600,
                              .uuid = "GPU-1",
                              .name = "card" },
                        g2;
    struct pl_watch_host h = { .cgroup = 2, .workers = 1, .current = 5, .max = PL_WATCH_UNKNOWN }, h2;
    struct pl_watch_worker p = { .pid = 812, .anon = 9, .pss = PL_WATCH_UNKNOWN }, p2;
    struct pl_watch_beat b;
    g.process_count = 1;
    g.processes[0] = (struct pl_watch_process){ 812, 812, 300 };
    assert_false(pl_watch_read_gpu(&page, 1, &g2)); /* not written yet */
    for (int turn = 0; turn < 3; turn++) {
        pl_watch_put_driver(&writer, &d);
        pl_watch_put_gpu(&writer, 1, &g);
        pl_watch_put_host(&writer, &h);
        pl_watch_put_worker(&writer, 0, &p);
    }
    pl_watch_store(&pl_watch_beat(&writer)->device_ms, 77);
    assert_true(pl_watch_read_driver(&page, &d2) && pl_watch_read_gpu(&page, 1, &g2));
    assert_true(pl_watch_read_host(&page, &h2) && pl_watch_read_worker(&page, 0, &p2));
    assert_true(d2.gpus == 2 && strcmp(d2.version, "580.1") == 0);
    assert_true(g2.used == 400 && g2.process_count == 1 && g2.processes[0].bytes == 300);
    assert_true(h2.workers == 1 && h2.max == PL_WATCH_UNKNOWN && p2.pid == 812 && p2.anon == 9);
    assert_true(pl_watch_read_beat(&page, &b) && b.device_ms == 77);
    assert_false(pl_watch_read_gpu(&page, 0, &g2));
    assert_false(pl_watch_read_gpu(&page, PL_WATCH_GPUS, &g2));
}

TEST(a_bit_that_is_wrong_makes_the_item_unreadable) {
    open_both();
    struct pl_watch_gpu g = { .total = 1000, .used = 400 }, got;
    pl_watch_put_gpu(&writer, 0, &g);
    for (size_t i = 0; i < sizeof g; i += 7) {
        writer.at[PL_WATCH_GPUS_AT + i] ^= 4;
        if (pl_watch_read_gpu(&page, 0, &got)) fail_msg("byte %zu", i);
        writer.at[PL_WATCH_GPUS_AT + i] ^= 4;
    }
    assert_true(pl_watch_read_gpu(&page, 0, &got));
}

TEST(lies_are_bounded) {
    open_both();
    struct pl_watch_driver d = { .state = PL_WATCH_DRIVER_RUNS, .gpus = 4000000000u };
    struct pl_watch_gpu g = {
        .total = 1000, .used = 4000, .free = UINT64_MAX, .utilization = 250, .process_count = 99999
    };
    memset(g.name, 'x', sizeof g.name);
    g.uuid[0] = '\n';
    memset(d.text, '\x80', sizeof d.text);
    pl_watch_put_driver(&writer, &d);
    pl_watch_put_gpu(&writer, 0, &g);
    assert_true(pl_watch_read_driver(&page, &d) && d.gpus == PL_WATCH_GPUS && d.text[0] == '?');
    assert_true(pl_watch_read_gpu(&page, 0, &g));
    assert_true(g.used == PL_WATCH_UNKNOWN && g.utilization == PL_WATCH_UNKNOWN);
    assert_true(g.process_count == PL_WATCH_PROCESSES && strlen(g.name) == sizeof g.name - 1 &&
                g.uuid[0] == '?');
    d.state = 17;
    pl_watch_put_driver(&writer, &d);
    assert_false(pl_watch_read_driver(&page, &d));
    assert_string_equal(pl_watch_call_name(999), "");
    assert_string_equal(pl_watch_call_name(PL_WATCH_CALL_INIT), "nvmlInit");
}

TEST(another_page_is_refused) {
    static _Alignas(64) uint8_t other[PL_WATCH_BYTES];
    struct pl_watch_page p;
    struct pl_err err;
    open_both();
    assert_false(pl_watch_open(&p, other, 100, &err));
    memcpy(other, writer.at, sizeof other);
    struct pl_watch_head *h = (struct pl_watch_head *)(void *)other;
    h->kind = PL_PAGE_WORKER;
    assert_false(pl_watch_open(&p, other, sizeof other, &err));
    memcpy(other, writer.at, sizeof other);
    h->major = 2;
    assert_false(pl_watch_open(&p, other, sizeof other, &err));
    assert_non_null(strstr(err.msg, "version 2"));
    memcpy(other, writer.at, sizeof other);
    assert_false(pl_watch_open(&p, other, sizeof other - 4096, &err));
    h->gpus.at += 64; /* the CRC does not agree: half written, not yet */
    assert_true(pl_watch_open(&p, other, sizeof other, &err));
    assert_false(p.open);
}

RUN(cmocka_unit_test(what_is_written_is_read),
    cmocka_unit_test(a_bit_that_is_wrong_makes_the_item_unreadable), cmocka_unit_test(lies_are_bounded),
    cmocka_unit_test(another_page_is_refused))
