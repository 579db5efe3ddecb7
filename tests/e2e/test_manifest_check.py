"""`plimsoll manifest --check`: the eight wrong Deployments with exactly their findings, the right ones with none."""

import json
import subprocess

import pytest

from rig.server import ROOT, clean_environment, paths

DATA = ROOT / "tests/data/kubernetes"
BAD = json.loads((DATA / "bad/expected.json").read_text())
TUTORIALS = json.loads((ROOT / "tests/data/tutorials/expected.json").read_text())
GOOD = ["one-gpu-bentoml", "vllm-4gpu", "digits-cpu", *(f"vllm-4gpu/alternatives/{n}.yaml" for n in ("scaledobject", "sidecar", "servingruntime"))]


def check(*words, given=None):
    return subprocess.run([paths.plimsoll, "manifest", "--check", *map(str, words)], capture_output=True, text=True, timeout=60,
                          input=given, env=clean_environment())


def document(*words, status=None, **more):
    done = check(*words, "--json", **more)
    assert done.stdout, done.stderr
    d = json.loads(done.stdout)
    assert d["v"] == 1 and d["kind"] == "manifest_check" and d["exit"] == done.returncode
    assert status is None or done.returncode == status
    return d


def findings(*words, **more):
    return [{k: f[k] for k in ("rule", "severity", "object", "path")} for f in document(*words, **more)["findings"]]


def rules(text):
    return [f["rule"] for f in document("-", given=text)["findings"]]


@pytest.mark.asan
@pytest.mark.parametrize("name", BAD)
def test_a_wrong_deployment_has_exactly_its_findings(name):
    assert len(BAD) == 8
    got = findings(DATA / "bad" / name, status=1)
    assert got == BAD[name]["findings"] and BAD[name]["primary"] in [f["rule"] for f in got]


@pytest.mark.parametrize("name", GOOD)
def test_a_right_one_has_none(name):
    assert findings(DATA / name, status=0) == []


@pytest.mark.parametrize("name", [n for n, e in TUTORIALS.items() if e.get("manifest_findings") is not None])
def test_the_tutorials_deployments(name):
    assert findings(ROOT / "tests/data/tutorials" / name) == TUTORIALS[name]["manifest_findings"]


def test_every_place_is_the_line_that_is_wrong():
    for name in BAD:
        lines = (DATA / "bad" / name).read_text().splitlines()
        for f in document(DATA / "bad" / name)["findings"]:
            last = f["path"].rsplit(".", 1)[-1].split("[")[0]
            line = lines[f["line"] - 1]
            # either the line has the key of the path, or what is missing is missing below that line
            assert last in line or last not in "\n".join(lines[f["line"] - 1 : f["line"] + 1]), (name, f)


def test_what_a_person_reads():
    done = check(DATA / "bad/07-impatient-liveness.yaml")
    assert done.returncode == 1 and done.stderr == ""
    first, remedy = done.stdout.splitlines()[:2]
    assert first.endswith(
        "bad/07-impatient-liveness.yaml:42:11 K004 error Deployment/classify spec.template.spec.containers[0].livenessProbe: "
        "liveness is stricter than readiness, or gives less than 30 s: 4 s until the container is killed"
    )
    assert remedy == "    -> period x failureThreshold of liveness at least that of readiness, and 30 s"
    assert done.stdout.splitlines()[-1] == "1 file, 1 Deployment: 4 errors, 1 warning"
    assert check(DATA / "digits-cpu").stdout == "7 files, 1 Deployment: 0 errors, 0 warnings\n"


def test_measured_values_decide_before_annotations(tmp_path):
    file = DATA / "one-gpu-bentoml/deployment.yaml"
    measured = {"boots_s": [100.0], "longest_request_s": 300, "queue_max_wait_s": 10, "worker_stop_s": 10, "workers": 1,
                "replace": "handover", "host": {"main_bytes": 1 << 26, "worker_steady_bytes": 9 << 30, "worker_load_peak_bytes": 9 << 30}}
    (tmp_path / "m.json").write_text(json.dumps(measured))
    d = document(file, "--measured", tmp_path / "m.json", status=1)
    assert [f["rule"] for f in d["findings"]] == ["K006", "K008", "K013"]
    assert "60 s, and the slowest boot took 100.0 s" in d["findings"][0]["text"]
    assert "60 s for preStop 5 + drain 310 + worker stop 10" in d["findings"][1]["text"]


