"""Run the loop: take events from one queue, ask the policy, carry out its actions, and return the Outcome.

Only this module brings time, this host, the other hosts and the policy together. Signal handlers and threads put events
into the host's inbox, or ask questions there, which the loop answers between two events.
"""

import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from entrypoint.base.python310 import assert_never
from entrypoint.base.values import replace
from entrypoint.launcher.host import inventory
from entrypoint.launcher.host.host import ThisHost
from entrypoint.launcher.host.resource_limits import broken
from entrypoint.launcher.outcome.outcome import Outcome
from entrypoint.launcher.plan import fingerprint
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.events import Action, Event
from entrypoint.launcher.policy.facts import Phase
from entrypoint.launcher.policy.history import History
from entrypoint.launcher.policy.messages import status
from entrypoint.launcher.policy.policy import Policy
from entrypoint.record import lines

if TYPE_CHECKING:  # the control channel is imported after the first processes have started
    from entrypoint.launcher.control.pages import Routes
    from entrypoint.launcher.control.peers import Peers

ALONE_SECONDS = 1.0  # seconds for the program of a single host to start, before that opens its control channel
SETTLED_SECONDS = 0.25  # seconds for started programs to come up, before this host imports what the end needs
BROKEN_SECONDS = 5.0  # seconds beyond the grace in which a launcher with a fault of its own may still end in good order


