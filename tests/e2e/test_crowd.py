"""A worker that leaves no room for one more request goes before requests are refused for it; one that always needs so much
is left alone. PyTorch in the dry dock; everything is told in seconds of requests, so the rates are what a card sees."""

import collections

import pytest

from rig import Load, Paced, dock, paths

pytestmark = [pytest.mark.timeout(300), pytest.mark.full,
              pytest.mark.skipif(dock.sanitized(), reason="the stand-ins cannot be preloaded into a sanitized main")]
GIB, MIB = 1 << 30, 1 << 20
ALL_BUT_BUDGET = "leak,forecast,host_rss,hang"


def drips(serve, cache, *flags, card="small:2GiB", context="64MiB", **env):
    return serve("service:Drips", "--warmup.examples", "off", "--logs.access", "off", *flags, service="drips", python=dock.torch_python(),
                 before=[paths.plimsoll, "drydock", "-q", "--gpu", card, "--context", context, "--"],
                 env={"PLIMSOLL_CACHE": str(cache), **env}).ready()


def quick_boots(server):
    """As after a day: the next start comes from the zygote, and what a start takes is known."""
    server.wait_until(lambda: server.status()["services"][0]["zygote"]["state"] == "ready", what="a zygote")
    for _ in range(2):
        done = server.verb("restart", "drips", "--now")
        assert done.returncode == 0, done.stderr


def warmed_up(server):
    for _ in range(20):
        assert server.post("/predict", {"keep_mib": 0, "peak_mib": 64}).status == 200


def test_a_leak_too_quick_for_a_verdict_is_replaced_before_it_has_eaten_the_budget(serve, cache):
    """5 MiB a request: the card is full at the 300th, where the ledger has not begun to look."""
    server = drips(serve, cache, "--replace.max_per_hour", "20")
    quick_boots(server)
    warmed_up(server)
    with Paced(server, "/predict", {"keep_mib": 5, "peak_mib": 64}, per_s=10) as paced:
        begun = server.wait_for("worker.replace", {"reason": "budget"}, timeout=120)
        server.wait_for("worker.replaced", {"reason": "budget"})
        server.wait_until(lambda: len(paced.statuses) > 350, timeout=120, what="more than what one worker had room for")
    statuses = collections.Counter(paced.statuses)
    assert begun["mode"] == "overlap", "in time for a successor beside it"
    assert statuses[200] >= 0.99 * len(paced.statuses) and set(statuses) <= {200, 429}, statuses
    assert not server.log.find("memory.oom") and not server.log.find("budget.no_room") and not server.log.find("worker.death")


def test_a_leak_under_requests_that_never_pause_is_seen_as_well(serve, cache):
    """There is never a moment without a request: what is there less what they are charged is at rest."""
    server = drips(serve, cache, "--replace.max_per_hour", "20")
    quick_boots(server)
    warmed_up(server)
    body = {"keep_mib": 5, "peak_mib": 64, "seconds": 0.2}
    with Load(server.address, lambda number: ("POST", "/predict", body, lambda reply: True), connections=4) as load:
        server.wait_for("worker.replace", {"reason": "budget"}, timeout=120)
        server.wait_for("worker.replaced", {"reason": "budget"})
        load.wait_for_more(100)
    assert not server.log.find("memory.oom") and not server.log.find("worker.death")
    assert load.statuses().get(200, 0) >= 0.98 * len(load.outcomes) and set(load.statuses()) <= {200, 429, 503}, load.statuses()


def test_a_successor_is_charged_what_a_new_worker_has_not_what_a_grown_one_has(serve, cache):
    """A start that is over between two looks at the card: what it takes is known from those before it."""
    server = drips(serve, cache, "--replace.when", "hang")
    quick_boots(server)
    warmed_up(server)
    since = server.log.mark()
    for _ in range(10):
        assert server.post("/predict", {"keep_mib": 120, "peak_mib": 64}).status == 200
    server.wait_for("budget.changed", lambda e: e["to_bytes"] < 500 * MIB, since=since)
    assert server.verb("restart", "drips", "--now", "--mode", "overlap").returncode == 0
    least = min(e["to_bytes"] for e in server.log.find("budget.changed", since=since))
    assert least > 200 * MIB, "beside 1300 of 2000 MiB there was room for it"


def test_observe_says_what_would_be_done(serve, cache):
    server = drips(serve, cache, "--mode", "observe")
    first = server.workers()
    warmed_up(server)
    with Paced(server, "/predict", {"keep_mib": 8, "peak_mib": 64}, per_s=10):
        would = server.wait_for("would.replace", {"reason": "budget"}, timeout=120)
    assert would["mode"] == "observe" and server.workers() == first
    assert len(server.log.find("would.replace", {"reason": "budget"})) == 1


def test_one_that_needs_it_all_from_its_first_request_on_is_not_replaced_again_and_again(serve, cache):
    """A model that the first request loads, up to a plateau that leaves no room for another ordinary one but the margin."""
    server = drips(serve, cache, "--replace.max_per_hour", "20", FIRST_MIB="1650")
    first = server.workers()
    with Paced(server, "/predict", {"keep_mib": 0, "peak_mib": 200}, per_s=10) as paced:
        told = server.wait_for("budget.no_room", timeout=120)
        server.wait_until(lambda: len(paced.statuses) > 300, timeout=120, what="some time more")
    assert set(paced.statuses) == {200}, "one at a time they do run"
    assert told["why"] == "large" and "larger card" in told["remedy"]
    assert told["new_bytes"] > 1650 * MIB and 200 * MIB <= told["request_bytes"] <= told["left_bytes"] < 400 * MIB
    assert len(server.log.find("budget.no_room")) == 1, "said once"
    assert not server.log.find("worker.replace") and server.workers() == first


def test_a_cache_that_fills_up_to_a_plateau_is_taken_for_a_leak_once_at_most(serve, cache):
    """It grows in a line, comes to rest, and leaves room for requests. (What the forecast thinks of it is another matter.)"""
    server = drips(serve, cache, "--replace.max_per_hour", "20", "--replace.when", "budget,hang")
    quick_boots(server)
    warmed_up(server)
    for _ in range(2):  # the second time there would have been a third worker
        with Paced(server, "/predict", {"keep_mib": 6, "peak_mib": 64}, per_s=15) as paced:
            server.wait_until(lambda: len(paced.statuses) > 260, timeout=120, what="1560 of 1950 MiB")
        with Paced(server, "/predict", {"keep_mib": 0, "peak_mib": 64}, per_s=10) as rest:
            server.wait_until(lambda: len(rest.statuses) > 50, timeout=120, what="some time at rest")
        assert set(paced.statuses) | set(rest.statuses) == {200}
        server.post("/forget", {})
    assert len(server.log.find("worker.replace", {"reason": "budget"})) <= 1


def test_one_that_fills_up_soon_after_each_start_is_replaced_once(serve, cache):
    """A cache that is full after some seconds of requests: the first time that may be a leak, the second time it is no news."""
    server = drips(serve, cache, "--replace.max_per_hour", "20")
    quick_boots(server)
    warmed_up(server)
    with Paced(server, "/predict", {"keep_mib": 64, "peak_mib": 64}, per_s=3) as paced:
        told = server.wait_for("budget.no_room", timeout=120)
        more = len(paced.statuses) + 30
        server.wait_until(lambda: len(paced.statuses) > more, timeout=120, what="some time more")
    assert told["why"] in ("again", "large") and len(server.log.find("budget.no_room")) == 1
    assert len(server.log.find("worker.replace", {"reason": "budget"})) <= 1
