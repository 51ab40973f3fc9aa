"""Hold one host's knowledge of its own processes, of the other hosts, and of this attempt.

Times are seconds of our own monotonic clock.
"""

from collections.abc import Iterable
from signal import SIGTERM
from typing import Any

from entrypoint.base.values import State, Value, fresh
from entrypoint.launcher.outcome.outcome import Cause, Confidence, Exit
from entrypoint.launcher.plan.plan import Duty, ProcessSpec, Restart
from entrypoint.launcher.policy.events import News, Reach, Report

# Seconds that a likely symptom waits for its cause: an unspecific one; a connection that broke off, or what mpirun
# ended; an error in which the framework itself says that another process of the job has ended.
SETTLE_SECONDS, BROKEN_SECONDS, PEER_SECONDS = 0.3, 3.0, 10.0
STILL_SECONDS = 2.5  # seconds after which a refusal is out of date


class OwnProcesses:
    """Hold this host's processes by their names in the plan. Only modules of the policy change it."""

    def __init__(self, specs: Iterable[ProcessSpec]) -> None:
        self.specs = {spec.name: spec for spec in specs}
        self.started: dict[str, float] = {}
        self.ended: dict[str, Exit] = {}
        self.ended_at: dict[str, float] = {}
        self.asked: dict[str, float] = {}  # SIGTERM was sent
        self.forced: dict[str, float] = {}  # SIGKILL was sent
        self.stuck: dict[str, tuple[str, ...]] = {}  # what is left of a process long after SIGKILL
        self.restarts: dict[str, int] = {}  # how often a process was started again alone
        self.not_before: dict[str, float] = {}  # when it may be started again

    def note_started(self, spec: ProcessSpec, now: float) -> None:
        """Note a start. A rank that the plan has on another host brings its own spec."""
        self.specs.setdefault(spec.name, spec)
        self.started[spec.name] = now

    def note_ended(self, name: str, exit: Exit, now: float) -> None:
        self.ended[name], self.ended_at[name] = exit, now

    def forget_end(self, name: str, not_before: float) -> None:
        """Forget the end of a process that is started again alone."""
        self.forget(name)
        self.restarts[name] = self.restarts.get(name, 0) + 1
        self.not_before[name] = not_before

    def forget(self, *names: str) -> None:
        """Forget processes that have nothing left running here. They count as never started."""
        known: tuple[dict[str, Any], ...]
        known = (self.started, self.ended, self.ended_at, self.asked, self.forced, self.not_before)
        for name in names:
            for facts in known:
                facts.pop(name, None)

    def running(self, *duties: Duty) -> list[str]:
        """Return the names of processes that were started and have not ended; with `duties`, only of these duties."""
        return [
            name
            for name, spec in self.specs.items()
            if name in self.started
            and name not in self.ended
            and name not in self.stuck
            and (not duties or spec.duty in duties)
        ]

    def having(self, *duties: Duty) -> list[str]:
        return [name for name, spec in self.specs.items() if spec.duty in duties]

    @property
    def deciding(self) -> list[str]:
        return [name for name, spec in self.specs.items() if spec.decides]

    def is_over(self, name: str) -> bool:
        return name in self.ended or name in self.stuck

    def ended_well(self, *names: str) -> bool:
        return all(name in self.ended and self.ended[name].clean for name in names)

    def ranks_ended_well(self) -> bool:
        return self.ended_well(*(name for name in self.having(Duty.RANK) if name in self.started))

    def group(self) -> list[str]:
        """Return the names of processes that end and start with an attempt."""
        return [name for name, spec in self.specs.items() if spec.restart is not Restart.KEEP]

    def exits(self, began: float) -> tuple[tuple[str, str, float], ...]:
        """Return (process, how it ended, seconds since `began`) of processes that have ended, or will never start."""
        ended = [
            (name, str(exit), round(self.ended_at[name] - began, 3))
            for name, exit in self.ended.items()
            if self.specs[name].duty is not Duty.STEP or not exit.clean
        ]
        still = [
            (name, f"not, though killed then: {'; '.join(left)}", round(self.forced[name] - began, 3))
            for name, left in self.stuck.items()
            if name in self.forced and name not in self.ended
        ]
        return (*ended, *still)


