"""Print the knowledge and decisions of every host of a job, from its records: the work of `entrypoint replay`."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from entrypoint.base.errors import FAULT, ConfigError, printable
from entrypoint.base.terminal import width_of, wrapped
from entrypoint.launcher.outcome.outcome import Outcome
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.artifacts import Artifacts
from entrypoint.launcher.policy.events import Action, Event
from entrypoint.observe.replay.play import Player, Step, rebuild
from entrypoint.observe.replay.rerun import arguments, faults
from entrypoint.record import lines
from entrypoint.record.read import lines_of, text

SHOWN_CHARS = 160  # characters of a text


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """Hold the part of a host's record that a replay needs. `outcome`: None if the record does not have it."""

    about: lines.HostLine
    described: lines.DescribedLine
    decided: Sequence[lines.Decided]
    outcome: lines.OutcomeLine | None


def read_all(records: Mapping[str, bytes]) -> dict[str, Recorded]:
    """Return each host's record, the coordinator's first. Raise ConfigError if no record describes the job.

    A host that was lost at its start may have no usable record, so it is left out.
    """
    readable = {name: recorded for name, record in records.items() if (recorded := read(record))}
    if not readable:
        raise ConfigError("no record says what its job was; wanted those of this version, of a job that was monitored")
    return dict(sorted(readable.items(), key=lambda each: each[0] != each[1].about.coordinator))


def read(record: bytes) -> Recorded | None:
    """Parse a record; return None if it lacks the line that describes the job."""
    about, described, decided, outcome = lines.HostLine(), None, [], None
    for line in lines_of(record):
        match line:
            case lines.HostLine():
                about = about.updated(line)
            case lines.DescribedLine():
                described = line
            case lines.Decided():
                decided.append(line)
            case lines.OutcomeLine():
                outcome = line
    if about.host and described:
        return Recorded(about=about, described=described, decided=decided, outcome=outcome)
    return None


@dataclass(frozen=True, kw_only=True)
class Played:
    """Hold one host's replay: its steps by the wall clock, and how it compares with the record."""

    recorded: Recorded
    steps: list[tuple[float, Step]]
    incomplete: list[str]
    outcome: Outcome | None

    @property
    def differs(self) -> Step | None:
        """Return the first step at which the policy decides otherwise than recorded; None without one."""
        return next((step for _, step in self.steps if not step.same), None)

    @property
    def was_settled_alone(self) -> bool:
        """Return whether a fault of the host's launcher ended it before the policy had anything to decide."""
        then = self.recorded.outcome
        return self.outcome is None and then is not None and (then.cause or {}).get("what") == FAULT

    @property
    def same_outcome(self) -> bool:
        """Return whether the job ends as recorded; True if the record has no outcome."""
        then = self.recorded.outcome
        return not then or self.was_settled_alone or _in_words(then) == _in_words(self.outcome)


def play(recorded: Recorded) -> Played:
    job, plan = rebuild(recorded.described, int(recorded.about.gpus or 0))
    player = Player(plan, recorded.about.host or "", job.settings)
    played = zip(recorded.decided, player.play([line.call for line in recorded.decided]), strict=True)
    steps = [(line.at, step) for line, step in played if step]
    return Played(recorded=recorded, steps=steps, incomplete=player.incomplete, outcome=player.outcome)


def replay(records: Mapping[str, bytes], only: str | None) -> int:
    """Print how the job ended, then the events and decisions of every host, and return the exit code.

    The code is 0 if each host decides as recorded, else 1. Raise ConfigError if the records cannot be replayed.
    """
    if only is not None and only not in records:
        raise ConfigError(f"--host is {only!r}; the records are of {', '.join(sorted(records))}")
    known = read_all(records)
    for name in sorted(records.keys() - known.keys()):
        print(f"{name}: its record does not say what its job was")
    if (end := _outcome(known)) and end.exit_code:
        _print(_in_words(end) + (f": {lines.headline(end.cause)}" if end.cause else ""))
        print()
    played = {name: play(recorded) for name, recorded in known.items() if only in (None, name)}
    narrators = {name: Narrator() for name in played}
    rows = [(at, name, step) for name, each in played.items() for at, step in each.steps]
    began = min((at for at, *_ in rows), default=0.0)
    width = max((len(host) for host in narrators), default=0)
    for at, host, step in sorted(rows, key=lambda row: row[0]):
        happened = [words for event in step.happened if (words := narrators[host].describe(event))]
        done = list(map(consequence, step.actions))
        if happened or done:
            mark = "" if step.same else f"   <- then: {step.then}"
            _print(f"{at - began:9.3f} {host:<{width}}  {'; '.join(happened) or '-'}{mark}")
            for words in done:
                _print(f"{'':9} {'':<{width}}    -> {words}")
    return _verdict(played)


def _print(words: str) -> None:
    print(wrapped(printable(words), width_of(sys.stdout)))


def once_more(records: Mapping[str, bytes], program: str) -> list[str]:
    """Return the arguments of `entrypoint local` that repeat the job, with the same faults at the same times."""
    readable = read_all(records)
    first = next(iter(readable.values()))
    job, _ = rebuild(first.described, int(first.about.gpus or 0))
    hosts = first.described.resourceconfig["hosts"]
    wanted = list(faults({name: lines_of(records[name]) if name in readable else [] for name in hosts}))
    return arguments(first.described, str(job.mode), job.processes_per_host, program, wanted)


