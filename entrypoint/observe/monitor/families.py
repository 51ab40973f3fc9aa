"""Find the descendants of the plan's processes."""

import os
from collections.abc import Mapping

from entrypoint.launcher.host.descendants import read_stat


class Families:
    """Keep a result for some looks, since each search reads all of /proc."""

    AGAIN = 5  # looks until the next search

    def __init__(self) -> None:
        self._looks, self._known, self._families = 0, frozenset[tuple[str, int]](), dict[str, list[int]]()

    def of(self, processes: Mapping[str, int]) -> dict[str, list[int]]:
        """Return {name: its pid and those of its descendants}; a process belongs to its nearest ancestor here."""
        known = frozenset(processes.items())
        self._looks += 1
        if known != self._known or self._looks >= self.AGAIN:
            self._looks, self._known = 0, known
            self._families = _families(processes)
        return self._families


def _families(processes: Mapping[str, int]) -> dict[str, list[int]]:
    names = {pid: name for name, pid in processes.items()}
    parents = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdigit() and (stat := read_stat(entry)):
            parents[stat.pid] = stat.parent
    found: dict[str, list[int]] = {name: [] for name in processes}
    for pid in parents:
        above = pid
        while above and above not in names:
            above = parents.get(above, 0)
        if above:
            found[names[above]].append(pid)
    return found