DEPLOYMENT = (DATA / "one-gpu-bentoml/deployment.yaml").read_text()


def changed(*pairs):
    text = DEPLOYMENT
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


@pytest.mark.parametrize(
    "expected, pairs",
    [
        # probes
        ([], [("periodSeconds: 10\n            timeoutSeconds: 5\n            failureThreshold: 6", "periodSeconds: 5\n            timeoutSeconds: 5\n            failureThreshold: 6")]),
        (["K004"], [("periodSeconds: 10\n            timeoutSeconds: 5\n            failureThreshold: 6", "periodSeconds: 5\n            timeoutSeconds: 5\n            failureThreshold: 5")]),
        (["K002"], [("path: /livez, port: http", "path: /readyz, port: 3000")]),
        ([], [("path: /livez, port: http", "path: /readyz, port: admin")]),
        (["K005"], [("timeoutSeconds: 3", "timeoutSeconds: 1")]),
        (["K003"], [("periodSeconds: 2", "periodSeconds: 2\n            initialDelaySeconds: 1")]),
        (["K006"], [("failureThreshold: 60 ", "failureThreshold: 57 ")]),
        (["K029"], [("progressDeadlineSeconds: 600 ", "progressDeadlineSeconds: 59 ")]),
        # end
        (["K007"], [("          lifecycle:\n            preStop:\n              sleep: { seconds: 5 }\n", "")]),
        ([], [("          lifecycle:\n            preStop:\n              sleep: { seconds: 5 }\n", ""), ('command: ["/usr/bin/plimsoll", "serve"', 'command: ["/usr/bin/plimsoll", "serve", "--drain-delay", "5s"')]),
        (["K008"], [("terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 54")]),
        ([], [("terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 55")]),
        (["K008"], [("sleep: { seconds: 5 }", "exec: { command: [sleep, \"30\"] }")]),
        (["K028"], [('command: ["/usr/bin/plimsoll",', 'command: ["/bin/sh", "-c", "bentoml serve",')]),
        (["K028"], [('command: ["/usr/bin/plimsoll", "serve", "--config", "/etc/plimsoll/plimsoll.yaml"]', 'command: [bash, -ec]\n          args: ["prepare && bentoml serve"]')]),
        ([], [('command: ["/usr/bin/plimsoll",', 'command: ["sh", "-c", "prepare && exec bentoml serve",')]),
        # GPU and memory
        (["K009"], [("    type: Recreate ", "    type: RollingUpdate ")]),
        (["K009"], [("  strategy:\n    type: Recreate ", "  x: ")]),
        ([], [("    type: Recreate ", "    type: RollingUpdate\n    rollingUpdate: { maxUnavailable: 1 } ")]),
        (["K009"], [("    type: Recreate ", "    type: RollingUpdate\n    rollingUpdate: { maxUnavailable: 60% } ")]),
        (["K011"], [("memory: 5632Mi\n              ephemeral", "memory: 5631Mi\n              ephemeral")]),
        ([], [("memory: 5632Mi\n              ephemeral", "memory: 5905580032\n              ephemeral")]),
        ([], [("memory: 5632Mi\n              ephemeral", "memory: 5.5Gi\n              ephemeral")]),
        (["K014"], [("cpu: \"2\"", "cpu: \"2\"\n              nvidia.com/gpu: 2")]),
        ([], [("cpu: \"2\"", "cpu: \"2\"\n              nvidia.com/gpu: 1")]),
        (["K019"], [("nvidia.com/gpu: \"1\"", "nvidia.com/gpu: \"2\"")]),
        (["K020"], [("emptyDir: { sizeLimit: 2Gi }", "emptyDir: { medium: Memory }")]),
        # image, rights, downloads
        (["K016"], [("classify:1.4.2\n          imagePullPolicy: IfNotPresent", "classify\n          imagePullPolicy: Always")]),
        (["K015"], [("classify:1.4.2", "classify:latest")]),
        ([], [("registry.example/classify:1.4.2", "registry.example:5000/classify@sha256:00")]),
        (["K016"], [("registry.example/classify:1.4.2\n          imagePullPolicy: IfNotPresent", "registry.example:5000/classify")]),
        (["K021"], [("runAsNonRoot: true", "runAsNonRoot: false")]),
        (["K032"], [("allowPrivilegeEscalation: false", "privileged: true")]),
        (["K021"], [("allowPrivilegeEscalation: false", "runAsNonRoot: false")]),
        (["K018"], [("HF_HUB_OFFLINE", "A"), ("TRANSFORMERS_OFFLINE", "B")]),
        (["K018"], [("      containers:\n", "      initContainers:\n        - { name: get, image: 'x:1', command: [wget, 'http://h/m'] }\n      containers:\n")]),
        (["K017"], [("configMap:\n            name: classify-plimsoll", "hostPath: { path: /models }")]),
        (["K030"], [("enableServiceLinks: false", "enableServiceLinks: true")]),
    ],
)  # fmt: skip
def test_one_change_is_one_finding(expected, pairs):
    assert rules(changed(*pairs)) == expected


