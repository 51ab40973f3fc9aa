"""Print what every host of a job knew and decided, from the job's records: the work of `entrypoint replay`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from entrypoint.base.errors import FAULT, ConfigError, printable
from entrypoint.observe.replay.play import Player, Step
from entrypoint.observe.replay.rebuild import rebuild
from entrypoint.observe.replay.rerun import arguments, faults
from entrypoint.observe.replay.wording import Narrator, consequences
from entrypoint.record.read import arrays_of

WANTED = ("host", "described", "decided", "process", "outcome", "lines")


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """Hold the part of a host's record that a replay needs. Its lines are [kind, seconds since the epoch, ...]."""

    host: str
    about: Mapping[str, Any]
    described: Mapping[str, Any]
    lines: list[list[Any]]

    def of(self, kind: str) -> list[list[Any]]:
        return [line for line in self.lines if line[0] == kind]

    @property
    def outcome(self) -> Mapping[str, Any] | None:
        """Return how the job ended by this host's record; None if the record does not have it."""
        outcomes = [line[2] for line in self.of("outcome")]
        return next((each for each in reversed(outcomes) if _is_outcome(each)), None)

    @property
    def gpus(self) -> int:
        return int(count) if isinstance(count := self.about.get("gpus", 0), int | float) else 0


def _is_outcome(value: Any) -> bool:
    match value:
        case {"kind": str(), "exit_code": int(), "cause": None | {"host": str(), "process": str(), "what": str()}}:
            return True
    return False


def read_all(records: Mapping[str, bytes]) -> dict[str, Recorded]:
    """Return each host's record, the coordinator's first; raise ConfigError if no record describes its job.

    A host that was lost at its start may have no usable record, so it is left out.
    """
    readable = {name: recorded for name, record in records.items() if (recorded := read(record))}
    if not readable:
        raise ConfigError("no record says what its job was; wanted those of this version, of a job that was monitored")
    return dict(sorted(readable.items(), key=lambda each: each[0] != each[1].about.get("coordinator")))


def read(record: bytes) -> Recorded | None:
    """Return a record as a value; None if it does not describe its job."""
    lines = [line for line in arrays_of(record) if len(line) > 2 and line[0] in WANTED]
    about: dict[str, Any] = {}
    described = {}
    for line in lines:
        match line:
            case ["host", _, dict(found)]:
                about |= found
            case ["described", _, dict(found)]:
                described = found
    if not ("host" in about and described):
        return None
    return Recorded(host=str(about["host"]), about=about, described=described, lines=lines)


@dataclass(frozen=True, kw_only=True)
class Played:
    """Hold one host's replay: its steps by the wall clock, and how it compares with the record."""

    recorded: Recorded
    steps: list[tuple[float, Step]]
    incomplete: list[str]
    outcome: Mapping[str, Any] | None

    @property
    def differs(self) -> Step | None:
        """Return the first step at which the policy decides otherwise than recorded; None if there is none."""
        return next((step for _, step in self.steps if not step.same), None)

    @property
    def was_settled_alone(self) -> bool:
        """Return whether a fault of the host's launcher ended it before the policy had anything to decide."""
        return self.outcome is None and ((self.recorded.outcome or {}).get("cause") or {}).get("what") == FAULT

    @property
    def same_outcome(self) -> bool:
        """Return whether the job ends as recorded; True if the record has no outcome."""
        then = self.recorded.outcome
        return (
            not then
            or self.was_settled_alone
            or (self.outcome is not None and all(then[key] == self.outcome[key] for key in ("kind", "exit_code")))
        )


def play(recorded: Recorded) -> Played:
    """Play one host's recorded events through the policy."""
    job, plan = rebuild(recorded.described, recorded.gpus)
    player = Player(plan, recorded.host, job.settings)
    decided = recorded.of("decided")
    played = zip(decided, player.play([line[2] for line in decided]), strict=True)
    steps = [(line[1], step) for line, step in played if step]
    ended = player.outcome
    outcome = {"kind": str(ended.kind), "exit_code": int(ended.exit_code)} if ended else None
    return Played(recorded=recorded, steps=steps, incomplete=player.incomplete, outcome=outcome)


