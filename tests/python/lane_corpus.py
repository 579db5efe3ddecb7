"""The requests of the differential test of the fast lane, for services/lane_corpus: 555 of every kind."""

import json

CASES = []


def add(path, body=None, method="POST", headers=None, **extra):
    case = {
        "id": len(CASES),
        "method": method,
        "path": path,
        "headers": headers or {"content-type": "application/json"},
    }
    if body is not None:
        case["body"] = body if isinstance(body, str) else json.dumps(body)
    case.update(extra)
    CASES.append(case)


for p in ("/ints", "/aints"):
    for body in (
        {"x": 1},
        {"x": -5},
        {"x": "7"},
        {"x": 1.0},
        {"x": 1.5},
        {"x": True},
        {"x": None},
        {"x": "a"},
        {"x": []},
        {"y": 1},
        {"x": 1, "y": 2},
        {},
        [],
        None,
        1,
        "s",
    ):
        add(p, body if body is not None else "null")
    for raw in (
        "",
        " ",
        "{",
        "{}}",
        '{"x":1}x',
        '{"x":1,}',
        "{'x':1}",
        '{"x":NaN}',
        '{"x":Infinity}',
        '{"x":1e400}',
        '{"x":1e5}',
        '{"x":123456789012345678901234567890}',
        '{"x":1,"x":2}',
        "\ufeff{}",
        '{"x":\t1}',
        '{"\\u0078":3}',
        '{"x":1}\n\n',
        '{"x":0001}',
        '{"x":-}',
        "tru",
        '{"x":"\\ud800"}',
        '{"x": 1 /* c */}',
    ):
        add(p, raw)
    add(p, None)
for p in ("/text", "/atext"):
    for s in ("", "abc", "é", "日本語", "\U0001f600", "\u0000", 'q"\\/\n\r\t', "x" * 5000):
        add(p, {"s": s})
    for raw in (
        '{"s":"\\ud83d\\ude00"}',
        '{"s":"\\ud83d"}',
        '{"s":5}',
        '{"s":null}',
        "{}",
        '{"s":"a\nb"}',
        '{"s":["a"]}',
        '{"s":"\\u00e9"}',
    ):
        add(p, raw)
for raw in (
    '{"x":1}',
    '{"x":1.25}',
    '{"x":"2.5"}',
    '{"x":NaN}',
    '{"x":Infinity}',
    '{"x":-Infinity}',
    '{"x":1e308}',
    '{"x":"nan"}',
    '{"x":0.1}',
    '{"x":1e-7}',
    '{"x":true}',
    '{"x":-0.0}',
):
    add("/floats", raw)
for v in (True, False, 1, 0, "yes", "off", "x", 2, None):
    add("/bools", {"flag": v})
for p in ("/anything", "/aanything"):
    for raw in (
        '{"v":1}',
        '{"v":null}',
        '{"v":"text"}',
        '{"v":{"a":[1,2,{"b":null}]}}',
        '{"v":NaN}',
        '{"v":123456789012345678901234567890}',
        '{"v":1.0}',
        '{"v":""}',
        '{"v":[]}',
        '{"v":"\\u00e9\\u65e5"}',
        "{}",
        '{"v":true}',
        '{"v":1e22}',
        '{"v":-Infinity}',
    ):
        add(p, raw)
for p in ("/nothing", "/no_args"):
    add(p, {})
    add(p, {"extra": 1})
    add(p, "[1]")
    add(p, None)
for n in (0, 3, 256):
    add("/raw_bytes", {"n": n})
add("/bytes_in", {"b": "abc"})
add("/bytes_in", {"b": "é"})
add("/bytes_in", {"b": 1})
kinds = "nan inf ninf big bignest set tuple decimal uuid datetime date timedelta enum dataclass model models npfloat npint nparray npdict bytes badbytes bytesdict badbytesdict surrogatedict unicode string empty intkeys tuplekeys lambda object ellipsis complex nested range gen type exception absent".split()
for k in kinds:
    add("/special", {"kind": k})
add("/special", {"kind": "surrogate"})
for k in ("nan", "inf", "str", "int", "none"):
    add("/typed_special", {"kind": k})
for k in ("nan", "list", "np", "model", "str", "dt", "pairs"):
    add("/dict_special", {"kind": k})
for n in (0, 1, 7):
    add("/list_out", {"n": n})
add("/wrong_output", {})
add("/coerced_output", {})
for p in ("/order", "/aorder"):
    for o in (
        {"id": 1},
        {"id": 1, "points": [{"x": 1}, {"x": 2, "y": 3, "label": "ü"}]},
        {"id": 1, "when": "2024-05-06T07:08:09Z"},
        {"id": 1, "when": 1700000000},
        {"id": 1, "when": "soon"},
        {"id": 1, "colour": "blue"},
        {"id": 1, "colour": "green"},
        {"id": 1, "tags": {"a": 1, "b": "2"}},
        {"id": 1, "extra": True},
        {"points": []},
        {"id": 1, "points": [{"y": 1}]},
        {"id": 1, "points": "no"},
        None,
        [],
    ):
        add(p, {"order": o})
    add(p, {"id": 1})
    add(p, {})
