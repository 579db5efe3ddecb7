"""Plimsoll's side of a Python worker: launcher, records, control socket. Standard library only, Python 3.9 and later.

For users there is one name, watch(): see agent.py.

It runs inside the user's interpreter from PYTHONPATH; nothing of it has to be installed. Reading order: worker.py (the
entry), records.py (what a request leaves behind), page.py (where), control.py and describe.py (what main is told).
"""

__version__ = "0.1.0"
__all__ = ["watch"]


def __getattr__(name):
    """Nothing is imported until somebody wants it."""
    if name != "watch":
        raise AttributeError(f"module 'plimsoll' has no attribute {name!r}")
    from plimsoll.agent import watch

    return watch
