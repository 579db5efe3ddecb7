"""The admin port: who reads, who acts, and why a page in a browser can do neither."""

import os
import socket
import subprocess

import pytest

from rig import connect, read_reply, request
from rig.door import echo
from rig.server import clean_environment, run_plimsoll

TOKEN = "token-0123456789abcdef0123456789"
READS = ("/status", "/status/echo", "/config", "/events", "/logs/echo", "/actions/a1")
ACTS = ("/restart", "/reload", "/drain", "/enforce", "/sample", "/log-level")


def admin_of(server):
    host, _, port = server.wait_for("main.started")["admin"].rpartition(":")
    return host, int(port)


def outside():
    """An address of this machine that is not loopback: who connects to it comes from there, too."""
    with open("/proc/net/fib_trie") as f:
        lines = f.read().splitlines()
    local = [a.split()[-1] for a, b in zip(lines, lines[1:]) if "host LOCAL" in b]
    found = [a for a in local if not a.startswith("127.")]
    if not found:
        pytest.skip("this machine has no address but loopback")
    return found[0]


def headers(token=TOKEN, host=None, custom="1"):
    made = {"Authorization": f"Bearer {token}", "Host": host, "x-plimsoll-admin": custom}
    return {k: v for k, v in made.items() if v is not None and v != "Bearer None"}


