import pytest
from harness import PYTHON, SERVICES, Worker, has_bentoml


def pytest_sessionstart(session):
    if not has_bentoml(PYTHON):
        pytest.exit(f"{PYTHON} has no BentoML: PLIMSOLL_TEST_PYTHON must name an interpreter that has one", 2)


@pytest.fixture
def start(tmp_path):
    """Starts workers that end with the test."""
    workers = []

    def start(service, ident=None, **more):
        worker = Worker(SERVICES / service, ident or "service", tmp_path / f"w{len(workers)}", **more)
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        worker.close()


@pytest.fixture(scope="module")
def feature(tmp_path_factory):
    """One worker of the feature service for all tests of a module that leave it as it was."""
    where = tmp_path_factory.mktemp("feature")
    worker = Worker(SERVICES / "feature", "service:Feature", where, go={"deploy": True},
                    env={"TRACE": str(where / "trace")})  # fmt: skip
    worker.trace = where / "trace"
    yield worker
    worker.close()
