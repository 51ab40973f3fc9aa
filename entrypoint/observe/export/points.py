"""Turn records into scalars: metrics of each process by step, figures of each host by seconds since its start."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from entrypoint.record.line import WRONG

KINDS = ("host", "described", "sample", "metric", "mark", "outcome")


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
    _cpus: int = 1
    _limit: int = 0
    _began: float = 0.0
    _steps: dict[str, int] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)  # facts on the host and its job
    described: dict[str, Any] = field(default_factory=dict)  # the job's request
    outcome: dict[str, Any] = field(default_factory=dict)
    ended: bool = False

    @property
    def is_coordinator(self) -> bool:
        return self.about.get("coordinator") == self.host

    def of(self, lines: Iterable[list[Any]]) -> Iterator[Point]:
        """Yield the points of lines; skip malformed lines."""
        for line in lines:
            with contextlib.suppress(*WRONG):
                yield from list(self._of_line(line))

    def _of_line(self, line: list[Any]) -> Iterator[Point]:
        match line:
            case ["host", float(at) | int(at), dict(about)]:
                self._began = self._began or at
                self.about |= about
                self._cpus = int(about.get("cpus") or self._cpus)
                self._limit = int(about.get("memory_limit") or self._limit)
            case ["sample", at, seconds, dict(used), dict(processes), dict(peers)] if seconds > 0:
                yield from self._of_sample(at, seconds, used, processes, peers)
            case ["metric", at, str(process), dict(found)]:
                self._steps[process] = int(found.get("step", self._steps.get(process, 0)))
                for name, value in found.items():
                    yield self._point(process, name, self._steps[process], at, value, is_metric=True)
            case ["mark", at, str(process), {"what": what, "seconds": seconds, **rest}]:
                each = seconds / rest.get("times", 1)
                yield self._point(process, f"seconds/{what}", self._steps.get(process, 0), at, each)
            case ["described", _, dict(described)]:
                self.described = described
            case ["outcome", _, dict(outcome)]:
                self.outcome, self.ended = outcome, True

    def _of_sample(
        self,
        at: float,
        seconds: float,
        used: Mapping[str, Any],
        processes: Mapping[str, Mapping[str, float]],
        peers: Mapping[str, Any],
    ) -> Iterator[Point]:
        step = max(0, round(at - self._began))
        user, system = (*used.get("cpu", ()), 0.0, 0.0)[:2]
        figures = {"cpu": (user + system) / seconds / self._cpus}
        if memory := used.get("memory"):
            figures["memory/bytes"] = memory[2]
            if self._limit:
                figures["memory/of limit"] = memory[2] / self._limit
        for name in ("net", "disk"):
            for way, count in zip(("in", "out"), used.get(name, ()), strict=False):
                figures[f"{name}/{way} bytes per second"] = count / seconds
        for index, (busy, taken, *_) in enumerate(used.get("gpus", ())):
            figures |= {f"gpu {index}/busy": busy, f"gpu {index}/bytes": taken}
        for channel, (waiting, _) in used.get("fifos", {}).items():
            figures[f"pipe/{channel} bytes waiting"] = waiting
        for peer, counts in peers.items():
            figures[f"exchange/{peer} bytes per second"] = sum(counts) / seconds
        for name, value in figures.items():
            yield Point(run=self.host, name=name, step=step, at=at, value=float(value))
        for process, its in processes.items():
            yield self._point(process, "cpus", step, at, its.get("cpu", 0.0) / seconds)
            yield self._point(process, "memory/bytes", step, at, its.get("memory", 0))

    def _point(self, process: str, name: str, step: int, at: float, value: float, is_metric: bool = False) -> Point:
        run = f"{self.host}/{process}"
        return Point(run=run, name=name, step=step, at=at, value=float(value), is_metric=is_metric)
