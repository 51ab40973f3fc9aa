"""Test wire.py, handlers.py, access.py and server.py.

The application through a test client; the server on sockets of loopback; messages as JSON there and back.
"""

import contextlib
import errno
import http.client
import itertools
import json
import os
import queue
import random
import resource
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from builders import read
from hypothesis import given
from hypothesis import strategies as st
from waiting import eventually
from werkzeug.test import Client

from entrypoint.base.codec import plain
from entrypoint.base.values import replace
from entrypoint.launcher.control.access import (
    BURST,
    LOOKS_BURST,
    LOOKS_RATE,
    MESSAGE_BYTES,
    OPEN,
    PAID_BY_BYTES,
    Bucket,
    Callers,
    Limits,
    is_here,
)
from entrypoint.launcher.control.client import TOKEN_HEADER
from entrypoint.launcher.control.handlers import Control, parse
from entrypoint.launcher.control.server import ControlServer
from entrypoint.launcher.control.wire import PROTOCOL, Refused, news_from_json, report_from_json, to_json
from entrypoint.launcher.host.resource_limits import Shortage
from entrypoint.launcher.job.cluster import Cluster, Host
from entrypoint.launcher.outcome.outcome import Cause, Confidence, Exit, failed, stopped, succeeded
from entrypoint.launcher.policy.events import Broken, Informed, News, Reach, Rejected, Report, Reported

ADDRESS = {"algo-1": "127.44.0.1", "algo-2": "127.44.0.2", "algo-3": "127.44.0.3"}
HOSTS = tuple(Host(name=name, rank=rank, address=address) for rank, (name, address) in enumerate(ADDRESS.items()))
CLUSTER = Cluster(hosts=HOSTS, me=HOSTS[0])
CAUSE = Cause(host="algo-2", process="worker/0", what="exit code 1", error="ValueError: x", code=1)
REPORT = Report(
    host="algo-2",
    ready=frozenset({"prepare"}),
    public_keys=(("known_hosts", "ssh-ed25519 A"),),
    done=True,
    clean=False,
    cause=CAUSE,
)
NEWS = News(
    ready=frozenset({("*", "prepare"), ("algo-1", "chief/0")}),
    public_keys=(("k", "ssh-ed25519 B="),),
    stopping=True,
    outcome=failed(CAUSE),
)


class Served:
    """The application of algo-1, and what it puts into the queue."""

    def __init__(self, token: str = "", news: News = NEWS, me: str = "algo-1", hosts=HOSTS, life: str = "") -> None:
        self.events: list = []
        self.status = lambda: {"phase": "running"}
        cluster = Cluster(hosts=hosts, me=next(host for host in hosts if host.name == me))
        told = json.dumps(to_json(news)).encode()
        self.client = Client(Control(cluster, token, self.events.append, lambda: self.status(), lambda: told, life))

    def call(self, path: str, body=None, *, caller: str = "algo-2", method: str = "POST", **options):
        address = ADDRESS.get(caller, caller)
        options.setdefault("data" if isinstance(body, (str, bytes)) else "json", body)
        if isinstance(body, (str, bytes)):
            options.setdefault("content_type", "application/json")
        return self.client.open(path, method=method, environ_base={"REMOTE_ADDR": address}, **options)


def test_a_report_is_answered_with_the_news():
    served = Served()
    answer = served.call("/report", to_json(REPORT))
    assert answer.status_code == 200
    assert news_from_json(answer.get_json()) == NEWS
    assert served.events == [Reported(report=REPORT)]


SERVES = """
import http.client, json, sys, threading, urllib.request
from entrypoint.launcher.job.cluster import Cluster, Host
from entrypoint.launcher.control.handlers import Control
from entrypoint.launcher.control.server import ControlServer
from entrypoint.launcher.host.resource_limits import Shortage
from entrypoint.launcher.policy.events import News, Report
from entrypoint.launcher.control.wire import to_json

hosts = tuple(Host(name=f"algo-{n + 1}", rank=n, address=f"127.0.0.{n + 1}") for n in range(2))
cluster = Cluster(hosts=hosts, me=hosts[0])
control = Control(cluster, "", print, lambda: {"phase": "running"}, lambda: json.dumps(to_json(News())).encode())
door = ControlServer(control, Shortage(print), hosts[0].address, 0)
threading.Thread(target=door.run, daemon=True).start()
where = ("127.0.0.1", door.socket.getsockname()[1])
caller = http.client.HTTPConnection(*where, source_address=("127.0.0.2", 0))
caller.request("POST", "/report", json.dumps(to_json(Report(host="algo-2"))))
print(caller.getresponse().status)
for _ in range(2):
    print(urllib.request.urlopen("http://{}:{}/status".format(*where)).read().decode().strip())
print("flask" in sys.modules)
"""


