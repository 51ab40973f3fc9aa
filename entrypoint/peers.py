"""The wire between hosts: a small HTTP server on each, reports to the coordinator, news from it.

Reports and news hold whole facts, not changes, so a lost or repeated message does no harm: the next
heartbeat repairs it. No opinions here: what is heard becomes an event, what to say comes from the policy.
Flask and waitress are imported in a thread of their own, beside the start of the first processes.
"""

import hmac
import http.client
import json
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from entrypoint.cluster import Cluster, Host
from entrypoint.errors import ExitCode
from entrypoint.events import Broken, Event, Informed, News, Report, Reported
from entrypoint.outcome import Outcome, cause_from_json
from entrypoint.settings import Settings

PROTOCOL = 1
TOKEN_HEADER = "X-Entrypoint-Token"
MAX_MESSAGE = 1 << 20  # bytes
RETRY = 0.05  # seconds until the next try while the coordinator was never reached
PUSH_RETRIES = (0.02, 0.05, 0.1, 0.2, 0.4)  # seconds to wait after each failed try to bring news
PUSHERS = 32  # threads that bring news to followers side by side

Put = Callable[[Event], None]
Status = Callable[[], dict[str, Any]]


class Refused(Exception):
    """A message that is not what a host of this job would send."""


# --- messages as JSON ---


def report_to_json(report: Report) -> dict[str, Any]:
    return {
        "protocol": PROTOCOL,
        "host": report.host,
        "ready": sorted(report.ready),
        "cards": list(report.cards),
        "done": report.done,
        "clean": report.clean,
        "stopping": report.stopping,
        "cause": None if report.cause is None else vars(report.cause),
        "gone": report.gone,
    }


