"""Read one host's record into a bounded number of figures. Times are seconds since the job's begin.

A record may be cut, broken or malicious: lines that do not fit are counted and left out.
"""

from typing import Any

from entrypoint.base.series import Series
from entrypoint.base.values import State, fresh
from entrypoint.launcher.job import params
from entrypoint.launcher.job.choices import OUTSIDE
from entrypoint.launcher.job.params import PREFIX
from entrypoint.observe.report.columns import Columns, Key
from entrypoint.record import lines
from entrypoint.record.read import batches, parsed, text, texts_of

MOST_WRONG_LINES = 10_000  # lines, after which it is no record any more
MOST_LOGGED, MOST_STACKS, MOST_MARKS, MOST_PROCESSES, MOST_METRICS = 2000, 64, 20_000, 1024, 24
MOST_NAMED = 200  # hyperparameters, and versions
MOST_OUTPUT, MOST_WIDTH = 40, 1000  # last lines of a process, and characters of each
LONGEST = 60 * 86_400.0  # seconds that a job can take; a later time is wrong
_CPU: list[Key] = [("cpu", state) for state in ("user", "system", "disks", "stolen", "throttled")]
_MEMORY: list[Key] = [("memory", part) for part in ("programs", "cache", "counted")]
_DISK: list[Key] = [("disk", way) for way in ("read", "written")]
_NET: list[Key] = [("net", way) for way in ("received", "sent")]


class Run(State):
    """Describe one start of a process and its end."""

    start: float
    end: float | None = None
    how: str = ""  # how it ended, in words


class TimedMark(State):
    """Describe something that a script has timed: it ended at `at` and took `seconds`."""

    at: float
    what: str
    seconds: float


class ProcessFigures(State):
    """Describe a process of the plan, or a rank."""

    name: str
    role: str = ""
    task: str = ""
    runs: list[Run] = fresh(list)
    metrics: dict[str, Series] = fresh(dict)
    marks: list[TimedMark] = fresh(list)
    step_marks: Series = fresh(Series)  # seconds per step
    first_output: float | None = None

    @property
    def trains(self) -> bool:
        """Return whether the process trains: it is no server, helper, evaluator, or script outside of the plan."""
        return self.role not in lines.SERVES | lines.HELPS | {"evaluator", ""} and self.task != OUTSIDE

    @property
    def steps(self) -> Series:
        """Return the steps that the process has reported; an empty series if there are none."""
        return self.metrics.get("step") or self.metrics.get("epoch_step") or Series()


