"""Own the parts of this machine: act on its processes, and return events, with evidence of each end."""

import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from entrypoint.launcher.host import folders, process
from entrypoint.launcher.host.idle_workers import IdleWorkers
from entrypoint.launcher.host.inbox import ChildrenChanged, Inbox, Noticed, RankEnded
from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.host.machine import Meter
from entrypoint.launcher.host.ranks import Ranks
from entrypoint.launcher.host.required_programs import mpirun
from entrypoint.launcher.host.resource_limits import broken, not_started
from entrypoint.launcher.host.spawner import Spawner
from entrypoint.launcher.host.terminator import Terminator
from entrypoint.launcher.job.choices import WorkerEnd
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.outcome.outcome import Exit
from entrypoint.launcher.plan import ssh
from entrypoint.launcher.plan.plan import PREPARE, Duty, Plan, ProcessSpec
from entrypoint.launcher.plan.render import command_line
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.events import Event
from entrypoint.record.lines import Line, ProcessLine

# Seconds between two checks whether an awaited process listens, and the same as a part of the time since its start:
# waiting for a process that never listens costs next to nothing.
POLL_PORTS, POLL_PART = 0.02, 0.02
FAILURE_FILE_CHARS = 4000  # characters that are reported of what a script wrote to the failure file
MOST_CHARS = 1 << 20  # characters of it that are read


