"""`plimsoll manifest`: the golden sets, every variant through Kubernetes' own schemas and our own rules, the alert rules
through promtool."""

import json
import re
import shutil
import sqlite3
import subprocess

import kubernetes_validate
import pytest
import yaml

from rig.server import ROOT, clean_environment, paths

DATA = ROOT / "tests/data/kubernetes"
GOLDEN = {
    "one-gpu-bentoml": [],
    "vllm-4gpu": ["--replicas", "2", "--front", "picker", "--scaler", "hpa", "--prewarm", "1"],
    "digits-cpu": ["--replicas", "2", "--scaler", "hpa"],
}
CORE = {"v1", "apps/v1", "autoscaling/v2", "policy/v1", "scheduling.k8s.io/v1", "networking.k8s.io/v1"}


def manifest(*words, cwd=ROOT, status=0):
    done = subprocess.run([paths.plimsoll, "manifest", *map(str, words)], capture_output=True, text=True, timeout=60, cwd=cwd,
                          env=clean_environment())
    assert done.returncode == status, done.stdout + done.stderr
    return done


def documents(text):
    return [d for d in yaml.load_all(text, yaml.CSafeLoader) if d]


def objects(folder):
    out = {}
    for path in sorted(folder.glob("*.yaml")):
        for doc in documents(path.read_text()):
            if "kind" in doc and path.name != "kustomization.yaml":
                out[doc["kind"], doc["metadata"]["name"]] = doc
    return out


VALID = set()


def validate(docs, kube="1.37"):
    """Kubernetes' own schemas, unknown fields refused. What was valid once is not asked again."""
    core = [d for d in docs if d["apiVersion"] in CORE]
    assert core
    for doc in core:
        key = (kube, json.dumps(doc, sort_keys=True))
        if key not in VALID:
            kubernetes_validate.validate(doc, kube, strict=True)
            VALID.add(key)


def clean(folder_or_text, *flags):
    """Our own rules find nothing wrong with what we write."""
    given = folder_or_text if isinstance(folder_or_text, str) else None
    done = subprocess.run([paths.plimsoll, "manifest", "--check", "-" if given else folder_or_text, "--json", *flags], input=given,
                          capture_output=True, text=True, timeout=60)
    found = json.loads(done.stdout)
    assert found["findings"] == [] and found["deployments"] >= 1, found["findings"]


def write(tmp_path, name, *flags, measured=True):
    words = ["--from", DATA / name / "plimsoll.yaml", "--out", tmp_path / name, *flags]
    manifest(*words, *(["--measured", DATA / f"inputs/{name}.json"] if measured else []))
    return tmp_path / name


# What no measurement says: teams patch it, or it is another opinion on a size.
FREE = re.compile(r"\.(image|reference|ephemeral-storage|storage|description)$|volumes\[\w+\]\.emptyDir\.sizeLimit$|^\w+\.metadata\.labels")


def differences(golden, got, path):
    if FREE.search(path) and "shm" not in path:
        return [] if type(golden) is type(got) else [f"{path}: {golden!r} / {got!r}"]
    if isinstance(golden, dict) and isinstance(got, dict):
        out = [f"{path}: only in {'golden' if k in golden else 'ours'}: {k}" for k in golden.keys() ^ got.keys()]
        return out + [d for k in golden.keys() & got.keys() for d in differences(golden[k], got[k], f"{path}.{k}")]
    if isinstance(golden, list) and isinstance(got, list):
        if all(isinstance(x, dict) and "name" in x for x in golden + got):
            names = {x["name"]: x for x in got}
            out = [f"{path}: names {sorted(x['name'] for x in golden)} / {sorted(names)}"] if {x["name"] for x in golden} != set(names) else []
            return out + [d for x in golden if x["name"] in names for d in differences(x, names[x["name"]], f"{path}[{x['name']}]")]
        out = [f"{path}: {len(golden)} / {len(got)} items"] if len(golden) != len(got) else []
        return out + [d for i, (x, y) in enumerate(zip(golden, got)) for d in differences(x, y, f"{path}[{i}]")]
    return [] if golden == got else [f"{path}: {golden!r} / {got!r}"]


