"""Trying again: which ends may be chance, one process started again by itself, or all of them. Pure, like the policy.

From one attempt to the next, every host ends what is left of the old one, sweeps, and reports itself clear; when all
hosts are clear and the back-off is over, the coordinator says go. What prepared the host stays: code, keys, sshd.
"""

from collections.abc import Iterator
from signal import SIGINT, SIGTERM

from entrypoint import events
from entrypoint.errors import ExitCode
from entrypoint.events import Action
from entrypoint.facts import Facts
from entrypoint.outcome import Exit, Outcome
from entrypoint.plan import ProcessSpec, Restart
from entrypoint.settings import Settings

LONGEST_BACKOFF = 60.0  # seconds, where the first is not longer


class Attempts:
    """Times are seconds of one monotonic clock, ours."""

    def __init__(self, facts: Facts, settings: Settings) -> None:
        self.facts, self.settings = facts, settings
        self._go_at = facts.began
        self._sweeping = False

    def may_be_chance(self, exit: Exit) -> bool:
        """Whether the same may end well the next time: killed by a signal, or a code that the user named.

        Not a Python exception (exit code 1): that would be raised again.
        """
        return exit.code in self.settings.restart_codes or exit.signal not in (None, SIGTERM, SIGINT)

    def start_alone(self, spec: ProcessSpec, now: float) -> Iterator[Action]:
        """Start a process again by itself, if its kind and the settings allow it."""
        facts, done = self.facts, self.facts.restarts.get(spec.name, 0)
        if spec.restart is not Restart.ALONE or done >= self.settings.restarts:
            return
        wait = self._backoff(done)
        facts.forget_end(spec.name, not_before=now + wait)
        count = f"restart {done + 1} of {self.settings.restarts}"
        yield events.Say(message=f"{spec.name} is started again in {wait:g} s ({count}); the others go on")

    def may_try_again(self, settled: Outcome) -> bool:
        """Whether the coordinator takes this end of an attempt for none of the job."""
        facts, cause = self.facts, settled.cause
        all_there = facts.assembled and not facts.lost() and not any(facts.is_gone(host) for host in facts.others)
        possible = facts.is_coordinator and all_there and facts.stopping_since is None
        return possible and cause is not None and cause.restartable and facts.attempt < self.settings.restarts

    def try_again(self, settled: Outcome, now: float) -> Iterator[Action]:
        facts = self.facts
        assert settled.cause is not None
        wait = self._backoff(facts.attempt)
        facts.begin_attempt(facts.attempt + 1)
        self._go_at = now + wait
        count = f"restart {facts.attempt} of {self.settings.restarts}"
        yield events.Say(message=f"attempt {facts.attempt - 1} failed: {settled.cause.headline}")
        yield events.Say(message=f"all processes are started again in {wait:g} s ({count})")

    def advance(self, now: float) -> Iterator[Action]:
        """Go on from one attempt to the next."""
        facts = self.facts
        group = facts.group()
        if facts.clearing and not self._sweeping and not any(name in group for name in facts.running()):
            self._sweeping = True
            within = 0.0 if facts.stuck else self.settings.kill_timeout
            yield events.Sweep(keep=frozenset(facts.running()), within=within)
        waiting = not facts.go and not facts.clearing and facts.outcome is None
        if facts.is_coordinator and waiting and now >= self._go_at:
            facts.go = not facts.causes and all(facts.is_clear(host) for host in facts.others)

    def note_swept(self, left: tuple[str, ...], now: float) -> None:
        """Nothing of the last attempt runs here; or something that SIGKILL does not end, and no other can begin."""
        facts, self._sweeping = self.facts, False
        facts.forget_group()
        if left:
            process = next(iter(facts.stuck), "")
            error = f"{self.settings.kill_timeout:g} s after SIGKILL there is still {'; '.join(left)}"
            what = "cannot be ended, so the job cannot be tried again"
            facts.blame(now, process, what=what, error=error, code=ExitCode.NOT_ENDED)
        else:  # what was stuck has ended at last
            facts.stuck = {name: of for name, of in facts.stuck.items() if name not in facts.group()}

    def deadlines(self) -> Iterator[float]:
        yield self._go_at
        yield from self.facts.not_before.values()

    def _backoff(self, restarts: int) -> float:
        base = self.settings.restart_backoff
        return float(min(base * 2.0 ** min(restarts, 16), max(base, LONGEST_BACKOFF)))
