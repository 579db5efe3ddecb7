"""The page of the admin port in a real Chromium, and `plimsoll top`: the same eight questions are answered by both."""

import itertools
import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from rig import dock, paths, wire
from rig.browser import CHROMIUM, Browser
from rig.serving import serving

pytestmark = [pytest.mark.timeout(300),
              pytest.mark.skipif(dock.sanitized(), reason="the stand-ins cannot be preloaded into a sanitized main")]
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
KIB = 1 << 10


def address_of(server):
    return server.status()["admin"]


def open_page(browser, server, host=None):
    browser.go(f"http://{host or address_of(server)}/")
    browser.wait_for("document.readyState === 'complete' && typeof state === 'object' && state.status && !document.getElementById('page').hidden")


@pytest.fixture
def browser(tmp_path):
    with Browser(tmp_path / "chromium") as one:
        yield one


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    """What somebody on call finds: a worker has died, its successor leaks, and requests were refused."""
    cache = tmp_path_factory.mktemp("drydock-cache")
    with serving() as start:
        server = start("service:Accounts", "--logs.access", "off", "--traffic.max_concurrency", "1", "--traffic.queue.max_requests", "0",
                       service="accounts", python=dock.torch_python(), admin="127.0.0.1:0",
                       before=[paths.plimsoll, "drydock", "-q", "--"], env={"PLIMSOLL_CACHE": str(cache)}).ready()
        os.kill(server.workers()[1], signal.SIGKILL)
        server.wait_for("worker.death")
        server.wait_for("worker.ready", count=2)
        holder = threading.Thread(target=server.post, args=("/hold", {"mib": 1}))
        holder.start()
        server.wait_until(lambda: server.status()["services"][0]["queue"]["running"] == 1)
        assert server.post("/peak", {"mib": 1}).status == 429
        server.gate.touch()
        holder.join()
        conn = wire.connection(server.address)
        sent = (wire.exchange(conn, "POST", "/keep", {"kib": 256}).status for _ in itertools.repeat(0))
        assert set(itertools.islice(sent, 600)) == {200}
        verdict = lambda: server.status()["services"][0]["workers"][0]["verdict"]  # noqa: E731
        server.wait_until(lambda: server.log.find("would.replace") or set(itertools.islice(sent, 50)) != {200})
        # Two looks at least 300 requests apart; where the two saw no growth, as people do: once more.
        deadline, asked = time.monotonic() + 120, None
        while not {"holder", "forecast_s"} <= set(verdict()) and time.monotonic() < deadline:
            if asked is None or not asked.is_alive():
                asked = threading.Thread(target=server.verb, args=("explain", "--force"))
                asked.start()
            assert set(itertools.islice(sent, 50)) == {200}
        asked.join()
        conn.close()
        yield server


def facts(server):
    """The true answers, out of the events."""
    leak, refused = (server.log.find(e)[-1] for e in ("memory.verdict", "request.refused"))
    return {"leak": leak, "holder": server.status()["services"][0]["workers"][0]["verdict"]["holder"], "refused": refused, "death": server.log.find("worker.death")[-1]}


@needs_chromium
def test_the_page_answers_the_eight_questions(night, browser):
    true = facts(night)
    open_page(browser, night)
    cards = browser.ask("Object.fromEntries([...document.querySelectorAll('.card')].map(c => [c.children[0].textContent, c.innerText]))")
    text = browser.text()
    assert "leak" in cards["memory"] and true["holder"] in cards["memory"] and f"worker 1.{true['leak']['generation']}" in cards["memory"]
    assert re.search(r"in \d+", cards["next out of memory"])
    assert true["death"]["sentence"] in text and true["death"]["death"] in text
    assert re.search(r"(concurrency|device memory) \d", cards["limit that binds"])
    assert "unwarmed" in cards["warm"]
    assert "replace for leak 1" in cards["enforce would have"]
    load = browser.ask("document.querySelector('.load').getAttribute('aria-label')")
    assert re.search(r"accounts 1\.\d+ in use \d", load) and "free" in load
    assert "concurrency 1" in cards["refused, 5 min"]
    # why at a given time: the list of events, reduced to it
    browser.ask("document.getElementById('needle').value = 'request.refused', document.getElementById('needle').oninput()")
    browser.wait_for("document.querySelectorAll('#events tbody tr').length === 1")
    row = browser.ask("document.querySelector('#events tbody tr').innerText")
    assert true["refused"]["ts"][11:19] in row and "reason=concurrency" in row
    browser.wait_for("state.history && document.querySelectorAll('#plots canvas').length >= 3")
    assert "Memory, gpu0" in browser.text()
    assert browser.complaints == []


