"""Rebuild a job's plan, play a host's history through the policy, and compare its decisions with the record."""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from entrypoint.base.codec import reader
from entrypoint.base.errors import ConfigError
from entrypoint.base.values import replace
from entrypoint.launcher.job.config import read_job
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.job.settings import Settings
from entrypoint.launcher.outcome.outcome import Outcome
from entrypoint.launcher.plan.plan import Plan
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.events import Action, Event, News, Report
from entrypoint.launcher.policy.history import REPEAT, in_short
from entrypoint.launcher.policy.policy import Policy
from entrypoint.record.lines import WRONG, Call, DescribedLine, number

FILES = ("resourceconfig", "inputdataconfig", "hyperparameters")
RUN = Path("/run/entrypoint")
LONGEST = 60 * 86_400.0  # seconds that a job can take
EVENTS: dict[str, Any] = {name: kind for name, kind in vars(events).items() if kind in events.Event.__args__}


def rebuild(described: DescribedLine, gpus: int) -> tuple[Job, Plan]:
    """Return the job of one host and its plan; `gpus`: the host's GPUs. Raise ConfigError if they cannot be rebuilt."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name in FILES:
                Path(folder, f"{name}.json").write_text(json.dumps(getattr(described, name)))
            environment = {str(name): str(value) for name, value in described.environment.items()}
            job = read_job(Path(described.base), environment, RUN, gpus, config=Path(folder))
            job = replace(job, open_mpi=int(described.open_mpi))
        return job, plan_for(job)
    except (OSError, *WRONG) as error:
        raise ConfigError(f"the record does not describe its job: {error!r}") from None


@dataclass(frozen=True, kw_only=True)
class Step:
    """Describe one call of the policy: the host's second, the events, the actions now, and the recorded actions."""

    at: float
    happened: tuple[Event, ...]
    actions: tuple[Action, ...]
    then: list[Any]

    @property
    def same(self) -> bool:
        """Return whether the policy decides as recorded."""
        return [_comparable(in_short(action)) for action in self.actions] == [_comparable(each) for each in self.then]


@dataclass
class Player:
    """Play the calls of one host's history in their order."""

    plan: Plan
    host: str
    settings: Settings
    incomplete: list[str] = field(default_factory=list)  # what the history lacks, and why
    outcome: Outcome | None = None
    _reports: dict[str, Report] = field(default_factory=dict)
    _news: News | None = None
    _number: int = 0
    _last: float = 0.0

    def play(self, calls: Sequence[Call]) -> Iterator[Step | None]:
        """Yield a step for each recorded call of the policy, None for a call that cannot be read.

        Raise ConfigError if the policy fails in a call.
        """
        policy: Policy | None = None
        for call in calls:
            try:
                at, began = call["at"], call["began"]
                quiet, happened = self._read(call)
            except WRONG:
                self.incomplete.append(f"{self.host}: a line of its history cannot be read")
                yield None
                continue
            try:
                policy = policy or Policy(self.plan, self.host, self.settings, began)
                self._last = self._last or began
                self._note_gaps(call, quiet, policy)
                for quiet_at, events_then in quiet:
                    policy.on(events_then, quiet_at)
                for event in happened:
                    match event:
                        case events.Reported(report=report):
                            self._reports[report.host] = report
                        case events.Informed(news=news):
                            self._news = news
                actions = policy.on(happened, at) if happened else policy.repeat()
                self._last = at
            except (*WRONG, AssertionError) as error:
                raise ConfigError(f"the history of {self.host} cannot be played: {error!r}") from None
            for action in actions:
                if isinstance(action, events.Finish):
                    self.outcome = action.outcome
            yield Step(at=at - began, happened=happened, actions=tuple(actions), then=list(call["actions"]))

    def _read(self, call: Call) -> tuple[list[tuple[float, list[Event]]], tuple[Event, ...]]:
        """Return the quiet calls before a call, and its events; raise one of WRONG if they are malformed."""
        quiet = [(number(when), [self._from_short(short) for short in shorts]) for when, shorts in call["quiet"]]
        if not call.keys() >= Call.__required_keys__:
            raise ValueError("no whole call")
        if not all(0 <= when - call["began"] <= LONGEST for when in (call["at"], *(when for when, _ in quiet))):
            raise ValueError("no time of this job")
        return quiet, tuple(reader(EVENTS[name])(fields) for name, fields in call["events"] if name != REPEAT)

    def _note_gaps(self, call: Call, quiet: Sequence[tuple[float, Any]], policy: Policy) -> None:
        if missing := call["number"] - self._number - 1:
            self.incomplete.append(f"{self.host}: {missing} events are not in the record")
        self._number = call["number"]
        if call["dropped"] and quiet:
            # Only repeated signs of life are dropped from a history: replace them at the rate of the heartbeat.
            until = quiet[0][0]
            while self._last + self.settings.heartbeat < until:
                self._last += self.settings.heartbeat
                reported: list[Event] = [events.Reported(report=report) for report in self._reports.values()]
                informed = [events.Informed(news=self._news)] if self._news else []
                policy.on(informed or reported or [events.Due()], self._last)

    def _from_short(self, short: Sequence[Any]) -> Event:
        match short:
            case ["Due"]:
                return events.Due()
            case ["Answered", str(host)]:
                return events.Answered(host=host)
            case ["Reported", str(host)]:
                return events.Reported(report=self._reports[host])
            case ["Informed", offset, *error] if self._news:  # records of earlier versions lack the error
                return events.Informed(news=self._news, offset=offset, error=error[0] if error else 0.0)
        raise ValueError(f"{short!r} is no event")


def _comparable(short: Any) -> Any:
    """Return a value in the form of JSON, without differences that masked secrets make."""
    if isinstance(short, list | tuple):
        return [_comparable(each) for each in short]
    if isinstance(short, Mapping):
        return {name: _comparable(each) for name, each in short.items()}
    return "***" if isinstance(short, str) and "***" in short else short
