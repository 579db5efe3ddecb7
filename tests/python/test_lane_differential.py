"""The fast lane against BentoML's own way: the same requests, and the same answers, records, metrics and log lines."""

import lane_generate
import lane_wire
import pytest
from harness import SERVICES, Worker, pages, until
from lane_corpus import CASES

# Where BentoML is wrong and the lane is not. Nothing else may differ.
KNOWN = {
    "/actx": "BentoML never answers a handler that awaits ctx.request.body(): the body went with another Request object",
    "/parent_trace": "uvicorn on asyncio: after a body over 64 KiB BentoML keeps the old trace on that connection (python/cpython#140947)",
}
QUIET = {"PYTHONWARNINGS": "ignore", "PYTHONHASHSEED": "0"}


def pair(folder, where, **go):
    """BentoML's way, and the lane."""
    out = []
    try:
        for word in "off", "auto":
            out.append(Worker(folder, "service", where / word, env=QUIET, go={"timeout_ms": 1500, "fast_lane": word, **go}))
    except BaseException:
        for worker in out:
            worker.close()
        raise
    return out


def run(workers, cases, fresh=False):
    """[(case, BentoML's answers, the lane's)] where they differ; the numbers of the requests are 1, 2, ..."""
    connections = [lane_wire.Connection(w) for w in workers]
    differ = []
    for number, case in enumerate(cases, 1):
        theirs, ours = lane_wire.exchange(connections, case, number)
        if theirs != ours:
            differ.append((case, theirs, ours))
        if fresh:
            for connection in connections:
                connection.close()
    for connection in connections:
        connection.close()
    return differ


def shown(differ):
    out = []
    for case, theirs, ours in differ:
        out.append(f"#{case['id']} {case['method']} {case['path']} {case['headers']} {case.get('body')!r:.120}")
        for a, b in zip(theirs, ours):
            out += [f"    {k}: BentoML {a.get(k)!r:.300}\n    {k}: lane    {b.get(k)!r:.300}" for k in {**a, **b} if a.get(k) != b.get(k)]
    return "\n".join(out)


def by_lane(worker):
    """(answered, given back)"""
    flags = [r["flags"] for r in worker.page.ends()]
    back = sum(1 for f in flags if f & pages.RETURNED)
    return sum(1 for f in flags if f & pages.LANE) - back, back


def check(workers, cases, fresh=False):
    plain, lane = workers
    differ = run(workers, cases, fresh)
    known = {c["id"] for c, _, _ in differ if c["path"] in KNOWN}
    assert not [d for d in differ if d[0]["id"] not in known], shown(d for d in differ if d[0]["id"] not in known)
    skipped = {number for number, case in enumerate(cases, 1) if case["path"] in KNOWN}
    until(lambda: lane_wire.ends(plain).keys() == lane_wire.ends(lane).keys(), "an end record for each request")
    theirs, ours = ({k: v for k, v in lane_wire.ends(w).items() if k not in skipped} for w in workers)
    assert ours == theirs
    assert lane.page["in_flight"] == plain.page["in_flight"]
    counts = [{k: v for k, v in lane_wire.counted(w).items() if k[1] not in KNOWN and k[1] != "/readyz"} for w in workers]
    assert counts[1] == counts[0]
    logged = [[line for line in lane_wire.logged(w) if not any(k in line[0] for k in KNOWN)] for w in workers]
    assert logged[1] == logged[0]
    assert by_lane(plain) == (0, 0)


def test_the_corpus_is_answered_as_bentoml_answers_it(tmp_path):
    workers = pair(SERVICES / "lane_corpus", tmp_path)
    try:
        check(workers, CASES)
        answered, back = by_lane(workers[1])
        assert answered >= 280 and back >= 200, (answered, back)
    finally:
        for worker in workers:
            worker.close()


@pytest.mark.full
def test_the_corpus_on_a_connection_for_each_request(tmp_path):
    workers = pair(SERVICES / "lane_corpus", tmp_path)
    try:
        check(workers, CASES, fresh=True)
    finally:
        for worker in workers:
            worker.close()


def generated(tmp_path, seed):
    folder = tmp_path / f"service-{seed}"
    folder.mkdir()
    text, cases = lane_generate.make(seed)
    (folder / "service.py").write_text(text)
    workers = pair(folder, tmp_path / f"w-{seed}")
    try:
        check(workers, cases)
        answered, back = by_lane(workers[1])
        assert answered >= len(cases) // 10, f"seed {seed}: only {answered} of {len(cases)} came by the lane, {back} went back"
    finally:
        for worker in workers:
            worker.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_services_that_nobody_wrote(tmp_path, seed):
    generated(tmp_path, seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_services_that_nobody_wrote(tmp_path, seed):
    generated(tmp_path, seed)