@needs_chromium
@pytest.mark.skipif("PL_SCREENSHOTS" not in os.environ, reason="make screenshots writes the pictures of docs/dashboard.md")
@pytest.mark.parametrize("name, width, dark", [("dashboard", 1180, False), ("dashboard-dark", 1180, True), ("dashboard-phone", 420, False)])
def test_pictures(night, tmp_path, name, width, dark):
    with Browser(tmp_path / "chromium", width=width, height=1250 if width > 1000 else 900, dark=dark, mobile=width < 1000) as browser:
        open_page(browser, night)
        browser.wait_for("state.history && document.querySelectorAll('#plots canvas').length >= 3")
        browser.shot(Path(os.environ["PL_SCREENSHOTS"]) / f"{name}.png", whole=False)


def test_top_answers_the_eight_questions_in_24_lines(night):
    true = facts(night)
    done = night.verb("top", "--once")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert re.search(r"leak on gpu0: 256\.\d KiB a request, confirmed", done.stdout)
    assert f"held by {true['holder']}" in done.stdout
    assert "refused in 5 min: concurrency 1\n" in done.stdout
    assert re.search(r"out of memory in \d", done.stdout)
    # when it was seen and when it was told may lie on two sides of a second
    assert re.search(rf"last death \d\d:\d\d:\d\d {true['death']['cause']}: ", done.stdout)
    assert re.search(r"binds: \w+, ", done.stdout)
    assert "accounts  service:Accounts  ready, unwarmed  mode guard (default)\n" in done.stdout
    assert "enforce would have: replace:leak 1\n" in done.stdout
    assert re.search(r"gpu 0 \[#.*\] ", done.stdout)
    refused = night.verb("events", "--event", "request.refused")
    assert true["refused"]["ts"] in refused.stdout and "concurrency" in refused.stdout


def test_top_says_what_it_needs(night):
    done = night.verb("top")
    assert done.returncode == 2 and "status -w" in done.stderr
    done = night.verb("top", "--once", "--interval", "5")
    assert done.returncode == 2 and "--interval" in done.stderr
    doc = json.loads(night.verb("top", "--once", "--json").stdout)
    assert doc["kind"] == "status" and doc["services"][0]["would"] == {"replace:leak": 1}