def replay(records: Mapping[str, bytes], only: str | None) -> int:
    """Print the events and decisions of every host, and return the exit code.

    The code is 0 if each host decides as recorded, else 1. Raise ConfigError if the records cannot be replayed.
    """
    if only is not None and only not in records:
        raise ConfigError(f"--host is {only!r}; the records are of {', '.join(sorted(records))}")
    known = read_all(records)
    for name in sorted(records.keys() - known.keys()):
        print(f"{name}: its record does not say what its job was")
    played = [play(recorded) for name, recorded in known.items() if only in (None, name)]
    began = min((at for each in played for at, _ in each.steps), default=0.0)
    narrators = {each.recorded.host: Narrator() for each in played}
    rows = [(at, each.recorded.host, step) for each in played for at, step in each.steps]
    width = max((len(host) for host in narrators), default=0)
    for at, host, step in sorted(rows, key=lambda row: row[0]):
        happened = [words for event in step.happened if (words := narrators[host].describe(event))]
        done = list(consequences(step.actions))
        if happened or done:
            mark = "" if step.same else f"   <- then: {step.then}"
            print(printable(f"{at - began:9.3f} {host:<{width}}  {'; '.join(happened) or '-'}{mark}"))
            for words in done:
                print(printable(f"{'':9} {'':<{width}}    -> {words}"))
    return _verdict(played)


def once_more(records: Mapping[str, bytes], program: str) -> list[str]:
    """Return the arguments of `entrypoint local` that run the job again, with the same faults at the same times."""
    readable = read_all(records)
    first = next(iter(readable.values()))
    job, _ = rebuild(first.described, first.gpus)
    hosts = first.described["resourceconfig"]["hosts"]
    wanted = list(faults({name: readable[name].lines if name in readable else [] for name in hosts}))
    return arguments(first.described, str(job.mode), job.processes_per_host, program, wanted)


def lacks(records: Mapping[str, bytes]) -> str:
    """Return the options for what the job had and its bundle lacks: data, secrets, the script's own variables."""
    asked = next(iter(read_all(records).values())).described
    channels = [f"--channel {name}=DIR" for name in asked["inputdataconfig"]]
    hidden = [
        f"--hyperparameters {name}=..." for name, value in asked["hyperparameters"].items() if "***" in str(value)
    ]
    return ", ".join([*channels, *hidden, "--env NAME=... for variables of the script's own"])


def compare(then: Mapping[str, bytes], now: Mapping[str, bytes]) -> int:
    """Print how two runs of a job ended; return 0 if they ended alike, else 1."""
    was, came = (_ending(records) for records in (then, now))
    print(f"\nthen: {printable(was)}\nnow:  {printable(came)}")
    return 0 if was == came else 1


def _ending(records: Mapping[str, bytes]) -> str:
    outcomes = [recorded.outcome for recorded in read_all(records).values()]
    first = next((outcome for outcome in outcomes if outcome), None)
    if first is None:
        return "no host says"
    cause = first["cause"]
    return f"{first['kind']}, exit code {first['exit_code']}" + (
        f", by {cause['host']} {cause['process']}".rstrip() + f" ({cause['what'].partition(':')[0]})" if cause else ""
    )


def _verdict(played: list[Played]) -> int:
    print()
    code = 0
    for each in played:
        host, then = each.recorded.host, each.recorded.outcome
        for why in each.incomplete:
            print(printable(f"incomplete: {why}"))
        outcome = f"{each.outcome['kind']}, exit code {each.outcome['exit_code']}" if each.outcome else "no outcome"
        if each.was_settled_alone:
            print(f"{host}: a {FAULT} ended it, and nothing was decided")
        elif each.differs or not each.same_outcome:
            code = 1
            was = f"{then['kind']}, exit code {then['exit_code']}" if then else "no outcome"
            where = f"; first at its second {each.differs.at:.3f}" if each.differs else ""
            print(f"{host}: {outcome}; the job's was {was}: this version decides otherwise{where}")
        else:
            print(f"{host}: {outcome}, as then, by the same {len(each.steps)} decisions")
    return code
