"""Run the loop: take events from one queue, ask the policy, carry out its actions, and return the Outcome.

Only this module brings time, signals, processes and sockets together. Signal handlers and threads put events into its
inbox, or ask questions there, which the loop answers between two events.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from entrypoint.base.python310 import assert_never
from entrypoint.base.values import replace
from entrypoint.launcher.errands import Errands
from entrypoint.launcher.host import folders, idle_workers, process
from entrypoint.launcher.host.exit_evidence import LastOutput
from entrypoint.launcher.host.inbox import Inbox
from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.host.required_programs import mpirun
from entrypoint.launcher.host.resource_limits import broken, not_started
from entrypoint.launcher.host.spawner import Spawner
from entrypoint.launcher.host.terminator import Endings
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.outcome.outcome import Exit, Outcome
from entrypoint.launcher.plan import ssh
from entrypoint.launcher.plan.plan import Duty, Plan, ProcessSpec, Serves
from entrypoint.launcher.plan.render import command_line
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.events import Action, Event
from entrypoint.launcher.policy.history import History
from entrypoint.launcher.policy.phase import Phase
from entrypoint.launcher.policy.policy import Policy
from entrypoint.launcher.policy.status import status

if TYPE_CHECKING:
    from entrypoint.launcher.control.pages import Routes
    from entrypoint.launcher.control.peers import Peers
    from entrypoint.launcher.control.records import Records

# Seconds between two checks whether an awaited process listens, and the same as a part of the time since its start:
# waiting for a process that never listens costs next to nothing.
POLL_PORTS, POLL_PART = 0.02, 0.02
ALONE_SECONDS = 1.0  # seconds for the program of a single host to start, before that opens its control channel
BROKEN_SECONDS = 5.0  # seconds beyond the grace in which a launcher with a fault of its own may still end in good order


class Supervisor:
    def __init__(
        self,
        job: Job,
        plan: Plan,
        environment: Mapping[str, str],
        log: Log,
        begun: Mapping[str, process.Process] | None = None,
        spare: Callable[[], None] = lambda: None,
        tell: Callable[..., None] = lambda kind, *values: None,
        began: float | None = None,
        routes: "Callable[[], Routes]" = dict,
    ) -> None:
        self.job, self.plan, self.log = job, plan, log
        self._tell, self._routes = tell, routes  # to the monitor, if there is one; what people may look at
        self._free_spare = spare  # frees the file descriptors that are held for the worst case
        self.host = job.cluster.me.name
        self.began = time.monotonic() if began is None else began  # when the launcher started
        self.policy = Policy(plan, self.host, job.settings, self.began)
        self.facts = self.policy.facts
        self.history = History(
            len(plan.hosts),
            self.began,
            lambda line: tell("decided", log.secret.mask_all(line)),
            wanted=job.settings.monitor,
        )
        self.inbox = Inbox()
        self.processes: dict[str, process.Process] = {}
        self.spawner = Spawner(job, self.facts, environment, log, begun or {})
        self.endings = Endings(self.processes, self.facts, self.inbox.put)
        self.last_output = LastOutput(job.paths, self.facts, log, self.spawner.note_prepared)
        self.errands = Errands(job, log, self.inbox.put)
        self.rests = idle_workers.Rests(job.settings.ps_quiet)
        self.by_pid: dict[int, str] = {}
        self.reaped: dict[str, Exit] = {}
        self.held_ranks: dict[str, Callable[[], None]] = {}  # rank that has ended -> function that lets mpirun see it
        self.peers: Peers | None = None
        self.outcome: Outcome | None = None
        self._told_phase: Phase | None = None

    def run(self, signals: list[int], early: Sequence[Event] = ()) -> Outcome:
        """Start, watch and stop this host's processes until the job is over, here or everywhere.

        `signals` are those that came until now; later ones are appended. `early` are other events that came before.
        """
        self._hear_the_kernel(signals)
        signalled = [events.Signalled(number=number) for number in signals]
        self._prepare_folders()
        self.spawner.say_parts()
        for event in (*signalled, *early, *self.spawner.ports_taken()):
            self._decide(event)
        self._decide(events.Due())  # start the first processes before importing what they do not need
        fault: Exception | None = None
        give_up = inf
        while self.outcome is None:
            try:
                if self.peers is None and self._is_time_to_meet():
                    self._meet()
                for happened in self._next_events():
                    self._decide(*happened)
            except Exception as error:
                # Report it to the other hosts: otherwise they would only notice our silence.
                if fault:
                    raise
                fault, give_up = error, time.monotonic() + self.job.settings.failure_grace + BROKEN_SECONDS
                import traceback

                self.log.say(traceback.format_exc())
                self.inbox.put(broken(error))
            if fault and time.monotonic() > give_up:  # our facts may be wrong now: do not wait for them
                raise fault
        self._clean_up()
        return self.outcome

    # --- events in ---

    def _hear_the_kernel(self, signals: list[int]) -> None:
        """Take over the signals and orphans of this process, which only its main thread can do, once."""
        self.inbox.hear_signals(signals)
        self.inbox.put(events.ChildrenChanged())  # a process that was started before may have ended
        process.become_subreaper()

    def _next_events(self) -> list[tuple[Event, ...]]:
        """Return what happened next and what follows from it. Each tuple holds events that came together."""
        awaited = self.facts.awaited()
        due = min(self.policy.deadline(time.monotonic()), self.endings.look_at, self.rests.look_at)
        wait = due - time.monotonic()
        if awaited:
            waited = time.monotonic() - max(self.facts.own.started[spec.name] for spec in awaited)
            wait = min(wait, max(POLL_PORTS, POLL_PART * waited))
        came = self.inbox.take(max(0.0, wait))
        found: list[Event] = []
        match came:
            case (events.ChildrenChanged(),):
                came = ()
                for pid, wait_status in process.reap():
                    self.endings.look_soon()
                    if (name := self.by_pid.pop(pid, None)) is not None:
                        self.reaped[name] = Exit.from_wait_status(wait_status)
            case (events.RankEnded(name=name, exit=exit, let_go=let_go),):
                came, self.held_ranks[name] = (), let_go
                if name in self.facts.own.specs:  # else it belongs to an attempt that is over
                    self.endings.look_soon()
                    self.reaped[name] = exit
            case (events.RankStarted(name=name, pid=pid),):
                self.processes[name] = process.Process(name=name, pid=pid)
                self._tell("process", name, {"pid": pid, "role": "rank", "task": name})
        if time.monotonic() >= self.rests.look_at:
            resting_now = self.rests.look(time.monotonic(), self.facts.own.running())
            found += [events.Resting(found=resting_now)] if dict(resting_now) != self.facts.attempt.resting else []
        self.endings.press()
        for name in [name for name in self.reaped if not self.endings.left_others(name)]:
            found += self.last_output.events_of_end(self.facts.own.specs[name], self.reaped.pop(name))
            self.endings.forget(name)
        self._let_ranks_go()
        found += [events.Listening(name=spec.name) for spec in awaited if process.listening(spec.ports[0])]
        return [*([came] if came else []), *((each,) for each in found)]

    def _let_ranks_go(self) -> None:
        """Let mpirun see which ranks have ended, except during a stop: it could end the ranks that still save."""
        if self.facts.phase is not Phase.STOPPING:
            for name in self.held_ranks.keys() - self.reaped.keys():
                self.held_ranks.pop(name)()

    def _decide(self, *happened: Event) -> None:
        if any(isinstance(event, events.NotStarted | events.Broken) for event in happened):
            self._free_spare()  # logging it, reporting it and ending take some
        for event in happened:
            if isinstance(event, events.Probed):
                self.spawner.note_addresses(reach.address for reach in event.found)
        now = time.monotonic()
        self._carry_out(self.history.note(happened, now, self.policy.on(happened, now)))
        if self.facts.phase is not self._told_phase:
            if self._told_phase is Phase.STARTING:
                _import_for_the_end()
            self._told_phase = self.facts.phase
            self._tell("phase", str(self._told_phase))
        for event in happened:
            if isinstance(event, events.Ended):
                self._tell("ended", event.name, str(event.exit))
            # It may have ended before it was terminated. Its descendants are reported before its own end.
            if isinstance(event, events.Ended | events.NotStarted | events.Survived):
                self.endings.forget(event.name)

    # --- actions out ---

    def _carry_out(self, actions: list[Action]) -> None:
        if any(isinstance(action, events.Ask | events.Force) for action in actions):
            self.endings.look()
        for action in actions:
            match action:
                case events.Start(spec=spec):
                    self._start(spec)
                case events.Ask(name=name, grace=grace):
                    self.log.hold_up_no_more(name)
                    self.endings.ask(name, grace)
                case events.Force(name=name):
                    self.endings.force(name)
                case events.Inspect(name=name):
                    self.endings.inspect(name)
                case events.Sweep(keep=keep, within=within):
                    self.last_output.forget()
                    self.endings.sweep(keep, within)
                case events.Look(names=names):
                    from entrypoint.launcher.outcome.explain import dying

                    seen = [(name, dying(self.log.tail(name))) for name in names]
                    found = tuple((name, why.error, why.details) for name, why in seen if why)
                    if found or self.facts.attempt.dying:  # otherwise nothing has changed
                        self.inbox.put(events.Looked(found=found))
                case events.Probe(hosts=hosts):
                    self.errands.probe(hosts)
                case events.Knock(host=host):
                    if self.peers:
                        self.peers.knock(host)
                case events.TakeInventory():
                    self.errands.take_inventory()
                case events.WritePublicKeys(key_name=key_name, keys=keys):
                    try:
                        ssh.write_card(self.job.paths, key_name, keys)
                    except OSError as error:
                        self.inbox.put(broken(error))
                case events.TellCoordinator(report=report):
                    if self.peers:
                        cause = report.cause and report.cause.with_texts(self.log.secret.mask)
                        self.peers.report(replace(report, cause=cause))
                case events.TellFollowers(news=news):
                    if self.peers:
                        settled = news.outcome and news.outcome.with_texts(self.log.secret.mask)
                        self.peers.announce(replace(news, outcome=settled))
                case events.Say(message=message):
                    self.log.say(message)
                case events.Finish(outcome=outcome):
                    self.outcome = outcome
                case _:
                    assert_never(action)

    def _start(self, spec: ProcessSpec) -> None:
        if spec.duty is Duty.LAUNCHER:
            spec = spec.but(argv=(mpirun(), *spec.argv[1:]))
            self.log.say("running " + command_line(spec.argv))
        try:
            started = self.spawner.start(spec)
        except (OSError, ValueError) as error:
            self.inbox.put(not_started(spec.name, spec.argv[0], error))
            return
        self.processes[spec.name] = started
        self.by_pid[started.pid] = spec.name
        self._tell("process", spec.name, {"pid": started.pid, "role": str(spec.role), "task": spec.task})
        if spec.serves is Serves.MAYBE and spec.ports:
            self.rests.add(spec.name, started.pid, spec.ports[0])
        if spec.duty is not Duty.STEP:
            self.log.say(f"{spec.name} started, pid {started.pid}")

    # --- around the loop ---

    def _is_time_to_meet(self) -> bool:
        """Return whether to open the control channel. A single host starts its program before it imports that."""
        alone = len(self.job.cluster.hosts) == 1
        return not (alone and self.facts.phase is Phase.STARTING and time.monotonic() < self.began + ALONE_SECONDS)

    def _meet(self) -> None:
        """Open the control channel."""
        from entrypoint.launcher.control.peers import Peers
        from entrypoint.launcher.plan.fingerprint import fingerprint

        if self.plan.processes:
            self._decide(events.Fingerprinted(fingerprints=fingerprint(self.job, self.plan)))
        job, put, records = self.job, self.inbox.put, _records(self.job)
        self.peers = Peers(job.cluster, job.settings, put, self._ask_status, self.log.say, records, self._routes)
        self._carry_out(self.history.note_repeat(time.monotonic(), self.policy.repeat()))

    def _prepare_folders(self) -> None:
        folders.make_ready(self.job, self.log.say)
        if any(spec.key_name for spec in self.facts.own.specs.values()):
            ssh.write_files(self.job)
        if self.facts.ranks:
            from entrypoint.launcher.host.ranks import Ranks

            order, inbox = self.spawner.order, self.inbox
            Ranks(self.job.paths.ranks, lambda *asked: inbox.ask(partial(order, *asked)), inbox.put, self.log)

    def _ask_status(self) -> dict[str, Any]:
        told = self.inbox.ask(lambda: status(self.facts, time.monotonic()), patience=1)
        masked: dict[str, Any] = self.log.secret.mask_all(told)
        return masked

    def _clean_up(self) -> None:
        """Send the last report, and leave nothing behind: no process, no key, no unread output."""
        if self.peers and not self.job.cluster.is_coordinator and self.facts.coordinator not in self.facts.lost():
            self.peers.flush(within=1.0)
        self.endings.end_the_rest(self.job.settings.kill_timeout, self.log.say)
        self.log.drain()
        self.log.flush_unfinished()
        folders.remove_secrets(self.job.paths)


def _import_for_the_end() -> None:
    """Import what the end needs while the programs run."""
    with contextlib.suppress(OSError):  # no file descriptor is left; a later import tries again and reports the error
        from entrypoint.launcher.host import inventory  # noqa: F401
        from entrypoint.launcher.outcome import explain, symptoms  # noqa: F401


def _records(job: Job) -> "Records | None":
    """Return the store for the followers' records; None on followers, and if nothing is recorded."""
    if not (job.settings.monitor and job.cluster.is_coordinator):
        return None
    from entrypoint.launcher.control.records import Records

    return Records(job.paths.records, job.paths.run / "wants.json", {host.name for host in job.cluster.followers})
