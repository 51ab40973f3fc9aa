"""Connect the hosts: a small HTTP server on each, reports to the coordinator, news from it, over kept connections.

Reports and news hold whole facts, not changes, so a lost or repeated message does no harm: the next heartbeat repairs
it. Nothing is decided here: what is received becomes an event, and the policy decides what to send. A thread imports
waitress while the first processes start.
"""

import collections
import contextlib
import json
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from entrypoint.base.errors import ExitCode
from entrypoint.launcher.control.client import Calls, Unreachable
from entrypoint.launcher.control.handlers import Control, Put, Status
from entrypoint.launcher.control.host_names import HostNames
from entrypoint.launcher.control.links import Answer, Links, messages
from entrypoint.launcher.control.pages import Routes
from entrypoint.launcher.control.records import Records
from entrypoint.launcher.control.wire import Refused, news_from_json, to_json
from entrypoint.launcher.host.resource_limits import Shortage
from entrypoint.launcher.job.cluster import Cluster
from entrypoint.launcher.job.settings import Settings
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.events import Event, News, Report

RETRY_SECONDS = 0.05  # seconds until the first retry if the coordinator is not reached; each pause is twice the last
TRIES = 2000.0  # retries of all followers together in a second, at most: more would slow the coordinator's start
FORBIDDEN = 403
KNOCK_SECONDS = 0.5  # seconds for a follower's kernel to take a connection


class Clock:
    """Measure the difference between another host's monotonic clock and ours, in seconds.

    As in NTP, the other host is taken to have read its clock in the middle between request and answer. The quickest of
    the last few exchanges gives the difference.
    """

    def __init__(self) -> None:
        self._measured: collections.deque[tuple[float, float]] = collections.deque(maxlen=16)

    def compare(self, sent: float, theirs: Any, received: float) -> None:
        """Note one exchange. `theirs` is the time in the answer; it is ignored if it is no number."""
        if isinstance(theirs, int | float) and math.isfinite(theirs) and received >= sent:
            self._measured.append((received - sent, theirs - (sent + received) / 2))

    @property
    def offset(self) -> float | None:
        """Return their clock minus ours; None if nothing was measured."""
        return min(self._measured)[1] if self._measured else None

    @property
    def error(self) -> float:
        """Return the error of `offset` in seconds: the other host's time may be of any moment of the exchange."""
        return min(self._measured)[0] / 2 if self._measured else 0.0


