"""Decide which processes of this host must end now, by SIGTERM, SIGKILL or giving up, and when this host exits. Pure.

After a failure: SIGTERM, `failure_grace` seconds, SIGKILL. After a stop: scripts have `stop_grace` seconds to save;
servers and mpirun stay for that long, since saving may need them. A process that SIGKILL does not end within
`kill_timeout` seconds is given up and no longer counts as running.
"""

from collections.abc import Iterator

from entrypoint.launcher.job.settings import Settings
from entrypoint.launcher.outcome.outcome import Confidence, Kind, Outcome
from entrypoint.launcher.plan.plan import USERS, Duty, Restart
from entrypoint.launcher.policy import artifacts, events
from entrypoint.launcher.policy.events import Action
from entrypoint.launcher.policy.facts import Facts
from entrypoint.launcher.policy.liveness import Liveness
from entrypoint.launcher.policy.verdict import LINGER_SECONDS

UNWIND_SECONDS = 10.0  # seconds for mpirun to end after all that it has started
_WORK = (*USERS, Duty.STEP)
STRAGGLER_SECONDS = 1.5  # seconds that the coordinator of a stopped job waits for hosts that never reported
LEAVE_SECONDS = 3.0  # seconds beyond the grace that the coordinator waits for followers' last reports
INVENTORY_SECONDS = 2.0  # seconds for the inventory; a disk that does not answer holds up nobody


