"""The corpus by many clients at once, in any order, with threads that change every microsecond and looks of explain in
between: the same answers as from BentoML alone, and a worker that ends when it is told to."""

import os
import random
import signal
import threading
import time

import lane_wire
import pytest
from harness import PACKAGE, SERVICES, Worker, until
from lane_corpus import CASES
from test_lane_differential import KNOWN, QUIET

LONG_S = 0.5  # cases that take longer are left to the differential test


def answers(worker, case, connection):
    data, times = lane_wire.raw(case, 0), 2 if case.get("twice") else 1
    for _ in range(3):
        old = connection.sock is not None
        connection.send(data * times, case.get("pieces", 0))
        got = [connection.reply(case["method"] == "HEAD")]
        if got[0]["line"].startswith(b"HTTP") or not old:
            break
    got += [connection.reply() for _ in range(times - 1)]
    return [{k: v for k, v in lane_wire.simplified(g).items() if k != "kept"} for g in got]


def start(where, word, **env):
    return Worker(SERVICES / "lane_corpus", "service", where / word, env={**QUIET, **env}, go={"timeout_ms": 20000, "fast_lane": word})


def expected(worker, rng):
    """{index: answers} of the cases that BentoML itself answers in one way, whatever came before."""
    out, connection = {}, lane_wire.Connection(worker)
    order = [i for i, case in enumerate(CASES) if case["path"] not in KNOWN]
    for turn in range(2):
        rng.shuffle(order)
        for i in list(order):
            began = time.monotonic()
            got = answers(worker, CASES[i], connection)
            if turn and out[i] != got or not got[0]["line"].startswith(b"HTTP") or time.monotonic() - began > LONG_S:
                order.remove(i)
                out.pop(i, None)
            elif not turn:
                out[i] = got
    return out


def marathon(tmp_path, clients, rounds, seed=1):
    """How many requests it were."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.setswitchinterval(1e-6)\n")
    plain = start(tmp_path, "off")
    try:
        wanted = expected(plain, random.Random(seed))
    finally:
        plain.close()
    assert len(wanted) > len(CASES) * 3 // 4
    worker = start(tmp_path, "auto", PYTHONPATH=f"{PACKAGE}{os.pathsep}{tmp_path}")
    wrong, over, sent = [], threading.Event(), [0] * clients

    def client(number):
        rng, connection = random.Random(seed * 1000 + number), lane_wire.Connection(worker)
        for _ in range(rounds):
            order = list(wanted)
            rng.shuffle(order)
            for i in order:
                if rng.random() < 0.01:  # one who does not wait for the end
                    connection.send(lane_wire.raw(CASES[i], 0))
                    connection.vanish() if rng.random() < 0.5 else connection.close()
                got = answers(worker, CASES[i], connection)
                sent[number] += 1
                if got != wanted[i]:
                    wrong.append((CASES[i], wanted[i], got))
                    return

    def looks():
        while not over.wait(0.2):
            said = worker.ask("explain", force=True, again=True, mode=random.choice(["fork", "inline"]))
            assert "report" in said, said
            assert worker.ask("stacks")["stacks"]

    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    looker = threading.Thread(target=looks)
    try:
        for t in [looker, *threads]:
            t.start()
        for t in threads:
            t.join()
        over.set()
        looker.join()
        assert not wrong, wrong[0]
        until(lambda: worker.page["in_flight"] == 0, "nothing in flight")
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait_exit(15) == -signal.SIGTERM
        return sum(sent)
    finally:
        over.set()
        worker.close()


@pytest.mark.full
@pytest.mark.timeout(600)
def test_many_clients_get_what_bentoml_would_have_answered(tmp_path):
    assert marathon(tmp_path, clients=6, rounds=4) > 9000
