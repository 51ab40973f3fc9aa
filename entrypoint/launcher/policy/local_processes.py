"""Hold what one host knows of its own processes. The policy writes it, by `note_...` and `forget_...`."""

from collections.abc import Iterable
from typing import Any

from entrypoint.launcher.outcome.outcome import Exit
from entrypoint.launcher.plan.plan import Duty, ProcessSpec, Restart


class OwnProcesses:
    """Hold processes by their names in the plan. Times are seconds of our own monotonic clock."""

    def __init__(self, specs: Iterable[ProcessSpec]) -> None:
        self.specs = {spec.name: spec for spec in specs}
        self.started: dict[str, float] = {}
        self.ended: dict[str, Exit] = {}
        self.ended_at: dict[str, float] = {}
        self.asked: dict[str, float] = {}  # SIGTERM was sent
        self.forced: dict[str, float] = {}  # SIGKILL was sent
        self.stuck: dict[str, tuple[str, ...]] = {}  # what is left of a process long after SIGKILL
        self.restarts: dict[str, int] = {}  # how often a process was started again alone
        self.not_before: dict[str, float] = {}  # when it may be started again

    # --- written by the policy ---

    def note_started(self, spec: ProcessSpec, now: float) -> None:
        """Note a start. A rank that the plan has on another host brings its own spec."""
        self.specs.setdefault(spec.name, spec)
        self.started[spec.name] = now

    def note_ended(self, name: str, exit: Exit, now: float) -> None:
        self.ended[name], self.ended_at[name] = exit, now

    def note_asked(self, name: str, now: float) -> None:
        self.asked[name] = now

    def note_forced(self, name: str, now: float) -> None:
        self.forced[name] = now

    def note_stuck(self, name: str, left: tuple[str, ...]) -> None:
        self.stuck[name] = left

    def forget_group(self) -> None:
        """Forget the last attempt, of which nothing runs here any more. Its processes count as never started."""
        self._forget(*self.group())

    def forget_stuck(self) -> None:
        """Forget stuck processes: they have ended at last."""
        self.stuck = {name: left for name, left in self.stuck.items() if name not in self.group()}

    def forget_end(self, name: str, not_before: float) -> None:
        """Forget the end of a process that is started again alone."""
        self._forget(name)
        self.restarts[name] = self.restarts.get(name, 0) + 1
        self.not_before[name] = not_before

    def _forget(self, *names: str) -> None:
        known: tuple[dict[str, Any], ...]
        known = (self.started, self.ended, self.ended_at, self.asked, self.forced, self.not_before)
        for name in names:
            for facts in known:
                facts.pop(name, None)

    # --- asked by anybody ---

    def running(self, *duties: Duty) -> list[str]:
        """Return the names of processes that were started and have not ended; with one of these duties if given."""
        return [
            name
            for name, spec in self.specs.items()
            if name in self.started
            and name not in self.ended
            and name not in self.stuck
            and (not duties or spec.duty in duties)
        ]

    def having(self, *duties: Duty) -> list[str]:
        return [name for name, spec in self.specs.items() if spec.duty in duties]

    @property
    def deciding(self) -> list[str]:
        return [name for name, spec in self.specs.items() if spec.decides]

    def is_over(self, name: str) -> bool:
        return name in self.ended or name in self.stuck

    def ended_well(self, *names: str) -> bool:
        return all(name in self.ended and self.ended[name].clean for name in names)

    def ranks_ended_well(self) -> bool:
        return self.ended_well(*(name for name in self.having(Duty.RANK) if name in self.started))

    def group(self) -> list[str]:
        """Return the names of processes that end and start with an attempt."""
        return [name for name, spec in self.specs.items() if spec.restart is not Restart.KEEP]

    def exits(self, began: float) -> tuple[tuple[str, str, float], ...]:
        """Return (process, how it ended, seconds since `began`) of processes that have ended, or never will."""
        ended = [
            (name, str(exit), round(self.ended_at[name] - began, 3))
            for name, exit in self.ended.items()
            if self.specs[name].duty is not Duty.STEP or not exit.clean
        ]
        still = [
            (name, f"not, though killed then: {'; '.join(left)}", round(self.forced[name] - began, 3))
            for name, left in self.stuck.items()
            if name in self.forced and name not in self.ended
        ]
        return (*ended, *still)
