"""Clients that mean harm, or know no better: slow, greedy, rude. Others must not notice, and memory stays bounded.

The worker is the test itself (rig/fake.py): it takes or refuses bytes on cue.
"""

import contextlib
import random
import resource
import socket
import threading
import time

import pytest

from http_corpus.client import Client
from rig import FakeWorker, connect, dock, leave
from rig.fake import ok
from rig.host import address_bytes, descriptors, memory_kb, peak_kb, private_bytes, state_of

BLOCK = bytes(range(256)) * 4096  # 1 MiB
MIB = 1 << 20
GET = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"
REFUSED = 'plimsoll_requests_refused_total{service="any",reason="buffer_full"}'
WHOLE_S = 60  # only a failure waits for its end


def post(length, path="/upload"):
    return f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n".encode()


@pytest.fixture
def guarded(serve):
    """guarded(handler, "--flag", value): a ready server in front of a worker that is `handler`."""
    with contextlib.ExitStack() as workers:

        def start(handler=ok, *flags, read_bodies=True):
            worker = workers.enter_context(FakeWorker(handler, read_bodies))
            flags = ("--logs.access", "off", *flags)
            server = serve("service:Any", *flags, python=worker.python, env=worker.env).ready()
            server.worker, server.main = worker, server.main_pid()
            return server

        yield start


def metric(server, line):
    """The value of one series, named as /metrics names it."""
    for text in server.get("/metrics").text().splitlines():
        if text.startswith(line + " "):
            return float(text.rpartition(" ")[2])
    raise AssertionError(f"no {line} in /metrics")


def errors(server, reason):
    listener = f"{server.address[0]}:{server.address[1]}"
    return metric(server, f'plimsoll_http_errors_total{{listener="{listener}",reason="{reason}"}}')


def answered(server, count=20):
    for _ in range(count):
        assert server.get("/x").body == b"ok"


def quiet(server):
    service = server.status()["services"][0]
    return all(w["in_flight"] == 0 for w in service["workers"]) and service["queue"]["requests"] == 0


def all_of(clients, work):
    """`work(client)` for all at a time; their results in order."""
    results = [None] * len(clients)

    def one(i):
        results[i] = work(clients[i])

    threads = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(len(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WHOLE_S)
    assert not any(thread.is_alive() for thread in threads)
    return results


def soon():
    return time.monotonic() + WHOLE_S


def until_it_stands_still(server, progress):
    """Until `progress()` stays the same while the server's loop has gone round thirty times: whatever could move has."""
    turns, seen = 0, progress()
    while turns < 30:
        assert server.get("/livez").status == 200
        now = progress()
        turns, seen = (turns + 1 if now == seen else 0), now


# ---- slow


@pytest.mark.asan
def test_slow_heads_get_408_and_hold_nobody_up(guarded):
    server = guarded(ok, "--http.head_timeout", "1s")
    slow = [Client(server.address) for _ in range(300)]
    for client in slow:
        client.send(b"GET /x HTTP/1.1\r\nHo")
    answered(server)
    for client in slow:
        seen = client.reply(False, soon())
        assert seen is not None and seen.status == 408
        assert not client.more(soon()) and client.closed
    assert errors(server, "head_timeout") == 300


def test_an_upload_that_dribbles_is_408_and_frees_its_worker(guarded):
    """Kept for replay, and streamed through to a worker that must not wait for it."""
    server = guarded(ok, "--limits.replay", "16KiB")

    def dribble(length):
        with Client(server.address) as client:
            client.send(post(length) + b"x" * 20000 * (length > 16384))
            while not client.closed and not client.data:  # ten bytes a second, where 1 KiB is asked for
                client.send(b"x")
                client.more(time.monotonic() + 0.1)
            return client.reply(False, soon()).status

    assert all_of([1000, 100_000], dribble) == [408, 408]
    server.wait_until(lambda: quiet(server))
    assert errors(server, "body_timeout") == 2
    answered(server)


def test_who_does_not_read_is_cut_and_frees_its_worker(guarded):
    sent = []

    def flood(request, sock):
        if request.target != "/flood":
            return ok(request, sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 * MIB))
        for _ in range(64):
            sock.sendall(BLOCK)
            sent.append(len(BLOCK))
        return False

    server = guarded(flood, "--http.write_timeout", "1s")
    before = memory_kb(server.main)
    clients = [connect(server.address) for _ in range(16)]
    for sock in clients:
        sock.sendall(b"GET /flood HTTP/1.1\r\nHost: a\r\n\r\n")
        assert sock.recv(16) == b"HTTP/1.1 200 OK\r"
    server.wait_until(lambda: errors(server, "write_timeout") == 16)
    server.wait_until(lambda: quiet(server))
    assert memory_kb(server.main) - before < 40_000, "the replies piled up in main"
    assert sum(sent) < 16 * 32 * MIB, "the worker was not held back"
    answered(server)
    for sock in clients:
        sock.close()


