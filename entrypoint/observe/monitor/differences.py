"""Counters that only grow, as what has come since they were last read."""

from collections.abc import Collection
from typing import Any


class Differences:
    """Returns by how much a counter has grown: 0 the first time that it is read, and where it began anew."""

    def __init__(self) -> None:
        self._last: dict[Any, float] = {}

    def __call__(self, key: Any, total: float) -> float:
        before = self._last.get(key, total)
        self._last[key] = total
        return max(0.0, total - before)

    def forget(self, keep: Collection[Any]) -> None:
        """Forget all counters but these."""
        self._last = {key: value for key, value in self._last.items() if key in keep}
