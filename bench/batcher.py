"""vLLM's contract with a scheduler behind it, for goodput.py: continuous batching over KV blocks in simulated time.

    batcher.py serve MODEL --uds PATH | --port N [--blocks N] [--seats N] …

What else runs on the machine may delay steps, but time is counted by what they should have taken: batcher_seconds.

A step takes STEP_S, plus what its prompt tokens and its running requests cost. A prompt enters when its blocks are
free, first come first served, at most BATCHED tokens of prompts a step; a request that finds no block for its next
tokens throws out the last one that began, which computes again from its first token (vLLM's recompute). Bodies,
events and metrics are those of the stand-in of the end-to-end tests. How long an answer becomes is in the prompt: its
first word is a number of tokens, and nobody else reads it.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/e2e/servers"))
import vllm_contract as contract

STEP_S, PER_PROMPT_TOKEN_S, PER_RUNNING_S, BATCHED, TOKENS_A_STEP, BLOCK = 0.02, 8e-6, 1e-4, 2048, 4, 16


class Seq:
    def __init__(self, prompt, answer):
        self.prompt, self.answer, self.made, self.news = prompt, answer, 0, asyncio.Event()
        self.held = self.computed = 0  # blocks; tokens since it began (again)
        self.due = prompt  # tokens to compute before it goes on

    def blocks(self, more=0):
        return -(-(self.prompt + self.made + more) // BLOCK)


class Engine:
    def __init__(self, blocks, seats):
        self.blocks, self.free, self.seats = blocks, blocks, seats
        self.running, self.waiting, self.preemptions, self.work = [], [], 0, asyncio.Event()
        self.seconds = 0.0  # simulated: what steps take, and time without work

    def add(self, seq):
        self.waiting.append(seq)
        self.work.set()

    def drop(self, seq):
        """Its client left."""
        if seq in self.running:
            self.running.remove(seq)
            self.free += seq.held
            seq.held = 0
        if seq in self.waiting:
            self.waiting.remove(seq)

    def preempt(self):
        seq = self.running.pop()
        self.free += seq.held
        seq.held = seq.computed = 0
        self.preemptions += 1
        self.waiting.insert(0, seq)

    def grow(self, seq):
        """Blocks for its next tokens: False, it was thrown out itself."""
        need = seq.blocks(TOKENS_A_STEP) - seq.held
        while need > self.free:
            last = self.running[-1]
            self.preempt()
            if last is seq:
                return False
        self.free -= need
        seq.held += need
        return True

    def step(self):
        """One step: the seconds that it takes."""
        budget = BATCHED
        decoding = [s for s in self.running if s.computed >= s.due]
        for seq in decoding:
            if seq in self.running and self.grow(seq):
                seq.made = min(seq.made + TOKENS_A_STEP, seq.answer)
        for seq in self.running:
            part = min(budget, max(0, seq.due - seq.computed))
            seq.computed += part
            budget -= part
        while self.waiting and budget and len(self.running) < self.seats and self.waiting[0].blocks() <= self.free:
            seq = self.waiting.pop(0)
            seq.held, seq.due = seq.blocks(), seq.prompt + seq.made
            self.free -= seq.held
            part = min(budget, seq.due)
            seq.computed, budget = part, budget - part
            self.running.append(seq)
        took = STEP_S + (BATCHED - budget) * PER_PROMPT_TOKEN_S + len(self.running) * PER_RUNNING_S
        return took, decoding

    async def run(self):
        loop = asyncio.get_running_loop()
        while True:
            if not self.running and not self.waiting:
                self.work.clear()
                begin = loop.time()
                await self.work.wait()
                self.seconds += loop.time() - begin
            begin = loop.time()
            took, decoding = self.step()
            self.seconds += took
            await asyncio.sleep(max(0, took - (loop.time() - begin)))
            for seq in decoding:
                if seq.made >= seq.answer and seq in self.running:
                    self.drop(seq)
                seq.news.set()

    def metrics(self):
        used = 1 - self.free / self.blocks
        text = contract.metrics(len(self.running), len(self.waiting))
        lines = []
        for line in text.splitlines():
            if line.startswith("vllm:kv_cache_usage_perc{"):
                line = f"{line.rpartition(' ')[0]} {used}"
            elif line.startswith("vllm:num_preemptions_total{"):
                line = f"{line.rpartition(' ')[0]} {float(self.preemptions)}"
            elif line.startswith("vllm:cache_config_info{"):
                line = (
                    line.replace('kv_cache_size_tokens="8192"', f'kv_cache_size_tokens="{self.blocks * BLOCK}"')
                    .replace('block_size="128"', f'block_size="{BLOCK}"')
                    .replace('num_gpu_blocks="64"', f'num_gpu_blocks="{self.blocks}"')
                )
            lines.append(line)
        lines += ["# TYPE batcher_seconds counter", f"batcher_seconds {self.seconds}"]
        return "\n".join(lines) + "\n"


def head(status, kind, length=None):
    frame = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    return f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{frame}\r\n\r\n".encode()


def chunk(text):
    data = f"data: {text}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


async def answer(engine, asked, writer):
    made = contract.Generation(asked, False, contract.MAX_LEN)
    seq = Seq(made.prompt, min(int(asked["prompt"].split(" ", 1)[0]), contract.MAX_LEN - made.prompt))
    engine.add(seq)
    try:
        if asked.get("stream"):
            writer.write(head(200, "text/event-stream; charset=utf-8"))
        told = 0
        while told < seq.answer:
            seq.news.clear()
            await seq.news.wait()
            if writer.is_closing():
                engine.drop(seq)
                return
            if asked.get("stream") and seq.made > told:
                choice = {
                    "index": 0,
                    "text": " 754" * (seq.made - told),
                    "logprobs": None,
                    "finish_reason": "stop" if seq.made >= seq.answer else None,
                }
                writer.write(chunk(contract.text({**made._head("text_completion"), "choices": [choice]})))
            told = seq.made
        made.made = told
        if asked.get("stream"):
            if (asked.get("stream_options") or {}).get("include_usage"):
                writer.write(chunk(contract.text(made.usage_event())))
            writer.write(chunk("[DONE]") + b"0\r\n\r\n")
        else:
            body = contract.text(made.reply("stop")).encode()
            writer.write(head(200, "application/json", len(body)) + body)
    finally:
        engine.drop(seq)


async def closed(reader):
    """Until the client leaves; nobody here sends ahead."""
    try:
        await reader.read(1)
    except ConnectionError:
        pass


async def serve_one(engine, reader, writer):
    try:
        while line := await reader.readline():
            method, path, _ = line.decode().split(" ", 2)
            length, last = 0, False
            while (field := await reader.readline()) not in (b"\r\n", b""):
                if field.lower().startswith(b"content-length:"):
                    length = int(field.split(b":")[1])
                last = last or field.lower().startswith(b"connection: close")
            body = await reader.readexactly(length) if length else b""
            if method == "POST":
                gone = asyncio.ensure_future(closed(reader))
                work = asyncio.ensure_future(answer(engine, json.loads(body), writer))
                await asyncio.wait([gone, work], return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    work.cancel()
                    return
                await work
                await writer.drain()
                if gone.done() or last:
                    gone.cancel()
                    return
                gone.cancel()
                try:
                    await gone
                except asyncio.CancelledError:
                    pass
                continue
            text = (
                engine.metrics()
                if path == "/metrics"
                else contract.text(contract.models())
                if path == "/v1/models"
                else ""
            )
            writer.write(
                head(200, "text/plain" if path == "/metrics" else "application/json", len(text)) + text.encode()
            )
            await writer.drain()
            if last:
                return
    except (ConnectionError, asyncio.IncompleteReadError, ValueError):
        pass
    finally:
        writer.close()


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("verb")
    parser.add_argument("model")
    parser.add_argument("--uds")
    parser.add_argument("--port", type=int)
    parser.add_argument("--blocks", type=int, default=512)
    parser.add_argument("--seats", type=int, default=64)
    args, _ = parser.parse_known_args()
    engine = Engine(args.blocks, args.seats)
    keep = asyncio.ensure_future(engine.run())

    def take(reader, writer):
        return serve_one(engine, reader, writer)

    server = await (
        asyncio.start_unix_server(take, args.uds) if args.uds else asyncio.start_server(take, "127.0.0.1", args.port)
    )
    async with server:
        await server.serve_forever()
    keep.cancel()


if __name__ == "__main__":
    asyncio.run(main())
