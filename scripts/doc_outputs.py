#!/usr/bin/env python3
"""Runs the commands that README, docs/ and examples/ show, and compares what they say, or writes it into the page.

    scripts/doc_outputs.py --check [PAGE...]     exit status 1 and a diff when a page shows what is not said any more
    scripts/doc_outputs.py --write [PAGE...]     puts the output of this run into the pages
    scripts/doc_outputs.py --list                pages, scenes and commands

PLIMSOLL_BUILD names the build folder; PL_TEST_ENV, PL_TORCH_ENV and PL_LLAMA_MODEL what the scenes need
(`make doc-outputs` sets them).

A block of commands and their output in a page:

    <!-- run: SCENE; numbers vary; after: STEP; status: 1; show: 8 -->
    ```console
    $ plimsoll status
    what it said
    ```

SCENE is a class of doc_scenes.py: a folder, an environment, perhaps servers. Blocks of a page that follow each other
in the same scene share one. Behind it, all optional: `numbers vary` compares words only; `after: STEP` calls that
method of the scene first; `status: N` is the exit status that a command of the block may have beside 0 and 1;
`show: N` keeps the first N lines of each output. Times, durations, pids and ids vary always. A server in the block
(`plimsoll serve ...`) is started on a terminal, and goes on until the page is done; its output is the banner.

A block that cannot be run here is marked `<!-- not run: WHY -->`.

Ports are those of the page: everything runs in a network namespace of its own.
"""

import argparse
import difflib
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests/e2e")]

BLOCK = re.compile(r"^<!-- run: (?P<words>[^>]*?) -->\n```console\n(?P<body>.*?)^```$", re.M | re.S)
UNIT = r"(?:ns|us|ms|s|m|h|d|min)"
# What differs from one run to the next wherever it stands.
VARIES = [
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?"), "<time>"),
    (re.compile(r"\b\d\d:\d\d:\d\d(\.\d+)?\b"), "<time>"),
    (re.compile(r"\b0x[0-9a-f]+\b"), "<address>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{16,}\b"), "<id>"),
    (re.compile(rf"(?<![\w.])(\d+(\.\d+)? ?{UNIT}(?![A-Za-z]) ?)+"), "<duration> "),
    (re.compile(r"\b(pid|main|keeper)([ =:\"]+)\d+"), r"\1\2<pid>"),
    (re.compile(r"[▁▂▃▄▅▆▇█]+"), "<curve>"),
]
NUMBER = re.compile(r"[+-]?\d[\d,]*(\.\d+)?( ?(B|[KMGT]iB|%|x)(?![A-Za-z]))?")


def pages():
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
    return [p for p in found if BLOCK.search(p.read_text())]


def masked(text, numbers):
    for pattern, word in VARIES:
        text = pattern.sub(word, text)
    if numbers:
        text = NUMBER.sub("#", text)
    return text.split()  # columns and line breaks move with what varies


class Block:
    def __init__(self, match):
        self.span = match.span("body")
        scene, *words = [w.strip() for w in match["words"].split(";")]
        self.scene, self.numbers = scene, "numbers vary" in words
        named = dict(w.split(": ", 1) for w in words if ": " in w)
        self.after, self.status, self.show = named.get("after"), int(named.get("status", 1)), int(named.get("show", 0))
        unknown = [w for w in words if w != "numbers vary" and w.partition(": ")[0] not in ("after", "status", "show")]
        assert not unknown, f"not understood in a marker: {unknown}"
        self.commands = []  # (command as shown, output as shown)
        lines = match["body"].splitlines(keepends=True)
        assert lines and lines[0].startswith("$ "), f"a console block begins with a command: {lines[:1]}"
        command, output = None, None
        for line in lines:
            if line.startswith("$ "):
                command, output = [line], []
                self.commands.append((command, output))
            elif not output and command[-1].endswith("\\\n"):
                command.append(line)
            else:
                output.append(line)
        self.commands = [("".join(c), "".join(o)) for c, o in self.commands]

    def said(self, scene):
        """[(command, what it said)] of a run."""
        if self.after:
            getattr(scene, self.after)()
        for command, _ in self.commands:
            words = command.removeprefix("$ ").replace("\\\n", " ").strip()
            output, status = scene.run(words)
            if status not in (0, 1, self.status):
                raise RuntimeError(f"`{words}` ended with {status}:\n{output}")
            lines = output.splitlines(keepends=True)
            if self.show and len(lines) > self.show:
                output = "".join([*lines[: self.show], "...\n"])
            output = "\n".join(line.rstrip() for line in output.splitlines())
            yield command, output + "\n" if output else ""


