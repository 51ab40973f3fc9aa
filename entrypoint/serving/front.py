"""Answer /ping, hand other requests to the process that has the model, and notice its threads that hang.

Each thread of the model's process has a connection of its own. It reads a request there (two messages: the WSGI
environment as JSON, and the body), calls the application, and writes the answer (status and headers as JSON, and the
body).
"""

import json
import logging
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from multiprocessing.connection import Connection
from typing import Any

from entrypoint.serving.serving_config import Serving

JSON = "application/json"
_JSON = [["Content-Type", JSON]]
Answer = tuple[str, list[list[str]], bytes]  # status, headers, body
HOPELESS = 5  # after so many times the limit a thread that hangs is held to hang for good

log = logging.getLogger("serve")


def error(status: int, why: str) -> Answer:
    """Return the answer to a request that is refused."""
    return f"{status} {HTTPStatus(status).phrase}", _JSON, json.dumps({"error": why}).encode()


def connect(count: int, limit: float) -> tuple[list[Connection], list[Connection]]:
    """Return our ends of the connections, and the ends of the model's process.

    A write is given up after `limit` seconds.
    """
    pairs = [socket.socketpair() for _ in range(count)]
    for ours, _ in pairs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(limit), 0))
    return [Connection(ours.detach()) for ours, _ in pairs], [Connection(theirs.detach()) for _, theirs in pairs]


class ModelThreads:
    """Hold the connections to the threads that answer. `ask` is called by as many threads as there are connections."""

    def __init__(
        self, connections: Iterable[Connection], limit: float, dump: Callable[[], object] = lambda: None
    ) -> None:
        """Take `limit`, the seconds that an answer may take, and `dump`: the other process logs where it hangs."""
        self.is_loaded = self.has_ended = False
        self._free: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        for connection in (every := list(connections)):
            self._free.put(connection)
        self._count, self._limit, self._dump = len(every), limit, dump
        self._hung: dict[Connection, float] = {}  # since when

    def unwell(self) -> str:
        """Return why the container is not well, for /ping; "" if it is."""
        if not self.is_loaded:
            return "the model is still being loaded"
        if self.has_ended:
            return "the process of the model has ended"
        hung = list(self._hung.values())
        longest = time.monotonic() - min(hung) + self._limit if hung else 0
        if longest > HOPELESS * self._limit:  # others are late, and may be slow: the first call compiles, say
            return f"{len(hung)} of {self._count} threads hang, one since {longest:.0f} s; see the container's log"
        return ""

    def ask(self, environ: dict[str, Any]) -> Answer:
        """Return the application's answer to a request; 503 if there is none within the limit."""
        with environ["wsgi.input"] as stream:  # closed here: the model's process has the body from now on
            body = stream.read()
        why = self.unwell()
        if why and (not self.is_loaded or self.has_ended or len(self._hung) == self._count):
            return error(503, why)
        head = json.dumps({k: v for k, v in environ.items() if isinstance(v, str)}).encode()
        try:
            connection = self._free.get(timeout=self._limit)
        except queue.Empty:
            return error(503, f"all threads have been busy for {self._limit:g} s")
        try:
            connection.send_bytes(head)
            connection.send_bytes(body)
            del body
            if not connection.poll(self._limit):
                request = self._hangs(connection, environ)
                threading.Thread(target=self._await_late, args=(connection, request), daemon=True).start()
                return self._late()
            answer = received(connection)
        except BlockingIOError:  # it does not even read
            self._hangs(connection, environ)
            return self._late()
        except (OSError, EOFError):
            self.has_ended = True
            return error(503, self.unwell())
        except BaseException:  # such as MemoryError: nobody knows what the connection holds now
            self._hung.setdefault(connection, time.monotonic())
            raise
        self._free.put(connection)
        return answer

    def _late(self) -> Answer:
        return error(503, f"no answer within {self._limit:g} s (SAGEMAKER_MODEL_SERVER_TIMEOUT)")

    def _hangs(self, connection: Connection, environ: dict[str, Any]) -> str:
        request = f"{environ.get('REQUEST_METHOD')} {environ.get('PATH_INFO', '')[:100]!r}"
        self._hung[connection] = time.monotonic()
        log.error(
            "%s has no answer after %g s, and may hang, as %d of %d threads do",
            request, self._limit, len(self._hung), self._count,
        )  # fmt: skip
        self._dump()
        return request

    def _await_late(self, connection: Connection, request: str) -> None:
        try:
            received(connection)
        except (OSError, EOFError):
            return
        late = time.monotonic() - self._hung.pop(connection) + self._limit
        log.error("%s came to an end after %.0f s, too late", request, late)
        self._free.put(connection)


def received(connection: Connection) -> Answer:
    """Return the answer that the model's process has written."""
    status, headers = json.loads(connection.recv_bytes())
    return status, headers, connection.recv_bytes()


class Front:
    """A WSGI application. It answers /ping without the model's process, whatever that process does."""

    def __init__(self, serving: Serving, workers: ModelThreads) -> None:
        self.serving, self._workers = serving, workers

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        status, headers, body = self._answer(environ)
        start_response(status, [(name, value) for name, value in headers])
        return [body]

    def _answer(self, environ: dict[str, Any]) -> Answer:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            if environ["PATH_INFO"] == "/ping":
                why = self._workers.unwell()
                return error(503, why) if why else ("200 OK", _JSON, b"")
            if environ["PATH_INFO"] == "/execution-parameters":
                return "200 OK", _JSON, json.dumps(dict(self.serving.execution)).encode()
        return self._workers.ask(environ)
