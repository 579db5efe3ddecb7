#!/usr/bin/env python3
"""Fails when a Markdown page has a link that leads nowhere, a page of docs/ that nobody finds, an output that no script makes,
or names a verb, a make target or a setting that does not exist.

    check_docs.py ROOT
"""

import re
import sys
from pathlib import Path

FENCE = re.compile(r"^(```|~~~)")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?: \"[^\"]*\")?\)")
MARK = re.compile(r"^<!-- (run|not run): *(.*?) *-->$")
FIGURES = re.compile(r"^<!-- figures: (.*?) -->$")
LOG_LINE = re.compile(r"^ {4,}\d\d:\d\d:\d\d")
LEFT_OUT = ("build/", "tests/", ".git/", "node_modules/")


def pages(root):
    return [p for p in sorted(root.rglob("*.md")) if not str(p.relative_to(root)).startswith(LEFT_OUT)]


def slug(heading):
    """The anchor that GitHub gives to a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def prose(text):
    """(number, line) outside of fenced blocks."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            inside = not inside
        elif not inside:
            yield number, line


def anchors(text):
    seen = {}
    for _, line in prose(text):
        if heading := re.match(r"#{1,6} +(.*?) *#*$", line):
            name = slug(heading[1])
            seen[name] = seen.get(name, -1) + 1
            yield name if seen[name] == 0 else f"{name}-{seen[name]}"


def flags_of(root):
    """Names of all flags of all verbs, keys of the configuration among them, `_` for `-`."""
    text = "".join((root / "src/cli" / name).read_text() for name in ("flags.c", "args.c"))
    names = set(re.findall(r'^\s*{ "([a-z][\w-]*)", ', text, re.M)) | set(re.findall(r'^\s*X\("([\w-]+)"', text, re.M))
    keys = re.findall(r'^(?:INSTANCE|SERVICE)\(\w+,\s*"([\w.]+)"', (root / "src/config/schema.def").read_text(), re.M)
    return {name.replace("-", "_") for name in (*names, *keys)}


def flags_in(piece):
    """Of a command of ours, up to what is somebody else's."""
    if command := re.match(r"[ $]*plimsoll [a-z]+\b(.*)", piece):
        ours = re.split(r" -- | \| |  +[a-z]|#|\)|;", command[1])[0]
        return [f.replace("-", "_") for f in re.findall(r"(?<!\S)--([a-z][\w.-]*)", ours)]
    return []


