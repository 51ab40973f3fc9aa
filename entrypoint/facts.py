"""What one host knows: of its own processes, and of the other hosts. And the questions asked about it.

What was noted is not taken back. The policy notes facts and decides by them.
"""

from dataclasses import replace
from typing import Any

from entrypoint.errors import ExitCode
from entrypoint.events import News, Report
from entrypoint.outcome import Cause, Exit, Outcome, Strength
from entrypoint.plan import ALL_HOSTS, Duty, Need, Plan, ProcessSpec, Ready


class Facts:
    """The facts of `host`. Times are seconds of one monotonic clock, ours."""

    def __init__(self, plan: Plan, host: str, now: float) -> None:
        self.plan, self.host, self.began = plan, host, now
        self.specs = {spec.name: spec for spec in plan.on(host)}
        self.coordinator = plan.hosts[0]
        self.is_coordinator = host == self.coordinator
        self.others = [name for name in plan.hosts if name != host]
        self._shared_needs = {
            (need.host, need.process)
            for spec in plan.processes
            for need in spec.needs
            if spec.host != self.coordinator and need.host != spec.host
        }
        # Of this host.
        self.started: dict[str, float] = {}
        self.ended: dict[str, Exit] = {}
        self.ended_at: dict[str, float] = {}
        self.asked: dict[str, float] = {}  # SIGTERM was sent
        self.forced: set[str] = set()  # SIGKILL was sent
        self.flags: frozenset[str] | None = None  # what the prepare step found; None before it has ended
        # Of the job.
        self.ready: set[tuple[str, str]] = set()  # (host or ALL_HOSTS, process)
        self.cards: dict[str, dict[str, str]] = {}  # card -> host -> line
        self.heard: dict[str, float] = {}
        self.first_heard: dict[str, float] = {}
        self.reports: dict[str, Report] = {}  # the coordinator's: the last of each follower
        self.causes: list[tuple[float, Cause]] = []  # in the order in which they were heard
        self.stopping_since: float | None = None
        self.outcome: Outcome | None = None
        self.outcome_at = now

    def met(self, need: Need) -> bool:
        if need.only_if is not None and self.flags is not None and need.only_if not in self.flags:
            return True
        if (need.host, need.process) in self.ready:
            return True
        return (
            need.host == ALL_HOSTS
            and self.is_coordinator
            and all((host, need.process) in self.ready for host in self.plan.hosts)
        )

    def running(self) -> list[str]:
        """Names of the processes of this host that were started and have not ended."""
        return [name for name in self.specs if name in self.started and name not in self.ended]

    def awaited(self) -> list[ProcessSpec]:
        """Processes of this host that somebody waits for until they listen."""
        return [
            self.specs[name]
            for name in self.running()
            if self.specs[name].ready is Ready.LISTENING
            and (self.host, name) not in self.ready
            and any(need.process == name and not self.met(need) for s in self.plan.processes for need in s.needs)
        ]

    def done(self) -> bool:
        """Every deciding process of this host has ended (or, when stopping, will never start), and no rank runs."""
        stopping = self.stopping_since is not None
        return all(
            name in self.ended or (stopping and name not in self.started) for name in self._deciding()
        ) and not any(self.specs[name].duty is Duty.RANK for name in self.running())

    def clean(self) -> bool:
        return (
            all(name in self.ended and self.ended[name].clean for name in self._deciding())
            and self.own_ranks_ended_well()
        )

    def _deciding(self) -> list[str]:
        flags = self.flags or frozenset()
        return [name for name, spec in self.specs.items() if spec.decides and spec.serves_if not in flags]

    def any_rank_started(self) -> bool:
        """Whether a rank came up anywhere; by name, since the user's options may place it elsewhere."""
        ranks = {spec.name for spec in self.plan.processes if spec.duty is Duty.RANK}
        return any(process in ranks for _, process in self.ready)

    def lost(self) -> set[str]:
        """Hosts that cannot be reached any more, or never could."""
        return {
            cause.host
            for _, cause in self.causes
            if not cause.process and (cause.code == ExitCode.HOST_LOST or cause.host not in self.heard)
        }

    def own_ranks_ended_well(self) -> bool:
        ranks = [name for name, spec in self.specs.items() if spec.duty is Duty.RANK and name in self.started]
        return all(name in self.ended and self.ended[name].clean for name in ranks)

    def ranks_are_over(self) -> bool:
        """While stopping: no rank runs here, nor on a host that can still tell."""
        lost = self.lost()
        there = [self.report_of(host) for host in self.others if host in self.heard and host not in lost]
        here = any(self.specs[name].duty is Duty.RANK for name in self.running())
        return not here and all((report.done and report.stopping) or report.gone for report in there)

    def ranks_ended_well(self) -> bool:
        return self.own_ranks_ended_well() and all(self.report_of(host).clean for host in self.others)

    def report_of(self, host: str) -> Report:
        return self.reports.get(host) or Report(host=host)

    def is_gone(self, host: str) -> bool:
        return self.report_of(host).gone

    def own_cause(self) -> Cause | None:
        own = [cause for _, cause in self.causes if cause.host == self.host]
        strong = [cause for cause in own if cause.strength is Strength.STRONG]
        return next(iter(strong or own), None)

    def own_report(self) -> Report:
        return Report(
            host=self.host,
            ready=frozenset(process for host, process in self.ready if host == self.host),
            cards=tuple((card, lines[self.host]) for card, lines in self.cards.items() if self.host in lines),
            done=self.done(),
            clean=self.clean(),
            stopping=self.stopping_since is not None,
            cause=self.own_cause(),
            gone=self.outcome is not None and not self.running(),
        )

    def news(self) -> News:
        known = {(host, process) for host, process in self._shared_needs if self.met(Need(host=host, process=process))}
        return News(
            ready=frozenset(known),
            cards=tuple((card, lines[self.host]) for card, lines in self.cards.items() if self.host in lines),
            stopping=self.stopping_since is not None,
            outcome=self.outcome,
        )

    def rank_from_elsewhere(self, name: str) -> ProcessSpec:
        """The user's own options made mpirun place a rank here that the plan has on another host."""
        rank = next(spec for spec in self.plan.processes if spec.duty is Duty.RANK)
        return replace(rank, host=self.host, name=name, task="placed by the user's options")

    def blame(self, now: float, process: str, **what: Any) -> None:
        self.causes.append((now, Cause(host=self.host, process=process, **what)))

    def blame_host(self, now: float, host: str, what: str, code: int) -> None:
        if not any(cause.host == host and not cause.process for _, cause in self.causes):
            self.causes.append((now, Cause(host=host, process="", what=what, code=code)))

    def status(self, now: float) -> dict[str, Any]:
        """For people and probes: this host, its processes and the hosts that it hears."""
        phase = str(self.outcome.kind) if self.outcome else ("stopping" if self.stopping_since else "running")
        if phase == "running" and not any(n in self.started for n, s in self.specs.items() if s.duty.is_users):
            phase = "starting"
        return {
            "host": self.host,
            "rank": self.plan.hosts.index(self.host),
            "role": "coordinator" if self.is_coordinator else "follower",
            "phase": phase,
            "outcome": self.outcome.to_json() if self.outcome else None,
            "processes": [self._process_status(name, spec, now) for name, spec in self.specs.items()],
            "peers": {
                host: {
                    "heard_seconds_ago": round(now - self.heard[host], 3) if host in self.heard else None,
                    "done": self.report_of(host).done,
                    "gone": self.report_of(host).gone,
                }
                for host in (self.others if self.is_coordinator else [self.coordinator])
            },
        }

    def _process_status(self, name: str, spec: ProcessSpec, now: float) -> dict[str, Any]:
        state = "ended" if name in self.ended else "running" if name in self.started else "waiting"
        return {
            "name": name,
            "role": str(spec.role),
            "task": spec.task,
            "state": state,
            "ready": (self.host, name) in self.ready,
            "seconds": round(self.ended_at.get(name, now) - self.started[name], 3) if name in self.started else None,
            "exit": str(self.ended[name]) if name in self.ended else None,
        }
