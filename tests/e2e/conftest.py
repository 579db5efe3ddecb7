"""Fixtures of the end-to-end tests. After every test nothing of it may be left: no process, zombie, socket or file."""

import pytest

from rig import dock, paths, tutorials
from rig.serving import serving


@pytest.fixture
def serve():
    """Starts servers: serve("service:Feature", "--workers", 2, service="feature").ready(). Ends and checks them."""
    with serving() as start:
        yield start


@pytest.fixture
def digits(serve):
    """The example as `make run` starts it: from its plimsoll.yaml. Warm and ready."""
    return serve(None, service=paths.digits).ready()


@pytest.fixture
def feature(serve):
    """The service with an endpoint for every behaviour, ready, with its decorator's two workers."""
    return serve("service:Feature").ready(workers=2)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Where dry docks keep the libraries that they write, so that a file's tests write them once."""
    return tmp_path_factory.mktemp("drydock-cache")


@pytest.fixture(scope="module")
def store(tmp_path_factory, cache):
    """A BentoML store with the two models that some tutorials' services load."""
    home = tmp_path_factory.mktemp("bentoml")
    done = dock.Dock(home, cache).run(dock.torch_python(), tutorials.folder / "save_model.py",
                                      env={"BENTOML_HOME": str(home), "BENTOML_DO_NOT_TRACK": "True"})
    assert done.returncode == 0, done.stderr
    return home
