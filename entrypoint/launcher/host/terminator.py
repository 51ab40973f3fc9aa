"""How the processes of one host are ended: who is told when, what is left of them, and what SIGKILL does not end."""

import signal
import time
from collections.abc import Callable, Collection, Mapping
from math import inf

from entrypoint.base.values import Value
from entrypoint.launcher.host import descendants
from entrypoint.launcher.host.process import Process
from entrypoint.launcher.plan.plan import Duty
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.events import Event
from entrypoint.launcher.policy.facts import Facts

LOOK, LOOK_SHARE = 0.05, 10.0  # seconds, or so many times what it takes, between two looks at what is to end
NAMED = 10  # processes in one line of the log


class _Sweeping(Value):
    """What is ended between two attempts. `spare`: pids that live on with what descends from them; `keep`: without."""

    spare: frozenset[int]
    keep: frozenset[int]
    until: float


class Endings:
    """Belongs to the loop, like the facts that it reads. `processes`: those of the plan that were started."""

    def __init__(self, processes: Mapping[str, Process], facts: Facts, put: Callable[[Event], None]) -> None:
        self._processes, self._facts, self._put = processes, facts, put
        self._descendants = descendants.Descendants(processes, self._is_users)
        self._endings: dict[str, descendants.Ending] = {}  # of what was told to end, and has not
        self._sweeping: _Sweeping | None = None
        self._survivors: set[tuple[int, int]] = set()  # of SIGKILL
        self._look_at = 0.0

    @property
    def look_at(self) -> float:
        """When to `press` the next time."""
        return self._look_at if self._endings or self._sweeping else inf

    def look_soon(self) -> None:
        """Look soon: what has ended may have been the last of those that were told to, or have left others."""
        self._look_at = 0.0

    def look(self) -> None:
        self._descendants.look()

    def ask(self, name: str, grace: float) -> None:
        if name in self._processes:  # else it could not be started, which is still to be told
            self._ending(name, grace).ask(time.monotonic())

    def force(self, name: str) -> None:
        if name in self._processes:
            self._ending(name).force()

    def forget(self, name: str) -> None:
        """Forget it: it has ended, or its rest is left behind and that was noted. Its end may be told now."""
        self._endings.pop(name, None)

    def left_others(self, name: str) -> bool:
        """Return whether a process that was told to end left others, which may still save: it is not over yet."""
        ending = self._endings.get(name)
        return ending is not None and any(stat.pid != self._processes[name].pid for stat in ending.living)

    def press(self) -> None:
        """See what is left of the processes that are to end, and signal those whose turn it is."""
        now = time.monotonic()
        if now < self.look_at:
            return
        self._descendants.look()
        for ending in self._endings.values():
            ending.press(now)
        if self._sweeping:
            self._go_on_sweeping(self._sweeping, now)
        # On a machine with many processes a look takes its time.
        self._look_at = time.monotonic() + max(LOOK, LOOK_SHARE * (time.monotonic() - now))

    def inspect(self, name: str) -> None:
        self._descendants.look()
        left = self._descendants.of(name) or [
            stat for stat in [self._descendants.stat(self._processes[name].pid)] if stat
        ]
        self._survivors |= {stat.key for stat in left}
        self._put(events.Survived(name=name, left=tuple(descendants.where_it_is(stat) for stat in left)))

    def sweep(self, keep: Collection[str], within: float) -> None:
        """End what an attempt has left, so that no process reaches into the next."""
        # A step has its work before it, with all that it has started; a daemon only serves what is over.
        pids = {name: self._processes[name].pid for name in keep if name in self._processes}
        steps = [pid for name, pid in pids.items() if self._facts.own.specs[name].duty is Duty.STEP]
        self._sweeping = _Sweeping(
            spare=frozenset(steps), keep=frozenset(pids.values()), until=time.monotonic() + within
        )
        self._look_at = 0.0
        self._put(events.Due())

    def _go_on_sweeping(self, sweeping: _Sweeping, now: float) -> None:
        left = [stat for stat in self._descendants.below_us(sweeping.spare) if stat.pid not in sweeping.keep]
        for stat in left:
            descendants.send(stat, signal.SIGKILL)
        if left and now < sweeping.until:
            return
        self._sweeping = None
        self._survivors |= {stat.key for stat in left}
        self._put(events.Swept(left=tuple(descendants.where_it_is(stat) for stat in left)))

    def end_the_rest(self, within: float, say: Callable[[str], None]) -> None:
        """End what scripts left running, perhaps on purpose: it ends with the job, and not without a word."""
        self._descendants.look()
        names = [name for name in self._processes if self._is_users(name)]
        left = {
            stat.key: stat for name in names for stat in self._descendants.of(name) if stat.key not in self._survivors
        }
        if left:
            shown = [str(stat) for stat in left.values()]
            more = f" and {len(shown) - NAMED} more" if len(shown) > NAMED else ""
            say(f"scripts have left processes running, which are killed: {', '.join(shown[:NAMED])}{more}")
        for stat in descendants.end_descendants(within, known=self._survivors)[0]:
            if stat.key not in self._survivors:
                say(f"left behind, since SIGKILL does not end it: {descendants.where_it_is(stat)}")

    def _ending(self, name: str, grace: float = 0.0) -> descendants.Ending:
        if name not in self._endings:
            process = self._processes[name]
            self._endings[name] = descendants.Ending(
                name=name, process=process, grace=grace, descendants=self._descendants
            )
        return self._endings[name]

    def _is_users(self, name: str) -> bool:
        spec = self._facts.own.specs.get(name)
        return spec is not None and (spec.duty.is_users or spec.runs_program)