add("/points", {"points": [{"x": 1}, {"x": 2}]})
add("/points", {"points": []})
add("/points", {"points": [{"x": "a"}, {}]})
add("/model_as_dict", {"x": 1})
add("/other_model", {"x": 1})
for text in ("abc", "a1", "é"):
    add("/shouting", {"m": {"text": text}})
    add("/root_model_out", {"text": text})
add("/loose", {"m": {"a": 2, "b": [1], "c": {"d": None}}})
add("/loose", {"m": {}})
add("/aliased", {"m": {"outerName": 4}})
add("/aliased", {"m": {"inner": 4}})
add("/aliased", {"m": {}})
for body in ({"id": 5}, {"id": "5"}, {}, {"id": 1, "no": 1}, []):
    add("/root_model", body)
for raw in ("abc", '"abc"', "é", "", "123", "{}", "a\nb"):
    add("/root_str", raw)
for raw in ("41", '"41"', "4.5", "null", "", "x", "[1]", "{}", "99999999999999999999", "NaN"):
    add("/root_int", raw)
for raw in ("[1,2,3]", "[]", '["1"]', '["a"]', "{}", "", "1", "[1,", "[1e400]"):
    add("/root_list", raw)
for raw in ('{"a":1}', "{}", "", "[]", '{"a":NaN}', '{"é":"\\ud800"}', '{"a":"\\u65e5"}'):
    add("/root_dict", raw)
for raw in ("1", "null", '"s"', '{"a":[1]}', "", "NaN", "\ufeff1", "[1,2"):
    add("/root_any", raw)
for raw in ("1", "", "null", "x"):
    add("/root_default", raw)
for raw in ("[1,2,3]", "[[1,2],[3,4]]", "[[1],[2,3]]", '"a"', "1", "{}", ""):
    add("/root_array", raw)
for body in ({}, {"a": 1}, {"a": None, "b": None}, {"a": "x"}, {"b": 1}):
    add("/optional", body)
for v in (1, "1", "a", [1, 2], ["a"], None, 1.0, 1.5, True):
    add("/union", {"v": v})
for body in ({"c": "red"}, {"c": "RED"}, {"c": "blue", "m": "slow"}, {"c": "red", "m": "medium"}, {}):
    add("/enums", body)
add("/times", {"d": "2024-01-02", "dt": "2024-01-02T03:04:05"})
add("/times", {"d": "2024-01-02T00:00:00", "dt": 0, "td": "PT1H"})
add("/times", {"d": "x", "dt": "y", "td": "z"})
add("/times", {"d": 19000, "dt": "2024-01-02T03:04:05+09:00", "td": 5})
add("/time_out", {})
add("/time_out", {"y": 0})
add("/enum_out", {})
add("/uuid_inout", {"u": "12345678-1234-5678-1234-567812345678"})
add("/uuid_inout", {"u": "nope"})
for d in ("1.10", 1, 1.5, "x", "1e400", "NaN"):
    add("/decimal_inout", {"d": d})
add("/optional_out", {"some": True})
add("/optional_out", {"some": False})
for k in ("i", "s", "d"):
    add("/union_out", {"kind": k})
for body in ({"n": 1}, {"n": 0}, {"n": 11}, {"n": 5, "s": "a"}, {"n": 5, "s": "abcde"}, {"n": 0, "s": ""}):
    add("/limits", body)
for body in ({}, {"n": 3}, {"n": 0}, {"v": [1]}, {"v": None}):
    add("/field_defaults", body)
for body in (
    {"a": 1},
    {"a": 1, "kwargs": {"b": 2}},
    {"a": 1, "b": 2},
    {"kwargs": {}},
    {"a": 1, "kwargs": {"a": 2}},
    {"a": 1, "kwargs": [1]},
):
    add("/var_kwargs", body)
for body in ({"args": [1, 2]}, {"args": []}, {}, {"args": ["a"]}):
    add("/var_args", body)
for body in ({"a": 3}, {"a": 3, "b": 4}, {"b": 4}):
    add("/kw_only", body)
for v in ([1, "a"], [1], ["a", 1], [1, "a", 2]):
    add("/tuple_in", {"v": v})
add("/set_in", {"v": [1, 1, 2]})
for a in ([1, 2], [[1, 2], [3, 4]], [1.5], [], "abc", None, [[1], [2, 3]], 5):
    add("/array", {"a": a})
