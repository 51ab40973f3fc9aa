"""End the processes of one host: signal them in turn, watch what is left, and name what SIGKILL does not end.

At a stop no process gets SIGTERM from us twice, since a second one would interrupt the saving that the first began:

- the process group of the program gets it at once, as from `kill -- -PGID`;
- a process outside of it that has lost its parent gets it then, alone; its own children are its own business;
- a process outside whose parent lives may have got it from the parent. If it would have died of SIGTERM, it has not got
  it, and gets it after a second. If it handles SIGTERM, it gets it when half of the grace is over; under a program that
  exists to pass signals on, it never does;
- a process that started after SIGTERM belongs to the saving and gets nothing.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from math import inf

from entrypoint.base.values import State, fresh
from entrypoint.base.wording import listed
from entrypoint.launcher.host import descendants
from entrypoint.launcher.host.descendants import Stat, send
from entrypoint.launcher.host.process import Process
from entrypoint.launcher.plan.plan import Duty, ProcessSpec
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.events import Event

LOOK, LOOK_SHARE = 0.05, 10.0  # seconds between two looks, or so many times what one takes
NAMED = 10  # processes in one line of the log
PASSED_ON_SECONDS = 1.0  # in which a living parent would have passed SIGTERM on; at most a quarter of the grace
_TICKS = os.sysconf("SC_CLK_TCK")
_TERM = 1 << (signal.SIGTERM - 1)


class _Ending(State):
    """Hold a process of the plan that is to end with all its descendants. Times are seconds of our clock."""

    process: Process
    grace: float
    forced: bool = False
    living: list[Stat] = fresh(list)
    asked: float = inf
    asked_tick: float = 0.0  # the same in ticks since the machine's start


class Terminator:
    """End started processes of the plan; for the loop only. `ThisHost` changes both mappings that it reads."""

    def __init__(
        self, processes: Mapping[str, Process], specs: Mapping[str, ProcessSpec], put: Callable[[Event], None]
    ) -> None:
        self._processes, self._specs, self._put = processes, specs, put
        self._descendants = descendants.Descendants(processes, self._is_users)
        self._endings: dict[str, _Ending] = {}  # of processes that are to end, and have not ended
        self._terminated: dict[tuple[int, int], float] = {}  # process that got SIGTERM from us -> when
        self._sweeping_until: float | None = None  # between two attempts
        self._spare, self._keep = list[int](), set[int]()  # pids that stay meanwhile, the first with their descendants
        self._survivors: set[tuple[int, int]] = set()  # processes that SIGKILL did not end
        self._look_at = 0.0

    @property
    def look_at(self) -> float:
        """Return when to call `press` next."""
        return self._look_at if self._endings or self._sweeping_until is not None else inf

    def look_soon(self) -> None:
        """Check soon: the process that ended may have been the last to wait for, or may have left others."""
        self._look_at = 0.0

    def look(self) -> None:
        self._descendants.look()

    def ask(self, name: str, grace: float) -> None:
        """Send SIGTERM to the process group of a process.

        A process that could not be started gets no signal; its end is reported anyway.
        """
        if name in self._processes:
            now, ending = time.monotonic(), self._ending(name, grace)
            ending.asked, ending.asked_tick = now, time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS
            group = [stat for stat in self._descendants.of(name) if ending.process.in_group(stat.group)]
            self._terminated |= {stat.key: now for stat in group}
            ending.process.signal(signal.SIGTERM)

    def force(self, name: str) -> None:
        """Send SIGKILL to everything that is left of a process, now and at each `press`."""
        if name in self._processes:
            ending = self._ending(name)
            ending.forced = True
            ending.process.signal(signal.SIGKILL)
            self._press(name, ending, 0.0)

    def _ending(self, name: str, grace: float = 0.0) -> _Ending:
        return self._endings.setdefault(name, _Ending(process=self._processes[name], grace=grace))

    def forget(self, name: str) -> None:
        """Forget a process that has ended, or whose last processes are given up. Its end may be reported now."""
        self._endings.pop(name, None)

    def left_others(self, name: str) -> bool:
        """Return whether a terminated process has left other processes.

        These may still save, so it counts as running.
        """
        ending = self._endings.get(name)
        return ending is not None and any(stat.pid != self._processes[name].pid for stat in ending.living)

    def press(self) -> None:
        """Check the remaining processes of those that have to end, and signal each one when its turn comes."""
        now = time.monotonic()
        if now < self.look_at:
            return
        self._descendants.look()
        for name, ending in self._endings.items():
            self._press(name, ending, now)
        if self._sweeping_until is not None:
            self._go_on_sweeping(now, self._sweeping_until)
        # On a machine with many processes a look takes long.
        self._look_at = time.monotonic() + max(LOOK, LOOK_SHARE * (time.monotonic() - now))

    def _press(self, name: str, ending: _Ending, now: float) -> None:
        ending.living = self._descendants.of(name)
        for stat in ending.living:
            if ending.forced:
                send(stat, signal.SIGKILL)
            elif now >= ending.asked and stat.key not in self._terminated and self._is_due(ending, stat, now):
                self._terminated[stat.key] = now
                send(stat, signal.SIGTERM)

    def _is_due(self, ending: _Ending, stat: Stat, now: float) -> bool:
        if stat.began > ending.asked_tick:
            return False
        if stat.parent == os.getpid():
            return True
        parent = self._descendants.stat(stat.parent)
        since = self._terminated.get(parent.key) if parent else None
        if since is None:  # its turn comes after its parent's
            return parent is not None and parent.pid == ending.process.pid
        if not _handles_sigterm(stat.pid):
            return now >= since + min(PASSED_ON_SECONDS, ending.grace / 4)
        return now >= ending.asked + ending.grace / 2 and not self._descendants.is_relayed(stat)

    def inspect(self, name: str) -> None:
        self._descendants.look()
        left = self._descendants.of(name) or list(filter(None, [self._descendants.stat(self._processes[name].pid)]))
        self._survivors |= {stat.key for stat in left}
        self._put(events.Survived(name=name, left=tuple(descendants.where_it_is(stat) for stat in left)))

    def sweep(self, keep: Collection[str], within: float) -> None:
        """End the processes that an attempt has left, so that none reaches into the next attempt."""
        # A step still has work to do, with all that it has started; a daemon's descendants belong to the old attempt.
        pids = {name: self._processes[name].pid for name in keep if name in self._processes}
        self._spare = [pid for name, pid in pids.items() if self._specs[name].duty is Duty.STEP]
        self._keep, self._sweeping_until, self._look_at = set(pids.values()), time.monotonic() + within, 0.0
        self._put(events.Due())

    def _go_on_sweeping(self, now: float, until: float) -> None:
        left = [stat for stat in self._descendants.below_us(self._spare) if stat.pid not in self._keep]
        for stat in left:
            send(stat, signal.SIGKILL)
        if left and now < until:
            return
        self._sweeping_until = None
        self._survivors |= {stat.key for stat in left}
        self._put(events.Swept(left=tuple(descendants.where_it_is(stat) for stat in left)))

    def end_the_rest(self, within: float, log: Callable[[str], None]) -> None:
        """Kill and log processes that scripts left running, perhaps on purpose: they end with the job."""
        self._descendants.look()
        names = [name for name in self._processes if self._is_users(name)]
        left = {
            stat.key: stat for name in names for stat in self._descendants.of(name) if stat.key not in self._survivors
        }
        if left:
            shown = [str(stat) for stat in left.values()]
            log(f"killed processes that scripts left running: {listed(shown, NAMED)}")
        for stat in descendants.end_descendants(within, known=self._survivors)[0]:
            if stat.key not in self._survivors:
                log(f"left behind after SIGKILL: {descendants.where_it_is(stat)}")

    def _is_users(self, name: str) -> bool:
        spec = self._specs.get(name)
        return spec is not None and (spec.duty.is_users or spec.runs_program)


def _handles_sigterm(pid: int) -> bool:
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status", errors="replace") as lines:
        for line in lines:
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) & _TERM)
    return False