def test_flask_is_not_imported_even_when_people_ask():
    """Importing Flask takes longer than importing anything else that answers people."""
    told = subprocess.run(
        [sys.executable, "-c", SERVES], capture_output=True, text=True, timeout=240, check=True
    ).stdout
    assert told.splitlines()[1:] == ["200", '{"phase":"running"}', '{"phase":"running"}', "False"]


def test_news_are_taken_from_the_coordinator():
    served = Served(me="algo-2")
    assert served.call("/news", to_json(NEWS), caller="algo-1").status_code == 200
    assert served.events == [Informed(news=NEWS)]


GOOD = {**plain(REPORT), **to_json(REPORT)}  # with the fields that may be missing, too
BAD_REPORTS = {
    # body: what the answer has to say
    "no protocol": ({k: v for k, v in GOOD.items() if k != "protocol"}, "malformed"),
    "not a host of the job": ({**GOOD, "host": "algo-9"}, "'algo-9' is not a follower"),
    "the coordinator itself": ({**GOOD, "host": "algo-1"}, "'algo-1' is not a follower"),
    "another host's name": ({**GOOD, "host": "algo-3"}, "127.44.0.2 is not algo-3"),
    "missing field": ({k: v for k, v in GOOD.items() if k != "host"}, "malformed"),
    "wrong type": ({**GOOD, "ready": 5}, "malformed"),
    "wrong cards": ({**GOOD, "public_keys": [["one"]]}, "malformed"),
    "a public key of two lines": (
        {**GOOD, "public_keys": [["known_hosts", "ssh-ed25519 A\nssh-rsa B"]]},
        "no public key",
    ),
    "a public key with options": (
        {**GOOD, "public_keys": [["authorized_keys", 'pty,command="id" ssh-rsa B']]},
        "no public key",
    ),
    "wrong cause": ({**GOOD, "cause": {"host": "algo-2"}}, "malformed"),
    "cause without number": ({**GOOD, "cause": {**GOOD["cause"], "code": "x"}}, "malformed"),
    "an infinite number": ({**GOOD, "cause": {**GOOD["cause"], "code": float("inf")}}, "malformed"),
    "no number": (json.dumps(GOOD).replace('"exits": []', '"exits": [["a", "b", NaN]]'), "malformed"),
    "a number beyond all numbers": (
        json.dumps(GOOD).replace('"exits": []', '"exits": [["a", "b", 1e999]]'),
        "malformed",
    ),
    "an integer of 5,000 digits": (
        json.dumps(GOOD).replace('"attempt": 0', '"attempt": ' + "9" * 5000),
        "wanted a JSON object",
    ),
    "an attempt that is a text": ({**GOOD, "attempt": "x"}, "malformed"),
    "a truth that is none": ({**GOOD, "done": "false"}, "malformed"),
    "the same key twice": (json.dumps(GOOD)[:-1] + ', "host": "algo-2"}', "the same key twice"),
    "a list": ([1, 2], "malformed"),
    "a text": ('"hello"', "malformed"),
    "a number": ("5", "malformed"),
    "null": ("null", "malformed"),
    "nothing": ("", "wanted a JSON object"),
    "not JSON": ("{", "wanted a JSON object"),
    "not text": (b"\xff\xfe\x00", "wanted a JSON object"),
}


@pytest.mark.parametrize("body, said", BAD_REPORTS.values(), ids=BAD_REPORTS)
def test_bad_reports_are_refused_and_change_nothing(body, said):
    served = Served()
    answer = served.call("/report", body)
    assert answer.status_code == 400
    assert said in answer.get_json()["error"]
    assert served.events == []


BAD_NEWS = {
    "success with exit code 1": {**to_json(NEWS), "outcome": {"kind": "succeeded", "exit_code": 1, "cause": None}},
    "failure with exit code 0": {**to_json(NEWS), "outcome": {"kind": "failed", "exit_code": 0, "cause": None}},
    "failure with an exit code that is 0 to the kernel": {
        **to_json(NEWS),
        "outcome": {"kind": "failed", "exit_code": 256, "cause": None},
    },
    "failure with a negative exit code": {
        **to_json(NEWS),
        "outcome": {"kind": "failed", "exit_code": -256, "cause": None},
    },
    "odd kind": {**to_json(NEWS), "outcome": {"kind": "maybe", "exit_code": 1, "cause": None}},
    "another protocol": {**to_json(NEWS), "protocol": "1"},
    "wrong ready": {**to_json(NEWS), "ready": [1]},
}