class OtherHosts:
    """Hold the other hosts by name. Only modules of the policy change it."""

    def __init__(self, all_there: bool) -> None:
        self.assembled = all_there  # every host of the job has reported to the coordinator
        self.last_contact: dict[str, float] = {}  # when last; shifted if this process was paused since
        self.first_contact: dict[str, float] = {}
        self.reports: dict[str, Report] = {}  # on the coordinator: the last report of each follower
        self.news: News | None = None  # on a follower: the last news
        self.reach: dict[str, Reach] = {}  # of hosts that were looked for
        self.rejected: dict[str, tuple[float, float, str]] = {}  # refused hosts: since when, when last, why
        self.unreached: dict[str, float] = {}  # when a host last did not take our connection
        # When a host's connection to us ended, for hosts that have not reported since.
        self.link_ended: dict[str, float] = {}
        self.woke, self.slept = float("-inf"), 0.0  # when our last pause ended, and how long it was

    def note_contact(self, host: str, now: float) -> None:
        self.last_contact[host] = now
        self.first_contact.setdefault(host, now)
        self.link_ended.pop(host, None)

    def note_report(self, report: Report, now: float) -> None:
        self.reports[report.host] = report
        self.note_contact(report.host, now)

    def note_news(self, news: News, coordinator: str, now: float, answers: bool) -> None:
        """Note news. If they answer a report of ours, the coordinator is alive; others may be from before a pause."""
        self.news, self.assembled = news, self.assembled or news.assembled
        if answers:
            self.note_contact(coordinator, now)

    def note_rejected(self, host: str, why: str, now: float) -> None:
        since, last, _ = self.rejected.get(host, (now, now, ""))
        self.rejected[host] = (since if now < last + STILL_SECONDS else now, now, why)

    def excuse_lines(self, gap: float) -> None:
        """Shift the ends of connections by a pause of ours, so that hosts have as long to reconnect as without it."""
        self.link_ended = {host: ended + gap for host, ended in self.link_ended.items()}

    def excuse_silence(self, gap: float, now: float) -> None:
        """Shift the last reports by a pause of ours, so that no host counts as silent because of it."""
        self.last_contact = {host: at + gap for host, at in self.last_contact.items()}
        self.woke, self.slept = now, gap

    def is_gone(self, host: str) -> bool:
        """Return whether a host has sent its last report."""
        report = self.reports.get(host)
        return report is not None and report.gone

    def has_answered(self, host: str, poll: int) -> bool:
        """Return whether a host has answered a poll, or sent its last report."""
        report = self.reports.get(host)
        return report is not None and (report.ack >= poll or report.gone)


class Noted(Value):
    """Hold a cause that was reported. Times are of our clock; `at` is when it happened, as exactly as that is known."""

    cause: Cause
    noted_at: float
    at: float
    attempt: int = 0
    error: float = 0.0  # seconds by which `at` may be wrong, since another host's clock measured it
    patience: float = 0.0  # seconds that it waits for a better cause, as long as one may come


def patience_with(cause: Cause, duty: Duty | None) -> float:
    """Return for how many seconds a cause, of a process with this duty, waits for a better one."""
    if cause.confidence is Confidence.HIGH:
        return 0.0
    from entrypoint.launcher.outcome import symptoms  # here, since most jobs never need it

    if symptoms.peer_ended(cause.error, cause.details):
        return PEER_SECONDS
    by_mpirun = duty is Duty.LAUNCHER or (duty is Duty.RANK and cause.exit is not None and cause.exit.signal == SIGTERM)
    return BROKEN_SECONDS if by_mpirun or symptoms.lost_contact(cause.error) else SETTLE_SECONDS


class Attempt(State):
    """Hold the facts of one attempt. A new attempt begins with the processes that stay ready."""

    number: int = 0
    clearing: bool = False  # processes of the last attempt are still being ended
    go: bool = True  # the processes of this attempt may start
    ready: set[tuple[str, str]] = fresh(set)  # (host or ALL_HOSTS, process)
    causes: list[Noted] = fresh(list)  # in the order in which they were reported
    poll: int = 0  # number of the last poll that was asked, or received
    poll_at: float | None = None  # when
    dying: dict[str, tuple[float, str, str]] = fresh(dict)  # own -> (since when it is about to end, error, details)
    resting: dict[str, float] = fresh(dict)  # own process that only serves -> seconds for which that must stay so
    decided_since: float | None = None  # since when all deciding processes of all hosts have ended well

    def note_ready(self, *ready: tuple[str, str]) -> None:
        self.ready.update(ready)

    def note_poll(self, number: int, now: float) -> None:
        if number > self.poll:
            self.poll, self.poll_at = number, now

    def note_dying(self, found: Iterable[tuple[str, str, str]], now: float) -> None:
        since = {name: at for name, (at, _, _) in self.dying.items()}
        self.dying = {name: (since.get(name, now), error, details) for name, error, details in found}

    def note_decided(self, decided: bool, now: float) -> None:
        """Note when all have decided. A process that seemed only to serve may have begun to work again."""
        self.decided_since = None if not decided else now if self.decided_since is None else self.decided_since

    def polled_within(self, seconds: float, now: float) -> bool:
        return self.poll_at is not None and now < self.poll_at + seconds
