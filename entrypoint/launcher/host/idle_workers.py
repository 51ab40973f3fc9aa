"""Detect whether a worker script only lets TensorFlow serve, from what its process does rather than from its text.

TensorFlow 2's tutorial has workers start a `tf.distribute.Server` and join it, for ever. Others check again and again
for a file that shows the end. Either process listens on its own port of TF_CONFIG and uses no CPU time. In `join()`,
moreover, the main thread waits in C for another thread of its process (pthread_join) without a limit, which Python's
own threads never do, and all other threads wait for one another or for messages.
"""

import contextlib
import os
from math import inf
from pathlib import Path

from entrypoint.base.values import State
from entrypoint.launcher.host.descendants import read_stat
from entrypoint.launcher.host.machine import read
from entrypoint.launcher.host.process import listening
from entrypoint.launcher.policy.events import Event, Resting

LOOK_SECONDS = 0.5  # seconds between two looks
JOINED_SECONDS = 2.0  # seconds that a process in `join` is watched before it counts as only serving
IDLE = 0.02  # of one CPU: what checking for a file now and then uses at most
_TICKS = os.sysconf("SC_CLK_TCK")
_FUTEX, *_EPOLL = {"x86_64": (202, 232, 281, 441), "aarch64": (98, 22, 441)}.get(os.uname().machine, (-1,))
_PRIVATE = 0x80  # FUTEX_PRIVATE_FLAG; the kernel wakes those who wait for a thread's end without it


class Rest(State):
    """Watch one process. Times are seconds of our clock."""

    pid: int
    port: int
    since: float = inf  # it uses no CPU time
    joined_since: float = inf
    _looked: float = inf
    _worked: float = 0.0

    def look(self, now: float, patience: float) -> float | None:
        """Return how long the process has only served, in seconds; None if that is too short, or while it may work."""
        stat = read_stat(self.pid)
        worked = stat.worked / _TICKS if stat else None
        elapsed = now - self._looked
        idle = worked is not None and elapsed > 0 and worked - self._worked <= max(IDLE * elapsed, 1.5 / _TICKS)
        self._looked, self._worked = now, worked or 0.0
        if not (idle and _alone_and_listening(self.pid, self.port)):
            self.since = self.joined_since = inf
            return None
        self.since = min(self.since, now)
        self.joined_since = min(self.joined_since, now) if _in_join(self.pid) else inf
        if now >= self.joined_since + JOINED_SECONDS:
            return JOINED_SECONDS
        return patience if now >= self.since + patience else None


class IdleWorkers:
    """Watch scripts that may only serve. `patience`: seconds for one that is not in `join`."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._rests: dict[str, Rest] = {}
        self._found: tuple[tuple[str, float], ...] = ()
        self._look_at = 0.0

    @property
    def look_at(self) -> float:
        """Return when to call `look` next."""
        return self._look_at if self._rests or self._found else inf

    def add(self, name: str, pid: int, port: int) -> None:
        self._rests[name] = Rest(pid=pid, port=port)

    def forget(self, name: str) -> None:
        self._rests.pop(name, None)

    def look(self, now: float) -> list[Event]:
        """Return an event with the scripts that only serve and their idle seconds; no event if nothing has changed."""
        self._look_at = now + LOOK_SECONDS
        seen = [(name, rest.look(now, self._patience)) for name, rest in self._rests.items()]
        before, self._found = self._found, tuple((name, seconds) for name, seconds in seen if seconds is not None)
        return [Resting(found=self._found)] if self._found != before else []


def _alone_and_listening(pid: int, port: int) -> bool:
    """Return whether the process runs no other program, and listens on the port itself."""
    with contextlib.suppress(OSError):
        if any(read(task, "children").strip() for task in Path(f"/proc/{pid}/task").iterdir()):
            return False
        sockets = {f"socket:[{inode}]" for inode in listening(port)}
        folder = f"/proc/{pid}/fd"
        return bool(sockets) and any(_link(f"{folder}/{fd}") in sockets for fd in os.listdir(folder))  # noqa: PTH208
    return False


def _in_join(pid: int) -> bool:
    """Return whether the main thread waits for the end of another, and all others for a thread or a message."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        calls = {task.name: read(task, "syscall").split() for task in Path(f"/proc/{pid}/task").iterdir()}
        tasks = set(calls)
        number, _, operation, awaited, limit, *_ = calls.pop(str(pid))
        untimed = int(limit, 16) == 0 and not int(operation, 16) & _PRIVATE
        joins = int(number) == _FUTEX and untimed and str(int(awaited, 16)) in tasks
        return joins and all(call[0] != "running" and int(call[0]) in (_FUTEX, *_EPOLL) for call in calls.values())
    return False


def _link(path: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(path)  # noqa: PTH115
    return ""
