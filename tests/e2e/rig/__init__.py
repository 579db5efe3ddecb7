"""Helpers of the end-to-end tests: the real binary, its log, clients that judge every reply, what is left behind."""

from .eventlog import EventLog
from .fake import FakeWorker
from .host import descendants, state_of
from .load import Load, Outcome, Paced
from .server import Server, paths
from .wire import Reply, Secure, connect, leave, read_reply, request, send_head
from .ws import WebSocket

__all__ = [
    "EventLog", "FakeWorker", "Load", "Outcome", "Paced", "Reply", "Secure", "Server", "WebSocket", "connect", "descendants", "leave",
    "paths", "read_reply", "request", "send_head", "state_of",
]
