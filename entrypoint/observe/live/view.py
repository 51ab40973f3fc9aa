"""Collect the current state of a running job from the records of all hosts.

docs/monitoring.md has the form of `View.state`, which `GET /live` answers in JSON.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from entrypoint.base.series import Series
from entrypoint.record import lines

LINES, SAID, HISTORY = 5, 60, 120  # kept: lines of a process, log lines of the launchers, samples of a host
CURVE = 400  # points of a process's loss that are kept
MOST_HOSTS, MOST_PROCESSES, MOST_METRICS = 2000, 1024, 64  # limits of what is kept and shown
RATE_OVER_SECONDS = 30.0  # seconds over which a rate of steps is taken
# Names that scripts use for the number of all their steps.
TOTALS = ("max_steps", "total_steps", "train_steps", "num_steps", "steps")
PREPARE = {"prepare", "key"}  # roles of processes that end before the training, not shown if they have ended well
FIRST_OF = ("chief/0", "rank 0", "script", "worker/0")  # processes whose progress stands for the job's


class View:
    """Hold the facts of all hosts from their records. Each line has a time of its host's clock."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}
        self._said: deque[tuple[float, str, str]] = deque(maxlen=SAID)
        self.outcome: dict[str, Any] | None = None
        self.others: dict[str, Any] | None = None  # the outcome by another host than the coordinator, which may be lost
        self.last = 0.0  # time of the last line, by its host's clock
        self._apart = ""  # that the hosts train apart, and what is missing

    def note(self, host: str, line: lines.Line) -> None:
        """Note one line of a host's record; raise one of WRONG if the line is malformed."""
        known = self._hosts.get(host) or self._hosts.setdefault(host, _Host(host))
        known.heard = lines.now()  # by our clock, as `at` of the state
        self.last = max(self.last, line.at)
        match line:
            case lines.HostLine():
                known.about = known.about.updated(line) if known.about.at else line
            case lines.ProcessLine():
                known.processes.pop(line.process, None)
                known.process(line.process).role = line.role
            case lines.EndedLine():
                known.process(line.process).ended = line.how
            case lines.PhaseLine():
                known.phase = line.phase
            case lines.SampleLine() if line.seconds > 0:
                known.note_sample(line)
            case lines.Metric():
                known.process(line.process).note_metrics(line.at, line.values)
            case lines.Lines():
                known.process(line.process).lines.extend(line.lines)
            case lines.Still(processes=still):
                for process in known.processes.values():
                    process.still = still[process.name].seconds if process.name in still else 0.0
            case lines.Said():
                self._said.append((line.at, host, line.text))
            case lines.Distributed() if host == (known.about.coordinator or host):
                self._apart = f"{line.words}: {line.advice}" if line.together is False else ""
            case lines.OutcomeLine():
                known.ended = True
                outcome = {name: getattr(line, name) for name in line.named}
                if host == (known.about.coordinator or host):
                    self.outcome = outcome
                else:
                    self.others = outcome

    def state(self, now: float) -> dict[str, Any]:
        about = next((host.about for host in self._hosts.values() if host.about.at), lines.HostLine())
        order = {name: rank for rank, name in enumerate((about.hosts or ())[:MOST_HOSTS])}
        hosts = sorted(self._hosts.values(), key=lambda host: order.get(host.name, len(order)))
        return {
            "version": 1,
            "at": now,
            "began": min((host.about.at for host in hosts if host.about.at), default=now),
            "name": about.job or "",
            "mode": about.mode or "",
            "coordinator": about.coordinator or "",
            "outcome": self.outcome,
            "apart": self._apart,
            "progress": _progress(hosts),
            "hosts": [host.state() for host in hosts],
            "said": sorted(self._said, key=lambda said: said[:2]),  # of one moment as logged
        }


