"""What one host knows: of its own processes, and of the other hosts. And the questions asked about it.

What was noted is not taken back, but for what a new attempt forgets. The policy notes facts and decides by them.
"""

from dataclasses import dataclass, replace
from typing import Any

from entrypoint.artifacts import Artifacts
from entrypoint.errors import ExitCode
from entrypoint.events import News, Reach, Report
from entrypoint.outcome import Cause, Exit, Kind, Outcome, Strength
from entrypoint.plan import ALL_HOSTS, PREFLIGHT, Duty, Need, Plan, ProcessSpec, Ready, Restart

ASK_AGAIN = 0.05  # seconds; a thousand ranks that fail together are no thousand questions


@dataclass(frozen=True, kw_only=True)
class Noted:
    """A cause that was heard of. Times are of our clock; `at` is when it happened, as well as that is known."""

    cause: Cause
    heard: float
    at: float
    attempt: int = 0


class Facts:
    """The facts of `host`. Times are seconds of one monotonic clock, ours."""

    def __init__(self, plan: Plan, host: str, now: float) -> None:
        self.plan, self.host, self.began = plan, host, now
        self.specs = {spec.name: spec for spec in plan.on(host)}
        self.coordinator = plan.hosts[0]
        self.is_coordinator = host == self.coordinator
        self.others = [name for name in plan.hosts if name != host]
        self._ranks = {spec.name for spec in plan.processes if spec.duty is Duty.RANK}
        self._unready: dict[str, str] = {}  # process -> a host where it was not ready when we last looked
        self._shared_needs = {
            (need.host, need.process)
            for spec in (plan.processes if self.is_coordinator else ())  # who tells the others of them
            for need in spec.needs
            if spec.host != self.coordinator and need.host != spec.host
        }
        # Of this host.
        self.attempt = 0
        self.clearing = False  # what is left of the last attempt is being ended
        self.go = True  # the processes of this attempt may start
        self.restarts: dict[str, int] = {}  # how often a process was started again by itself
        self.not_before: dict[str, float] = {}  # when it may
        self.reach: dict[str, Reach] = {}  # the other hosts that were looked for
        self.things: dict[str, str] = {}  # what must be the same on all hosts
        self.unused_gpus = ""  # and why TensorFlow cannot use them
        self.offset: float | None = None  # the coordinator's clock minus ours
        self.started: dict[str, float] = {}
        self.ended: dict[str, Exit] = {}
        self.ended_at: dict[str, float] = {}
        self.asked: dict[str, float] = {}  # SIGTERM was sent
        self.forced: dict[str, float] = {}  # SIGKILL was sent
        self.resting: dict[str, float] = {}  # scripts that only serve -> seconds in which that must not change
        self.stuck: dict[str, tuple[str, ...]] = {}  # process -> what is left of it, though SIGKILL was long ago
        self.flags: frozenset[str] | None = None  # what the prepare step found; None before it has ended
        # Of the job.
        self.ready: set[tuple[str, str]] = set()  # (host or ALL_HOSTS, process)
        self.cards: dict[str, dict[str, str]] = {}  # card -> host -> public key
        self.heard: dict[str, float] = {}
        self.last_news: News | None = None  # a follower's
        self.first_heard: dict[str, float] = {}
        self.unreached: dict[str, float] = {}  # when a host last took no connection of ours
        # When the connection ended that a host's launcher kept to us, of hosts that were not heard since.
        self.line_ended: dict[str, float] = {}
        self.woke, self.slept = float("-inf"), 0.0  # when we last stood still ourselves, and went on; for how long
        self.reports: dict[str, Report] = {}  # the coordinator's: the last of each follower
        self.causes: list[Noted] = []  # of this attempt, in the order in which they were heard
        self.history: list[Noted] = []  # of earlier attempts
        self.rejected: dict[str, tuple[float, float, str]] = {}  # hosts that were refused: since when, when last, why
        self.assembled = not self.others
        self.question = 0  # the last one asked, or heard
        self.question_at: float | None = None  # when
        self._awaited: str | None = None  # a host that had not answered it when we last looked
        self.dying: dict[str, tuple[float, str, str]] = {}  # process -> since when it is about to end, why
        self.decided_since: float | None = None  # all deciding processes of all hosts have ended well
        self.stopping_since: float | None = None
        self.told_to_stop_at: float | None = None  # when SIGTERM came to the first host that heard it, as far as known
        self._told_to_stop_at: float | None = None  # the same by the coordinator's clock
        self.outcome: Outcome | None = None
        self.outcome_at = now
        self.inventoried = False  # it is known what this host leaves, or nobody waits for that any more
        self.artifacts: Artifacts | None = None

    def note_heard(self, host: str, now: float) -> None:
        self.heard[host] = now
        self.line_ended.pop(host, None)

    def met(self, need: Need) -> bool:
        if need.only_if is not None and self.flags is not None and need.only_if not in self.flags:
            return True
        if (need.host, need.process) in self.ready:
            return True
        return need.host == ALL_HOSTS and self.is_coordinator and self._ready_everywhere(need.process)

    def _ready_everywhere(self, process: str) -> bool:
        """Asked at every event, so all hosts are looked through only when the last that was not ready is."""
        last = self._unready.get(process)
        if last is not None and (last, process) not in self.ready:
            return False
        unready = next((host for host in self.plan.hosts if (host, process) not in self.ready), None)
        if unready is None:
            self._unready.pop(process, None)
            self.ready.add((ALL_HOSTS, process))
            return True
        self._unready[process] = unready
        return False

    def running(self) -> list[str]:
        """Names of the processes of this host that were started and have not ended, and may still."""
        return [
            name for name in self.specs if name in self.started and name not in self.ended and name not in self.stuck
        ]

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
        over = {*self.ended, *self.stuck}
        ended = all(name in over or (stopping and name not in self.started) for name in self._deciding())
        return ended and not self.clearing and not any(self.specs[n].duty is Duty.RANK for n in self.running())

    def lingering(self) -> bool:
        """Whether a process of this host that does not decide may still have work to do."""
        return any(
            spec.duty is Duty.SIDECAR
            and name not in {*self.ended, *self.stuck}
            and (name in self.started or not self.stopping_since)
            for name, spec in self.specs.items()
        )

    def clean(self) -> bool:
        return all(self._ended_well(name) for name in self._deciding()) and self.own_ranks_ended_well()

    def _ended_well(self, name: str) -> bool:
        """mpirun, too, if it had to be killed when all that it had started was over."""
        if name in self.forced and self.specs[name].duty is Duty.LAUNCHER and self.all_ranks_ended_well():
            return True
        return name in self.ended and self.ended[name].clean

    def _deciding(self) -> list[str]:
        return [name for name, spec in self.specs.items() if spec.decides]

    def rests(self) -> float | None:
        """Whether all that has not ended here does nothing but serve: the seconds in which that must not change.

        0 if all has ended; None if something may still work.
        """
        left = [name for name in self._deciding() if name not in self.ended]
        if self.done() or not left:
            return 0.0 if self.done() else None
        return max(self.resting[name] for name in left) if all(name in self.resting for name in left) else None

    def any_rank_started(self) -> bool:
        """Whether a rank came up anywhere; by name, since the user's options may place it elsewhere."""
        return any(process in self._ranks for _, process in self.ready)

    def lost(self) -> set[str]:
        """Hosts that cannot be reached any more, or never could."""
        whole = [noted.cause for noted in self.causes if not noted.cause.process and noted.cause.host != self.host]
        return {cause.host for cause in whole if cause.code == ExitCode.HOST_LOST or cause.host not in self.heard}

    def own_ranks_ended_well(self) -> bool:
        ranks = [name for name, spec in self.specs.items() if spec.duty is Duty.RANK and name in self.started]
        return all(name in self.ended and self.ended[name].clean for name in ranks)

    def ranks_are_over(self) -> bool:
        """While stopping: no rank runs here, nor on a host that can still tell."""
        lost = self.lost()
        there = [self.report_of(host) for host in self.others if host in self.heard and host not in lost]
        here = any(self.specs[name].duty is Duty.RANK for name in self.running())
        return not here and all((report.done and report.stopping) or report.gone for report in there)

    def all_ranks_ended_well(self) -> bool:
        """Whether every rank of the plan came up somewhere and all have ended with 0. Only mpirun's host can tell."""
        if any(self.specs[name].duty is Duty.RANK for name in self.running()) or not self.own_ranks_ended_well():
            return False
        reports = map(self.report_of, self.others)
        return all(report.done and report.clean for report in reports) and not self.ranks_to_come()

    def ranks_to_come(self) -> list[ProcessSpec]:
        """Ranks that came up nowhere; by name, since the user's options may place one elsewhere."""
        there = {process for _, process in self.ready}
        return [spec for spec in self.plan.processes if spec.duty is Duty.RANK and spec.name not in there]

    def report_of(self, host: str) -> Report:
        """The last that a host said of this attempt."""
        report = self.reports.get(host)
        return report if report and report.attempt == self.attempt else Report(host=host, attempt=self.attempt)

    def answered(self, host: str) -> bool:
        """Whether a host has answered the last question, or said its last words."""
        report = self.reports.get(host)
        return report is not None and (report.answers >= self.question or report.gone)

    def all_answered(self) -> bool:
        """Whether everybody who is there has. All are looked through only when the last that had not has."""
        lost = self.lost()

        def is_awaited(host: str) -> bool:
            return host in self.heard and host not in lost and not self.answered(host)

        if self._awaited is None or not is_awaited(self._awaited):
            self._awaited = next((host for host in self.others if is_awaited(host)), None)
        return self._awaited is None

    def leaving(self) -> bool:
        """Whether this host has nothing more to do or to say."""
        return self.is_over() and (self.inventoried or not self.succeeded())

    def is_over(self) -> bool:
        """Whether the job has its outcome, and no process of it runs here."""
        return self.outcome is not None and not self.running()

    def succeeded(self) -> bool:
        return self.outcome is not None and self.outcome.kind is Kind.SUCCEEDED

    def is_gone(self, host: str) -> bool:
        report = self.reports.get(host)
        return report is not None and report.gone

    def own_cause(self) -> Cause | None:
        noted = self._own_noted()
        return noted.cause if noted else None

    def _own_noted(self) -> Noted | None:
        own = [noted for noted in self.causes if noted.cause.host == self.host]
        strong = [noted for noted in own if noted.cause.strength is Strength.STRONG]
        return next(iter(strong or own), None)

    def own_report(self) -> Report:
        noted = self._own_noted()
        return Report(
            host=self.host,
            # Until this host is clear of the last attempt, it has nothing to say of the next.
            attempt=self.attempt - self.clearing,
            ready=frozenset(process for host, process in self.ready if host == self.host),
            cards=tuple((card, keys[self.host]) for card, keys in self.cards.items() if self.host in keys),
            things=tuple(sorted(self.things.items())),
            unused_gpus=self.unused_gpus,
            unreached=tuple(reach for reach in self.reach.values() if not reach.reached) if self.assembled else (),
            done=self.done(),
            clean=self.clean(),
            lingering=self.lingering(),
            rests=self.rests(),
            stopping=self.stopping_since is not None,
            stopping_at=self._when_told_to_stop(),
            cause=noted.cause if noted else None,
            cause_at=self._by_the_coordinators_clock(noted.at if noted else None),
            exits=self.exits(),
            answers=self.question,
            dying=self.is_dying(),
            artifacts=self.artifacts,
            gone=self.leaving(),
        )

    def unused_gpus_of(self, host: str) -> str:
        return self.unused_gpus if host == self.host else self.report_of(host).unused_gpus

    def _when_told_to_stop(self) -> float | None:
        """Does not change with every measurement of the clocks: it is said for as long as scripts save."""
        if self._told_to_stop_at is None:
            self._told_to_stop_at = self._by_the_coordinators_clock(self.told_to_stop_at)
        return self._told_to_stop_at

    def _by_the_coordinators_clock(self, at: float | None) -> float | None:
        return None if at is None or self.offset is None else round(at + self.offset, 3)

    def exits(self) -> tuple[tuple[str, str, float], ...]:
        """(process, how it ended, seconds since our start) of those of this host that have ended, or never will."""
        ended = [
            (name, str(exit), round(self.ended_at[name] - self.began, 3))
            for name, exit in self.ended.items()
            if self.specs[name].duty is not Duty.STEP or not exit.clean
        ]
        still = [
            (name, f"not, though killed then: {'; '.join(left)}", round(self.forced[name] - self.began, 3))
            for name, left in self.stuck.items()
            if name in self.forced and name not in self.ended
        ]
        return (*ended, *still)

    def news(self) -> News:
        known = {(host, process) for host, process in self._shared_needs if self.met(Need(host=host, process=process))}
        return News(
            attempt=self.attempt,
            go=self.go,
            ready=frozenset() if self.causes else frozenset(known),  # what has gone wrong is nothing to start on
            cards=tuple((card, keys[self.host]) for card, keys in self.cards.items() if self.host in keys),
            assembled=self.assembled,
            question=self.question,
            stopping=self.stopping_since is not None,
            outcome=self.outcome,
        )

    def rank_from_elsewhere(self, name: str) -> ProcessSpec:
        """The user's own options made mpirun place a rank here that the plan has on another host."""
        rank = next(spec for spec in self.plan.processes if spec.duty is Duty.RANK)
        return replace(rank, host=self.host, name=name, task="placed by the user's options")

    def note_cause(self, cause: Cause, heard: float, at: float | None = None) -> None:
        """Note a cause, and ask everybody who is there whether they know a better one."""
        happened = heard if at is None else min(at, heard)
        self.causes.append(Noted(cause=cause, heard=heard, at=happened, attempt=self.attempt))
        if self.is_coordinator and self.outcome is None and not self.asked_within(ASK_AGAIN, heard):
            self.note_question(self.question + 1, heard)

    def note_question(self, number: int, now: float) -> None:
        if number > self.question:
            self.question, self.question_at = number, now

    def asked_within(self, seconds: float, now: float) -> bool:
        return self.question_at is not None and now < self.question_at + seconds

    def is_dying(self) -> bool:
        """Whether a process of this host has said why it ends, and has not ended."""
        return any(name in self.dying for name in self.running())

    def note_stop(self, now: float, at: float | None = None) -> None:
        """The job is to stop, or it is known better now since when."""
        self.stopping_since = now if self.stopping_since is None else self.stopping_since
        told = now if at is None else min(at, now)
        self.told_to_stop_at = told if self.told_to_stop_at is None else min(told, self.told_to_stop_at)

    def blame(self, now: float, process: str, **what: Any) -> None:
        self.note_cause(Cause(host=self.host, process=process, **what), now)

    def blame_host(self, now: float, host: str, what: str, code: int, error: str = "", details: str = "") -> None:
        if not any(noted.cause.host == host and not noted.cause.process for noted in self.causes):
            self.note_cause(Cause(host=host, process="", what=what, error=error, details=details, code=code), now)

    # --- attempts ---

    def group(self) -> list[str]:
        """Names of the processes of this host that end and start with an attempt."""
        return [name for name, spec in self.specs.items() if spec.restart is not Restart.KEEP]

    def begin_attempt(self, number: int) -> None:
        """What comes from here on is of another attempt. What runs is still of the last."""
        self.history += self.causes
        self.causes = []
        self.attempt, self.clearing, self.go, self.decided_since = number, True, False, None
        self.question_at, self.dying, self.resting = None, {}, {}
        stays = {(spec.host, spec.name) for spec in self.plan.processes if spec.restart is Restart.KEEP}
        self.ready &= stays | {(ALL_HOSTS, name) for _, name in stays} | self._met_before_any_attempt()

    def _met_before_any_attempt(self) -> set[tuple[str, str]]:
        return {(host, PREFLIGHT) for host in (*self.plan.hosts, ALL_HOSTS)}

    def is_clear(self, host: str) -> bool:
        """Whether a host has said that nothing of earlier attempts runs there."""
        return host in self.reports and self.reports[host].attempt == self.attempt

    def forget_group(self) -> None:
        """Nothing of the last attempt runs here any more: its processes count as never started."""
        for name in self.group():
            for facts in (self.started, self.ended, self.ended_at, self.asked, self.forced, self.not_before):
                facts.pop(name, None)
        self.clearing = False

    def forget_end(self, name: str, not_before: float) -> None:
        """A process is to be started again by itself."""
        self.restarts[name] = self.restarts.get(name, 0) + 1
        self.not_before[name] = not_before
        for facts in (self.started, self.ended, self.ended_at, self.asked):
            facts.pop(name, None)

    def times_restarted(self, name: str) -> int:
        return self.attempt + self.restarts.get(name, 0)

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
            "attempt": self.attempt,
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