class Check:
    def __init__(self, root):
        self.root, self.bad, self.links = root, [], {}
        self.texts = {p: p.read_text() for p in pages(root)}
        self.anchors = {p: set(anchors(text)) for p, text in self.texts.items()}
        self.scenes = set(re.findall(r"^class (\w+)\(Scene\)", (root / "scripts/doc_scenes.py").read_text(), re.M))
        self.scenes = {s.lower() for s in self.scenes} | {"shell"}
        self.verbs = set(re.findall(r"^VERB\((\w+)", (root / "src/cli/verbs.def").read_text(), re.M))
        self.flags = flags_of(root)
        self.targets = set(re.findall(r"^([a-z0-9-]+):.*##", (root / "Makefile").read_text(), re.M))

    def wrong(self, path, number, what):
        self.bad.append(f"{path.relative_to(self.root)}:{number}: {what}")

    def check_links(self, path):
        self.links[path] = set()
        for number, line in prose(self.texts[path]):
            for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
                if re.match(r"[a-z]+:", target):
                    continue
                file, _, anchor = target.partition("#")
                to = (path.parent / file).resolve() if file else path
                if not to.exists():
                    self.wrong(path, number, f"{target} leads nowhere")
                elif anchor and to.suffix == ".md" and anchor not in self.anchors.get(to, ()):
                    self.wrong(path, number, f"{target}: the page has no such heading")
                self.links[path].add(to)

    def check_found(self):
        index = self.root / "docs/README.md"
        seen, open_ = {index}, [index]
        while open_:
            for to in self.links.get(open_.pop(), ()):
                if to in self.texts and to not in seen:
                    seen.add(to)
                    open_.append(to)
        for path in self.texts:
            if self.root / "docs" in path.parents and path not in seen:
                self.wrong(path, 1, "no way leads here from docs/README.md")

    def check_blocks(self, path):
        lines = self.texts[path].splitlines()
        inside = False
        for number, line in enumerate(lines, 1):
            before = lines[number - 2] if number > 1 else ""
            if FENCE.match(line):
                inside = not inside
                if line.startswith("```console") and not MARK.match(before):
                    self.wrong(
                        path, number, "a console block without a marker: who made this output? (scripts/doc_outputs.py)"
                    )
            elif mark := MARK.match(line):
                after = lines[number] if number < len(lines) else ""
                if after != "```console":
                    self.wrong(path, number, "a marker without a console block behind it")
                if not mark[2]:
                    self.wrong(path, number, "a marker that says nothing")
                elif mark[1] == "run" and mark[2].split(";")[0].strip() not in self.scenes:
                    self.wrong(path, number, f"no such scene: {mark[2].split(';')[0]}")
            elif not inside and (line.startswith("    $ ") or LOG_LINE.match(line)):
                self.wrong(path, number, "commands with output belong into a console block with a marker")

    def check_figures(self, path):
        """Numbers of a table below `<!-- figures: PAGE... -->` stand in one of these pages."""
        sources = None
        for number, line in enumerate(self.texts[path].splitlines(), 1):
            if mark := FIGURES.match(line):
                sources = "\n".join((self.root / page).read_text() for page in mark[1].split())
            elif not line.startswith("|"):
                sources = None
            elif sources is not None:
                cells = re.sub(r"\]\([^)]*\)", "", "|".join(line.split("|")[2:]))
                for figure in re.findall(r"\d[\d.,]*", cells):
                    if not re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d.,]*\d)", sources):
                        self.wrong(path, number, f"{figure} does not stand in the pages that it is said to come from")

    def check_rooms(self):
        """The table of rooms is the list in CMakeLists.txt, in its order."""
        rooms = re.findall(r"^pl_room\((\w+)", (self.root / "CMakeLists.txt").read_text(), re.M)
        page = self.root / "docs/architecture.md"
        table = self.texts[page].partition("| room | what lives there |")[2].partition("\n\n")[0]
        told = re.findall(r"^\| (\w+) \|", table, re.M)
        if sorted(told) != sorted([*rooms]):
            self.wrong(page, 1, f"rooms of the page and of CMakeLists.txt differ: {sorted(set(told) ^ set(rooms))}")

    def check_names(self, path):
        """Verbs and targets, where they are written as code."""
        inside = False
        for number, line in enumerate(self.texts[path].splitlines(), 1):
            if FENCE.match(line):
                inside = not inside
                continue
            code = [line] if inside or line.startswith("    ") else re.findall(r"`([^`]+)`", line)
            for piece in code:
                for verb in re.findall(r"(?:^|[ (|&-])plimsoll ([a-z]+)\b(?![.:/=])", piece):
                    if piece.lstrip(" $").startswith("plimsoll ") and verb not in self.verbs:
                        self.wrong(path, number, f"`plimsoll {verb}`: no such verb")
                for flag in flags_in(piece):
                    if flag.removeprefix("services.").partition(".")[2] not in self.flags and flag not in self.flags:
                        self.wrong(path, number, f"--{flag}: no verb and no key of the configuration has this name")
                for target in re.findall(r"^[ $]*make ([a-z0-9-]+)", piece):
                    if target not in self.targets:
                        self.wrong(path, number, f"`make {target}`: no such target")


def main():
    root = Path(sys.argv[1]).resolve()
    check = Check(root)
    for path in check.texts:
        check.check_links(path)
        check.check_blocks(path)
        check.check_names(path)
        check.check_figures(path)
    check.check_found()
    check.check_rooms()
    count = sum(len(found) for found in check.links.values())
    print("\n".join(check.bad) or f"{len(check.texts)} pages, {count} links: all lead somewhere")
    sys.exit(bool(check.bad))


if __name__ == "__main__":
    main()
