ENTRIES = {}


def put(key, value):
    ENTRIES[key] = value
