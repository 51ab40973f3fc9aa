"""Hold what one host knows of the job, and answer questions about it. Only modules of the policy change it."""

from typing import Any

from entrypoint.base.errors import ExitCode
from entrypoint.base.python310 import StrEnum
from entrypoint.launcher.outcome.outcome import Cause, Confidence, Kind, Outcome
from entrypoint.launcher.plan.plan import ALL_HOSTS, PREFLIGHT, Duty, Need, Plan, ProcessSpec, Ready, Restart
from entrypoint.launcher.policy.artifacts import Artifacts
from entrypoint.launcher.policy.events import Report
from entrypoint.launcher.policy.known import Attempt, Noted, OtherHosts, OwnProcesses, patience_with

ASK_AGAIN_SECONDS = 0.05  # seconds between two polls; a thousand ranks that fail together are no thousand polls


class Phase(StrEnum):
    """Name how far the job is. If two phases apply at once, the later one in this list counts.

    STARTING --the user's first program starts here--> RUNNING
     ^    |                                            |    |
     |    +---------- the coordinator settles ---------+    |
     |    |           on another attempt                    |
     |    v                                                 |
    RESTARTING: processes of the previous attempt end       |
          |                                                 |
          +--SIGTERM to any host--> STOPPING <--SIGTERM-----+
          |                            |                    |
          +-----------------> ENDING <-+---------- verdict -+
                                |
              nothing runs here, and the others had time for their last reports
                                v
                              ENDED
    """

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    ENDING = "ending"
    ENDED = "ended"

    @property
    def is_active(self) -> bool:
        """Return whether programs start or run in this phase, so that a program's failure is a fault of the job."""
        return self in (Phase.STARTING, Phase.RUNNING)


