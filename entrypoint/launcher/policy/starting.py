"""Decide which processes of this host may start now. Pure, like the policy that asks it."""

from collections.abc import Iterator

from entrypoint.launcher.plan.plan import Duty, ProcessSpec, Ready
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.events import Action
from entrypoint.launcher.policy.facts import Facts


class Starting:
    """Start processes. It remembers only since when a process waits for a need with a time limit."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._held_since: dict[tuple[int, str], float] = {}  # (attempt, process)

    def advance(self, now: float) -> Iterator[Action]:
        facts = self.facts
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
        for (attempt, name), since in self._held_since.items():
            if attempt == self.facts.attempt.number and name not in own.started:
                yield from (since + need.at_most for need in own.specs[name].needs if need.at_most is not None)
