"""Collect the results of a run from its hosts' records, logs and folders."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from entrypoint.base.python310 import StrEnum
from entrypoint.check.rehearse.runs import NOT_TRAINING, OLD, RunEnd, files_in
from entrypoint.launcher.job.choices import OUTSIDE, Mode
from entrypoint.launcher.outcome.outcome import Cause, Kind
from entrypoint.observe.monitor.distributed import Together, advice_on
from entrypoint.observe.monitor.printed_metrics import MetricReader
from entrypoint.record import lines
from entrypoint.record.read import lines_of
from entrypoint.simulate.engine import EngineName
from entrypoint.simulate.local_channels import keys_below
from entrypoint.simulate.spec import LocalJob
from entrypoint.simulate.tree import HostFolder, folders_of

LOG_BYTES = 8 << 20  # bytes of a log in which the first step is looked for
_OF_PROCESS = re.compile(r"\[\S+ ([^\]]+)\] (.*)")  # a program's output line in a host's log
COUNTED = ("step", "epoch")  # metrics that show the progress
FEWER_STEPS = 50  # steps without exchange that count as training alone: fewer than in a job, which that may end


@dataclass(frozen=True, kw_only=True)
class SeenProcess:
    """Describe a training process."""

    name: str
    role: str
    began: float
    ended: float | None = None
    how: str = ""  # exit code 0, killed by SIGKILL, ...


@dataclass(frozen=True, kw_only=True)
class SeenHost:
    """Hold the results of one host. Times are seconds since the epoch."""

    name: str
    processes: tuple[SeenProcess, ...] = ()
    metrics: tuple[tuple[float, str, dict[str, float]], ...] = ()  # (time, process, values)
    memory: int = 0  # most bytes of its processes; shared memory counts for each of them
    first: tuple[tuple[str, float], ...] = ()  # first value of each of COUNTED
    dealt: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (channel, the host's files)
    read: tuple[tuple[str, tuple[str, ...]], ...] | None = None  # the same, files that were read; None: unknown
    saved: int = 0  # files of its model
    failures: tuple[str, ...] = ()  # that the job went on after: of attempts, or of processes that were started again
    kind: str = ""  # how the job ended, by this host's record; "": not known


class RunName(StrEnum):
    PLAIN = "plain"  # the job as requested
    STOP = "stop"  # SIGTERM during training
    KILL = "kill"  # a host is killed during training
    RESUME = "resume"  # the next job, with the checkpoints of the killed one


@dataclass(frozen=True, kw_only=True)
class SeenRun:
    """Hold the results of one run."""

    name: RunName
    ended: RunEnd
    hosts: tuple[SeenHost, ...] = ()
    kind: Kind | None = None  # None: no record has the outcome
    cause: str = ""
    together: tuple[bool | None, str] | None = None  # whether the hosts train together (None: unclear), and words
    missing: str = ""  # what is missing if they do not
    exchanged: int = 0  # bytes between processes of two hosts
    log: str = ""
    last_lines: tuple[str, ...] = ()

    @property
    def processes(self) -> list[SeenProcess]:
        return [process for host in self.hosts for process in host.processes]

    @property
    def began(self) -> float:
        """Return when the first training program began; if none did, when the run began."""
        return min((process.began for process in self.processes), default=self.ended.began)

    @property
    def seconds(self) -> float:
        """Return how many seconds the training programs of the run took."""
        ended = [process.ended for process in self.processes if process.ended]
        return max(ended) - self.began if ended else 0.0

    @property
    def is_whole(self) -> bool:
        """Return whether the run ended by itself with success."""
        return self.kind is Kind.SUCCEEDED and self.ended.acted is None

    @property
    def has_failed(self) -> bool:
        """Return whether the run failed by itself, and not because of our SIGTERM."""
        return self.kind is Kind.FAILED and not (self.ended.acted and "SIGTERM" in self.cause)

    @property
    def failures(self) -> list[str]:
        """Return the failures that the run survived, with their causes: of attempts, or else of single processes."""
        found = [words for host in self.hosts for words in host.failures]
        return [words for words in found if lines.ATTEMPT_FAILED.match(words)] or found

    @property
    def metrics(self) -> dict[str, float]:
        """Return the last value of each metric of the process that reported most often."""
        most = max(self._by_process().values(), key=len, default=[])
        return {name: value for _, values in most for name, value in values.items()}

    @property
    def trained(self) -> float:
        """Return how many seconds the training programs ran until they ended or were stopped."""
        return self.ended.acted - self.began if self.ended.acted and self.processes else self.seconds

    def rate_of(self, metric: str) -> float | None:
        """Return the growth per second of a metric in the process that reported it most often; None if unknown."""
        rates = []
        for values in self._by_process().values():
            steps = [(at, each[metric]) for at, each in values if metric in each]
            if len(steps) > 1 and steps[-1][0] - steps[0][0] >= 1 and steps[-1][1] > steps[0][1]:
                rates.append((len(steps), (steps[-1][1] - steps[0][1]) / (steps[-1][0] - steps[0][0])))
        return max(rates)[1] if rates else None

    def first(self, metric: str) -> float | None:
        """Return the least of the hosts' first values of a metric; None if no host reported it."""
        return min((value for host in self.hosts for name, value in host.first if name == metric), default=None)

    def last(self, metric: str) -> float | None:
        """Return the largest value of a metric; None if no host reported it."""
        values = [each[metric] for host in self.hosts for _, _, each in host.metrics if metric in each]
        return max(values, default=None)

    @property
    def counts(self) -> str:
        """Return the metric that shows the progress; "" if there is none."""
        return next((name for name in COUNTED if self.first(name) is not None), "")

    def _by_process(self) -> dict[tuple[str, str], list[tuple[float, dict[str, float]]]]:
        found: dict[tuple[str, str], list[tuple[float, dict[str, float]]]] = {}
        for host in self.hosts:
            for at, process, values in host.metrics:
                found.setdefault((host.name, process), []).append((at, values))
        return found


