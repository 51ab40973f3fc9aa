"""Simulated time, and a processor on which threads take turns."""

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any


class Agenda:
    """What will happen, in order of time; and what time it is. Seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self._entries: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()

    def at(self, when: float, act: Callable[..., None], *what: Any) -> None:
        heapq.heappush(self._entries, (max(when, self.now), next(self._order), act, what))

    def run(self, until: float, over: Callable[[], bool] = lambda: False) -> None:
        """Let time pass until then, or until it is over."""
        while not over() and self._entries and self._entries[0][0] <= until:
            self.now, _, act, what = heapq.heappop(self._entries)
            act(*what)
        if not over():
            self.now = max(self.now, until)


class Thread:
    """Work for a core. `step` does the next piece, and returns the processor time that it takes."""

    def __init__(self, core: "Core") -> None:
        self.core, self.agenda = core, core.agenda
        self.queue: deque[Any] = deque()
        core.threads.append(self)

    def has_work(self) -> bool:
        return bool(self.queue)

    def add(self, work: Any) -> None:
        self.queue.append(work)
        self.core.wake()

    def step(self) -> float:
        raise NotImplementedError


class Core:
    """One processor. Its threads take turns, a piece of work each: at its end each waits for the kernel, or might."""

    def __init__(self, agenda: Agenda) -> None:
        self.agenda, self.threads = agenda, list[Thread]()
        self.busy = 0.0  # seconds, until now
        self._is_taken, self._turn = False, 0

    def wake(self) -> None:
        """Give the next thread that has work its turn, unless one has it."""
        if self._is_taken:
            return
        count = len(self.threads)
        for each in range(self._turn, self._turn + count):
            thread = self.threads[each % count]
            if thread.has_work():
                self._turn, self._is_taken = each % count + 1, True
                seconds = thread.step()
                self.busy += seconds
                self.agenda.at(self.agenda.now + seconds, self._give_up)
                return

    def _give_up(self) -> None:
        self._is_taken = False
        self.wake()
