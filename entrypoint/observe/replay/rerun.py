"""Find a job's external faults (signals, lost hosts, closed links) in its records, to repeat them in simulation."""

import contextlib
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from entrypoint.launcher.job import params
from entrypoint.launcher.job.job import Mode
from entrypoint.record import lines

OURS = "sagemaker_"  # prefix of hyperparameters that the SDK adds
# Settings, without ENTRYPOINT_, that depend on where a job ran.
PLACES = ("HOST_ADDRESSES", "PORT_", "CONTROL_PORT", "SSH_PORT", "RUN_DIR", "SUMMARY", "TOKEN", "MODE")


@dataclass
class Gathered:
    """Collect the events of one host from its record. Times are seconds since the epoch."""

    began: float = 0.0
    last: float = 0.0  # time of its last line
    left: bool = False  # its record has the job's outcome
    signalled: float | None = None
    asked: set[str] = field(default_factory=set)  # processes that the launcher itself ended
    killed: tuple[float, str] | None = None  # (when, process) of the first signal that others sent
    lines: dict[str, str] = field(default_factory=dict)  # last output line of each process
    links: dict[str, float] = field(default_factory=dict)  # other host -> when its connection to this one closed
    reports: dict[str, float] = field(default_factory=dict)  # other host -> time of its last report


def gather(record: Iterable[lines.Line]) -> Gathered:
    gathered = Gathered()
    for line in record:
        gathered.began, gathered.last = gathered.began or line.at, line.at
        match line:
            case lines.OutcomeLine():
                gathered.left = True
            case lines.Lines() if line.lines:
                gathered.lines[line.process] = line.lines[-1]
            case lines.Decided():
                with contextlib.suppress(*lines.WRONG):  # skip malformed events
                    _note_decision(gathered, line.at, line.call)
    return gathered


def _note_decision(gathered: Gathered, at: float, call: lines.Call) -> None:
    for when, shorts in call["quiet"]:
        for short in shorts:
            if short[0] == "Reported":
                gathered.reports[short[1]] = at - (call["at"] - when)
    for name, fields in call["events"]:
        match name:
            case "Reported":
                gathered.reports[fields["report"]["host"]] = at
            case "LinkEnded":
                gathered.links.setdefault(fields["host"], at)
            case "Signalled" if gathered.signalled is None:
                gathered.signalled = at
            case "Ended" if fields["exit"]["signal"] and fields["name"] not in gathered.asked:
                gathered.killed = gathered.killed or (at, fields["name"])
    gathered.asked |= {action[1]["name"] for action in call["actions"] if action[0] in ("Ask", "Force")}


def faults(records: Mapping[str, Iterable[lines.Line]]) -> Iterator[str]:
    """Yield faults for `entrypoint local` that repeat the job's external faults on simulated hosts.

    A process that ends by itself, with an exit code, is no fault: it will do so again. The moment of a kill is the
    process's last output line if that has a number, such as its step; else so many seconds after the start.
    """
    gathered = {host: gather(record) for host, record in records.items()}
    began = min((each.began for each in gathered.values() if each.began), default=0.0)
    for host, each in sorted(gathered.items()):
        if each.signalled is not None:
            yield f"stop {host} at {each.signalled - began:.1f}"
        elif not each.left:
            closed = min((other.links[host] for other in gathered.values() if host in other.links), default=0.0)
            last_report = max((other.reports.get(host, 0.0) for other in gathered.values()), default=0.0)
            # A lost host whose connections stay open is frozen, or cut off.
            what, when = ("kill", closed) if closed else ("pause", max(last_report, each.last))
            yield f"{what} {host} at {when - began:.1f}"
        elif each.killed:
            at, process = each.killed
            line = each.lines.get(process, "").strip()
            has_number = any(letter.isdigit() for letter in line)
            moment = f"when {shlex.quote(f'[{host} {process}] {line}')}" if has_number else f"at {at - began:.1f}"
            yield f"kill {shlex.quote(f'{host}:{process}')} {moment}"


def arguments(
    described: lines.DescribedLine, mode: str, processes: int, program: str, wanted: Sequence[str]
) -> list[str]:
    """Return the arguments of `entrypoint local` for the described job with these faults."""
    words = [program, "--hosts", str(len(described.resourceconfig["hosts"])), "--mode", mode]
    if processes > 1 and mode != Mode.SINGLE:
        words += ["--processes-per-host", str(processes)]
    for name, value in described.environment.items():
        if name.startswith("ENTRYPOINT_") and not name.removeprefix("ENTRYPOINT_").startswith(PLACES):
            words += ["--env", f"{name}={value}"]
    users = {k: v for k, v in described.hyperparameters.items() if not k.startswith(OURS) and k != "model_dir"}
    if users:
        given = {name: params.arguments({name: value})[-1] for name, value in users.items()}  # as the script got them
        words += ["--hyperparameters", *(f"{name}={text}" for name, text in given.items())]
    for fault in wanted:
        words += ["--fault", fault]
    return words