class Facts:
    """Hold the facts of `host`. Times are seconds of our own monotonic clock."""

    def __init__(self, plan: Plan, host: str, now: float) -> None:
        self.plan, self.host, self.began = plan, host, now
        self.coordinator = plan.hosts[0]
        self.is_coordinator = host == self.coordinator
        self.others = [name for name in plan.hosts if name != host]
        self.own = OwnProcesses(plan.on(host))
        self.hosts = OtherHosts(all_there=not self.others)
        self.attempt = Attempt()
        self.history: list[Noted] = []  # causes of earlier attempts
        self.fingerprints: dict[str, str] = {}  # what must be the same on all hosts
        self.flags: frozenset[str] | None = None  # what the prepare step found; None before it has ended
        self.unused_gpus = ""  # the GPUs that TensorFlow cannot use, and why
        self.other_mode = ""  # where the code makes the strategy of another mode than the job's
        self.public_keys: dict[str, dict[str, str]] = {}  # name -> host -> public key
        self.offset: float | None = None  # the coordinator's clock minus ours
        self.offset_error = 0.0  # seconds by which it may be wrong
        self._shared: tuple[float, float] | None = None  # the offset by which times are reported, and its error
        self.stopping_since: float | None = None
        self.stop_asked_at: float | None = None  # when, at the latest, the first host that was stopped got SIGTERM
        self.outcome: Outcome | None = None
        self.outcome_at = now
        self.left = False  # this host has sent its last report
        self.inventoried = False  # what this host leaves is known, or nobody waits for it any more
        self.artifacts: Artifacts | None = None
        self._unready: dict[str, str] = {}  # process -> a host where it was not ready at the last check
        self._awaited: str | None = None  # a host that had not answered the last poll at the last check
        self.duties = {(spec.host, spec.name): spec.duty for spec in plan.processes}
        self.ranks = [spec for spec in plan.processes if spec.duty is Duty.RANK]
        self._to_come = self.ranks  # ranks that were running nowhere at the last check
        scripts = {spec.name for spec in self.own.specs.values() if spec.duty is Duty.SCRIPT}
        # Own scripts whose start nobody waits for.
        self.unasked = scripts.difference(need.process for spec in plan.processes for need in spec.needs)
        self.shared_needs = {
            (need.host, need.process)
            for spec in (plan.processes if self.is_coordinator else ())  # the coordinator reports them to the others
            for need in spec.needs
            if spec.host != self.coordinator and need.host != spec.host
        }

    def note_public_key(self, key_name: str, host: str, key: str) -> bool:
        """Note a host's key. Return whether it is new."""
        keys = self.public_keys.setdefault(key_name, {})
        is_new, keys[host] = keys.get(host) != key, key
        return is_new

    def note_cause(self, cause: Cause, now: float, at: float | None = None, error: float = 0.0) -> None:
        """Note a cause. On the coordinator, poll all hosts for a better one."""
        happened, attempt = now if at is None else min(at, now), self.attempt
        patience, number = patience_with(cause, self.duties.get((cause.host, cause.process))), attempt.number
        attempt.causes.append(
            Noted(cause=cause, noted_at=now, at=happened, attempt=number, error=error, patience=patience)
        )
        if self.is_coordinator and self.outcome is None and not attempt.polled_within(ASK_AGAIN_SECONDS, now):
            attempt.note_poll(attempt.poll + 1, now)

    def blame(self, now: float, process: str, **what: Any) -> None:
        self.note_cause(Cause(host=self.host, process=process, **what), now)

    def blame_host(self, now: float, host: str, what: str, code: int, error: str = "", details: str = "") -> None:
        if not any(noted.cause.host == host and not noted.cause.process for noted in self.attempt.causes):
            self.note_cause(Cause(host=host, process="", what=what, error=error, details=details, code=code), now)

    def note_stop(self, now: float, at: float | None = None) -> bool:
        """Note that the job must stop, or that the stop began earlier than noted. Return whether the stop is new."""
        if self.outcome is not None:
            return False
        is_news = self.stopping_since is None
        self.stopping_since = now if self.stopping_since is None else self.stopping_since
        asked_at = now if at is None else min(at, now)
        self.stop_asked_at = asked_at if self.stop_asked_at is None else min(asked_at, self.stop_asked_at)
        return is_news

    def begin_attempt(self, number: int) -> None:
        """Begin a new attempt. Processes that still run belong to the previous attempt."""
        self.history += self.attempt.causes
        stays = {(spec.host, spec.name) for spec in self.plan.processes if spec.restart is Restart.KEEP}
        stays |= {(ALL_HOSTS, name) for _, name in stays}
        ready = {each for each in self.attempt.ready if each in stays or each[1] == PREFLIGHT}
        self.attempt = Attempt(number=number, clearing=True, go=False, ready=ready, poll=self.attempt.poll)
        self._to_come = self.ranks
        self._shared = None  # clocks may have drifted since

    @property
    def phase(self) -> Phase:
        if self.outcome is not None:
            return Phase.ENDED if self.left else Phase.ENDING
        if self.stopping_since is not None:
            return Phase.STOPPING
        if self.attempt.clearing:
            return Phase.RESTARTING
        runs = any(spec.duty.is_users and name in self.own.started for name, spec in self.own.specs.items())
        return Phase.RUNNING if runs else Phase.STARTING

    def met(self, need: Need) -> bool:
        if need.only_if is not None and self.flags is not None and need.only_if not in self.flags:
            return True
        if (need.host, need.process) in self.attempt.ready:
            return True
        return need.host == ALL_HOSTS and self.is_coordinator and self._ready_everywhere(need.process)

    def _ready_everywhere(self, process: str) -> bool:
        """Return whether a process is ready on all hosts.

        Each event calls this: it only checks a host that was not ready.
        """
        ready, last = self.attempt.ready, self._unready.get(process)
        if last is not None and (last, process) not in ready:
            return False
        unready = next((host for host in self.plan.hosts if (host, process) not in ready), None)
        if unready is None:
            self._unready.pop(process, None)
            self.attempt.note_ready((ALL_HOSTS, process))
            return True
        self._unready[process] = unready
        return False

    def awaited(self) -> list[ProcessSpec]:
        """Return this host's processes whose ports must listen before other processes start."""
        return [
            self.own.specs[name]
            for name in self.own.running()
            if self.own.specs[name].ready is Ready.LISTENING
            and (self.host, name) not in self.attempt.ready
            and any(need.process == name and not self.met(need) for s in self.plan.processes for need in s.needs)
        ]

    def done(self) -> bool:
        """Return whether all deciding processes here have ended (or will never start, in a stop), and no rank runs."""
        own, stopping = self.own, self.stopping_since is not None
        ended = all(own.is_over(name) or (stopping and name not in own.started) for name in own.deciding)
        return ended and not self.attempt.clearing and not own.running(Duty.RANK)

    def lingering(self) -> bool:
        """Return whether a process of this host that does not decide may still have work."""
        own, stopping = self.own, self.stopping_since is not None
        left = [name for name in own.having(Duty.SIDECAR) if not own.is_over(name)]
        return any(name in own.started or not stopping for name in left)

    def clean(self) -> bool:
        """Return whether all ended processes here ended well, or were mpirun, killed after its work was done."""
        own = self.own
        killed = [name for name in own.having(Duty.LAUNCHER) if name in own.forced and self.all_ranks_ended_well()]
        return own.ended_well(*(name for name in own.deciding if name not in killed)) and own.ranks_ended_well()

    def rests(self) -> float | None:
        """Return the seconds for which all remaining processes must only serve.

        Return 0 if all are done, and None if one of them may still work.
        """
        left, resting = [name for name in self.own.deciding if name not in self.own.ended], self.attempt.resting
        if self.done() or not left:
            return 0.0 if self.done() else None
        return max(resting[name] for name in left) if all(name in resting for name in left) else None

    def lost(self) -> set[str]:
        """Return hosts that cannot be reached any more, or were never reached."""
        causes = [noted.cause for noted in self.attempt.causes]
        whole = [cause for cause in causes if not cause.process and cause.host != self.host]
        known = self.hosts.last_contact
        return {cause.host for cause in whole if cause.code == ExitCode.HOST_LOST or cause.host not in known}

    def ranks_are_over(self) -> bool:
        """Return whether, during a stop, no rank runs here or on a host that still reports."""
        lost = self.lost()
        there = [self.report_of(host) for host in self.others if host in self.hosts.last_contact and host not in lost]
        over = all((report.done and report.stopping) or report.gone for report in there)
        return over and not self.own.running(Duty.RANK)

    def all_ranks_ended_well(self) -> bool:
        """Return whether every rank of the plan has started and ended with 0. Only mpirun's host can know."""
        if self.own.running(Duty.RANK) or not self.own.ranks_ended_well():
            return False
        reports = map(self.report_of, self.others)
        return all(report.done and report.clean for report in reports) and not self.ranks_to_come()

    def ranks_to_come(self) -> list[ProcessSpec]:
        """Return the ranks that run nowhere yet; by name, since the user's options may place a rank on another host."""
        if self._to_come:
            there = {process for _, process in self.attempt.ready}
            self._to_come = [spec for spec in self._to_come if spec.name not in there]
        return self._to_come

    def any_rank_came(self) -> bool:
        return len(self.ranks_to_come()) < len(self.ranks)

    def report_of(self, host: str) -> Report:
        """Return the last report of a host in this attempt, or an empty one."""
        report, attempt = self.hosts.reports.get(host), self.attempt.number
        return report if report and report.attempt == attempt else Report(host=host, attempt=attempt)

    def all_acked(self) -> bool:
        """Return whether all reachable hosts have answered the last poll.

        It only checks a host that had not answered.
        """
        lost, hosts, poll = self.lost(), self.hosts, self.attempt.poll

        def is_awaited(host: str) -> bool:
            return host in hosts.last_contact and host not in lost and not hosts.has_answered(host, poll)

        if self._awaited is None or not is_awaited(self._awaited):
            self._awaited = next(filter(is_awaited, reversed(self.others)), None)  # hosts are asked in this order
        return self._awaited is None

    def leaving(self) -> bool:
        """Return whether this host has nothing more to do or to report."""
        return self.is_over() and (self.inventoried or not self.succeeded())

    def is_over(self) -> bool:
        """Return whether the job has its outcome, and no process of it runs here."""
        return self.outcome is not None and not self.own.running()

    def succeeded(self) -> bool:
        return self.outcome is not None and self.outcome.kind is Kind.SUCCEEDED

    def own_failure(self, *levels: Confidence) -> Noted | None:
        """Return this host's failure that is the least likely to be a symptom.

        `levels`: if given, only failures of these levels of confidence count.
        """
        own = [noted for noted in self.attempt.causes if noted.cause.host == self.host]
        own = [noted for noted in own if not levels or noted.cause.confidence in levels]
        return min(own, key=lambda noted: noted.patience, default=None)

    def is_dying(self) -> bool:
        """Return whether a process of this host has printed why it ends, and has neither ended nor been blamed."""
        return any(name in self.attempt.dying and not self.is_blamed(name) for name in self.own.running())

    def is_blamed(self, process: str) -> bool:
        causes = (noted.cause for noted in self.attempt.causes)
        return any((cause.host, cause.process) == (self.host, process) for cause in causes)

    def times_restarted(self, name: str) -> int:
        return self.attempt.number + self.own.restarts.get(name, 0)

    def by_the_coordinators_clock(self, at: float | None) -> float | None:
        """Convert one of our times to the coordinator's clock. An attempt keeps one offset, so that the order stays."""
        if at is None or self.offset is None:
            return None
        self._shared = self._shared or (self.offset, self.offset_error)
        return round(at + self._shared[0], 3)

    def clock_error(self) -> float:
        """Return by how many seconds times on the coordinator's clock may be wrong; 0 if none was converted yet."""
        return round(self._shared[1] + 0.001, 3) if self._shared else 0.0  # they are rounded
