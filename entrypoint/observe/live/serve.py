"""The live page: what is served of it, on the control port of a job's coordinator and by `entrypoint local --watch`.

Read only, and all that it knows is in the folder of the job's records. Who looks touches WATCHED there, and the monitor
of the coordinator writes STATE while somebody does.
"""

import contextlib
import ipaddress
import json
import threading
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any

WATCHED, STATE = "watched", "live.json"
STILL_WATCHED = 15.0  # seconds after somebody has looked
PAGE, LIVE = "/", "/live"
PATHS = (PAGE, LIVE)
_HEADERS = [
    ("Cache-Control", "no-store"),
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
]


def page() -> bytes:
    """Return the page, which asks for LIVE by itself and says nothing of any job."""
    return Path(__file__).with_name("page.html").read_bytes()


def state(folder: Path) -> bytes:
    """Return what was last written of the job, as JSON, and see that it goes on being written; `{}` before that."""
    try:
        (folder / WATCHED).touch()
        return (folder / STATE).read_bytes()
    except OSError:
        return b"{}"


def headers(path: str, body: bytes) -> list[tuple[str, str]]:
    """Return the headers of an answer that is one of ours."""
    kind = "text/html; charset=utf-8" if path == PAGE else "application/json"
    return [("Content-Type", kind), ("Content-Length", str(len(body))), *_HEADERS]


def is_ours(host: str) -> bool:
    """Return whether what a browser asked for (`Host`) means this machine: localhost, or an address.

    Another name is one that a page from elsewhere may have its own name server give our address to.
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(name.strip("[]")))
    return name.lower() == "localhost"


class Looks:
    """When somebody has looked."""

    def __init__(self) -> None:
        self._last = float("-inf")
        self._changed = threading.Condition()

    def note(self) -> None:
        with self._changed:
            self._last = time.monotonic()
            self._changed.notify_all()

    def wait_for_one(self, within: float) -> None:
        """Return when whoever has looked of late has looked once more, and at the latest after so many seconds."""
        now = time.monotonic()
        with self._changed:
            if now - self._last < STILL_WATCHED:
                self._changed.wait_for(lambda: self._last > now, within)


def application(folder: Path, looks: Looks) -> Callable[[dict[str, Any], Any], Iterable[bytes]]:
    """Return the page of one job as a WSGI application, for this machine's browsers alone."""

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        status, body = HTTPStatus.OK, b""
        if not is_ours(environ.get("HTTP_HOST", "")):
            status = HTTPStatus.FORBIDDEN
        elif environ["REQUEST_METHOD"] != "GET":
            status = HTTPStatus.METHOD_NOT_ALLOWED
        elif path not in PATHS:
            status = HTTPStatus.NOT_FOUND
        else:
            body = page() if path == PAGE else state(folder)
            looks.note()
        if status != HTTPStatus.OK:
            body, path = json.dumps({"error": status.phrase}).encode(), LIVE
        start_response(f"{status.value} {status.phrase}", headers(path, body))
        return [body]

    return answer
