"""Distinguish threads that compute from threads that spin while they wait for other ranks or for a device.

Horovod polls the other ranks in a thread of its own, and Open MPI, NCCL and CUDA wait by spinning. Such a thread may
use a whole CPU while its rank waits.
"""

import contextlib
import os
import re
import time
from collections.abc import Collection
from pathlib import Path

from entrypoint.base.values import Value
from entrypoint.observe.monitor.process_usage import Differences

CYCLES_PER_SECOND = 50.0  # a thread that sleeps so often is polling; Horovod's sleeps 1000 times by default
SPINS = 0.9  # of the time: a thread that uses so much of a CPU may spin
# Names of threads that wait and do no work. A thread of NCCL has the name of the thread that started it, such as
# TensorFlow's `collective_ops`, unless NCCL_SET_THREAD_NAME=1.
WAITERS = re.compile(r"(?:horovod|hvd|nccl|cuda|collective_ops)", re.IGNORECASE)


class Work(Value):
    """Sum up the work of a process's threads since the last look, in seconds (`wakes`: a count)."""

    waited: float = 0.0  # time in which threads were ready to run and had no CPU
    waiters: float = 0.0  # CPU time that busily waiting threads used, or would have used
    main: float = 0.0  # CPU time that the main threads used, or would have used
    ran: float = 0.0  # CPU time that the main threads used
    wakes: int = 0  # how often the main threads went to sleep


class Thread(Value):
    """Sum up the work of one thread since the last look, in seconds (`sleeps`: a count)."""

    tid: int
    name: str
    is_main: bool
    used: float  # it ran, or was ready to run and had no CPU
    waited: float
    user: float
    kernel: float
    sleeps: float


class Threads:
    """Inspect the threads of one process and its descendants, while the process shows no progress."""

    def __init__(self) -> None:
        self._since = Differences()
        self._looked = time.monotonic()
        self.horovod = 0  # Horovod's thread, once its sleeps have shown it; it stays the same while it lives

    def begin_anew(self) -> None:
        """Reset all counters: earlier use does not count in the next silent period."""
        self._since, self._looked = Differences(), time.monotonic()

    def look(self, pids: Collection[int], ranks: bool = False) -> Work:
        """Return the work of these processes' threads since the last look.

        With `ranks`, `_find_horovods` looks for Horovod's thread if no thread has a name of WAITERS.
        """
        now = time.monotonic()
        seconds, self._looked = now - self._looked, now
        threads: list[Thread] = []
        for pid in pids:
            with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/task") as tasks:
                for task in tasks:
                    with contextlib.suppress(OSError, ValueError, IndexError):  # the thread has ended
                        threads.append(self._thread(int(task.name), pid, Path(task.path), seconds))
        waiters = [thread for thread in threads if not thread.is_main and WAITERS.match(thread.name)]
        if ranks and not waiters and (found := self._find_horovods(threads, seconds, pids)):
            waiters = [found]
        mains = [thread for thread in threads if thread.is_main]
        return Work(
            waited=sum(thread.waited for thread in threads),
            waiters=sum(thread.used for thread in waiters),
            main=sum(thread.used for thread in mains),
            ran=sum(thread.used - thread.waited for thread in mains),
            wakes=int(sum(thread.sleeps for thread in mains)),
        )

    def _find_horovods(self, threads: Collection[Thread], seconds: float, pids: Collection[int]) -> Thread | None:
        """Return Horovod's thread if it can be recognised.

        It is older than TensorFlow's threads, and sleeps and wakes all the time. While it is inside Open MPI it spends
        its time in the kernel, where Open MPI yields the CPU, or uses a whole CPU.
        """
        others = [thread for thread in threads if not thread.is_main]
        if known := next((thread for thread in others if thread.tid == self.horovod), None):
            return known
        if cycling := [thread for thread in others if thread.sleeps > CYCLES_PER_SECOND * max(seconds, 0.01)]:
            oldest = min(cycling, key=lambda thread: thread.tid)
            self.horovod = oldest.tid
            return oldest
        busiest = max(others, key=lambda thread: thread.used, default=None)
        yields = [thread for thread in others if thread.kernel > thread.user]
        if yields:
            return max(yields, key=lambda thread: thread.used)
        if busiest and busiest.used > SPINS * seconds and any(map(_has_horovod, pids)):
            return busiest
        return None

    def _thread(self, tid: int, pid: int, task: Path, seconds: float) -> Thread:
        ran, waited = (int(word) / 1e9 for word in (task / "schedstat").read_text().split()[:2])
        words = (task / "stat").read_text().rpartition(")")[2].split()
        status = (task / "status").read_text()
        sleeps = int(status.rpartition("\nvoluntary_ctxt_switches:")[2].split(maxsplit=1)[0])
        totals = {"ran": ran, "waited": waited, "user": int(words[11]), "kernel": int(words[12]), "sleeps": sleeps}
        used = {key: self._since((tid, key), total) for key, total in totals.items()}
        # Kernels count the time in which a tracer (py-spy) held a thread as waiting for a CPU.
        waits = min(used["waited"], max(0.0, seconds - used["ran"]))
        return Thread(
            tid=tid, name=status.partition("\n")[0].partition("\t")[2], is_main=tid == pid,
            used=used["ran"] + waits, waited=waits,
            user=used["user"], kernel=used["kernel"], sleeps=used["sleeps"],
        )  # fmt: skip


def _has_horovod(pid: int) -> bool:
    """Return whether a process has loaded Horovod's library."""
    with contextlib.suppress(OSError):
        return "horovod" in Path(f"/proc/{pid}/maps").read_text(errors="replace")
    return False
