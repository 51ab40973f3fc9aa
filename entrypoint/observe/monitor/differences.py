"""Turn counters that only grow into differences since they were last read."""

from collections.abc import Collection
from typing import Any


class Differences:
    """Compute by how much counters have grown: 0 for the first value, and for a counter that was reset."""

    def __init__(self) -> None:
        self._last: dict[Any, float] = {}

    def __call__(self, key: Any, total: float) -> float:
        before = self._last.get(key, total)
        self._last[key] = total
        return max(0.0, total - before)

    def forget(self, keep: Collection[Any]) -> None:
        """Forget all counters but those in `keep`."""
        self._last = {key: value for key, value in self._last.items() if key in keep}
