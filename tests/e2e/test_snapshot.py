"""`plimsoll snapshot` as a person runs it: words, exit statuses, files it writes."""

import json
import pickle
import re
import sqlite3
import subprocess

import pytest

from rig import paths

DATA = paths.services.parents[1] / "data/snapshots"
MIB = 1 << 20


def snapshot(*words, status=0, folder=None):
    done = subprocess.run([paths.plimsoll, "snapshot", *map(str, words)], capture_output=True, timeout=60, cwd=folder)
    assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout.decode()}\n{done.stderr.decode()}"
    return (done.stdout if status in (0, 1, 4) else done.stderr).decode()


def document(*words, status=0):
    return json.loads(snapshot(*words, "--json", status=status))


@pytest.mark.asan
@pytest.mark.parametrize("path", sorted(DATA.glob("*.pickle")), ids=lambda p: p.stem)
def test_the_report_of_every_recorded_file_agrees_with_torch(path):
    facts = json.loads(path.with_suffix(".json").read_text())
    report = document(path)
    stats = facts["stats_from_torch"]
    for device in report["devices"]:
        want = stats[str(device["device"])]
        for ours, theirs in (("reserved", "reserved"), ("allocated", "allocated"), ("active", "active"), ("requested", "requested")):
            assert device[f"{ours}_bytes"] == want[f"{theirs}_bytes.all.current"]
        assert device["free_bytes"] == device["releasable_bytes"] + device["stuck_bytes"]
        counts = facts["snapshot"]["trace_counts"].get(str(device["device"]), {})
        assert device["trace"]["counts"] == counts
    assert "DEVICE" in snapshot(path) or not report["devices"]


@pytest.mark.asan
def test_a_leak_is_named_by_its_line(tmp_path):
    text = snapshot(DATA / "steady_leak.pickle", "--since", DATA / "plateau_cache.pickle")
    assert re.search(r"STACKS THAT ONLY RISE.*\n.*16\.0 +30\.0 +45\.0 +60\.0 .*snapgen\.py:11 handler_leak", text)
    assert re.search(r"SINCE .*plateau_cache.pickle +live then 0 B, now 60\.0 MiB\n +\+60\.0 MiB", text)


def test_capacity_comes_from_a_log(tmp_path):
    log = tmp_path / "serve.log"
    log.write_text("starting\n" + json.loads((DATA / "oom.json").read_text())["oom_message"] + "\n")
    text = snapshot(DATA / "oom.pickle", "--log", log)
    assert "of 1024.0 MiB (the OOM line of" in text
    assert document(DATA / "oom.pickle", "--log", log)["capacity_bytes"] == 1024 * MIB
    (tmp_path / "empty.log").write_text("nothing\n")
    assert "no message of PyTorch" in snapshot(DATA / "oom.pickle", "--log", tmp_path / "empty.log", status=3)


def test_replay_says_how_far_it_is_to_be_believed():
    text = snapshot("replay", DATA / "max_split.pickle", "--capacity", "40442MiB")
    assert "fidelity: exact" in text
    assert document("replay", DATA / "oom.pickle", status=1)["recorded"]["ooms"] == 1
    wrapped = document("replay", DATA / "ring_overflow.pickle", status=4)
    assert not wrapped["fidelity"]["trusted"] and wrapped["fidelity"]["reason"]
    assert "no trace" in snapshot("replay", DATA / "no_history.pickle", status=4)


@pytest.mark.asan
def test_what_if_names_a_setting_and_the_line_for_the_environment():
    text = snapshot("what-if", DATA / "max_split.pickle", "--capacity", "40442MiB")
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" in text
    got = document("what-if", DATA / "max_split.pickle", "--capacity", "40442MiB")
    assert got["advice"]["by"] == "min_capacity_no_retry"
    rows = {row["conf"]: row for row in got["settings_tried"]}
    assert rows["expandable_segments:True"]["min_capacity_bytes"] == 622 * MIB
    assert document("what-if", DATA / "small_pool.pickle", "--no-bisect", status=1)["settings_tried"]
    assert "no advice" in snapshot("what-if", DATA / "ring_overflow.pickle", status=4)


def stress(setting, capacity):
    path = DATA / "stress" / f"seed1_{capacity}_{setting}.pickle"
    return path, json.loads(path.with_suffix(".json").read_text())


