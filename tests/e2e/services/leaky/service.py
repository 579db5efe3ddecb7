"""Keeps what it is told to keep, in itself or in a child of its process group."""

import subprocess
import sys

import bentoml


@bentoml.service(threads=4)
class Leaky:
    def __init__(self):
        self.kept = []
        self.children = []

    @bentoml.api
    def predict(self, x: int = 1) -> int:
        return x

    @bentoml.api
    def keep(self, mib: int) -> int:
        self.kept.append(b"\x01" * (mib << 20))
        return len(self.kept)

    @bentoml.api
    def child(self, mib: int) -> int:
        code = f"data = b'x' * ({mib} << 20); input()"
        self.children.append(subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE))
        return self.children[-1].pid
