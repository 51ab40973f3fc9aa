"""Read one host's record into a bounded number of figures. monitor/README.md defines its lines.

A record may be cut, broken or malicious: lines that do not fit are counted and left out.
"""

from collections.abc import Callable
from typing import Any

from entrypoint.observe.report.columns import Columns, Key, Series
from entrypoint.observe.report.host import Host, Mark, Process, Run
from entrypoint.record.read import WRONG, batches, lines_of, number, numbers, parsed, text

MOST_WRONG_LINES = 10_000  # lines, after which it is no record any more
MOST_SAID, MOST_STACKS, MOST_MARKS, MOST_PROCESSES, MOST_METRICS = 2000, 64, 20_000, 1024, 24
LONGEST = 60 * 86_400.0  # seconds that a job can take; a later time is wrong


def read(name: str, data: bytes, zero: float, columns: Columns, every: int = 1) -> Host:
    """Return a record's figures. `zero`: the job's begin by this host's clock; `every`: read one of so many samples."""
    host = Host(name=name, columns=columns, every=every)
    reader, wrong = _Reader(host, zero), 0
    for lines in batches(lines_of(data, host.problems), every):
        for line in parsed(lines):
            try:
                reader.take(line)
            except WRONG:
                wrong += 1
        if wrong > MOST_WRONG_LINES:
            host.problems.append("the rest was not read")
            break
    if wrong:
        host.problems.append(f"{wrong} lines could not be understood")
    host.begin = 0.0 if host.begin is None else host.begin
    return host


