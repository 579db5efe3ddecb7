/* What requests are charged: measured room, learnt peaks, one that runs alone to teach; orphans of a dead
 * main. */
#include <sys/mman.h>

#include "admit/board.h"
#include "admit/budget.h"
#include "admit/ordinary.h"
#include "admit/peaks.h"
#include "base/ring.h"
#include "world.h"

enum { MIB = 1 << 20 };
static struct pl_route routes[] = { { .name = "p", .path = "/p", .kind = PL_ROUTE_ASYNC } };
static struct pl_description described = { .routes = routes, .route_count = 1 };

static struct pl_gateway_budget budget(void) {
    struct pl_gateway_budget b = { 0 };
    assert_true(pl_gateway_budget(W.gateway, &W.service, 0, &b));
    return b;
}

/* A card with 1000 MiB for requests: 2000 less 100 of others, 700 fixed, 200 margin. */
static void on_card(void) {
    world_room = (struct pl_room){ .total = 2000ull * MIB, .foreign = 100ull * MIB, .fixed = 700ull * MIB };
    world_places = "0";
    world_description = &described;
    routes[0] = (struct pl_route){ .name = "p", .path = "/p", .kind = PL_ROUTE_ASYNC };
    set("memory.margin", "10%");
    worker_starts(1);
    page_counts(&W.pages[0])->features |= PL_PAGE_F_MEMORY | PL_PAGE_F_PEAKS;
    W.hooks.described(W.hooks.ctx, &W.service);
    W.hooks.room_changed(W.hooks.ctx);
}

