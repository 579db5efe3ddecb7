"""What stands before a server: a file of API keys, certificates made with the openssl command, a service that echoes."""

import hashlib
import os
import subprocess
from pathlib import Path

from .server import ROOT, paths

ECHO = ROOT / "tests/e2e/servers/echo.py"


def echo(serve, *flags, **more):
    """A ready `plimsoll serve` in front of tests/e2e/servers/echo.py; its service is called `echo`."""
    return serve(None, "--name", "echo", *flags, "--", paths.python, ECHO, "--socket", "{socket}", **more).ready()


def hash_of(key):
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def replace(path, data, mode=0o600):
    """As those write who care: another file, renamed over the old one."""
    new = Path(f"{path}.new")
    new.write_bytes(data.encode() if isinstance(data, str) else data)
    new.chmod(mode)
    os.replace(new, path)


class KeyFile:
    """Rows as the user writes them: {name: (keys, more fields)}."""

    def __init__(self, path):
        self.path = Path(path)

    def __str__(self):
        return str(self.path)

    def write(self, rows, mode=0o600):
        lines = []
        for name, (keys, *more) in rows.items():
            hashes = ", ".join(f'"{hash_of(k)}"' for k in ([keys] if isinstance(keys, str) else keys))
            lines += [f"- name: {name}", f"  hash: [{hashes}]", *(f"  {k}: {v}" for k, v in (more[0] if more else {}).items())]
        replace(self.path, "\n".join(lines) + "\n", mode)
        return self


def openssl(*words, **more):
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, timeout=60, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Authority:
    """A certificate authority of its own in a folder. Elliptic curves: quick to make."""

    def __init__(self, folder, name="Test Authority"):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.key, self.cert, self.serial = self.folder / "ca.key", self.folder / "ca.pem", 0
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 30, "-subj", f"/CN={name}",
                "-keyout", self.key, "-out", self.cert)

    def issue(self, name, *names, days=30, password=None, folder=None):
        """(certificate, key) for the host `name` and other names, as NAME.pem and NAME.key."""
        folder = Path(folder or self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        stem = folder / name
        self.serial += 1
        request, cert, key = f"{stem}.csr", Path(f"{stem}.pem"), Path(f"{stem}.key")
        alt = ",".join(n if ":" in n else f"DNS:{n}" for n in (name, *names))
        secret = ["-passout", f"pass:{password}"] if password else ["-nodes"]
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", *secret, "-subj", f"/CN={name}", "-addext",
                f"subjectAltName={alt}", "-keyout", key, "-out", request)
        key.chmod(0o600)
        openssl("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-set_serial", self.serial, "-days", days,
                "-copy_extensions", "copy", "-out", cert)
        os.unlink(request)
        return cert, key