def test_top_draws_in_a_terminal_and_gives_it_back(night):
    """Under script(1): a pseudo-terminal of its own."""
    command = f"stty rows 24 cols 80; {paths.plimsoll} top --admin {night.run_dir}/admin.sock"
    process = subprocess.Popen(["script", "-qec", command, "/dev/null"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    seen = b""
    while b"accounts" not in seen:
        seen += os.read(process.stdout.fileno(), 65536)
    process.stdin.write(b"q")
    process.stdin.flush()
    rest = process.stdout.read()
    process.stdin.close()
    assert process.wait(30) == 0
    seen += rest
    assert seen.startswith(b"\x1b[?1049h") and seen.rstrip().endswith(b"\x1b[?1049l")


# --- states


def simple(serve, tmp_path, *flags):
    """A service without a GPU, and with a token."""
    token = tmp_path / "token"
    token.write_text("a token of sixteen letters\n")
    token.chmod(0o600)
    return serve("service:Simple", "--admin_token", f"file:{token}", *flags, service="simple", admin="127.0.0.1:0").ready()


LINE = "document.getElementById('line').textContent"


@needs_chromium
def test_stale_lost_and_broken_are_told_apart(serve, tmp_path, browser):
    server = simple(serve, tmp_path)
    open_page(browser, server)
    browser.wait_for(f"{LINE} === 'live'")
    main = server.main_pid()
    os.kill(main, signal.SIGSTOP)
    browser.wait_for(f"{LINE}.startsWith('stale: nothing came for')")
    assert browser.ask("document.getElementById('page').className") == "old"
    os.kill(main, signal.SIGCONT)
    browser.wait_for(f"{LINE} === 'live'")
    os.kill(main, signal.SIGKILL)
    browser.wait_for(f"{LINE}.startsWith('connection lost')")
    browser.wait_for(f"{LINE} === 'live'", "the next main is found again")
    assert browser.ask("state.status.pid.main") != main
    browser.complaints.clear()  # of connections that were lost
    line = browser.ask(f"(guarded(() => {{ throw new Error('by the test') }})(), {LINE})")  # before the next figures
    assert "broken" in line and "by the test" in line
    browser.wait_for(f"{LINE} === 'live'", "the next figures can be drawn")
    assert browser.complaints == []


@needs_chromium
def test_names_and_data_of_others_stay_text(serve, tmp_path, browser):
    server = simple(serve, tmp_path)
    open_page(browser, server)
    evil = "<img src=x onerror=window.pwned=1><script>window.pwned=1</script>"
    browser.ask(f"""(() => {{
        const evil = {json.dumps(evil)}, walk = o => {{ for (const k in o) if (typeof o[k] === 'string') o[k] = evil; else if (o[k] && typeof o[k] === 'object') walk(o[k]); }};
        const s = state.status; s.services[0].last_death = {{ id: '', ts: '', sentence: '' }}; s.last_life = {{ sentence: '' }};
        s.services[0].refused_5m = {{ [evil]: 3 }}; s.services[0].would = {{ [evil]: 3 }}; s.services[0].keys_5m = {{ [evil]: 3 }};
        s.services[0].workers[0].verdict = {{ word: '', holder: '', top_tag: '', share: 1, bytes_per_request: 5, low: 1, high: 9, confidence: '' }};
        s.gpus = [{{ gpu: 0, uuid: '', name: '', total_bytes: 10, used_bytes: 5 }}];
        walk(s); draw();
        state.events = [{{ ts: evil, level: evil, event: evil, service: evil, [evil]: evil }}, {{ ts: '2026-01-01T00:00:00.000Z', level: 'error', event: evil, sentence: evil }}]; drawEvents();
        state.history = {{ from_ms: 0, to_ms: 1000, step_ms: 1, memory: [{{ scope: evil, service: evil, what: evil, points: [[1, 2], [3, 4]] }}], deaths: [{{ ts_ms: 5, id: evil, cause: evil }}], requests: [] }}; drawHistory();
        tell(evil, evil);
    }})()""")
    assert browser.ask("document.querySelectorAll('img, script:not([src])').length") == 0
    assert browser.ask("window.pwned") is None
    assert evil in browser.text()
    policy = wire.request(tuple_of(server), "GET", "/").headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
    assert browser.complaints == []


def tuple_of(server):
    host, _, port = address_of(server).rpartition(":")
    return host, int(port)


@needs_chromium
def test_the_page_acts_with_the_keyboard_and_the_token_only(serve, tmp_path, browser):
    server = simple(serve, tmp_path)
    open_page(browser, server)
    focused = "document.activeElement.dataset.key"
    for _ in range(30):
        if browser.ask(focused) == "simple observe":
            break
        browser.press("Tab")
    assert browser.ask(focused) == "simple observe"
    assert browser.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    status = browser.ask("state.at")
    browser.wait_for(f"state.at > {status}", "drawn again")
    assert browser.ask(focused) == "simple observe", "the keyboard keeps its place"
    browser.press("Enter")
    browser.wait_for("document.getElementById('ask').open")
    assert "plimsoll enforce simple observe" in browser.ask("document.getElementById('ask').innerText")
    browser.press("Escape")
    browser.wait_for("!document.getElementById('ask').open")
    assert server.status()["services"][0]["mode"] == "guard"
    act = "[...document.querySelectorAll('[data-key]')].find(b => b.dataset.key === 'simple observe').click()"
    yes = "document.getElementById('ask-yes').click()"
    browser.ask(f"{act}, {yes}")
    browser.wait_for("document.getElementById('ask').open && document.getElementById('ask-head').textContent.includes('refused')")
    assert server.status()["services"][0]["mode"] == "guard"
    browser.press("Escape")
    browser.ask(f"{act}, document.getElementById('token').value = 'a token of sixteen letters', {yes}")
    browser.wait_for("document.getElementById('ask-head').textContent.includes('done')")
    assert server.status()["services"][0]["mode"] == "observe"
    assert server.wait_for("operator.action", {"verb": "enforce"})["token"] == "admin_token"
    assert all("401" in c for c in browser.complaints), browser.complaints


@needs_chromium
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_has_contrast_and_nothing_overflows_a_phone(serve, tmp_path, dark):
    server = simple(serve, tmp_path)
    with Browser(tmp_path / "phone", width=390, height=844, dark=dark, mobile=True) as browser:
        open_page(browser, server)
        ratios = browser.ask("""(() => {
            const rgb = v => { const e = document.createElement('i'); e.style.color = v; document.body.append(e); const c = getComputedStyle(e).color.match(/[\\d.]+/g).map(Number); e.remove(); return c; };
            const lum = c => { const f = c.slice(0, 3).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
            const out = {};
            for (const back of ['bg', 'panel']) for (const front of ['fg', 'dim', 'ok', 'warn', 'bad']) {
                const a = lum(rgb(css(front))), b = lum(rgb(css(back))); out[front + ' on ' + back] = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); }
            return out; })()""")
        assert {k: v for k, v in ratios.items() if v < 4.5} == {}
        assert browser.ask("document.documentElement.scrollWidth") <= 390
        assert browser.complaints == []


@needs_chromium
def test_a_day_of_eight_workers_is_drawn_at_once(serve, tmp_path, browser, record_property):
    server = simple(serve, tmp_path)
    open_page(browser, server)
    took_ms = browser.ask("""(() => {
        const points = n => Array.from({ length: 400 }, (_, i) => [i * 216000, 1e9 + n * 1e8 + 5e7 * Math.sin(i / 9)]);
        const memory = Array.from({ length: 8 }, (_, n) => ({ scope: 'gpu' + n % 2, service: 'chat', worker: n + 1, generation: n, what: 'allocated', points: points(n), reserved: points(n + 2), limit_bytes: 4e10 }));
        const requests = Array.from({ length: 400 }, (_, i) => ({ ts_ms: i * 216000, service: 'chat', requests: 900, failed: i % 7, mean_ms: 5, longest_ms: 90 }));
        state.history = { from_ms: 0, to_ms: 86400000, step_ms: 216000, memory, requests, deaths: [] };
        const s = state.status, w = s.services[0].workers[0]; s.services[0].workers = Array.from({ length: 8 }, (_, n) => ({ ...w, worker: n + 1 }));
        const began = performance.now(); drawHistory(); draw(); document.body.offsetHeight; return performance.now() - began; })()""")
    print(f"24 hours of 8 workers drawn in {took_ms:.0f} ms")
    record_property("drawn_ms", took_ms)
    assert took_ms < 5000


def test_the_stream_goes_on_and_ends_with_the_server(serve, tmp_path):
    server = simple(serve, tmp_path)
    with wire.connect(tuple_of(server)) as sock:
        sock.sendall(b"GET /status?follow=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        seen = b""
        while seen.count(b"event: status\ndata: {") < 3:
            seen += sock.recv(65536)
        server.terminate()
        while more := sock.recv(65536):
            seen += more
    assert seen.endswith(b"0\r\n\r\n"), "ended, not cut"
    assert server.wait_exit() == 0


def test_events_as_a_stream_go_on_where_a_page_left_off(serve, tmp_path):
    server = simple(serve, tmp_path)

    def events(**more):
        reply = wire.request(tuple_of(server), "GET", "/events", headers={"Accept": "text/event-stream", **more})
        assert reply.headers["content-type"] == "text/event-stream"
        return re.findall(r"^id: ([0-9a-f]{16}-\d+)\ndata: \{.*\}\n\n", reply.text(), re.M)

    ids = events()
    assert len(ids) > 5 and len(set(ids)) == len(ids)
    assert events(**{"Last-Event-ID": ids[-3]})[:2] == ids[-2:]
    for nothing in ("0123456789abcdef-3", "", "x", "-1", "f" * 60):
        assert events(**{"Last-Event-ID": nothing})[: len(ids)] == ids, "of another boot, or of nobody: all of them"
    for line in wire.request(tuple_of(server), "GET", "/events").text().splitlines():
        json.loads(line)
