"""The plain way: a service is started, becomes ready, answers, tells about itself, and ends without a trace."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading

import httpx
import pytest

from rig import WebSocket, connect, paths, request, send_head, state_of
from rig.server import clean_environment, run_plimsoll

NO_TRACEBACK = "Traceback (most recent call last)"


# ---- the way up

def test_readyz_tells_the_phase_while_the_model_loads(serve):
    server = serve("service:SlowBoot", service="slow_boot").started()
    server.wait_for("worker.spawned")
    assert server.get("/livez").json() == {"live": True}

    def loading():
        reply = server.get("/readyz")
        assert reply.status == 503
        assert reply.json()["ready"] is False and reply.json()["why"] == "starting"
        (row,) = reply.json()["services"].values()
        assert row["ready"] is False and row["why"] == "starting"
        return row if row["phase"] in ("imported", "loaded") else None

    server.wait_until(loading, what="the phase of a service whose __init__ runs")
    refused = server.post("/predict", {"x": 1})
    assert refused.status == 503
    assert int(refused.headers.get("retry-after", 1)) >= 1
    assert refused.headers["x-plimsoll-reason"] == "not_ready"

    server.gate.touch()
    server.wait_for("main.ready")
    assert server.get("/readyz").json() == {"ready": True}
    assert server.post("/predict", {"x": 5}).text() == "5"


def test_warm_up_comes_from_the_authors_defaults_and_is_no_traffic(serve):
    server = serve("service:Simple", service="simple").ready()
    warming = server.wait_for("worker.warming")
    assert warming["source"] == "examples"
    ready = server.wait_for("worker.ready")
    assert ready["warm"] in (True, "warm") and ready["warmup_requests"] >= 1
    assert server.status()["services"][0]["warmth"] == "warm"
    assert server.log.find("access") == []
    assert not re.search(r'^plimsoll_requests_total\{.*code="200".*\} [1-9]', server.get("/metrics").text(), re.M)


def test_only_an_upload_endpoint_becomes_ready_says_unwarmed_and_serves(serve):
    server = serve("service:UploadOnly", service="upload_only").ready()
    server.wait_for("worker.unwarmed")
    assert server.status()["services"][0]["warmth"] == "unwarmed"
    reply = httpx.post(f"{server.url}/size", files={"file": b"x" * 1000}, timeout=30)
    assert (reply.status_code, reply.text) == (200, "1000")


@pytest.mark.asan
def test_a_prediction_is_the_services_own_reply_byte_for_byte(feature):
    reply = feature.post("/predict", {"x": 21})
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    pid = reply.json()["pid"]
    assert reply.body == b'{"x": 21, "double": 42, "pid": %d}' % pid
    assert pid in feature.workers().values()
    assert feature.post("/value_error", {"text": "a detail that stays inside"}).json() == {
        "error": "An unexpected error has occurred, please check the server log."}
    assert feature.post("/invalid", {"text": "bad thing"}).json() == [{"error": "bad thing"}]
    assert feature.post("/with_context", {"x": 1}, headers={"x-request-id": "mine"}).text() == "mine"
    assert feature.get("/nothing-here").status == 404
    assert feature.get("/predict").status == 405


def test_timeline_and_first_request_are_stamped(feature):
    feature.post("/predict", {"x": 1})
    first = feature.wait_for("worker.first_request")
    assert first["took_ms"] >= 0
    timeline = feature.status()["services"][0]["workers"]
    stamps = next(w["timeline"] for w in timeline if "first_request_s" in w["timeline"])
    order = [stamps[name] for name in ("spawned", "imported", "loaded", "warm", "ready")]
    assert order == sorted(order)


def test_websocket_is_tunnelled(feature):
    ws = WebSocket(feature.address, "/ws/echo")
    for text in ("one", "two", "x" * 70000):
        ws.say(text)
        assert ws.hear() == f"echo {text}"
    ws.close()


def test_dependency_is_served(serve):
    server = serve("service:Front", service="with_dependency").ready()
    assert server.post("/predict", {"x": 4.0}).text() == "9.0"


def test_deployment_hooks_run_once_whatever_the_number_of_workers(serve):
    server = serve("service:Hooks", service="hooks").ready(workers=2)
    journal = server.journal()
    assert journal.count("on_deployment") == 1
    assert journal.count("init") == 2
    assert journal.index("on_deployment") < journal.index("init")
    assert server.verb("restart", "--all").returncode == 0
    assert server.journal().count("on_deployment") == 1
    assert server.post("/job/submit", {"x": 1}).status == 200


# ---- starts that fail: a sentence, the right exit status, nothing left

def failing(serve, target, folder, *flags, **more):
    server = serve(target, "--failed_exit", "0s", "--backoff.attempts", "1", *flags, service=folder, **more)
    return server, server.wait_exit(60)


def test_import_error_ends_with_6_and_the_last_lines(serve):
    server, status = failing(serve, "service:Bad", "bad_import")
    assert status == 6
    failed = server.log.find("worker.failed")[-1]
    assert failed["cause"] == "import_failed"
    assert "RuntimeError: module-level failure" in server.log.find("worker.start_failed")[-1]["last_line"]


def test_init_error_ends_with_6_and_the_last_lines(serve):
    server, status = failing(serve, "service:BadInit", "bad_init")
    assert status == 6
    assert server.log.find("worker.failed")[-1]["cause"] == "init_failed"
    assert "the weights are not where they should be" in server.log.find("worker.start_failed")[-1]["last_line"]


def test_no_such_class_ends_with_6_and_names_it(serve):
    server, status = failing(serve, "service:Absent", "no_class")
    assert status == 6
    assert "Absent" in server.log.text()


def test_failed_starts_are_retried_with_growing_pauses_and_the_port_stays_open(serve):
    server = serve("service:BadInit", "--backoff.attempts", "3", "--backoff.initial", "100ms",
                   service="bad_init").started()
    server.wait_for("worker.failed")
    pauses = [e["delay_ms"] for e in server.log.find("worker.backoff")]
    assert pauses == sorted(pauses) and len(pauses) == 2
    reply = server.get("/readyz")
    assert reply.status == 503 and reply.json()["why"] == "failed"
    assert server.get("/livez").status == 200


def test_port_taken_is_a_sentence_and_5(serve):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        server = serve("service:Simple", "--host", "127.0.0.1", "--port", port, service="simple", listen=False)
        assert server.wait_exit() == 5
    text = server.log.text()
    assert str(port) in text and "in use" in text
    assert server.journal() == []


def test_python_missing_is_a_sentence(serve):
    server, status = failing(serve, "service:Simple", "simple", python="/nonexistent/python")
    assert status in (3, 5)
    assert "/nonexistent/python" in server.log.text()


def test_bentoml_missing_is_a_sentence_and_no_traceback(serve, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    server, status = failing(serve, "service:Simple", "simple", python=tmp_path / "bare/bin/python")
    assert status == 5
    text = server.log.text()
    assert "bentoml" in text.lower() and "pip install" in text
    assert NO_TRACEBACK not in text


def test_a_run_folder_that_is_too_long_is_refused_before_anything_starts(serve):
    server = serve("service:Simple", "--run_dir", "/tmp/" + "x" * 120, service="simple")
    assert server.wait_exit() == 3
    assert "run_dir" in server.log.text()


def test_a_run_folder_that_cannot_be_made_is_a_sentence_and_5(serve, tmp_path):
    (tmp_path / "file").write_text("")
    server = serve("service:Simple", "--run_dir", tmp_path / "file/run", service="simple")
    assert server.wait_exit() == 5
    assert str(tmp_path / "file") in server.log.text()


def test_a_second_server_in_the_same_run_folder_names_the_first_ones_pid(serve):
    first = serve("service:Simple", service="simple").ready()
    second = serve("service:Simple", "--run_dir", first.run_dir, service="simple")
    assert second.wait_exit() == 5
    assert str(first.pid) in second.log.text()
    assert first.post("/predict", {"text": "still"}).text() == "STILL"


def test_an_unknown_flag_key_says_what_was_meant(serve):
    server = serve("service:Simple", "--traffic.timout", "3s", service="simple")
    assert server.wait_exit() in (2, 3)
    assert "traffic.timeout" in server.log.text()


# ---- the end

@pytest.mark.asan
def test_sigterm_ends_in_order_with_0(serve):
    server = serve("service:Feature").ready(workers=2)
    server.post("/predict", {"x": 1})
    pids = server.workers().values()
    server.terminate()
    assert server.wait_exit() == 0
    assert server.log.find("main.stopped")
    assert [state_of(pid) for pid in pids] == ["", ""]
    assert sum(line.startswith("shutdown") for line in server.journal()) == 2


def test_sigterm_lets_requests_under_way_end(serve):
    server = serve("service:Feature").ready()
    replies = []
    clients = [threading.Thread(target=lambda n=n: replies.append(
        server.post("/work", {"number": n, "seconds": 2.0}))) for n in range(3)]
    for c in clients:
        c.start()
    server.wait_until(lambda: sum(line.startswith("begin") for line in server.journal()) == 3)
    server.terminate()
    for c in clients:
        c.join()
    assert [r.status for r in replies] == [200] * 3
    assert server.wait_exit() == 0


def test_a_second_sigterm_does_not_wait_for_the_drain(serve):
    server = serve("service:Feature").ready()
    sock = connect(server.address, timeout=60)
    body = json.dumps({"n": 100000, "pause": 0.2}).encode()
    send_head(sock, "POST", "/stream", [("Content-Type", "application/json"), ("Content-Length", len(body))])
    sock.sendall(body)
    seen = sock.recv(4096)
    assert seen.startswith(b"HTTP/1.1 200")
    server.terminate()
    server.wait_for("main.stopping")
    server.process.send_signal(signal.SIGTERM)
    assert server.wait_exit(40) == 0
    try:
        while data := sock.recv(65536):
            seen += data
    except ConnectionResetError:
        pass
    sock.close()
    assert not seen.endswith(b"0\r\n\r\n"), "a stream that was cut must not look complete"


# ---- seeing it

def test_access_line_has_the_fields_of_bentoml_and_ours(feature):
    reply = feature.post("/predict?secret=1", {"x": 1}, headers={"x-request-id": "abc"})
    line = feature.wait_for("access", {"path": "/predict"})
    assert line["method"] == "POST" and line["status"] == 200 and line["scheme"] == "http"
    assert line["request_type"] == "application/json" and line["response_type"] == "application/json"
    assert line["request_length"] == len(b'{"x": 1}') and line["response_length"] == len(reply.body)
    assert line["service"] == "feature" and line["outcome"] == "ok" and line["request_id"] == "abc"
    assert re.fullmatch(r"[0-9a-f]{16}", line["id"])
    assert line["duration_ms"] >= 0 and line["queue_ms"] >= 0
    assert "secret" not in feature.log.text()
    feature.get("/readyz")
    feature.get("/metrics")
    feature.post("/predict", {"x": 2})
    feature.wait_for("access", {"path": "/predict"}, count=2)
    assert {e["path"] for e in feature.log.find("access")} == {"/predict"}


def test_worker_output_passes_through_line_by_line(feature):
    feature.post("/value_error", {"text": "seen only in the log"})
    feature.wait_until(lambda: "ValueError: seen only in the log" in feature.log.text() + feature.stdout())
    feature.wait_until(lambda: "seen only in the log" in feature.verb("logs").stdout)


@pytest.mark.asan
def test_metrics_are_clean_and_hold_the_services_own(feature):
    for x in range(10):
        feature.post("/predict", {"x": x})

    def counted():
        text = feature.get("/metrics").text()
        total = sum(float(v) for v in re.findall(r'^feature_calls_total\{[^}]*kind="predict"[^}]*\} (\S+)', text, re.M))
        return text if total >= 10 else None

    text = feature.wait_until(counted, what="the user's counter in our /metrics")
    checked = subprocess.run([paths.promtool, "check", "metrics"], input=text, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for name in ("plimsoll_build_info", "plimsoll_up_seconds", "plimsoll_ready", "plimsoll_worker_state",
                 "plimsoll_requests_total", "plimsoll_request_seconds_bucket", "plimsoll_start_seconds",
                 "plimsoll_queue_requests", "plimsoll_connections", "plimsoll_main_starts_total",
                 "bentoml_service_request_total", "bentoml_service_request_duration_seconds_bucket"):
        assert re.search(rf"^{name}(\{{| )", text, re.M), f"{name} is not exported"
    series = [line.rpartition(" ")[0] for line in text.splitlines() if line and not line.startswith("#")]
    assert len(series) == len(set(series)), "a series is exported twice"


def test_the_same_series_of_bentoml_as_without_us(feature):
    """Name and labels of BentoML's request counter: dashboards that exist keep working."""
    feature.post("/predict", {"x": 1})

    def row():
        text = feature.get("/metrics").text()
        return re.search(r"^bentoml_service_request_total\{([^}]*/predict[^}]*)\} ", text, re.M)

    found = feature.wait_until(row)
    labels = dict(re.findall(r'(\w+)="([^"]*)"', found.group(1)))
    assert labels["endpoint"] == "/predict" and labels["service_name"] == "feature"
    assert labels["http_response_code"] == "200" and "service_version" in labels and "runner_name" in labels