for a in ([[1, 2], [3, 4]], [1, 2, 3, 4], [1, 2, 3], [[1, "a"]]):
    add("/typed_array", {"a": a})
add("/array_as_list", {})
for p in (
    "/html",
    "/csv",
    "/aresponse",
    "/streaming_response",
    "/hidden_generator",
    "/hidden_async_generator",
    "/quiet_context",
    "/quiet_header",
    "/own_id",
    "/aown_id",
    "/variables",
    "/avariables",
    "/variables",
    "/avariables",
    "/thread",
    "/runs_asyncio",
    "/from_thread",
    "/task_scope",
    "/count",
):
    add(p, {})
for s in (200, 201, 404, 500):
    add("/response", {"status": s})
for n in (0, 3):
    add("/stream", {"n": n})
    add("/astream", {"n": n})
add("/batched", {"v": [1, 2]})
add("/with_ctx?a=1&b=%20", {"n": 2}, headers={"content-type": "application/json", "user-agent": "diff/1"})
add("/with_ctx", {"n": "x"})
for s in (418, 200, 204):
    add("/sets_ctx", {"status": s})
add("/actx", {})
for k in "value key runtime assertion stop stopasync memory timeout oserror recursion invalid notfound teapot denied unavailable bento http group surrogate validation absent".split():
    add("/fails", {"kind": k})
for k in "value invalid stop timeout unavailable cancelled".split():
    add("/afails", {"kind": k})
add("/count", {})
for n in (1000, 70000, 300000):
    add("/size", {"s": "y" * n})
add("/size", {"s": "y" * 200000}, pieces=4096)
add("/ints", {"x": 3}, pieces=1)
add("/ints", {"x": 3}, pieces=40)
add("/big", {})
add("/big", {"n": 3000000})
add("/big_list", {})
add("/v1/renamed", {"x": 4})
add("/renamed", {"x": 4})

# HTTP level
J = "application/json"
for m in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "post"):
    add("/ints", {"x": 1} if m not in ("GET", "HEAD") else None, method=m)
for path in (
    "/ints/",
    "//ints",
    "/ints?x=2",
    "/ints?",
    "/%69nts",
    "/INTS",
    "/nope",
    "/",
    "/livez",
    "/readyz",
    "/ints;a=1",
    "/ints#f",
    "http://x/ints",
    "/ints?x=%zz",
):
    add(path, {"x": 9})
for path in ("/livez", "/healthz", "/readyz", "/schema.json", "/docs.json", "/nope"):
    add(path, None, method="GET")
for ct in (
    "application/json; charset=utf-8",
    "APPLICATION/JSON",
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=b",
    "multipart/form-data",
    "application/vnd.bentoml+pickle",
    "application/octet-stream",
    "",
    "application/json;",
    " application/json",
    "application/json, text/plain",
    "image/png",
):
    add("/ints", {"x": 6}, headers={"content-type": ct})
add("/ints", "x=8", headers={"content-type": "application/x-www-form-urlencoded"})
add(
    "/ints",
    '--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n12\r\n--b--\r\n',
    headers={"content-type": "multipart/form-data; boundary=b"},
)
add("/ints", {"x": 6}, headers={})
add("/ints", {"x": 6}, headers={"Content-Type": J, "X-Odd": "\u00e9"})
add("/ints", {"x": 6}, headers={"content-type": J, "connection": "close"})
add("/ints", {"x": 6}, headers={"content-type": J, "connection": "keep-alive"})
add("/ints", {"x": 6}, headers={"content-type": J, "expect": "100-continue"})
add("/ints", {"x": 6}, headers={"content-type": J, "accept-encoding": "gzip"})
add("/ints", {"x": 6}, headers={"content-type": J, "content-encoding": "gzip"})
add("/ints", {"x": 6}, headers={"content-type": J, "transfer-encoding": "chunked"}, chunked=[3, 100])
add("/size", {"s": "z" * 100000}, headers={"content-type": J, "transfer-encoding": "chunked"}, chunked=[1000])
add("/ints", {"x": 6}, headers={"content-type": J, "origin": "http://elsewhere"})
tp = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"
add("/parent_trace", {}, headers={"content-type": J, "traceparent": tp + "01"})
add("/parent_trace", {}, headers={"content-type": J, "traceparent": tp + "00", "tracestate": "a=b"})
add("/parent_trace", {}, headers={"content-type": J, "Traceparent": tp + "01"})
add("/ints", {"x": 6}, version="1.0")
add("/ints", {"x": 6}, twice=True)
add("/aints", {"x": 6}, twice=True)
add("/fails", {"kind": "value"}, twice=True)
add("/count", {})
for p in ("/ints", "/aints", "/order", "/stream", "/ints"):  # ways alternate on one connection
    add(p, {"x": 2, "order": {"id": 3}})
