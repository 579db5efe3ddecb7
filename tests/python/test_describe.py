"""What main is told about a service."""

import json
import os
import subprocess

import pytest
from harness import PACKAGE, PYTHON, SERVICES, bentoml_version

from plimsoll import bento, describe


def routes(worker):
    return {r["name"]: r for r in worker.description["routes"]}


def run(ident, folder, *args, **env):
    """python -m plimsoll.describe, as `plimsoll config show` runs it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PLIMSOLL", "BENTOML", "PYTHON"))}
    return subprocess.run([PYTHON, "-m", "plimsoll.describe", ident, *args], cwd=folder, capture_output=True, text=True,
                          env={**kept, "PYTHONPATH": str(PACKAGE), "PYTHONDONTWRITEBYTECODE": "1", **env})  # fmt: skip


# --- as the worker tells it


def test_the_service_and_its_surroundings(feature):
    d = feature.description
    assert d["name"] == "feature"
    assert d["bentoml"] == bentoml_version(PYTHON)
    assert d["is_ready"] is True
    assert (d["deployment_hooks"], d["tasks"], d["path_prefix"], d["degraded"]) == (1, 1, "", [])
    assert d["dependencies"] == [{"name": "Pre", "separate": True, "workers": 1, "rank": 1}]
    assert d["wants_deployment"] is True


def test_settings_of_the_decorator_are_in_our_words(feature):
    assert feature.description["settings"] == {
        "decorator": {
            "traffic.timeout": "30s", "traffic.max_concurrency": "64", "workers": "2", "threads": "4",
            "metrics.namespace": "shop", "http.port": "4100", "cors.enabled": "on",
            "cors.allow_origins": "https://a.example,*", "cors.max_age": "600s",
        },
        "bentoml_config": {},
    }  # fmt: skip


@pytest.mark.parametrize(
    "name, kind, batchable",
    [("text", "sync", False), ("sleeps", "async", False), ("stream", "stream", False), ("stream_sync", "stream", False),
     ("batch", "sync", True), ("job", "task", False)],
)  # fmt: skip
def test_kinds_of_routes(feature, name, kind, batchable):
    r = routes(feature)[name]
    assert (r["path"], r["kind"], r["batchable"]) == (f"/{name}", kind, batchable)


@pytest.mark.parametrize(
    "name, body",
    [("text", {"name": "x", "n": None}), ("prompt", {"p": {"text": "hello", "max_tokens": 16}}), ("root", {"score": 0.5}),
     ("sleeps", {"s": 0.0}), ("needs", None), ("size", None), ("array", None), ("gated", None), ("no_input", None),
     ("batch", None), ("job", None)],
)  # fmt: skip
def test_examples_are_made_of_what_the_author_wrote(feature, name, body):
    r = routes(feature)[name]
    assert json.loads(r.get("example", "null")) == body


def test_an_example_is_a_request_that_works(feature):
    for name in ("text", "prompt", "root", "sleeps", "stream"):
        status, _, body, _ = feature.post(f"/{name}", routes(feature)[name]["example"])
        assert status == 200, (name, body)


def test_an_upload_says_its_content_type(feature):
    assert routes(feature)["size"]["content_type"] == "multipart/form-data"


# --- the verb


def test_the_verb_prints_json_only_and_makes_no_instance(tmp_path):
    trace = tmp_path / "trace"
    out = run("service:Feature", SERVICES / "feature", TRACE=str(trace), BENTOML_HOME=str(tmp_path / "home"))
    assert out.returncode == 0, out.stderr
    assert json.loads(out.stdout)["describe"]["name"] == "feature"
    assert out.stdout.count("\n") == 1
    assert "the module talks" in out.stderr
    assert trace.read_text() == "import\n"


def test_the_verb_takes_a_folder(tmp_path):
    out = run("service:BadInit", "/", "--working-dir", str(SERVICES / "bad_init"), BENTOML_HOME=str(tmp_path))
    assert json.loads(out.stdout)["describe"]["name"] == "BadInit"


@pytest.mark.parametrize(
    "ident, folder, sentence",
    [
        ("service:Nope", "feature", 'cannot load service:Nope: Attribute "Nope" not found in module "service".'),
        ("nothing:X", "feature", "cannot load nothing:X:"),
        ("service", "bad_import", "cannot load service: the model file is missing"),
    ],
)
def test_what_cannot_be_loaded_is_told_before_bentoml_s_own_words(tmp_path, ident, folder, sentence):
    out = run(ident, SERVICES / folder, BENTOML_HOME=str(tmp_path))
    assert out.returncode == 1 and out.stdout == ""
    assert any(line.startswith(sentence) for line in out.stderr.splitlines()), out.stderr
    assert out.stderr.index(sentence) < out.stderr.index("Traceback")


def test_a_legacy_service_is_refused(tmp_path):
    out = run("service:svc", SERVICES / "legacy", BENTOML_HOME=str(tmp_path))
    assert out.returncode == 1 and "Traceback" not in out.stderr
    assert "service:svc is a legacy service" in out.stderr


# --- BentoML's own configuration


def settings_with(tmp_path, **env):
    out = run("service:Feature", SERVICES / "feature", BENTOML_HOME=str(tmp_path / "home"), **env)
    assert out.returncode == 0, out.stderr
    return json.loads(out.stdout)["describe"]["settings"]["bentoml_config"]


def test_a_nameless_setting_is_a_default_and_a_named_one_wins(tmp_path):
    config = tmp_path / "bentoml.yaml"
    config.write_text(
        "services:\n"
        "  traffic: {timeout: 9}\n"  # the decorator beats it
        "  http: {host: 127.0.0.1}\n"
        "  logging: {access: {enabled: false, skip_paths: [/a, /b]}}\n"
        "  feature:\n"
        "    traffic: {max_concurrency: 3}\n"
    )
    assert settings_with(tmp_path, BENTOML_CONFIG=str(config)) == {
        "http.host": "127.0.0.1", "logs.access": "off", "logs.access_skip": "/a,/b", "traffic.max_concurrency": "3",
    }  # fmt: skip


def test_overrides_beat_the_file_and_options_beat_both(tmp_path):
    config = tmp_path / "bentoml.yaml"
    config.write_text("services: {feature: {traffic: {timeout: 1, max_concurrency: 1}, threads: 1}}\n")
    overrides = {"services": {"feature": {"traffic": {"timeout": 2.5}, "threads": 2}}}
    seen = settings_with(tmp_path, BENTOML_CONFIG=str(config), BENTOML_CONFIG_OVERRIDES=json.dumps(overrides),
                         BENTOML_CONFIG_OPTIONS="services.feature.threads=3")  # fmt: skip
    assert seen == {"traffic.timeout": "2500ms", "traffic.max_concurrency": "1", "threads": "3"}


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"services": 3}', '{"services": {"feature": 3}}'])
def test_configuration_that_cannot_be_read_is_left_to_bentoml(monkeypatch, text):
    monkeypatch.setenv("BENTOML_CONFIG_OVERRIDES", text)
    monkeypatch.delenv("BENTOML_CONFIG", raising=False)
    assert isinstance(describe.bentoml_services(), dict)


# --- pieces


@pytest.mark.parametrize(
    "value, form, text",
    [(30, "seconds", "30s"), (0.5, "seconds", "500ms"), (60.0, "seconds", "60s"), (True, "switch", "on"),
     (False, "switch", "off"), (["a", "b"], "list", "a,b"), ("*", "list", "*"), ("cpu_count", "plain", "cpu_count")],
)  # fmt: skip
def test_values_are_written_as_in_our_file(value, form, text):
    assert describe.written(value, form) == text


def test_a_value_of_the_wrong_kind_is_left_to_bentoml():
    assert describe.in_our_words({"traffic": {"timeout": "soon"}, "workers": 2}) == {"workers": "2"}


@pytest.mark.parametrize(
    "schema",
    [{"type": "string"}, {"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "array", "items": {"default": 1}},
     {"$ref": "#/$defs/Missing"}, {"enum": ["a", "b"]},
     {"type": "object", "properties": {"a": {"default": 1}, "b": {}}, "required": ["b"]}],
)  # fmt: skip
def test_nothing_is_invented(schema):
    with pytest.raises(describe.NoExample):
        describe.example_of(schema, {})


def test_examples_come_before_defaults_and_reach_into_models():
    defs = {"P": {"type": "object", "properties": {"a": {"examples": [1]}, "b": {}, "c": {"const": "k"}}, "required": ["a"]}}
    schema = {"type": "object", "properties": {"p": {"$ref": "#/$defs/P"}, "q": {"default": 1, "examples": [2]}}}
    assert describe.example_of(schema, defs) == {"p": {"a": 1, "c": "k"}, "q": 2}


def test_a_model_that_holds_itself_gives_no_example():
    defs = {"P": {"type": "object", "properties": {"next": {"$ref": "#/$defs/P"}}, "required": ["next"]}}

    class Spec:
        @staticmethod
        def mime_type():
            return "application/json"

        @staticmethod
        def model_json_schema():
            return {"$ref": "#/$defs/P", "$defs": defs}

    class Method:
        input_spec = Spec

    assert describe.example(Method) is None


def test_merging_goes_key_by_key():
    assert bento.merged({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 9}, "d": {"e": 1}}) == {
        "a": {"b": 9, "c": 2}, "d": {"e": 1},
    }  # fmt: skip
