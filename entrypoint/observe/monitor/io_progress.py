"""Counts what training processes read, write and receive: a process that loads or saves slowly gets on all the same."""

from collections.abc import Collection, Mapping

from entrypoint.observe.monitor.differences import Differences
from entrypoint.observe.monitor.sockets import connections, inodes_of


class Moves:
    """Looks while a job shows no progress. What ranks ask one another again and again does not count."""

    def __init__(self) -> None:
        self._since = Differences()
        self._has_looked = False

    def look(
        self,
        families: Mapping[str, Collection[int]],
        used: Mapping[str, Mapping[str, float]],
        peers: Collection[str],
    ) -> dict[str, float]:
        """Return bytes that each process has moved since the last look: with disks, pipes, and other programs.

        `families`: {name: pids}; `used`: PROCESS_PART of the same time; `peers`: addresses of other hosts of the job.
        """
        owners = {inode: name for name, pids in families.items() for inode in inodes_of(pids)}
        try:
            found = [each for each in connections() if each.inode in owners]
        except OSError:  # the kernel does not tell: bytes of sockets then count as read and written
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
                sums["elsewhere"] += received
        is_first, self._has_looked = not self._has_looked, True
        if is_first:  # what went over sockets is not known yet, and cannot be told from files
            return {}
        return {name: _moved(used.get(name, {}), sums) for name, sums in totals.items()}


def _moved(used: Mapping[str, float], net: Mapping[str, float]) -> float:
    # recv() and send() are not among what the kernel calls read and written, read() and write() on a socket are.
    files = max(0.0, used.get("read", 0) - net["received"]) + max(0.0, used.get("written", 0) - net["sent"])
    return max(files, used.get("stored", 0)) + net["elsewhere"]
