import signal

import pytest
from keeper_rig import KEEPER, Keeper

LIMIT_S = 90


@pytest.fixture(autouse=True)
def watchdog():
    """No test may hang: the alarm raises in the test, and its keeper is ended by the fixture below."""
    def too_long(_number, _frame):
        raise TimeoutError(f"the test took more than {LIMIT_S} s")
    old = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)


@pytest.fixture
def keeper():
    """Makes keepers; whatever happens, they and theirs are ended afterwards."""
    made = []
    assert KEEPER.exists(), f"{KEEPER} is not built"

    def make(*options, **more):
        made.append(Keeper(*options, **more))
        return made[-1]
    yield make
    for one in made:
        one.clean()
