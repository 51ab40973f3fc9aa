"""Watch the training processes of this host for progress, and inspect them closely while they show none.

Signs of progress are output, messages by `sagemaker_tf_data`, bytes that are read, written or received, and a GPU that
works. A busy CPU is not a sign: NCCL, CUDA and MPI wait busily.
"""

import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from entrypoint.observe.monitor.process_usage import families, parents
from entrypoint.observe.monitor.sampling import Sampling
from entrypoint.observe.monitor.threads import Threads, Work
from entrypoint.observe.monitor.traffic import Moves
from entrypoint.record import lines

GPU_WORKS = 0.05  # share of the time in which a GPU is busy; above it, the GPU may work
FILE_BYTES_PER_SECOND = 16_000.0  # read, written or received by one process: trackers and heartbeats move less
PEER_BYTES_PER_SECOND = 1e6  # exchanged with other hosts per training process: Horovod's polling takes less
BYTES_SECONDS = 10.0  # time over which file bytes are averaged
_NONE: Mapping[str, Any] = {}


class Silence:
    """Watch for the monitor's loop. `after`: ENTRYPOINT_HANG_AFTER, in seconds; with 0, nothing is watched.

    `ranks`: the processes are ranks of mpirun; `stacks`: the text file to which stacks are appended.
    """

    def __init__(self, sampling: Sampling, after: float, ranks: bool, stacks: Path) -> None:
        self._sampling, self._after, self._ranks, self._path = sampling, after, ranks, stacks
        self._progress = LastSigns(after)
        self._was_still = False
        self._threads: dict[str, Threads] = {}
        self._moves: Moves | None = None
        self._asked = self._wanted = 0  # number of the request for which stacks were taken last, and of the newest
        self._taking = threading.Thread()
        self._taken: deque[list[lines.Stacks]] = deque()

    def note(self, training: Mapping[str, int], sample: lines.SampleLine, told: Collection[str]) -> None:
        """Note a sample. `training`: {process: pid}; `told`: the processes whose scripts have sent a message.

        Threads and their bytes are inspected only while there is no progress.
        """
        now, work, moved = time.monotonic(), dict[str, Work](), dict[str, float]()
        if self._after and self._progress.still(now, self._after / 4):
            pids = {name: self._sampling.processes.families.get(name, []) for name in training}
            self._threads = {name: self._threads.get(name) or Threads() for name in training}
            work = {name: threads.look(pids[name], self._ranks) for name, threads in self._threads.items()}
            self._moves = self._moves or Moves()
            moved = self._moves.look(pids, sample.processes, self._sampling.exchange.host_at)
        else:  # what the counters hold does not count in the next silent period
            self._moves = None
            for threads in self._threads.values():
                threads.begin_anew()
        self._progress.look(now, training, sample, told, work, moved)

    def still(self) -> lines.Still | None:
        """Return the record's line about the processes without progress.

        Return None if they show progress, and did so at the last call.
        """
        still = self._progress.still(time.monotonic(), self._after / 2) if self._after else {}
        is_news, self._was_still = bool(still or self._was_still), bool(still)
        return lines.Still(figures=still) if is_news else None

    def take_stacks(self, asked: int, training: Mapping[str, int]) -> None:
        """Take the stacks of these processes in a thread, if they were requested again.

        Only one thread runs at a time: py-spy stops a process, and another look would find it stopped.
        """
        self._wanted = asked
        if asked > self._asked and not self._taking.is_alive():
            self._asked = asked
            horovods = {name: self._threads[name].horovod for name in training if name in self._threads}
            of = asked, families(training, parents()), horovods
            self._taking = threading.Thread(target=self._take, args=of, name="stacks", daemon=True)
            self._taking.start()

    def _take(self, asked: int, pids: Mapping[str, Collection[int]], waiting: Mapping[str, int]) -> None:
        from entrypoint.observe.monitor.stacks import take

        found = take(pids, waiting)
        if asked == self._wanted:  # else the job has shown progress meanwhile, and they are of no use
            texts = [f"{time.ctime()}: no progress", *(f"{line.process}, {line.text}" for line in found)]
            with suppress(OSError), self._path.open("a") as file:  # for people
                file.write("\n\n".join(texts) + "\n\n")
            self._taken.append(found)

    def stacks(self) -> list[lines.Stacks]:
        """Return stacks that were taken since the last call."""
        return self._taken.popleft() if self._taken else []


