"""Test host_names.py: which host a caller is, and which addresses a host has, while names appear, vanish and change."""

import contextlib
import errno
import socket
import threading
import time

import pytest
from test_control import ADDRESS, CLUSTER, GOOD, Served
from waiting import eventually

from entrypoint.base.values import replace
from entrypoint.launcher.control.host_names import LOOKERS, LOOKS_BURST, LOOKS_RATE, HostNames, is_here
from entrypoint.launcher.job.cluster import Cluster, Host
from entrypoint.launcher.policy.events import Broken

NAMED = tuple(Host(name=name, rank=rank, address=name) for rank, name in enumerate(ADDRESS))


class Resolver:
    """A stand-in for getaddrinfo, with known names, names whose lookup never ends, and a list of all lookups."""

    def __init__(self, monkeypatch) -> None:
        self.known: dict[str, str] = {}
        self.asked: list[tuple[float, str]] = []
        self.slow: set[str] = set()
        self.free = threading.Event()
        monkeypatch.setattr("entrypoint.launcher.control.host_names.socket.getaddrinfo", self)

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


def names(me: int = 0, hosts=NAMED, **options) -> HostNames:
    made = HostNames(Cluster(hosts=hosts, me=hosts[me]), **options)
    made.expect_calls()
    return made


# --- callers ---


def test_host_is_accepted_once_its_name_resolves(resolver):
    served = Served(hosts=NAMED)
    assert served.call("/report", GOOD).status_code == 403
    resolver.known["algo-2"] = ADDRESS["algo-2"]
    eventually(lambda: served.call("/report", GOOD).status_code == 200, within=60)


def test_endless_lookup_does_not_delay_other_names(resolver):
    resolver.known, resolver.slow = dict(ADDRESS), {"algo-3"}
    found = names()
    eventually(lambda: found.hosts_at(ADDRESS["algo-2"]), within=60)
    began = time.monotonic()
    for _ in range(100):
        assert found.hosts_at("10.9.8.7") == frozenset()
    assert time.monotonic() - began < 30, "strangers waited for the resolver"
    resolver.known["algo-2"] = "127.44.0.77"
    eventually(lambda: found.hosts_at("127.44.0.77") == {"algo-2"}, within=60)


def test_coordinator_is_found_during_slow_lookups(resolver):
    # Names that only this test has: what tests before it left behind goes on to look for theirs.
    hosts = tuple(Host(name=f"many-{n}", rank=n, address=f"many-{n}") for n in range(40))
    resolver.slow = {host.name for host in hosts[1:]}
    made = HostNames(Cluster(hosts=hosts, me=hosts[39]))
    made.hosts_at("198.51.100.1")
    time.sleep(0.2)
    made.hosts_at("198.51.100.1")
    eventually(lambda: sum(name in resolver.slow for _, name in resolver.asked) == LOOKERS, within=60)
    resolver.known["many-0"] = ADDRESS["algo-1"]
    assert made.addresses_of(hosts[0], within=60) == [ADDRESS["algo-1"]]


def test_lookups_for_unknown_callers_are_limited(resolver):
    began = time.monotonic()
    found = names(hosts=tuple(Host(name=f"n{i}", rank=i, address=f"n{i}") for i in range(1000)))
    asked = 0
    while asked < 5000 or time.monotonic() < began + 1.0:
        assert found.hosts_at(f"10.0.{asked % 250}.1") == frozenset()
        asked += 1
    # Threads of other tests may still look for names of theirs.
    looked = sum(name.startswith("n") for _, name in list(resolver.asked))
    assert looked <= LOOKS_BURST + LOOKS_RATE * (time.monotonic() - began) + 1


def test_follower_looks_up_coordinator_first_and_callers_later(resolver):
    resolver.known = dict(ADDRESS)
    found = names(me=1)
    eventually(lambda: "algo-1" in [name for _, name in resolver.asked], within=60)
    assert not {"algo-2", "algo-3"} & {name for _, name in resolver.asked}
    eventually(lambda: found.hosts_at(ADDRESS["algo-3"]) == {"algo-3"}, within=60)


def test_hosts_given_by_address_are_never_looked_up(resolver):
    found = HostNames(CLUSTER)
    found.expect_calls()
    assert (found.hosts_at("127.44.0.3"), found.hosts_at("127.44.0.4")) == ({"algo-3"}, frozenset())
    # Threads of other tests may still look for names of theirs.
    assert not {name for _, name in resolver.asked} & set(ADDRESS.values())


# --- names of other hosts that lead to this one ---