def test_status_json_tells_workers_limits_and_guards(feature):
    feature.post("/predict", {"x": 1})
    status = feature.wait_until(lambda: (s := feature.status())["services"][0]["guards"]["memory"] != "none" and s,
                                what="the first look at the workers' memory")
    assert status["v"] == 1 and status["kind"] == "status" and status["ready"] is True
    assert status["pid"]["keeper"] == feature.pid and status["pid"]["main"] != feature.pid
    (service,) = status["services"]
    assert service["name"] == "feature" and service["kind"] == "python" and service["mode"] == "guard"
    assert service["guards"]["restart"] is True and service["guards"]["admission"] == "count"
    assert service["guards"]["memory"] == "host"
    assert [w["worker"] for w in service["workers"]] == [1, 2]
    assert {w["state"] for w in service["workers"]} == {"ready"}
    assert sum(w["requests"] for w in service["workers"]) == 1
    same = request(feature.run_dir / "admin.sock", "GET", "/status")
    assert same.status == 200 and same.json()["boot"] == status["boot"]
    text = feature.verb("status")
    assert text.returncode == 0 and len(text.stdout.splitlines()) <= 24 and "feature" in text.stdout


def test_what_is_guarded_does_not_change_when_the_only_worker_is_new(serve):
    """A look at a worker's memory comes once a second: one that has just become ready was not looked at yet."""
    server = serve("service:Feature", "--workers", "1").ready()

    def memory():
        return server.status()["services"][0]["guards"]["memory"]

    server.wait_until(lambda: memory() == "host")
    for generation in (2, 3, 4):
        os.kill(server.workers()[1], signal.SIGKILL)
        server.wait_for("worker.ready", {"generation": generation})
        assert memory() == "host"


