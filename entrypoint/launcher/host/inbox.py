"""Queue events and questions of signal handlers and threads for the loop.

The launcher's signal handlers are all installed here, at its start.
"""

import contextlib
import os
import queue
import resource
import signal
import threading
from collections.abc import Callable
from typing import Any

from entrypoint.base.values import Value
from entrypoint.launcher.outcome.outcome import Exit
from entrypoint.launcher.policy.events import Due, Event, LinkEnded, Reported, Signalled

FEW = 64  # with fewer descriptors than this, none is spared for signals
Question = Callable[[], None]
"""A question of another thread. It is answered between two events, so that the answer is consistent."""


class ChildrenChanged(Value):
    """Report SIGCHLD. This host makes Ended events of it."""


class RankEnded(Value):
    """Report a rank's end, which this host turns into Ended. mpirun does not see the end until `let_go` is called."""

    name: str
    exit: Exit
    let_go: Callable[[], None]


Noticed = Event | ChildrenChanged | RankEnded


class Inbox:
    """Queue events and questions. All threads and signal handlers call `put` and `ask`; only the loop calls `take`."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Noticed | Question] = queue.SimpleQueue()
        self._kept: Noticed | Question | None = None  # taken too early
        self.put: Callable[[Noticed], None] = self._queue.put
        self.signals: list[int] = []  # each SIGTERM and SIGINT that has come; read also before and after the loop

    def catch_signals(self) -> None:
        """Turn SIGTERM, SIGINT and SIGCHLD into events."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._catch)
        signal.signal(signal.SIGCHLD, lambda *_: self.put(ChildrenChanged()))

    def _catch(self, number: int, _: object) -> None:
        self.signals.append(number)
        self.put(Signalled(number=number))

    def end_waits_by_signals(self) -> None:
        """Let every signal end a wait.

        Otherwise one just before the wait, or to another thread, would be noticed late.
        """
        if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < FEW:  # others need them more
            return
        reader, writer = os.pipe()
        try:
            threading.Thread(target=self._wake, args=(reader,), name="signals", daemon=True).start()
        except RuntimeError:
            os.close(reader)
            os.close(writer)
            return
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def _wake(self, reader: int) -> None:
        while os.read(reader, 4096):
            self.put(Due())  # its handler runs before this is taken

    def ask(self, what: Callable[[], dict[str, Any]], patience: float | None = None) -> dict[str, Any]:
        """Let the loop answer a question about its facts. Raise queue.Empty if that takes more than `patience`."""
        answer: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._queue.put(lambda: answer.put(what()))
        return answer.get(timeout=patience)

    def take(self, timeout: float) -> tuple[Noticed, ...]:
        """Return what happened next: one event; or several reports and ends of links, which come in swarms."""
        event = self._next(timeout) or Due()
        if callable(event):
            event()
            return ()
        swarm: list[Noticed] = [event]
        while isinstance(event, Reported | LinkEnded):
            another = self._next(0.0)
            if not isinstance(another, Reported | LinkEnded):
                self._kept = another
                break
            swarm.append(another)
        return tuple(swarm)

    def _next(self, timeout: float) -> Noticed | Question | None:
        kept, self._kept = self._kept, None
        if kept is not None:
            return kept
        with contextlib.suppress(queue.Empty):
            return self._queue.get(timeout=timeout) if timeout else self._queue.get_nowait()
        return None
