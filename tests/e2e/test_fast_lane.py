"""The fast lane as an operator meets it: in the status, in the metrics, off, under a killed main."""

import os
import signal


def ways(server):
    """{way: requests} of the metrics page."""
    text = server.get("/metrics").text()
    out = {}
    for line in text.splitlines():
        if line.startswith("plimsoll_fast_lane_requests_total{"):
            out[line.partition('way="')[2].partition('"')[0]] = float(line.rpartition(" ")[2])
    return out


def table(server):
    return server.wait_until(lambda: server.status()["services"][0]["workers"][0].get("fast_lane"),
                             what="the worker has told its table")


def test_status_and_metrics_tell_who_came_by_it_and_why_others_did_not(serve):
    server = serve("service:Simple", service="simple").ready()
    assert table(server) == {"/predict": "sync"}
    event = server.wait_for("worker.fast_lane")
    assert (event["routes"], event["off"], event["reason"]) == (1, 0, "")
    assert "fast lane: 1 of 1 routes" in server.verb("status").stdout
    assert server.post("/predict", {"text": "abc"}).body == b"ABC"
    assert server.post("/predict", {"text": 1}).status == 400
    assert server.post("/predict", b"text=abc", headers={"Content-Type": "application/x-www-form-urlencoded"}).status == 200
    server.wait_until(lambda: ways(server) == {"lane": 1, "returned": 1, "asgi": 1}, what="each is counted under its way")


def test_it_is_off_where_that_is_asked_for(serve):
    server = serve("service:Simple", "--fast_lane", "off", service="simple").ready()
    assert table(server) == {"/predict": "off: fast_lane is off"}
    assert server.wait_for("worker.fast_lane")["reason"] == "fast_lane is off"
    assert "fast lane" not in server.verb("status").stdout
    assert server.post("/predict", {"text": "abc"}).body == b"ABC"
    server.wait_until(lambda: ways(server) == {"asgi": 1}, what="it came by BentoML's own way")


def test_the_next_main_knows_the_table_too(serve):
    server = serve("service:Simple", service="simple").ready()
    first = table(server)
    mark = server.log.mark()
    os.kill(server.main_pid(), signal.SIGKILL)
    server.wait_for("main.ready", since=mark)
    assert table(server) == first
    assert server.post("/predict", {"text": "abc"}).body == b"ABC"
