"""The run folder, and the command line."""

import os
import shutil
import socket
import subprocess

import pytest
from keeper_rig import KEEPER, needs_root, wait_dead

# --- the run folder ---


def refused(path, *more, prefix=()):
    words = [*prefix, KEEPER, "--run", path, *more, "--", "/bin/true"]
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=20, check=False)
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("plimsoll keeper: "), done.stderr
    return done.returncode, done.stderr


def test_the_run_folder_is_made_with_its_subfolders_and_nothing_stays(keeper):
    k = keeper()
    main = k.main()
    assert k.left() == ["lock", "prom", "snap", "tmp", "w"]
    for path in [k.run, *(k.run / name for name in ("prom", "snap", "tmp", "w"))]:
        assert path.stat().st_mode & 0o7777 == 0o700
    assert (k.run / "lock").read_text() == f"{k.pid}\n"
    outside = k.folder / "outside"
    outside.mkdir()
    (outside / "precious").write_text("stays")
    deep = k.run / "tmp" / "/".join("abcdefgh")
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    for at in (deep, k.run / "w", k.run / "prom"):
        (at / "link").symlink_to(outside)
        (at / "dangling").symlink_to("/none")
    for name in ("admin.sock", "agents.sock", "w/1", "snap/s"):
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(str(k.run / name))
    for i in range(300):
        (k.run / "prom" / f"{i}.db").write_text("")
    assert k.stop(main) == 0
    assert k.left() is None
    assert (outside / "precious").read_text() == "stays"


def test_what_others_keep_in_the_run_folder_stays(keeper):
    k = keeper()
    main = k.main()
    (k.run / "mine").write_text("stays")
    assert k.stop(main) == 0
    assert k.left() == ["mine"]


def test_leftovers_of_a_killed_keeper_are_removed_at_the_next_start(keeper):
    k = keeper()
    k.main()
    (k.run / "tmp" / "old").mkdir()
    (k.run / "tmp" / "old" / "file").write_text("x")
    shutil.rmtree(k.run / "snap")
    outside = k.folder / "outside"
    outside.mkdir()
    (outside / "precious").write_text("stays")
    (k.run / "snap").symlink_to(outside)
    (k.run / "prom").chmod(0o755)
    for name in ("admin.sock", "w/1"):
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(str(k.run / name))
    k.process.kill()
    k.process.wait()
    for main in k.mains:
        wait_dead(main.pid)
    k.start()
    main = k.main()
    assert k.left() == ["lock", "prom", "snap", "tmp", "w"]
    assert (k.run / "prom").stat().st_mode & 0o777 == 0o700 and not (k.run / "snap").is_symlink()
    assert (outside / "precious").exists()
    assert k.stop(main) == 0
    assert k.left() is None


def test_a_second_keeper_names_the_first(keeper):
    k = keeper()
    main = k.main()
    status, text = refused(k.run)
    assert status == 5 and f"is in use by the keeper with pid {k.pid}: stop that one" in text
    assert k.left() == ["lock", "prom", "snap", "tmp", "w"]
    assert k.stop(main) == 0


def test_a_run_folder_that_cannot_be_used_is_a_sentence_and_5(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "open").chmod(0o755)
    length = 91 - len(str(tmp_path)) - 1
    cases = {
        tmp_path / ("x" * (length + 7)): "too long by 7 bytes for the sockets in it: name a shorter one with run_dir",
        tmp_path / "none" / "run": "the folder above it does not exist: make it",
        tmp_path / "file": "is a symbolic link or no folder",
        tmp_path / "link": "is a symbolic link or no folder",
        tmp_path / "open": f"has mode 0755 and must be ours alone: chmod 700 {tmp_path / 'open'}",
    }
    if length < 1:
        pytest.skip("the temporary folder is too deep")
    for path, words in cases.items():
        status, text = refused(path)
        assert status == 5 and words in text, (path, text)


@needs_root
def test_a_run_folder_of_somebody_else_is_refused(keeper):
    k = keeper()
    k.stop(k.main())
    base = k.folder / "theirs"
    base.mkdir(mode=0o700)
    os.chown(base, 65534, 65534)
    status, text = refused(base)
    assert status == 5 and "belongs to uid 65534 and we are uid 0: name another one with run_dir" in text


@needs_root
def test_a_user_who_may_not_write_there_is_told(keeper):
    k = keeper()
    k.stop(k.main())
    program = k.folder / "keeper"
    shutil.copy(KEEPER, program)
    k.folder.chmod(0o755)
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    done = subprocess.run([*user, program, "--run", k.folder / "new", "--", "/bin/true"], capture_output=True, text=True, check=False)
    assert done.returncode == 5 and "cannot be made (Permission denied): name another one with run_dir" in done.stderr


@pytest.mark.parametrize("words", [[], ["--run"], ["--run", "/tmp/x"], ["--run", "/tmp/x", "--"], ["--", "/bin/true"],
                                   ["--run", "/tmp/x", "--hang-ms", "-1", "--", "/bin/true"],
                                   ["--run", "/tmp/x", "--hold", "listen", "--", "/bin/true"],
                                   ["--run", "/tmp/x", "--what", "1", "--", "/bin/true"]])
def test_wrong_words_are_2(words):
    done = subprocess.run([KEEPER, *words], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2 and done.stderr.startswith("plimsoll keeper: ") and done.stderr.count("\n") == 1


def test_a_program_that_is_not_there_is_5_and_makes_no_folder(tmp_path):
    for program in ("/none", "/proc/version", "/tmp"):
        done = subprocess.run([KEEPER, "--run", tmp_path / "r", "--", program], capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 5 and program in done.stderr, done.stderr
    assert not (tmp_path / "r").exists()
