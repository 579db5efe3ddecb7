"""The least an ASGI server can do for the same request: uvicorn, json, no framework."""

import json


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body = (await receive())["body"]
    text = json.dumps({"x": json.loads(body or b"{}").get("x", 1)}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})
