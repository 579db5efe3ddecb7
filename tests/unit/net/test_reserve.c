/* The memory that is kept back for libuv. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <uv.h>

#include "net/reserve.h"
#include "unit.h"

static unsigned fails;

static void *from_a_full_machine(void *old, size_t bytes) {
    if (fails == 0) return realloc(old, bytes);
    fails--;
    return NULL;
}

TEST(a_table_that_cannot_grow_does_not_end_the_process) {
    uv_loop_t loop;
    uv_poll_t poll;
    int ends[2];
    assert_true(pl_reserve_whole()); /* nobody asked for one */
    pl_reserve_start(from_a_full_machine);
    assert_true(pl_reserve_whole());
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    int high = fcntl(ends[0], F_DUPFD_CLOEXEC, 900); /* far behind the table as it is */
    assert_true(high >= 900);
    assert_int_equal(uv_poll_init(&loop, &poll, high), 0);
    fails = 1;
    assert_int_equal(uv_poll_start(&poll, UV_READABLE, NULL), 0); /* libuv would abort() here */
    assert_int_equal(fails, 0);
    assert_true(pl_reserve_whole()); /* set aside again, now that there is room */
    uv_close((uv_handle_t *)&poll, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    close(high);
    close(ends[0]);
    close(ends[1]);
}

RUN(cmocka_unit_test(a_table_that_cannot_grow_does_not_end_the_process))
