"""Serve the live page, on the control port of a job's coordinator and by `entrypoint local --watch`.

Each request touches WATCHED in the folder of records; the coordinator's monitor writes STATE while WATCHED is fresh.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any

from entrypoint.launcher.control.pages import Route, headers, is_this_machine
from entrypoint.record.lines import now

WATCHED, STATE = "watched", "live.json"
STILL_WATCHED_SECONDS = 15.0  # seconds after somebody has looked
PAGE, LIVE = "/", "/live"


def state(folder: Path) -> bytes:
    """Return the last state of the job as JSON, one without hosts before the first, and keep the monitor writing it."""
    try:
        (folder / WATCHED).touch()
        return (folder / STATE).read_bytes()
    except OSError:
        from entrypoint.observe.live.view import View  # here: most jobs are never watched

        return json.dumps(View().state(now())).encode()


ROUTES = {
    # The page has no job's data, and requests LIVE by itself.
    PAGE: Route(body=lambda _: Path(__file__).with_name("page.html").read_bytes(), is_page=True),
    LIVE: Route(body=state),
}


class Looks:
    """Note when the page was last requested."""

    def __init__(self) -> None:
        self._last = float("-inf")
        self._changed = threading.Condition()

    def note(self) -> None:
        with self._changed:
            self._last = time.monotonic()
            self._changed.notify_all()

    def wait_for_one(self, within: float) -> None:
        """Wait until an open page has made one more request, for at most `within` seconds."""
        now = time.monotonic()
        with self._changed:
            if now - self._last < STILL_WATCHED_SECONDS:
                self._changed.wait_for(lambda: self._last > now, within)


def application(folder: Path, looks: Looks) -> Callable[[dict[str, Any], Any], Iterable[bytes]]:
    """Return a WSGI application with the page of one job, for browsers on this machine only."""

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        route, status = ROUTES.get(environ.get("PATH_INFO", "")), HTTPStatus.OK
        if not is_this_machine(environ.get("HTTP_HOST", "")):
            status = HTTPStatus.FORBIDDEN
        elif environ["REQUEST_METHOD"] != "GET":
            status = HTTPStatus.METHOD_NOT_ALLOWED
        elif not route:
            status = HTTPStatus.NOT_FOUND
        body, is_page = json.dumps({"error": status.phrase}).encode(), False
        if route and status is HTTPStatus.OK:
            body, is_page = route.body(folder), route.is_page
            looks.note()
        start_response(f"{status.value} {status.phrase}", headers(body, is_page=is_page))
        return [body]

    return answer
