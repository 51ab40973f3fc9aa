"""Decide what follows if a process of this host ends, or if it does not end. Pure."""

import re
from collections.abc import Iterator, Sequence
from signal import SIGKILL, SIGTERM

from entrypoint.base.errors import ExitCode
from entrypoint.base.wording import listed
from entrypoint.launcher.job.choices import WorkerEnd
from entrypoint.launcher.job.open_mpi import DAEMONS, LOST_PEER, PRRTE
from entrypoint.launcher.job.settings import Settings
from entrypoint.launcher.outcome.outcome import Confidence, Exit
from entrypoint.launcher.plan.plan import USERS, Duty, Flag, ProcessSpec, Ready, Restart, Role
from entrypoint.launcher.plan.render import command_words
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.events import Action
from entrypoint.launcher.policy.facts import Facts, Phase
from entrypoint.launcher.policy.known import PEER_SECONDS
from entrypoint.launcher.policy.starting import Starting
from entrypoint.launcher.policy.verdict import lingering_hosts

LOOK_AGAIN_SECONDS = 0.1  # seconds between two checks of what processes print while something goes wrong
LOOKED_AT = 4000.0  # checks a second on all hosts together, at most: the coordinator has to read the results
UNENDING_SECONDS = 2.0  # seconds that a process has from its last output to its end
NO_SERVER_SECONDS = 60.0  # seconds within which a chief's script listens, if it ever does
LOG_WAITING_SECONDS = 30.0  # seconds after the first script's end, if others still work
SHOWN = 5  # processes that are named
LOOK_WAITING_SECONDS = 1.0  # seconds between two looks at that: the reports of all hosts are read
_TASK = re.compile(r"(?s)/job:(\w+)/(?:replica:\d+/)?task:(\d+)\b(?!.*/job:\1/(?:replica:\d+/)?task:\2\b)")