class Termination:
    """End processes, and then this host. The only state is the current waits and the processes that were given up."""

    def __init__(self, facts: Facts, settings: Settings, liveness: Liveness) -> None:
        self.facts, self.settings, self.liveness = facts, settings, liveness
        self._ranks_over_since: float | None = None  # since when it waits for mpirun
        self._inspected: set[tuple[int, str]] = set()  # (attempt, process)
        self._inventory_since: float | None = None
        self._awaited: str | None = None  # a host whose last report was awaited at the last check

    def advance(self, now: float) -> Iterator[Action]:
        facts = self.facts
        # A likely symptom ends nothing before the verdict: its cause may still have to be reported.
        yield from self._give_up(now)
        if facts.outcome is not None or facts.attempt.clearing:
            yield from self._end_all(now)
        elif facts.stopping_since is not None:
            yield from self._let_save(facts.stopping_since, now)
        elif facts.own_failure(Confidence.HIGH):
            yield from self._ask(self._running(*_WORK), now)
            yield from self._force_the_deaf(now)
        elif launchers := self._running(Duty.LAUNCHER):
            yield from self._let_mpirun_end(launchers, now)

    def _give_up(self, now: float) -> Iterator[Action]:
        facts = self.facts
        for name in facts.own.running():
            since = facts.own.forced.get(name)
            this = (facts.attempt.number, name)
            if since is None or now < since + self.settings.kill_timeout or this in self._inspected:
                continue
            self._inspected.add(this)
            yield events.Inspect(name=name)

    def note_survived(self, event: events.Survived) -> Iterator[Action]:
        self.facts.own.stuck[event.name] = event.left
        what = "; ".join(event.left) or "no process of it is visible"
        seconds = f"{self.settings.kill_timeout:g} s"
        yield events.Say(message=f"{event.name} survives SIGKILL for {seconds} and is left behind: {what}")

    def _let_mpirun_end(self, launchers: list[str], now: float) -> Iterator[Action]:
        """Kill mpirun if it stays when every rank has ended well: it has no work left, and may never notice."""
        if not self.facts.all_ranks_ended_well():
            self._ranks_over_since = None
            return
        self._ranks_over_since = now if self._ranks_over_since is None else self._ranks_over_since
        if now >= self._ranks_over_since + UNWIND_SECONDS:
            if not all(name in self.facts.own.forced for name in launchers):
                yield events.Say(
                    message=f"mpirun still runs {UNWIND_SECONDS:g} s after all ranks ended with code 0: it is killed"
                )
            yield from self._force(launchers, now)

    def _running(self, *duties: Duty) -> list[str]:
        own, clearing = self.facts.own, self.facts.attempt.clearing
        return [n for n in own.running(*duties) if not (clearing and own.specs[n].restart is Restart.KEEP)]

    def _let_save(self, since: float, now: float) -> Iterator[Action]:
        """Let scripts save while servers stay for them. mpirun goes last: at SIGTERM it would kill ranks that save."""
        facts = self.facts
        scripts, launchers = self._running(*_WORK), self._running(Duty.LAUNCHER)
        has_ranks = any(name in facts.own.started for name in facts.own.having(Duty.RANK))
        grace = self.settings.stop_grace
        yield from self._ask(scripts if has_ranks else [*scripts, *launchers], now, max(0.0, since + grace - now))
        if now >= since + grace:
            yield from self._force([*scripts, *launchers], now)
        if launchers and facts.ranks_are_over():
            self._ranks_over_since = now if self._ranks_over_since is None else self._ranks_over_since
            # mpirun has not seen the ranks end, see ThisHost. An mpirun without ranks got SIGTERM.
            if facts.any_rank_came() or now >= self._ranks_over_since + UNWIND_SECONDS:
                yield from self._force(launchers, now)

    def _end_all(self, now: float) -> Iterator[Action]:
        facts = self.facts
        if facts.succeeded():  # remaining scripts only serve, but may have something to save
            serving = [name for name in self._running(Duty.SCRIPT) if name not in facts.own.asked]
            if serving:
                yield events.Say(message=f"{', '.join(serving)}: only serves processes that have ended; terminated")
            yield from self._ask(serving, now, self.settings.stop_grace)
        yield from self._ask(self._running(*_WORK, Duty.SERVER), now)
        yield from self._force_the_deaf(now)
        launchers = self._running(Duty.LAUNCHER)
        if launchers and not self._running(Duty.RANK):
            # mpirun has no work of its own left: it goes after the ranks have had their time.
            lost = facts.lost()
            others_left = all(facts.hosts.is_gone(host) or host in lost for host in facts.others)
            out_of_time = now >= facts.outcome_at + self.settings.failure_grace
            if facts.attempt.clearing or others_left or out_of_time:
                yield from self._force(launchers, now)

    def _force_the_deaf(self, now: float) -> Iterator[Action]:
        own = self.facts.own
        deaf = [name for name in own.running() if name in own.asked and now >= own.asked[name] + self._grace(name)]
        yield from self._force(deaf, now)

    def _grace(self, name: str) -> float:
        serves = self.facts.succeeded() and self.facts.own.specs[name].duty is Duty.SCRIPT
        return self.settings.stop_grace if serves else self.settings.failure_grace

    def _ask(self, names: list[str], now: float, grace: float | None = None) -> Iterator[Action]:
        for name in names:
            if name not in self.facts.own.asked:
                self.facts.own.asked[name] = now
                yield events.Ask(name=name, grace=self.settings.failure_grace if grace is None else grace)

    def _force(self, names: list[str], now: float) -> Iterator[Action]:
        for name in names:
            if name not in self.facts.own.forced:
                self.facts.own.forced[name] = now
                yield events.Force(name=name)

    def take_inventory(self, now: float) -> Iterator[Action]:
        if not self.facts.is_over() or not self.facts.succeeded():
            return
        if self._inventory_since is None:
            self._inventory_since = now
            yield events.TakeInventory()
        elif now >= self._inventory_since + INVENTORY_SECONDS:
            self.facts.inventoried = True

    def finish(self, now: float) -> Iterator[Action]:
        """Finish when nothing runs here; on the coordinator, when the others have left or had enough time to leave."""
        facts = self.facts
        if facts.outcome is None or not facts.leaving():
            return
        if facts.is_coordinator and self._waits(facts.outcome, now):
            return
        facts.left = True
        if facts.is_coordinator and facts.succeeded():
            left = {host: facts.report_of(host).artifacts for host in facts.others}
            for warning in artifacts.warnings({facts.host: facts.artifacts, **left}):
                yield events.Say(message=f"warning: {warning}")
        yield events.Finish(outcome=facts.outcome)

    def _waits(self, settled: Outcome, now: float) -> bool:
        """Return whether another host is still awaited.

        Each event calls this, so the host found last is checked first.
        """
        lost, gone = self.facts.lost(), self.facts.hosts.is_gone

        def is_awaited(host: str) -> bool:
            there = not gone(host) and host not in lost and not self.liveness.is_silent(host, now)
            return there and now < self._wait_until(host, settled)

        if self._awaited is None or not is_awaited(self._awaited):
            self._awaited = next(filter(is_awaited, reversed(self.facts.others)), None)  # they get news in this order
        return self._awaited is not None

    def _wait_until(self, host: str, settled: Outcome) -> float:
        """Return until when the coordinator waits for a follower's last report."""
        facts = self.facts
        if host not in facts.hosts.last_contact:
            # It would wait for us until the start timeout. But whoever stops a job most likely stops all of its hosts.
            return facts.outcome_at + (LINGER_SECONDS if settled.kind is Kind.FAILED else STRAGGLER_SECONDS)
        # A host that appears after the verdict must still read it: our answer to its first report may be lost.
        serves = facts.succeeded() and not facts.report_of(host).done
        grace = max(self.settings.failure_grace, self.settings.stop_grace if serves else 0.0)
        return max(facts.outcome_at, facts.hosts.first_contact.get(host, 0)) + grace + LEAVE_SECONDS
