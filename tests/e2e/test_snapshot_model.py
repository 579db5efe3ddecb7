"""The C model of the allocator against the one in Python, step by step, on random programs."""

import os
import random
import subprocess

import pytest

from allocator_model import MIB, UNLIMITED, Config, Model, OutOfMemory
from rig import paths

TRACES = int(os.environ.get("PL_MODEL_TRACES", "2000"))
BATCH = 100
STEPS = 110


def random_config(rng):
    large = rng.choice([20, 20, 20, 12, 32]) * MIB
    return Config(
        expandable=rng.random() < 0.5,
        max_split=rng.choice([UNLIMITED, UNLIMITED, 128 * MIB, 64 * MIB, 40 * MIB]),
        gc=rng.choice([0.0, 0.0, 0.6, 0.8]),
        fraction=rng.choice([1.0, 1.0, 0.9, 0.5]),
        large=large,
        roundup=rng.choice([0, 0, 2, 4, 8]),
        by_age=rng.random() < 0.5,
    )


def random_size(rng, top):
    if rng.random() < 0.15:  # sizes where rounding and segment sizes turn
        return max(1, rng.choice([512, MIB, 2 * MIB, 10 * MIB, 20 * MIB, 64 * MIB]) + rng.choice([-513, -1, 0, 1, 512]))
    return int(2 ** rng.uniform(4, top))


class Trace:
    """One random program: the lines for sim_drive and the answers of the model in Python."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.config = random_config(self.rng)
        total = self.rng.choice([200, 512, 900, 2048, 1 << 20]) * MIB
        other = self.rng.choice([0, 0, 100 * MIB])
        falling = self.rng.random() < 0.3
        self.top = self.rng.choice([21, 25, 27.5])
        self.model = Model(total, other, self.config, falling)
        self.lines = [f"new {total} {other} {int(self.config.by_age)} {int(falling)} {self.config.text()}"]
        self.answers = []
        self.blocks, self.live, self.pending = [], [], []
        for _ in range(STEPS):
            self.step()
        self.end()

    def say(self, line, what=0):
        self.lines.append(line)
        self.answers.append(self.model.answer(what))

    def where(self):
        return self.rng.choice([0, 0, 0, 5, 1 << 63]), self.rng.choice([0, 0, 0, 0, 1, 2])

    def step(self):
        dice = self.rng.random()
        if dice < 0.42 and self.live:
            self.free(self.live.pop(self.rng.randrange(len(self.live))))
        elif dice < 0.45 and self.pending:
            number, ticket = self.pending.pop(self.rng.randrange(len(self.pending)))
            self.model.complete(self.blocks[number], ticket)
            self.say(f"c {number}")
        elif dice < 0.47:
            self.model.empty_cache()
            self.say("e")
        elif dice < 0.48:
            self.model.events_ready = not self.model.events_ready
            self.say(f"v {int(self.model.events_ready)}")
        elif dice < 0.53:
            size, (stream, pool) = random_size(self.rng, self.top), self.where()
            self.say(f"? {size} {stream} {pool}", int(self.model.would_release(size, stream, pool)))
        else:
            self.malloc(random_size(self.rng, self.top), *self.where())

    def malloc(self, size, stream, pool):
        number = len(self.blocks)
        try:
            block = self.model.malloc(size, stream, pool)
        except OutOfMemory:
            self.blocks.append(None)
            self.say(f"m {size} {stream} {pool}", -1)
            return
        self.blocks.append(block)
        self.live.append(number)
        self.say(f"m {size} {stream} {pool}", block.addr)

    def free(self, number):
        block, later = self.blocks[number], self.rng.random() < 0.1
        if self.rng.random() < 0.1:
            other = self.rng.choice([0, 5, 9])
            self.model.record_stream(block, other)
            self.say(f"r {number} {other}")
        ticket = self.model.free(block, later)
        self.say(f"{'p' if later else 'f'} {number}")
        if ticket:
            self.pending.append((number, ticket))

    def end(self):
        for _ in range(2):
            self.lines.append("k")
            self.answers.append(f"{self.model.releasable()} {self.model.largest_free()}")
            for number in self.live:
                self.model.free(self.blocks[number])
                self.say(f"f {number}")
            self.live = []
            self.model.empty_cache()
            self.say("e")


def differences(traces):
    program = "\n".join(line for t in traces for line in t.lines) + "\n"
    done = subprocess.run([paths.build / "bin" / "sim_drive"], input=program, capture_output=True, text=True, timeout=100)
    got, at = done.stdout.splitlines(), 0
    for trace in traces:
        for step, (line, want) in enumerate(zip(trace.lines[1:], trace.answers)):
            if at >= len(got) or got[at] != want:
                real = got[at] if at < len(got) else f"nothing, exit status {done.returncode}"
                return f"{trace.lines[0]}\nstep {step}: {line}\nmodel {want}\ngot   {real}"
            at += 1
    return "" if done.returncode == 0 else f"exit status {done.returncode}"


@pytest.mark.parametrize("first", range(0, TRACES, max(BATCH, TRACES // 20)))
def test_the_model_in_c_is_the_model_in_python(first):
    for batch in range(first, min(TRACES, first + max(BATCH, TRACES // 20)), BATCH):
        assert not differences([Trace(seed) for seed in range(batch, min(TRACES, batch + BATCH))])


def test_the_traces_reach_every_corner():
    """A comparison of programs that never run out, wait or expand would prove little."""
    traces = [Trace(seed) for seed in range(200)]
    assert sum(t.model.ooms > 0 for t in traces) > 20
    assert sum(t.model.retries > 0 for t in traces) > 20
    assert sum(t.config.expandable and t.config.max_split != UNLIMITED for t in traces) > 10
    assert sum(t.config.gc > 0 and t.config.fraction < 1 for t in traces) > 10
    assert sum(len(t.model.pools) > 2 for t in traces) > 100
