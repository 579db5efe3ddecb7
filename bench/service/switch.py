"""Switches the accounting of memory, for whoever measures what it costs."""

import gc
import sys


def switch(on):
    records = sys.modules.get("plimsoll.records")  # not under `bentoml serve`
    for found in gc.get_objects() if records else ():
        if isinstance(found, records.Recorder):
            found.memory.enabled = on
