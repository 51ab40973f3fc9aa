"""Watch the training processes of this host for progress, and inspect them closely while they show none."""

import queue
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from entrypoint.observe.monitor.families import Families
from entrypoint.observe.monitor.progress import Progress
from entrypoint.observe.monitor.sampling import Sampling
from entrypoint.record import lines


class Silence:
    """Watch for the monitor's loop. `after`: ENTRYPOINT_HANG_AFTER, in seconds; with 0, nothing is watched."""

    def __init__(self, sampling: Sampling, after: float) -> None:
        self._sampling, self._after = sampling, after
        self._progress = Progress(after)
        self._was_still = False
        self._asked = self._wanted = 0  # number of the request for which stacks were taken last, and of the newest
        self._taking = threading.Thread()
        self._taken: queue.SimpleQueue[list[lines.Stacks]] = queue.SimpleQueue()

    def note(self, training: Mapping[str, int], sample: lines.Sample, told: Collection[str]) -> None:
        """Note a sample. `training`: {process: pid}; `told`: the processes whose scripts have sent a message.

        Threads are inspected only while there is no progress.
        """
        now, processes, gpus = time.monotonic(), sample.processes, sample.host.get("gpus", ())
        peer_bytes = sum(map(sum, sample.peers.values())) / max(sample.seconds, 0.1)
        if self._after and self._progress.still(now, self._after / 4):
            threads, moved = self._sampling.look_closely(training, processes)
            self._progress.look(now, training, processes, gpus, told, peer_bytes, threads, moved)
        else:
            self._sampling.look_no_closer()
            self._progress.look(now, training, processes, gpus, told, peer_bytes)

    def still(self) -> lines.Still | None:
        """Return a line for the record; None if there is nothing new."""
        still = self._progress.still(time.monotonic(), self._after / 2) if self._after else {}
        is_news, self._was_still = bool(still or self._was_still), bool(still)
        return lines.Still(figures=still) if is_news else None

    def take_stacks(self, asked: int, training: Mapping[str, int]) -> None:
        """Take the stacks of these processes in a thread, if they were requested again.

        One thread at a time: py-spy stops a process, and another look would find it stopped.
        """
        self._wanted = asked
        if asked > self._asked and not self._taking.is_alive():
            self._asked = asked
            of = asked, Families().of(training), self._sampling.waiting_threads(training)
            self._taking = threading.Thread(target=self._take, args=of, name="stacks", daemon=True)
            self._taking.start()

    def _take(self, asked: int, families: Mapping[str, Collection[int]], waiting: Mapping[str, int]) -> None:
        from entrypoint.observe.monitor.stacks import take

        found = take(families, waiting)
        if asked == self._wanted:  # else the job has shown progress meanwhile, and they are of no use
            self._taken.put(found)

    def stacks(self) -> list[lines.Stacks]:
        """Return stacks that were taken since the last call."""
        with suppress(queue.Empty):
            return self._taken.get_nowait()
        return []


def append_stacks(path: Path, found: Collection[lines.Stacks]) -> None:
    """Append the stacks to a text file for people; a file that cannot be written is skipped."""
    texts = [f"{time.ctime()}: no progress", *(f"{line.process}, {line.text}" for line in found)]
    with suppress(OSError), path.open("a") as file:
        file.write("\n\n".join(texts) + "\n\n")
