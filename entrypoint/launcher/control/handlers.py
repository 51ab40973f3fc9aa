"""Answer the requests of the control channel. Only the job's own hosts get an answer.

What is protected. A caller whose address belongs to no host name of the job is refused. A report is taken only from the
address of its host, news only from the coordinator's. With ENTRYPOINT_TOKEN set, every caller must show the token, too.
Callers are limited (server.py, access.py), so that none can keep another from being answered. A message that does not
follow the protocol changes nothing.

What is not protected. Messages travel as plain text in the job's network: whoever can read or forge packets there can
read the token, and so can a process of the launcher's user, in /proc. Without a token, every process on a host of the
job is trusted, since it has the host's address. A recorded message that is sent again is refused from other addresses,
and without the token; from the host itself it repeats what that host has sent before. And a process on a host can
always use up that host's limits.
"""

import json
import math
import queue
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from entrypoint.base.errors import ExitCode
from entrypoint.launcher.control.access import LOOPBACK, MESSAGE_BYTES
from entrypoint.launcher.control.host_names import HostNames, leads_here
from entrypoint.launcher.control.pages import Routes, headers, is_this_machine
from entrypoint.launcher.control.records import Records
from entrypoint.launcher.control.wire import PROTOCOL, Refused, news_from_json, report_from_json
from entrypoint.launcher.job.cluster import Cluster
from entrypoint.launcher.policy.events import Broken, Event, Informed, Rejected, Replaced, Reported

TOKEN_KEY = "X_ENTRYPOINT_TOKEN"  # the header of client.py, as waitress spells it
RECORD = "/record/"  # followed by the host and the position of a piece of its record
ENDPOINTS = {"/report": "POST", "/news": "POST", "/status": "GET"}  # the first two are what hosts send to one another
STATUS_AT_ONCE = 2  # of the server's threads, so that requests for the page are answered, too
REPEAT_SECONDS = 1.0  # seconds between two events about a host that is refused

Put = Callable[[Event], None]
Status = Callable[[], dict[str, Any]]
Answer = tuple[int, bytes, str]  # HTTP status, JSON, the follower whose report was taken


