"""TLS on the data and the admin port, with clients that people use: Python's ssl, curl, openai, BentoML's own."""

import hashlib
import http.client
import os
import signal
import socket
import ssl
import subprocess
import threading

import bentoml
import httpx
import openai
import pytest

from rig import Load, Secure, WebSocket, connect, read_reply, request
from rig.door import Authority, KeyFile, echo, replace
from rig.server import clean_environment, run_plimsoll


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "ca")


@pytest.fixture
def pair(authority):
    return authority.issue("localhost", "IP:127.0.0.1")


def flags(pair, *more):
    return "--ssl-certfile", pair[0], "--ssl-keyfile", pair[1], *more


def trusting(authority, **settings):
    context = ssl.create_default_context(cafile=authority.cert)
    for name, value in settings.items():
        setattr(context, name, value)
    return context


def secure(server, authority, **settings):
    return Secure(server.address, trusting(authority, **settings))


def handshake(address, context, name="localhost"):
    """(version, protocol, serial number of the certificate, its names); the handshake's error is raised."""
    with socket.create_connection(address, timeout=30) as raw, context.wrap_socket(raw, server_hostname=name) as s:
        cert = s.getpeercert() or {}
        return s.version(), s.selected_alpn_protocol(), cert.get("serialNumber"), [v for _, v in cert.get("subjectAltName", ())]


def serial_of(server, authority):
    return int(handshake(server.address, trusting(authority))[2], 16)


def metrics(server, authority):
    return request(secure(server, authority), "GET", "/metrics").text().splitlines()


# ---- clients

@pytest.mark.asan
def test_python_curl_and_openai_are_served(serve, authority, pair):
    server = echo(serve, *flags(pair))
    at = secure(server, authority)
    headers = request(at, "POST", "/x", {}).json()["headers"]
    assert headers["x-forwarded-proto"] == "https"
    assert server.wait_for("access", {"path": "/x"})["scheme"] == "https"
    assert handshake(server.address, trusting(authority))[0] == "TLSv1.3"
    url = f"https://localhost:{server.address[1]}"
    done = subprocess.run(["curl", "-sS", "--cacert", authority.cert, "--data", "{}", f"{url}/x", f"{url}/x"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and done.stdout.count('"path": "/x"') == 2, done.stderr
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, http_client=httpx.Client(verify=trusting(authority)))
    ask = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    assert client.chat.completions.create(**ask).choices[0].message.content == "hello"
    assert "".join(c.choices[0].delta.content for c in client.chat.completions.create(**ask, stream=True) if c.choices) == "hello"


def test_bentomls_client_and_a_websocket_are_served(serve, authority, pair, monkeypatch):
    server = serve("service:Feature", "--workers", "1", *flags(pair)).ready()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))
    with bentoml.SyncHTTPClient(f"https://localhost:{server.address[1]}", timeout=60) as client:
        assert client.is_ready()
        assert client.predict(x=4)["double"] == 8
        assert client.download(size=300000).read_bytes() == bytes(i % 251 for i in range(300000))
        assert "".join(client.stream(n=5)) == "".join(f"data: {i}\n\n" for i in range(5))
    ws = WebSocket(server.address, "/ws/echo", context=trusting(authority))
    for text in ("one", "x" * 100000):
        ws.say(text)
        assert ws.hear() == f"echo {text}"
    ws.sock.close()


