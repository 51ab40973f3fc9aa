"""Divide the time of each process and host into phases, by its record.

docs/report.md explains each phase. It calls the phase `still` *no progress*.
"""

from itertools import pairwise

from entrypoint.launcher.job.choices import OUTSIDE
from entrypoint.observe.report.host_figures import HostFigures, ProcessFigures, Run

ORDER = (
    "start", "prepare", "rendezvous", "import", "first step", "train", "data wait", "evaluation", "checkpoint", "serve",
    "still", "restart", "idle", "end",
)  # fmt: skip
IDLE = {"rendezvous", "data wait", "still", "restart", "idle"}  # time that is paid for without computing
# A host's phase is the first of these that one of its processes is in.
_FIRST = ("checkpoint", "evaluation", "train", "data wait", "first step", "import", "still")
_BY_ROLE = {"prepare": "prepare", "key": "prepare", "ps": "serve", "evaluator": "evaluation"}
_MARKED = {"checkpoint": "checkpoint", "evaluation": "evaluation", "data_wait": "data wait"}
WORKS = 0.2  # CPUs: a process that uses less waits, as in monitor/wait_sites.py
LOOKED_SECONDS = 30.0  # seconds after which a look at the stacks is told at the latest


class Span:
    """Describe one phase from `start` to `end`, in seconds since the job's begin."""

    def __init__(self, phase: str, start: float, end: float) -> None:
        self.phase, self.start, self.end = phase, start, end


def of_process(process: ProcessFigures, host: HostFigures) -> list[Span]:
    """Return the spans of a process over all its runs; while it runs there are no gaps."""
    found: list[Span] = []
    for run in process.runs:
        end = host.end if run.end is None else max(run.start, run.end)
        if phase := "serve" if process.task == OUTSIDE else _BY_ROLE.get(process.role):
            found.append(Span(phase, run.start, end))
        elif process.role not in ("sshd", "mpirun"):
            found += _of_run(process, run, end, host)
    return found


def _of_run(process: ProcessFigures, run: Run, end: float, host: HostFigures) -> list[Span]:
    steps = [at for at in (*process.steps.times, *process.step_marks.times) if run.start <= at <= end]
    spoken = process.first_output
    if spoken is None or not run.start <= spoken <= end:
        spoken = steps[0] if steps else run.start
    first = min(steps, default=spoken)
    spoken = min(spoken, first)
    spans = [Span("import", run.start, spoken), Span("first step", spoken, first), Span("train", first, end)]
    for at, name, seconds, cpus in host.still:
        if name == process.name and run.start <= at <= end and _waits(host, name, at - seconds, at, cpus):
            _lay_over(spans, Span("still", max(run.start, at - seconds), at))
    for mark in process.marks:
        if mark.what in _MARKED and mark.seconds > 0 and run.start <= mark.at <= end + 1:
            _lay_over(spans, Span(_MARKED[mark.what], max(run.start, mark.at - mark.seconds), min(end, mark.at)))
    return _joined(spans)


def _waits(host: HostFigures, name: str, since: float, at: float, cpus: float) -> bool:
    """Return whether a process only waited, judged by its last stack in that time, or without one by its CPU use."""
    looks = [each for each in host.stacks if each["process"] == name and since <= each["at"] <= at + LOOKED_SECONDS]
    known = [each["doing"] for each in looks if each["doing"]]
    return known[-1] != "works" if known else cpus < WORKS


def _lay_over(spans: list[Span], new: Span) -> None:
    """Replace the spans in the time of `new`. Calls come mostly in order of time, so few spans are visited."""
    if new.end <= new.start:
        return
    at = len(spans)
    while at and spans[at - 1].end > new.start:
        at -= 1
    tail = spans[at:]
    before = [Span(span.phase, span.start, min(span.end, new.start)) for span in tail if span.start < new.start]
    after = [Span(span.phase, max(span.start, new.end), span.end) for span in tail if span.end > new.end]
    spans[at:] = [*before, new, *after]


def _joined(spans: list[Span]) -> list[Span]:
    found: list[Span] = []
    for span in spans:
        if span.end <= span.start:
            continue
        if found and found[-1].phase == span.phase and span.start <= found[-1].end:
            found[-1].end = max(found[-1].end, span.end)
        else:
            found.append(Span(span.phase, span.start, span.end))
    return found


def of_host(host: HostFigures, job_trains_until: float) -> list[Span]:
    """Return the host's spans without gaps. `job_trains_until`: when the last training process of all hosts ended."""
    begin, end = host.begin or 0.0, host.end
    by_process = {process.name: of_process(process, host) for process in host.processes.values()}
    training = [span for process in host.trainers for span in by_process[process.name]]
    others = [span for process in host.processes.values() if not process.trains for span in by_process[process.name]]
    spans = sorted([*training, *others], key=lambda span: span.start)
    times = sorted({begin, end, min(max(job_trains_until, begin), end)} | {
        time for span in spans for time in (span.start, span.end) if begin < time < end
    })  # fmt: skip
    # A worker server beside parameter servers stays in `starting` while it runs: so the start of its programs counts.
    users = training or [span for span in others if span.phase in ("serve", "evaluation")]
    first = min((span.start for span in users), default=end)
    prepared = max((span.end for span in others if span.phase == "prepare" and span.end <= first), default=None)
    found = []
    active: list[Span] = []
    at = 0
    for start, stop in pairwise(times):
        while at < len(spans) and spans[at].start <= start:
            active.append(spans[at])
            at += 1
        active = [span for span in active if span.end > start]
        now = {span.phase for span in active}
        phase = _at_that_time(now, start, first, prepared, job_trains_until)
        reported = next((name for time, name in reversed(host.phases) if time <= start), "")
        found.append(Span("restart" if phase == "idle" and reported == "restarting" else phase, start, stop))
    return _joined(found)


def _at_that_time(now: set[str], start: float, first: float, prepared: float | None, until: float) -> str:
    if start < first:
        if "prepare" in now:
            return "prepare"
        return "start" if prepared is None or start < prepared else "rendezvous"
    if phase := next((phase for phase in _FIRST if phase in now), None):
        return phase
    if start >= until:
        return "end"
    return "serve" if "serve" in now else "prepare" if "prepare" in now else "idle"
