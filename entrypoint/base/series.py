"""Hold a value's course in a bounded number of points, however long a job takes."""

import math
from array import array


class Series:
    """Hold single values with their times. When there are `most`, every second one is dropped."""

    def __init__(self, most: int = 4096) -> None:
        self.most = most
        self.times, self.values = array("d"), array("d")
        self.broken: tuple[float, float] | None = None  # (time, value) of the first NaN or infinity
        self._every, self._count = 1, 0

    def add(self, at: float, value: float) -> None:
        if not math.isfinite(value):
            self.broken = self.broken or (at, value)
            return
        self._count += 1
        if self._count % self._every:
            return
        self.times.append(at)
        self.values.append(value)
        if len(self.times) >= self.most:
            self.times, self.values, self._every = self.times[1::2], self.values[1::2], 2 * self._every

    def __len__(self) -> int:
        return len(self.times)

    def in_pieces(self, width: float, count: int) -> list[float | None]:
        """Return the last value of each of `count` pieces of time."""
        found: list[float | None] = [None] * count
        for at, value in zip(self.times, self.values, strict=True):
            if 0 <= at < width * count:
                found[int(at / width)] = value
        return found