class ThisHost:
    """Run this host's part of a plan; for the loop only. Threads and signal handlers use `inbox`.

    `record` writes a line of the monitor's record.
    """

    def __init__(
        self,
        job: Job,
        plan: Plan,
        environment: Mapping[str, str],
        log: Log,
        inbox: Inbox,
        record: Callable[[Line], None] = lambda line: None,
    ) -> None:
        self.job, self.plan, self.log, self.inbox, self.record = job, plan, log, inbox, record
        self.processes: dict[str, process.Process] = {}  # those of earlier attempts, too
        self._specs = {spec.name: spec for spec in plan.on(job.cluster.me.name)}
        self._ranks = [spec for spec in plan.processes if spec.duty is Duty.RANK]
        self._started_at: dict[str, float] = {}
        self._by_pid: dict[int, str] = {}
        self._reaped: dict[str, Exit] = {}  # ended, but what they have left may still save
        self._held_ranks: dict[str, Callable[[], None]] = {}  # rank that has ended -> function that lets mpirun see it
        self._killed: set[str] = set()  # by us
        self._is_dying = False  # whether a process had printed why it ends when we looked last
        self._spawner = Spawner(job, plan, environment, log)
        self.terminator = Terminator(self.processes, self._specs, self.inbox.put)
        self._meter = Meter()
        self._idle = IdleWorkers(job.settings.ps_quiet)

    def open(self) -> None:
        """Make this host ready for its processes. Put an event if one of their ports is taken."""
        process.become_subreaper()
        folders.make_ready(self.job, self.log.print)
        if any(spec.key_name for spec in self._specs.values()):
            ssh.write_files(self.job)
        self._spawner.log_parts()
        if taken := self._spawner.taken_port():
            self.inbox.put(taken)

    def start_threads(self) -> None:
        """Start the threads that events come from. The first process, a fork, must have been started before."""
        self.inbox.end_waits_by_signals()
        if self._ranks:
            order, inbox = self._spawner.order, self.inbox
            Ranks(self.job.paths.ranks, lambda *asked: inbox.ask(partial(order, *asked)), inbox.put, self.log)

    def next_events(
        self, until: float, awaited: Sequence[ProcessSpec], attempt: int | None, hold_ranks: bool
    ) -> list[tuple[Event, ...]]:
        """Return the next events, and those that follow from them. Each tuple holds events that came together.

        `until`: when to return at the latest. `awaited`: processes whose ports others wait for. `attempt`: the attempt
        whose ranks may start now, or None. `hold_ranks`: mpirun must not see which ranks have ended.
        """
        self._spawner.attempt, now = attempt, time.monotonic()
        # Those whose end was reported by an earlier call: only then is it known whether they must be held.
        for name in [] if hold_ranks else self._held_ranks.keys() - self._reaped.keys():
            self._held_ranks.pop(name)()
        until = min(until, self.terminator.look_at, self._idle.look_at)
        if awaited:
            waited = now - max(self._started_at[spec.name] for spec in awaited)
            until = min(until, now + max(POLL_PORTS, POLL_PART * waited))
        taken = self.inbox.take(max(0.0, until - now))
        came = tuple(event for each in taken if (event := self._note(each)))
        found: list[Event] = []
        if time.monotonic() >= self._idle.look_at:
            found += self._idle.look(time.monotonic())
        self.terminator.press()
        for name in [name for name in self._reaped if not self.terminator.left_others(name)]:
            found += self._events_of_end(self._specs[name], self._reaped.pop(name), name in self._killed)
            self.terminator.forget(name)
        found += [events.Listening(name=spec.name) for spec in awaited if process.listening(spec.ports[0])]
        return [*([came] if came else []), *((each,) for each in found)]

    def _events_of_end(self, spec: ProcessSpec, exit: Exit, killed: bool) -> list[Event]:
        """Return the events of an end: first its results, such as a public key, then Ended.

        `killed`: we sent SIGKILL.
        """
        before: list[Event] = []
        output = shortage = wrote = ""
        try:
            self.log.drain(spec.name)
            output = self.log.tail(spec.name)
            if not killed and self._may_lack_memory(exit, output):
                shortage = self._meter.killed_since()
            wrote = self._failure_of(spec, exit)
            if exit.clean and spec.key_name and spec.public_key_file:
                key = ssh.key_in(spec.public_key_file.read_text())
                before.append(events.PublicKey(name=spec.key_name, key=key))
            if exit.clean and spec.name == PREPARE:
                found = json.loads(self.job.paths.prepared.read_text())
                self._spawner.note_prepared(found)
                flags, fingerprints = frozenset(found["flags"]), tuple(found["fingerprints"].items())
                texts = {key: found[key] for key in ("unused_gpus", "other_mode")}
                before.append(events.Prepared(flags=flags, fingerprints=fingerprints, **texts))
        except Exception as error:  # whatever it was: an end that is not reported would be awaited for ever
            before.append(broken(error))
        return [*before, events.Ended(name=spec.name, exit=exit, output=output, memory=shortage, wrote=wrote)]

    def _may_lack_memory(self, exit: Exit, output: str) -> bool:
        """Return whether a process, or a child such as a pool's worker or a data loader, was killed."""
        if exit.clean or exit.code == 128 + signal.SIGKILL:
            return not exit.clean
        from entrypoint.launcher.outcome.native import lost_child  # here, since most jobs never need it

        return lost_child(output)

    def _failure_of(self, spec: ProcessSpec, exit: Exit) -> str:
        """Return the failure file's text if only this process of the user can have written it; else ""."""
        alone = sum(each.duty.is_users for each in self._specs.values()) == 1
        if exit.clean or exit.signal is not None or not (spec.duty.is_users and alone):
            return ""
        with contextlib.suppress(OSError):
            return self._masked_failure(FAILURE_FILE_CHARS)
        return ""

    def _masked_failure(self, most: int) -> str:
        """Return the beginning of the script's failure file.

        Secrets are masked before the cut, since half a secret would not be recognised.
        """
        with self.job.paths.failure.open(encoding="utf-8", errors="replace") as file:
            return self.log.secret.mask(file.read(MOST_CHARS))[:most]

    def _note(self, event: Noticed) -> Event | None:
        """Update this host's state by an event. Return the event if the policy needs it, else None."""
        match event:
            case ChildrenChanged():
                for pid, wait_status in process.reap():
                    self.terminator.look_soon()
                    if (name := self._by_pid.pop(pid, None)) is not None:
                        self._reaped[name] = Exit.from_wait_status(wait_status)
                return None
            case RankEnded(name=name, exit=exit, let_go=let_go):
                self._held_ranks[name] = let_go
                self.terminator.look_soon()
                self._reaped[name] = exit
                return None
            case events.RankStarted(name=name, pid=pid):
                # The user's options may place a rank here that the plan has on another host.
                self._specs.setdefault(name, self._ranks[0].but(host=self.job.cluster.me.name, name=name))
                self._note_started(process.Process(name=name, pid=pid), role="rank", task=name)
            case events.Probed(found=found):
                self._spawner.note_addresses(reach.address for reach in found)
        return event

    def forget_ended(self, happened: Sequence[Event]) -> None:
        """Forget processes whose end is reported to the policy now, or that SIGKILL did not end.

        A process may have ended before it was terminated. Its descendants are reported before its own end.
        """
        for event in happened:
            if isinstance(event, events.Ended | events.NotStarted | events.Survived):
                self.terminator.forget(event.name)
                self._idle.forget(event.name)

    def start(self, spec: ProcessSpec, restarted: int) -> None:
        self._started_at[spec.name] = time.monotonic()
        if spec.duty is Duty.LAUNCHER:
            spec = spec.but(argv=(mpirun(), *spec.argv[1:]))
            self.log.print("running " + command_line(spec.argv))
        try:
            started = self._spawner.start(spec, restarted)
        except (OSError, ValueError) as error:
            self.inbox.put(not_started(spec.name, spec.argv[0], error))
            return
        self._by_pid[started.pid] = spec.name
        self._note_started(started, role=str(spec.role), task=spec.task)
        if spec.ends is WorkerEnd.AUTO and spec.ports:
            self._idle.add(spec.name, started.pid, spec.ports[0])
        if spec.duty is not Duty.STEP:
            self.log.print(f"{spec.name} started, pid {started.pid}")

    def ask(self, name: str, grace: float) -> None:
        """Send SIGTERM to a process and its descendants, as `Terminator` describes."""
        self.log.hold_up_no_more(name)
        self.terminator.ask(name, grace)

    def force(self, name: str) -> None:
        """Send SIGKILL to a process and its descendants."""
        self._killed.add(name)
        self.terminator.force(name)

    def sweep(self, keep: frozenset[str], within: float) -> None:
        """End the processes that an attempt has left, and forget its symptoms, which would explain no later end."""
        self._is_dying = False
        self._meter.killed_since()
        with contextlib.suppress(OSError):
            text = self._masked_failure(most=1000)
            self.job.paths.failure.unlink()
            removed = f"removed the script's {self.job.paths.failure} before the next attempt; its text was: {text}"
            self.log.print(removed)
        self.terminator.sweep(keep, within)

    def write_public_keys(self, key_name: str, keys: Sequence[tuple[str, str]]) -> None:
        try:
            ssh.write_card(self.job.paths, key_name, keys)
        except OSError as error:
            self.inbox.put(broken(error))

    def _note_started(self, started: process.Process, role: str, task: str) -> None:
        self.processes[started.name] = started
        self._killed.discard(started.name)
        self.record(ProcessLine(process=started.name, pid=started.pid, role=role, task=task))

    def look_for_dying(self, names: Iterable[str]) -> None:
        """Put an event into the inbox if processes have printed that they are about to end.

        Put one more when no such process is left.
        """
        from entrypoint.launcher.outcome.explain import dying

        seen = [(name, dying(self.log.tail(name))) for name in names]
        found = tuple((name, why.error, why.details) for name, why in seen if why)
        if found or self._is_dying:  # otherwise nothing has changed
            self.inbox.put(events.Looked(found=found))
        self._is_dying = bool(found)

    def close(self) -> None:
        """Leave nothing behind: no process, no key, no unread output."""
        self.terminator.end_the_rest(self.job.settings.kill_timeout, self.log.print)
        self.log.drain()
        self.log.flush_unfinished()
        folders.remove_secrets(self.job.paths)
