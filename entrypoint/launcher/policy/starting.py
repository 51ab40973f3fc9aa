"""Decide which processes of this host start now, and which failures let the job start again. Pure, like the policy.

Between two attempts, every host ends what is left of the old one, sweeps, and reports that it is clear. When all hosts
are clear and the back-off is over, the coordinator starts the new attempt. What prepared the host stays: code, keys,
sshd.
"""

from collections.abc import Iterator
from signal import SIGINT, SIGTERM

from entrypoint.base.errors import ExitCode
from entrypoint.launcher.job.settings import Settings
from entrypoint.launcher.outcome.outcome import Exit, Outcome
from entrypoint.launcher.plan.plan import Duty, ProcessSpec, Ready, Restart
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.events import Action
from entrypoint.launcher.policy.facts import Facts, Phase

LONGEST_BACKOFF_SECONDS = 60.0  # seconds, unless the first back-off is longer


class Starting:
    """Start processes. It remembers since when they wait for a need with a limit, and when an attempt begins."""

    def __init__(self, facts: Facts, settings: Settings) -> None:
        self.facts, self.settings = facts, settings
        self._held_since: dict[tuple[int, str], float] = {}  # (attempt, process)
        self._go_at = facts.began
        self._sweeping = False

    def advance(self, now: float) -> Iterator[Action]:
        facts = self.facts
        yield from self._begin_attempt(now)
        if not (facts.phase.is_active and facts.attempt.go) or facts.attempt.causes:
            return
        progress = True
        while progress:  # a start may meet another process's need
            progress = False
            for spec in facts.own.specs.values():
                if spec.duty is not Duty.RANK and spec.name not in facts.own.started and self._may_start(spec, now):
                    facts.own.note_started(spec, now)
                    if spec.ready is Ready.STARTED:
                        facts.attempt.note_ready((facts.host, spec.name))
                    progress = True
                    yield events.Start(spec=spec, restarted=facts.times_restarted(spec.name))

    def _may_start(self, spec: ProcessSpec, now: float) -> bool:
        facts = self.facts
        if not all(facts.met(need) for need in spec.needs if need.at_most is None):
            return False
        if now < facts.own.not_before.get(spec.name, now):
            return False
        since = self._held_since.setdefault((facts.attempt.number, spec.name), now)
        limited = [need for need in spec.needs if need.at_most is not None]
        return all(facts.met(need) or now >= since + (need.at_most or 0) for need in limited)

    def deadlines(self) -> Iterator[float]:
        own = self.facts.own
        yield self._go_at
        yield from own.not_before.values()
        for (attempt, name), since in self._held_since.items():
            if attempt == self.facts.attempt.number and name not in own.started:
                yield from (since + need.at_most for need in own.specs[name].needs if need.at_most is not None)

    def looks_transient(self, exit: Exit) -> bool:
        """Return whether a process ended by a signal or by a code that the user named.

        An exception would come again.
        """
        return exit.code in self.settings.restart_codes or exit.signal not in (None, SIGTERM, SIGINT)

    def start_alone(self, spec: ProcessSpec, now: float) -> events.Say | None:
        """Restart one process alone, if its kind and the settings allow it."""
        own, done = self.facts.own, self.facts.own.restarts.get(spec.name, 0)
        if spec.restart is not Restart.ALONE or done >= self.settings.restarts:
            return None
        wait = self._backoff(done)
        own.forget_end(spec.name, not_before=now + wait)
        count = f"restart {done + 1} of {self.settings.restarts}"
        return events.Say(message=f"{spec.name} restarts in {wait:g} s ({count}); the others continue")

    def may_try_again(self, settled: Outcome) -> bool:
        """Return whether the coordinator may begin a new attempt instead of ending the job."""
        facts, cause = self.facts, settled.cause
        gone = any(facts.hosts.is_gone(host) for host in facts.others)
        all_there = facts.hosts.assembled and not facts.lost() and not gone
        possible = facts.is_coordinator and all_there and facts.phase is not Phase.STOPPING
        return possible and cause is not None and cause.restartable and facts.attempt.number < self.settings.restarts

    def try_again(self, settled: Outcome, now: float) -> Iterator[Action]:
        facts = self.facts
        assert settled.cause is not None
        wait = self._backoff(facts.attempt.number)
        facts.begin_attempt(facts.attempt.number + 1)
        self._go_at = now + wait
        count = f"restart {facts.attempt.number} of {self.settings.restarts}"
        yield events.Say(message=f"attempt {facts.attempt.number - 1} failed: {settled.cause.headline}")
        yield events.Say(message=f"all processes restart in {wait:g} s ({count})")

    def _begin_attempt(self, now: float) -> Iterator[Action]:
        """End leftover processes once the last attempt's own processes have ended.

        On the coordinator, let the new attempt begin when every host has reported that it is ready for that attempt.
        """
        facts = self.facts
        group = facts.own.group()
        if facts.attempt.clearing and not self._sweeping and not any(name in group for name in facts.own.running()):
            self._sweeping = True
            within = 0.0 if facts.own.stuck else self.settings.kill_timeout
            yield events.Sweep(keep=frozenset(facts.own.running()), within=within)
        attempt, waits = facts.attempt, facts.phase is Phase.STARTING and not facts.attempt.go
        if facts.is_coordinator and waits and now >= self._go_at and not attempt.causes:
            reports = map(facts.hosts.reports.get, facts.others)
            attempt.go = all(report is not None and report.attempt == attempt.number for report in reports)

    def note_swept(self, left: tuple[str, ...], now: float) -> None:
        """Note that nothing of the last attempt runs here. If SIGKILL left something, no new attempt can begin."""
        facts, self._sweeping = self.facts, False
        facts.own.forget(*facts.own.group())
        facts.attempt.clearing = False
        if left:
            process = next(iter(facts.own.stuck), "")
            error = f"still running {self.settings.kill_timeout:g} s after SIGKILL: {'; '.join(left)}"
            what = "survives SIGKILL, so the job cannot restart"
            facts.blame(now, process, what=what, error=error, code=ExitCode.NOT_ENDED)
        else:  # stuck processes have ended at last
            facts.own.stuck = {name: what for name, what in facts.own.stuck.items() if name not in facts.own.group()}

    def _backoff(self, restarts: int) -> float:
        base = self.settings.restart_backoff
        return float(min(base * 2.0 ** min(restarts, 16), max(base, LONGEST_BACKOFF_SECONDS)))
