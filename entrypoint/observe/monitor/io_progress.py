"""Count the bytes that training processes read, write and receive: slow loading or saving is progress, too."""

from collections.abc import Collection, Mapping

from entrypoint.observe.monitor.differences import Differences
from entrypoint.observe.monitor.sockets import connections, inodes_of


class Moves:
    """Count bytes while a job shows no other progress. The ranks' polling of one another does not count."""

    def __init__(self) -> None:
        self._since = Differences()
        self._has_looked = False

    def look(
        self,
        families: Mapping[str, Collection[int]],
        used: Mapping[str, Mapping[str, float]],
        peers: Collection[str],
    ) -> dict[str, float]:
        """Return the bytes that each process has moved since the last look: to and from disks, pipes, other programs.

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
        return {name: _moved(used.get(name, {}), sums) for name, sums in totals.items()}


def _moved(used: Mapping[str, float], net: Mapping[str, float]) -> float:
    # The kernel counts read() and write() on a socket as read and written, but not recv() and send().
    files = max(0.0, used.get("read", 0) - net["received"]) + max(0.0, used.get("written", 0) - net["sent"])
    return max(files, used.get("stored", 0)) + net["elsewhere"]