class LastSigns:
    """Track the last sign of progress of each training process, and its recent CPU use.

    `window`: seconds over which CPU use is averaged; a process that stops working is recognised within that time.
    """

    def __init__(self, window: float = 600.0) -> None:
        self._window = window
        self._since: dict[str, float] = {}
        self._work: dict[str, deque[tuple[float, Sequence[float]]]] = {}  # (begin, CPU seconds as in `still`)
        self._bytes: dict[str, deque[tuple[float, float]]] = {}
        self._looked: float | None = None
        self._looks_at_threads = False

    def look(
        self, now: float, training: Iterable[str], sample: lines.SampleLine, told: Collection[str] = (),
        threads: Mapping[str, Work] = _NONE, moved: Mapping[str, float] = _NONE,
    ) -> None:  # fmt: skip
        """Note a sample. `told`: the processes whose scripts have sent a message.

        `threads`: the work of each process's threads; `moved`: bytes that each process has read, written and received.
        Both are empty unless measured.
        """
        names = list(training)
        peer_bytes = sum(map(sum, sample.peers.values())) / max(sample.seconds, 0.1)
        all_work = any(map(works, sample.host.get("gpus", ())))
        all_work = all_work or peer_bytes > PEER_BYTES_PER_SECOND * max(1, len(names))
        self._since = {name: self._since.get(name, now) for name in names}
        self._work = {name: self._work.get(name) or deque() for name in names}
        self._bytes = {name: self._bytes.get(name) or deque() for name in names} if moved else {}
        if threads and not self._looks_at_threads:  # earlier samples do not know what the threads did
            for samples in self._work.values():
                samples.clear()
        before, self._looked, self._looks_at_threads = now if self._looked is None else self._looked, now, bool(threads)
        for name in names:
            used, work, samples = sample.processes.get(name, {}), threads.get(name) or Work(), self._work[name]
            cpu = used.get("cpu", 0.0) + work.waited
            samples.append((before, (cpu, work.waiters, work.main, work.ran, work.wakes)))
            while samples and samples[0][0] < now - self._window:
                samples.popleft()
            if all_work or name in told or used.get("output") or self._moves(name, now, moved):
                self._since[name] = now
                samples.clear()

    def _moves(self, name: str, now: float, moved: Mapping[str, float]) -> bool:
        """Return whether a process reads, writes or receives more bytes than heartbeats need."""
        if name not in moved:
            return False
        samples = self._bytes[name]
        samples.append((now, moved[name]))
        while samples[0][0] <= now - BYTES_SECONDS:
            samples.popleft()
        seconds = max(1.0, now - samples[0][0])
        return sum(count for _, count in samples) > FILE_BYTES_PER_SECOND * seconds

    def still(self, now: float, least: float) -> dict[str, list[float]]:
        """Return {process: [seconds without a sign of progress, CPUs, ...]}: `Still` of record/lines.py.

        Return {} if any process has shown progress within `least` seconds.
        """
        seconds = {name: now - since for name, since in self._since.items()}
        if not seconds or min(seconds.values()) < least:
            return {}
        return {name: [round(gone, 1), *self._shares(name, now)] for name, gone in seconds.items() if gone > 0}

    def _shares(self, name: str, now: float) -> list[float]:
        if not (samples := self._work[name]):
            return [0.0] * 5
        seconds = max(0.01, now - samples[0][0])
        return [round(sum(column) / seconds, 4) for column in zip(*(work for _, work in samples), strict=True)]


def works(gpu: Sequence[float]) -> bool:
    """Return whether a GPU works, from [busy, bytes used, bytes in all, watts, memory's activity].

    A kernel that waits for another GPU keeps its GPU busy, but touches no memory. Older records lack the last figure.
    """
    return gpu[0] > GPU_WORKS and (len(gpu) < 5 or gpu[4] > 0)