@pytest.mark.asan
def test_bytes_arrive_as_they_were_sent_in_any_pieces(serve, authority, pair):
    server = echo(serve, *flags(pair))
    body = os.urandom(20 << 20)  # streamed: larger than limits.replay
    reply = request(secure(server, authority), "POST", "/mirror", body, timeout=100)
    assert hashlib.sha256(reply.body).digest() == hashlib.sha256(body).digest()
    head = b"POST /mirror HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"
    with trusting(authority).wrap_socket(connect(server.address), server_hostname="localhost") as s:
        for byte in head + b"abcde":  # a record for each byte
            s.sendall(bytes([byte]))
        assert read_reply(s)[0].body == b"abcde"
    with trusting(authority).wrap_socket(connect(server.address), server_hostname="localhost") as s:
        s.sendall((head + b"abcde") * 50)  # 50 requests ahead
        reader = s.makefile("rb")
        for _ in range(50):
            assert b"200" in reader.readline()
            length = 0
            while (line := reader.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length"):
                    length = int(line.split(b":")[1])
            assert reader.read(length) == b"abcde"


def test_a_client_that_ends_its_sending_side_gets_its_answer(serve, authority, pair):
    server = echo(serve, *flags(pair))
    with trusting(authority).wrap_socket(connect(server.address), server_hostname="localhost") as s:
        s.sendall(b"GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n")
        server.wait_until(lambda: server.status()["services"][0]["queue"]["running"] == 1)
        socket.socket.shutdown(s, socket.SHUT_WR)  # of the TCP connection: the TLS of it is still there to be read
        server.gate.touch()
        response = http.client.HTTPResponse(s)
        response.begin()
        while response.status == 100:
            response = http.client.HTTPResponse(s)
            response.begin()
        assert response.status == 200


# ---- what is spoken

def test_old_versions_and_ciphers_without_forward_secrecy_are_refused(serve, authority, pair):
    server = echo(serve, *flags(pair))
    assert handshake(server.address, trusting(authority, maximum_version=ssl.TLSVersion.TLSv1_2))[0] == "TLSv1.2"
    old = trusting(authority)
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        handshake(server.address, old)
    cbc = trusting(authority, maximum_version=ssl.TLSVersion.TLSv1_2)
    cbc.set_ciphers("ECDHE-ECDSA-AES128-SHA256:ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        handshake(server.address, cbc)
    errors = [line for line in metrics(server, authority) if line.startswith("plimsoll_http_errors_total") and 'reason="tls"' in line]
    assert [line.rpartition(" ")[2] for line in errors if str(server.address[1]) in line] == ["2"], errors


def test_1_3_alone_when_that_is_asked_for(serve, authority, pair):
    server = echo(serve, *flags(pair, "--tls.min_version", "1.3"))
    assert handshake(server.address, trusting(authority))[0] == "TLSv1.3"
    with pytest.raises(ssl.SSLError):
        handshake(server.address, trusting(authority, maximum_version=ssl.TLSVersion.TLSv1_2))


def test_http_1_1_is_agreed_on_and_http_2_alone_is_refused_in_tls(serve, authority, pair):
    server = echo(serve, *flags(pair))
    both, only = trusting(authority), trusting(authority)
    both.set_alpn_protocols(["h2", "http/1.1"])
    only.set_alpn_protocols(["h2"])
    assert handshake(server.address, both)[1] == "http/1.1"
    with pytest.raises(ssl.SSLError, match="(?i)no.application.protocol"):
        handshake(server.address, only)


def test_plain_http_on_a_tls_port_is_told_so(serve, authority, pair):
    server = echo(serve, *flags(pair))
    reply = server.get("/x")
    assert reply.status == 400 and "use https://" in reply.json()["error"]
    with connect(server.address) as s:
        s.sendall(b"\x00\x01\x02\x03")
        assert s.recv(100).startswith(b"HTTP/1.1 400")


def test_who_says_nothing_is_closed_and_who_breaks_off_costs_nothing(serve, authority, pair):
    server = echo(serve, *flags(pair, "--http.head_timeout", "1s"))
    silent, half = connect(server.address), connect(server.address)
    half.sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a ClientHello
    assert silent.recv(10) == b"" and half.recv(10) == b""
    for garbage in (b"\x16" * 20000, b"\x16\x03\x01\x00\x05hello", b"\x16\x03\x01\x40\x00" + os.urandom(16384)):
        with connect(server.address) as s:
            s.sendall(garbage)
            try:
                while s.recv(65536):
                    pass
            except ConnectionResetError:
                pass
    assert request(secure(server, authority), "POST", "/x", {}).status == 200


# ---- who may come

def test_client_certificates(serve, authority, pair, tmp_path):
    ours, theirs = authority.issue("client"), Authority(tmp_path / "other", "Other").issue("client")
    need = echo(serve, *flags(pair, "--ssl-ca-certs", authority.cert, "--tls.cert_reqs", "required"))
    may = echo(serve, *flags(pair, "--ssl-ca-certs", authority.cert, "--tls.cert_reqs", "1"))

    def status(server, shown):
        context = trusting(authority)
        if shown:
            context.load_cert_chain(*shown)
        try:
            return request(Secure(server.address, context), "POST", "/x", {}).status
        except (ssl.SSLError, ConnectionError) as e:  # after 1.3's handshake the refusal arrives while reading
            return type(e).__name__

    assert status(need, ours) == 200
    assert status(need, None) != 200 and status(need, theirs) != 200
    assert status(may, ours) == 200 and status(may, None) == 200 and status(may, theirs) != 200


def test_certificates_are_chosen_by_the_name_that_is_asked_for(serve, authority, tmp_path):
    folder = tmp_path / "certs"
    for name, *names in (("a.example",), ("b.example", "*.b.example"), ("z.example",)):
        authority.issue(name, *names, folder=folder)
    server = echo(serve, "--tls.certfile", folder)
    context = trusting(authority)
    for name, wanted in (("a.example", "a.example"), ("b.example", "b.example"), ("x.b.example", "b.example"), ("z.example", "z.example")):
        assert handshake(server.address, context, name)[3][0] == wanted
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server.address, context, "unknown.example")
    authority.issue("new.example", folder=folder)
    server.wait_for("tls.reloaded")
    assert handshake(server.address, context, "new.example")[3] == ["new.example"]


# ---- certificates change

@pytest.mark.asan
def test_a_certificate_changes_under_load_and_no_request_is_lost(serve, authority, pair, tmp_path):
    server = echo(serve, *flags(pair))
    first = serial_of(server, authority)
    kept = http.client.HTTPSConnection(*server.address, timeout=30, context=trusting(authority))
    kept.request("POST", "/x", b"{}")
    assert kept.getresponse().read()

    def make(number):  # every other connection is a new one, so that handshakes go on all the time
        return ("POST", "/x", {"n": number}, lambda reply: f'"n": {number}' in reply.json()["body"],
                {"Connection": "close"} if number % 2 else {})

    with Load(secure(server, authority), make, connections=8) as load:
        load.wait_for(60)
        serials = [first]
        for i in range(3):
            cert, key = authority.issue("localhost", "IP:127.0.0.1", folder=tmp_path / f"new{i}")
            replace(pair[1], key.read_bytes())
            replace(pair[0], cert.read_bytes())
            if i == 2:
                assert server.verb("reload").returncode == 0  # by order, too
            server.wait_for("tls.reloaded", count=i + 1)
            serials.append(serial_of(server, authority))
            load.wait_for(len(load.outcomes) + 60)
        load.stop()
    assert [o for o in load.outcomes if o.kind != "ok"] == []
    assert len(set(serials)) == 4, serials
    kept.request("POST", "/x", b"{}")
    assert kept.getresponse().status == 200, "the connection from before lives on"


def test_a_certificate_that_breaks_changes_nothing_and_is_told(serve, authority, pair, tmp_path):
    server = echo(serve, *flags(pair))
    first = serial_of(server, authority)
    _, other_key = authority.issue("localhost", folder=tmp_path / "other")
    replace(pair[1], other_key.read_bytes())
    assert "does not belong to the certificate" in server.wait_for("config.rejected")["message"]
    assert serial_of(server, authority) == first
    done = server.verb("reload")
    assert done.returncode == 3 and "does not belong" in done.stdout + done.stderr
    replace(pair[0], (tmp_path / "other/localhost.pem").read_bytes())  # now both are the new ones
    server.wait_for("tls.reloaded")
    assert serial_of(server, authority) != first


def test_the_next_main_speaks_tls_though_the_files_are_gone(serve, authority, pair):
    server = echo(serve, *flags(pair))
    for path in pair:
        path.unlink()
    os.kill(server.main_pid(), signal.SIGKILL)
    server.wait_for("main.started", count=2)
    server.wait_until(lambda: (server.try_status() or {}).get("ready"))
    assert request(secure(server, authority), "POST", "/x", {}).status == 200


def test_a_certificate_that_ends_soon_is_told(serve, authority):
    server = echo(serve, *flags(authority.issue("localhost", "IP:127.0.0.1", days=5)))
    event = server.wait_for("tls.expires")
    assert event["days_left"] in (4, 5) and event["level"] == "warn"
    assert server.status()["tls"]["not_after"] == event["not_after"]
    assert any(line.startswith("plimsoll_tls_not_after_seconds ") for line in metrics(server, authority))


# ---- files

def test_an_encrypted_key_opens_with_its_password(serve, authority, tmp_path):
    pair, secret = authority.issue("localhost", "IP:127.0.0.1", password="open sesame"), tmp_path / "password"
    secret.write_text("open sesame\n")
    secret.chmod(0o600)
    server = echo(serve, *flags(pair, "--ssl-keyfile-password", f"file:{secret}"))
    assert request(secure(server, authority), "POST", "/x", {}).status == 200
    secret.write_text("wrong")
    done = run_plimsoll("serve", "--check", *flags(pair, "--ssl-keyfile-password", f"file:{secret}"), "--", "/bin/true", "{port}")
    assert done.returncode == 3 and "no private key can be read" in done.stderr and "wrong" not in done.stderr
    done = run_plimsoll("serve", "--check", *flags(pair), "--", "/bin/true", "{port}")
    assert done.returncode == 3 and "set tls.keyfile_password" in done.stderr


def test_serve_ends_with_3_when_certificates_cannot_be_used(authority, pair, tmp_path):
    other = authority.issue("other")
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "no.pem").write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    for words, message in (
            (flags((pair[0], other[1])), f"{other[1]}: this key does not belong to the certificate"),
            (flags((tmp_path / "none.pem", pair[1])), "none.pem: No such file"),
            (flags((tmp_path / "no.pem", pair[1])), "no certificate in PEM"),
            (("--tls.certfile", empty), "has no NAME.pem or NAME.crt"),
            (("--tls.keyfile", pair[1]), "tls.keyfile: has no effect without tls.certfile"),
            (flags(pair, "--tls.cert_reqs", "required"), "tls.cert_reqs: has no effect without tls.certfile and tls.ca_certs"),
            (flags(pair, "--tls.cert_reqs", "3"), "'3' is none of none, optional, required"),
            (flags(pair, "--ssl-ca-certs", pair[1]), "no certificate in PEM")):
        done = run_plimsoll("serve", "--check", *words, "--", "/bin/true", "{port}")
        assert done.returncode == 3 and message in done.stderr, (words, done.stderr)
    assert run_plimsoll("serve", "--check", *flags(pair), "--", "/bin/true", "{port}").returncode == 0


