"""Identify callers by the addresses of the job's hosts, and limit how much each address may ask for."""

import ipaddress
import socket
import threading
import time
from collections.abc import Callable

from entrypoint.launcher.job.cluster import Cluster

LOOPBACK = ("127.0.0.1", "::1")  # people on the host itself

# A host sends a heartbeat a second and a report for each change; while it is refused, 20 reports a second.
RATE, BURST = 100.0, 200.0  # requests a second of one address, and at once
MESSAGE_BYTES = 1 << 20  # bytes
PAID_BY_BYTES = 1 << 14  # bytes of a message that count as one more request
STRANGERS_RATE, STRANGERS_BURST = 20.0, 40.0  # of all strangers together: while they are few, they get an answer
OPEN = 32  # open connections of one address, and of all strangers together

LOOKERS = 8  # names that are looked up in parallel; one that does not resolve can take 10 s
LOOKS_RATE, LOOKS_BURST = 100.0, 100.0  # lookups a second, and at once
LOOK_AGAIN_SECONDS = 0.5  # seconds until the same name is looked up again
SURE_SECONDS = 2.0  # seconds for which a name must lead to this host: a stale record may be corrected in that time


class Bucket:
    """Limit requests to a rate, with a burst. `charge` may put it into debt by as much as the burst."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left, self._at = burst, clock()
        self._lock = threading.Lock()

    def take(self, size: int = 0) -> bool:
        """Return whether one more request is allowed, and take what it and its message of so many bytes cost."""
        with self._lock:
            self._fill()
            if self._left < 1:
                return False
            self._left = max(-self._burst, self._left - 1 - size / PAID_BY_BYTES)
            return True

    def charge(self, size: int) -> None:
        """Take what a message of so many bytes costs, which was read already."""
        with self._lock:
            self._fill()
            self._left = max(-self._burst, self._left - size / PAID_BY_BYTES)

    def _fill(self) -> None:
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now


class Callers:
    """Find the hosts of the job by address.

    A name may resolve late, or to another address later, so an unknown caller starts new lookups. Threads make them at
    a bounded rate: no caller waits, and a flood of strangers does not become a flood of lookups.
    """

    def __init__(
        self,
        cluster: Cluster,
        leads_here: Callable[[str, str], None] = lambda name, address: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`leads_here` is told of another host's name that keeps leading to this host, and of the address."""
        self._others = {host.name for host in cluster.hosts if cluster.is_elsewhere(host)}
        self._leads_here, self._clock = leads_here, clock
        self._suspects: dict[str, tuple[set[str], float]] = {}  # host whose name leads here -> addresses, since when
        self._hosts_at: dict[str, frozenset[str]] = {}  # by address: as the job gives it, or as a name ever resolved
        self._names: dict[str, str] = {}  # host -> name that is looked up
        self._looked: dict[str, float] = {}  # host -> when it was looked up
        self._found: set[str] = set()
        self._looks = Bucket(LOOKS_RATE, LOOKS_BURST)
        self._asked = now = clock()
        self._changed = threading.Condition()
        for host in cluster.hosts:
            if host.is_at_number:
                self._note(host.name, {host.address})
            else:
                self._names[host.name] = host.address
                if not (cluster.is_coordinator or host is cluster.coordinator):
                    self._looked[host.name] = now  # the coordinator calls a follower; other followers may never call
        for _ in range(min(LOOKERS, len(self._names))):
            threading.Thread(target=self._keep_looking, name="lookups", daemon=True).start()

    def hosts_at(self, address: str) -> frozenset[str]:
        """Return the hosts of the job that have this address; an empty set for a stranger."""
        found = self._hosts_at.get(address, frozenset())
        if not found and self._names:
            now = self._clock()
            if now > self._asked + LOOK_AGAIN_SECONDS / 5:
                with self._changed:
                    self._asked = now
                    self._changed.notify_all()
        return found

    def _note(self, name: str, addresses: set[str]) -> None:
        self._found.add(name)
        for address in map(canonical, addresses):
            self._hosts_at[address] = self._hosts_at.get(address, frozenset()) | {name}

    def _keep_looking(self) -> None:
        while True:
            name = self._next()
            try:
                answers = socket.getaddrinfo(self._names[name], None, type=socket.SOCK_STREAM)
            except (OSError, ValueError):  # ValueError: DNS cannot have such a name
                continue
            found = {str(answer[4][0]) for answer in answers}
            if name not in self._others or not all(map(is_here, found)):
                with self._changed:
                    self._suspects.pop(name, None)
                    self._note(name, found)
            elif self._is_sure(name, found):
                self._leads_here(name, min(found))

    def _is_sure(self, name: str, found: set[str]) -> bool:
        """Return whether a name has led to this host, by the same addresses, for long enough. If so, forget it."""
        with self._changed:
            now, known = self._clock(), self._suspects.get(name)
            if known is None or known[0] != found:
                self._suspects[name] = (found, now)
            elif now >= known[1] + SURE_SECONDS:
                del self._suspects[name]
                return True
        return False

    def _next(self) -> str:
        """Wait for a name to look up since somebody asked; names that were never found come first."""
        with self._changed:
            while True:
                now = self._clock()
                asked = [n for n in self._names if self._last(n) < self._asked or n in self._suspects]
                due = [name for name in asked if self._last(name) + LOOK_AGAIN_SECONDS <= now]
                if due and self._looks.take():
                    name = min(due, key=lambda name: (name in self._found, self._last(name)))
                    self._looked[name] = now
                    return name
                self._changed.wait(LOOK_AGAIN_SECONDS / 10 if asked else None)

    def _last(self, name: str) -> float:
        return self._looked.get(name, float("-inf"))


def is_here(address: str) -> bool:
    """Return whether an address is one of this host's: the kernel would call it from itself. Nothing is sent.

    Of other loopback addresses, each may stand for a host that is simulated on this machine.
    """
    if address in (*LOOPBACK, "127.0.1.1"):  # Debian's, for its own name
        return True
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            return str(probe.getsockname()[0]) == address
    except OSError:  # no way leads there, this kernel has no IPv6, or no more files can be opened
        return False


def leads_here(name: str, address: str) -> str:
    return f"{name} leads to {address}, which is this host; wanted {name}'s own address, in /etc/hosts or from DNS"


def canonical(address: str) -> str:
    """Return an address in the one form that is compared: no interface, and IPv4 as such if it came by IPv6."""
    if ":" not in address:
        return address
    number = ipaddress.IPv6Address(address.partition("%")[0])
    return str(number.ipv4_mapped or number)


class Limits:
    """Limit each caller. A host that takes too much is refused for a moment; others are not affected."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers
        self._strangers = Bucket(STRANGERS_RATE, STRANGERS_BURST)
        self._known: dict[str, Bucket] = {}  # at most one for each address of the job

    def party(self, address: str) -> str:
        """Return the key of the limits that apply: the address, or "" for all strangers together."""
        return address if address in LOOPBACK or self._callers.hosts_at(address) else ""

    def of(self, party: str) -> Bucket:
        return self._known.setdefault(party, Bucket(RATE, BURST)) if party else self._strangers
