"""Turn records into scalars, also while a job runs: a process's metrics by step, a host's figures by second."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from entrypoint.record import lines
from entrypoint.record.find import ENDING
from entrypoint.record.read import RecordTail

KINDS = (lines.HostLine, lines.DescribedLine, lines.SampleLine, lines.Metric, lines.MarkLine, lines.OutcomeLine)
AGAIN_SECONDS = 1.0  # seconds between two looks at growing records


@dataclass(frozen=True, kw_only=True)
class Point:
    """Describe one scalar. `run`: the host, and the process if it has one: algo-1/rank 0."""

    run: str
    name: str
    step: int
    at: float  # seconds since the epoch
    value: float
    is_metric: bool = False  # a metric that the process itself has reported


@dataclass
class Points:
    """Turn the lines of one host's record into points, in their order."""

    host: str
    about: lines.HostLine | None = None  # facts on the host and its job
    described: lines.DescribedLine | None = None  # the job's request
    outcome: lines.OutcomeLine | None = None
    _steps: dict[str, int] = field(default_factory=dict)

    @property
    def is_coordinator(self) -> bool:
        return self.about is not None and self.about.coordinator == self.host

    def of(self, new: Iterable[lines.Line]) -> Iterator[Point]:
        """Yield the points of lines; skip malformed lines."""
        for line in new:
            with contextlib.suppress(*lines.WRONG):
                yield from list(self._of_line(line))

    def _of_line(self, line: lines.Line) -> Iterator[Point]:
        match line:
            case lines.HostLine():
                self.about = self.about.updated(line) if self.about else line
            case lines.SampleLine() if line.seconds > 0:
                yield from self._of_sample(line, self.about or lines.HostLine(at=0.0))
            case lines.Metric(process=process):
                step = self._steps[process] = int(line.values.get("step", self._steps.get(process, 0)))
                yield from self._points(step, line.at, line.values, process, is_metric=True)
            case lines.MarkLine(process=process):
                figures = {f"seconds/{line.what}": line.seconds / line.times}
                yield from self._points(self._steps.get(process, 0), line.at, figures, process)
            case lines.DescribedLine():
                self.described = line
            case lines.OutcomeLine():
                self.outcome = line

    def _of_sample(self, line: lines.SampleLine, about: lines.HostLine) -> Iterator[Point]:
        at, seconds, used = line.at, line.seconds, line.host
        step = max(0, round(at - about.at))
        user, system = (*used.get("cpu", ()), 0.0, 0.0)[:2]
        figures = {"cpu": (user + system) / seconds / int(about.cpus or 1)}
        if memory := used.get("memory"):
            figures["memory/bytes"] = memory[2]
            if about.memory_limit:
                figures["memory/of limit"] = memory[2] / about.memory_limit
        for name, counts in (("net", used.get("net", ())), ("disk", used.get("disk", ()))):
            for way, count in zip(("in", "out"), counts, strict=False):
                figures[f"{name}/{way} bytes per second"] = count / seconds
        for index, (busy, taken, *_) in enumerate(used.get("gpus", ())):
            figures |= {f"gpu {index}/busy": busy, f"gpu {index}/bytes": taken}
        for channel, (waiting, _) in used.get("fifos", {}).items():
            figures[f"pipe/{channel} bytes waiting"] = waiting
        for peer, counts in line.peers.items():
            figures[f"exchange/{peer} bytes per second"] = sum(counts) / seconds
        yield from self._points(step, at, figures)
        for process, its in line.processes.items():
            figures = {"cpus": its.get("cpu", 0.0) / seconds, "memory/bytes": its.get("memory", 0)}
            yield from self._points(step, at, figures, process)

    def _points(
        self, step: int, at: float, figures: Mapping[str, float], process: str = "", is_metric: bool = False
    ) -> Iterator[Point]:
        run = f"{self.host}/{process}" if process else self.host
        for name, value in figures.items():
            yield Point(run=run, name=name, step=step, at=at, value=float(value), is_metric=is_metric)


def follow(
    folders: Callable[[], list[Path]], add: Callable[[Points, Iterable[lines.Line]], int], is_over: Callable[[], bool]
) -> int:
    """Pass new lines of the records in these folders to `add` until the job is over; return the number of points."""
    tails: dict[Path, tuple[RecordTail, Points]] = {}
    count = 0
    while True:
        over = is_over()  # checked first: lines written before that are read below
        for path in sorted(path for folder in folders() for path in folder.glob(f"*{ENDING}")):
            if path not in tails:
                tails[path] = RecordTail(path), Points(path.name.removesuffix(ENDING))
            tail, points = tails[path]
            count += add(points, tail.lines(KINDS))
        if over or (tails and all(points.outcome for _, points in tails.values())):
            return count
        time.sleep(AGAIN_SECONDS)
