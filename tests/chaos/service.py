"""The BentoML service of the chaos suite: its workers have a page, and a zygote. See backend.py for the files it writes."""

import os

import bentoml
from backend import digest

_receipts = os.open(os.environ.get("RECEIPTS", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


@bentoml.service(name="bento", workers=2, threads=4, traffic={"timeout": 20})
class Bento:
    def __init__(self):
        with open(os.environ.get("JOURNAL", os.devnull), "a") as journal:
            journal.write(f"load bento {os.getpid()}\n")

    @bentoml.api(route="/bento/echo")
    def echo(self, id: str = "warm", text: str = "") -> str:
        if id != "warm":
            os.write(_receipts, f"{id} bento {os.getpid()}\n".encode())
        return f"{digest(id, text.encode()).decode()} {id} {text}"
