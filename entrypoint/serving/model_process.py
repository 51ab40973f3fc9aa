"""Run the process that has the model: load it and the user's code, and answer requests of the other process."""

import gc
import io
import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import waitress
from werkzeug.test import run_wsgi_app

from entrypoint.base.errors import ConfigError
from entrypoint.serving.app import LOOPBACK, Service, make_app
from entrypoint.serving.http_server import BACKLOG, MOST_CONNECTIONS
from entrypoint.serving.served_model import load
from entrypoint.serving.serving_config import FoundModel, Serving
from entrypoint.serving.tensors import ACCEPTED
from entrypoint.serving.user_code import load_user_code

_SHOWN_FRAMES = 8

log = logging.getLogger("serve")


def run(service: Service, found: FoundModel, connections: Sequence[Connection], ready: Connection) -> None:
    """Load the model, report that on `ready`, and answer for as long as the other process lives."""
    for number in (signal.SIGTERM, signal.SIGINT):  # the other process ends us, once all is answered
        signal.signal(number, lambda *_: None)
    _prepare_forks([*connections, ready])
    application = make_app(service)
    _load(service, found, application)
    gc.freeze()  # so that a body of a million values does not have all of TensorFlow looked through again and again
    busy: dict[int, float] = {}
    signal.signal(signal.SIGUSR1, lambda *_: _show(busy, service.serving.timeout))
    for connection in connections:
        threading.Thread(target=work, args=(connection, application, busy), daemon=True).start()
    ready.send_bytes(b"loaded")
    with suppress(OSError, EOFError):  # which says that the other process is gone
        ready.recv_bytes()


def _prepare_forks(connections: Sequence[Connection]) -> None:
    """Let signals end processes that the user's code forks, and keep these from holding our connections open."""

    def become_another() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for connection in connections:
            connection.close()

    os.register_at_fork(after_in_child=become_another)


def _show(busy: dict[int, float], limit: float) -> None:
    """Log, once for each thread, where it is if it has been busy for longer than the limit."""
    now, frames = time.monotonic(), sys._current_frames()
    for thread in [thread for thread, began in list(busy.items()) if now - began > limit - 1 and thread in frames]:
        busy.pop(thread, None)
        log.error("a thread that hangs stands at:\n%s", "".join(traceback.format_stack(frames[thread], _SHOWN_FRAMES)))


def work(connection: Connection, application: Any, busy: dict[int, float]) -> None:
    """Answer requests while the other process lives. Keep in `busy` since when each thread has been answering."""
    while True:
        try:
            environ = json.loads(connection.recv_bytes())
            body = connection.recv_bytes()
        except (OSError, EOFError):
            return
        busy[threading.get_ident()] = time.monotonic()
        status, headers, content = _answer(application, environ, body)
        busy.pop(threading.get_ident(), None)
        del body
        try:
            connection.send_bytes(json.dumps([status, headers]).encode())
            connection.send_bytes(content)
        except OSError:
            return
        del content


def _answer(application: Any, environ: dict[str, Any], body: bytes) -> tuple[str, list[Any], bytes]:
    environ |= {"wsgi.input": io.BytesIO(body), "wsgi.input_terminated": True, "CONTENT_LENGTH": str(len(body))}
    environ |= {"wsgi.version": (1, 0), "wsgi.errors": sys.stderr, "wsgi.multithread": True}
    parts, status, headers = run_wsgi_app(application, environ, buffered=True)
    return status, headers.to_wsgi_list(), b"".join(parts)


def _listen_to_handlers(application: Any, serving: Serving) -> int:
    """Answer requests of the user's handlers to the model, while they hold the threads above. Return the port."""
    most = 1 << 40  # bytes: what a handler sends was in memory before
    server: Any = waitress.create_server(
        application, host=LOOPBACK, port=0, threads=serving.threads, ident="", asyncore_use_poll=True,
        max_request_body_size=most, inbuf_overflow=most, outbuf_overflow=most, backlog=BACKLOG,
        connection_limit=max(4 * serving.threads, MOST_CONNECTIONS),
    )  # fmt: skip
    threading.Thread(target=server.run, daemon=True).start()
    return int(server.effective_port)


def _load(service: Service, found: FoundModel, application: Any) -> None:
    """Load the user's code and the model."""
    began, serving = time.monotonic(), service.serving
    service.code = load_user_code(serving)
    if service.code is None and serving.accept_type not in ACCEPTED:
        raise ConfigError(
            f"environment variable SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT is {serving.accept[:100]!r}; "
            f"wanted {' or '.join(ACCEPTED)}, where there is no code of your own"
        )
    if service.code is not None:
        service.own_port = _listen_to_handlers(application, serving)
    service.model = model = load(found)
    log.info(
        "model %s loaded in %.1f s, %s; listening on port %d with %d threads%s",
        found.path,
        time.monotonic() - began,
        "; ".join(map(str, model.signatures.values())),
        serving.port,
        serving.threads,
        f", requests go through {service.code.path}" if service.code else "",
    )
