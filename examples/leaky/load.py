"""Asks again and again: load.py [REQUESTS] [ROUTE] [URL]. Needs nothing but Python; tells how they were answered.

Fifty a second at most: how soon the card is full depends on that, and not on the machine.
"""

import collections
import json
import sys
import time
import urllib.error
import urllib.request

REQUESTS, ROUTE, URL = [*sys.argv[1:], *["1000", "/predict", "http://127.0.0.1:3000"][len(sys.argv) - 1:]]


def ask():
    body = json.dumps({"length": 64}).encode()
    request = urllib.request.Request(URL + ROUTE, body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return "no answer"


def paced(requests, a_second=50):
    start = time.monotonic()
    for i in range(requests):
        time.sleep(max(0.0, start + i / a_second - time.monotonic()))
        yield ask()


print(dict(collections.Counter(paced(int(REQUESTS)))))