def post(address, path, body, sent):
    """With the Host as given: http.client would write its own as well."""
    with connect(address) as sock:
        sock.sendall((f"POST {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in sent.items()) +
                      f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
        return read_reply(sock)[0]


@pytest.fixture
def token(tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    return path


@pytest.mark.asan
def test_the_token_acts_over_tcp_only_with_a_known_host_and_the_header(serve, token):
    server = echo(serve, "--admin_token", f"file:{token}", admin="127.0.0.1:0")
    address = admin_of(server)
    here = f"{address[0]}:{address[1]}"
    order = '{"service":"echo"}'
    assert post(address, "/drain", order, headers(host=here)).status == 202
    event = server.wait_for("operator.action", {"verb": "drain"})
    assert event["token"] == "admin_token" and "peer_uid" not in event
    for path in ACTS:
        for wrong in (headers(host=here, token="x" * 32), headers(host=here, token=None), headers(host=here, token=TOKEN[:-1]),
                      headers(host=here, custom=None), headers(host=here, custom="0"),
                      headers(host="evil.example"), headers(host=f"evil.example:{address[1]}"), headers(host="127.0.0.1.evil.example")):
            assert post(address, path, order, wrong).status in (401, 403), (path, wrong)
    assert [e["verb"] for e in server.log.find("operator.action") if e["verb"] != "refused"] == ["drain"]
    assert TOKEN not in server.log.text() and TOKEN not in server.get("/metrics").text()


def test_an_order_that_cannot_be_read_is_not_one_to_all_services(serve, token):
    server = echo(serve, "--admin_token", f"file:{token}", admin="127.0.0.1:0")
    address = admin_of(server)
    for order in ('{"service":"ech', '["echo"]', '"echo"', '{"service":["echo"]}', '{"service":null}', "service=echo"):
        refused = post(address, "/drain", order, headers(host="localhost"))
        assert refused.status == 400 and "an order is a JSON object" in refused.text(), order
    assert server.get("/readyz").status == 200
    assert post(address, "/drain", "", headers(host="localhost")).status == 202, "nothing said: all of them"
    server.wait_until(lambda: server.get("/readyz").status == 503)


def test_without_a_token_only_the_socket_acts(serve):
    server = echo(serve, admin="127.0.0.1:0")
    address = admin_of(server)
    for path in ACTS:
        reply = post(address, path, "{}", headers(host="localhost"))
        assert reply.status == 403 and "admin_token" in reply.text(), path
    assert server.verb("drain", "echo").returncode == 0
    assert server.wait_for("operator.action", {"verb": "drain"})["peer_uid"] == os.getuid()


def test_dns_rebinding_reads_nothing_and_acts_on_nothing(serve, token):
    """A page of evil.example whose name was made to point at us: the browser sends its name, and no token."""
    server = echo(serve, "--admin_token", f"file:{token}", admin="127.0.0.1:0")
    address = admin_of(server)
    for path in READS:
        for host in ("evil.example", f"evil.example:{address[1]}", "127.0.0.1.evil.example", "localhost.evil.example"):
            assert request(address, "GET", path, headers={"Host": host}).status == 403, (path, host)
        assert request(address, "GET", path).status in (200, 404), path
        assert request(address, "GET", path, headers={"Host": f"{socket.gethostname()}:1"}).status in (200, 404), path


def test_cross_site_requests_act_on_nothing(serve, token):
    """What a page of another origin can send without a pre-flight; and the pre-flight is never answered with yes."""
    server = echo(serve, "--admin_token", f"file:{token}", admin="127.0.0.1:0")
    address = admin_of(server)
    here = f"{address[0]}:{address[1]}"
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        sent = {"Host": here, "Origin": "https://evil.example", "Content-Type": kind, "Cookie": "a=b"}
        for path in ACTS:
            assert post(address, path, '{"service":"echo"}', sent).status in (401, 403), (path, kind)
            assert post(address, path, '{"service":"echo"}', {**sent, "Authorization": f"Bearer {TOKEN}"}).status == 403, (path, kind)
    preflight = request(address, "OPTIONS", "/drain", headers={
        "Origin": "https://evil.example", "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "x-plimsoll-admin,authorization"})
    assert preflight.status == 405
    assert not [k for k in preflight.headers if k.startswith("access-control-")]
    assert not [k for k in request(address, "GET", "/status", headers={"Origin": "https://evil.example"}).headers
                if k.startswith("access-control-")], "nor may it read what it asked for"
    assert server.status()["services"][0]["ready"]


def test_from_elsewhere_reading_needs_the_token(serve, token):
    there = outside()
    server = echo(serve, "--admin_token", f"file:{token}", admin=f"{there}:0")
    address = admin_of(server)
    for path in ("/livez", "/readyz", "/metrics"):
        assert request(address, "GET", path).status == 200, "as on the data port"
    for path in READS:
        assert request(address, "GET", path).status == 401, path
        assert request(address, "GET", path, headers=headers(token="wrong" * 8)).status == 401, path
        assert request(address, "GET", path, headers=headers()).status in (200, 404), path
    where = f"{address[0]}:{address[1]}"
    assert run_plimsoll("status", "--admin", where).returncode == 2
    assert run_plimsoll("status", "--admin", where, "--token-file", token).returncode == 0
    assert run_plimsoll("drain", "echo", "--admin", where, "--token-file", token).returncode == 0
    done = run_plimsoll("drain", "--undo", "--admin", where, env={**clean_environment(), "PLIMSOLL_TOKEN_FILE": str(token)})
    assert done.returncode == 0, done.stderr


def test_from_elsewhere_without_a_token_there_is_a_warning_and_nothing_to_read(serve):
    there = outside()
    server = echo(serve, admin=f"{there}:0")
    assert "and there is no admin_token" in server.log.text()
    reply = request(admin_of(server), "GET", "/status")
    assert reply.status == 401 and "admin_token" in reply.text()


def test_the_token_changes_with_its_file(serve, token):
    server = echo(serve, "--admin_token", f"file:{token}", admin="127.0.0.1:0")
    address = admin_of(server)
    new = "another-0123456789abcdef"
    token.write_text(new)
    server.wait_until(lambda: request(address, "GET", "/status", headers=headers(token=new)).status == 200)
    assert request(address, "GET", "/status", headers=headers()).status == 401


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_cannot_use_the_socket(serve):
    """The socket's mode and its folder keep others out; were they open, the peer's uid would."""
    server = echo(serve)
    sock = server.run_dir / "admin.sock"
    assert sock.stat().st_mode & 0o777 == 0o600 and server.run_dir.stat().st_mode & 0o777 == 0o700

    def as_nobody(*words):
        return subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *map(str, words)], capture_output=True, text=True,
                              timeout=60, env=clean_environment(), cwd="/")

    drain = ("drain", "echo", "--admin", sock)
    curl = ("curl", "-s", "-w", "%{http_code}", "--unix-socket", sock, "-X", "POST", "-d", '{"service":"echo"}', "http://localhost/drain")
    assert as_nobody(*curl).stdout == "000"
    for path in (server.folder, server.run_dir):
        path.chmod(0o755)
    sock.chmod(0o666)
    done = as_nobody(*curl)
    assert done.stdout.endswith("403") and "obeys its own user and root" in done.stdout
    assert server.verb(*drain[:2]).returncode == 0
    server.run_dir.chmod(0o700)


@pytest.mark.parametrize(("secret", "message"), [
    ("short", "admin_token: the token has 5 characters, 16 is the least"),
    ("", "is empty, or not a text"),
])
def test_a_token_that_is_none_is_refused(tmp_path, secret, message):
    path = tmp_path / "token"
    path.write_text(secret)
    path.chmod(0o600)
    done = run_plimsoll("serve", "--check", "--admin_token", f"file:{path}", "--", "/bin/true", "{port}")
    assert done.returncode == 3 and message in done.stderr
    path.chmod(0o644)
    done = run_plimsoll("serve", "--check", "--admin_token", f"file:{path}", "--", "/bin/true", "{port}")
    assert done.returncode == 3 and "can be read or written by everybody" in done.stderr
