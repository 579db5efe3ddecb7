"""What systemd hears of us (sd_notify), and what it is told in the units of deploy/."""

import json
import re
import shutil
import signal
import socket
import struct
import subprocess

import pytest

from rig.server import ROOT

UNITS = ("plimsoll.service", "plimsoll@.service")
YAML = "services:\n  feature:\n    run: service:Feature\n    workers: 1\n    traffic: {{timeout: {timeout}}}\n    threads: {threads}\n"


class Manager:
    """The socket that NOTIFY_SOCKET names. Only what the process that was started sends counts, as with NotifyAccess=main."""

    def __init__(self, path):
        self.path = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.bind(self.path)
        self.socket.settimeout(90)
        self.heard = []

    def wait(self, line):
        """The whole message with that line; what came before it is in `heard`."""
        while True:
            text, more, _, _ = self.socket.recvmsg(4096, 256)
            [pid] = [struct.unpack("iII", data)[0] for level, kind, data in more if kind == socket.SCM_CREDENTIALS]
            assert pid == self.pid, f"{text} from {pid}, and {self.pid} was started"
            self.heard.append(text.decode().split("\n"))
            if line in self.heard[-1]:
                return self.heard[-1]


@pytest.fixture
def manager(tmp_path):
    m = Manager(tmp_path / "notify")
    yield m
    m.socket.close()


@pytest.mark.asan
def test_ready_reload_and_stop_are_told_by_the_process_that_was_started(serve, manager, tmp_path):
    file = tmp_path / "plimsoll.yaml"
    file.write_text(YAML.format(timeout="20s", threads=2))
    s = serve(None, "-c", file, env={"NOTIFY_SOCKET": manager.path})
    manager.pid = s.pid
    ready = manager.wait("READY=1")
    assert manager.heard == [ready] and any(line.startswith("STATUS=ready on 127.0.0.1:") for line in ready)
    s.ready()
    assert s.get("/readyz").status == 200
    file.write_text(YAML.format(timeout="10s", threads=2))
    s.process.send_signal(signal.SIGHUP)
    begun = manager.wait("RELOADING=1")
    assert any(re.fullmatch(r"MONOTONIC_USEC=\d+", line) for line in begun)
    assert "STATUS=ready, configuration reloaded" in manager.wait("READY=1")
    file.write_text("services: [")
    assert s.verb("reload").returncode == 3
    manager.wait("RELOADING=1")
    assert any("rejected" in line for line in manager.wait("READY=1"))
    s.terminate()
    manager.wait("STOPPING=1")
    assert s.wait_exit() == 0


def test_a_new_main_is_no_new_service(serve, manager):
    s = serve("service:Feature", "--workers", "1", env={"NOTIFY_SOCKET": manager.path})
    manager.pid = s.pid
    manager.wait("READY=1")
    s.ready()
    old = s.main_pid()
    assert s.verb("upgrade").returncode == 0
    manager.wait("READY=1")  # of the new main, told by the same process
    assert s.main_pid() != old
    assert not [line for text in manager.heard for line in text if line.startswith(("MAINPID", "STOPPING", "RELOADING"))]


def test_a_service_that_never_gets_ready_is_never_told_ready(serve, manager):
    s = serve("service:Feature", "--workers", "1", "--failed_exit", "0ms", "--backoff.attempts", "1", "--python", "/bin/false", python=None,
              env={"NOTIFY_SOCKET": manager.path})
    assert s.process.wait(60) != 0
    s.stopped = True
    manager.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:
            assert b"READY=1" not in manager.socket.recv(4096)


# ---- the units


@pytest.fixture
def installed(tmp_path):
    """The units in a root of their own where their program and user are; systemd-analyze looks at nothing else."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    for name in ("plimsoll.service", "plimsoll@chat.service"):
        text = (ROOT / "deploy" / re.sub("@.*", "@.service", name)).read_text()
        (tmp_path / name).write_text(text.replace("/usr/bin/plimsoll", "/bin/true"))  # need not be installed here
    return tmp_path


@pytest.mark.parametrize("name", ["plimsoll.service", "plimsoll@chat.service"])
def test_systemd_understands_the_unit(installed, name):
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", installed / name], capture_output=True, text=True)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "plimsoll" in line]
    assert done.returncode == 0 and said == [], done.stdout + done.stderr


@pytest.mark.parametrize("name", ["plimsoll.service", "plimsoll@chat.service"])
def test_the_unit_gives_little_away(installed, name):
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--json=short", "--no-pager", installed / name],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(done.stdout)
    assert isinstance(rows, list) and rows
    open_ = {row["name"] for row in rows if not row["set"] and float(row["exposure"] or 0) >= 0.2}
    # GPUs are devices, a server has sockets, CUDA compiles, workers may get groups and priorities of their own: these must stay open, and
    # nothing else of weight may be.
    assert open_ <= {"PrivateNetwork=", "PrivateDevices=", "DeviceAllow=", "IPAddressDeny=", "MemoryDenyWriteExecute=", "ProtectProc=", "PrivateUsers=",
                     "ProtectControlGroups=", "SystemCallFilter=~@resources", "SystemCallFilter=~@privileged",
                     "RootDirectory=/RootImage=", "RestrictAddressFamilies=~AF_(INET|INET6)", "RestrictAddressFamilies=~…"}, open_
    score = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=40", installed / name],
                           capture_output=True, text=True)
    assert score.returncode == 0, score.stdout[-300:]


def test_units_say_what_the_program_needs():
    for name in UNITS:
        text = (ROOT / "deploy" / name).read_text()
        for line in ("Type=notify", "NotifyAccess=main", "KillMode=mixed", "Delegate=yes", "User=plimsoll", "ProtectSystem=strict", "NoNewPrivileges=yes",
                     "OOMPolicy=continue", "RestartPreventExitStatus=2 3"):
            assert f"\n{line}\n" in text, (name, line)
        assert "ExecReload=/usr/bin/plimsoll reload" in text
        assert re.search(r"^StateDirectory=.*plimsoll/", text, re.M) and re.search(r"^RuntimeDirectory=plimsoll/", text, re.M)
    one, many = ((ROOT / "deploy" / name).read_text().split("[Service]")[1] for name in UNITS)
    for what, by in (("/etc/plimsoll/plimsoll.yaml", "/etc/plimsoll/%i.yaml"), ("plimsoll/default", "plimsoll/%i"), ("NAME=default", "NAME=%i"),
                     ("-/etc/default/plimsoll", "-/etc/default/plimsoll-%i")):
        one = one.replace(what, by)
    assert one == many
