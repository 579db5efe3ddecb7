#!/usr/bin/env python3
"""Makes wheels out of an installed tree (`cmake --install BUILD --prefix TREE --strip`); `make wheel` calls it.

    scripts/wheel.py TREE --out DIST [--parts DIR...] [--glibc 2.34]

plimsoll-VERSION-py3-none-manylinux_X_Y_ARCH.whl lays the tree below the environment's prefix as it is: bin/plimsoll,
libexec/plimsoll, share/plimsoll ..., and in lib/plimsoll the libraries that are not glibc's; the programs find them by
$ORIGIN (CMakeLists.txt). If the tree holds libexec/plimsoll/llama, that and its libraries become
plimsoll_llama-VERSION-...whl, the extra `plimsoll[llama]`.

X_Y is --glibc: a symbol that asks for a newer one is an error that names it. --parts: prefixes of what was built in
(llhttp, libllama), for libraries in their lib/ and licences. Same tree, same bytes: times are SOURCE_DATE_EPOCH.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import sys
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What every Linux with that glibc has (PEP 600); anything else that a program needs lies beside it.
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1", "libstdc++.so.6",
          "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
# The newest GLIBCXX and CXXABI of the GCC that a distribution with such a glibc brought (UBI 9: gcc 11).
CXX = {"GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13)}
LIBRARIES = "lib/plimsoll"
SUMMARY = "A line around model servers: never cold, never leaks, never OOMs"
LLAMA_SUMMARY = "The engine for GGUF files of plimsoll, on llama.cpp"


def die(*lines):
    sys.exit("wheel: " + "\n  ".join(lines))


def run(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    if done.returncode != 0:
        die(f"{words[0]} failed: {done.stderr.strip()}")
    return done.stdout


# ---- programs and libraries


def is_elf(path):
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


def needed(path):
    return re.findall(r"\(NEEDED\)\s+Shared library: \[(.+?)\]", run("readelf", "--dynamic", "--wide", path))


def wanted_symbols(path):
    """(symbol, "GLIBC", (2, 34)) of everything versioned that it takes from elsewhere."""
    for name, library, version in re.findall(r"\bUND\s+(\S+?)@+(GLIBC|GLIBCXX|CXXABI)_([0-9.]+)",
                                             run("readelf", "--dyn-syms", "--wide", path)):
        yield name, library, tuple(int(n) for n in version.split("."))


def text_of(version):
    return ".".join(map(str, version))


def newest_glibc(programs, tree, limit):
    """The newest glibc that one of them asks for. Ends with the names of the symbols that ask for more than `limit`."""
    newest, bad = (2, 17), []
    for path in programs:
        for name, library, version in wanted_symbols(path):
            most = limit if library == "GLIBC" else CXX[library]
            if version > most:
                bad.append(f"{path.relative_to(tree)}: {name}@{library}_{text_of(version)} (at most {text_of(most)})")
            elif library == "GLIBC":
                newest = max(newest, version)
    if bad:
        die("symbols that older systems do not have:", *sorted(set(bad)),
            "use something older in the source, or say --glibc (the wheel's tag follows)")
    return newest


def find_libraries(program, folders):
    """{soname: path} of all that the loader finds for it, there or where it always looks."""
    said = run("env", "LD_LIBRARY_PATH=" + ":".join(map(str, folders)), "ldd", program)
    return dict(re.findall(r"^\s*(\S+) => (/\S+) \(0x", said, re.M))


def package_of(path):
    """Debian's package of a library, its version and its copyright file; empty where dpkg does not know it."""
    done = subprocess.run(["dpkg-query", "--search", f"*/{path.name}"], capture_output=True, text=True)
    names = {line.split(":")[0] for line in done.stdout.splitlines() if line.endswith(str(path)) or path.name in line}
    for name in sorted(names):
        licence = pathlib.Path(f"/usr/share/doc/{name}/copyright")
        if licence.exists():
            version = run("dpkg-query", "--show", "--showformat", "${Version}", name)
            return name, version, licence.read_bytes()
    return "", "", b""


