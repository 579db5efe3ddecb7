"""Several services on one port, by path and by Host."""

from rig.server import clean_environment, paths, run_plimsoll

FILE = """
services:
  first:
    run: service:First
    route: {path: /first}
  second:
    run: service:Second
    route: {path: /second, host: two.example}
    required: false
"""
SERVICE = """
import bentoml

@bentoml.service(path_prefix="/first")
class First:
    @bentoml.api
    def who(self, x: int = 1) -> str:
        return "first"

@bentoml.service(path_prefix="/second")
class Second:
    @bentoml.api
    def who(self, x: int = 1) -> str:
        return "second"
"""


def test_each_request_goes_to_its_service_and_the_rest_is_404(serve, tmp_path):
    (tmp_path / "service.py").write_text(SERVICE)
    (tmp_path / "plimsoll.yaml").write_text(FILE)
    s = serve(None, "-c", tmp_path / "plimsoll.yaml", "--services.first.working_dir", tmp_path,
              "--services.second.working_dir", tmp_path, python=None,
              env={"VIRTUAL_ENV": str(paths.python.parent.parent)}).ready(workers=2)
    assert s.post("/first/who").body == b"first"
    assert s.post("/second/who", headers={"Host": "two.example"}).body == b"second"
    assert s.post("/second/who").status == 404 and s.post("/firstly/who").status == 404
    assert s.get("/readyz/first").status == 200 and s.get("/livez/second").status == 200
    names = [service["name"] for service in s.status()["services"]]
    assert names == ["first", "second"]
    text = s.get("/metrics").text()
    assert 'plimsoll_ready{service="first"} 1' in text and 'plimsoll_ready{service="second"} 1' in text


def test_routes_that_overlap_are_an_error_that_names_both_lines(tmp_path):
    file = tmp_path / "plimsoll.yaml"
    file.write_text("services:\n  a: {run: s:A, route: {path: /x}}\n  b: {run: s:B, route: {path: /x}}\n")
    done = run_plimsoll("serve", "--check", "-c", file, env=clean_environment())
    assert done.returncode == 3 and ":2:" in done.stderr and ":3:" in done.stderr, done.stderr