@pytest.mark.asan
@pytest.mark.parametrize("name", GOLDEN)
def test_a_golden_set_is_written_from_its_measurements(tmp_path, name):
    folder = write(tmp_path, name, *GOLDEN[name])
    golden, got = objects(DATA / name), objects(folder)
    extra = {kind for kind, _ in got.keys() - golden.keys()}
    assert golden.keys() - got.keys() == set() and extra <= {"NetworkPolicy", "PrometheusRule"}
    for key, doc in golden.items():
        if key[0] != "PrometheusRule":  # its rules are deploy/alerts.yaml's: below
            assert differences(doc, got[key], key[0]) == []
    validate(got.values())
    clean(folder)
    theirs, ours = (yaml.safe_load((f / "plimsoll.yaml").read_text()) for f in (DATA / name, folder))
    service = next(iter(ours["services"].values()))
    assert service.pop("start_timeout").endswith("s") and ours == theirs
    base = yaml.safe_load((folder / "kustomization.yaml").read_text())
    theirs = yaml.safe_load((DATA / name / "kustomization.yaml").read_text())
    assert set(theirs["resources"]) <= set(base["resources"]) and all((folder / r).exists() for r in base["resources"])
    assert base["configMapGenerator"] == theirs["configMapGenerator"]
    assert base.get("generatorOptions") == theirs.get("generatorOptions")
    for file in base["configMapGenerator"][0]["files"]:
        assert (folder / file).exists()


def test_the_scalers_ask_for_metrics_that_there_are(tmp_path):
    known = (ROOT / "src/base/metrics.def").read_text()
    (tmp_path / "plimsoll.yaml").write_text(CONFIGS["vllm"])
    for scaler in ("hpa", "keda"):
        text = manifest("--scaler", scaler, cwd=tmp_path)
        names = set(re.findall(r"plimsoll_[a-z_]+", yaml.dump([d for d in documents(text.stdout) if d["kind"] in ("HorizontalPodAutoscaler", "ScaledObject")])))
        assert names and all(f'"{name}"' in known for name in names), names


def test_every_number_says_where_it_comes_from(tmp_path):
    computed = r"\b(failureThreshold: \d{2,}|terminationGracePeriodSeconds|progressDeadlineSeconds|cpu: |limits.*memory)"
    for measured, word in ((True, "computed|measured"), (False, "guessed|computed")):
        folder = write(tmp_path, "one-gpu-bentoml", measured=measured)
        for line in (folder / "deployment.yaml").read_text().splitlines():
            if re.search(computed, line):
                assert re.search(rf"# ({word}): ", line), line
    text = (folder / "deployment.yaml").read_text()
    assert text.count("guessed: ") >= 5 and "plimsoll/boot-seconds" not in text and "nodeSelector" not in text
    assert "guessed: 360 s from boot 120 g" not in text and "guessed: 360 s from boot 120 s x 3" in text
    assert "run plimsoll manifest --measured after the first boot" in text
    assert "copy their flight record out" in (folder / "NOTES.md").read_text()


CONFIGS = {
    "bento": "services:\n  classify:\n    run: service:Classifier\n",
    "bento-gpu": "services:\n  classify:\n    run: service:Classifier\n    gpus: [0]\n",
    "vllm": "listen: 127.0.0.1:8000\nservices:\n  chat:\n    command: [vllm, serve, /models/chat, --port, '{port}']\n    gpus: 2\n",
    "llama": "services:\n  chat:\n    model: /models/chat.gguf\n",
    "two": "name: both\nservices:\n  a:\n    run: service:A\n    route: {path: /a}\n    gpus: [0]\n  b:\n    run: service:B\n    route: {path: /b}\n    gpus: [1]\n",
}
VARIANTS = [("service", "none", "1"), ("picker", "hpa", "2"), ("service", "keda", "2"), ("picker", "none", "2")]