class HostFigures(State):
    """Hold the figures of one host's record."""

    name: str
    columns: Columns
    zero: float = 0.0  # the job's begin by this host's clock
    about: lines.HostLine = fresh(lines.HostLine)
    begin: float | None = None
    end: float = 0.0
    processes: dict[str, ProcessFigures] = fresh(dict)
    phases: list[tuple[float, str]] = fresh(list)
    still: list[tuple[float, str, float, float]] = fresh(list)  # (at, process, seconds, CPUs)
    stalled: list[float] = fresh(list)  # when Horovod reported missing ranks
    logged: list[tuple[float, str]] = fresh(list)
    stacks: list[dict[str, Any]] = fresh(list)
    output: dict[str, tuple[str, ...]] = fresh(dict)  # last lines of each process
    outcome: dict[str, Any] | None = None
    apart: dict[str, Any] | None = None  # since when the job's hosts trained apart, and what is missing
    hyperparameters: dict[str, str] = fresh(dict)  # the script's, as its arguments
    software: dict[str, str] = fresh(dict)  # versions, and digests of what has none
    unused_gpus: str = ""  # why its TensorFlow cannot use its GPUs
    held_at_first: dict[str, float] = fresh(dict)  # GPU -> used share of its memory in the first sample
    oom: int = 0
    exchanged: dict[str, list[float]] = fresh(dict)  # other host -> bytes received, sent
    problems: list[str] = fresh(list)
    every: int = 1  # one of so many samples was read

    @property
    def cpus(self) -> float:
        """Return the number of CPUs; 1 if it is not known."""
        return max(1.0, float(self.about.cpus or 0.0))

    @property
    def trainers(self) -> list[ProcessFigures]:
        return [process for process in self.processes.values() if process.trains]

    def takes(self, line: lines.Line) -> bool:
        """Note a line; return whether the line can belong to this job."""
        at = line.at - self.zero
        if not -60 <= at <= LONGEST:
            return False
        at = max(0.0, at)
        try:
            self._take(at, line)
        except lines.WRONG:
            return False
        if self.begin is None or at < self.begin:
            self.begin = at
        self.end = at if at > self.end else self.end
        return True

    def _take(self, at: float, line: lines.Line) -> None:
        match line:
            case lines.SampleLine():
                self._take_sample(at, line)
            case lines.Metric():
                self._take_metric(at, line)
            case lines.HostLine():
                self.about = self.about.updated(line)
            case lines.ProcessLine():
                process = self._process(line.process)
                process.role, process.task = text(line.role, 40), text(line.task, 80)
                if len(process.runs) < 1000:
                    process.runs.append(Run(start=at))
            case lines.EndedLine():
                runs = self._process(line.process).runs
                if runs and runs[-1].end is None:
                    runs[-1].end, runs[-1].how = at, text(line.how)
            case lines.PhaseLine() if len(self.phases) < 1000:
                self.phases.append((at, text(line.phase, 40)))
            case lines.MarkLine():
                process = self._process(line.process)
                if not (0 <= line.seconds <= LONGEST and line.times >= 1):
                    raise ValueError("no time that something took")
                if line.what == "step":
                    process.step_marks.add(at, line.seconds / line.times)
                elif len(process.marks) < MOST_MARKS:
                    process.marks.append(TimedMark(at=at, what=text(line.what, 40), seconds=line.seconds))
            case lines.Still() if len(self.still) < MOST_MARKS:
                silent = line.processes.items()
                self.still += [(at, text(name), each.seconds, each.cpus - each.waiters) for name, each in silent]
            case lines.Stalled() if line.ranks and len(self.stalled) < MOST_MARKS:
                self.stalled.append(at)
            case lines.Decided():
                for event, *values in line.call["events"]:
                    if event == "Prepared" and values:
                        self.unused_gpus = text(values[0].get("unused_gpus", ""), 600)
                        found = values[0].get("fingerprints", ())[:MOST_NAMED]
                        self.software = {text(name): text(version, 20_000) for name, version in found if version}
            case lines.DescribedLine(hyperparameters=given):
                users = [(name, value) for name, value in given.items() if not name.startswith(PREFIX)][:MOST_NAMED]
                self.hyperparameters = {text(name): text(params.arguments({name: value})[-1]) for name, value in users}
            case lines.Stacks() if len(self.stacks) < MOST_STACKS:
                words = {key: text(getattr(line, key), 20_000) for key in line.named}
                self.stacks.append({"at": at, "process": text(line.process), **words})
            case lines.Lines() if line.process in self.processes:
                self.output[line.process] = tuple(text(words, MOST_WIDTH) for words in line.lines[-MOST_OUTPUT:])
            case lines.Said() if len(self.logged) < MOST_LOGGED:
                self.logged.append((at, text(line.text, 600)))
            case lines.Distributed():
                words = {"words": text(line.words, 600), "advice": text(line.advice, 600)}
                since = max(0.0, line.since - self.zero)
                self.apart = {"since": since, **words} if line.together is False else None
            case lines.OutcomeLine(cause=cause):
                blamed = {key: text(cause.get(key, ""), 4000) for key in lines.CAUSE} if cause else None
                self.outcome = {"kind": text(line.kind, 40), "code": int(line.exit_code), "cause": blamed}

    def _take_sample(self, at: float, line: lines.SampleLine) -> None:
        seconds, used = line.seconds, line.host
        amounts: dict[Key, float] = dict(zip(_CPU, used.get("cpu", ()), strict=False))
        peaks: dict[Key, float] = dict(zip(_MEMORY, used.get("memory", ()), strict=False))
        amounts.update(zip(_DISK, used.get("disk", ()), strict=False))
        amounts.update(zip(_NET, used.get("net", ()), strict=False))
        if "free" in used:
            amounts["free",] = used["free"] * seconds
        self.oom += int(used.get("oom", 0))
        for place, (busy, held, size, watts, *_) in enumerate(used.get("gpus", ())[:64]):
            amounts["gpu", str(place)] = busy * seconds
            peaks["gpu memory", str(place)] = held / max(1.0, size)
            self.held_at_first.setdefault(str(place), held / max(1.0, size))
            amounts["gpu watts",] = amounts.get(("gpu watts",), 0.0) + watts * seconds
        for channel, (waiting, capacity) in list(used.get("fifos", {}).items())[:100]:
            amounts["fifo", text(channel, 80)] = seconds * waiting / max(1.0, capacity)
        for name, its in line.processes.items():
            process = self.processes.get(name) or self._process(name)
            if process.first_output is None and its.get("output", 0) > its.get("startup", 0):
                process.first_output = at
            amounts.update({("process", process.name, what): its[what] for what in ("cpu", "wait") if what in its})
            if "memory" in its:
                peaks["process", process.name, "memory"] = its["memory"]
        self.columns.add(at - seconds, at, amounts, peaks)
        for peer, (received, sent) in line.peers.items():
            both = self.exchanged.setdefault(peer, [0.0, 0.0])
            both[0] += received * self.every
            both[1] += sent * self.every

    def _take_metric(self, at: float, line: lines.Metric) -> None:
        process = self.processes.get(line.process) or self._process(line.process)
        metrics = process.metrics
        for metric, value in line.values.items():
            series = metrics.get(metric)
            if series is None and (series := metrics.get(metric := text(metric, 60))) is None:
                if len(metrics) >= MOST_METRICS:
                    continue
                series = metrics[metric] = Series()
            series.add(at, float(value))

    def _process(self, name: str) -> ProcessFigures:
        name, known = text(name), self.processes
        if name not in known:
            if len(known) >= MOST_PROCESSES:
                raise ValueError("too many processes")
            known[name] = ProcessFigures(name=name)
        return known[name]


def read(name: str, data: bytes, zero: float, columns: Columns, every: int = 1) -> HostFigures:
    """Return a record's figures. `zero`: the job's begin by this host's clock; `every`: read one sample of `every`."""
    host, wrong = HostFigures(name=name, columns=columns, zero=zero, every=every), 0
    for batch in batches(texts_of(data, host.problems), every):
        for line in parsed(batch):
            wrong += not (line and host.takes(line))
        if wrong > MOST_WRONG_LINES:
            host.problems.append("the rest was not read")
            break
    if wrong:
        host.problems.append(f"{wrong} lines could not be understood")
    host.begin = 0.0 if host.begin is None else host.begin
    return host