@pytest.mark.parametrize(
    "address, leads", [("127.0.0.1", True), ("::1", True), ("127.0.1.1", True), ("127.44.0.3", False)]
)
def test_other_hosts_name_that_resolves_to_this_host_ends_job(resolver, address, leads, monkeypatch):
    """A host that is simulated on this machine may have a loopback address of its own, which ends no job."""
    monkeypatch.setattr("entrypoint.launcher.control.host_names.SURE_SECONDS", 0)  # the second look is enough
    resolver.known = {**ADDRESS, "algo-1": "127.0.0.1", "algo-3": address}  # its own name may lead here
    served = Served(hosts=NAMED)
    eventually(lambda: served.call("/report", GOOD).status_code == 200, within=60)
    broken = lambda: [event for event in served.events if isinstance(event, Broken)]  # noqa: E731
    eventually(lambda: broken() if leads else served.names.hosts_at(address), within=60)
    assert [(event.what, event.code) for event in broken()] == [("configuration", 78)] * leads
    if leads:
        why = broken()[0].why
        assert why.startswith(f"algo-3 leads to {address}, which is this host; wanted algo-3's own address")
        refused = served.call("/report", GOOD, caller="10.9.8.7")  # algo-3 itself, whose address is not known here
        assert (refused.status_code, why in refused.get_json()["error"]) == (409, True)


def test_wrong_dns_record_ends_the_job_only_after_two_seconds(resolver):
    """Only a name that resolves to this host twice, two seconds apart, ends the job. The second needs no caller."""
    resolver.known = {**ADDRESS, "algo-2": "127.0.0.1", "algo-3": "127.0.0.1"}
    now, told = [100.0], []
    found = names(clock=lambda: now[0])
    found.leads_here = lambda *misled: told.append(misled)
    eventually(lambda: {"algo-2", "algo-3"} <= set(found._suspects), within=60)
    resolver.known["algo-2"] = ADDRESS["algo-2"]
    now[0] += 1.9
    eventually(lambda: found.hosts_at(ADDRESS["algo-2"]) == {"algo-2"}, within=60)
    eventually(lambda: found._looked["algo-3"] == now[0], within=60)
    assert told == []
    now[0] += 0.6
    eventually(lambda: told == [("algo-3", "127.0.0.1")], within=60)


def test_hosts_with_different_ports_may_share_an_address(resolver):
    resolver.known = dict.fromkeys(ADDRESS, "127.0.0.1")
    told: list = []
    found = names(hosts=tuple(replace(host, ports_from=host.rank) for host in NAMED))
    found.leads_here = lambda *misled: told.append(misled)
    eventually(lambda: found.hosts_at("127.0.0.1") == set(ADDRESS), within=60)
    assert told == []


def test_network_cards_address_belongs_to_this_host():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no way to other machines")
        assert is_here(probe.getsockname()[0]) and not is_here("192.0.2.1")


def test_address_of_unsupported_family_belongs_to_another_host(monkeypatch):
    """The same holds if no more files can be opened: the names of other hosts are still looked up."""

    def lacking(*_):
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    monkeypatch.setattr("entrypoint.launcher.control.host_names.socket.socket", lacking)
    assert not is_here("2001:db8::1") and is_here("::1")


# --- whom we call ---


def addresses(found: HostNames) -> list[str]:
    with contextlib.suppress(OSError):
        return found.addresses_of(NAMED[1], within=20)
    return []


@pytest.mark.parametrize("gone", ["does not resolve", "takes for ever to resolve"])
def test_host_keeps_its_address_when_its_name_vanishes(resolver, gone):
    """The host may be unreachable for a while: in a network that is cut off, the name servers are unreachable, too."""
    resolver.known = {"algo-2": "127.0.0.1"}
    found = HostNames(Cluster(hosts=NAMED, me=NAMED[0]))
    assert addresses(found) == ["127.0.0.1"]
    resolver.known = {}
    resolver.slow = {"algo-2"} if gone == "takes for ever to resolve" else set()
    looked = len(resolver.asked)
    found.note_unreached(NAMED[1])
    eventually(lambda: len(resolver.asked) > looked, within=60)
    assert addresses(found) == ["127.0.0.1"]


def test_working_address_comes_first_and_moved_host_is_found(resolver):
    resolver.known = {"algo-2": "127.0.0.1"}
    found = HostNames(Cluster(hosts=NAMED, me=NAMED[0]))
    assert addresses(found) == ["127.0.0.1"]
    found.note_reached(NAMED[1], "127.0.0.9")
    assert addresses(found) == ["127.0.0.9", "127.0.0.1"]
    resolver.known = {"algo-2": "127.0.0.2"}
    found.note_unreached(NAMED[1])
    eventually(lambda: addresses(found) == ["127.0.0.2"], within=60)


@pytest.mark.parametrize("slow", [True, False])
def test_lookup_of_unknown_name_fails_within_its_timeout(resolver, slow):
    resolver.slow = {"algo-2"} if slow else set()
    with pytest.raises(OSError, match="no address of algo-2 within" if slow else "algo-2: no such name"):
        HostNames(Cluster(hosts=NAMED, me=NAMED[0])).addresses_of(NAMED[1], within=0.5 if slow else 60)


def test_caller_looks_up_names_itself_without_a_thread(resolver, monkeypatch):
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    resolver.known = {"algo-2": "127.0.0.1"}
    monkeypatch.setattr(threading.Thread, "start", start)
    assert addresses(HostNames(Cluster(hosts=NAMED, me=NAMED[0]))) == ["127.0.0.1"]
