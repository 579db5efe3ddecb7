/* Services whose workers share a device: what one has charged is not free for the others, and is again when
 * it ends. */
#include "admit/budget.h"
#include "world.h"

enum { FIRST, SECOND, THIRD, ROOM = 1000 };

static struct pl_service *service(size_t i) { return i == FIRST ? &W.service : &W.more[i - 1]; }

static struct pl_gateway_budget budget(size_t i) {
    struct pl_gateway_budget b = { 0 };
    assert_true(pl_gateway_budget(W.gateway, service(i), 0, &b));
    return b;
}

static int asks(size_t i) {
    static const char *const names[] = { "first", "second", "third" };
    char path[32];
    snprintf(path, sizeof path, "/%s/x", names[i]);
    return ask(path);
}

/* Three services with a worker each, all on GPU 0, which has room for ROOM bytes; a request takes 400. */
static int three_begin(void **state) {
    world_more = MORE_SERVICES;
    if (world_begins(state) != 0) return -1;
    world_room = (struct pl_room){ .total = ROOM };
    world_places = "0";
    for (size_t i = 0; i <= MORE_SERVICES; i++) {
        set_of(i, "memory.margin", "0%");
        set_of(i, "memory.per_request", "400");
        worker_starts_of(service(i), (unsigned)i + 1);
    }
    pass(2000); /* the room is measured */
    return 0;
}

static int three_end(void **state) {
    int r = world_ends(state);
    world_more = 0;
    return r;
}

static void all_have_free(uint64_t bytes) {
    for (size_t i = 0; i <= MORE_SERVICES; i++) assert_int_equal(budget(i).free_bytes, bytes);
}

TEST(what_one_has_charged_is_not_free_for_the_others) {
    all_have_free(ROOM);
    int a = asks(FIRST), wa = worker_takes(1);
    all_have_free(ROOM - 400);
    int b = asks(SECOND), wb = worker_takes(2);
    all_have_free(ROOM - 800);
    assert_int_equal(budget(THIRD).charged_bytes, 0);
    read_until(wa, "{}");
    answers(wa, a);
    all_have_free(ROOM - 400);
    read_until(wb, "{}");
    answers(wb, b);
    all_have_free(ROOM);
}

TEST(who_waits_goes_when_another_service_has_room_to_give) {
    int a = asks(FIRST), wa = worker_takes(1), b = asks(SECOND), wb = worker_takes(2), c = asks(THIRD);
    assert_true(worker_idle(3));
    read_until(wa, "{}");
    answers(wa, a);
    int wc = worker_takes(3);
    all_have_free(ROOM - 800);
    read_until(wb, "{}");
    read_until(wc, "{}");
    answers(wb, b);
    answers(wc, c);
    all_have_free(ROOM);
}

TEST(many_that_come_and_go_leave_nothing_behind) {
    for (unsigned i = 0; i < 60; i++) {
        size_t one = i % 3, other = (i / 3 + 1 + one) % 3;
        int a = asks(one), wa = worker_takes((unsigned)one + 1);
        int b = asks(other), wb = worker_takes((unsigned)other + 1);
        all_have_free(ROOM - 800);
        if (i % 2 == 0) leave(a);
        read_until(wb, "{}");
        answers(wb, b);
        if (i % 2 == 0) {
            close(wa);
            turn();
            pass(2000);
        } else {
            read_until(wa, "{}");
            answers(wa, a);
        }
        all_have_free(ROOM);
    }
}

TEST(a_budget_that_is_set_is_its_own_until_it_is_measured_again) {
    int a = asks(FIRST), wa = worker_takes(1);
    set_of(SECOND, "memory.budget", "1000");
    assert_int_equal(budget(SECOND).free_bytes, 1000);
    assert_int_equal(budget(THIRD).free_bytes, ROOM - 400);
    set_of(SECOND, "memory.budget", "auto");
    pass(2000);
    all_have_free(ROOM - 400);
    read_until(wa, "{}");
    answers(wa, a);
    all_have_free(ROOM);
}

TEST(a_worker_that_comes_later_finds_what_is_charged) {
    worker_dies(3);
    worker_gone(3);
    int a = asks(FIRST), wa = worker_takes(1);
    worker_starts_of(service(THIRD), 3);
    pass(2000);
    all_have_free(ROOM - 400);
    read_until(wa, "{}");
    answers(wa, a);
    all_have_free(ROOM);
}

#define OF_THREE(test) cmocka_unit_test_setup_teardown(test, three_begin, three_end)
RUN(OF_THREE(what_one_has_charged_is_not_free_for_the_others),
    OF_THREE(who_waits_goes_when_another_service_has_room_to_give),
    OF_THREE(many_that_come_and_go_leave_nothing_behind),
    OF_THREE(a_budget_that_is_set_is_its_own_until_it_is_measured_again),
    OF_THREE(a_worker_that_comes_later_finds_what_is_charged))
