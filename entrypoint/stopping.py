"""Which processes of this host must end now, and how hard to press. Pure, like the policy that asks it.

After a failure: SIGTERM, `failure_grace` seconds, SIGKILL. After a stop: scripts have `stop_grace` seconds to save, and
servers and mpirun stay for that long, since saving may take them. What SIGKILL does not end within `kill_timeout`
seconds is given up: it counts as running no more.
"""

from collections.abc import Iterator

from entrypoint import events
from entrypoint.events import Action
from entrypoint.facts import Facts
from entrypoint.outcome import Strength
from entrypoint.plan import Duty, Restart
from entrypoint.settings import Settings

UNWIND = 10.0  # seconds in which mpirun ends when all that it has started is over
_USERS = (Duty.SCRIPT, Duty.RANK, Duty.SIDECAR, Duty.STEP)


class Stopping:
    """Remembers only since when it waits for mpirun, and what it gave up."""

    def __init__(self, facts: Facts, settings: Settings) -> None:
        self.facts, self.settings = facts, settings
        self._ranks_over_since: float | None = None
        self._inspected: set[tuple[int, str]] = set()  # (attempt, process)

    def advance(self, now: float) -> Iterator[Action]:
        facts = self.facts
        # What looks like an echo stops nothing before the verdict: the one behind it may still have to speak.
        cause = facts.own_cause()
        yield from self._give_up(now)
        if facts.outcome is not None or facts.clearing:
            yield from self._end_all(now)
        elif facts.stopping_since is not None:
            yield from self._let_save(facts.stopping_since, now)
        elif cause is not None and cause.strength is Strength.STRONG:
            yield from self._ask(self._running(*_USERS), now)
            yield from self._force_the_deaf(now)
        elif launchers := self._running(Duty.LAUNCHER):
            yield from self._let_mpirun_end(launchers, now)

    def _give_up(self, now: float) -> Iterator[Action]:
        facts = self.facts
        for name in facts.running():
            since = facts.forced.get(name)
            if since is None or now < since + self.settings.kill_timeout or (facts.attempt, name) in self._inspected:
                continue
            self._inspected.add((facts.attempt, name))
            yield events.Inspect(name=name)

    def note_survived(self, event: events.Survived) -> Iterator[Action]:
        self.facts.stuck[event.name] = event.left
        what = "; ".join(event.left) or "nothing of it is to be seen"
        seconds = f"{self.settings.kill_timeout:g} s"
        yield events.Say(message=f"{event.name} is still there {seconds} after SIGKILL, and is left behind: {what}")

    def _let_mpirun_end(self, launchers: list[str], now: float) -> Iterator[Action]:
        """When every rank has ended well nothing is left for mpirun to do, and it may never find that out."""
        if not self.facts.all_ranks_ended_well():
            self._ranks_over_since = None
            return
        self._ranks_over_since = now if self._ranks_over_since is None else self._ranks_over_since
        if now >= self._ranks_over_since + UNWIND:
            if not all(name in self.facts.forced for name in launchers):
                yield events.Say(message=f"all ranks ended well {UNWIND:g} s ago, and mpirun has not: it is killed")
            yield from self._force(launchers, now)

    def _running(self, *duties: Duty) -> list[str]:
        facts = self.facts
        stays = {name for name, spec in facts.specs.items() if facts.clearing and spec.restart is Restart.KEEP}
        return [name for name in facts.running() if facts.specs[name].duty in duties and name not in stays]

    def _let_save(self, since: float, now: float) -> Iterator[Action]:
        """Servers stay: a script may still want to save through them.

        mpirun goes when the ranks of all hosts have: asked, it would kill those that still save.
        """
        facts = self.facts
        scripts, launchers = self._running(*_USERS), self._running(Duty.LAUNCHER)
        has_ranks = any(spec.duty is Duty.RANK and name in facts.started for name, spec in facts.specs.items())
        grace = self.settings.stop_grace
        yield from self._ask(scripts if has_ranks else [*scripts, *launchers], now, max(0.0, since + grace - now))
        if now >= since + grace:
            yield from self._force([*scripts, *launchers], now)
        if launchers and facts.ranks_are_over():
            self._ranks_over_since = now if self._ranks_over_since is None else self._ranks_over_since
            # It has not heard of the ends of ranks, see Supervisor. One without ranks was asked.
            if facts.any_rank_started() or now >= self._ranks_over_since + UNWIND:
                yield from self._force(launchers, now)

    def _end_all(self, now: float) -> Iterator[Action]:
        facts = self.facts
        if facts.succeeded():  # what is left of the scripts serves, and may have something to save all the same
            serving = [name for name in self._running(Duty.SCRIPT) if name not in facts.asked]
            if serving:
                yield events.Say(message=f"{', '.join(serving)}: only serving others, which have ended; told to end")
            yield from self._ask(serving, now, self.settings.stop_grace)
        yield from self._ask(self._running(*_USERS, Duty.SERVER), now)
        yield from self._force_the_deaf(now)
        launchers = self._running(Duty.LAUNCHER)
        if launchers and not self._running(Duty.RANK):
            # mpirun has no work of its own left: it goes when the ranks have had their time.
            lost = facts.lost()
            others_left = facts.outcome is not None and all(facts.is_gone(h) or h in lost for h in facts.others)
            out_of_time = facts.outcome is not None and now >= facts.outcome_at + self.settings.failure_grace
            if facts.clearing or others_left or out_of_time:
                yield from self._force(launchers, now)

    def _force_the_deaf(self, now: float) -> Iterator[Action]:
        asked = self.facts.asked
        yield from self._force(
            [n for n in self.facts.running() if n in asked and now >= asked[n] + self._grace(n)], now
        )

    def _grace(self, name: str) -> float:
        serves = self.facts.succeeded() and self.facts.specs[name].duty is Duty.SCRIPT
        return self.settings.stop_grace if serves else self.settings.failure_grace

    def _ask(self, names: list[str], now: float, grace: float | None = None) -> Iterator[Action]:
        for name in names:
            if name not in self.facts.asked:
                self.facts.asked[name] = now
                yield events.Ask(name=name, grace=self.settings.failure_grace if grace is None else grace)

    def _force(self, names: list[str], now: float) -> Iterator[Action]:
        for name in names:
            if name not in self.facts.forced:
                self.facts.forced[name] = now
                yield events.Force(name=name)