@pytest.mark.parametrize("body", BAD_NEWS.values(), ids=BAD_NEWS)
def test_bad_news_are_refused(body):
    served = Served(me="algo-2")
    assert served.call("/news", body, caller="algo-1").status_code == 400
    assert served.events == []


def test_a_follower_takes_no_report():
    """The sender takes it for the coordinator, since it read other groups or settings; the answer reports that."""
    served = Served(me="algo-3")
    answer = served.call("/report", to_json(REPORT))
    assert answer.status_code == 400
    assert "algo-3 takes algo-1 for the coordinator; groups and settings must be the same" in answer.get_json()["error"]
    assert served.events == []


def test_news_from_a_follower_are_refused():
    served = Served(me="algo-2")
    assert served.call("/news", to_json(NEWS), caller="algo-3").status_code == 400
    assert served.events == []


@pytest.mark.parametrize("path, method", [("/report", "POST"), ("/news", "POST"), ("/status", "GET"), ("/x", "GET")])
@pytest.mark.parametrize("caller", ["10.1.2.3", "127.44.0.9", "::1", "127.0.0.1", ""])
def test_strangers_are_turned_away(path, method, caller):
    served = Served()
    answer = served.call(path, GOOD if method == "POST" else None, caller=caller, method=method)
    if method == "GET" and caller in ("127.0.0.1", "::1"):  # people on the host itself may look
        assert answer.status_code == (200 if path == "/status" else 404)
    else:
        assert answer.status_code == 403
    assert served.events == []


def test_what_a_stranger_says_of_itself_changes_nothing():
    """Headers that a proxy would set, or the name of one of our hosts, do not make the sender a host."""
    served = Served()
    headers = {"X-Forwarded-For": ADDRESS["algo-2"], "Forwarded": f"for={ADDRESS['algo-2']}", "Host": "algo-1"}
    assert served.call("/report", GOOD, caller="10.1.2.3", headers=headers).status_code == 403
    assert served.events == []


@pytest.mark.parametrize("shown, code", [("right", 200), ("wrong", 401), ("", 401), ("r\u00efght", 401), (None, 401)])
def test_token(shown, code):
    served = Served(token="right")
    headers = {} if shown is None else {TOKEN_HEADER: shown}
    assert served.call("/report", GOOD, headers=headers).status_code == code
    assert served.call("/status", method="GET", headers=headers).status_code == code
    if code == 200:
        assert served.events == [Reported(report=REPORT)]
    else:
        (event,) = served.events
        assert (event.host, "ENTRYPOINT_TOKEN" in event.why) == ("algo-2", True)
        assert ("wrong" if shown else "missing") in event.why
        assert "right" not in event.why


def test_a_recorded_report_says_nothing_without_the_token_nor_from_elsewhere():
    served = Served(token="right")
    recorded = json.dumps(GOOD).encode()
    assert served.call("/report", recorded, headers={TOKEN_HEADER: "right"}).status_code == 200
    assert served.call("/report", recorded).status_code == 401
    assert served.call("/report", recorded, caller="algo-3", headers={TOKEN_HEADER: "right"}).status_code == 400
    assert served.call("/report", recorded, caller="127.44.0.9", headers={TOKEN_HEADER: "right"}).status_code == 403
    assert [event for event in served.events if isinstance(event, Reported)] == [Reported(report=REPORT)]


# --- hosts of the job that are refused for what will not change ---


def test_a_host_that_speaks_another_protocol_is_an_event():
    served = Served()
    answer = served.call("/report", {**GOOD, "protocol": PROTOCOL + 1})
    assert answer.status_code == 400
    assert "must run the same image" in answer.get_json()["error"]
    assert served.events == [Rejected(host="algo-2", why=answer.get_json()["error"])]


class Slow(str):
    """A name that takes a while to look up, so that other threads run in between."""

    def __hash__(self) -> int:
        time.sleep(0.002)
        return super().__hash__()


def test_a_host_that_several_threads_refuse_at_once_is_one_event():
    """The server's threads and the reader of links do."""
    served = Served(token="right", hosts=[replace(host, name=Slow(host.name)) for host in HOSTS])
    refuse = partial(served.client.application.answer, "POST", "/report", ADDRESS["algo-2"], "wrong", b"")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: refuse(), range(8)))
    assert {status for status, *_ in answers} == {401}
    assert len(served.events) == 1


