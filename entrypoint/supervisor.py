"""The loop: gather events into one queue, ask the policy, carry out its actions; returns the Outcome.

Time, signals, processes and sockets meet here and nowhere else. Signal handlers and threads only put events.
"""

import contextlib
import errno
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from entrypoint import events, kin, memory, process, resting, ssh
from entrypoint.channels import SHARDS
from entrypoint.errors import ExitCode
from entrypoint.events import Action, Event
from entrypoint.job import Job
from entrypoint.lack import in_words
from entrypoint.logs import Log
from entrypoint.machine import this_machine
from entrypoint.outcome import Exit, Kind, Outcome
from entrypoint.plan import ATTEMPT, Duty, Plan, ProcessSpec, Serves, command_line
from entrypoint.policy import Policy

if TYPE_CHECKING:
    from entrypoint.peers import Peers
    from entrypoint.ranks import Ranks

POLL_PORTS = 0.02  # seconds between two looks whether a process listens, while one is awaited
BROKEN = 5.0  # seconds beyond the grace in which a launcher with a fault of its own may end in good order
LOOK, LOOK_SHARE = 0.05, 10.0  # seconds, or so many times what it takes, between two looks at what is to end
NAMED = 10  # processes in one line of the log
FAILURE = 4000  # characters of what a script writes to the failure file that are told
MOST = 1 << 20  # that are read


