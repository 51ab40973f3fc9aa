"""One host's history, played through the policy again: what it was told, what it decides, whether it did the same."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from entrypoint.errors import ConfigError
from entrypoint.job.settings import Settings
from entrypoint.outcome.outcome import Outcome
from entrypoint.plan.plan import Plan
from entrypoint.policy import events
from entrypoint.policy.codec import reader
from entrypoint.policy.events import Action, Event, News, Report
from entrypoint.policy.history import REPEAT, in_short
from entrypoint.policy.policy import Policy

EVENTS: dict[str, Any] = {
    name: kind
    for name, kind in vars(events).items()
    if kind in events.Event.__args__ and kind not in (events.RankEnded, events.ChildrenChanged)
}


@dataclass(frozen=True, kw_only=True)
class Step:
    """One call of the policy: at which second of the host, with what; what follows now, and what followed then."""

    at: float
    happened: tuple[Event, ...]
    actions: tuple[Action, ...]
    then: list[Any]

    @property
    def same(self) -> bool:
        """Return whether the policy does what it did."""
        return [_comparable(in_short(action)) for action in self.actions] == [_comparable(each) for each in self.then]


@dataclass
class Player:
    """Plays the lines of one host's history, in their order."""

    plan: Plan
    host: str
    settings: Settings
    incomplete: list[str] = field(default_factory=list)  # why what is played is not all that was
    outcome: Outcome | None = None
    _reports: dict[str, Report] = field(default_factory=dict)
    _news: News | None = None
    _number: int = 0
    _last: float = 0.0

    def play(self, lines: Sequence[Mapping[str, Any]]) -> Iterator[Step]:
        """Yield its steps; ConfigError where a line is none of a history."""
        policy: Policy | None = None
        for line in lines:
            try:
                began, at = float(line["began"]), float(line["at"])
                policy = policy or Policy(self.plan, self.host, self.settings, began)
                self._last = self._last or began
                self._note_gaps(line, policy)
                for quiet_at, shorts in line["quiet"]:
                    policy.on([self._from_short(short) for short in shorts], quiet_at)
                happened = tuple(self._event(*each) for each in line["events"] if each[0] != REPEAT)
                actions = policy.on(happened, at) if happened else policy.repeat()
                self._last = at
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise ConfigError(f"the history of {self.host} cannot be played: {error!r}") from None
            for action in actions:
                if isinstance(action, events.Finish):
                    self.outcome = action.outcome
            yield Step(at=at - began, happened=happened, actions=tuple(actions), then=line["actions"])

    def _note_gaps(self, line: Mapping[str, Any], policy: Policy) -> None:
        if line["number"] != self._number + 1:
            self.incomplete.append(f"{self.host}: {line['number'] - self._number - 1} events are not in the record")
        self._number = line["number"]
        if line["dropped"]:
            # What was dropped said only that all were there: say so as often as they do.
            until = line["quiet"][0][0]
            while self._last + self.settings.heartbeat < until:
                self._last += self.settings.heartbeat
                policy.on(self._signs_of_life(), self._last)

    def _signs_of_life(self) -> list[Event]:
        if self._news:
            return [events.Informed(news=self._news)]
        return [events.Reported(report=report) for report in self._reports.values()] or [events.Due()]

    def _event(self, name: str, fields: Mapping[str, Any]) -> Event:
        event: Event = reader(EVENTS[name])(fields)
        match event:
            case events.Reported(report=report):
                self._reports[report.host] = report
            case events.Informed(news=news):
                self._news = news
        return event

    def _from_short(self, short: Sequence[Any]) -> Event:
        match short:
            case ["Due"]:
                return events.Due()
            case ["Answered", str(host)]:
                return events.Answered(host=host)
            case ["Reported", str(host)]:
                return events.Reported(report=self._reports[host])
            case ["Informed", offset] if self._news:
                return events.Informed(news=self._news, offset=offset)
        raise ValueError(f"{short!r} is no event")


def _comparable(short: Any) -> Any:
    """As JSON has it, without what a mask has changed in texts."""
    if isinstance(short, list | tuple):
        return [_comparable(each) for each in short]
    if isinstance(short, Mapping):
        return {name: _comparable(each) for name, each in short.items()}
    return "***" if isinstance(short, str) and "***" in short else short