def test_a_refused_host_is_an_event_once_a_second_at_most():
    served, began = Served(), time.monotonic()
    for caller in ("algo-2", "algo-3") * 20:
        assert served.call("/report", {**GOOD, "protocol": "1"}, caller=caller).status_code == 400
    told = Counter(event.host for event in served.events)
    assert set(told) == {"algo-2", "algo-3"}
    assert max(told.values()) <= 1 + int(time.monotonic() - began)


@pytest.mark.parametrize("body", ["{", "[]", {**GOOD, "protocol": None}, {"host": "algo-2"}], ids=repr)
def test_garbage_from_a_host_is_no_event(body):
    served = Served()
    assert served.call("/report", body).status_code == 400
    assert served.events == []


def test_strangers_and_lookers_with_the_wrong_token_are_no_event():
    served = Served(token="right")
    wrong = {TOKEN_HEADER: "wrong"}
    assert served.call("/report", GOOD, caller="10.0.0.1", headers=wrong).status_code == 403
    assert served.call("/status", method="GET", headers=wrong).status_code == 401
    assert served.call("/report", GOOD, caller="127.0.0.1", headers=wrong).status_code == 403
    assert served.events == []


def test_a_follower_makes_no_event_of_it():
    """On a follower, the coordinator's answer to its own report reports it."""
    served = Served(me="algo-2", token="right")
    assert served.call("/report", GOOD, caller="algo-3").status_code == 401
    assert served.call("/news", to_json(NEWS), caller="algo-1").status_code == 401
    assert served.events == []


# --- names and addresses ---

NAMED = tuple(Host(name=name, rank=rank, address=name) for rank, name in enumerate(ADDRESS))


class Resolver:
    """A stand-in for getaddrinfo: known names, counts of lookups, and names whose lookup never ends."""

    def __init__(self, monkeypatch) -> None:
        self.known: dict[str, str] = {}
        self.asked: list[tuple[float, str]] = []
        self.slow: set[str] = set()
        self.free = threading.Event()
        monkeypatch.setattr("entrypoint.launcher.control.access.socket.getaddrinfo", self)

    def __call__(self, name, *_, **__):
        self.asked.append((time.monotonic(), name))
        if name in self.slow:
            self.free.wait(60)
        if name not in self.known:
            raise OSError("no such name")
        return [(2, 1, 6, "", (self.known[name], 0))]


@pytest.fixture
def resolver(monkeypatch):
    made = Resolver(monkeypatch)
    yield made
    made.free.set()


def test_a_name_that_resolves_late_is_a_host_from_then_on(resolver):
    served = Served(hosts=NAMED)
    assert served.call("/report", GOOD).status_code == 403
    resolver.known["algo-2"] = ADDRESS["algo-2"]
    eventually(lambda: served.call("/report", GOOD).status_code == 200, within=60)


def test_a_host_that_comes_back_with_another_address_is_known_again(resolver):
    resolver.known = dict(ADDRESS)
    served = Served(hosts=NAMED)
    eventually(lambda: served.call("/report", GOOD).status_code == 200, within=60)
    resolver.known["algo-2"] = "127.44.0.77"
    eventually(lambda: served.call("/report", GOOD, caller="127.44.0.77").status_code == 200, within=60)


def test_a_name_that_takes_for_ever_keeps_no_other_waiting(resolver):
    resolver.known, resolver.slow = dict(ADDRESS), {"algo-3"}
    served = Served(hosts=NAMED)
    eventually(lambda: served.call("/report", GOOD).status_code == 200, within=60)
    began = time.monotonic()
    for _ in range(100):
        assert served.call("/report", GOOD, caller="10.9.8.7").status_code == 403
    assert time.monotonic() - began < 30, "strangers waited for the resolver"


def test_a_flood_of_strangers_is_no_flood_of_lookups(resolver):
    count = 1000
    began = time.monotonic()
    callers = Callers(
        Cluster(hosts=(hosts := tuple(Host(name=f"n{i}", rank=i, address=f"n{i}") for i in range(count))), me=hosts[0])
    )
    asked = 0
    while asked < 5000 or time.monotonic() < began + 1.0:
        assert callers.hosts_at(f"10.0.{asked % 250}.1") == frozenset()
        asked += 1
    # Threads of other tests may still look for names of theirs.
    looked = sum(name in callers._names for _, name in list(resolver.asked))
    assert looked <= LOOKS_BURST + LOOKS_RATE * (time.monotonic() - began) + 1