def test_admin_port_answers_reads_and_refuses_acts(serve):
    server = serve("service:Simple", service="simple", admin="127.0.0.1:0").ready()
    event = server.wait_for("main.started")
    host, _, port = event["admin"].rpartition(":")
    address = (host, int(port))
    assert request(address, "GET", "/status").json()["kind"] == "status"
    assert request(address, "GET", "/readyz").status == 200
    assert "plimsoll_build_info" in request(address, "GET", "/metrics").text()
    assert request(address, "POST", "/restart", {"service": "simple"}).status in (401, 403)


def test_events_verb_shows_what_the_log_shows(feature):
    done = feature.verb("events", "--json", "--event", "worker.ready")
    assert done.returncode == 0
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(r["worker"] for r in rows) == [1, 2]
    assert {r["service"] for r in rows} == {"feature"}
    assert feature.verb("events", "--json", "--event", "worker.ready", "--since", "1h").stdout == done.stdout
    none = feature.verb("events", "--since", "2999-01-01T00:00:00Z")
    assert none.returncode == 1 and none.stdout == ""
    wrong = feature.verb("events", "--since", "soon")
    assert wrong.returncode == 2 and "--since" in wrong.stderr


def test_config_show_names_the_decorator_as_origin():
    """It asks the service itself: no server has to run."""
    done = run_plimsoll("config", "show", "service:Feature", "--python", paths.python, cwd=paths.services / "feature")
    assert done.returncode == 0, done.stderr
    rows = {key: line for line in done.stdout.splitlines() for key in ("traffic.timeout", "traffic.max_concurrency")
            if key in line}
    assert "30s" in rows["traffic.timeout"] and "decorator" in rows["traffic.timeout"]
    assert "64" in rows["traffic.max_concurrency"] and "decorator" in rows["traffic.max_concurrency"]