def seen(name: RunName, job: LocalJob, ended: RunEnd, log: Path, knows_reads: bool, engine: str = "") -> SeenRun:
    """Collect the results of a run."""
    folders = folders_of(job)
    records = {folder.host: _record(job.output, folder.host) for folder in folders}
    every = [(host, line) for host, its in records.items() for line in its]
    mode = next((Mode(line.mode) for _, line in every if isinstance(line, lines.HostLine) and line.mode), Mode.SINGLE)
    outside = {host for host, line in every if isinstance(line, lines.ProcessLine) and line.task == OUTSIDE}
    hosts = [host for host in records if host not in outside]
    # Ranks on hosts that are simulated on one machine exchange data in shared memory.
    unseen = mode is Mode.MPI and engine == EngineName.PROCESS
    together, at_the_end = (Together(hosts, mode is Mode.PS, FEWER_STEPS, unseen) for _ in range(2))
    found = None
    # All records sorted by time: hosts that are simulated on one machine have one clock.
    for host, line in sorted(every, key=lambda each: each[1].at):
        if not isinstance(line, lines.ProcessLine) or line.role not in NOT_TRAINING:
            with suppress(*lines.WRONG):
                together.note(host, line)
                at_the_end.note(host, line)
            found = (together.look() if len(hosts) > 1 else None) or found
    if found and found[0] is False:  # traffic is counted every two seconds, in which a fast script takes many steps
        found = at_the_end.look()
    outcome = next((line for _, line in every if isinstance(line, lines.OutcomeLine)), None)
    if (found is None or found[0] is None) and outcome and outcome.kind == Kind.SUCCEEDED and len(hosts) > 1:
        found = at_the_end.at_end() or found
    return SeenRun(
        name=name,
        ended=ended,
        hosts=tuple(_host(folder, records[folder.host], job, knows_reads) for folder in folders),
        kind=Kind(outcome.kind) if outcome else None,
        cause=_words(outcome.cause) if outcome and outcome.cause else "",
        together=found,
        missing=advice_on(mode, at_the_end.model) if found and found[0] is False else "",
        exchanged=sum(sum(map(sum, line.peers.values())) for _, line in every if isinstance(line, lines.SampleLine))
        // 2,
        log=str(log),
        last_lines=tuple(_text(log)[-4096:].strip().splitlines()[-3:]),
    )


def _words(cause: Mapping[str, Any]) -> str:
    return Cause(**{name: cause.get(name, "") for name in ("host", "process", "what", "error")}).headline


def _record(output: Path, host: str) -> list[lines.Line]:
    """Return the lines of a host's record: of the coordinator's copy or the host's own, whichever is longer."""
    paths = list(output.glob(f"algo-*/ml/output/data/record/{host}.jsonl.gz"))
    path = max(paths, key=lambda path: path.stat().st_size, default=None)
    with suppress(OSError):
        return list(lines_of(path.read_bytes())) if path else []
    return []


def _host(folder: HostFolder, record: Sequence[lines.Line], job: LocalJob, knows_reads: bool) -> SeenHost:
    processes: dict[str, SeenProcess] = {}
    memory, kind = 0.0, ""
    attempts, again = list[str](), list[str]()
    for line in record:
        match line:
            case lines.ProcessLine(process=name, role=role) if role not in NOT_TRAINING:
                again += [f"{folder.host} {name} was started again: {processes[name].how}"] if name in processes else []
                processes[name] = SeenProcess(name=name, role=role, began=line.at)
            case lines.EndedLine(process=name) if name in processes:
                processes[name] = replace(processes[name], ended=line.at, how=line.how)
            case lines.Said(text=words) if lines.ATTEMPT_FAILED.match(words):
                attempts.append(words)
            case lines.OutcomeLine():
                kind = line.kind
            case lines.SampleLine(processes=used):
                memory = max(memory, sum(each.get("memory", 0) for each in used.values()))
    dealt = tuple((channel.name, tuple(keys_below(folder.parts / channel.name))) for channel in job.channels)
    read = {
        name: tuple(file for file in files if (folder.parts / name / file).stat().st_atime != OLD)
        for name, files in (dealt if knows_reads else ())
    }
    return SeenHost(
        name=folder.host,
        processes=tuple(processes.values()),
        metrics=tuple((line.at, line.process, dict(line.values)) for line in record if isinstance(line, lines.Metric)),
        memory=int(memory),
        first=_first(folder.log),
        dealt=dealt,
        read=tuple(read.items()) if knows_reads else None,
        saved=len(files_in([folder.model])),
        failures=tuple(attempts or again),
        kind=kind,
    )


def _first(log: Path) -> tuple[tuple[str, float], ...]:
    """Return the first value of each of COUNTED in a log; a record keeps only the last of each second."""
    readers, found = dict[str, MetricReader](), dict[str, float]()
    for line in _text(log, LOG_BYTES).splitlines():
        output = _OF_PROCESS.match(line)
        if not output:
            continue
        reader = readers.setdefault(output[1], MetricReader())
        reader.read(output[2])
        for name, value in reader.take().items():
            if name in COUNTED:
                found.setdefault(name, value)
        if len(found) == len(COUNTED):
            break
    return tuple(found.items())


def _text(path: Path, most: int = -1) -> str:
    try:
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""