def test_a_follower_looks_for_the_coordinator_first_and_for_others_when_they_call(resolver):
    resolver.known = dict(ADDRESS)
    callers = Callers(Cluster(hosts=NAMED, me=NAMED[1]))
    eventually(lambda: "algo-1" in [name for _, name in resolver.asked], within=60)
    assert not {"algo-2", "algo-3"} & {name for _, name in resolver.asked}
    eventually(lambda: callers.hosts_at(ADDRESS["algo-3"]) == {"algo-3"}, within=60)


@pytest.mark.parametrize(
    "address, leads", [("127.0.0.1", True), ("::1", True), ("127.0.1.1", True), ("127.44.0.3", False)]
)
def test_a_name_of_another_host_that_leads_here_ends_the_job(resolver, address, leads, monkeypatch):
    """But each host that is simulated on this machine may have a loopback address of its own."""
    monkeypatch.setattr("entrypoint.launcher.control.access.SURE_SECONDS", 0)  # the second look is enough
    resolver.known = {**ADDRESS, "algo-1": "127.0.0.1", "algo-3": address}  # its own name may lead here
    served = Served(hosts=NAMED)
    eventually(lambda: served.call("/report", GOOD).status_code == 200, within=60)
    found = served.client.application.callers._found
    eventually(lambda: any(isinstance(e, Broken) for e in served.events) if leads else "algo-3" in found, within=60)
    told = [event for event in served.events if isinstance(event, Broken)]
    assert [(event.what, event.code) for event in told] == [("configuration", 78)] * leads
    if leads:
        assert told[0].why.startswith(f"algo-3 leads to {address}, which is this host; wanted algo-3's own address")
        refused = served.call("/report", GOOD, caller="10.9.8.7")  # algo-3 itself, whose address is not known here
        assert (refused.status_code, told[0].why in refused.get_json()["error"]) == (409, True)


def test_a_record_that_leads_here_may_be_corrected(resolver):
    """Only a name that leads here at two looks, two seconds apart, ends the job. Nobody needs to ask in between."""
    resolver.known = {**ADDRESS, "algo-2": "127.0.0.1", "algo-3": "127.0.0.1"}
    now, told = [100.0], []
    callers = Callers(Cluster(hosts=NAMED, me=NAMED[0]), lambda *found: told.append(found), lambda: now[0])
    eventually(lambda: {"algo-2", "algo-3"} <= set(callers._suspects), within=60)
    resolver.known["algo-2"] = ADDRESS["algo-2"]
    now[0] += 1.9
    eventually(lambda: callers.hosts_at(ADDRESS["algo-2"]) == {"algo-2"}, within=60)
    eventually(lambda: callers._looked["algo-3"] == now[0], within=60)
    assert told == []
    now[0] += 0.6
    eventually(lambda: told == [("algo-3", "127.0.0.1")], within=60)


def test_hosts_that_share_a_machine_and_differ_in_their_ports_do_not_lead_to_one_another(resolver):
    resolver.known = dict.fromkeys(ADDRESS, "127.0.0.1")
    hosts, told = tuple(replace(host, ports_from=host.rank) for host in NAMED), []
    callers = Callers(Cluster(hosts=hosts, me=hosts[0]), lambda *found: told.append(found))
    eventually(lambda: callers.hosts_at("127.0.0.1") == set(ADDRESS), within=60)
    assert told == []


def test_an_address_of_a_card_of_this_host_is_here():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no way to other machines")
        assert is_here(probe.getsockname()[0]) and not is_here("192.0.2.1")


def test_an_address_of_a_family_that_the_kernel_lacks_is_not_here(monkeypatch):
    """Or if no more files can be opened: the names of other hosts are looked up all the same."""

    def lacking(*_):
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    monkeypatch.setattr("entrypoint.launcher.control.access.socket.socket", lacking)
    assert not is_here("2001:db8::1") and is_here("::1")


def test_our_own_report_is_told_from_that_of_a_host_with_other_groups():
    served = Served(me="algo-2", life="1f")
    for life, said in (("1f", "algo-1 leads to 127.44.0.2, which is this host"), ("2e", "algo-2 takes algo-1 for")):
        refused = served.call("/report", {**to_json(REPORT), "life": life})
        assert refused.get_json()["error"].startswith(said)


