"""Find the descendants of this host's processes, end them, and name those that SIGKILL does not end.

The kernel shows which process descends from which: as PID 1 or subreaper we adopt every process that loses its parent,
so nothing leaves our tree, whatever its session or process group. The environment of an adopted process names the
process of the plan that it belongs to.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from pathlib import Path

from entrypoint.base.values import Value
from entrypoint.launcher.host.process import Process, reap

MARK = "ENTRYPOINT_PROCESS"  # environment variable: the process of the plan from which a process descends
RELAYS = {"timeout", "tini", "docker-init", "dumb-init", "catatonit", "sudo", "runuser", "su"}
APART: set[int] = set()  # children of ours that are no processes of the job: the monitor
_MARKED = f"{MARK}=".encode()
_SSH = ("sshd", "orted", "prted")
_STATES = {
    "D": "uninterruptible sleep", "R": "running", "S": "sleeping", "T": "stopped", "t": "traced", "Z": "zombie",
}  # fmt: skip


class Stat(Value):
    """Hold a line of /proc/PID/stat."""

    pid: int
    name: str  # of the program, as the kernel has it
    state: str
    parent: int
    group: int
    threads: int
    worked: int  # ticks of CPU time, with those of children that it waited for
    began: int  # ticks since the machine's start

    @property
    def alive(self) -> bool:
        """Return whether a thread is alive, even if the main thread has ended."""
        return self.state not in "ZX" or self.threads > 1

    @property
    def key(self) -> tuple[int, int]:
        """Return a key that is unique to the process, since the kernel reuses pids."""
        return self.pid, self.began

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.name})"


def read_stat(pid: int | str) -> Stat | None:
    """Return the process's line of /proc; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            head, _, rest = file.read().rpartition(")")
    except OSError:
        return None
    name, words = head.partition("(")[2], rest.split()
    parent, group, threads, began = (int(words[at]) for at in (1, 2, 17, 19))
    return Stat(
        pid=int(pid), name=name, state=words[0], parent=parent, group=group, threads=threads,
        worked=sum(map(int, words[11:15])), began=began,
    )  # fmt: skip


def where_it_is(stat: Stat) -> str:
    """Describe a process that SIGKILL did not end, with its state in the kernel. It reads nothing that may block."""
    waits, seen = "", stat
    with contextlib.suppress(OSError):
        if stat.state in "ZX":  # this is the state of its main thread; another one may live
            threads = map(read_stat, os.listdir(f"/proc/{stat.pid}/task"))  # noqa: PTH208
            seen = next((thread for thread in threads if thread and thread.state not in "ZX"), stat)
        waits = Path(f"/proc/{seen.pid}/wchan").read_text().strip("0")
    state = f"state {seen.state} ({_STATES.get(seen.state, 'of its own kind')})"
    return f"{stat}, {state}" + (f", waits in {waits}" if waits else "")


class Descendants:
    """Find the descendants of the plan's processes. `are_users(name)`: whether that process runs the user's program."""

    def __init__(self, processes: Mapping[str, Process], are_users: Callable[[str], bool]) -> None:
        self._processes, self._are_users = processes, are_users
        self._all: dict[int, Stat] = {}
        self._children: dict[int, list[Stat]] = {}
        self._owners: dict[tuple[int, int], str | None] = {}  # of those that we adopted
        self._owned: dict[str | None, list[Stat]] = {}

    def look(self) -> None:
        """Read which processes exist now."""
        pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208
        found = [stat for pid in pids if pid not in APART and (stat := read_stat(pid))]
        self._all = {stat.pid: stat for stat in found}
        self._children = {}
        for stat in found:
            self._children.setdefault(stat.parent, []).append(stat)
        self._owned = {}
        known = {process.pid for process in self._processes.values()}
        for stat in self._children.get(os.getpid(), ()):
            if stat.pid not in known and stat.alive:
                self._owned.setdefault(self._owner(stat), []).append(stat)

    def _owner(self, stat: Stat) -> str | None:
        """Return the owner of an adopted process: a name, "" for any program of the user's, None for ssh's sessions."""
        if stat.key not in self._owners:
            words: list[bytes] = []
            with contextlib.suppress(OSError):  # a process in state D may hold the lock that this takes
                words = [] if stat.state == "D" else Path(f"/proc/{stat.pid}/environ").read_bytes().split(b"\0")
            marks = [word.partition(b"=")[2].decode(errors="replace") for word in words if word.startswith(_MARKED)]
            # sshd overwrites its environment with its title; Open MPI's daemon lacks ssh's variables.
            ssh = stat.name.startswith(_SSH) or any(word.startswith(b"SSH_CONNECTION=") for word in words)
            self._owners[stat.key] = next(iter(marks), None if ssh else "")
        return self._owners[stat.key]

    def of(self, name: str) -> list[Stat]:
        """Return the living processes that belong to `name`, its own first, parents before their children.

        Only the user's programs own other processes. A rank owns what its program runs, but not the program, which
        mpirun started.
        """
        process = self._processes.get(name)
        if process is None:
            return []
        root = self._all.get(process.pid)
        own = [root] if root and process.group is not None and root.parent == os.getpid() else []
        if not self._are_users(name):
            return [stat for stat in own if stat.alive]
        below = [*own, *self._owned.get(name, ()), *self._owned.get("", ())]
        if process.group is None and root:
            below += self._children.get(root.pid, ())
        return [stat for stat in self._with_descendants(below) if stat.alive]

    def below_us(self, spare: Collection[int] = ()) -> list[Stat]:
        """Return all our descendants, except those in `spare` and the descendants of these."""
        ours = [stat for stat in self._children.get(os.getpid(), ()) if stat.pid not in spare]
        return [stat for stat in self._with_descendants(ours, spare) if stat.alive]

    def _with_descendants(self, roots: Iterable[Stat], spare: Collection[int] = ()) -> list[Stat]:
        found: dict[int, Stat] = {}
        todo = list(roots)
        while todo:
            stat = todo.pop(0)
            if stat.pid not in found:
                found[stat.pid] = stat
                todo += [child for child in self._children.get(stat.pid, ()) if child.pid not in spare]
        return list(found.values())

    def stat(self, pid: int) -> Stat | None:
        return self._all.get(pid)

    def is_relayed(self, stat: Stat) -> bool:
        """Return whether a program between us and the process passes signals on."""
        above = self._all.get(stat.parent)
        while above and above.pid not in (0, 1, os.getpid()):
            if above.name in RELAYS:
                return True
            above = self._all.get(above.parent)
        return False


def end_descendants(
    within: float, spare: Collection[int] = (), known: Container[tuple[int, int]] = ()
) -> tuple[list[Stat], list[tuple[int, int]]]:
    """Kill all our descendants. Return (the remaining processes, the reaped ones as `reap` returns them).

    It ends when only `known` processes are left, or after `within` seconds. The children in `spare`, and their
    descendants, keep running.
    """
    descendants, pause, deadline = Descendants({}, lambda _: False), 0.002, time.monotonic() + within
    ended: list[tuple[int, int]] = []
    while True:
        descendants.look()
        left = descendants.below_us(spare)
        for stat in left:
            send(stat, signal.SIGKILL)
        if all(stat.key in known for stat in left) or time.monotonic() >= deadline:
            return left, ended
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
        ended += reap()


def send(stat: Stat, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(stat.pid, number)