def differences(block, said):
    for (command, shown), (_, now) in zip(block.commands, said, strict=True):
        old, new = masked(shown, block.numbers), masked(now, block.numbers)
        if old == new:
            continue
        pairs = enumerate(zip(old, new, strict=False))
        at = next((i for i, (one, other) in pairs if one != other), min(len(old), len(new)))
        first, second = (" ".join(words[at : at + 6]) for words in (old, new))
        lines = difflib.unified_diff(shown.splitlines(True), now.splitlines(True), "shown", "said")
        yield f"{command}first difference: {first!r} shown, {second!r} said\n{''.join(lines)}"


def run_page(path, write, build):
    """What is stale, as text. With `write` the page is changed instead."""
    from doc_scenes import SCENES

    text, stale, replaced, scenes, made = path.read_text(), [], [], {}, 0
    with tempfile.TemporaryDirectory(prefix="pl-doc-", dir="/tmp") as folder:
        try:
            for match in BLOCK.finditer(text):
                block = Block(match)
                if block.scene not in scenes:
                    while scenes:  # its ports and its memory are the next one's
                        scenes.popitem()[1].end()
                    made += 1
                    scenes[block.scene] = SCENES[block.scene](Path(folder) / str(made), build)
                said = list(block.said(scenes[block.scene]))
                replaced.append((block.span, "".join(command + output for command, output in said)))
                stale += differences(block, said)
        finally:
            for scene in scenes.values():
                scene.end()
    if write:
        for (begin, end), body in reversed(replaced):
            text = text[:begin] + body + text[end:]
        path.write_text(text)
        return []
    return stale


def in_own_network():
    """This program again, where ports 3000 and 3001 are nobody's but the page's."""
    words = ["unshare", "--net"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
    if subprocess.run([*words, "true"], capture_output=True).returncode != 0:
        print("no network namespace can be made here: outputs cannot be checked", file=sys.stderr)
        sys.exit(4)
    os.environ["PL_DOC_NETWORK"] = "own"
    os.execvp(words[0], [*words, sys.executable, *sys.argv])


def loopback_up():
    import fcntl
    import socket
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sH", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: IFF_UP | IFF_RUNNING


def main():
    args = argparse.ArgumentParser()
    what = args.add_mutually_exclusive_group(required=True)
    for flag in ("check", "write", "list"):
        what.add_argument(f"--{flag}", action="store_true")
    args.add_argument("page", nargs="*", type=Path)
    args = args.parse_args()
    chosen = [p.resolve() for p in args.page] or pages()
    if args.list:
        for path in chosen:
            for match in BLOCK.finditer(path.read_text()):
                block = Block(match)
                for command, _ in block.commands:
                    print(f"{path.relative_to(ROOT)}  {block.scene}  {command.strip()}")
        return
    if os.environ.get("PL_DOC_NETWORK") != "own":
        in_own_network()
    loopback_up()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # whoever ends us ends the servers too
    build = Path(os.environ.get("PLIMSOLL_BUILD", ROOT / "build/dev")).resolve()
    bad = 0
    for path in chosen:
        print(path.relative_to(ROOT), flush=True)
        for difference in run_page(path, args.write, build):
            bad += 1
            print(difference, flush=True)
    if bad:
        print(f"{bad} outputs are not what is said now (make doc-outputs)")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
