"""The server of the control channel: a Flask application that hears the job's own hosts, and nobody else.

What is protected, and from whom. An address that no host name of the job resolves to is refused, whatever it says;
a report is taken from the address of the host that it is of, news from the coordinator's. With ENTRYPOINT_TOKEN set,
whoever calls must show it too. Callers are limited (door.py, callers.py), so none can keep another from being heard,
and what is not a message of this protocol changes nothing.

What is not. Messages travel as plain HTTP within the job's network: who can read or forge packets there can read the
token. Without a token every process on a host of the job is trusted, as it has the host's address. A message that was
recorded and is sent again is refused from other addresses, and without the token; from the host itself it says
what that host has said before. And a process on a host can always use up what its own host may ask for.
"""

import hmac
import json
import math
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from entrypoint.callers import LOOPBACK, Callers, Limits
from entrypoint.cluster import Cluster
from entrypoint.events import Event, Informed, News, Rejected, Reported
from entrypoint.wire import PROTOCOL, Refused, news_from_json, news_to_json, report_from_json

TOKEN_HEADER = "X-Entrypoint-Token"
STATUS_AT_ONCE = 2  # of the server's 8 threads, so that people who look keep no host waiting
SAY_AGAIN = 1.0  # seconds between two events about the same host that is refused

Put = Callable[[Event], None]
Status = Callable[[], dict[str, Any]]


def make_door(
    cluster: Cluster, token: str, put: Put, status: Status, news: Callable[[], News], *, address: str, port: int
) -> Any:
    """The server of one host, listening; `run()` serves. OSError if it cannot listen."""
    from entrypoint.door import Door

    callers = Callers(cluster)
    limits = Limits(callers)

    def application() -> Any:
        return make_app(cluster, callers, limits, token, put, status, news)

    alone = len(cluster.hosts) == 1
    return Door(_WhenAsked(application) if alone else application(), limits, address, port)


def make_app(
    cluster: Cluster, callers: Callers, limits: Limits, token: str, put: Put, status: Status, news: Callable[[], News]
) -> Any:
    """The Flask application of one host."""
    import flask

    app = flask.Flask("entrypoint", static_folder=None)
    refusals = _Refusals(cluster, put)
    lookers = threading.BoundedSemaphore(STATUS_AT_ONCE)

    def caller() -> str:
        return flask.request.remote_addr or ""

    @app.before_request
    def only_our_hosts() -> Any:
        limits.charge(caller(), flask.request.content_length or 0)
        looks = caller() in LOOPBACK and flask.request.method == "GET"
        if not looks and not callers.hosts_at(caller()):
            return {"error": f"{caller()} is not a host of this job"}, 403
        shown = flask.request.headers.get(TOKEN_HEADER, "")
        if token and not hmac.compare_digest(shown.encode(), token.encode()):
            why = "wrong token" if shown else "missing token"
            if flask.request.path == "/report":
                refusals.note(callers.hosts_at(caller()), f"{why}; ENTRYPOINT_TOKEN must be the same on all hosts")
            return {"error": why}, 401
        return None

    @app.errorhandler(Refused)
    def refused(error: Refused) -> Any:
        return {"error": str(error)}, error.status

    @app.get("/status")
    def show_status() -> Any:
        if not lookers.acquire(blocking=False):
            return {"error": "others are looking, too; ask again"}, 503
        try:
            return status()
        except queue.Empty:
            return {"error": "the supervisor did not answer in time"}, 503
        finally:
            lookers.release()

    @app.post("/report")
    def take_report() -> Any:
        if not cluster.is_coordinator:  # groups and settings say who it is: somebody reads them differently
            me, other = cluster.me.name, cluster.coordinator.name
            raise Refused(f"{me} takes {other} for the coordinator; groups and settings must be the same on all hosts")
        data, hosts = parse(flask.request.get_data()), callers.hosts_at(caller())
        try:
            report = report_from_json(data, cluster)
        except Refused as error:
            if isinstance(data, dict) and data.get("protocol") not in (None, PROTOCOL):
                refusals.note(hosts, str(error))
            raise
        if report.host not in hosts:
            raise Refused(f"{caller()} is not {report.host}")
        put(Reported(report=report))
        return {**news_to_json(news()), "clock": time.monotonic()}

    @app.post("/news")
    def take_news() -> Any:
        data = parse(flask.request.get_data())
        if cluster.coordinator.name not in callers.hosts_at(caller()):
            raise Refused(f"{caller()} is not the coordinator")
        put(Informed(news=news_from_json(data)))
        return {}

    return app


class _WhenAsked:
    """An application that is made at its first request: Flask takes long to import, and a lone host may have none."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._made: Any = None

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        with self._lock:
            self._made = self._made or self._make()
        return self._made(environ, start_response)


class _Refusals:
    """Tells the policy, on the coordinator, which hosts of the job are refused for what will not change by itself."""

    def __init__(self, cluster: Cluster, put: Put) -> None:
        self._followers = {host.name for host in cluster.followers} if cluster.is_coordinator else set()
        self._put = put
        self._noted: dict[str, float] = {}

    def note(self, hosts: frozenset[str], why: str) -> None:
        now = time.monotonic()
        for host in hosts & self._followers:
            if now >= self._noted.get(host, float("-inf")) + SAY_AGAIN:
                self._noted[host] = now
                self._put(Rejected(host=host, why=why))


def parse(text: bytes) -> Any:
    """JSON as hosts send it: no number that is none, no key twice, nothing too deep. Refused if it is anything else."""
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_no_double)
    except (ValueError, RecursionError) as error:
        raise Refused(f"wanted a JSON object: {str(error)[:200]}") from None


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is no finite number")
    return number


def _no_double(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("the same key twice")
    return value
