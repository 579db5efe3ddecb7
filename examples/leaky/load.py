"""Asks again and again: load.py [REQUESTS] [ROUTE] [URL]. Needs nothing but Python; tells how they were answered."""

import collections
import json
import sys
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


print(dict(collections.Counter(ask() for _ in range(int(REQUESTS)))))
