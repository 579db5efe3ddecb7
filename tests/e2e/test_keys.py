"""API keys: who comes in, what a key may use, keys that change under load, and that a key is never written anywhere."""

import os
import signal
import subprocess
import threading

import openai
import pytest

from rig import Load
from rig.door import KeyFile, echo, hash_of, replace
from rig.server import run_plimsoll

GOOD, OTHER, NEW = "sk-good-0123456789abcdef", "sk-other-0123456789abcdef", "sk-new-0123456789abcdef"


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def chat(server, key, **more):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=30)
    return client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], **more)


def series(server, name, **labels):
    for line in server.get("/metrics").text().splitlines():
        if line.startswith(name + "{") and all(f'{k}="{v}"' for k, v in labels.items()) and \
                all(f'{k}="{v}"' in line for k, v in labels.items()):
            return float(line.rpartition(" ")[2])
    return None


@pytest.fixture
def keys(tmp_path):
    return KeyFile(tmp_path / "keys.yaml")


@pytest.mark.asan
def test_the_openai_client_comes_in_with_its_key_only(serve, keys):
    keys.write({"team-a": (GOOD,), "elsewhere": (OTHER, {"services": "[other]"})})
    server = echo(serve, "--api_keys.file", keys)
    assert chat(server, GOOD).choices[0].message.content == "hello"
    words = [c.choices[0].delta.content for c in chat(server, GOOD, stream=True) if c.choices]
    assert "".join(words) == "hello"
    with pytest.raises(openai.AuthenticationError) as wrong:
        chat(server, "sk-wrong")
    assert wrong.value.code == "invalid_api_key" and wrong.value.type == "invalid_request_error"
    with pytest.raises(openai.PermissionDeniedError) as elsewhere:
        chat(server, OTHER)
    assert elsewhere.value.code == "forbidden" and "elsewhere does not open service echo" in str(elsewhere.value)
    assert series(server, "plimsoll_key_requests_total", key="team-a", service="echo") == 2
    assert series(server, "plimsoll_key_tokens_total", key="team-a", service="echo") == 34, "17 told by each, the stream too"
    assert series(server, "plimsoll_requests_rejected_total", service="echo", reason="unauthorized") == 1
    assert series(server, "plimsoll_requests_rejected_total", service="echo", reason="forbidden") == 1


