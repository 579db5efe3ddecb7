"""The client side of the corpus at Plimsoll and at nginx: both refuse, or both hand the same request on. What differs is a
row of docs/http-beside-nginx.md, with the reason, and nothing else may."""

import re
import time

import pytest

from http_corpus import load, play
from http_corpus.client import Client
from http_corpus.judge import raw
from rig import FakeWorker, nginx
from rig.server import ROOT

pytestmark = [pytest.mark.full, pytest.mark.timeout(600),
              pytest.mark.skipif(nginx.program() is None, reason="there is no nginx here (make test-full brings it on Debian)")]
PAGE = ROOT / "docs/http-beside-nginx.md"
PATIENCE_S = 5.0  # nginx's own limits are 2 s


def outcome(address, worker, case):
    """(what the worker got, what the client was answered): requests as (method, target, body), and statuses."""
    worker.take()
    statuses, until = [], time.monotonic() + PATIENCE_S
    with Client(address) as client:
        client.send(raw(case), case.get("step"))
        if "then" in case:
            client.interim(until)
            client.send(case["then"].encode("latin-1"))
        for number in range(len(case["statuses"]) + 1):
            last = number == len(case["statuses"])  # one more than expected may come at once, if at all
            seen = client.reply(number in case.get("head", []), time.monotonic() + (0.1 if last else PATIENCE_S))
            if seen is None:
                break
            statuses.append(seen.status)
    return [(r.method, r.target, r.body) for r in worker.take()], statuses


def differs(ours, theirs):
    """The same requests came through, or none; where none came, both refused."""
    if ours[0] != theirs[0]:
        return True
    return not ours[0] and (not ours[1] or ours[1][0] >= 400) != (not theirs[1] or theirs[1][0] >= 400)


def told():
    """{id: row} of the page's table."""
    return {m[1]: m[0] for m in re.finditer(r"^\| `([\w-]+)` \|.*$", PAGE.read_text(), re.M)}


def words(outcome):
    return f"{[(m, t[:30], len(b)) for m, t, b in outcome[0]]} {outcome[1]}"


def test_both_refuse_or_both_hand_the_same_request_on(serve):
    cases = [c for c in load("requests.jsonl") if c["group"] != "timing" and "needs" not in c]
    with FakeWorker(play(load("replies.jsonl")), read_bodies=False) as ours, FakeWorker(play([]), read_bodies=False) as theirs:
        server = serve("service:Any", "--logs.access", "off", python=ours.python, env=ours.env).ready()
        found = {}
        with nginx.Nginx(theirs.listen()) as other:
            for case in cases:
                here, there = outcome(server.address, ours, case), outcome(other.address, theirs, case)
                if differs(here, there):
                    found[case["id"]] = f"{case['id']} ({case['note']}): plimsoll {words(here)}, nginx {words(there)}"
    rows = told()
    assert f"Of {len(cases)} requests {len(cases) - len(rows)} are treated alike" in PAGE.read_text()
    assert [found[i] for i in found if i not in rows] == [], "differences that the page does not tell"
    assert [i for i in rows if i not in found] == [], "rows of the page that are no difference"
