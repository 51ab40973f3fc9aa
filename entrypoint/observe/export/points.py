"""Turn records into scalars: metrics of each process by step, figures of each host by seconds since its start."""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from entrypoint.record import lines

KINDS = (lines.Host, lines.Described, lines.Sample, lines.Metric, lines.Mark, lines.Outcome)


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
    about: lines.Host | None = None  # facts on the host and its job
    described: lines.Described | None = None  # the job's request
    outcome: lines.Outcome | None = None
    _steps: dict[str, int] = field(default_factory=dict)

    @property
    def is_coordinator(self) -> bool:
        return self.about is not None and self.about.coordinator == self.host

    def of(self, new: Iterable[lines.Line]) -> Iterator[Point]:
        """Yield the points of lines; skip lines that cannot be right."""
        for line in new:
            with contextlib.suppress(*lines.WRONG):
                yield from list(self._of_line(line))

    def _of_line(self, line: lines.Line) -> Iterator[Point]:
        match line:
            case lines.Host():
                self.about = self.about.updated(line) if self.about else line
            case lines.Sample() if line.seconds > 0:
                yield from self._of_sample(line, self.about or lines.Host(at=0.0))
            case lines.Metric(process=process):
                self._steps[process] = int(line.values.get("step", self._steps.get(process, 0)))
                for name, value in line.values.items():
                    yield self._point(process, name, self._steps[process], line.at, value, is_metric=True)
            case lines.Mark(process=process):
                each = line.seconds / line.times
                yield self._point(process, f"seconds/{line.what}", self._steps.get(process, 0), line.at, each)
            case lines.Described():
                self.described = line
            case lines.Outcome():
                self.outcome = line

    def _of_sample(self, line: lines.Sample, about: lines.Host) -> Iterator[Point]:
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
        for name, value in figures.items():
            yield Point(run=self.host, name=name, step=step, at=at, value=float(value))
        for process, its in line.processes.items():
            yield self._point(process, "cpus", step, at, its.get("cpu", 0.0) / seconds)
            yield self._point(process, "memory/bytes", step, at, its.get("memory", 0))

    def _point(self, process: str, name: str, step: int, at: float, value: float, is_metric: bool = False) -> Point:
        run = f"{self.host}/{process}"
        return Point(run=run, name=name, step=step, at=at, value=float(value), is_metric=is_metric)