class Ends:
    """Decide what follows from the exits of processes. The only state is the next time to check and what was logged."""

    def __init__(self, facts: Facts, settings: Settings, starting: Starting, now: float) -> None:
        self.facts, self.settings, self.starting = facts, settings, starting
        self.look_at = now
        self._may_serve = any(spec.ends is WorkerEnd.AUTO for spec in facts.plan.processes)
        self._deciding = [spec for spec in facts.plan.processes if spec.duty is Duty.SCRIPT and spec.decides]
        self._sidecars = [spec for spec in facts.plan.processes if spec.duty is Duty.SIDECAR]
        self._waits_since, self._wait_at, self._has_logged = now, now, False
        self._look_again = max(LOOK_AGAIN_SECONDS, len(facts.plan.hosts) / LOOKED_AT)

    def note(self, event: events.Ended, now: float) -> Iterator[Action]:
        facts = self.facts
        name, exit = event.name, event.exit
        spec = facts.own.specs.get(name)
        if spec is None or name in facts.own.ended:
            return
        if spec.duty is Duty.RANK and name not in facts.own.started:
            return  # it came too late for its attempt, see RankStarted
        facts.own.note_ended(name, exit, now)
        if exit.clean and (spec.ready is Ready.ENDED or spec.decides):
            facts.attempt.note_ready((facts.host, name))  # a script that ended well holds up nobody
        ours = name in facts.own.asked or name in facts.own.forced
        if spec.duty is not Duty.STEP:
            yield events.Say(message=f"{name} {'stopped' if ours else 'ended'}: {exit}")
        wrong = spec.duty is Duty.SERVER or not exit.clean
        if not wrong or ours or not facts.phase.is_active:
            return
        transient = spec.restart is not Restart.KEEP and self.starting.looks_transient(exit) and not event.memory
        if transient and (again := self.starting.start_alone(spec, now)):
            yield again
            return
        from entrypoint.launcher.outcome.explain import dying, explain, explain_mpirun  # here: most jobs never need it

        if spec.duty is Duty.LAUNCHER:  # mpirun fails because a rank did, or later while it cleans up
            error, details, confidence = explain_mpirun(event.output)
            confidence = Confidence.HIGH if exit.signal == SIGKILL else confidence
        else:
            arguments = command_words(spec.program.arguments) if spec.program else []
            error, details, confidence = explain(exit, event.output, event.wrote, arguments)
        error = self._with_hosts(error)
        if spec.duty is Duty.STEP and exit.signal is None:  # no peer can be why: no other program has started yet
            confidence = Confidence.HIGH
        if spec.duty is Duty.RANK and self._may_follow(exit, error):
            confidence = Confidence.LOW
        what = f"ended too early, {exit}" if spec.duty is Duty.SERVER else str(exit)
        # What a rank raised that mpirun then terminated: one that failed of it was quicker to end.
        raised = dying(event.output) if spec.duty is Duty.RANK and exit.signal == SIGTERM else None
        if raised:
            (error, details, confidence), what = raised, "raised an exception and was terminated"
        if event.memory:
            of_child = f": {error}" if error and exit.killed_by != SIGKILL else ""
            what, error, confidence = f"{what}, out of memory", f"{event.memory}{of_child}", Confidence.HIGH
        facts.blame(
            now, name, what=what, error=error, details=details, code=1 if raised else exit.code or 1,
            confidence=confidence, restartable=transient, exit=exit,
        )  # fmt: skip

    def _may_follow(self, exit: Exit, error: str) -> bool:
        """Return whether a rank may have ended because of another rank, although its output does not show that."""
        if self.facts.plan.daemon == DAEMONS[PRRTE]:
            return exit.code == LOST_PEER
        return exit.signal == SIGKILL and not error  # mpirun kills the other ranks when one fails

    def _with_hosts(self, error: str) -> str:
        """Return TensorFlow's report of missed heartbeats with the host of each task, at its last mention."""

        def located(task: re.Match[str]) -> str:
            names = (f"{task[1].removeprefix('jax_')}/{task[2]}", task[1])
            host = next((spec.host for spec in self.facts.plan.processes if spec.name in names), "")
            return f"{task[0]} ({host})" if host else task[0]

        return _TASK.sub(located, error) if "heartbeat" in error else error

    def note_orphan(self, now: float) -> None:
        """Note that the daemon that starts ranks for mpirun has ended. Blame it if the ranks cannot continue.

        Nothing is blamed on mpirun's host, where the end of mpirun itself shows more.
        """
        facts = self.facts
        expected = not facts.phase.is_active or facts.own_failure()
        if not expected and not facts.own.having(Duty.LAUNCHER):
            error = "Open MPI's daemon on this host has ended, and its ranks cannot continue"
            what, weak = "ended too early", Confidence.LOW
            facts.blame(now, facts.plan.daemon, what=what, error=error, code=1, confidence=weak, restartable=True)

    def watch(self, now: float) -> Iterator[Action]:
        """Blame processes that do not end, or do not start to work, in time."""
        self._watch_mpirun(now)
        self._watch_the_chief(now)
        yield from self._watch_the_dying(now)
        yield from self._log_waiting(now)

    def _watch_the_dying(self, now: float) -> Iterator[Action]:
        """After a failure, check which processes are about to end. Blame one that announced its end and stays."""
        facts = self.facts
        if not facts.attempt.polled_within(PEER_SECONDS, now) or not facts.phase.is_active:
            return
        users = [name for name in facts.own.running(*USERS) if name not in facts.own.asked]
        if users and now >= self.look_at:
            # The important output comes at once, usually; and a thousand hosts may wait for one that does not answer.
            self.look_at = now + max(self._look_again, now - (facts.attempt.poll_at or now))
            yield events.Look(names=tuple(users))
        for name, (since, error, details) in facts.attempt.dying.items():
            late = now >= since + UNENDING_SECONDS and not facts.own_failure(Confidence.HIGH)
            if name in users and late and not facts.is_blamed(name):
                what = "raised an exception and did not end"  # but it may have recovered; so a better cause wins
                facts.blame(now, name, what=what, error=error, details=details, code=1, confidence=Confidence.LOW)

    def _log_waiting(self, now: float) -> Iterator[Action]:
        """Log once which processes the job still waits for: scripts that run on, or processes that decide nothing.

        They may serve for ever.
        """
        facts = self.facts
        if self._has_logged or not facts.is_coordinator or now < self._wait_at:
            return
        self._wait_at = now + LOOK_WAITING_SECONDS
        if facts.attempt.causes or facts.phase is not Phase.RUNNING:
            self._waits_since = now
            return
        if facts.attempt.decided_since is not None:
            lingering = lingering_hosts(facts)
            left = [spec for spec in self._sidecars if spec.host in lingering]
            if left and now >= facts.attempt.decided_since + LOOK_WAITING_SECONDS:
                self._has_logged = True
                most = f"{max(spec.lingers for spec in left):g} s"
                yield events.Say(message=f"waiting for {_named(left)}, {most} at most: all other scripts have ended")
            return
        left = [spec for spec in self._deciding if not self._is_over(spec.host)]
        if not left or len(left) == len(self._deciding):
            self._waits_since = now
        elif now >= self._waits_since + LOG_WAITING_SECONDS:
            self._has_logged = True
            alone = all(spec.role is Role.SCRIPT for spec in left)
            why = "; without a mode of distribution the job ends with the last script" if alone else ""
            why = " (ENTRYPOINT_PS_WORKER_END)" if self._may_serve else why
            yield events.Say(message=f"waiting for {_named(left)}: other scripts have ended{why}")

    def _is_over(self, host: str) -> bool:
        report = self.facts.report_of(host)
        return self.facts.rests() is not None if host == self.facts.host else report.done or report.rests is not None

    def _watch_the_chief(self, now: float) -> None:
        """Blame a chief whose session waits for a server that its own code never starts."""
        facts = self.facts
        if Flag.TF1_TRAIN not in (facts.flags or ()) or facts.attempt.causes or not facts.phase.is_active:
            return
        for name in facts.own.running(Duty.SCRIPT):
            waits = facts.own.specs[name].role is Role.CHIEF and (facts.host, name) not in facts.attempt.ready
            if waits and now >= facts.own.started[name] + NO_SERVER_SECONDS:
                error = (
                    "Estimator.train connects to a server at its task's own address, and starts none: with parameter "
                    "servers it waits for ever. Use tf.estimator.train_and_evaluate, which starts one"
                )
                facts.blame(now, name, what=f"listens on no port after {NO_SERVER_SECONDS:g} s", error=error, code=1)

    def _watch_mpirun(self, now: float) -> None:
        """Limit how long mpirun waits: for daemons that cannot reach it, or a rank that a host cannot start."""
        facts, limit = self.facts, self.settings.start_timeout
        for name in facts.own.running(Duty.LAUNCHER):
            late = now >= facts.own.started[name] + limit and not facts.attempt.causes
            if late and (missing := facts.ranks_to_come()):
                what, error = "started no rank", "check that the hosts can reach one another on all ports"
                if facts.any_rank_came():
                    what = f"did not start {missing[0].name} of {missing[0].host}"
                    error = "check that host's limits of processes and memory"
                facts.blame(now, name, what=f"{what} within {limit:g} s", error=error, code=ExitCode.START_TIMEOUT)


def _named(specs: Sequence[ProcessSpec]) -> str:
    return listed([f"{spec.name} on {spec.host}" for spec in specs], SHOWN)