def test_banner_is_short_and_names_limits_with_their_origin(serve):
    """On a terminal; so the log is not JSON here, and the lines are read as a person reads them."""
    control, terminal = pty.openpty()
    server = serve("service:Feature", terminal=terminal)
    os.close(terminal)
    screen = bytearray()

    def read():
        try:
            while data := os.read(control, 65536):
                screen.extend(data)
        except OSError:  # the other side is closed
            pass

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    server.wait_until(lambda: b"main.ready" in screen or not server.alive(), what="main.ready on the terminal")
    server.terminate()
    assert server.wait_exit() == 0
    reader.join(10)
    os.close(control)
    text = re.sub(r"\x1b\[[0-9;]*m", "", screen.decode(errors="replace")).replace("\r", "")
    lines = [line for line in text.splitlines()
             if line.strip() and not re.match(r"\d\d:\d\d:\d\d\.\d{3} |\S+/\d+\.\d+ \| |INFO \[", line)]
    assert 1 <= len(lines) <= 8, lines
    banner = "\n".join(lines)
    assert "127.0.0.1:" in banner and "30s" in banner and "decorator" in banner


# ---- the example

def test_digits_predicts_a_real_digit_from_json_and_from_png(digits):
    assert digits.wait_for("worker.warming")["source"] == "declared"
    reply = digits.post("/predict", json.loads((paths.digits / "samples/three.json").read_text()))
    assert reply.status == 200, reply.text()
    assert reply.json()["digit"] == 3
    png = (paths.digits / "samples/three.png").read_bytes()
    from_png = httpx.post(f"{digits.url}/predict_png", files={"image": ("three.png", png, "image/png")}, timeout=30)
    assert from_png.status_code == 200, from_png.text
    assert from_png.json() == reply.json()


# ---- without a server

def test_version_and_help_need_no_server():
    done = run_plimsoll("--version")
    assert done.returncode == 0 and re.search(r"\d+\.\d+\.\d+", done.stdout)
    assert "serve" in run_plimsoll("--help").stdout
    assert run_plimsoll("no-such-verb").returncode == 2


def test_a_verb_without_a_server_says_so_with_5(tmp_path):
    done = run_plimsoll("status", "--admin", tmp_path / "none.sock", env=clean_environment())
    assert done.returncode == 5
    assert "none.sock" in done.stderr and NO_TRACEBACK not in done.stderr
