"""End this host: list what it leaves for SageMaker to pack, and decide when it may exit. Pure, like the policy."""

from collections.abc import Iterator

from entrypoint.launcher.job.settings import Settings
from entrypoint.launcher.outcome.outcome import Kind, Outcome
from entrypoint.launcher.policy import artifacts, events
from entrypoint.launcher.policy.events import Action
from entrypoint.launcher.policy.facts import Facts
from entrypoint.launcher.policy.liveness import Liveness
from entrypoint.launcher.policy.verdict import LINGER_SECONDS

STRAGGLER_SECONDS = 1.5  # seconds that the coordinator of a stopped job waits for hosts that never reported
LEAVE_SECONDS = 3.0  # seconds beyond the grace that the coordinator waits for followers' last reports
INVENTORY_SECONDS = 2.0  # seconds for the inventory; a disk that does not answer holds up nobody


class Leaving:
    """Decide when to exit. It remembers only since when the inventory is awaited, and a host that was awaited."""

    def __init__(self, facts: Facts, settings: Settings, liveness: Liveness) -> None:
        self.facts, self.settings, self.liveness = facts, settings, liveness
        self._inventory_since: float | None = None
        self._awaited: str | None = None

    def take_inventory(self, now: float) -> Iterator[Action]:
        if not self.facts.is_over() or not self.facts.succeeded():
            return
        if self._inventory_since is None:
            self._inventory_since = now
            yield events.TakeInventory()
        elif now >= self._inventory_since + INVENTORY_SECONDS:
            self.facts.note_inventory()

    def _log_leftovers(self) -> Iterator[Action]:
        """Log warnings about what hosts left for SageMaker to pack; on the coordinator."""
        facts = self.facts
        if facts.is_coordinator and facts.succeeded():
            left = {host: facts.report_of(host).artifacts for host in facts.others}
            for warning in artifacts.warnings({facts.host: facts.artifacts, **left}):
                yield events.Say(message=f"warning: {warning}")

    def finish(self, now: float) -> Iterator[Action]:
        """Finish when nothing runs here; on the coordinator, when the others have left or had time to."""
        facts = self.facts
        if facts.outcome is None or not facts.leaving():
            return
        if facts.is_coordinator and self._waits(facts.outcome, now):
            return
        facts.note_left()
        yield from self._log_leftovers()
        yield events.Finish(outcome=facts.outcome)

    def _waits(self, settled: Outcome, now: float) -> bool:
        """Return whether a host is still awaited. Since every event asks, only one that was awaited is checked."""
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