def test_hosts_given_by_address_are_never_looked_up(resolver):
    assert Callers(CLUSTER).hosts_at("127.44.0.3") == {"algo-3"}
    assert Callers(CLUSTER).hosts_at("127.44.0.4") == frozenset()
    # Threads of other tests may still look for names of theirs.
    assert not {name for _, name in resolver.asked} & set(ADDRESS.values())


# --- rates ---


def test_a_bucket():
    now = 0.0
    bucket = Bucket(rate=10, burst=5, clock=lambda: now)
    assert [bucket.take() for _ in range(7)] == [True] * 5 + [False] * 2
    now = 0.25
    assert [bucket.take() for _ in range(4)] == [True] * 2 + [False] * 2
    bucket.charge(1000 * PAID_BY_BYTES)  # no more debt than one burst
    now = 0.7
    assert not bucket.take()
    now = 1.0
    assert bucket.take()
    now = 1000.0
    assert [bucket.take() for _ in range(7)] == [True] * 5 + [False] * 2


def test_each_host_has_a_bucket_and_all_strangers_one():
    limits = Limits(Callers(CLUSTER))
    parties = [limits.party(address) for address in (*ADDRESS.values(), "127.0.0.1", "10.0.0.1", "10.0.0.2")]
    assert parties == [*ADDRESS.values(), "127.0.0.1", "", ""]
    assert sum(limits.of("").take() for _ in range(1000)) < 100
    assert sum(limits.of("127.44.0.2").take() for _ in range(1000)) >= BURST
    assert limits.of("127.44.0.3").take()


def test_big_messages_count_for_many():
    limits = Limits(Callers(CLUSTER))
    limits.of("127.44.0.2").charge(int(2 * BURST * PAID_BY_BYTES))
    assert not limits.of("127.44.0.2").take()
    assert limits.of("127.44.0.3").take()


# --- the server, on sockets ---


class Listening:
    """The server of algo-1 on a net of loopback addresses of its own; its event queue."""

    def __init__(self, token: str = "") -> None:
        net = f"127.{random.randint(16, 250)}.{random.randint(1, 250)}"
        self.addresses = {name: f"{net}.{number}" for number, name in enumerate(ADDRESS, 1)}
        self.stranger = f"{net}.99"
        hosts = tuple(Host(name=n, rank=rank, address=a) for rank, (n, a) in enumerate(self.addresses.items()))
        self.events: list = []
        with socket.socket() as free:
            free.bind((self.addresses["algo-1"], 0))
            self.port = free.getsockname()[1]
        told = json.dumps(to_json(News())).encode()
        cluster = Cluster(hosts=hosts, me=hosts[0])
        control = Control(cluster, token, self.events.append, lambda: {"phase": "running"}, lambda: told)
        self.door = ControlServer(control, Shortage(self.events.append), self.addresses["algo-1"], self.port)
        self.thread = threading.Thread(target=self.door.run, daemon=True)
        self.thread.start()

    def connect(self, caller: str) -> socket.socket:
        source = (self.addresses.get(caller, caller), 0)
        return socket.create_connection((self.addresses["algo-1"], self.port), timeout=20, source_address=source)

    def report(self, caller: str, body: bytes | None = None) -> int:
        """Return the status of the answer to a report; 0 if the connection is closed without one."""
        body = json.dumps(to_json(Report(host=caller))).encode() if body is None else body
        head = f"POST /report HTTP/1.1\r\nHost: algo-1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        return self.send(caller, head + body)

    def send(self, caller: str, data: bytes) -> int:
        try:
            with self.connect(caller) as connection:
                connection.sendall(data)
                answer = http.client.HTTPResponse(connection)
                answer.begin()
                answer.read()
                return answer.status
        except (OSError, http.client.HTTPException):
            return 0


@pytest.fixture
def listening():
    made = Listening()
    yield made
    made.door.close()


def test_the_server_hears_hosts_and_turns_strangers_away(listening):
    assert listening.report("algo-2") == 200
    assert listening.report(listening.stranger) == 403
    assert [type(event) for event in listening.events] == [Reported]


