"""Count the bytes that training processes of this host exchange with other hosts, read, write and receive."""

import contextlib
import socket
import threading
import time
from collections.abc import Collection, Mapping

from entrypoint.launcher.job.cluster import Cluster, Host
from entrypoint.observe.monitor.process_usage import Differences
from entrypoint.observe.monitor.sockets import End, connections, inodes_of

LOOK_AGAIN_SECONDS = 10.0  # seconds until names that did not resolve are looked up again
EVERY_SECONDS = 2.0  # between two looks: the kernel takes milliseconds for each, however few connections there are


class Exchange:
    """Count bytes by host, from the kernel's counters.

    Not counted: traffic outside of TCP (EFA, shared memory), and connections that open and close between two looks; it
    only notices that there were some of them. `ours`: ports of the launchers, whose connections are not training. If
    hosts are simulated on one machine's loopback, only the end that opened a connection knows the other end's host.
    """

    def __init__(self, cluster: Cluster, ours: Collection[int] = ()) -> None:
        self._ours = {host.port(port) for host in cluster.hosts for port in ours}
        self.is_blind = False  # whether some exchange may go uncounted
        self._due = 0.0  # when to look again
        self._others = [host for host in cluster.hosts if host is not cluster.me]
        self.host_at: dict[str, str] = {}  # address -> name, of the other hosts whose names have resolved
        self._last: dict[tuple[End, End, int], tuple[int, int]] = {}
        self._open, self._closed = set[tuple[End, End]](), set[tuple[End, End]]()  # as of the last look
        self._owners: dict[int, int] = {}
        self._pids: frozenset[int] = frozenset()  # the processes that were searched for owners
        if self._others:
            threading.Thread(target=self._resolve, args=([*self._others],), name="names", daemon=True).start()

    def look(self, pids: Collection[int]) -> dict[str, list[int]]:
        """Return {host: [bytes received, sent]} since the last look, over connections of these processes.

        It looks every two seconds, and returns {} in between.
        """
        now = time.monotonic()
        if not self._others or now < self._due:
            return {}
        self._due = now + EVERY_SECONDS
        try:
            known = [*connections(self.host_at)]
        except OSError:  # a kernel without sock_diag, or one that forbids it
            self.is_blind = True
            return {}
        found = [each for each in known if not each.is_closed and not {each.local[1], each.remote[1]} & self._ours]
        closed = {(each.local, each.remote) for each in known if each.is_closed}  # in the last minute
        missed = closed - self._closed - self._open  # no look has seen these open
        were_short = any(not {local[1], remote[1]} & self._ours for local, remote in missed)
        self.is_blind = were_short or not {host.name for host in self._others} <= set(self.host_at.values())
        self._closed = closed
        self._open = {(each.local, each.remote) for each in found}
        if frozenset(pids) != self._pids or any(each.inode not in self._owners for each in found):
            self._pids = frozenset(pids)
            self._owners = {each.inode: 0 for each in found} | inodes_of(pids)
        sums: dict[str, list[int]] = {}
        counts = {}
        for each in found:
            if self._owners[each.inode] in pids:
                key = (each.local, each.remote, each.inode)
                received, sent = self._last.get(key, (0, 0))
                counts[key] = (each.received, each.sent)
                both = sums.setdefault(self.host_at[each.remote[0]], [0, 0])
                both[0] += max(0, each.received - received)
                both[1] += max(0, each.sent - sent)
        self._last = counts
        return {host: both for host, both in sums.items() if any(both)}

    def _resolve(self, left: list[Host]) -> None:
        while left:
            for host in [*left]:
                with contextlib.suppress(OSError, ValueError):
                    found = socket.getaddrinfo(host.address, None, type=socket.SOCK_STREAM)
                    self.host_at |= {str(each[4][0]): host.name for each in found}
                    left.remove(host)
            if left:
                time.sleep(LOOK_AGAIN_SECONDS)


class Moves:
    """Count the bytes that training processes move, without the ranks' polling, while a job shows no other progress."""

    def __init__(self) -> None:
        self._since = Differences()
        self._has_looked = False

    def look(
        self, families: Mapping[str, Collection[int]], used: Mapping[str, Mapping[str, float]], peers: Collection[str]
    ) -> dict[str, float]:
        """Return the bytes that each process has moved to and from disks, pipes and programs since the last look.

        `families`: {name: pids}; `used`: what they used in the same time; `peers`: addresses of the job's other hosts.
        """
        owners = {inode: name for name, pids in families.items() for inode in inodes_of(pids)}
        try:
            found = [each for each in connections() if each.inode in owners]
        except OSError:  # without the kernel's list, bytes on sockets count as read and written
            found = []
        within = {(each.local, each.remote) for each in found}
        totals: dict[str, dict[str, float]] = {name: {"received": 0, "sent": 0, "elsewhere": 0} for name in families}
        for each in found:
            ends = each.inode, each.local, each.remote
            received, sent = self._since((ends, "in"), each.received), self._since((ends, "out"), each.sent)
            sums = totals[owners[each.inode]]
            sums["received"] += received
            sums["sent"] += sent
            if each.remote[0] not in peers and (each.remote, each.local) not in within:
                sums["elsewhere"] += received + sent
        is_first, self._has_looked = not self._has_looked, True
        if is_first:  # the first look has no differences of sockets, so they cannot be separated from files
            return {}
        moved = {}
        for name, sums in totals.items():
            # The kernel counts read() and write() on a socket as read and written, but not recv() and send().
            its = used.get(name, {})
            files = max(0.0, its.get("read", 0) - sums["received"]) + max(0.0, its.get("written", 0) - sums["sent"])
            moved[name] = max(files, its.get("stored", 0)) + sums["elsewhere"]
        return moved
