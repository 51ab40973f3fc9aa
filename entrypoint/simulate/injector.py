"""Inject the faults of a run: wait for the moment of each, let the engine inject and end it, and report."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import compress
from math import inf

from entrypoint.simulate.engine import Engine, FaultFailed
from entrypoint.simulate.fault import ALL, Action, Fault

_OURS = (Action.LATE, Action.STALL)  # done by `HostRunner`, which starts hosts and reads their output, not by an engine


class _State(Enum):
    WAITING = auto()
    INJECTED = auto()
    OVER = auto()
    FAILED = auto()


@dataclass
class _Case:
    fault: Fault
    state: _State = _State.WAITING
    printed: bool = False  # the text of its `when` was printed
    try_at: float = 0.0  # time before which it is not tried again
    done: set[str] = field(default_factory=set)  # hosts that it has reached
    injected: float = 0.0  # seconds from the start of the first host
    over: float = 0.0
    why: str = ""

    @property
    def due(self) -> float | None:
        """Return when to inject or to end the fault; None if never, or not before its text is printed."""
        if self.state is _State.WAITING and (self.printed or not self.fault.when):
            return max(self.fault.at, self.try_at)
        if self.state is _State.INJECTED and self.fault.lasts is not None:
            return self.injected + self.fault.lasts
        return None

    def __str__(self) -> str:
        match self.state:
            case _State.WAITING if self.done:
                return f"fault: {self.fault}, after {self.injected:.2f} s; the others ended before it reached them"
            case _State.WAITING:
                return f"fault never happened: {self.fault}"
            case _State.FAILED:
                return f"fault failed: {self.fault}: {self.why}"
            case _State.OVER:
                return f"fault: {self.fault}, from {self.injected:.2f} s to {self.over:.2f} s"
        return f"fault: {self.fault}, after {self.injected:.2f} s"


class Injector:
    """Inject the faults of one run. Times are seconds from the start of the first host.

    `note_output` and `stalls` are called from other threads, all else from one.
    """

    def __init__(self, faults: Sequence[Fault], engine: Engine, say: Callable[[str], None]) -> None:
        self._engine, self._say = engine, say
        self._cases = [_Case(fault) for fault in faults]

    def starts_at(self, host: str) -> float:
        return max((case.fault.lasts or 0.0 for case in self._of(Action.LATE, host)), default=0.0)

    def stalls(self, host: str) -> bool:
        """Return whether the host's output must not be read now."""
        return any(case.state is _State.INJECTED for case in self._of(Action.STALL, host))

    def note_output(self, lines: bytes) -> bool:
        """Note texts that faults wait for in a host's output; return whether `act` has something to do now."""
        wake = False
        for case in self._cases:
            if case.state is _State.WAITING and not case.printed and case.fault.when:
                wake |= (printed := case.fault.when.encode() in lines)
                case.printed |= printed
        return wake

    def act(self, now: float, running: Mapping[str, int]) -> None:
        """Inject and end the faults that are due."""
        for case in self._cases:
            if case.due is None or now < case.due:
                continue
            try:
                if case.state is _State.WAITING:
                    self._inject(case, now, running)
                else:
                    self._heal(case, now, running)
            except FaultFailed as error:
                case.why = f"it does not end: {error}" if case.state is _State.INJECTED else str(error)
                case.state = _State.FAILED
                self._say(str(case))

    def next_look(self) -> float:
        """Return the earliest time at which a fault is due; infinity if none is. Output may make one due earlier."""
        return min((case.due for case in self._cases if case.due is not None), default=inf)

    def frozen_for_good(self) -> set[str]:
        """Return hosts that neither end by themselves nor react to SIGTERM."""
        return {
            case.fault.host
            for case in self._cases
            if case.state is _State.INJECTED
            and case.fault.action is Action.PAUSE
            and not case.fault.process
            and case.fault.lasts is None
        }

    def report(self) -> list[str]:
        return [str(case) for case in self._cases]

    def _inject(self, case: _Case, now: float, running: Mapping[str, int]) -> None:
        fault = case.fault
        if not case.done:
            case.injected = 0.0 if fault.from_the_start else now
        if not fault.from_the_start:
            hosts = list(running) if fault.host == ALL else [fault.host]
            case.done |= self._do_to_all(case, [host for host in hosts if host not in case.done], running)
            if not (hosts and case.done.issuperset(hosts)):
                case.try_at = now + self._engine.look_again
                return
        case.state = _State.INJECTED
        self._say(f"fault after {case.injected:.2f} s: {fault}")

    def _do_to_all(self, case: _Case, hosts: list[str], running: Mapping[str, int]) -> set[str]:
        """Inject a fault into several hosts before any notices another's end. Return the hosts that it reached."""
        if len(hosts) < 2:
            return {host for host in hosts if self._do(case.fault, host, running)}
        with ThreadPoolExecutor(len(hosts)) as pool:
            if case.fault.action is Action.KILL and not case.fault.process:
                pause = replace(case.fault, action=Action.PAUSE)  # to kill a host takes several signals
                list(pool.map(lambda host: self._do(pause, host, running), hosts))
            done = pool.map(lambda host: self._do(case.fault, host, running), hosts)
            return set(compress(hosts, done))

    def _do(self, fault: Fault, host: str, running: Mapping[str, int]) -> bool:
        if host not in running:
            return False
        if fault.action is Action.STALL:
            return True
        return self._engine.inject(fault, host, running[host])

    def _heal(self, case: _Case, now: float, running: Mapping[str, int]) -> None:
        if case.fault.action not in _OURS:
            self._engine.heal(case.fault, case.fault.host, running.get(case.fault.host))
        case.state, case.over = _State.OVER, now
        self._say(f"fault over after {now:.2f} s: {case.fault}")

    def _of(self, action: Action, host: str) -> list[_Case]:
        return [case for case in self._cases if case.fault.action is action and case.fault.host == host]