def report_from_json(data: Any, cluster: Cluster) -> Report:
    """Inverse of report_to_json; Refused if a host of this cluster would not have sent `data`."""
    try:
        _check_protocol(data)
        host = str(data["host"])
        if host not in {follower.name for follower in cluster.followers}:
            raise Refused(f"{host!r} is not a follower in this job")
        return Report(
            host=host,
            ready=frozenset(str(name) for name in data["ready"]),
            cards=tuple((str(card), str(line)) for card, line in data["cards"]),
            done=bool(data["done"]),
            clean=bool(data["clean"]),
            stopping=bool(data["stopping"]),
            cause=None if data["cause"] is None else cause_from_json(data["cause"]),
            gone=bool(data["gone"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Refused(f"malformed report: {error!r}") from None


def news_to_json(news: News) -> dict[str, Any]:
    return {
        "protocol": PROTOCOL,
        "ready": sorted(news.ready),
        "cards": list(news.cards),
        "stopping": news.stopping,
        "outcome": None if news.outcome is None else news.outcome.to_json(),
    }


def news_from_json(data: Any) -> News:
    """Inverse of news_to_json; Refused if the coordinator would not have sent `data`."""
    try:
        _check_protocol(data)
        return News(
            ready=frozenset((str(host), str(process)) for host, process in data["ready"]),
            cards=tuple((str(card), str(line)) for card, line in data["cards"]),
            stopping=bool(data["stopping"]),
            outcome=None if data["outcome"] is None else Outcome.from_json(data["outcome"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Refused(f"malformed news: {error!r}") from None


def _check_protocol(data: Any) -> None:
    if data["protocol"] != PROTOCOL:
        raise Refused(f"protocol {data['protocol']!r}, wanted {PROTOCOL}: the hosts of one job must run the same image")


# --- the server ---


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


class Peers:
    """The control channel of one host: its server, and what it says to the others."""

    def __init__(
        self, cluster: Cluster, settings: Settings, put: Put, status: Status, say: Callable[[str], None]
    ) -> None:
        self._cluster, self._settings, self._put, self._status, self._say = (
            cluster,
            settings,
            put,
            status,
            say,
        )
        self._lock = threading.Condition()
        self._report: Report | None = None
        self._news = News()
        self._pushers: ThreadPoolExecutor | None = None
        self._delivered = threading.Event()
        threading.Thread(target=self._serve, name="control", daemon=True).start()
        if not cluster.is_coordinator:
            threading.Thread(target=self._keep_reporting, name="reports", daemon=True).start()

    def report(self, report: Report) -> None:
        """A follower's facts have changed: tell the coordinator now, and with each heartbeat."""
        with self._lock:
            self._report = report
            self._delivered.clear()
            self._lock.notify_all()

    def announce(self, news: News) -> None:
        """The coordinator's facts have changed: tell every follower now; answers to reports repeat it."""
        self._news = news
        if self._pushers is None:
            self._pushers = ThreadPoolExecutor(PUSHERS, thread_name_prefix="news")
        for follower in self._cluster.followers:
            self._pushers.submit(self._push, follower, news)

    def flush(self, within: float) -> None:
        """Wait, at most so many seconds, until the coordinator has the last report."""
        self._delivered.wait(within)

    def _push(self, follower: Host, news: News) -> None:
        for wait in PUSH_RETRIES:
            if news is not self._news:
                return  # there is newer news already
            try:
                self._call(follower, "/news", news_to_json(news), timeout=1.0)
                return
            except (OSError, http.client.HTTPException, Refused):
                time.sleep(wait)
        # From here on the follower hears it with the answer to its next report.

    def _keep_reporting(self) -> None:
        last: Report | None = None
        reached = False
        refused_since, complaint = 0.0, ""
        while True:
            with self._lock:
                if self._report is last or self._report is None:
                    self._lock.wait(self._settings.heartbeat if reached or self._report is None else RETRY)
                report = self._report
            if report is None:
                continue
            try:
                answer = self._call(
                    self._cluster.coordinator,
                    "/report",
                    report_to_json(report),
                    timeout=self._settings.peer_timeout,
                )
                self._put(Informed(news=news_from_json(answer)))
                last, reached, refused_since = report, True, 0.0
                with self._lock:
                    if report is self._report:
                        self._delivered.set()
            except Refused as error:
                refused_since = refused_since or time.monotonic()
                # At first this can be a name that the coordinator cannot resolve yet.
                if time.monotonic() - refused_since > self._settings.peer_timeout and str(error) != complaint:
                    complaint = str(error)
                    self._say(f"the coordinator refuses our reports: {complaint}")
                time.sleep(RETRY)
            except (OSError, http.client.HTTPException, ValueError):
                reached = False
                time.sleep(RETRY)

    def _call(self, host: Host, path: str, message: dict[str, Any], timeout: float) -> Any:
        """POST to another host; its answer. OSError or HTTPException if it is not reached, Refused if it says no."""
        own = self._cluster.me.address
        source = (own, 0) if own.startswith("127.") else None
        connection = http.client.HTTPConnection(
            host.address, host.port(self._settings.control_port), timeout=timeout, source_address=source
        )
        headers = {"Content-Type": "application/json"}
        if self._settings.token:
            headers[TOKEN_HEADER] = self._settings.token
        try:
            connection.request("POST", path, body=json.dumps(message), headers=headers)
            response = connection.getresponse()
            text = response.read(MAX_MESSAGE)
        finally:
            connection.close()
        if response.status != 200:
            raise Refused(f"{host.name} answered {response.status}: {text[:200].decode('utf-8', 'replace')}")
        return json.loads(text)

    def _serve(self) -> None:
        logging.getLogger("waitress").setLevel(logging.ERROR)
        me = self._cluster.me
        port = me.port(self._settings.control_port)
        listen = me.address if me.address.startswith("127.") else "0.0.0.0"
        try:
            import waitress

            app = make_app(self._cluster, self._settings.token, self._put, self._status, lambda: self._news)
            server = waitress.create_server(
                app, host=listen, port=port, threads=8, backlog=1024, connection_limit=2000, channel_timeout=30,
                max_request_body_size=MAX_MESSAGE, ident="",
            )  # fmt: skip
        except (OSError, ImportError) as error:
            if len(self._cluster.hosts) > 1:
                why = f"the control channel cannot listen on {listen} port {port}: {error}; set ENTRYPOINT_CONTROL_PORT"
                self._put(Broken(why=why, code=ExitCode.INTERNAL))
            return
        server.run()
