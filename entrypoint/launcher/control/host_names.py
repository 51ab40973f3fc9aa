"""Look up the names of the job's hosts: all lookups of a launcher happen here, in threads.

A name may resolve late, or to another address later; one that does not resolve can take 10 s. So no caller waits for
long, an address that was found stays known until another one is found, and a flood of strangers does not become a flood
of lookups.
"""

import contextlib
import encodings.idna  # getaddrinfo would import it later, when no file descriptor may be left  # noqa: F401
import ipaddress
import socket
import threading
import time
from collections.abc import Callable

from entrypoint.launcher.control.access import LOOPBACK, Bucket
from entrypoint.launcher.job.cluster import Cluster, Host

LOOKERS = 8  # names that are looked up in parallel
LOOKS_RATE, LOOKS_BURST = 100.0, 100.0  # lookups a second, and at once
LOOK_AGAIN_SECONDS = 0.5  # seconds until the same name is looked up again
SURE_SECONDS = 2.0  # seconds for which a name must lead to this host: a stale record may be corrected in that time


def resolve(name: str) -> list[str]:
    """Return the addresses of a name, the best first. Raise OSError if there is none."""
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except ValueError as error:  # DNS cannot have such a name
        raise OSError(str(error)) from None
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


class HostNames:
    """Know the addresses of the job's hosts."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster, self._clock = cluster, clock
        # Told of another host's name that keeps leading to this host, and of the address.
        self.leads_here: Callable[[str, str], None] = lambda name, address: None
        self._hosts = {host.name: host for host in cluster.hosts if not host.is_at_number}
        self._found: dict[str, list[str]] = {}  # host -> its addresses, first the one by which it was reached last
        self._why: dict[str, str] = {}  # host -> why nothing was found at the last lookup
        self._hosts_at: dict[str, frozenset[str]] = {}  # by address: as the job gives it, or as a name ever resolved
        self._suspects: dict[str, tuple[set[str], float]] = {}  # host whose name leads here -> addresses, since when
        self._wanted: set[str] = set()  # hosts whose names are to be looked up
        self._urgent: set[str] = set()  # of these, those of hosts that this one calls now
        self._looking: set[str] = set()
        self._looked: dict[str, float] = {}  # host -> when its last lookup began
        self._rate = Bucket(LOOKS_RATE, LOOKS_BURST, clock)
        self._asked = clock()
        self._threads = 0
        self._changed = threading.Condition()  # protects all of these
        for host in cluster.hosts:
            if host.is_at_number:
                self._note_hosts_at(host.name, [host.address])

    def expect_calls(self) -> None:
        """Look up the hosts that will call: each follower calls the coordinator, and hardly ever another follower."""
        expected = self._cluster.hosts if self._cluster.is_coordinator else (self._cluster.coordinator,)
        self._look_for(*(host.name for host in expected))

    def hosts_at(self, address: str) -> frozenset[str]:
        """Return the hosts of the job that have this address; an empty set for a stranger."""
        found = self._hosts_at.get(address, frozenset())
        if not found and self._hosts and (now := self._clock()) > self._asked + LOOK_AGAIN_SECONDS / 5:
            self._asked = now
            self._look_for(*self._hosts)
        return found

    def addresses_of(self, host: Host, within: float) -> list[str]:
        """Return a host's addresses. If none is known, look for up to `within` seconds, then raise OSError."""
        if host.is_at_number:
            return [host.address]
        with self._changed:
            is_known, _ = host.name in self._found, self._looked.pop(host.name, None)  # else it would have to wait
        if not (is_known or self._look_for(host.name, is_urgent=True)):
            self._look(host.name)
        with self._changed:
            self._changed.wait_for(lambda: host.name in self._found or not self._is_under_way(host.name), within)
            if host.name not in self._found:
                raise OSError(self._why.get(host.name, f"no address of {host.address} within {within:g} s"))
            return list(self._found[host.name])

    def note_reached(self, host: Host, address: str) -> None:
        """Note the address by which a host was reached, so that it is tried first."""
        with self._changed:
            self._note_found(host.name, [address, *self._found.get(host.name, [])])

    def note_unreached(self, host: Host) -> None:
        """Look a host's name up again. Its known addresses are used meanwhile."""
        self._look_for(host.name, is_urgent=True)

    def _look_for(self, *names: str, is_urgent: bool = False) -> bool:
        """Queue these names for a lookup, urgent ones first. Return False if no thread could do it."""
        with self._changed:
            wanted = self._hosts.keys() & names
            self._wanted |= wanted
            self._urgent |= wanted if is_urgent else set()
            self._changed.notify_all()
            with contextlib.suppress(RuntimeError):  # no thread is left
                while self._threads < min(LOOKERS + 1, len(self._looking) + len(self._wanted)):
                    threading.Thread(target=self._keep_looking, name="lookups", daemon=True).start()
                    self._threads += 1
            return self._threads > 0

    def _is_under_way(self, name: str) -> bool:
        return name in self._wanted or name in self._looking

    def _keep_looking(self) -> None:
        while True:
            self._look(self._next())

    def _next(self) -> str:
        """Wait for a name to look up: urgent names, for which a thread is kept, before names that were never found."""
        with self._changed:
            while True:
                now = self._clock()
                waiting = (self._wanted | self._suspects.keys()) - self._looking
                if len(self._looking) >= LOOKERS:
                    waiting &= self._urgent
                due = [name for name in waiting if self._last(name) + LOOK_AGAIN_SECONDS <= now]
                if due and self._rate.take():
                    name = min(due, key=lambda n: (n not in self._urgent, n in self._found, self._last(n)))
                    self._looking.add(name)
                    return name
                self._changed.wait(LOOK_AGAIN_SECONDS / 10 if waiting else None)

    def _last(self, name: str) -> float:
        return self._looked.get(name, float("-inf"))

    def _look(self, name: str) -> None:
        with self._changed:
            self._wanted.discard(name)
            self._urgent.discard(name)
            self._looking.add(name)
            self._looked[name] = self._clock()
        host, found, why, misled = self._hosts[name], list[str](), "", False
        try:
            found = resolve(host.address)
        except OSError as error:
            why = f"{host.address}: {error.strerror or error}"
        is_here_too = bool(found) and self._cluster.is_elsewhere(host) and all(map(is_here, found))
        with self._changed:
            self._why[name] = why
            if found:
                self._note_found(name, sorted(found, key=lambda address: address not in self._found.get(name, [])[:1]))
            if is_here_too:
                misled = self._is_sure(name, set(found))
            elif found:
                self._suspects.pop(name, None)
                self._note_hosts_at(name, found)
            self._looking.discard(name)
            self._changed.notify_all()
        if misled:
            self.leads_here(name, min(found))

    def _note_found(self, name: str, addresses: list[str]) -> None:
        self._found[name] = list(dict.fromkeys(addresses))

    def _note_hosts_at(self, name: str, addresses: list[str]) -> None:
        for address in map(canonical, addresses):
            self._hosts_at[address] = self._hosts_at.get(address, frozenset()) | {name}

    def _is_sure(self, name: str, found: set[str]) -> bool:
        """Return whether a name has led to this host, by the same addresses, for long enough.

        If so, drop the suspicion.
        """
        now, known = self._clock(), self._suspects.get(name)
        if known is None or known[0] != found:
            self._suspects[name] = (found, now)
        elif now >= known[1] + SURE_SECONDS:
            del self._suspects[name]
            return True
        return False


def is_here(address: str) -> bool:
    """Return whether an address is this host's: to call it, the kernel would use it as the source, too.

    Nothing is sent.

    Other loopback addresses do not count, since each may stand for a host that is simulated on this machine.
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
    """Return an address in the form that is compared: without an interface, and as IPv4 where IPv6 contains it."""
    if ":" not in address:
        return address
    number = ipaddress.IPv6Address(address.partition("%")[0])
    return str(number.ipv4_mapped or number)