@dataclass
class _Process:
    name: str
    role: str = ""
    ended: str | None = None
    cpus: float = 0.0
    memory: float = 0
    still: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES))
    began: tuple[float, float] | None = None  # (time, part done) at its first report
    reported_at: float = 0.0
    steps: deque[tuple[float, float]] = field(default_factory=deque)
    losses: Series = field(default_factory=lambda: Series(CURVE))

    def note_metrics(self, at: float, found: Mapping[str, float]) -> None:
        for name, value in found.items():
            if name in self.metrics or len(self.metrics) < MOST_METRICS:
                self.metrics[name] = value
        self.reported_at = at
        if self.loss in found:
            self.losses.add(at, found[self.loss])
        if "step" in found:
            if self.steps and found["step"] < self.steps[-1][1]:  # the script started again
                self.steps.clear()
            self.steps.append((at, found["step"]))
            while len(self.steps) > 2 and self.steps[0][0] < at - RATE_OVER_SECONDS:
                self.steps.popleft()
        done = self.done
        if done is not None and (self.began is None or done < self.began[1]):
            self.began = at, done

    @property
    def loss(self) -> str:
        """Return the name of the metric whose curve is kept: `loss`, else the first that ends so, or ""."""
        names = [name for name in self.metrics if name.endswith("loss") and not name.startswith("val")]
        return min(names, key=lambda name: name != "loss", default="")

    @property
    def rate(self) -> float | None:
        """Return the process's steps per second in the last RATE_OVER_SECONDS; None if unknown or at a standstill."""
        if self.still > RATE_OVER_SECONDS:
            return None
        if len(self.steps) > 1:
            (first_at, first), (last_at, last) = self.steps[0], self.steps[-1]
            return (last - first) / (last_at - first_at) if last_at > first_at else None
        return self.metrics.get("steps_per_second")

    @property
    def done(self) -> float | None:
        """Return the share of the process's steps that is done, 0 to 1; None if it does not report their number."""
        metrics = self.metrics
        if metrics.get("epochs", 0) > 0 and "epoch" in metrics:
            steps = metrics.get("epoch_steps", 0)
            within = min(1.0, metrics.get("epoch_step", 0.0) / steps) if steps > 0 else 0.0
            done = (metrics["epoch"] - 1 + within) / metrics["epochs"]
        elif (total := next((metrics[name] for name in TOTALS if metrics.get(name, 0) > 0), 0)) and "step" in metrics:
            done = metrics["step"] / total
        else:
            return None
        return round(min(1.0, max(0.0, done)), 4)

    @property
    def left(self) -> float | None:
        """Return the seconds until the process's last step, at its mean pace; None if they are not known."""
        done = self.done
        if done is None or self.began is None or done <= self.began[1]:
            return None
        return (1 - done) * (self.reported_at - self.began[0]) / (done - self.began[1])

    @property
    def is_ours(self) -> bool:
        """Return whether the process is a helper or server of the launcher, which does not run the user's program."""
        return self.role in lines.SERVES | lines.HELPS

    @property
    def has_ended_well(self) -> bool:
        """Return whether the process has ended as it should: the launcher ends servers by SIGTERM."""
        return self.ended == "exit code 0" or (self.is_ours and self.ended == "killed by SIGTERM")

    def state(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "role": self.role,
            "ours": self.is_ours,
            "ended": self.ended,
            "failed": self.ended is not None and not self.has_ended_well,
            "cpus": round(self.cpus, 2),
            "memory": self.memory,
            "still": self.still,
            "rate": self.rate,
            "metrics": _plain(self.metrics),
            "lines": list(self.lines),
        }


@dataclass
class _Host:
    name: str
    heard: float = 0.0
    phase: str = "starting"
    ended: bool = False
    about: lines.HostLine = field(default_factory=lambda: lines.HostLine(at=0.0))
    processes: dict[str, _Process] = field(default_factory=dict)
    now: dict[str, Any] = field(default_factory=dict)
    history: deque[list[float]] = field(default_factory=lambda: deque(maxlen=HISTORY))

    def process(self, name: str) -> _Process:
        if name not in self.processes:
            if len(self.processes) >= MOST_PROCESSES:
                raise ValueError("too many processes")
            self.processes[name] = _Process(name)
        return self.processes[name]

    def note_sample(self, line: lines.SampleLine) -> None:
        seconds, used = line.seconds, line.host
        user, system = (*used.get("cpu", ()), 0.0, 0.0)[:2]
        memory = (*used.get("memory", ()), 0, 0, 0)[2]
        limit = self.about.memory_limit or 0
        cpu = min(1.0, (user + system) / seconds / max(1, self.about.cpus or 1))
        self.now = {
            "cpu": round(cpu, 3),
            "memory": [memory, limit],
            "net": [int(count / seconds) for count in used.get("net", (0, 0))],
            "disk": [int(count / seconds) for count in used.get("disk", (0, 0))],
            **{name: value for name, value in used.items() if name in ("free", "gpus", "fifos")},
        }
        self.history.append([round(line.at, 1), round(cpu, 2), round(memory / limit, 3) if limit else 0.0])
        for name, its in line.processes.items():
            process = self.process(name)
            process.cpus, process.memory = its.get("cpu", 0.0) / seconds, its.get("memory", 0)

    def state(self) -> dict[str, Any]:
        done = [each for each in self.processes.values() if each.role in PREPARE and each.has_ended_well]
        shown = [each for each in self.processes.values() if each not in done]
        return {
            "name": self.name,
            "phase": "ended" if self.ended else self.phase,
            "instance_type": self.about.instance_type or "",
            "cpus": self.about.cpus or 0,
            "heard": self.heard,
            **self.now,
            "history": list(self.history),
            "processes": [
                process.state() for process in sorted(shown, key=lambda each: (each.is_ours, lines.place(each.name)))
            ],
        }


def _progress(hosts: list[_Host]) -> dict[str, Any]:
    """Return the progress of the process that represents the job: the first of FIRST_OF with metrics, or any other."""
    reporting = [(host, process) for host in hosts for process in host.processes.values() if process.metrics]
    reporting.sort(key=lambda pair: FIRST_OF.index(pair[1].name) if pair[1].name in FIRST_OF else len(FIRST_OF))
    if not reporting:
        return {"host": "", "process": "", "done": None, "left": None, "metrics": {}, "curve": None}
    host, process = reporting[0]
    losses = zip(process.losses.times, process.losses.values, strict=True)
    return {
        "host": host.name,
        "process": process.name,
        "done": process.done,
        "left": None if process.left is None else round(process.left, 1),
        **{name: process.metrics[name] for name in ("epoch", "epochs", "step") if name in process.metrics},
        "metrics": _plain(process.metrics),
        "curve": {"name": process.loss, "points": [[round(at, 1), loss] for at, loss in losses]},
    }


def _plain(metrics: Mapping[str, float]) -> dict[str, float | str]:
    """Return metrics for any reader of JSON: NaN and infinity become strings."""
    return {name: value if math.isfinite(value) else str(value) for name, value in metrics.items()}
