"""Deployment hooks must run once a deploy, whatever the number of workers and replacements."""

import os

import bentoml


def note(text):
    fd = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, f"{text}\n".encode())
    os.close(fd)


@bentoml.service(workers=2)
class Hooks:
    @bentoml.on_deployment
    def deployed():
        note("on_deployment")

    def __init__(self):
        note("init")

    @bentoml.on_startup
    def started(self):
        note("on_startup")

    @bentoml.on_shutdown
    def stopped(self):
        note("on_shutdown")

    @bentoml.api
    def predict(self, x: int = 1) -> int:
        return x

    @bentoml.task
    def job(self, x: int) -> int:
        return x + 1