def test_the_advice_for_a_device_that_ran_out_of_memory_holds():
    """The real allocator ran out on 900 MiB with the defaults. What is advised is among what really ran there without."""
    path, facts = stress("default", 900)
    got = document("what-if", path, "--capacity", "900MiB")
    assert facts["stats_from_torch"]["num_ooms"] == 1
    assert got["recorded"]["ooms"] == 1 and got["advice"]["by"] == "fits"
    assert "expandable_segments:True" in got["advice"]["conf"]
    path, facts = stress("expandable", 900)
    predicted = document("what-if", stress("default", 2048)[0], "--capacity", "900MiB", "--conf", "expandable_segments:True", "--no-bisect")
    row = next(r for r in predicted["settings_tried"] if r["conf"])
    assert row["peak_reserved_bytes"] == facts["stats_from_torch"]["reserved_bytes.all.peak"]
    assert "first_oom_event" not in row and facts["stats_from_torch"]["num_ooms"] == 0


class Calls:
    def __reduce__(self):
        return (print, ("this must never run",))


@pytest.mark.asan
def test_hostile_files_are_refused_with_their_place(tmp_path):
    def refused(data, words):
        path = tmp_path / "mem.pickle"
        path.write_bytes(data)
        line = json.loads(snapshot(path, "--json", status=3))
        assert re.search(words, line["error"]["message"]), line

    refused(pickle.dumps({"segments": Calls()}, 4), r"byte \d+: opcode STACK_GLOBAL refused")
    refused(pickle.dumps({"segments": Calls()}, 2), r"byte \d+: opcode GLOBAL refused")
    refused(pickle.dumps({"segments": [1 << 80]}, 4), "more than 9 bytes")
    refused(pickle.dumps({"a": 1}), "no 'segments'")
    refused(b"", "empty")
    refused(b"PK\3\4", "zip")
    whole = (DATA / "oom.pickle").read_bytes()
    refused(whole[:-1], "cut off")
    refused(b"\x80\x04" + b"}" * (30 << 20), "memory")


def test_wrong_words_are_usage_errors(tmp_path):
    file = DATA / "oom.pickle"
    assert "there is report, replay and what-if" in snapshot("show", file, status=2)
    assert "the file is missing" in snapshot("replay", status=2)
    assert "--top belongs to snapshot report" in snapshot("replay", file, "--top", 3, status=2)
    assert "has 1 device" in snapshot(file, "--device", 1, status=2)
    assert "--capacity" in snapshot(file, "--capacity", "24GB", status=2)
    assert "not known" in snapshot("replay", file, "--conf", "expandable:True", status=3)
    assert "No such file" in snapshot(tmp_path / "none", status=5)
    (tmp_path / "report").write_bytes(file.read_bytes())
    assert "DEVICE 0" in snapshot("./report", folder=tmp_path)


def test_files_of_the_report(tmp_path):
    folded, page, tables = (tmp_path / name for name in ("mem.folded", "mem.html", "mem.sqlite"))
    snapshot(DATA / "steady_leak.pickle", "--folded", folded, "--html", page, "--sqlite", tables)
    assert sum(int(line.rsplit(" ", 1)[1]) for line in folded.read_text().splitlines()) == 60 * MIB
    assert "handler_leak (" in folded.read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(), re.S).group(1))
    assert data["devices"][0]["allocated"] == 60 * MIB and len(data["devices"][0]["flame"]) > 1
    assert "http" not in page.read_text().replace("http-equiv", "")
    with sqlite3.connect(tables) as db:
        rows = db.execute("SELECT name, sum(bytes), count(*) FROM live GROUP BY file, line").fetchall()
        assert rows == [("handler_leak", 60 * MIB, 60)]
        assert db.execute("SELECT count(*) FROM events").fetchone() == (451,)
    db.close()
    assert "already" in snapshot(DATA / "steady_leak.pickle", "--sqlite", tables, status=2)


def test_foreign_texts_stay_texts(tmp_path):
    """Names in a file can be anything: no terminal is steered, no page is broken out of, no JSON is."""
    evil = '</script><script>alert(1)</script>\x1b[2J;"\\'
    frame = {"filename": "/x/" + evil + ".py", "line": 1, "name": evil}
    block = {"address": 4096, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": [frame]}
    segment = {"device": 0, "address": 4096, "total_size": 512, "stream": 0, "segment_type": "small", "blocks": [block]}
    settings = {"PYTORCH_CUDA_ALLOC_CONF": evil, "max_split_size": -1}
    event = {"action": "alloc", "addr": 4096, "size": 500, "stream": 0, "frames": [frame], "user_metadata": evil}
    path, page = tmp_path / "mem.pickle", tmp_path / "mem.html"
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [[event]], "allocator_settings": settings}))
    text = snapshot(path, "--html", page, "--folded", tmp_path / "f")
    assert "\x1b" not in text and "\x1b" not in (tmp_path / "f").read_text()
    assert page.read_text().count("</script>") == 2
    assert document(path)["devices"][0]["holders"][0]["top"]["name"] == evil
    for words in (("replay", path), ("what-if", path)):
        assert "\x1b" not in snapshot(*words, status=4)
