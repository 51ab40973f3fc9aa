"""Measure the machine's own delays: seconds in which it stood still, or was short of CPUs or disks.

    python machine.py  # a heart: lines UNTIL SECONDS about its gaps, until its stdin ends

A heart beats on every CPU, in a process apart from jobs and from this program. So it notices when another guest of the
machine takes a CPU, and work of this program does not count.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

BEAT, GAP = 0.02, 0.1  # seconds
PRESSURE = Path("/proc/pressure/io")


class Heart:
    """A recorder of times when a thread that should wake up every BEAT seconds could not, on any CPU."""

    def __init__(self) -> None:
        self.gaps: list[tuple[float, float]] = []  # (until, seconds), of those beyond GAP
        # In a session of its own, as hosts are: the kernel may share CPUs out by session.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout
        with self._process.stdout as lines:
            for line in lines:
                until, seconds = map(float, line.split())
                self.gaps.append((until, seconds))

    def since(self, begin: float) -> tuple[tuple[float, float], ...]:
        """Return the gaps since the given moment."""
        return tuple((until, min(seconds, until - begin)) for until, seconds in list(self.gaps) if until > begin)

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def pressure() -> float:
    """Return the seconds since the machine's start in which a process had to wait for a disk; 0 if unknown."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(PRESSURE.read_text().split("total=")[1].split()[0]) / 1e6
    return 0.0


def _beat(cpu: int) -> None:
    os.sched_setaffinity(0, {cpu})  # this thread's
    last = time.time()
    while True:
        time.sleep(BEAT)
        now = time.time()
        if now - last > GAP:
            os.write(1, f"{now:.3f} {now - last:.3f}\n".encode())
        last = now


def _main() -> None:
    for cpu in os.sched_getaffinity(0):
        threading.Thread(target=_beat, args=(cpu,), daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    _main()
