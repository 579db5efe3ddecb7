"""A WebSocket client that is small enough to be trusted: wsproto does the framing."""

import socket

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Message, RejectConnection, Request, TextMessage


class WebSocket:
    def __init__(self, address, path, timeout=30, context=None):
        self.sock = socket.create_connection(address, timeout=timeout)
        if context is not None:
            self.sock = context.wrap_socket(self.sock, server_hostname="localhost")
        self.ws = WSConnection(ConnectionType.CLIENT)
        self._events = []
        self.sock.sendall(self.ws.send(Request(host="test", target=path)))
        event = self._next()
        if isinstance(event, RejectConnection):
            raise ConnectionError(f"upgrade refused: {event.status_code}")
        assert isinstance(event, AcceptConnection), event

    def _next(self):
        while not self._events:
            data = self.sock.recv(65536)
            self.ws.receive_data(data or None)
            self._events += self.ws.events()
        return self._events.pop(0)

    def say(self, text):
        self.sock.sendall(self.ws.send(TextMessage(text)))

    def hear(self):
        """The next whole message, or None when the other side closed."""
        parts = []
        while True:
            event = self._next()
            if isinstance(event, CloseConnection):
                return None
            if isinstance(event, Message):
                parts.append(event.data)
                if event.message_finished:
                    return "".join(parts)

    def close(self):
        self.sock.sendall(self.ws.send(CloseConnection(code=1000)))
        while self.hear() is not None:
            pass
        self.sock.close()
