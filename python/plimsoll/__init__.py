"""Plimsoll's side of a Python worker: launcher, records, control socket. Standard library only, Python 3.9 and later.

It runs inside the user's interpreter from PYTHONPATH; nothing of it has to be installed. Reading order: worker.py (the
entry), records.py (what a request leaves behind), page.py (where), control.py and describe.py (what main is told).
"""

__version__ = "0.1.0"
