"""The server of the control channel: a Flask application that hears the job's own hosts, and nobody else."""

import hmac
import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from entrypoint.cluster import Cluster
from entrypoint.events import Event, Informed, News, Reported
from entrypoint.wire import Refused, news_from_json, news_to_json, report_from_json

TOKEN_HEADER = "X-Entrypoint-Token"
MAX_MESSAGE = 1 << 20  # bytes

Put = Callable[[Event], None]
Status = Callable[[], dict[str, Any]]


class Callers:
    """Who may call: addresses that the job's host names resolve to. Names may resolve late, so look again."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, set[str]] = {}
        self._looked = -1e9
        self._lock = threading.Lock()

    def may(self, address: str, host: str | None = None) -> bool:
        """Whether `address` belongs to a host of the job (to `host`, if given)."""
        if self._is_known(address, host):
            return True
        with self._lock:
            if time.monotonic() - self._looked > 0.2:
                self._looked = time.monotonic()
                for known in self._cluster.hosts:
                    self._known[known.name] = self._known.get(known.name, set()) | _resolve(known.address)
        return self._is_known(address, host)

    def _is_known(self, address: str, host: str | None) -> bool:
        return any(address in addresses for name, addresses in list(self._known.items()) if host in (None, name))


def _resolve(name: str) -> set[str]:
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    except OSError:
        return set()


def make_app(cluster: Cluster, token: str, put: Put, status: Status, news: Callable[[], News]) -> Any:
    """The Flask application of one host."""
    import flask

    app = flask.Flask("entrypoint", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_MESSAGE
    callers = Callers(cluster)

    def body() -> Any:
        try:
            data = flask.request.get_json(silent=True)
        except RecursionError:  # of the JSON decoder, for text that is nested too deep
            data = None
        if data is None:
            raise Refused("wanted a JSON object")
        return data

    @app.before_request
    def only_our_hosts() -> Any:
        caller = flask.request.remote_addr or ""
        local = caller in ("127.0.0.1", "::1") and flask.request.method == "GET"
        if not local and not callers.may(caller):
            return {"error": "not a host of this job"}, 403
        shown = flask.request.headers.get(TOKEN_HEADER, "")
        if token and not hmac.compare_digest(shown.encode(), token.encode()):
            return {"error": "wrong or missing token"}, 401
        return None

    @app.errorhandler(Refused)
    def refused(error: Refused) -> Any:
        return {"error": str(error)}, 400

    @app.get("/status")
    def show_status() -> Any:
        try:
            return status()
        except queue.Empty:
            return {"error": "the supervisor did not answer in time"}, 503

    @app.post("/report")
    def take_report() -> Any:
        report = report_from_json(body(), cluster)
        if not callers.may(flask.request.remote_addr or "", report.host):
            raise Refused(f"{flask.request.remote_addr} is not {report.host}")
        put(Reported(report=report))
        return news_to_json(news())

    @app.post("/news")
    def take_news() -> Any:
        if not callers.may(flask.request.remote_addr or "", cluster.coordinator.name):
            raise Refused(f"{flask.request.remote_addr} is not the coordinator")
        put(Informed(news=news_from_json(body())))
        return {}

    return app