static struct pl_page_record record(uint64_t id, uint64_t mib) {
    return (struct pl_page_record){ .n = 9,
                                    .id = id,
                                    .flags = PL_RECORD_MEMORY | PL_RECORD_PEAK_EXACT | PL_RECORD_ALONE,
                                    .outcome = PL_OUTCOME_OK,
                                    .allocated_before = 50ull * MIB,
                                    .peak = (50 + mib) * MIB,
                                    .input_bytes = 2 };
}
static void ended(const struct pl_page_record *r) {
    W.hooks.ended(W.hooks.ctx, &W.workers[0], "/p", r);
    turn();
}
static void taught(unsigned times, uint64_t mib) {
    const struct pl_page_record r = record(1, mib);
    for (unsigned i = 0; i < times; i++) ended(&r);
}
static uint64_t served(int w, int fd) {
    read_until(w, "{}");
    uint64_t id = id_seen();
    put(w, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    read_ends(fd, "ok");
    close(w);
    close(fd);
    turn();
    return id;
}

TEST(a_card_is_measured_and_told) {
    on_card();
    assert_int_equal(budget().full_bytes, 1000ull * MIB);
    assert_string_equal(budget().gpu, "0");
    assert_int_equal(budget().foreign_bytes, 100ull * MIB);
    assert_int_equal(budget().fixed_bytes, 700ull * MIB);
    assert_int_equal(budget().margin_bytes, 200ull * MIB);
    world_room.foreign += 300ull * MIB;
    W.hooks.room_changed(W.hooks.ctx);
    assert_int_equal(budget().budget_bytes, 700ull * MIB);
    world_room.foreign += 2 * MIB; /* less than a hundredth */
    W.hooks.room_changed(W.hooks.ctx);
    assert_int_equal(budget().budget_bytes, 700ull * MIB);
    world_room.fixed = 5000ull * MIB; /* a successor loads, and there is no room for it */
    W.hooks.room_changed(W.hooks.ctx);
    assert_int_equal(budget().budget_bytes, 1);
    world_room.total = 0; /* nobody tells for a moment: what was measured holds */
    W.hooks.room_changed(W.hooks.ctx);
    assert_int_equal(budget().budget_bytes, 1);
}

TEST(a_worker_that_takes_its_card_late_is_measured_then) {
    world_room = (struct pl_room){ .total = 2000ull * MIB, .fixed = 900ull * MIB };
    world_description = &described;
    worker_starts(1); /* nowhere yet */
    page_counts(&W.pages[0])->features |= PL_PAGE_F_MEMORY | PL_PAGE_F_PEAKS;
    world_places = "3";
    W.hooks.room_changed(W.hooks.ctx);
    assert_string_equal(budget().gpu, "3");
    assert_int_equal(budget().full_bytes, 800ull * MIB);
    assert_int_equal(budget().alarm_bytes, 2000ull * MIB / 10000 * 9000);
}

TEST(what_its_like_have_taken_is_charged) {
    on_card();
    taught(PL_PEAKS_KNOWN, 400);
    int a = ask("/p"), wa = worker_takes(1), b = ask("/p"), wb = worker_takes(1), c = ask("/p");
    assert_true(worker_idle(1));
    assert_int_equal(budget().charged_bytes, 800ull * MIB);
    served(wa, a);
    int wc = worker_takes(1);
    served(wb, b);
    served(wc, c);
    assert_int_equal(budget().charged_bytes, 0);
}

TEST(what_an_ordinary_request_takes_is_told_to_whom_it_concerns) {
    on_card();
    taught(PL_PEAKS_KNOWN, 200);
    for (unsigned i = 0; i < PL_ORDINARY_KNOWN; i++) {
        W.hooks.room_changed(W.hooks.ctx);
        assert_int_equal(world_needs, 0);
        int fd = ask("/p");
        served(worker_takes(1), fd);
    }
    W.hooks.room_changed(W.hooks.ctx);
    assert_int_equal(world_needs, 200ull * MIB);
    set("memory.budget", "1GiB"); /* nothing that a worker could eat */
    W.hooks.room_changed(W.hooks.ctx);
    assert_int_equal(world_needs, 0);
}

TEST(what_runs_is_known_by_its_charge_where_all_are_charged) {
    on_card();
    assert_int_equal(W.hooks.charged(W.hooks.ctx, &W.workers[0]), 0);
    int a = ask("/p"), wa = worker_takes(1); /* nothing is known of it */
    assert_true(W.hooks.charged(W.hooks.ctx, &W.workers[0]) == UINT64_MAX);
    served(wa, a);
    taught(PL_PEAKS_KNOWN, 200);
    int b = ask("/p"), wb = worker_takes(1), c = ask("/p"), wc = worker_takes(1);
    assert_int_equal(W.hooks.charged(W.hooks.ctx, &W.workers[0]), 400ull * MIB);
    served(wb, b);
    assert_int_equal(W.hooks.charged(W.hooks.ctx, &W.workers[0]), 200ull * MIB);
    served(wc, c);
    assert_int_equal(W.hooks.charged(W.hooks.ctx, &W.workers[0]), 0);
}

TEST(while_it_learns_nobody_is_held_back_unless_asked_for) {
    int fds[3], ws[3];
    on_card();
    taught(PL_PEAKS_KNOWN - 1, 400);
    for (int i = 0; i < 3; i++) {
        fds[i] = ask("/p");
        ws[i] = worker_takes(1);
    }
    assert_string_equal(W.would, "refuse budget");
    assert_int_equal(budget().charged_bytes, 1200ull * MIB);
    for (int i = 0; i < 3; i++) served(ws[i], fds[i]);
    set("mode", "enforce");
    int a = ask("/p"), wa = worker_takes(1), b = ask("/p"), wb = worker_takes(1), c = ask("/p");
    assert_true(worker_idle(1));
    served(wa, a);
    served(worker_takes(1), c);
    served(wb, b);
}

TEST(one_of_a_kind_never_seen_runs_alone_and_the_others_wait_for_what_it_teaches) {
    on_card();
    set("memory.charge", "learnt");
    int a = ask("/p"), wa = worker_takes(1), b = ask("/p"), c = ask("/p"), d = ask("/p");
    assert_true(worker_idle(1));
    assert_int_equal(budget().free_bytes, 0);
    uint64_t id = served(wa, a);
    assert_true(worker_idle(1)); /* its reply is here, its record is not */
    struct pl_page_record r = record(id, 400);
    ended(&r);
    int wb = worker_takes(1), wc = worker_takes(1);
    assert_true(worker_idle(1));
    assert_int_equal(budget().charged_bytes, 800ull * MIB);
    served(wb, b);
    served(worker_takes(1), d);
    served(wc, c);
}

TEST(a_route_that_teaches_nothing_is_only_counted) {
    on_card();
    set("memory.charge", "learnt");
    for (int i = 0; i < PL_PEAKS_TRIES; i++) {
        int a = ask("/p"), b = ask("/p");
        served(worker_takes(1), a);
        assert_true(worker_idle(1));
        pass(2000); /* no record */
        if (i < PL_PEAKS_TRIES - 1) {
            served(worker_takes(1), b);
            pass(2000);
            i++;
        } else {
            served(worker_takes(1), b);
        }
    }
    int a = ask("/p"), wa = worker_takes(1), b = ask("/p"), wb = worker_takes(1);
    assert_int_equal(budget().charged_bytes, 0);
    served(wa, a);
    served(wb, b);
}

TEST(a_path_that_is_no_route_teaches_nothing_and_holds_nobody_up) {
    on_card();
    set("memory.charge", "learnt");
    int a = ask("/wp-login.php"), wa = worker_takes(1), b = ask("/p2"), wb = worker_takes(1);
    served(wa, a);
    served(wb, b);
}

TEST(threads_that_cannot_fill_the_card_are_not_held_back) {
    int fds[6], ws[6];
    on_card();
    routes[0].kind = PL_ROUTE_SYNC;
    set("threads", "2");
    W.hooks.described(W.hooks.ctx, &W.service);
    taught(PL_PEAKS_KNOWN, 400);
    for (int i = 0; i < 6; i++) {
        fds[i] = ask("/p");
        ws[i] = worker_takes(1);
    }
    for (int i = 0; i < 6; i++) served(ws[i], fds[i]);
    set("threads", "3"); /* three would not fit */
    int a = ask("/p"), wa = worker_takes(1), b = ask("/p"), wb = worker_takes(1), c = ask("/p");
    assert_true(worker_idle(1));
    served(wa, a);
    served(worker_takes(1), c);
    served(wb, b);
}

TEST(a_batch_is_charged_by_what_each_adds_to_it) {
    on_card();
    set("memory.charge", "learnt");
    int warm = ask("/p"); /* so that the worker is known here */
    served(worker_takes(1), warm);
    pass(2000);
    struct pl_page_record first = record(1, 320), other = record(2, 0);
    first.flags |= PL_RECORD_BATCHED;
    other.flags = PL_RECORD_BATCHED;
    first.batch = 1;
    ended(&first);
    first.batch = 4;
    first.peak = (50 + 380) * (uint64_t)MIB; /* 300 are shared, 20 each */
    ended(&first);
    for (int i = 0; i < 3; i++) ended(&other);
    ended(&first); /* the next one: that one is over */
    assert_int_equal(budget().kept_bytes, 300ull * MIB);
    int fds[8], ws[8];
    for (int i = 0; i < 8; i++) {
        fds[i] = ask("/p");
        ws[i] = worker_takes(1);
    }
    assert_int_equal(budget().charged_bytes, 160ull * MIB);
    for (int i = 0; i < 8; i++) served(ws[i], fds[i]);
}

TEST(a_burst_whose_bodies_come_slowly_cannot_overshoot) {
    enum { MANY = 12 };
    int fds[MANY], ws[MANY];
    on_card();
    taught(PL_PEAKS_KNOWN, 400);
    for (int i = 0; i < MANY; i++) {
        fds[i] = client();
        put(fds[i], "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{");
    }
    assert_int_equal(budget().charged_bytes, 0); /* nothing is known of any before its end */
    for (int i = 0; i < MANY; i++) put_bytes(fds[i], "}", 1);
    for (int i = 0; i < MANY; i++) {
        assert_true(budget().charged_bytes <= 1000ull * MIB);
        if (i == 0) ws[0] = worker_takes(1), ws[1] = worker_takes(1);
        if (i < MANY - 2) assert_true(worker_idle(1));
        served(ws[i], fds[i]);
        if (i + 2 < MANY) ws[i + 2] = worker_takes(1);
    }
}

TEST(an_oom_that_the_worker_survives_lowers_it_and_one_of_a_request_alone_does_not) {
    on_card();
    struct pl_page_record r = record(1, 0);
    r.flags = PL_RECORD_OOM | PL_RECORD_ALONE | PL_RECORD_MEMORY;
    ended(&r);
    assert_int_equal(budget().budget_bytes, 1000ull * MIB);
    r.flags = PL_RECORD_OOM | PL_RECORD_OVERLAPPED;
    for (int i = 0; i < 20; i++) ended(&r); /* a storm is one shortage */
    assert_int_equal(budget().budget_bytes, 900ull * MIB);
    pass(PL_BUDGET_ONE_MS);
    W.hooks.retried(W.hooks.ctx, &W.workers[0]);
    assert_true(budget().budget_bytes < 860ull * MIB && budget().budget_bytes > 850ull * MIB);
    set("memory.margin", "15%"); /* what was learnt outlives a reload */
    assert_true(budget().budget_bytes < 860ull * MIB);
}

TEST(a_device_that_does_not_answer_gets_no_requests) {
    on_card();
    set("traffic.max_concurrency", "1");
    int a = ask("/p"), wa = worker_takes(1), b = ask("/p");
    world_out_of_service = true;
    int c = ask("/p");
    read_until(c, "HTTP/1.1 503");
    assert_true(has("x-plimsoll-reason: device_out_of_service") && has("Retry-After") &&
                has("x-llm-d-request-dropped-reason: rejected-no-endpoints"));
    served(wa, a);
    read_until(b, "device_out_of_service"); /* who waits is told too */
    close(b);
    close(c);
    world_out_of_service = false;
    int d = ask("/p");
    served(worker_takes(1), d);
}

/* --- the board */

static uint8_t *board_of(int fd) {
    void *at = mmap(NULL, PL_BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    return at;
}

static unsigned on_board(uint8_t *at) {
    struct pl_board reader;
    struct pl_charge c;
    uint32_t from = 0, slot;
    unsigned n = 0;
    assert_true(pl_board_open(&reader, at, 999));
    while (pl_board_next(&reader, &from, &slot, &c)) n++;
    return n;
}

TEST(what_a_worker_has_is_on_the_board_until_it_is_done) {
    on_card();
    taught(PL_PEAKS_KNOWN, 100);
    int fd = pl_gateway_board(W.gateway, -1);
    assert_true(fd >= 0);
    uint8_t *at = board_of(fd);
    int a = ask("/p"), wa = worker_takes(1), b = ask("/p"), wb = worker_takes(1);
    assert_int_equal(on_board(at), 2);
    served(wa, a);
    assert_int_equal(on_board(at), 1);
    read_until(wb, "{}");
    page_begin(&W.pages[0], id_seen());
    page_counts(&W.pages[0])->in_flight = 1;
    uint64_t id = id_seen();
    leave(b);
    read_end(wb);
    pass(200);
    assert_int_equal(on_board(at), 1); /* its handler runs on */
    page_end(&W.pages[0], id, PL_OUTCOME_OK, "");
    pass(200);
    assert_int_equal(on_board(at), 0);
    close(wb);
    munmap(at, PL_BOARD_BYTES);
    close(fd);
}

static int left_behind(unsigned count, uint64_t generation, uint64_t bytes) {
    struct pl_board dead;
    int fd = pl_memfd_create("board", PL_BOARD_BYTES);
    uint8_t *at = board_of(fd);
    assert_true(pl_board_open(&dead, at, 77));
    for (unsigned i = 0; i < count; i++)
        pl_board_put(&dead, &(struct pl_charge){ .generation = generation,
                                                 .id = 100 + i,
                                                 .bytes = bytes,
                                                 .deadline_ms = world_ms + 60000 });
    munmap(at, PL_BOARD_BYTES);
    return fd;
}

TEST(orphans_count_until_their_end_records_or_an_idle_worker) {
    on_card();
    taught(PL_PEAKS_KNOWN, 400);
    page_counts(&W.pages[0])->in_flight = 2;
    int fd = pl_gateway_board(W.gateway, left_behind(2, 1, 400ull * MIB));
    assert_int_equal(budget().orphan_bytes, 800ull * MIB);
    assert_int_equal(counted(PL_M_BUDGET_ORPHAN_BYTES, "0"), 800ull * MIB);
    int a = ask("/p");
    pass(5000);
    assert_true(worker_idle(1));
    page_end(&W.pages[0], 100, PL_OUTCOME_OK, "");
    pass(100);
    int wa = worker_takes(1);
    assert_int_equal(budget().orphan_bytes, 400ull * MIB);
    served(wa, a);
    page_counts(&W.pages[0])->in_flight = 0; /* nothing in hand, and no record of it */
    pass(500);
    assert_int_equal(budget().orphan_bytes, 400ull * MIB);
    pass(1000);
    assert_int_equal(budget().orphan_bytes, 0);
    close(fd);
}

TEST(orphans_count_for_concurrency_and_go_with_their_worker) {
    worker_starts(1);
    worker_starts(2);
    set("traffic.max_concurrency", "2");
    page_counts(&W.pages[0])->in_flight = 2;
    int fd = pl_gateway_board(W.gateway, left_behind(2, 1, 0)), a = ask("/p");
    assert_true(worker_idle(2) && worker_idle(1));
    worker_dies(1);
    turn();
    served(worker_takes(2), a);
    close(fd);
}

TEST(orphans_of_nobody_and_lies_count_nothing) {
    on_card();
    int fd = pl_gateway_board(W.gateway, left_behind(5, 4711, 400ull * MIB));
    assert_int_equal(budget().orphan_bytes, 0);
    close(fd);
}

TEST(a_worker_that_tells_nothing_holds_an_orphan_until_it_is_old) {
    on_card();
    memset(&W.pages[0], 0, sizeof W.pages[0]); /* no page any more */
    set("memory.settle", "30s");
    int fd = pl_gateway_board(W.gateway, left_behind(1, 1, 10ull * MIB));
    pass(29000);
    assert_int_equal(budget().orphan_bytes, 10ull * MIB);
    pass(1200);
    assert_int_equal(budget().orphan_bytes, 0);
    close(fd);
}

RUN(IN_WORLD(a_card_is_measured_and_told), IN_WORLD(a_worker_that_takes_its_card_late_is_measured_then),
    IN_WORLD(what_its_like_have_taken_is_charged),
    IN_WORLD(what_an_ordinary_request_takes_is_told_to_whom_it_concerns),
    IN_WORLD(what_runs_is_known_by_its_charge_where_all_are_charged),
    IN_WORLD(while_it_learns_nobody_is_held_back_unless_asked_for),
    IN_WORLD(one_of_a_kind_never_seen_runs_alone_and_the_others_wait_for_what_it_teaches),
    IN_WORLD(a_route_that_teaches_nothing_is_only_counted),
    IN_WORLD(a_path_that_is_no_route_teaches_nothing_and_holds_nobody_up),
    IN_WORLD(threads_that_cannot_fill_the_card_are_not_held_back),
    IN_WORLD(a_burst_whose_bodies_come_slowly_cannot_overshoot),
    IN_WORLD(a_batch_is_charged_by_what_each_adds_to_it),
    IN_WORLD(an_oom_that_the_worker_survives_lowers_it_and_one_of_a_request_alone_does_not),
    IN_WORLD(a_device_that_does_not_answer_gets_no_requests),
    IN_WORLD(what_a_worker_has_is_on_the_board_until_it_is_done),
    IN_WORLD(orphans_count_until_their_end_records_or_an_idle_worker),
    IN_WORLD(orphans_count_for_concurrency_and_go_with_their_worker),
    IN_WORLD(orphans_of_nobody_and_lies_count_nothing),
    IN_WORLD(a_worker_that_tells_nothing_holds_an_orphan_until_it_is_old))
