"""Hold figures over time in a bounded number of pieces, however long a job took."""

import math
from array import array
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

from entrypoint.base.series import Series

Key = tuple[str, ...]  # ("cpu", "user"), ("process", "worker/1", "memory")


class Columns:
    """Sum up use in at most `limit` pieces of time, which have one length for all keys. The length grows by doubling.

    Times are seconds since the job's begin. An amount is spread over the time in which it was used. Of a level, such as
    memory, each piece keeps the peak.
    """

    def __init__(self, width: float, limit: int) -> None:
        self.width, self.limit = width, limit
        self.seconds = self._zeros()  # observed seconds of each piece
        self.amounts: dict[Key, array[float]] = {}
        self.peaks: dict[Key, array[float]] = {}

    def _zeros(self) -> "array[float]":
        return array("d", bytes(8 * self.limit))

    def add(self, start: float, end: float, amounts: Mapping[Key, float], peaks: Mapping[Key, float]) -> None:
        start = max(0.0, start)
        if start >= end:
            return
        if end >= self.width * self.limit:
            self.grow(end)
        width, whole, parts, used, tops = self.width, end - start, [], self.amounts, self.peaks
        first, last = int(start / width), min(self.limit - 1, int(end / width))
        for at in range(first, last + 1):
            seconds = whole if first == last else min(end, (at + 1) * width) - max(start, at * width)
            self.seconds[at] += seconds
            parts.append((at, seconds / whole))
        for key, amount in amounts.items():
            column = used.get(key) or used.setdefault(key, self._zeros())
            for at, part in parts:
                column[at] += amount * part
        for key, level in peaks.items():
            column = tops.get(key) or tops.setdefault(key, self._zeros())
            for at, _ in parts:
                if level > column[at]:
                    column[at] = level

    def grow(self, end: float) -> None:
        """Double the length of the pieces until they reach this time."""
        while end >= self.width * self.limit:
            self.width *= 2
            self.seconds = _halved(self.seconds, sum)
            for columns, joined in ((self.amounts, sum), (self.peaks, max)):
                for key, column in columns.items():
                    columns[key] = _halved(column, joined)

    def per_second(self, key: Key) -> list[float | None]:
        """Return a key's amounts per second; None for pieces without samples, [] for an unknown key."""
        both = zip(self.amounts.get(key, ()), self.seconds, strict=False)
        return [amount / seconds if seconds > 0 else None for amount, seconds in both]

    def levels(self, key: Key) -> list[float | None]:
        """Return a key's peaks, in the form of `per_second`."""
        both = zip(self.peaks.get(key, ()), self.seconds, strict=False)
        return [peak if seconds > 0 else None for peak, seconds in both]

    def total(self, key: Key, start: float = 0.0, end: float = math.inf) -> float:
        """Return a key's amount in the pieces that begin between `start` and `end`."""
        column = self.amounts.get(key)
        return sum(column[self._slice(start, end)]) if column else 0.0

    def observed(self, start: float = 0.0, end: float = math.inf) -> float:
        """Return how many seconds were observed in the pieces that begin between `start` and `end`."""
        return sum(self.seconds[self._slice(start, end)])

    def between(self, values: list[float | None], start: float, end: float) -> list[float]:
        """Return the values (of `per_second` or `levels`) in this time, without gaps."""
        return [value for value in values[self._slice(start, end)] if value is not None]

    def _slice(self, start: float, end: float) -> slice:
        last = self.limit if end == math.inf else math.ceil(end / self.width)
        return slice(max(0, math.ceil(start / self.width)), max(0, last))


def _halved(column: "array[float]", joined: Callable[[Iterable[float]], float]) -> "array[float]":
    """Return a column with every two pieces joined into one, and zeros in its second half."""
    return array("d", map(joined, zip(column[::2], column[1::2], strict=True))) + array("d", bytes(4 * len(column)))


def rates(series: Series, width: float, count: int) -> list[float | None]:
    """Return the growth per second of a counter in each of `count` pieces of time; a reset is left out."""
    columns = Columns(width, count)
    for (before, first), (at, then) in pairwise(zip(series.times, series.values, strict=True)):
        if then >= first and 0 <= before < at < width * count:
            columns.add(before, at, {("count",): then - first}, {})
    return columns.per_second(("count",))