class Tree:
    """The installed tree, as {path below the prefix: (content, executable)} for each wheel."""

    def __init__(self, folder, parts):
        self.folder = folder
        self.parts = parts
        self.files = {"plimsoll": {}, "plimsoll_llama": {}}
        self.notes = {"plimsoll": {}, "plimsoll_llama": {}}  # licences/NAME: content
        self.bundled = {"plimsoll": [], "plimsoll_llama": []}
        self.elfs = {"plimsoll": [], "plimsoll_llama": []}
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and not name.startswith(LIBRARIES + "/"):
                self.take("plimsoll_llama" if name == "libexec/plimsoll/llama" else "plimsoll", name, path)
        for wheel in self.files:
            self.bundle(wheel)
        self.note_licences()

    def take(self, wheel, name, path):
        self.files[wheel][name] = (path.read_bytes(), os.access(path, os.X_OK))
        if is_elf(path):
            self.elfs[wheel].append(path)

    def bundle(self, wheel):
        """Libraries go into the tree too, so that it runs as the wheel will. What main brings the engine does not."""
        place = self.folder / LIBRARIES
        waiting, seen = list(self.elfs[wheel]), set()
        found = {}
        for path in waiting:
            found.update(find_libraries(path, [p / "lib" for p in self.parts]))
        while waiting:
            for soname in needed(waiting.pop()):
                if soname in SYSTEM or soname in seen or soname.startswith("libplimsoll-drydock"):
                    continue
                seen.add(soname)
                if wheel != "plimsoll" and f"{LIBRARIES}/{soname}" in self.files["plimsoll"]:
                    continue
                source = pathlib.Path(found.get(soname, "/none")).resolve()
                if not source.exists():
                    die(f"{soname} is needed and the loader does not find it")
                if re.match(r"lib(a|t|l|ub)san|libgcov", soname):
                    die(f"{soname}: this build has a sanitizer in it")
                place.mkdir(parents=True, exist_ok=True)
                copy = place / soname
                if source != copy:
                    copy.write_bytes(source.read_bytes())
                copy.chmod(0o755)
                self.take(wheel, f"{LIBRARIES}/{soname}", copy)
                self.bundled[wheel].append((soname, source))
                waiting.append(copy)

    def note_licences(self):
        self.notes["plimsoll"]["LICENSE"] = self.notes["plimsoll_llama"]["LICENSE"] = (ROOT / "LICENSE").read_bytes()
        for folder in self.parts:
            for path in sorted(folder.glob("LICENSE*")):
                wheel = "plimsoll_llama" if (folder / "lib/libllama.so").exists() else "plimsoll"
                self.notes[wheel][("llama.cpp-" if wheel != "plimsoll" else "llhttp-") + path.name] = path.read_bytes()
        for wheel, rows in self.bundled.items():
            lines = []
            for soname, source in sorted(rows):
                package, version, licence = package_of(source)
                if licence:
                    self.notes[wheel][f"{package}.copyright"] = licence
                lines.append(f"{soname}  {package or source.name} {version}".rstrip())
            if lines:
                self.notes[wheel]["LIBRARIES.txt"] = (
                    "Libraries of others in this wheel, and where they come from; licences beside this file.\n\n"
                    + "\n".join(lines) + "\n").encode()


# ---- the wheel itself (packaging.python.org: binary distribution format)


def metadata(wheel, version):
    lines = ["Metadata-Version: 2.1", f"Name: {wheel.replace('_', '-')}", f"Version: {version}",
             f"Summary: {SUMMARY if wheel == 'plimsoll' else LLAMA_SUMMARY}", "License: Apache-2.0",
             "Requires-Python: >=3.9", "Classifier: Operating System :: POSIX :: Linux",
             "Classifier: Programming Language :: C", "Description-Content-Type: text/markdown"]
    if wheel == "plimsoll":
        lines += ["Provides-Extra: llama", f"Requires-Dist: plimsoll-llama=={version}; extra == 'llama'"]
        text = (ROOT / "README.md").read_text()
    else:
        lines.append(f"Requires-Dist: plimsoll=={version}")
        text = "`pip install plimsoll[llama]`, then `plimsoll serve FILE.gguf`.\n"
    return ("\n".join(lines) + "\n\n" + text).encode()


def data_name(wheel, version, name):
    """Programs for people go through `scripts`, which makes them executable whatever unpacks the wheel."""
    place = f"scripts/{name.removeprefix('bin/')}" if name.startswith("bin/") else f"data/{name}"
    return f"{wheel}-{version}.data/{place}"


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def write_wheel(wheel, tree, version, tag, out):
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))
    stamp = time.gmtime(max(epoch, 315532800))[:6]
    info = f"{wheel}-{version}.dist-info"
    members = {data_name(wheel, version, name): row for name, row in tree.files[wheel].items()}
    if wheel == "plimsoll":
        # `import plimsoll` (plimsoll.watch()) in the environment is the very folder that workers run from.
        members["plimsoll.pth"] = (f"../../../share/plimsoll/python-{version}\n".encode(), False)
    members[f"{info}/METADATA"] = (metadata(wheel, version), False)
    about = f"Wheel-Version: 1.0\nGenerator: plimsoll scripts/wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n"
    members[f"{info}/WHEEL"] = (about.encode(), False)
    for name, content in tree.notes[wheel].items():
        members[f"{info}/licenses/{name}"] = (content, False)
    record = [f"{name},sha256={digest(content)},{len(content)}" for name, (content, _) in members.items()]
    members[f"{info}/RECORD"] = ("\n".join([*record, f"{info}/RECORD,,"]) + "\n").encode(), False
    path = out / f"{wheel}-{version}-{tag}.whl"
    out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for name, (content, executable) in members.items():
            entry = zipfile.ZipInfo(name, stamp)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            z.writestr(entry, content)
    return path


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("tree", type=pathlib.Path)
    args.add_argument("--out", type=pathlib.Path, required=True)
    args.add_argument("--parts", type=pathlib.Path, action="append", default=[], help="prefix of a library built in")
    args.add_argument("--glibc", default="2.34", help="newest glibc that may be asked for")
    args = args.parse_args()
    folder = args.tree.resolve()
    said = run(folder / "bin/plimsoll", "--version")
    version = re.match(r"plimsoll (\S+)", said)[1]
    tree = Tree(folder, args.parts)
    limit = tuple(int(n) for n in args.glibc.split("."))
    for wheel, files in tree.files.items():
        if not files:
            continue
        newest = newest_glibc(tree.elfs[wheel], folder, limit)
        tag = f"py3-none-manylinux_{'_'.join(map(str, limit))}_{platform.machine()}"
        path = write_wheel(wheel, tree, version, tag, args.out)
        print(f"{path} ({path.stat().st_size / (1 << 20):.1f} MiB; asks for glibc {text_of(newest)}; "
              f"libraries of others: {', '.join(s for s, _ in tree.bundled[wheel]) or 'none'})")


if __name__ == "__main__":
    main()
