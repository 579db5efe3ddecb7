"""The corpus of tests/data/http against a running server: what it sends, what it must answer, what a worker may see."""

from .judge import judge_reply, judge_request, load, play

__all__ = ["judge_reply", "judge_request", "load", "play"]