class _Reader:
    def __init__(self, host: Host, zero: float) -> None:
        self._host, self._zero = host, zero
        kinds = [name.removeprefix("_take_") for name in vars(_Reader) if name.startswith("_take_")]
        self._takes: dict[str, Callable[..., None]] = {kind: getattr(self, f"_take_{kind}") for kind in kinds}

    def take(self, line: list[Any]) -> None:
        """Note a line; raise one of WRONG if it is malformed."""
        kind, at, *values = line
        at = number(at) - self._zero
        if not -60 <= at <= LONGEST:
            raise ValueError("no time of this job")
        at = max(0.0, at)
        if kind in self._takes:
            self._takes[kind](at, *values)
        host = self._host
        host.begin = at if host.begin is None else min(host.begin, at)
        host.end = max(host.end, at)

    def _take_host(self, at: float, about: dict[str, Any]) -> None:
        for key, value in dict(about).items():
            self._host.about[key] = value
        self._host.rank = int(number(self._host.about.get("rank", 0)))

    def _take_process(self, at: float, name: str, about: dict[str, Any]) -> None:
        process = self._process(name)
        process.role, process.task = text(about.get("role", ""), 40), text(about.get("task", ""), 80)
        if len(process.runs) < 1000:
            process.runs.append(Run(at))

    def _take_ended(self, at: float, name: str, how: str) -> None:
        process = self._process(name)
        if process.runs and process.runs[-1].end is None:
            process.runs[-1].end, process.runs[-1].how = at, text(how)

    def _take_phase(self, at: float, phase: str) -> None:
        if len(self._host.phases) < 1000:
            self._host.phases.append((at, text(phase, 40)))

    def _take_sample(
        self, at: float, seconds: float, used: dict[str, Any], processes: dict[str, Any], peers: dict[str, Any]
    ) -> None:
        seconds, host = number(seconds), self._host
        amounts: dict[Key, float] = {}
        peaks: dict[Key, float] = {}
        for name, keys in _LISTS:
            if name in used:
                (peaks if name == "memory" else amounts).update(zip(keys, numbers(used[name]), strict=False))
        if "free" in used:
            amounts["free",] = number(used["free"]) * seconds
        if "oom" in used:
            host.oom += int(number(used["oom"]))
        for place, (busy, held, size, watts, *_) in enumerate(map(numbers, list(used.get("gpus", ()))[:64])):
            amounts["gpu", str(place)] = busy * seconds
            peaks["gpu memory", str(place)] = held / max(1.0, size)
            host.held_at_first.setdefault(str(place), held / max(1.0, size))
            amounts["gpu watts",] = amounts.get(("gpu watts",), 0.0) + watts * seconds
        for channel, (waiting, capacity) in list(dict(used.get("fifos", {})).items())[:100]:
            amounts["fifo", text(channel, 80)] = seconds * number(waiting) / max(1.0, number(capacity))
        for name, its in processes.items():
            process = host.processes.get(name) or self._process(name)
            if process.first_output is None and its.get("output"):
                process.first_output = at
            if "cpu" in its:
                amounts["process", process.name, "cpu"] = number(its["cpu"])
            if "wait" in its:
                amounts["process", process.name, "wait"] = number(its["wait"])
            if "memory" in its:
                peaks["process", process.name, "memory"] = number(its["memory"])
        host.columns.add(at - seconds, at, amounts, peaks)
        for peer, (received, sent) in peers.items():
            both = host.exchanged.setdefault(peer, [0.0, 0.0])
            both[0] += number(received) * host.every
            both[1] += number(sent) * host.every

    def _take_metric(self, at: float, name: str, found: dict[str, Any]) -> None:
        process = self._host.processes.get(name) or self._process(name)
        metrics = process.metrics
        for metric, value in found.items():
            if not isinstance(value, float | int):
                raise ValueError("no number")
            series = metrics.get(metric)
            if series is None:
                if len(metrics) >= MOST_METRICS:
                    continue
                series = metrics[text(metric, 60)] = Series()
            series.add(at, float(value))

    def _take_mark(self, at: float, name: str, mark: dict[str, Any]) -> None:
        process = self._process(name)
        what, seconds, times = text(mark["what"], 40), number(mark.get("seconds", 0)), number(mark.get("times", 1))
        if not (0 <= seconds <= LONGEST and times >= 1):
            raise ValueError("no time that something took")
        if what == "step":
            process.step_marks.add(at, seconds / times)
        elif len(process.marks) < MOST_MARKS:
            process.marks.append(Mark(at, what, seconds))

    def _take_still(self, at: float, still: dict[str, Any]) -> None:
        for name, (seconds, cpus, *more) in dict(still).items():
            if len(self._host.still) < MOST_MARKS:
                waiters = number(more[0]) if more else 0.0
                self._host.still.append((at, text(name), number(seconds), number(cpus) - waiters))

    def _take_stalled(self, at: float, missing: list[Any]) -> None:
        if missing and len(self._host.stalled) < MOST_MARKS:
            self._host.stalled.append(at)

    def _take_decided(self, at: float, decided: dict[str, Any]) -> None:
        for event, *values in decided["events"]:
            if event == "Prepared" and values:
                self._host.unused_gpus = text(values[0].get("unused_gpus", ""), 600)

    def _take_stacks(self, at: float, name: str, stack: dict[str, Any]) -> None:
        if len(self._host.stacks) < MOST_STACKS:
            words = {key: text(stack.get(key, ""), 20_000) for key in ("by", "place", "inside", "doing", "text")}
            self._host.stacks.append({"at": at, "process": text(name), **words})

    def _take_said(self, at: float, words: str) -> None:
        if len(self._host.logged) < MOST_SAID:
            self._host.logged.append((at, text(words, 600)))

    def _take_outcome(self, at: float, outcome: dict[str, Any]) -> None:
        cause = outcome.get("cause")
        self._host.outcome = {
            "kind": text(outcome["kind"], 40),
            "code": int(number(outcome.get("exit_code", 0))),
            "cause": {key: text(cause.get(key, ""), 4000) for key in ("host", "process", "what", "error")}
            if cause
            else None,
        }

    def _process(self, name: str) -> Process:
        name, known = text(name), self._host.processes
        if name not in known:
            if len(known) >= MOST_PROCESSES:
                raise ValueError("too many processes")
            known[name] = Process(name)
        return known[name]


_LISTS: list[tuple[str, list[Key]]] = [
    ("cpu", [("cpu", state) for state in ("user", "system", "disks", "stolen", "throttled")]),
    ("memory", [("memory", part) for part in ("programs", "cache", "counted")]),
    ("disk", [("disk", way) for way in ("read", "written")]),
    ("net", [("net", way) for way in ("received", "sent")]),
]