class Supervisor:
    """Runs one host's rows of a plan."""

    def __init__(
        self,
        job: Job,
        plan: Plan,
        environment: Mapping[str, str],
        log: Log,
        begun: Mapping[str, process.Process] | None = None,
        spare: Callable[[], None] = lambda: None,
    ) -> None:
        self.job, self.plan, self.log = job, plan, log
        self.begun = dict(begun or {})  # started already, and not watched yet
        self._free_spare = spare  # gives file descriptors back that are held for the worst case
        self.environment = dict(environment)
        self.host = job.cluster.me.name
        self.began = time.monotonic()
        self.policy = Policy(plan, self.host, job.settings, self.began)
        self.facts = self.policy.facts
        self.queue: queue.SimpleQueue[Event | _StatusAsked] = queue.SimpleQueue()
        self._kept: Event | _StatusAsked | None = None  # from the queue, and not seen to yet
        self.processes: dict[str, process.Process] = {}
        self.by_pid: dict[int, str] = {}
        self.reaped: dict[str, Exit] = {}
        self.kin = kin.Kin(self.processes, self._is_users)
        self.endings: dict[str, kin.Ending] = {}  # of what was told to end, and has not
        self.sweeping: _Sweeping | None = None
        self.look_at = 0.0  # when to look at who is there the next time, while anything is to end
        self.survivors: set[tuple[int, int]] = set()  # of SIGKILL
        self.rests: dict[str, resting.Rest] = {}  # of scripts that may only serve
        self.rest_at = 0.0  # when to look at them
        self.held_ranks: set[str] = set()  # that have ended, and mpirun does not know
        self.prepared: dict[str, Any] | None = None
        self.peers: Peers | None = None
        self.ranks: Ranks | None = None
        self.outcome: Outcome | None = None
        self.meter = memory.meter()
        self.machine = this_machine()

    def run(self, signals: Sequence[int] = (), early: Sequence[Event] = ()) -> Outcome:
        """Start, watch and stop this host's processes until the job is over, everywhere or for us.

        `signals` are those that came until now (read when our own handlers are there), `early` is what else happened.
        """
        self._hear_the_kernel()
        self._prepare_folders()
        self._say_parts()
        for event in (*(events.Signalled(number=number) for number in signals), *early, *self._ports_taken()):
            self._decide(event)
        self._decide(events.Due())  # the first processes start before we import what they do not need
        if self.outcome is None:
            from entrypoint import echoes, explain, inventory  # noqa: F401 - here, so that the end waits for none
            from entrypoint.fingerprint import fingerprint
            from entrypoint.peers import Peers

            self.facts.things = fingerprint(self.job, self.plan) if self.plan.processes else {}

            self.peers = Peers(self.job.cluster, self.job.settings, self.queue.put, self._ask_status, self.log.say)
            self._carry_out(self.policy.repeat())
        broken: Exception | None = None
        give_up = float("inf")
        while self.outcome is None:
            try:
                for happened in self._next_events():
                    self._decide(*happened)
            except Exception as error:
                # The other hosts are to hear of it from us, not to find out by our silence.
                if broken:
                    raise
                broken, give_up = error, time.monotonic() + self.job.settings.failure_grace + BROKEN
                import traceback

                self.log.say(traceback.format_exc())
                self.queue.put(_broken(error))
            if broken and time.monotonic() > give_up:  # what we know may be wrong now; do not wait for it to come true
                raise broken
        self._clean_up()
        return self.outcome

    # --- events in ---

    def _hear_the_kernel(self) -> None:
        """What a process can do only once, in its main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: self.queue.put(events.Signalled(number=number)))
        signal.signal(signal.SIGCHLD, lambda *_: self.queue.put(events.ChildrenChanged()))
        self.queue.put(events.ChildrenChanged())  # what was begun before may have ended
        process.become_subreaper()

    def _next_events(self) -> list[tuple[Event, ...]]:
        """What happened next: one event after another, but for what is heard of other hosts, which comes in swarms."""
        awaited = self.facts.awaited()
        wait = self.policy.deadline(time.monotonic()) - time.monotonic()
        if self.endings or self.sweeping:
            wait = min(wait, self.look_at - time.monotonic())
        if self.rests:
            wait = min(wait, self.rest_at - time.monotonic())
        event: Event | _StatusAsked | None
        event = self._get(max(0.0, min(wait, POLL_PORTS) if awaited else wait)) or events.Due()
        swarm: list[tuple[Event, ...]] = []
        if isinstance(event, events.Reported | events.LineEnded):
            heard: list[Event] = [event]
            while isinstance(another := self._get(0.0), events.Reported | events.LineEnded):
                heard.append(another)
            self._kept = another
            swarm, event = [tuple(heard)], None
        if isinstance(event, _StatusAsked):
            event.answer.put(self.facts.status(time.monotonic()))
            return []
        found: list[Event] = []
        if event is None:
            pass
        elif isinstance(event, events.ChildrenChanged):
            for pid, status in process.reap():
                self.look_at = 0.0  # it may have been the last of those that were told to end, or have left others
                if (name := self.by_pid.pop(pid, None)) is not None:
                    self.reaped[name] = Exit.from_wait_status(status)
        elif isinstance(event, events.Ended) and event.name in self.facts.specs:
            self.reaped[event.name] = event.exit
            self.look_at = 0.0
        else:
            found.append(event)
            if isinstance(event, events.Ended):  # a rank of an attempt that is over, which nobody else knows
                self.held_ranks.add(event.name)
        found += self._see_who_rests()
        self._press()
        for name in [name for name in self.reaped if not self._left_others(name)]:
            found += self._events_of_end(self.facts.specs[name], self.reaped.pop(name))
            self.endings.pop(name, None)
            self.held_ranks.add(name)
        self._let_ranks_go()
        found += [events.Listening(name=spec.name) for spec in awaited if process.listening(spec.ready_port or 0)]
        return [*swarm, *((each,) for each in found)]

    def _get(self, timeout: float) -> "Event | _StatusAsked | None":
        """The next in the queue, or what was taken out of it too early; None if there is nothing."""
        kept, self._kept = self._kept, None
        if kept is not None:
            return kept
        with contextlib.suppress(queue.Empty):
            return self.queue.get(timeout=timeout) if timeout else self.queue.get_nowait()
        return None

    def _is_users(self, name: str) -> bool:
        spec = self.facts.specs.get(name)
        return spec is not None and (spec.duty.is_users or spec.runs_program)

    def _press(self) -> None:
        """See what is left of the processes that are to end, and signal those whose turn it is."""
        now = time.monotonic()
        if not (self.endings or self.sweeping) or now < self.look_at:
            return
        self.kin.look()
        for ending in self.endings.values():
            ending.press(now)
        if self.sweeping:
            self._go_on_sweeping(self.sweeping, now)
        # On a machine with many processes a look takes its time.
        self.look_at = time.monotonic() + max(LOOK, LOOK_SHARE * (time.monotonic() - now))

    def _see_who_rests(self) -> list[Event]:
        now = time.monotonic()
        if not self.rests or now < self.rest_at:
            return []
        self.rest_at = now + resting.LOOK
        self.rests = {name: rest for name, rest in self.rests.items() if name in self.facts.running()}
        seen = [(name, rest.look(now, self.job.settings.ps_quiet)) for name, rest in self.rests.items()]
        found = tuple((name, seconds) for name, seconds in seen if seconds is not None)
        return [events.Resting(found=found)] if dict(found) != self.facts.resting else []

    def _left_others(self, name: str) -> bool:
        """Whether a process that was told to end has left others, which may still be saving: it is not over yet."""
        ending = self.endings.get(name)
        return ending is not None and any(stat.pid != self.processes[name].pid for stat in ending.living)

    def _let_ranks_go(self) -> None:
        """What mpirun hears of a rank's end during a stop, it may take for a reason to end those that still save."""
        facts = self.facts
        if self.ranks and (facts.stopping_since is None or facts.outcome is not None):
            for name in self.held_ranks:
                self.ranks.let_go(name)
            self.held_ranks.clear()

    def _events_of_end(self, spec: ProcessSpec, exit: Exit) -> list[Event]:
        """An end, and before it what it brings: its last output, a card, what the prepare step found."""
        before: list[Event] = []
        output = lack = wrote = ""
        try:
            self.log.drain(spec.name)
            output, lack = self.log.tail(spec.name), self._memory(spec.name, exit)
            wrote = self._failure_of(spec, exit)
            if exit.clean and spec.card and spec.card_source:
                key = ssh.key_in(spec.card_source.read_text())
                before.append(events.Card(name=spec.card, key=key))
            if exit.clean and spec.name == "prepare":
                self.prepared = json.loads(self.job.paths.prepared.read_text())
                flags, things = frozenset(self.prepared["flags"]), tuple(self.prepared["things"].items())
                gpus = self.prepared["unused_gpus"]
                before.append(events.Prepared(flags=flags, things=things, unused_gpus=gpus))
        except Exception as error:  # whatever it was: an end that is not told would be waited for for ever
            before.append(_broken(error))
        return [*before, events.Ended(name=spec.name, exit=exit, output=output, memory=lack, wrote=wrote)]

    def _memory(self, name: str, exit: Exit) -> str:
        """What the kernel says, if it may have killed this process; a shell passes the end of its program on as 137."""
        if name in self.facts.forced or exit.code != 128 + signal.SIGKILL:
            return ""
        return str(self.meter.killed_since() or "")

    def _failure_of(self, spec: ProcessSpec, exit: Exit) -> str:
        """What the user's program says of its end in the failure file, if it writes that itself.

        Nobody can tell whose words they are where several programs of the user's run on this host.
        """
        path = self.job.paths.failure
        alone = sum(each.duty.is_users for each in self.facts.specs.values()) == 1
        if exit.clean or exit.signal is not None or not (spec.duty.is_users and alone and path.is_file()):
            return ""
        with contextlib.suppress(OSError):
            return self._masked(path, FAILURE)
        return ""

    def _masked(self, path: Path, most: int) -> str:
        """So many characters of what a script wrote, cut when it is masked: half of a secret is known to nobody."""
        with path.open(encoding="utf-8", errors="replace") as file:
            return self.log.secret.mask(file.read(MOST))[:most]

    def _decide(self, *happened: Event) -> None:
        if any(isinstance(event, events.NotStarted | events.Broken) for event in happened):
            self._free_spare()  # to say it, to tell the others and to end takes some
        self._carry_out(self.policy.on_all(happened, time.monotonic()))
        for event in happened:
            if isinstance(event, events.Ended | events.NotStarted):  # it may have been told to end when it was over
                self.endings.pop(event.name, None)

    # --- actions out ---

    def _carry_out(self, actions: list[Action]) -> None:
        if any(isinstance(action, events.Ask | events.Force) for action in actions):
            self.kin.look()
        for action in actions:
            match action:
                case events.Start(spec=spec):
                    self._start(spec)
                case events.Ask(name=name, grace=grace):
                    self.log.hold_up_no_more(name)
                    if name in self.processes:  # else it could not be started, which is still to be told
                        self._ending(name, grace).ask(time.monotonic())
                case events.Force(name=name):
                    if name in self.processes:
                        self._ending(name).force()
                case events.Inspect(name=name):
                    self._inspect(name)
                case events.Sweep(keep=keep, within=within):
                    self._sweep(keep, within)
                case events.Look(names=names):
                    from entrypoint.explain import dying

                    seen = [(name, dying(self.log.tail(name))) for name in names]
                    found = tuple((name, why.error, why.details) for name, why in seen if why)
                    if found or self.facts.dying:  # else it is what was known
                        self.queue.put(events.Looked(found=found))
                case events.Probe(hosts=hosts):
                    try:
                        threading.Thread(target=self._probe, args=(hosts,), name="probe", daemon=True).start()
                    except RuntimeError as error:
                        self.queue.put(_broken(error))
                case events.TakeInventory():
                    self._begin_inventory()
                case events.WriteCards(card=card, keys=keys):
                    try:
                        self._write_cards(card, [ssh.card_line(card, host, key) for host, key in keys])
                    except OSError as error:
                        self.queue.put(_broken(error))
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
            self.log.say("running " + command_line(spec.argv))
        try:
            started = self.begun.pop(spec.name, None) or process.spawn(
                spec, self._command(spec), self._environment_of(spec), self.log
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            if isinstance(error, OSError) and error.errno == errno.E2BIG:
                why = f"{why}: hyperparameters and environment are longer than Linux passes on; use fewer, or a file"
            self.queue.put(events.NotStarted(name=spec.name, why=f"{spec.argv[0]}: {why}"))
            return
        self.processes[spec.name] = started
        self.by_pid[started.pid] = spec.name
        if spec.serves is Serves.MAYBE and spec.ports:
            self.rests[spec.name] = resting.Rest(started.pid, spec.ports[0])
        if spec.duty is not Duty.STEP:
            self.log.say(f"{spec.name} started, pid {started.pid}")

    def _command(self, spec: ProcessSpec) -> tuple[str, ...]:
        """The plan's command; where the code turned out to be a package, its module instead of its file."""
        module = self.prepared and self.prepared["module"]
        if not (spec.runs_program and module):
            return spec.argv
        program = self.job.program.name
        at = next(i for i, word in enumerate(spec.argv) if word in (program, f"./{program}"))
        runner = ("-m", "mpi4py") if spec.duty is Duty.RANK else ()
        before = spec.argv[:at] if program.endswith(".py") else (sys.executable, *runner)
        return (*before, "-m", module, *self.job.program.arguments)

    def _environment_of(
        self, spec: ProcessSpec, cpus: int | None = None, place: tuple[int, ...] = ()
    ) -> dict[str, str]:
        users = self.prepared["env"] if spec.runs_program and self.prepared else {}
        count = {ATTEMPT: str(self.facts.times_restarted(spec.name)), kin.MARK: spec.name}
        given = {**self.environment, **users}
        part = self.machine.part_of(spec, given, cpus)
        return {**given, **part, **count, **self._shards(spec, place), **spec.environment(self.facts.flags or ())}

    def _shards(self, spec: ProcessSpec, place: tuple[int, ...]) -> dict[str, str]:
        """What it is to read; a rank in its true place, which the user's options for mpirun may have moved."""
        reader = spec.reader_with(self.facts.flags or ())
        if reader and place:
            reader = reader.at(self.job.cluster.me.rank, *place)
        return {SHARDS: json.dumps(self.plan.channels.shards(reader))} if spec.reads else {}

    def _order_for_rank(self, rank: int, attempt: int, cpus: int | None, place: tuple[int, ...]) -> dict[str, Any]:
        """What a rank of this host has to run (called from the threads of Ranks)."""
        if attempt != self.facts.attempt or self.facts.clearing:
            return {"refused": f"attempt {attempt} is over"}
        ranks = {spec.name: spec for spec in self.plan.processes if spec.duty is Duty.RANK}
        spec = ranks.get(f"rank {rank}") or next(iter(ranks.values()))
        if self.prepared is None:
            return {"refused": f"{self.host} has not prepared the user's code"}
        if place:  # what it divides the host with are the ranks that are here
            *_, among, index = place
            gpu_share = spec.gpu_share and (index, among)
            spec = replace(spec, name=f"rank {rank}", cpu_share=spec.cpu_share and among, gpu_share=gpu_share)
        return {"argv": self._command(spec), "env": self._environment_of(spec, cpus, place), "cwd": str(spec.cwd)}

    def _ending(self, name: str, grace: float = 0.0) -> kin.Ending:
        if name not in self.endings:
            self.endings[name] = kin.Ending(name=name, process=self.processes[name], grace=grace, kin=self.kin)
        return self.endings[name]

    def _inspect(self, name: str) -> None:
        self.kin.look()
        left = self.kin.of(name) or [stat for stat in [self.kin.stat(self.processes[name].pid)] if stat]
        self.survivors |= {stat.key for stat in left}
        self.endings.pop(name, None)
        self.queue.put(events.Survived(name=name, left=tuple(kin.where_it_is(stat) for stat in left)))

    def _sweep(self, keep: Collection[str], within: float) -> None:
        """Nothing of an attempt may reach into the next: no process, and no explanation of an end that was none."""
        self.meter.killed_since()  # what was killed until now is no cause of what comes
        # A step has its work before it, with all that it has started; a daemon only serves what is over.
        pids = {name: self.processes[name].pid for name in keep if name in self.processes}
        steps = [pid for name, pid in pids.items() if self.facts.specs[name].duty is Duty.STEP]
        self.sweeping = _Sweeping(frozenset(steps), frozenset(pids.values()), time.monotonic() + within)
        self.look_at = 0.0
        self.queue.put(events.Due())
        with contextlib.suppress(OSError):
            said = self._masked(self.job.paths.failure, most=1000)
            self.job.paths.failure.unlink()
            self.log.say(f"the script wrote {self.job.paths.failure}, removed before the next attempt: {said}")

    def _go_on_sweeping(self, sweeping: "_Sweeping", now: float) -> None:
        left = [stat for stat in self.kin.below_us(sweeping.spare) if stat.pid not in sweeping.keep]
        for stat in left:
            kin.send(stat, signal.SIGKILL)
        if left and now < sweeping.until:
            return
        self.sweeping = None
        self.survivors |= {stat.key for stat in left}
        self.queue.put(events.Swept(left=tuple(kin.where_it_is(stat) for stat in left)))

    def _probe(self, hosts: Sequence[str]) -> None:
        try:
            from entrypoint import reach

            found = reach.look_for(self.job.cluster, hosts, self.job.settings.control_port)
        except Exception as error:  # an answer is waited for
            found = tuple(events.Reach(host=host, why=f"{type(error).__name__}: {error}") for host in hosts)
        self.queue.put(events.Probed(found=found))

    def _begin_inventory(self) -> None:
        try:
            threading.Thread(target=self._take_inventory, name="inventory", daemon=True).start()
        except RuntimeError:  # no more threads: no reason to fail either
            self.queue.put(events.Inventoried(artifacts=None))

    def _take_inventory(self) -> None:
        from entrypoint import inventory

        found = None
        try:
            found = inventory.take(self.job.paths, len(self.job.cluster.hosts))
        except Exception as error:  # no reason to fail: the job has succeeded
            self.log.say(f"cannot see what is in {self.job.paths.model}: {type(error).__name__}: {error}")
        self.queue.put(events.Inventoried(artifacts=found))

    def _write_cards(self, card: str, lines: list[str]) -> None:
        path = self.job.paths.cards / card
        scratch = path.with_name(f".{card}.new")
        scratch.touch(mode=0o600)
        scratch.write_text("".join(f"{line}\n" for line in lines))
        scratch.replace(path)

    # --- around the loop ---

    def _ports_taken(self) -> list[Event]:
        """Ports that processes of this host are to listen on, and something else does."""
        wanted = [(spec.name, port) for spec in self.facts.specs.values() for port in spec.ports]
        taken = [(name, port) for name, port in wanted if process.listening(port)]
        return [
            events.Broken(
                what=f"port {port} is taken",
                why=f"{name} is to listen there, and something else on this host does already; end that",
                code=ExitCode.CONFIG,
            )
            for name, port in taken[:1]
        ]

    def _prepare_folders(self) -> None:
        specs = self.facts.specs.values()
        self.job.paths.run.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (failure := self.job.paths.failure).is_file():  # the container was started again on the same /opt/ml
            self.log.say(f"{failure} is of an earlier run: it is removed")
            with contextlib.suppress(OSError):
                failure.unlink()
        if any(spec.card for spec in specs):
            ssh.write_files(self.job)
        if any(spec.duty is Duty.RANK for spec in self.plan.processes):
            from entrypoint.ranks import Ranks

            self.ranks = Ranks(self.job.paths.ranks, self._order_for_rank, self._put_rank, self.log)

    def _say_parts(self) -> None:
        """Which threads and GPUs our processes are told to use; nothing, where they are told nothing."""
        parts: dict[str, list[str]] = {}
        for name, spec in self.facts.specs.items():
            if part := self.machine.part_of(spec, self.environment):
                parts.setdefault(" ".join(f"{key}={value}" for key, value in part.items()), []).append(name)
        for variables, names in parts.items():
            who = names[0] if len(names) == 1 else f"each of {len(names)} processes"
            self.log.say(f"{self.machine}; {who}: {variables}")

    def _put_rank(self, event: Event) -> None:
        if isinstance(event, events.RankStarted):
            self.processes[event.name] = process.Process(name=event.name, pid=event.pid)
        self.queue.put(event)

    def _ask_status(self) -> dict[str, Any]:
        asked = _StatusAsked()
        self.queue.put(asked)
        status: dict[str, Any] = self.log.secret.mask_all(asked.answer.get(timeout=1))
        return status

    def _clean_up(self) -> None:
        """Last words to the others, then nothing of ours is left: no process, no key, no unread output."""
        if self.peers and not self.job.cluster.is_coordinator and self.facts.coordinator not in self.facts.lost():
            self.peers.flush(within=1.0)
        self._end_the_rest()
        self.log.drain()
        self.log.flush_unfinished()
        for path in (*self.job.paths.ssh.glob("*_key"), self.job.paths.prepared, self.job.paths.ranks):
            path.unlink(missing_ok=True)

    def _end_the_rest(self) -> None:
        """Scripts may have left something running on purpose: it ends with the job, and not without a word."""
        self.kin.look()
        names = [name for name in list(self.processes) if self._is_users(name)]
        left = {stat.key: stat for name in names for stat in self.kin.of(name) if stat.key not in self.survivors}
        if left:
            shown = [str(stat) for stat in left.values()]
            more = f" and {len(shown) - NAMED} more" if len(shown) > NAMED else ""
            self.log.say(f"scripts have left processes running, which are killed: {', '.join(shown[:NAMED])}{more}")
        for stat in kin.end_descendants(self.job.settings.kill_timeout, known=self.survivors)[0]:
            if stat.key not in self.survivors:
                self.log.say(f"left behind, since SIGKILL does not end it: {kin.where_it_is(stat)}")

    def evidence(self) -> tuple[list[str], str]:
        """What is known of an end that was no success: (in short, in full)."""
        from entrypoint import evidence

        assert self.outcome is not None
        tails = {name: self.log.tail(name) for name in list(self.processes)}
        return (
            evidence.in_short(self.facts, self.outcome),
            evidence.in_full(self.facts, self.outcome, tails, time.monotonic()),
        )

    def summary(self) -> dict[str, Any]:
        """Seconds from our start to the user's first process, of training, and from its last end to ours."""
        users = [n for n, s in self.facts.specs.items() if s.duty.is_users and n in self.facts.started]
        now = time.monotonic()
        first = min((self.facts.started[n] for n in users), default=None)
        last = max((self.facts.ended_at.get(n, now) for n in users), default=None)
        assert self.outcome is not None
        return {
            "host": self.host,
            "exit_code": self.outcome.exit_code,
            "outcome": str(self.outcome.kind),
            "cause": self.outcome.cause.headline if self.outcome.cause else None,
            "seconds": {
                "start": None if first is None else round(first - self.began, 3),
                "train": None if first is None or last is None else round(last - first, 3),
                "tail": None if last is None else round(now - last, 3),
            },
            "processes": self.facts.status(now)["processes"],
            "succeeded": self.outcome.kind is Kind.SUCCEEDED,
            "pid": os.getpid(),
        }


def _broken(error: Exception) -> events.Broken:
    """A fault of ours becomes the job's outcome, so that the other hosts hear of it."""
    return events.Broken(why=in_words(error), code=ExitCode.INTERNAL)


@dataclass(frozen=True)
class _Sweeping:
    """What is ended between two attempts. `spare`: pids that live on with what descends from them; `keep`: without."""

    spare: frozenset[int]
    keep: frozenset[int]
    until: float


class _StatusAsked:
    """A question from the control channel; answered between two events, so the answer is consistent."""

    def __init__(self) -> None:
        self.answer: queue.Queue[dict[str, Any]] = queue.Queue(1)