# ---- the admin port

def test_the_admin_port_speaks_tls_and_plain_on_loopback(serve, authority, pair):
    server = echo(serve, *flags(pair), admin="127.0.0.1:0")
    host, _, port = server.wait_for("main.started")["admin"].rpartition(":")
    address = (host, int(port))
    assert request(Secure(address, trusting(authority)), "GET", "/status").json()["kind"] == "status"
    assert request(address, "GET", "/status").json()["kind"] == "status"
    trust = {**clean_environment(), "SSL_CERT_FILE": str(authority.cert)}
    done = run_plimsoll("status", "--admin", f"https://localhost:{port}", env=trust)
    assert done.returncode == 0, done.stderr
    done = run_plimsoll("status", "--admin", f"https://localhost:{port}")
    assert done.returncode == 5 and "SSL_CERT_FILE" in done.stderr


def test_a_token_from_elsewhere_travels_in_tls_only(serve, authority, tmp_path):
    from test_admin_door import TOKEN, outside
    there = outside()
    pair = authority.issue("localhost", f"IP:{there}")
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    server = echo(serve, *flags(pair, "--admin_token", f"file:{token}"), admin=f"{there}:0")
    where = server.wait_for("main.started")["admin"]
    trust = {**clean_environment(), "SSL_CERT_FILE": str(authority.cert)}
    assert run_plimsoll("drain", "echo", "--admin", f"https://{where}", "--token-file", token, env=trust).returncode == 0
    host, _, port = where.rpartition(":")
    assert request((host, int(port)), "GET", "/status", headers={"Authorization": f"Bearer {TOKEN}"}).status == 400