@pytest.mark.parametrize("name", CONFIGS)
def test_every_variant_is_valid_and_clean(tmp_path, name):
    (tmp_path / "plimsoll.yaml").write_text(CONFIGS[name])
    for front, scaler, replicas in VARIANTS:
        text = manifest("--front", front, "--scaler", scaler, "--replicas", replicas, cwd=tmp_path).stdout
        docs = documents(text)
        validate(docs)
        clean(text)
        kinds = [d["kind"] for d in docs]
        assert ("PodDisruptionBudget" in kinds) == (replicas == "2") and ("InferencePool" in kinds) == (front == "picker")
        assert ("HorizontalPodAutoscaler" in kinds, "ScaledObject" in kinds) == (scaler == "hpa", scaler == "keda")
        deployment = docs[0]
        assert ("replicas" in deployment["spec"]) == (scaler == "none")
    extra = ["--qos", "guaranteed", "--prewarm", "2", "--runtime-class", "nvidia", "--spare-gpu", "--front", "loadbalancer", "--no-operator"]
    docs = documents(manifest(*extra, cwd=tmp_path).stdout)
    validate(docs)
    container = docs[0]["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["cpu"] == container["resources"]["requests"]["cpu"]
    assert docs[0]["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert not {"PodMonitor", "PrometheusRule"} & {d["kind"] for d in docs}
    clean(manifest(*extra, cwd=tmp_path).stdout, "--spare-gpu")


SECRETS = """admin_token: env:TOKEN
api_keys: {file: /etc/keys/keys.json}
tls:
  certfile: /etc/tls/tls.crt
  keyfile: /etc/tls/tls.key
services:
  a: {run: 's:A'}
"""


def test_what_speaks_tls_and_reads_secrets_is_asked_and_given_so(tmp_path):
    (tmp_path / "plimsoll.yaml").write_text(SECRETS)
    done = manifest(cwd=tmp_path)
    docs = documents(done.stdout)
    validate(docs)
    clean(done.stdout)
    pod = docs[0]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert {container[p]["httpGet"]["scheme"] for p in ("startupProbe", "readinessProbe", "livenessProbe")} == {"HTTPS"}
    assert next(d for d in docs if d["kind"] == "PodMonitor")["spec"]["podMetricsEndpoints"][0]["scheme"] == "https"
    secrets = {v["secret"]["secretName"]: (v["name"], v["secret"]["defaultMode"]) for v in pod["volumes"] if "secret" in v}
    mounted = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    assert {name: mounted[volume] for name, (volume, _) in secrets.items()} == {"a-tls": "/etc/tls", "a-keys": "/etc/keys"}
    assert {mode for _, mode in secrets.values()} == {0o440}
    (token,) = [e for e in container["env"] if e["name"] == "TOKEN"]
    assert token["valueFrom"]["secretKeyRef"] == {"name": "a-env", "key": "TOKEN"}
    for name in ("a-tls", "a-keys", "a-env"):
        assert f"Make the Secret {name}" in done.stderr
    (tmp_path / "plimsoll.yaml").write_text(SECRETS.replace("tls:\n", "tls:\n  cert_reqs: required\n  ca_certs: /etc/tls/ca.crt\n"))
    assert "the kubelet's probes have no certificate" in manifest(cwd=tmp_path, status=3).stderr
    (tmp_path / "plimsoll.yaml").write_text(SECRETS.replace("/etc/keys/", "/etc/plimsoll/"))
    assert "no place for secrets" in manifest(cwd=tmp_path, status=3).stderr


def test_json_holds_every_file(tmp_path):
    (tmp_path / "plimsoll.yaml").write_text(CONFIGS["bento"])
    doc = json.loads(manifest("--json", "--out", "out", cwd=tmp_path).stdout)
    assert doc["v"] == 1 and doc["kind"] == "manifest" and doc["name"] == "classify" and doc["boot_measured"] is False
    written = {p.name: p.read_text() for p in (tmp_path / "out").iterdir()}
    assert written.pop("NOTES.md") == doc["notes"] and written == {f["name"]: f["text"] for f in doc["files"]}
    assert json.loads(manifest("--json", cwd=tmp_path).stdout) == doc


@pytest.mark.parametrize("kube", ["1.27", "1.29", "1.30", "1.31", "1.35"])
def test_older_kubernetes_gets_what_it_knows(tmp_path, kube):
    (tmp_path / "plimsoll.yaml").write_text(CONFIGS["vllm"])
    text = manifest("--kube", kube, cwd=tmp_path).stdout
    docs = documents(text)
    validate(docs, kube)
    clean(text)
    config = next(d for d in docs if d["kind"] == "ConfigMap")["data"]["plimsoll.yaml"]
    container = docs[0]["spec"]["template"]["spec"]["containers"][0]
    minor = int(kube.split(".")[1])
    assert ("lifecycle" in container) == (minor >= 30) and ("drain_delay" in yaml.safe_load(config)) == (minor < 30)
    model = next(v for v in docs[0]["spec"]["template"]["spec"]["volumes"] if v["name"] == "model")
    assert ("image" in model) == (minor >= 31) and ("persistentVolumeClaim" in model) == (minor < 31)


def test_the_sidecar_is_the_golden_one(tmp_path):
    (tmp_path / "plimsoll.yaml").write_text("name: chat-guarded\nservices:\n  chat:\n    url: http://127.0.0.1:8000\n    gpus: 4\n    traffic: {timeout: 120s}\n")
    measured = json.loads((DATA / "inputs/vllm-4gpu.json").read_text())
    measured["host"]["main_bytes"] = 0
    (tmp_path / "m.json").write_text(json.dumps(measured))
    text = manifest("--mode", "sidecar", "--front", "picker", "--replicas", "2", "--measured", "m.json", cwd=tmp_path).stdout
    got = documents(text)[0]
    validate(documents(text))
    clean(text)
    golden = yaml.safe_load((DATA / "vllm-4gpu/alternatives/sidecar.yaml").read_text())["spec"]
    spec, theirs = got["spec"], golden["template"]["spec"]
    for key in ("replicas", "progressDeadlineSeconds", "minReadySeconds", "strategy"):
        assert spec[key] == golden[key]
    pod = spec["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == theirs["terminationGracePeriodSeconds"]
    assert differences(theirs["initContainers"], pod["initContainers"], "init") == []
    for key in ("startupProbe", "livenessProbe", "lifecycle", "resources"):
        assert pod["containers"][0][key] == theirs["containers"][0][key], key


def test_the_rules_pass_promtool(tmp_path):
    """The alerts of deploy/alerts.yaml with their own tests, with two figures of this start."""
    folder = write(tmp_path, "vllm-4gpu", *GOLDEN["vllm-4gpu"])
    rules = next(d for (kind, _), d in objects(folder).items() if kind == "PrometheusRule")["spec"]
    assert rules == yaml.safe_load((ROOT / "deploy/alerts.yaml").read_text())  # written for 630 s, as this one
    plain = write(tmp_path, "vllm-4gpu", *GOLDEN["vllm-4gpu"], "--no-operator") / "rules.yaml"
    assert yaml.safe_load(plain.read_text()) == rules
    if not shutil.which(paths.promtool):
        pytest.skip("no promtool")
    shutil.copy(plain, tmp_path / "alerts.yaml")
    shutil.copy(ROOT / "tests/promtool/alerts.test.yaml", tmp_path)
    for words in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts.test.yaml"]):
        done = subprocess.run([paths.promtool, *words], cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stdout + done.stderr
    text = manifest("--from", DATA / "one-gpu-bentoml/plimsoll.yaml", "--no-operator", "--out", tmp_path / "small", "--measured",
                    DATA / "inputs/one-gpu-bentoml.json") and (tmp_path / "small/rules.yaml").read_text()
    assert "for: 2m  # computed: 1.1 x the start-up budget (60 s)" in text and "0.8 * 60\n" in text and "of 60 s allowed" in text and "630" not in text
    done = subprocess.run([paths.promtool, "check", "rules", tmp_path / "small/rules.yaml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_placeholder_holds_what_it_read(tmp_path):
    """The command of the prewarm Deployment, as it stands there."""
    folder = write(tmp_path, "vllm-4gpu", *GOLDEN["vllm-4gpu"])
    pod = objects(folder)["Deployment", "chat-prewarm"]["spec"]["template"]["spec"]
    command = pod["containers"][0]["command"]
    assert command == ["/usr/bin/plimsoll", "hold", "/models/chat"] and pod["terminationGracePeriodSeconds"] == 0
    model = tmp_path / "model"
    (model / "blobs").mkdir(parents=True)
    (model / "blobs/1").write_bytes(b"x" * 3_000_000)
    (model / "weights").symlink_to("blobs/1")
    held = subprocess.Popen([paths.plimsoll, "hold", model, "--json"], stdout=subprocess.PIPE, text=True)
    said = json.loads(held.stdout.readline())
    assert said["files"] + said["hot"] == 2 and said["failed"] == 0, "just written, they may be in memory already"
    held.terminate()
    assert held.wait(timeout=30) == 0
    held.stdout.close()
    once = subprocess.run([paths.plimsoll, "hold", "--once", model / "blobs"], capture_output=True, text=True, timeout=30)
    assert once.returncode == 0 and " failed=0 " in once.stdout
    (model / "gone").symlink_to("blobs/2")
    done = subprocess.run([paths.plimsoll, "hold", "--once", model], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "model/gone" in done.stderr and "No such file" in done.stderr
    done = subprocess.run([paths.plimsoll, "hold", "--once", tmp_path / "none"], capture_output=True, timeout=30)
    assert done.returncode == 1


def test_single_is_one_file_with_the_configuration_inside(tmp_path):
    shutil.copytree(DATA / "vllm-4gpu", tmp_path / "in")
    manifest("--from", tmp_path / "in/plimsoll.yaml", "--single", "--out", tmp_path / "out", *GOLDEN["vllm-4gpu"])
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["NOTES.md", "plimsoll-manifest.yaml"]
    docs = documents((tmp_path / "out/plimsoll-manifest.yaml").read_text())
    validate(docs)
    config = next(d for d in docs if d["kind"] == "ConfigMap")
    assert config["metadata"]["name"] == "chat-plimsoll" and json.loads(config["data"]["warmup.json"])["model"] == "chat"
    assert yaml.safe_load(config["data"]["plimsoll.yaml"])["replicas"] == 2


@pytest.mark.parametrize(
    "text, expected",
    [
        ("# mine\nservices:\n  # of it\n  a:\n    run: s:A # here\n", "admin: X\nreplicas: 1\n# of it, here"),
        ("admin:   127.0.0.1:3001 # old\n\n# kept\nreplicas: 7\nservices: {a: {run: 's:A'}}\n", ""),
        ("---\nlisten:\n  - 0.0.0.0:4000\nadmin:\n  127.0.0.1:9\nservices:\n    a:\n        run: s:A\n        start_timeout: 5m\n", ""),
        ("listen: 127.0.0.1:8080\nservices: {a: {run: 's:A'}}", ""),
    ],
)
def test_the_configuration_keeps_what_it_says(tmp_path, text, expected):
    """Comments, order and every other key are the user's; what is set is set once."""
    (tmp_path / "plimsoll.yaml").write_text(text)
    manifest("--replicas", "3", "--out", "out", cwd=tmp_path)
    out = (tmp_path / "out/plimsoll.yaml").read_text()
    before, after = yaml.safe_load(text), yaml.safe_load(out)
    assert after["replicas"] == 3 and after["admin"].startswith("0.0.0.0:")
    for comment in re.findall(r"# (?:mine|of it|here|kept)", text):
        assert comment in out
    if str(before.get("listen", "")).startswith("127."):
        assert after["listen"] == "0.0.0.0:8080"
    service = after["services"]["a"]
    assert service.pop("start_timeout", "5m") in ("350s", "5m")
    before["services"]["a"].pop("start_timeout", None)
    for key in set(before) - {"admin", "replicas", "listen"}:
        assert after[key] == before[key]
    # what was written is a configuration like any other, and written again it is the same
    manifest("--replicas", "3", "--from", tmp_path / "out/plimsoll.yaml", "--out", "again", cwd=tmp_path)
    assert (tmp_path / "again/plimsoll.yaml").read_text() == out


def test_measured_by_a_server_that_ran(digits, tmp_path):
    """From a first boot to a manifest: the record of a real service says its boot and its memory."""
    path = digits.folder / "state/record.sqlite"

    def has(sql):
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            rows = db.execute(sql).fetchall()
        db.close()
        return rows

    (row,) = digits.wait_until(lambda: has("SELECT ready_ms, service FROM timeline WHERE ready_ms > 0"), what="a boot")
    digits.wait_until(lambda: has("SELECT 1 FROM sample WHERE scope = 'host' AND anon_bytes > 0"), what="a sample")
    (tmp_path / "plimsoll.yaml").write_text(f"services:\n  {row[1]}:\n    run: service:Digits\n")
    text = manifest("--measured", path, cwd=tmp_path).stdout
    notes = documents(text)[0]["spec"]["template"]["metadata"]["annotations"]
    assert float(notes["plimsoll/boot-seconds"]) == pytest.approx(row[0] / 1000, rel=0.01)
    assert 64 << 20 < int(notes["plimsoll/host-peak-bytes"]) < 8 << 30
    assert "# Written by plimsoll manifest from record.sqlite." in text and "measured: slowest of 1 boot, none" in text
    validate(documents(text))
    clean(text)


def test_a_flight_record_says_how_long_boots_take(tmp_path):
    (tmp_path / "plimsoll.yaml").write_text(CONFIGS["bento"])
    subprocess.run([paths.build / "bin/make_record", tmp_path / "record.sqlite", "text", "1796000000000"], check=True)
    with sqlite3.connect(tmp_path / "record.sqlite") as db:
        db.execute("DELETE FROM timeline")
        db.execute("DELETE FROM sample")
        for ms in (30000, 31000, 90000):
            db.execute("INSERT INTO timeline(ts_ms, boot, service, worker, generation, ready_ms) VALUES (1, 1, 'classify', 1, 1, ?)", (ms,))
        db.execute("INSERT INTO timeline(ts_ms, boot, service, worker, generation, ready_ms) VALUES (1, 1, 'other', 1, 1, 900000)")
        for mib in (300, 310, 320, 900):
            db.execute("INSERT INTO sample(ts_ms, boot, scope, service, worker, generation, anon_bytes) VALUES (1, 1, 'host', 'classify', 1, 1, ?)", (mib << 20,))
    text = manifest("--measured", "record.sqlite", cwd=tmp_path).stdout
    deployment = documents(text)[0]["spec"]["template"]
    assert deployment["metadata"]["annotations"]["plimsoll/boot-seconds"] == "90"
    # main 64 + overlap: steady 320 + one more load of 900 MiB
    assert int(deployment["metadata"]["annotations"]["plimsoll/host-peak-bytes"]) == (64 + 320 + 900) << 20
    probe = deployment["spec"]["containers"][0]["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 270  # no cold boot known: 3 x
    assert "measured: slowest of 3 boots, none of them known to be cold" in text


def test_the_containerfile_has_the_steps_of_the_golden_one():
    text = manifest("--image", "--from", DATA / "one-gpu-bentoml/plimsoll.yaml").stdout
    golden = (DATA / "one-gpu-bentoml/Containerfile").read_text()

    def steps(t):
        return [re.sub(r" .*", "", line) for line in t.splitlines() if re.match(r"[A-Z]+ ", line)]

    assert [s for s in steps(text) if s != "COPY"] == [s for s in steps(golden) if s != "COPY"]
    assert text.index("/opt/venv") < text.index("/usr/bin/plimsoll") < text.index("/opt/bentoml/models") < text.index("/app/")
    assert 'ENTRYPOINT ["/usr/bin/plimsoll", "serve"]\nCMD ["service:Classifier"]\n' in text


def test_the_lines_for_a_bento_are_what_bentoml_takes(tmp_path):
    """BentoML's own reader makes an image of its current kind of them: no fallback, nothing left out."""
    from _bentoml_sdk.images import populate_image_from_build_config
    from bentoml._internal.bento.build_config import BentoBuildConfig

    lines, pod = documents(manifest("--bento", "--from", DATA / "one-gpu-bentoml/plimsoll.yaml").stdout)
    (tmp_path / "bentofile.yaml").write_text(yaml.safe_dump({"service": "service:Classifier", **lines}))
    config = BentoBuildConfig.from_file(str(tmp_path / "bentofile.yaml"))
    image = populate_image_from_build_config(None, config, str(tmp_path))
    assert image is not None and image.base_image == lines["docker"]["base_image"]
    assert {e.name for e in config.envs} == {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "BENTOML_DO_NOT_TRACK"}
    # the script execs what it is given when that is none of BentoML's own words
    import bentoml._internal.container.frontend.dockerfile as dockerfile

    script = tmp_path / "entrypoint.sh"
    shutil.copy(list(dockerfile.__path__)[0] + "/entrypoint.sh", script)
    assert pod["command"] == ["/home/bentoml/bento/env/docker/entrypoint.sh"] and pod["args"][0] == "/usr/bin/plimsoll"
    done = subprocess.run(["bash", script, paths.plimsoll, "--version"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("plimsoll ")


@pytest.mark.parametrize(
    "words, said",
    [
        (["--replicas", "0"], "--replicas: '0' is no number from 1"),
        (["--front", "ingress"], "--front: 'ingress' is none of service, loadbalancer, picker"),
        (["--kube", "1.2.3"], "no version like 1.31"),
        (["--kube", "1.20"], "no version like 1.31"),
        (["--gpu-resource", "a: b"], "no name that Kubernetes knows"),
        (["--mode", "sidecar"], "needs url:"),
        (["--claim", "a", "--gpu-resource", "b"], "one of them"),
        (["stray"], "manifest takes no 'stray'"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, words, said):
    (tmp_path / "plimsoll.yaml").write_text(CONFIGS["bento"])
    assert said in manifest(*words, cwd=tmp_path, status=2).stderr


@pytest.mark.parametrize(
    "text, measured, status, said",
    [
        (None, None, 3, "no plimsoll.yaml"),
        ("services:\n  a:\n    runn: x\n", None, 3, "plimsoll.yaml:3:5"),
        ("{services: {a: {run: 's:A'}}}\n", None, 3, "flow mapping"),
        ("services: {}\n", None, 3, "no services"),
        ("services:\n  a:\n    url: http://127.0.0.1:1\n", None, 2, "is a url"),
        (CONFIGS["bento"], "{", 3, "m.json:1:"),
        (CONFIGS["bento"], '{"boots_s": [-1]}', 3, "boots_s[0]"),
        (CONFIGS["bento"], '{"host": {"main_bytes": 1e99}}', 3, "main_bytes"),
        (CONFIGS["bento"] + "    warmup: {requests: [{path: /x, body: '@/etc/plimsoll/gone.json'}]}\n", None, 3, "gone.json"),
    ],
)
def test_bad_input_names_its_place(tmp_path, text, measured, status, said):
    if text is not None:
        (tmp_path / "plimsoll.yaml").write_text(text)
    if measured is not None:
        (tmp_path / "m.json").write_text(measured)
    done = manifest(*(["--measured", "m.json"] if measured is not None else []), cwd=tmp_path, status=status)
    assert said in done.stderr, done.stderr