ODD = {
    # what a host sends: what it is told; 0 if the connection is closed
    "garbage": (b"\x00\xff\x13\x37" * 100 + b"\r\n\r\n", {400}),
    "no version": (b"GET /status\r\n\r\n", {200, 400}),
    "version 9": (b"GET /status HTTP/9.9\r\n\r\n", {200, 400, 505}),
    "a method of its own": (b"BREW /report HTTP/1.1\r\n\r\n", {405}),
    "PUT": (b"PUT /report HTTP/1.1\r\nContent-Length: 0\r\n\r\n", {405}),
    "DELETE": (b"DELETE /news HTTP/1.1\r\n\r\n", {405}),
    "CONNECT": (b"CONNECT algo-2:22 HTTP/1.1\r\n\r\n", {400, 404, 405}),
    "another path": (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", {404}),
    "a whole address": (b"GET http://169.254.169.254/latest HTTP/1.1\r\n\r\n", {404}),
    "negative length": (b"POST /report HTTP/1.1\r\nContent-Length: -1\r\n\r\n", {400}),
    "two lengths": (b"POST /report HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", {400}),
    "length and chunks": (
        b"POST /report HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        {400},
    ),
    "bad chunks": (b"POST /report HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", {400}),
    "more than a message": (b"POST /report HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", {413}),
    "a long head": (b"GET /status HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", {0, 400, 431}),
    "deep JSON": (b"POST /report HTTP/1.1\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200_000, {400}),
}


@pytest.mark.parametrize("data, answers", ODD.values(), ids=ODD)
def test_odd_requests_are_answered_and_the_next_host_is_heard(listening, data, answers, capfd):
    assert listening.send("algo-2", data) in answers
    assert listening.report("algo-3") == 200
    assert [event.report.host for event in listening.events] == ["algo-3"]
    assert capfd.readouterr().err == "", "hostile requests must not fill the log"


def test_one_request_per_connection(listening):
    """Otherwise the limit on connections would not limit requests."""
    one = b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n"
    with listening.connect("algo-2") as connection:
        connection.sendall(one * 100)
        got = b""
        with contextlib.suppress(ConnectionResetError):
            while block := connection.recv(1 << 16):
                got += block
    assert got.count(b"HTTP/1.1 200") == 1


def test_half_requests_are_given_up_however_slowly_they_go_on(listening, monkeypatch):
    monkeypatch.setattr("entrypoint.launcher.control.server._LONGEST_SECONDS", 2.0)
    with listening.connect("algo-2") as connection:
        began = time.monotonic()

        def closed() -> bool:
            try:
                connection.sendall(b"X")
            except OSError:
                return True
            return False

        eventually(closed, within=60)
        assert time.monotonic() - began > 1


@pytest.mark.parametrize("jump", [-7200, 7200])
def test_a_clock_that_is_set_harms_no_request(listening, monkeypatch, jump):
    """Forwards, it would close every connection; backwards, keep half a request for hours."""
    real = time.time
    monkeypatch.setattr("entrypoint.launcher.control.server._LONGEST_SECONDS", 600.0)

    def has_looked() -> None:
        before = listening.door._look_at
        eventually(lambda: listening.door._look_at > before, within=60)

    with listening.connect("algo-2") as half, listening.connect("algo-2") as whole:
        body = json.dumps(GOOD).encode()
        head = b"POST /report HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        for connection in (half, whole):
            connection.settimeout(60)
            connection.sendall(head)
        has_looked()
        monkeypatch.setattr(time, "time", lambda: real() + jump)
        has_looked()
        has_looked()  # begun after the clock was set
        whole.sendall(body)
        assert whole.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        monkeypatch.setattr("entrypoint.launcher.control.server._LONGEST_SECONDS", 0.1)
        assert half.recv(1 << 16) == b""  # it is given up all the same


def test_more_files_than_select_can_hold(listening):
    """Many hosts may call at once; select() ends at 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("needs a limit of 2048 open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    held = [os.dup(0) for _ in range(1100)]
    try:
        assert [listening.report("algo-2") for _ in range(3)] == [200] * 3
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("whose", ["stranger", "algo-2"])
def test_open_connections_of_one_caller_are_few_and_others_come_in(listening, whose):
    caller = listening.stranger if whose == "stranger" else whose
    held = [listening.connect(caller) for _ in range(200)]
    try:
        assert listening.report("algo-3") == 200
        assert len(listening.door.active_channels) <= OPEN + 1
        if whose == "stranger":
            assert listening.report("algo-2") == 200
    finally:
        for connection in held:
            connection.close()
    eventually(lambda: listening.report("algo-2") == 200, within=60)


@pytest.mark.parametrize("whose", ["stranger", "algo-2"])
def test_a_flood_does_not_keep_others_from_being_heard(listening, whose):
    caller = listening.stranger if whose == "stranger" else whose
    over = threading.Event()
    sent = itertools.count()

    def flood() -> None:
        while not over.is_set():
            listening.report(caller, b"[1," * 100_000)
            next(sent)

    floods = [threading.Thread(target=flood, daemon=True) for _ in range(4)]
    for each in floods:
        each.start()
    try:
        answers = [listening.report("algo-3") for _ in range(25)]
        eventually(lambda: next(sent) > 100, within=60)
        answers += [listening.report("algo-3") for _ in range(25)]
    finally:
        over.set()
        for each in floods:
            each.join(timeout=60)
    assert answers == [200] * 50
    assert {event.report.host for event in listening.events} == {"algo-3"}


def test_people_who_look_cannot_use_up_the_server():
    """A supervisor that does not answer holds two threads at most."""
    held = threading.Event()
    served = Served()

    def slow():
        held.wait(60)
        return {}

    served.status = slow
    lookers = [threading.Thread(target=served.call, args=("/status",), kwargs={"method": "GET"}) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        eventually(lambda: served.call("/status", method="GET").status_code == 503, within=60)
        assert served.call("/report", GOOD).status_code == 200
    finally:
        held.set()
        for looker in lookers:
            looker.join(timeout=60)


def test_too_much_is_not_read():
    served = Served()
    assert served.call("/report", {**GOOD, "host": "x" * (MESSAGE_BYTES + 1)}).status_code in (400, 413)
    assert served.events == []


def test_json_that_is_too_deep_does_no_harm():
    served = Served()
    assert served.call("/report", "[" * 200_000).status_code == 400
    assert served.events == []


def test_status():
    served = Served()
    answer = served.call("/status", method="GET")
    assert (answer.status_code, answer.get_json()) == (200, {"phase": "running"})

    def busy():
        raise queue.Empty

    served.status = busy
    assert served.call("/status", method="GET").status_code == 503
    assert served.call("/status").status_code == 405


def test_a_token_of_the_settings_reaches_the_application(tmp_path):
    assert read(tmp_path, 2, {"sagemaker_entrypoint_token": '"abc"'}).settings.token == "abc"


texts = st.text(max_size=20)
pairs = st.tuples(texts, texts)
public_keys = st.lists(st.tuples(texts, st.sampled_from(["ssh-ed25519 AAAA+/9==", "ssh-rsa B"]))).map(tuple)
times = st.floats(allow_nan=False, allow_infinity=False)
causes = st.builds(
    Cause, host=texts, process=texts, what=texts, error=texts, details=texts, code=st.integers(1, 255),
    confidence=st.sampled_from(Confidence), restartable=st.booleans(),
    exit=st.none() | st.builds(Exit, code=st.integers(0, 255), signal=st.none() | st.integers(1, 64)),
)  # fmt: skip
reports = st.builds(
    Report, host=st.sampled_from(["algo-2", "algo-3"]), attempt=st.integers(0, 99), ready=st.frozensets(texts),
    public_keys=public_keys, fingerprints=st.lists(pairs).map(tuple),
    unreached=st.lists(st.builds(Reach, host=texts, address=texts, why=texts)).map(tuple),
    done=st.booleans(), clean=st.booleans(), lingering=st.booleans(), stopping=st.booleans(),
    cause=st.none() | causes, cause_at=st.none() | times,
    stopping_at=st.none() | times, clock_error=times, rests=st.none() | times,
    exits=st.lists(st.tuples(texts, texts, times)).map(tuple), ack=st.integers(0, 99), gone=st.booleans(),
)  # fmt: skip
news = st.builds(
    News, attempt=st.integers(0, 99), go=st.booleans(), ready=st.frozensets(pairs), public_keys=public_keys,
    assembled=st.booleans(), poll=st.integers(0, 99), stopping=st.booleans(),
    outcome=st.none() | st.just(succeeded()) | st.just(stopped()) | causes.map(failed),
)  # fmt: skip


@given(reports, news)
def test_messages_there_and_back(report, tidings):
    assert report_from_json(parse(json.dumps(to_json(report)).encode()), {"algo-2", "algo-3"}) == report
    assert news_from_json(parse(json.dumps(to_json(tidings)).encode())) == tidings


@given(st.binary() | st.text().map(str.encode))
def test_no_bytes_whatever_are_worse_than_refused(data):
    with contextlib.suppress(Refused):
        parse(data)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*GOOD, "outcome"]), inner),
    max_leaves=20,
)


@given(anything, st.booleans())
def test_no_message_whatever_is_worse_than_refused(data, known):
    if isinstance(data, dict) and known:
        data = {**GOOD, **data, "protocol": PROTOCOL}
    for read_it in (lambda: report_from_json(data, {"algo-2", "algo-3"}), lambda: news_from_json(data)):
        with contextlib.suppress(Refused):
            read_it()