def test_curl_is_refused_in_the_words_of_bentoml_off_v1(serve, keys):
    server = echo(serve, "--api_keys.file", keys.write({"a": (GOOD,), "b": (OTHER, {"services": "[x]"})}))

    def curl(*words):
        done = subprocess.run(["curl", "-sS", "-i", "-X", "POST", "--data", "{}", *words, f"{server.url}/predict"],
                              capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        head, _, body = done.stdout.partition("\n\n")
        return int(head.split()[1]), head.lower(), body

    status, head, body = curl()
    assert status == 401 and "www-authenticate: bearer" in head and "x-plimsoll-reason: unauthorized" in head
    assert body.startswith('{"error":"Unauthorized') and '"code":"invalid_api_key"' in body
    assert curl("-H", f"x-api-key: {GOOD}")[0] == 200
    assert curl("-H", f"Authorization: bearer {GOOD}")[0] == 200, "the scheme is case-insensitive"
    assert curl("-H", f"Authorization: Basic {GOOD}")[0] == 401
    assert curl("-u", f"user:{GOOD}")[0] == 401
    assert curl("-H", f"x-api-key: {GOOD[:-1]}")[0] == 401
    status, _, body = curl("-H", f"x-api-key: {OTHER}")
    assert status == 403 and body.startswith('{"error":"Forbidden') and '"code":"forbidden"' in body


def test_the_key_stays_here_and_a_priority_passes_as_far_as_it_is_allowed(serve, keys):
    server = echo(serve, "--api_keys.file", keys.write({"a": (GOOD,), "b": (OTHER, {"max_priority": "high"})}))

    def seen(key, **headers):
        return server.post("/x", {}, headers={**bearer(key), **headers}).json()["headers"]

    headers = seen(GOOD, **{"X-Api-Key": "another", "X-Other": "kept"})
    assert "authorization" not in headers and "x-api-key" not in headers and headers["x-other"] == "kept"
    assert "x-priority" not in seen(GOOD, **{"X-Priority": "high"})
    assert seen(GOOD, **{"X-Priority": "low"})["x-priority"] == "low"
    assert seen(OTHER, **{"X-Priority": "high"})["x-priority"] == "high"
    assert "x-priority" not in seen(OTHER, **{"X-Priority": "urgent"})


def test_without_keys_what_a_client_shows_is_the_services_business(serve):
    headers = echo(serve).post("/x", {}, headers={**bearer("theirs"), "X-Priority": "high"}).json()["headers"]
    assert headers["authorization"] == "Bearer theirs" and headers["x-priority"] == "high"


def test_health_metrics_and_preflights_need_no_key(serve, keys):
    server = echo(serve, "--api_keys.file", keys.write({"a": (GOOD,)}), "--cors.enabled", "on", "--cors.allow_origins", "https://a.example")
    for path in ("/livez", "/readyz", "/readyz/echo", "/metrics"):
        assert server.get(path).status == 200, path
    from rig import request
    preflight = request(server.address, "OPTIONS", "/x", headers={"Origin": "https://a.example", "Access-Control-Request-Method": "POST"})
    assert preflight.status in (200, 204) and preflight.headers["access-control-allow-origin"] == "https://a.example"
    refused = server.post("/x", {}, headers={"Origin": "https://a.example"})
    assert refused.status == 401 and refused.headers["access-control-allow-origin"] == "https://a.example", "a page may read why"
    assert request(server.address, "POST", "/readyz", b"").status == 401, "any other method is the service's"


def test_requests_and_tokens_a_minute_are_bounded(serve, keys):
    keys.write({"few": (GOOD, {"requests_per_minute": 1}), "short": (OTHER, {"tokens_per_minute": 20})})
    server = echo(serve, "--api_keys.file", keys)
    assert server.post("/x", {}, headers=bearer(GOOD)).status == 200
    second = server.post("/x", {}, headers=bearer(GOOD))
    assert second.status == 429 and second.headers["x-plimsoll-reason"] == "key_limit"
    assert second.headers["x-llm-d-request-dropped-reason"] == "rejected-saturated"
    assert 1 <= int(second.headers["retry-after"]) <= 61
    assert "key few may send 1 requests a minute" in second.json()["error"]
    chat(server, OTHER)
    chat(server, OTHER)  # 3 tokens were left, and the answer had 17
    with pytest.raises(openai.RateLimitError) as limited:
        chat(server, OTHER)
    assert "key short may use 20 tokens a minute" in str(limited.value)
    assert 1 <= int(limited.value.response.headers["retry-after"]) <= 45
    # another hash or another file gives no fresh minute
    keys.write({"few": (NEW, {"requests_per_minute": 1}), "short": (OTHER, {"tokens_per_minute": 20})})
    assert server.verb("reload").returncode == 0
    assert server.post("/x", {}, headers=bearer(NEW)).status == 429


def test_a_key_has_so_many_requests_at_a_time_and_its_places_come_back(serve, keys):
    keys.write({"one": (GOOD, {"max_concurrency": 1}), "b": (OTHER,)})
    server = echo(serve, "--api_keys.file", keys)
    held = []
    thread = threading.Thread(target=lambda: held.append(server.get("/hold", headers=bearer(GOOD))))
    thread.start()
    server.wait_until(lambda: server.status()["services"][0]["queue"]["running"] == 1)
    refused = server.post("/x", {}, headers=bearer(GOOD))
    assert refused.status == 429 and "1 requests at a time" in refused.json()["error"]
    assert server.post("/x", {}, headers=bearer(OTHER)).status == 200, "another key has places of its own"
    server.gate.touch()
    thread.join(30)
    assert held[0].status == 200
    server.wait_until(lambda: server.post("/x", {}, headers=bearer(GOOD)).status == 200)


def test_a_limit_is_only_told_where_a_service_is_observed(serve, keys):
    server = echo(serve, "--mode", "observe", "--api_keys.file", keys.write({"few": (GOOD, {"requests_per_minute": 1})}))
    for _ in range(3):
        assert server.post("/x", {}, headers=bearer(GOOD)).status == 200
    assert server.wait_for("would.refuse", {"reason": "key_limit"})["status"] == 429
    assert series(server, "plimsoll_would_total", service="echo", action="refuse", reason="key_limit") == 2
    assert server.post("/x", {}).status == 401, "who may come in is no matter of load"


@pytest.mark.asan
def test_keys_change_under_load_with_an_overlap_and_nobody_is_refused(serve, keys):
    server = echo(serve, "--api_keys.file", keys.write({"team": (GOOD,)}))
    using = [GOOD]

    def make(number):
        return "POST", "/x", {"n": number}, lambda reply: f'"n": {number}' in reply.json()["body"], bearer(using[0])

    with Load(server.address, make, connections=8) as load:
        load.wait_for(100)
        keys.write({"team": ([GOOD, NEW],)})
        server.wait_for("keys.reloaded", {"keys": 1})  # by itself: nobody ordered a reload
        using[0] = NEW
        load.wait_for(len(load.outcomes) + 100)
        # a request that was made with the old key is answered by now: 8 clients, 100 answers
        keys.write({"team": (NEW,)})
        server.wait_for("keys.reloaded", count=2)
        load.wait_for(len(load.outcomes) + 100)
        load.stop()
    assert [o for o in load.outcomes if o.kind != "ok"] == []
    assert server.post("/x", {}, headers=bearer(GOOD)).status == 401, "the old key is out"
    assert series(server, "plimsoll_key_requests_total", key="team", service="echo") == len(load.outcomes)


def test_a_file_that_breaks_changes_nothing_and_is_told(serve, keys):
    server = echo(serve, "--api_keys.file", keys.write({"a": (GOOD,)}))
    replace(keys.path, f"- {{name: a, hash: {GOOD}}}\n")  # the key where its hash should be
    message = server.wait_for("config.rejected")["message"]
    assert message.startswith(f"{keys}:1:19: ") and GOOD not in message
    assert server.post("/x", {}, headers=bearer(GOOD)).status == 200
    done = server.verb("reload")
    assert done.returncode == 3 and f"{keys}:1:19" in done.stdout + done.stderr and GOOD not in done.stdout + done.stderr
    keys.write({"a": (GOOD,)}, mode=0o644)
    assert server.verb("reload").returncode == 3
    keys.write({"a": (NEW,)})
    assert server.verb("reload").returncode == 0
    assert server.post("/x", {}, headers=bearer(NEW)).status == 200
    assert server.post("/x", {}, headers=bearer(GOOD)).status == 401


def test_keys_come_and_go_by_a_reload(serve, tmp_path, keys):
    from rig.door import ECHO, paths
    file = tmp_path / "plimsoll.yaml"
    text = f"services:\n  echo:\n    command: ['{paths.python}', '{ECHO}', '--socket', '{{socket}}']\n"
    file.write_text(text)
    server = serve(None, "-c", file).ready()
    assert server.post("/x", {}).status == 200
    file.write_text(text + f"api_keys: {{file: {keys.write({'a': (GOOD,)})}}}\n")
    assert server.verb("reload").returncode == 0
    assert server.post("/x", {}).status == 401 and server.post("/x", {}, headers=bearer(GOOD)).status == 200
    file.write_text(text)
    assert server.verb("reload").returncode == 0
    assert server.post("/x", {}).status == 200
    os.kill(server.main_pid(), signal.SIGKILL)
    server.wait_for("main.started", count=2)
    server.wait_until(lambda: (server.try_status() or {}).get("ready"))
    assert server.post("/x", {}).status == 200, "the next main asks for none, either"


def test_the_next_main_has_the_keys_that_were_accepted(serve, keys):
    server = echo(serve, "--api_keys.file", keys.write({"a": (GOOD,)}))
    old = server.main_pid()
    keys.path.unlink()
    os.kill(old, signal.SIGKILL)
    server.wait_for("main.started", count=2)
    server.wait_until(lambda: (server.try_status() or {}).get("ready"))
    assert server.post("/x", {}).status == 401
    assert server.post("/x", {}, headers=bearer(GOOD)).status == 200


def test_one_key_from_the_environment_which_no_worker_sees(serve):
    server = echo(serve, "--api-key", "env:MY_KEY", env={"MY_KEY": GOOD, "KEPT": "yes"})
    assert server.post("/x", {}).status == 401
    env = server.post("/x", {}, headers=bearer(GOOD)).json()["env"]
    assert env["KEPT"] == "yes" and "MY_KEY" not in env and GOOD not in str(env)
    assert series(server, "plimsoll_key_requests_total", key="default", service="echo") == 1


@pytest.mark.parametrize(("flags", "message"), [
    (["--api_keys.file", "{folder}/none"], "api_keys.file: open {folder}/none: No such file"),
    (["--api_keys.file", "{folder}/open"], "{folder}/open can be read or written by everybody (mode 0644)"),
    (["--api_keys.file", "{folder}"], "{folder} is not a file"),
    (["--api_keys.file", "{folder}/wrong"], "{folder}/wrong:1:3: this row has no hash"),
    (["--api-key", "env:NOT_SET_HERE"], "--api-key: the variable NOT_SET_HERE is not set"),
    (["--api-key", "sk-secret-in-words"], "a secret is never written here"),
])
def test_serve_ends_with_3_when_the_keys_cannot_be_used(tmp_path, flags, message):
    (tmp_path / "open").write_text(f"- {{name: a, hash: '{hash_of(GOOD)}'}}\n")
    (tmp_path / "open").chmod(0o644)
    (tmp_path / "wrong").write_text("- {name: a}\n")
    (tmp_path / "wrong").chmod(0o600)
    done = run_plimsoll("serve", "--check", *[f.format(folder=tmp_path) for f in flags], "--", "/bin/true", "{port}")
    assert done.returncode == 3, done.stderr
    assert message.format(folder=tmp_path) in done.stderr
    assert "sk-secret" not in done.stdout + done.stderr


def test_a_key_is_written_nowhere(serve, keys):
    """Everything that is said or left anywhere, in the most talkative mode, has none of the keys that were shown."""
    secret = "sk-wrong-0123456789abcdef"
    keys.write({"team-a": (GOOD, {"requests_per_minute": 3}), "b": (OTHER, {"services": "[x]"})})
    server = echo(serve, "--api_keys.file", keys, "--logs.level", "debug", "--api-key", "env:MY_KEY", env={"MY_KEY": NEW})
    said = []
    for key in (GOOD, OTHER, NEW, secret):
        for headers in (bearer(key), {"x-api-key": key}, {"Authorization": key}, {"x-request-id": "mine", **bearer(key)}):
            said.append(server.post("/x?api_key=" + key, {}, headers=headers))
            said.append(server.post("/v1/chat/completions?k=" + key, {"messages": []}, headers=headers))
    said.append(server.post("/v1/chat/completions", b"{", headers={"Authorization": f"Bearer\t{secret}"}))
    said.append(server.get("/no/such", headers=bearer(secret)))
    server.verb("reload")
    text = "".join(str(r.headers) + r.text() for r in said if r.status != 200)
    text += server.get("/metrics").text() + str(server.status())
    for verb in (["status"], ["events", "--since", "1h", "--level", "debug"], ["logs"], ["config", "show"]):
        done = server.verb(*verb) if verb[0] != "config" else run_plimsoll(*verb)
        text += done.stdout + done.stderr
    from rig import request
    text += request(server.run_dir / "admin.sock", "GET", "/config").text()
    for left in (server.run_dir, server.folder / "state", server.tmp):
        for path in left.rglob("*"):
            if path.is_file():
                text += path.read_bytes().decode("latin-1")
    server.terminate()
    assert server.wait_exit() == 0
    text += server.log.text() + server.stdout()
    assert "team-a" in text and "key.refused" in text and "unauthorized" in text, "it did talk"
    for key in (GOOD, OTHER, NEW, secret):
        assert key not in text and key[3:20] not in text and hash_of(key)[7:30] not in text