class Supervisor:
    """Run `host`'s part of its plan. `routes`: pages for people; `spare` frees descriptors that are held."""

    def __init__(
        self,
        host: ThisHost,
        spare: Callable[[], None] = lambda: None,
        began: float | None = None,
        routes: "Callable[[], Routes]" = dict,
    ) -> None:
        self.host, self.job, self._free_spare, self._routes = host, host.job, spare, routes
        self.began = time.monotonic() if began is None else began
        self.policy = Policy(host.plan, self.job.cluster.me.name, self.job.settings, self.began)
        self.facts = self.policy.facts
        mask, wanted = host.log.secret.mask_all, self.job.settings.monitor
        self.history = History(
            len(host.plan.hosts), self.began, lambda call: host.record(lines.Decided(call=mask(call))), wanted
        )
        self.peers: Peers | None = None
        self.outcome: Outcome | None = None
        self._recorded_phase: Phase | None = None
        self._imports_at = inf
        self._fault: Exception | None = None
        self._gives_up_at = inf

    def run(self) -> Outcome:
        """Start, watch and stop this host's processes until the job is over, here or everywhere."""
        self.host.open()
        # Start the first process, a fork, before there are more threads, whatever event comes first.
        self._handle_next_events()
        self._decide(events.Due())
        self.host.start_threads()
        while self.outcome is None:
            try:
                if self.peers is None and self._is_time_to_meet():
                    self._meet()
                self._handle_next_events()
                if time.monotonic() >= self._imports_at:
                    self._imports_at = inf
                    _import_for_the_end()
            except Exception as error:
                self._note_fault(error)
            if self._fault and time.monotonic() > self._gives_up_at:
                raise self._fault
        if self.peers and not self.facts.is_coordinator and self.facts.coordinator not in self.facts.lost():
            self.peers.flush(within=1.0)
        self.host.close()
        return self.outcome

    def _note_fault(self, error: Exception) -> None:
        """Report a first fault of ours to the other hosts: otherwise they would only notice our silence.

        A second fault is raised. Our facts may be wrong after the first, so the wait for the end is limited.
        """
        if self._fault:
            raise error
        self._fault = error
        self._gives_up_at = time.monotonic() + self.job.settings.failure_grace + BROKEN_SECONDS
        self.host.log.print(traceback.format_exc())
        self.host.inbox.put(broken(error))

    def _handle_next_events(self) -> None:
        """Wait for events until the policy's deadline, and let the policy decide about them."""
        facts, due = self.facts, min(self.policy.deadline, self._imports_at)
        attempt = None if facts.attempt.clearing else facts.attempt.number
        # An mpirun that sees a rank end could end those that still save during a stop, or print why they end.
        unsettled = facts.phase is Phase.STOPPING or (facts.phase.is_active and bool(facts.attempt.causes))
        for happened in self.host.next_events(due, facts.awaited(), attempt, hold_ranks=unsettled):
            self._decide(*happened)

    def _decide(self, *happened: Event) -> None:
        if any(isinstance(event, events.NotStarted | events.Broken) for event in happened):
            self._free_spare()  # logging it, reporting it and ending take some
        self.host.forget_ended(happened)
        now = time.monotonic()
        self._carry_out(self.history.note(happened, now, self.policy.on(happened, now)))
        if self.facts.phase is not self._recorded_phase:
            if self._recorded_phase is Phase.STARTING:
                self._imports_at = now + SETTLED_SECONDS
            self._recorded_phase = self.facts.phase
            self.host.record(lines.PhaseLine(phase=str(self._recorded_phase)))
        for event in happened:
            if isinstance(event, events.Ended):
                self.host.record(lines.EndedLine(process=event.name, how=str(event.exit)))

    def _carry_out(self, actions: Sequence[Action]) -> None:
        host, peers, mask = self.host, self.peers, self.host.log.secret.mask
        if any(isinstance(action, events.Ask | events.Force) for action in actions):
            host.terminator.look()
        for action in actions:
            match action:
                case events.Start(spec=spec, restarted=restarted):
                    host.start(spec, restarted)
                case events.Ask(name=name, grace=grace):
                    host.ask(name, grace)
                case events.Force(name=name):
                    host.force(name)
                case events.Inspect(name=name):
                    host.terminator.inspect(name)
                case events.Sweep(keep=keep, within=within):
                    host.sweep(keep, within)
                case events.Look(names=names):
                    host.look_for_dying(names)
                case events.WritePublicKeys(key_name=key_name, keys=keys):
                    host.write_public_keys(key_name, keys)
                case events.Say(message=message):
                    host.log.print(message)
                case events.TakeInventory():
                    # The job does not fail because of that.
                    self._start_thread(lambda _: events.Inventoried(artifacts=None), self._take_inventory)
                case events.Probe(hosts=hosts):
                    self._start_thread(broken, self._probe, hosts)
                case events.Knock(host=name):
                    if peers:
                        peers.knock(name)
                case events.TellCoordinator(report=report):
                    if peers:
                        peers.report(replace(report, cause=report.cause and report.cause.with_texts(mask)))
                case events.TellFollowers(news=news):
                    if peers:
                        peers.announce(replace(news, outcome=news.outcome and news.outcome.with_texts(mask)))
                case events.Finish(outcome=outcome):
                    self.outcome = outcome
                case _:
                    assert_never(action)

    # --- slow jobs: their threads read only what never changes, and put the results as events ---

    def _start_thread(self, otherwise: Callable[[Exception], Event], job: Callable[..., None], *what: Any) -> None:
        try:
            threading.Thread(target=job, args=what, name=job.__name__.strip("_"), daemon=True).start()
        except RuntimeError as error:  # no thread is left
            self.host.inbox.put(otherwise(error))

    def _probe(self, hosts: Sequence[str]) -> None:
        try:
            from entrypoint.launcher.control import probe

            found = probe.look_for(self.job.cluster, hosts, self.job.settings.control_port)
        except Exception as error:  # the policy waits for an answer, so every failure becomes one
            found = tuple(events.Reach(host=host, why=f"{type(error).__name__}: {error}") for host in hosts)
        self.host.inbox.put(events.Probed(found=found))

    def _take_inventory(self) -> None:
        found = None
        try:
            found = inventory.take(self.job.paths, len(self.job.cluster.hosts))
        except Exception as error:  # the job has succeeded; this failure must not change that
            self.host.log.print(f"cannot see what is in {self.job.paths.model}: {type(error).__name__}: {error}")
        self.host.inbox.put(events.Inventoried(artifacts=found))

    # --- the other hosts ---

    def _is_time_to_meet(self) -> bool:
        """Return whether to open the control channel.

        A single host starts its program before it imports the channel.
        """
        alone = len(self.job.cluster.hosts) == 1
        return not (alone and self.facts.phase is Phase.STARTING and time.monotonic() < self.began + ALONE_SECONDS)

    def _meet(self) -> None:
        """Open the control channel."""
        from entrypoint.launcher.control.peers import Peers
        from entrypoint.launcher.control.records import store

        job, host = self.job, self.host
        if host.plan.processes:
            self._decide(events.Fingerprinted(fingerprints=fingerprint.fingerprint(job, host.plan)))
        status, log = self._ask_status, host.log.print
        self.peers = Peers(job.cluster, job.settings, host.inbox.put, status, log, store(job, log), self._routes)
        self._carry_out(self.history.note_repeat(time.monotonic(), self.policy.repeat()))

    def _ask_status(self) -> dict[str, Any]:
        found = self.host.inbox.ask(lambda: status(self.facts, time.monotonic()), patience=1)
        return dict(self.host.log.secret.mask_all(found))


def _import_for_the_end() -> None:
    """Import the modules for the end while the programs run, which takes 50 ms."""
    with contextlib.suppress(OSError):  # no file descriptor is left; a later import tries again and reports the error
        from entrypoint.launcher.outcome import explain, symptoms  # noqa: F401
