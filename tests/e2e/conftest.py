"""Fixtures of the end-to-end tests. After every test nothing of it may be left: no process, zombie, socket or file."""

import pytest

from rig import paths
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