# ---- many


def test_five_thousand_idle_connections_cost_little(guarded, record_property):
    count = min(5000, (descriptors(12_000) - 500) // 2)
    server = guarded()
    before = private_bytes(server.main), memory_kb(server.main)
    held = []
    for _ in range(count):
        sock = connect(server.address)
        sock.sendall(GET)
        held.append(sock)
    for sock in held:
        assert b"200 OK" in sock.recv(4096)
    after = private_bytes(server.main), memory_kb(server.main)
    listener = f"{server.address[0]}:{server.address[1]}"
    assert metric(server, f'plimsoll_connections{{listener="{listener}"}}') == count + 1
    exact = before[0] is not None
    each = (after[0] - before[0]) / count if exact else (after[1] - before[1]) * 1024 / count
    print(f"{count} idle connections: {each:.0f} bytes each")
    record_property("bytes_per_idle_connection", round(each))
    assert each < 4096
    answered(server)
    for sock in held:
        leave(sock)
    server.wait_until(lambda: metric(server, f'plimsoll_connections{{listener="{listener}"}}') == 1)


def test_out_of_descriptors_accepting_pauses_admin_answers_and_it_recovers(guarded):
    descriptors(2000)
    server = guarded()
    _, hard = resource.prlimit(server.main, resource.RLIMIT_NOFILE)
    resource.prlimit(server.main, resource.RLIMIT_NOFILE, (300, hard))
    crowd = [connect(server.address) for _ in range(400)]
    event = server.wait_for("listen.paused")
    assert "open files" in event["reason"]
    assert server.verb("status", timeout=20).returncode == 0
    served, waiting = [], []
    for sock in crowd:
        sock.sendall(GET)
    for sock in crowd:
        sock.settimeout(5 if not waiting else 0)  # accepted ones are served; the first that waits is the last
        try:
            assert sock.recv(4096).startswith(b"HTTP/1.1 200")
            served.append(sock)
        except (TimeoutError, BlockingIOError):
            waiting.append(sock)
    assert len(served) > 200 and len(waiting) > 50
    assert server.verb("status", timeout=20).returncode == 0
    for sock in served:
        sock.close()
    for sock in waiting:
        sock.settimeout(WHOLE_S)
        assert sock.recv(4096).startswith(b"HTTP/1.1 200"), "who waited in the backlog is served"
        sock.close()
    answered(server)
    assert server.log.find("worker.death") == []


def test_at_the_connection_limit_the_next_waits_its_turn(guarded):
    server = guarded(ok, "--limits.connections", "20")
    crowd = [connect(server.address) for _ in range(30)]
    event = server.wait_for("listen.paused")
    assert event["reason"] == "limits.connections"
    for sock in crowd:
        sock.sendall(GET)
        assert sock.recv(4096).startswith(b"HTTP/1.1 200")
        sock.close()


def test_a_client_that_vanishes_without_a_word_is_asked_for(guarded):
    """No end of file ever comes from a machine that lost its power: the kernel asks."""
    server = guarded()
    sock = connect(server.address)
    sock.sendall(GET)
    assert sock.recv(4096).startswith(b"HTTP/1.1 200")
    ours, theirs = (f":{port:04X}" for port in (server.address[1], sock.getsockname()[1]))
    with open("/proc/net/tcp") as table:
        timer = next(f[5] for f in map(str.split, table) if f[1].endswith(ours) and f[2].endswith(theirs))
    assert timer.startswith("02:"), "no keepalive timer on the connection"
    sock.close()


# ---- large


def test_uploads_by_the_dozen_stay_within_the_buffer_cap(guarded):
    gate = threading.Event()

    def hold(request, sock):
        gate.wait(WHOLE_S)
        return ok(request, sock, b"%d" % len(request.body))

    server = guarded(hold, "--limits.replay", "64MiB", "--limits.buffered", "256MiB")
    before = memory_kb(server.main)

    def upload(client):
        client.send(post(64 * MIB))
        for _ in range(64):
            client.send(BLOCK)
        return client.reply(False, soon())

    clients = [Client(server.address) for _ in range(12)]

    def release():
        server.wait_until(lambda: server.worker.seen() == 4 and server.log.find("buffer.full"))
        server.wait_until(lambda: metric(server, REFUSED) == 8)
        gate.set()

    releaser = threading.Thread(target=release, daemon=True)
    releaser.start()
    replies = all_of(clients, upload)
    refused = [r for r in replies if r.status == 503]
    assert sorted(r.status for r in replies) == [200] * 4 + [503] * 8
    assert all(int(r.names()["retry-after"]) >= 1 and r.names()["x-plimsoll-reason"] == "buffer_full" for r in refused)
    assert all(r.body == b"%d" % (64 * MIB) for r in replies if r.status == 200)
    assert memory_kb(server.main) - before < 300_000
    assert server.log.find("buffer.full")
    for client in clients:
        client.sock.close()
    server.wait_until(lambda: metric(server, "plimsoll_buffered_bytes") == 0)
    assert memory_kb(server.main) - before < 20_000, "it is given back"
    thousand_that_only_announce(server)


def thousand_that_only_announce(server):
    """Room for four; the others are told at once, before they have sent anything."""
    descriptors(3000)
    before = memory_kb(server.main)
    clients = [Client(server.address) for _ in range(1000)]
    for client in clients:
        client.send(post(64 * MIB))
    refused = [c.reply(False, soon()) for c in clients[4:]]
    assert {r.status for r in refused} == {503}
    assert memory_kb(server.main) - before < 20_000
    for client in clients:
        client.sock.close()
    server.wait_until(lambda: metric(server, "plimsoll_buffered_bytes") == 0)
    assert server.get("/x").status == 200


def test_uploads_that_stream_through_wait_for_the_worker_not_in_us(guarded):
    gate = threading.Event()

    def late(request, sock):
        gate.wait(WHOLE_S)
        return request.read_body() and ok(request, sock, b"%d" % len(request.body))

    server = guarded(late, read_bodies=False)
    before, sent = memory_kb(server.main), []

    def upload(client):
        client.send(post(64 * MIB))
        for _ in range(64):
            client.send(BLOCK)
            sent.append(len(BLOCK))
        return client.reply(False, soon())

    def watch():
        server.wait_until(lambda: all(w["in_flight"] == 12 for w in server.status()["services"][0]["workers"]))
        until_it_stands_still(server, lambda: len(sent))
        gate.set()

    clients = [Client(server.address) for _ in range(12)]
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    replies = all_of(clients, upload)
    watcher.join()
    assert [(r.status, r.body) for r in replies] == [(200, b"%d" % (64 * MIB))] * 12
    assert peak_kb(server.main) - before < 30_000
    for client in clients:
        client.sock.close()


def test_a_crowd_of_uploads_to_a_worker_that_reads_none_costs_little_each(guarded):
    count = min(500, descriptors(4000) // 4)
    gate = threading.Event()

    def deaf(_request, _sock):
        gate.wait(WHOLE_S)
        return False

    server = guarded(deaf, read_bodies=False)
    before = memory_kb(server.main)
    crowd = [connect(server.address) for _ in range(count)]
    for sock in crowd:
        sock.sendall(post(64 * MIB))
        sock.setblocking(False)
    sent = [0]

    def push():
        for sock in crowd:
            with contextlib.suppress(BlockingIOError):
                while True:
                    sent[0] += sock.send(BLOCK[:65536])
        return sent[0]

    until_it_stands_still(server, push)
    assert sent[0] > count * 200_000
    assert (memory_kb(server.main) - before) / count < 250
    gate.set()
    for sock in crowd:
        sock.close()
    server.wait_until(lambda: quiet(server))


@pytest.mark.asan
def test_chunked_uploads_that_grow_meet_every_limit(guarded):
    flags = ("--limits.body", "4MiB", "--limits.replay", "2MiB", "--limits.buffered", "16MiB")
    server = guarded(lambda r, s: ok(r, s, b"%d" % len(r.body)), *flags)
    head = b"POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"

    def chunked(client, sizes, end=True):
        client.send(head)
        for size in sizes:
            client.send(b"%x\r\n%s\r\n" % (size, BLOCK[:size]))
        if end:
            client.send(b"0\r\n\r\n")
        return client

    for sizes, status, body in (([1] * 20_000, 200, b"20000"), ([65536] * 48, 200, b"%d" % (3 * MIB)),
                                ([65536] * 80, 413, b"limits.body")):
        with Client(server.address) as client:
            seen = chunked(client, sizes).reply(False, soon())
            assert seen.status == status and body in seen.body
    growing = [chunked(Client(server.address), [MIB - 1], end=False) for _ in range(20)]
    server.wait_until(lambda: metric(server, REFUSED) > 0)
    statuses = [seen.status for c in growing if (seen := c.reply(False, time.monotonic() + 0.05))]
    assert set(statuses) <= {503}
    for client in growing:
        leave(client.sock)
    server.wait_until(lambda: metric(server, "plimsoll_buffered_bytes") == 0)
    server.wait_until(lambda: quiet(server))


def test_heads_that_grow_are_bounded(guarded):
    server = guarded()
    before = memory_kb(server.main)
    many = [Client(server.address) for _ in range(300)]
    for client in many:
        client.send(b"GET /x HTTP/1.1\r\nHost: a\r\n" + b"X: %s\r\n" % (b"y" * 990) * 32)
    answered(server)
    assert memory_kb(server.main) - before < 300 * 80
    for client in many:
        client.send(b"X: %s\r\n" % (b"y" * 990) * 2)
        assert client.reply(False, soon()).status == 431
        client.sock.close()


# ---- rude


@pytest.mark.parametrize("path, replies", [("/livez", 200_000), ("/x", 3000)], ids=["ours", "the worker's"])
def test_a_storm_of_pipelined_requests_is_answered_in_order_as_it_is_read(guarded, path, replies):
    counter, handled = iter(range(10 ** 9)), []

    def number(request, sock):
        handled.append(None)
        return ok(request, sock, b"%016d" % next(counter) * 1024)

    server = guarded(number)
    before = memory_kb(server.main)
    sock = connect(server.address)
    request, sent = f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode() * 100, []
    sender = threading.Thread(target=lambda: [sent.append(sock.sendall(request)) for _ in range(replies // 100)],
                              daemon=True)
    sender.start()

    def progress():
        assert memory_kb(server.main) - before < 5000
        return len(sent), len(handled)

    until_it_stands_still(server, progress)  # it is not read, and takes no more
    assert server.get("/readyz").status == 200
    stream, numbers = sock.makefile("rb"), []
    for _ in range(replies):
        length = 0
        while (line := stream.readline()) != b"\r\n":
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        numbers.append(stream.read(length)[:16])
    sender.join(WHOLE_S)
    if path == "/x":
        assert numbers == [b"%016d" % i for i in range(replies)]
    assert memory_kb(server.main) - before < 5000
    sock.close()


@pytest.mark.asan
def test_resets_in_the_middle_of_everything_leave_nothing_behind(guarded):
    def worker(request, sock):
        if request.target == "/ws":
            sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n" + BLOCK)
            return False
        if request.target == "/stream":
            sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(50):
                sock.sendall(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            sock.sendall(b"0\r\n\r\n")
            return True
        return ok(request, sock)

    server = guarded(worker, "--limits.replay", "16KiB")
    requests = [
        GET * 3,
        post(8000) + b"x" * 8000,
        post(200_000) + b"x" * 200_000,
        b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + b"400\r\n%s\r\n" % (b"x" * 1024) * 30
        + b"0\r\n\r\n",
        b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" + b"\x81\x85abcdhello" * 1000,
    ]
    answered(server)
    before = metric(server, "process_open_fds")
    rng = random.Random(4)
    for i in range(600):
        data = requests[i % len(requests)]
        sock = connect(server.address)
        with contextlib.suppress(OSError):
            sock.sendall(data[:rng.randrange(1, len(data) + 1)])
            if rng.random() < 0.5:
                sock.settimeout(0.005)
                sock.recv(rng.randrange(1, 5000))
        (leave if rng.random() < 0.7 else socket.socket.close)(sock)
    server.wait_until(lambda: quiet(server))
    server.wait_until(lambda: metric(server, "plimsoll_buffered_bytes") == 0)
    server.wait_until(lambda: metric(server, "process_open_fds") <= before + 8)  # pooled connections to the worker
    answered(server)
    assert server.main_pid() == server.main and server.log.find("worker.death") == []


def test_websockets_that_flood_or_stall_are_held_back(guarded):
    """Either end may stop reading: the other waits, main does not fill up, and who takes nothing is cut."""
    sent = {"/flood": 0, "/deaf": 0}
    gate = threading.Event()

    def worker(request, sock):
        if request.target not in sent:
            return ok(request, sock)
        sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        if request.target == "/deaf":
            gate.wait(WHOLE_S)
            return False
        while sent["/flood"] < 64 * MIB:
            sock.sendall(BLOCK)
            sent["/flood"] += MIB
        return False

    server = guarded(worker, "--http.write_timeout", "2s")
    before = memory_kb(server.main)

    def upgrade(path):
        sock = connect(server.address)
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                     "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
        assert sock.recv(12) == b"HTTP/1.1 101"
        return sock

    deaf, flood = upgrade("/deaf"), upgrade("/flood")
    deaf.settimeout(0.5)
    with pytest.raises(TimeoutError):
        while sent["/deaf"] < 64 * MIB:
            sent["/deaf"] += deaf.send(BLOCK)
    server.wait_until(lambda: errors(server, "write_timeout") == 1)
    assert max(sent.values()) < 32 * MIB and memory_kb(server.main) - before < 10_000
    answered(server)
    gate.set()
    deaf.close()
    flood.close()
    server.wait_until(lambda: quiet(server))


# ---- without memory


def test_at_its_memory_limit_main_lives_and_who_waits_is_served(guarded):
    """libuv aborts when its table cannot grow: 2,000 connections make it grow five times, with hardly any memory left."""
    if dock.sanitized():
        pytest.skip("a sanitized main wants more addresses than any limit")
    descriptors(4000)
    server = guarded()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    crowd = []
    for step in range(1, 8):  # ever a little more, so that it runs out at another place each time
        resource.prlimit(server.main, resource.RLIMIT_AS, (address_bytes(server.main) + step * 40960, hard))
        for _ in range(300):
            crowd.append(connect(server.address))
            crowd[-1].sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
        assert state_of(server.main) not in ("", "Z"), "main did not survive its memory limit"
    server.wait_for("listen.paused", {"reason": "Cannot allocate memory"})
    resource.prlimit(server.main, resource.RLIMIT_AS, (hard, hard))
    for sock in crowd:
        sock.settimeout(WHOLE_S)
        assert sock.recv(4096).startswith(b"HTTP/1.1 200"), "who waited in the backlog is served"
    answered(server)
    assert server.main_pid() == server.main and server.log.find("worker.death") == []
    for sock in crowd:
        sock.close()
