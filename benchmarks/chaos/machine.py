"""How long the machine itself stood still, or was too busy: what no launcher can be blamed for."""

import contextlib
import threading
import time
from pathlib import Path

BEAT, GAP = 0.02, 0.1  # seconds
PRESSURE = Path("/proc/pressure/cpu")


class Heart:
    """A thread that wants to wake up every BEAT seconds, and notes when it could not."""

    def __init__(self) -> None:
        self.gaps: list[tuple[float, float]] = []  # (until, seconds), of those beyond GAP
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        last = time.time()
        while True:
            time.sleep(BEAT)
            now = time.time()
            if now - last > GAP:
                self.gaps.append((now, now - last))
            last = now

    def stood_still(self, since: float) -> float:
        """Seconds in all since then."""
        return sum(seconds for until, seconds in self.gaps if until > since)


def pressure() -> float:
    """Seconds, since the machine's start, in which something that could run had to wait for a CPU; 0 if unknown."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(PRESSURE.read_text().split("total=")[1].split()[0]) / 1e6
    return 0.0
