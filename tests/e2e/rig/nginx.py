"""nginx in front of a worker of the test's, as people set it up: to compare with. `make test-full` and `make bench` bring it."""

import getpass
import glob
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

CONFIG = """
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/errors crit; {user}
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  client_header_timeout 2s; client_body_timeout 2s; keepalive_timeout 2s;
  client_max_body_size 100m; large_client_header_buffers 4 8k;
  upstream worker {{ server unix:{upstream}; keepalive 8; }}
  server {{
    listen {address}:{port};
    location / {{ proxy_pass http://worker; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host; }}
  }}
}}
"""


def program():
    """The binary, or None."""
    return shutil.which("nginx", path=f"{os.environ.get('PL_PEERS', '/nowhere')}/usr/sbin:{os.environ['PATH']}:/usr/sbin")


class Nginx:
    def __init__(self, upstream):
        self.folder = Path(tempfile.mkdtemp(prefix="pl-nginx-", dir="/tmp"))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = free.getsockname()
        user = f"user {getpass.getuser()};" if os.getuid() == 0 else ""
        (self.folder / "nginx.conf").write_text(CONFIG.format(folder=self.folder, upstream=upstream, user=user,
                                                              address=self.address[0], port=self.address[1]))
        libraries = glob.glob(f"{os.environ.get('PL_PEERS', '/nowhere')}/usr/lib/*-linux-gnu")
        env = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)} if libraries else None
        self.process = subprocess.Popen([program(), "-p", self.folder, "-c", self.folder / "nginx.conf"], env=env,
                                        stderr=subprocess.DEVNULL)

    def ready(self):
        for _ in range(500):
            assert self.process.poll() is None, (self.folder / "errors").read_text()
            try:
                socket.create_connection(self.address, timeout=1).close()
                return self
            except ConnectionRefusedError:
                time.sleep(0.02)  # it tells nobody when it listens
        raise AssertionError("nginx does not listen")

    def __enter__(self):
        return self.ready()

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)
        shutil.rmtree(self.folder, ignore_errors=True)