class Control:
    """Answer other hosts by `answer`, and people as a WSGI application.

    `news` returns the coordinator's news as JSON. `life` distinguishes this launcher from another one on the same host.
    """

    def __init__(
        self,
        cluster: Cluster,
        names: HostNames,
        token: str,
        put: Put,
        status: Status,
        news: Callable[[], bytes],
        life: str = "",
        records: Records | None = None,
        routes: Routes = MappingProxyType({}),
    ) -> None:
        self._cluster, self._token, self._put = cluster, token.encode(), put
        self._followers = frozenset(host.name for host in cluster.followers if cluster.is_coordinator)
        self._refused: dict[str, float] = {}  # host -> when its refusal was reported
        self._misled = ""  # why this host cannot take part
        self._status, self._lookers = status, threading.BoundedSemaphore(STATUS_AT_ONCE)
        self._news, self._life = news, json.dumps(life).encode()
        self._records = records  # on the coordinator
        self._takes = {**ENDPOINTS, **dict.fromkeys(routes, "GET")}
        self._routes = routes  # what people may look at
        self._lives: dict[str, Any] = {}  # host -> the life of its launcher
        self._lock = threading.Lock()  # the server, its threads and the reader of links call this
        self.names = names
        names.leads_here = self._end_misled
        names.expect_calls()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        method, path, caller = environ["REQUEST_METHOD"], environ.get("PATH_INFO", ""), environ.get("REMOTE_ADDR", "")
        shown, body = environ.get(f"HTTP_{TOKEN_KEY}", ""), environ["wsgi.input"].read(MESSAGE_BYTES + 1)
        code, text, _ = self.answer(method, path, caller, shown, body)
        if path in self._routes and caller in LOOPBACK and not is_this_machine(environ.get("HTTP_HOST", "")):
            code, text = 403, json.dumps({"error": "use localhost as the host name"}).encode()
        start_response(
            f"{code} {HTTPStatus(code).phrase}", headers(text, code == HTTPStatus.OK and self._is_page(path))
        )
        return [text]

    def answer(self, method: str, path: str, caller: str, shown: str, body: bytes) -> Answer:
        """Return the answer to a caller; `shown` is its token."""
        try:
            self._refuse(method, path, caller, shown)
            if path == "/report":
                return 200, *self._take_report(caller, body)
            if self._records and path.startswith(RECORD):
                return 200, self._records.take(path, self.names.hosts_at(caller), body), ""
            if path in self._routes:
                return 200, self._show_job(path), ""
            return 200, self._take_news(caller, body) if path == "/news" else self._show_status(), ""
        except Refused as error:
            return error.status, json.dumps({"error": str(error)}).encode(), ""

    def _refuse(self, method: str, path: str, caller: str, shown: str) -> None:
        hosts = self.names.hosts_at(caller)
        if not hosts and not (caller in LOOPBACK and method == "GET"):
            raise Refused(self._misled or f"{caller} is not a host of this job", 409 if self._misled else 403)
        if self._token and not self._is_page(path) and not _same(shown.encode("utf-8", "replace"), self._token):
            why = "wrong token" if shown else "missing token"
            if path == "/report":
                self._report_refusal(hosts, f"{why}; ENTRYPOINT_TOKEN must be the same on all hosts")
            raise Refused(why, 401)
        wanted = "POST" if self._records and path.startswith(RECORD) else self._takes.get(path)
        if wanted is None:
            raise Refused(f"unknown path {path[:100]}", 404)
        if method != wanted:
            raise Refused(f"{path} takes {wanted}", 405)

    def _end_misled(self, name: str, address: str) -> None:
        """End the job if another host's name leads to this host, since that host's messages would arrive here."""
        if self._misled:  # its name is looked up again and again
            return
        self._misled = f"on {self._cluster.me.name}, {leads_here(name, address)}"
        self._put(Broken(what="configuration", why=leads_here(name, address), code=ExitCode.CONFIG))

    def _report_refusal(self, hosts: frozenset[str], why: str) -> None:
        """Report, on the coordinator, hosts of the job that are refused for a reason that will not change by itself."""
        now = time.monotonic()
        with self._lock:
            due = [
                host for host in hosts & self._followers if now >= self._refused.get(host, -math.inf) + REPEAT_SECONDS
            ]
            self._refused.update(dict.fromkeys(due, now))
        for host in due:
            self._put(Rejected(host=host, why=why))

    def _show_status(self) -> bytes:
        if not self._lookers.acquire(blocking=False):
            raise Refused("too many requests; try again", 503)
        try:
            return json.dumps(self._status(), separators=(",", ":")).encode() + b"\n"  # compact, for grep
        except queue.Empty:
            raise Refused("the supervisor did not answer in time", 503) from None
        finally:
            self._lookers.release()

    def _is_page(self, path: str) -> bool:
        return path in self._routes and self._routes[path].is_page

    def _show_job(self, path: str) -> bytes:
        """Return the live page, or its data. The monitor has them in a file, so nothing waits."""
        if not self._cluster.is_coordinator:
            raise Refused(f"the job is shown by its coordinator, {self._cluster.coordinator.name}", 404)
        if not self._records:
            raise Refused("nothing is recorded of this job: ENTRYPOINT_MONITOR is false", 404)
        return self._routes[path].body(self._records.folder)

    def _take_report(self, caller: str, body: bytes) -> tuple[bytes, str]:
        cluster, data = self._cluster, parse(body)
        if not cluster.is_coordinator:  # hosts disagree on the coordinator if they have different groups or settings
            me, other = cluster.me.name, cluster.coordinator.name
            if self._life != b'""' and isinstance(data, dict) and json.dumps(data.get("life")).encode() == self._life:
                raise Refused(leads_here(other, caller))
            raise Refused(f"{me} takes {other} for the coordinator; groups and settings must be the same on all hosts")
        hosts = self.names.hosts_at(caller)
        try:
            report = report_from_json(data, self._followers)
        except Refused as error:
            if isinstance(data, dict) and data.get("protocol") not in (None, PROTOCOL):
                self._report_refusal(hosts, str(error))
            raise
        if report.host not in hosts:
            raise Refused(f"{caller} is not {report.host}")
        life = data.get("life")
        with self._lock:
            known = self._lives.setdefault(report.host, life) if life else life
        if life != known:
            self._put(Replaced(host=report.host))
            raise Refused(f"another launcher of {report.host} reported before: a restarted launcher counts as lost")
        self._put(Reported(report=report))
        answer = b'%b, "clock": %b, "life": %b}' % (self._news()[:-1], repr(time.monotonic()).encode(), self._life)
        return answer, report.host

    def _take_news(self, caller: str, body: bytes) -> bytes:
        data = parse(body)
        if self._cluster.coordinator.name not in self.names.hosts_at(caller):
            raise Refused(f"{caller} is not the coordinator")
        self._put(Informed(news=news_from_json(data)))
        return b"{}"


def _same(one: bytes, other: bytes) -> bool:
    import hmac  # here, since few jobs have a token, and it loads OpenSSL

    return hmac.compare_digest(one, other)


def parse(text: bytes) -> Any:
    """Read JSON from a host, without double keys or deep nesting; raise Refused otherwise. wire.py checks the rest."""
    try:
        return _DECODER.decode(text.decode())
    except (ValueError, RecursionError) as error:
        raise Refused(f"wanted a JSON object: {str(error)[:200]}") from None


def _no_double(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("the same key twice")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_no_double)
