"""What vLLM 0.32 says, to the byte, as it was recorded (tests/data/vllm): replies, errors, events, metrics.

A word is a token here, a chat template five; every token that is made is " 754". test_fake_vllm.py holds it against the recording.
"""

import itertools
import json
import os
import re
import time
from pathlib import Path

MODEL, MAX_LEN, FINGERPRINT = "tiny", 2048, "vllm-0.32.0-dd90a080"
METRICS = Path(__file__).resolve().parents[2] / "data/vllm/metrics.txt"
DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
STOPPING = "cannot schedule new futures after shutdown"
BUSY = "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."
NOT_FOUND = (404, {"detail": "Not Found"})
_count = itertools.count(1)
# What its start said of its cache, when that was not the recorded one: tokens, and nothing of bytes.
cache = {}
# Names that it answers to (--served-model-name); the first one is what it calls itself.
served = [MODEL]


class Refused(Exception):
    """(status, document)"""

    def __init__(self, status, message, kind, param=None):
        super().__init__(message)
        self.answer = status, {"error": {"message": message, "type": kind, "param": param, "code": status}}


def text(document):
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def died():
    """In a stream it stands with spaces, as recorded."""
    return json.dumps(Refused(500, DEAD, "InternalServerError").answer[1])


def parse(body, content_type):
    if "application/json" not in (content_type or ""):
        raise Refused(400, "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed", "Bad Request")
    try:
        return json.loads(body)
    except json.JSONDecodeError as e:
        where = f"body.{e.pos}"
        raise Refused(400, f"1 validation error:\n  {{'type': 'json_invalid', 'loc': '{where}', 'msg': 'JSON decode error', "
                           f"'input': '<dict of 0 items>', 'ctx': {{'error': \"{e.msg}\"}}}}", "Bad Request", where) from None


def bad(message, param, value):
    return Refused(400, f"{message} (parameter={param}, value={value})", "BadRequestError", param)


def prompt_tokens(asked, chat):
    if chat:
        messages = asked.get("messages")
        if not isinstance(messages, list):
            raise Refused(400, "1 validation error:\n  {'type': 'list_type', 'loc': 'body.messages', 'msg': 'Input should be a "
                               f"valid list', 'input': '{messages}'}}", "Bad Request", "body.messages")
        return 5 + sum(len(str(m.get("content", "")).split()) for m in messages)
    prompt = asked.get("prompt")
    if not prompt:
        raise Refused(400, "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)", "BadRequestError",
                      "prompt")
    return len(prompt) if isinstance(prompt, list) else len(prompt.split())