def test_a_comment_silences_its_line():
    text = changed(("timeoutSeconds: 3", "timeoutSeconds: 1 # plimsoll: ignore[K003, K005]"))
    d = document("-", given=text)
    assert d["findings"] == [] and [f["rule"] for f in d["silenced"]] == ["K005"]
    assert rules(text.replace("K003, K005", "K003")) == ["K005"]


def test_lists_anchors_and_several_documents_are_read():
    inner = "\n".join("    " + line for line in DEPLOYMENT.splitlines())
    assert rules("apiVersion: v1\nkind: List\nitems:\n  -\n" + inner.replace("enableServiceLinks: false", "x: 1") + "\n") == ["K030"]
    scaled = DEPLOYMENT + "---\n" + (DATA / "digits-cpu/hpa.yaml").read_text().replace("digits", "classify").replace("minReplicas: 2", "minReplicas: 0")
    assert rules(scaled) == ["K010", "K022"]
    assert rules(scaled.replace("kind: Deployment\n    name", "kind: StatefulSet\n    name")) == ["K022"]
    shared = DEPLOYMENT.replace("readinessProbe:\n            httpGet: { path: /readyz, port: http }", "readinessProbe: &p\n            httpGet: { path: /readyz, port: http }")
    live = shared[: shared.index("          livenessProbe:")] + "          livenessProbe:\n            <<: *p\n            failureThreshold: 15\n" + shared[shared.index("          lifecycle:") :]
    assert rules(live) == ["K002"]


@pytest.mark.parametrize(
    "text, said",
    [
        ("a: [1\nb: 2\n", "-:2:"),
        ("a: *b\n", "-:1:4: an alias of an anchor that is not there"),
        ("a: &b [*b]\n", "-:1:8: an anchor that holds itself"),
        ("[" * 70 + "]" * 70, "-:1:65: nested more than 64 deep"),
        ('a: "\\0"\n', "a zero byte"),
        ("\tx: 1\n", "-:1:"),
    ],
)
def test_what_is_no_yaml_names_its_place(text, said):
    done = check("-", given=text)
    assert done.returncode == 3 and said in done.stderr, done.stderr
    assert json.loads(check("-", "--json", given=text).stderr)["error"]["code"] == "config"


def test_what_is_not_there(tmp_path):
    assert check(tmp_path / "gone.yaml").returncode == 5
    assert check().returncode == 2
    (tmp_path / "service.yaml").write_text("kind: Service\n")
    assert check(tmp_path).stdout == "1 file, 0 Deployments: 0 errors, 0 warnings\n"
    for text in ("kind: Deployment\n", "kind: Deployment\nspec: 3\n", "kind: Deployment\nspec: {template: {spec: {containers: [1, [], {}]}}}\n", "[]\n", "", "1\n", "kind: [Deployment]\n", "kind: PodDisruptionBudget\n", "kind: ScaledObject\nspec: {triggers: {}}\n"):
        assert check("-", given=text).returncode in (0, 1)