class Peers:
    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        put: Put,
        status: Status,
        log: Callable[[str], None],
        records: Records | None = None,
        routes: Callable[[], Routes] = dict,
    ) -> None:
        self._cluster, self._settings = cluster, settings
        self._put, self._status, self._log = put, status, log
        self._records, self._routes = records, routes
        self._lock = threading.Condition()
        self._report: Report | None = None
        self._news = _in_json(News())
        self._links = Links(put)  # on the coordinator
        self._link: socket.socket | None = None  # on a follower
        self._link_again = 0.0  # when it may ask for another link
        self._shortage = Shortage(put)
        self._report_again = False
        self._clock = Clock()  # of the coordinator
        self._life, self._coordinators_life = os.urandom(8).hex(), ""  # distinguishes launchers on one host
        self._asked = 0.0  # when we last reported over our link
        self._answered = False
        self._delivered = threading.Event()
        self._tried_to_open = threading.Event()
        self._names = HostNames(cluster)
        self._call = Calls(cluster, settings, self._names)
        threading.Thread(target=self._serve, name="control", daemon=True).start()
        if not cluster.is_coordinator:
            threading.Thread(target=self._keep_reporting, name="reports", daemon=True).start()

    def report(self, report: Report) -> None:
        """Report a follower's new facts to the coordinator, now and with each heartbeat."""
        with self._lock:
            self._report = report
            self._delivered.clear()
            self._lock.notify_all()

    def announce(self, news: News) -> None:
        """Send the coordinator's new facts over the links; other followers get them with their next report."""
        with self._lock:
            self._news = _in_json(news)
            for follower in self._cluster.followers:
                self._links.send(follower.name, self._news)

    def _keep(self, host: str, connection: socket.socket, answer: Answer, body: bytes) -> None:
        """Take over a follower's connection.

        Send the news if they have changed since `body`, the last answer to the follower.
        """
        self._links.keep(host, connection, answer)
        with self._lock:
            if not body.startswith(self._news[:-1]):
                self._links.send(host, self._news)

    def knock(self, host: str) -> None:
        """Check in a thread whether a follower takes a connection. Put Unreached if it does not."""
        follower = next(each for each in self._cluster.followers if each.name == host)
        if (address := self._links.address(host)) is None:
            return

        def knock(address: str) -> None:
            if not self._call.takes_connection(follower, address, KNOCK_SECONDS):
                self._put(events.Unreached(host=host))

        with contextlib.suppress(RuntimeError):  # no thread is left: the host will be lost by its silence
            threading.Thread(target=knock, args=(address,), name="knock", daemon=True).start()

    def flush(self, within: float) -> None:
        """Wait until the coordinator has the last report, for at most `within` seconds."""
        self._delivered.wait(within)

    def _keep_reporting(self) -> None:
        last: Report | None = None
        reached = False
        refused_since, complaint, again = 0.0, "", RETRY_SECONDS
        # The coordinator probes a host as soon as that reports. If our server did not listen yet, that would cost
        # PROBE_AGAIN.
        self._tried_to_open.wait()
        while True:
            with self._lock:
                if not self._report_again and (self._report is last or self._report is None):
                    self._lock.wait(self._settings.heartbeat if reached or self._report is None else RETRY_SECONDS)
                report, self._report_again = self._report, False
            if report is None:
                continue
            try:
                self._bring(json.dumps({**to_json(report), "life": self._life}).encode())
                last, reached, refused_since, again = report, True, 0.0, RETRY_SECONDS
                self._shortage.over()
                with self._lock:
                    if report is self._report:
                        self._delivered.set()
            except Refused as error:
                refused_since = refused_since or time.monotonic()
                coordinator = self._cluster.coordinator.name
                if error.status == FORBIDDEN:  # our name may not resolve there yet; other reasons stay
                    self._put(events.Answered(host=coordinator))
                else:
                    self._put(events.Rejected(host=coordinator, why=str(error)))
                if time.monotonic() - refused_since > self._settings.peer_timeout and str(error) != complaint:
                    complaint = str(error)
                    self._log(f"the coordinator refuses our report: {complaint}")
                time.sleep(RETRY_SECONDS)
            except (OSError, ValueError) as error:
                self._shortage.note(error)
                if isinstance(error, Unreachable):
                    self._put(events.Unreached(host=self._cluster.coordinator.name))
                reached = False
                self._drop_link()
                time.sleep(again)
                again = max(RETRY_SECONDS, min(2 * again, len(self._cluster.hosts) / TRIES))

    def _bring(self, report: bytes) -> None:
        """Send a report to the coordinator and read its answer; over our link, if there is one."""
        # The kernel repeats a lost answer for UNACKNOWLEDGED_MS at most: leave time for another attempt.
        patience = self._settings.peer_timeout / 2
        if link := self._link:
            with self._lock:
                self._answered, self._asked = False, time.monotonic()
            ended = None
            try:
                link.sendall(report + b"\n")
            except ConnectionError as error:
                ended = error  # _listen notices it, too, and puts the event: it is to come before we drop the link
            with self._lock:
                self._lock.wait_for(lambda: self._answered or self._link is not link, patience)
                if not self._answered:
                    raise ended or TimeoutError(f"no answer within {patience:g} s, or no link any more")
            return
        stay = time.monotonic() >= self._link_again
        answer = self._call(self._cluster.coordinator, "/report", report, timeout=patience, stay=stay)
        if answer.link:
            self._hold(answer.link, answer.rest)
        self._receive(answer.body, answer.asked, answer.received)

    def _receive(self, body: bytes, asked: float, received: float) -> None:
        """Put an event with the news in a message from the coordinator, such as its answer to a report."""
        data = json.loads(body)
        news = news_from_json(data)
        life = str(data.get("life", ""))
        with self._lock:  # two threads come here: with answers to POSTs, and with messages of the link
            self._coordinators_life = self._coordinators_life or life
            replaced = bool(life) and life != self._coordinators_life
            if "clock" in data and not replaced:
                self._clock.compare(asked, data["clock"], received)
                self._answered = True
                self._lock.notify_all()
            offset, error = self._clock.offset, self._clock.error
        coordinator = self._cluster.coordinator.name
        informed = events.Informed(news=news, offset=offset, error=error)
        self._put(events.Replaced(host=coordinator) if replaced else informed)

    def _hold(self, link: socket.socket, body: bytes) -> None:
        link.settimeout(None)
        self._link, self._link_again = link, time.monotonic() + self._settings.heartbeat
        try:
            threading.Thread(target=self._listen, args=(link, body), name="link", daemon=True).start()
        except RuntimeError:  # no thread is left: it goes on without a link
            self._link = None
            link.close()

    def _listen(self, link: socket.socket, body: bytes) -> None:
        """Read messages from our link until it ends. Then report at once, so that the coordinator notices us."""
        coordinator = self._cluster.coordinator.name
        ended: Event = events.LinkEnded(host=coordinator)
        with link:  # closed only when the end was put: to whoever reports meanwhile it is one that has ended
            with contextlib.suppress(Refused, ValueError):
                try:
                    for message in messages(link, body):
                        self._receive(message, self._asked, time.monotonic())
                except OSError:
                    ended = events.Unreached(host=coordinator)
            with self._lock:
                if self._link is link:
                    self._link = None
                    self._put(ended)
                    self._report_again = True
                    self._lock.notify_all()

    def _drop_link(self) -> None:
        """Close our link: the coordinator could not be reached, so the link may not lead to it any more."""
        with self._lock:
            link, self._link = self._link, None
        if link:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)  # this ends _listen

    def _serve(self) -> None:
        logging.getLogger("waitress").setLevel(logging.ERROR)
        me = self._cluster.me
        port = me.port(self._settings.control_port)
        listen = me.address if me.address.startswith("127.") else ""
        try:
            from entrypoint.launcher.control.server import ControlServer

            token, keep = self._settings.token, self._keep if self._cluster.is_coordinator else None
            news, routes = lambda: self._news, self._routes()
            control = Control(
                self._cluster, self._names, token, self._put, self._status, news, self._life, self._records, routes
            )
            shortage = Shortage(self._put if self._cluster.followers else lambda _: None)
            server = ControlServer(control, shortage, listen, port, keep)
        except Exception as error:  # no thread, descriptor or memory, for example
            if len(self._cluster.hosts) > 1:
                where, number = f"{listen or 'any address'} port {port}", getattr(error, "errno", None)
                reason = os.strerror(number) if number else error
                why = f"the control channel cannot listen on {where}: {reason}; set ENTRYPOINT_CONTROL_PORT"
                self._put(events.Broken(why=why, code=ExitCode.INTERNAL))
            return
        finally:
            self._tried_to_open.set()
        server.run()


def _in_json(news: News) -> bytes:
    return json.dumps(to_json(news)).encode()