class Generation:
    """One request that is taken. Raises Refused for one that is not."""

    def __init__(self, asked, chat, max_len=MAX_LEN, request_id=None):
        if asked.get("model", served[0]) not in served:
            raise Refused(404, f"The model `{asked['model']}` does not exist. Valid aliases: {', '.join(served)}.",
                          "NotFoundError", "model")
        if not 0 <= (heat := float(asked.get("temperature", 1))) <= 2:
            raise bad(f"temperature must be in [0, 2], got {heat}.", "temperature", heat)
        self.prompt, self.chat = prompt_tokens(asked, chat), chat
        self.bounded = asked.get("max_tokens") is not None
        limit = asked["max_tokens"] if self.bounded else 16
        if limit < 1:
            raise bad(f"max_tokens must be at least 1, got {limit}.", "max_tokens", limit)
        if limit > max_len:
            raise bad(f"max_tokens={limit} cannot be greater than max_model_len={max_len}. Please request fewer output tokens.",
                      "max_tokens", limit)
        if self.prompt > max_len:
            raise bad(f"This model's maximum context length is {max_len} tokens. However, your prompt contains at least "
                      f"{max_len + 1} input tokens, which exceeds this limit even without any output tokens. Please reduce the "
                      "length of the input prompt.", "input_tokens", max_len + 1)
        if self.prompt == max_len:
            raise bad("max_tokens must be at least 1, got 0.", "max_tokens", 0)
        self.most = min(limit, max_len - self.prompt)  # silently
        self.made = 0
        self.created = int(time.time())
        kind = "chatcmpl" if chat else "cmpl"
        self.id = f"{kind}-{request_id or f'{os.getpid():08x}{next(_count):08x}'}"

    def usage(self):
        return {"prompt_tokens": self.prompt, "total_tokens": self.prompt + self.made, "completion_tokens": self.made}

    def _head(self, kind):
        return {"id": self.id, "object": kind, "created": self.created, "model": served[0]}

    def reply(self, finish="length"):
        usage = {**self.usage(), "prompt_tokens_details": None, "completion_tokens_details": None}
        tail = {"service_tier": None, "system_fingerprint": FINGERPRINT, "usage": usage}
        none = {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": None}
        if self.chat:
            message = {"role": "assistant", "content": "", "refusal": None, "annotations": None, "audio": None,
                       "function_call": None, "reasoning": None}
            choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish, "stop_reason": None,
                      "token_ids": None, "routed_experts": None}
            return {**self._head("chat.completion"), "choices": [choice], **tail, "prompt_logprobs": None,
                    "prompt_token_ids": None, "prompt_text": None, **none}
        choice = {"index": 0, "text": " 754" * self.made, "logprobs": None, "finish_reason": finish, "stop_reason": None,
                  "token_ids": None, "prompt_logprobs": None, "prompt_token_ids": None, "routed_experts": None}
        return {**self._head("text_completion"), "choices": [choice], **tail, **none}

    def first_event(self, usage):
        """Chat only: the role."""
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        return {**self._head("chat.completion.chunk"), "choices": [choice], **self._continuous(usage),
                "prompt_token_ids": None, "prompt_text": None}

    def event(self, finish=None, usage=False, last=False):
        """One more token; `finish` with the last one. `last`: no event of usage follows."""
        self.made += 1
        print_of = {"system_fingerprint": FINGERPRINT} if last else {}
        if self.chat:
            choice = {"index": 0, "delta": {"content": ""}, "logprobs": None, "finish_reason": finish,
                      **({"stop_reason": None} if finish else {}), "token_ids": None}
            return {**self._head("chat.completion.chunk"), "choices": [choice], **self._continuous(usage), **print_of}
        choice = {"index": 0, "text": " 754", "logprobs": None, "finish_reason": finish, "stop_reason": None,
                  "prompt_token_ids": None, "token_ids": None}
        return {**self._head("text_completion"), "choices": [choice], **self._continuous(usage), **print_of}

    def _continuous(self, wanted):
        return {"usage": {**self.usage(), "completion_tokens_details": None}} if wanted else {}

    def usage_event(self):
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return {**self._head(kind), "choices": [], "usage": self.usage(), "system_fingerprint": FINGERPRINT}


def models(max_len=MAX_LEN):
    rights = {"allow_create_engine": False, "allow_sampling": True, "allow_logprobs": True, "allow_search_indices": False,
              "allow_view": True, "allow_fine_tuning": False}
    permission = {"id": "modelperm-9132efa89d7dd647", "object": "model_permission", "created": int(time.time()), **rights,
                  "organization": "*", "group": None, "is_blocking": False}
    data = [{"id": name, "object": "model", "created": int(time.time()), "owned_by": "vllm", "root": f"/models/{name}",
             "parent": None, "max_model_len": max_len, "permission": [permission]} for name in served]
    return {"object": "list", "data": data}


def tokenize(asked, max_len=MAX_LEN):
    count = prompt_tokens(asked, "messages" in asked)
    return {"count": count, "max_model_len": max_len, "tokens": list(range(1, count + 1)), "token_strs": None}


def take_start(lines):
    """The cache of another start than the recorded one."""
    tokens = re.search(r"KV cache size: ([\d,]+) tokens", "\n".join(lines))
    if tokens:
        n = int(tokens[1].replace(",", ""))
        cache.update(kv_cache_size_tokens=n, num_gpu_blocks=n // 128, kv_cache_memory_bytes=None)


def _cache_line(line):
    for key, value in cache.items():
        line = re.sub(rf'\b{key}="[^"]*"', f'{key}="{value}"', line)
    return line


def metrics(running, waiting):
    values = {"vllm:num_requests_running": running, "vllm:num_requests_waiting": waiting}
    lines = []
    for line in METRICS.read_text().splitlines():
        name = line.partition("{")[0]
        if name == "vllm:cache_config_info":
            line = _cache_line(line)
        line = line.replace('model_name="tiny"', f'model_name="{served[0]}"')
        lines.append(f"{line.rpartition(' ')[0]} {float(values[name])}" if name in values else line)
    return "\n".join(lines) + "\n"