def test_many_handshakes_at_once_are_all_done_and_requests_go_on_between_them(serve, authority, pair, tmp_path):
    server = echo(serve, *flags(pair, "--api_keys.file", KeyFile(tmp_path / "keys").write({"a": ("sk-0123456789abcdef",)})))
    address, failed = secure(server, authority), []

    def arrive():
        try:
            reply = request(address, "POST", "/x", {}, headers={"x-api-key": "sk-0123456789abcdef"}, timeout=60)
            assert reply.status == 200
        except Exception as e:  # noqa: BLE001 - whatever it is, it is counted
            failed.append(e)

    crowd = [threading.Thread(target=arrive) for _ in range(150)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join(90)
    assert failed == []


def test_tls_comes_and_goes_by_a_reload(serve, authority, pair, tmp_path):
    from rig.door import ECHO, paths
    file = tmp_path / "plimsoll.yaml"
    text = f"services:\n  echo:\n    command: ['{paths.python}', '{ECHO}', '--socket', '{{socket}}']\n"
    file.write_text(text)
    server = serve(None, "-c", file).ready()
    kept = http.client.HTTPConnection(*server.address, timeout=30)
    kept.request("POST", "/x", b"{}")
    assert kept.getresponse().read()
    file.write_text(text + f"tls: {{certfile: {pair[0]}, keyfile: {pair[1]}}}\n")
    assert server.verb("reload").returncode == 0
    assert request(secure(server, authority), "POST", "/x", {}).status == 200
    kept.request("POST", "/x", b"{}")
    assert kept.getresponse().status == 200, "who is connected stays as it began"
    file.write_text(text)
    assert server.verb("reload").returncode == 0
    assert server.post("/x", {}).status == 200 and "tls" not in server.status()
