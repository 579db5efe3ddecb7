"""A worker that shares its socket takes leave of it; BentoML's client keeps a session until its last call is back."""

import asyncio
import json
import threading
from types import SimpleNamespace

import pytest
from harness import UnixConnection, until

from plimsoll import sessions


@pytest.fixture
def middle(start, tmp_path):
    """Middle in a process of its own, as a dependency is started."""
    worker = start("apart", "service:Front", args=("--service-name", "middle"), env={"TRACE": str(tmp_path / "trace")})
    worker.description = worker.described()
    worker.say(go={"deploy": False, "timeout_ms": 31000, "runner_map": {}})
    worker.wait_ready()
    return worker


def call(connection, path):
    connection.request("POST", path, body="{}", headers={"Content-Type": "application/json"})
    reply = connection.getresponse()
    return reply.status, reply.getheader("connection"), reply.read()


def test_a_kept_connection_is_answered_once_more_and_closed_by_agreement(middle):
    kept = UnixConnection(f"/proc/self/fd/{middle._folder()}/s", 60)
    assert call(kept, "/who")[:2] == (200, None)
    assert middle.ask("drain") == {"v": 1, "id": 1, "ok": True}
    said = until(lambda: (said := call(kept, "/who"))[1] and said)  # it begins on the event loop, a little later
    assert said[:2] == (200, "close")
    # nobody accepts any more: this one waits in the backlog, for the next who does
    late = UnixConnection(f"/proc/self/fd/{middle._folder()}/s", 60)
    late.request("POST", "/who", body="{}", headers={"Content-Type": "application/json"})
    assert middle.line() == {"v": 1, "drained": True}
    late.sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        late.sock.recv(1)
    # another main asks again and is told again
    assert middle.ask("drain", 2)["ok"] is True
    assert middle.line() == {"v": 1, "drained": True}
    late.close()


def test_a_call_in_hand_is_waited_for(middle):
    kept = UnixConnection(f"/proc/self/fd/{middle._folder()}/s", 60)
    replies = []
    thread = threading.Thread(target=lambda: replies.append(call(kept, "/slow")))
    thread.start()
    until(lambda: middle.page["in_flight"] == 1)
    assert middle.ask("drain")["ok"] is True
    assert middle.line() == {"v": 1, "drained": True}
    assert middle.page["in_flight"] == 0
    thread.join(20)
    assert replies[0][:2] == (200, "close")


def test_who_shares_its_socket_with_nobody_has_nothing_to_leave(start, tmp_path):
    worker = start("apart", "service:Front", env={"TRACE": str(tmp_path / "trace")}, go={"runner_map": {}})
    assert worker.ask("drain")["error"] == "unknown"


# --- sessions


class Connector:
    """With one call under way; counts how often somebody looks whether it is back."""

    def __init__(self):
        self.calls, self.looks = {"a call"}, 0

    @property
    def _acquired(self):
        self.looks += 1
        return self.calls


class Session:
    def __init__(self):
        self.connector = Connector()
        self.closed = False

    async def close(self):
        self.closed = True


def manager(total=60.0):
    made = SimpleNamespace(_session=None, _created_at=0.0, _request_count=0, _timeout=SimpleNamespace(total=total),
                           _make_client=Session)
    made._should_refresh = lambda: made._request_count > 3
    return made


async def turns(condition):
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("did not come")


def test_an_old_session_lives_until_its_last_call_is_back(monkeypatch):
    monkeypatch.setattr(sessions, "LOOK_S", 0.01)

    async def run():
        m = manager()
        first = await sessions.get_session(m)
        seen = [await sessions.get_session(m) for _ in range(3)]
        assert seen == [first] * 3
        second = await sessions.get_session(m)
        assert second is not first and not first.closed
        await turns(lambda: first.connector.looks > 5)
        assert not first.closed, "a call is still under way on it"
        first.connector.calls.clear()
        await turns(lambda: first.closed)
        assert not second.closed

    asyncio.run(run())


def test_an_old_session_that_never_gets_free_goes_when_a_call_would_have_timed_out(monkeypatch):
    monkeypatch.setattr(sessions, "LOOK_S", 0.01)

    async def run():
        m = manager(total=0.05)
        first = await sessions.get_session(m)
        m._request_count = 9
        await sessions.get_session(m)
        await turns(lambda: first.closed)

    asyncio.run(run())


def test_bentoml_still_has_what_is_replaced():
    proxy2 = pytest.importorskip("_bentoml_impl.client.proxy2")
    made = proxy2.SessionManager("tcp://127.0.0.1:1", 60.0, {})
    assert {"_session", "_created_at", "_request_count", "_timeout"} <= set(vars(made))
    assert made._timeout.total == 60.0 and callable(made._make_client) and callable(made._should_refresh)
    assert json.dumps([made.max_requests, made.max_age]) == "[100, 300.0]"