def lacks(records: Mapping[str, bytes]) -> str:
    """List the options that supply what a bundle leaves out: the data, secrets and the script's own variables."""
    asked = next(iter(read_all(records).values())).described
    channels = [f"--channel {name}=DIR" for name in asked.inputdataconfig]
    hidden = [f"--hyperparameters {name}=..." for name, value in asked.hyperparameters.items() if "***" in str(value)]
    return ", ".join([*channels, *hidden, "--env NAME=... for variables of the script's own"])


def compare(then: Mapping[str, bytes], now: Mapping[str, bytes]) -> int:
    """Print how two runs of a job ended; return 0 if they ended in the same way, else 1."""
    was, came = (_ending(records) for records in (then, now))
    print(f"\nthen: {printable(was)}\nnow:  {printable(came)}")
    return 0 if was == came else 1


def _ending(records: Mapping[str, bytes]) -> str:
    """Describe the job's end, from the first host whose record has its outcome."""
    first = _outcome(read_all(records))
    if not (first and (cause := first.cause)):
        return _in_words(first) if first else "no host says"
    who, what = f"{cause.get('host', '')} {cause.get('process', '')}".rstrip(), cause.get("what", "").partition(":")[0]
    return f"{_in_words(first)}, by {who} ({what})"


def _outcome(known: Mapping[str, Recorded]) -> lines.OutcomeLine | None:
    """Return the job's outcome, from the first host whose record has one."""
    return next((each.outcome for each in known.values() if each.outcome), None)


def _in_words(outcome: Outcome | lines.OutcomeLine | None) -> str:
    return f"{outcome.kind}, exit code {outcome.exit_code}" if outcome else "no outcome"


def _verdict(played: Mapping[str, Played]) -> int:
    print()
    code = 0
    for host, each in played.items():
        for why in each.incomplete:
            print(printable(f"incomplete: {why}"))
        outcome = _in_words(each.outcome)
        if each.was_settled_alone:
            print(f"{host}: a {FAULT} ended it, and nothing was decided")
        elif each.differs or not each.same_outcome:
            code = 1
            where = f"; first at its second {each.differs.at:.3f}" if each.differs else ""
            then = _in_words(each.recorded.outcome)
            print(f"{host}: {outcome}; the job's was {then}: this version decides otherwise{where}")
        else:
            print(f"{host}: {outcome}, as then, by the same {len(each.steps)} decisions")
    return code


class Narrator:
    """Describe one host's events. Of reports, news and events that come again and again, only changes are described."""

    def __init__(self) -> None:
        self._last = ""  # the last other event
        self._last_news: dict[str, Any] = {}

    def describe(self, event: Event) -> str:
        """Describe an event; return "" if it brings nothing new."""
        match event:
            case events.Due():
                return ""
            case events.Reported(report=report):
                return self._news_of(report.host, report)
            case events.Informed(news=news):
                return self._news_of("the coordinator", news)
            case events.Probed(found=found):
                return "probed: " + ", ".join(f"{each.host} {each.why or 'answers'}" for each in found)
            case events.Prepared(flags=flags):
                return f"prepared: {' '.join(sorted(flags)) or 'no flags'}"
            case _ if type(event) in _WORDS:
                return _WORDS[type(event)].format(event)
            case _:
                values = [_plain(value) for name in event.fields if (value := getattr(event, name))]
                before, self._last = self._last, f"{_spaced(type(event).__name__)}: {_short(', '.join(values))}"
                return self._last if self._last != before else ""

    def _news_of(self, who: str, message: Any) -> str:
        before, self._last_news[who] = self._last_news.get(who), message
        new = []
        for name in message.fields:
            value = getattr(message, name)
            if value != (getattr(before, name) if before else message.defaults.get(name)) and name not in _DULL:
                new.append(f"{name}={_short(_plain(value))}")
        return f"{who} reports {', '.join(new)}" if new else ""


_DULL = {"host", "fingerprints", "public_keys", "exits", "cause_at", "stopping_at", "clock_error", "ack"}
_WORDS: dict[type, str] = {
    events.Ended: "{0.name} ended: {0.exit}",
    events.Signalled: "signal {0.number} came",
    events.Broken: "{0.what}: {0.why}",
    events.Found: "the monitor found: {0.cause.headline}",
    events.Start: "starts {0.spec.name}",
    events.Ask: "SIGTERM to {0.name}",
    events.Force: "SIGKILL to {0.name}",
    events.Finish: "exits: {0.outcome.kind}, exit code {0.outcome.exit_code}",
    events.TellCoordinator: "reports to the coordinator",
    events.TellFollowers: "sends news to the followers",
}


def consequence(action: Action) -> str:
    if isinstance(action, events.Say):
        return f"logs: {_short(action.message)}"
    return _WORDS.get(type(action), _spaced(type(action).__name__)).format(action)


def _plain(value: Any) -> str:
    if isinstance(value, frozenset | tuple):
        return " ".join(sorted("/".join(map(str, each)) if isinstance(each, tuple) else str(each) for each in value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    if isinstance(value, Artifacts):
        return ", ".join(file.path for file in value.files) + ("" if value.whole else ", ...") or "no files"
    if isinstance(value, Outcome):
        return f"{value.kind}, exit code {value.exit_code}"
    return str(getattr(value, "headline", value))


def _spaced(name: str) -> str:
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()


def _short(words: str) -> str:
    return text(" ".join(words.split()), SHOWN_CHARS)
