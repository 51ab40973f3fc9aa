"""Simulate all hosts of a job in memory: their policies connected, a simulated clock, and random faults.

Processes, messages and time are simulated; every decision is the real policy's, on a real plan. A run is made
from one number, so a failed run can be repeated: `World(Story(seed=...), base).run()`.

What must hold whatever happens: every host that is alive ends, in bounded time; those that end while the
coordinator lives agree on the exit code and its cause; and no failed job ends with exit code 0.
"""

import heapq
import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from builders import names, read
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from entrypoint.launcher.control.peers import Clock
from entrypoint.launcher.host.stdout_writer import PATIENCE_SECONDS
from entrypoint.launcher.outcome.outcome import Exit, Kind, Outcome
from entrypoint.launcher.plan.plan import Duty, ProcessSpec, Ready, Restart
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.policy import events, messages
from entrypoint.launcher.policy.artifacts import Artifacts
from entrypoint.launcher.policy.policy import Policy

pytestmark = pytest.mark.unmeasured

MODES = ["single", "ps", "mwms", "mpi", "jax"]
BOUND = 400.0  # simulated seconds; the start timeout (60) and the stop grace (20) are in it, with room
RETRY = 0.05
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 1\n'
SETTINGS = {"ENTRYPOINT_START_TIMEOUT": "60", "ENTRYPOINT_STOP_GRACE": "20", "ENTRYPOINT_OUTSIDE_GRACE": "8"}
ONLY_INSIDE = {"sagemaker_distribution_instance_groups": "inside"}


@dataclass
class Story:
    """The course of one run."""

    seed: int = 0
    hosts: int = 3
    mode: str = "mwms"
    per_host: int = 1
    outside: int = 0  # so many hosts, those with the lowest names, are outside the distribution
    loss: float = 0.0  # of messages, both ways
    slow: float = 0.0  # reports take so many seconds longer than their answers, so that the measured clocks are wrong
    fails: int = 0  # so many processes end badly
    dies: int = 0  # so many hosts vanish
    absent: bool = False  # one host never comes
    late: float = 0.0  # the hosts start within so many seconds
    frozen: int = 0  # so many hosts stand still for a while
    stop: str = ""  # "", "all", "one": who gets a SIGTERM
    crosses: bool = False  # it comes right after the first failure
    stays: int = 0  # so many processes survive SIGKILL
    unread: int = 0  # nobody reads the output of so many hosts for a while: their programs wait for it
    vanish: int = 0  # so many names stop resolving, while the hosts live
    hang_up: bool = False  # with a name, the link of its host goes, too
    restarts: int = 0
    scripts: str = "saves"  # on SIGTERM: "saves" (exit code 0), "dies", "ignores"


def groups(story: Story) -> dict[str, list[str]]:
    hosts, outside = names(story.hosts), min(story.outside, story.hosts - 1)
    return {"outside": hosts[:outside], "inside": hosts[outside:]}


@dataclass
class Running:
    spec: ProcessSpec
    ending: bool = False
    prints_on: bool = False  # told to end: its output is read, whoever may not write it


@dataclass
class SimulatedHost:
    name: str
    policy: Policy | None = None
    alive: bool = True
    frozen_until: float = -1.0
    processes: dict[str, Running] = field(default_factory=dict)
    backlog: list = field(default_factory=list)  # events that came while it stood still
    outcome: Outcome | None = None
    ended_at: float = -1.0
    report: events.Report | None = None
    clock: Clock = field(default_factory=Clock)  # of the coordinator, which is ours here; measured by real exchanges
    sender_runs: bool = False
    news: events.News = field(default_factory=events.News)

    @property
    def there(self) -> bool:
        return self.alive and self.policy is not None and self.outcome is None


class World:
    def __init__(self, story: Story, base: Path) -> None:
        self.story, self.random = story, random.Random(story.seed)
        self.now, self.order = 0.0, itertools.count()
        self.agenda: list = []
        environment = {
            **SETTINGS,
            "ENTRYPOINT_MODE": story.mode,
            "ENTRYPOINT_PROCESSES_PER_HOST": str(story.per_host),
            "ENTRYPOINT_RESTARTS": str(story.restarts),
        }
        self.job = read(base, story.hosts, ONLY_INSIDE, environment, groups=groups(story))
        self.plan = plan_for(self.job)
        self.hosts = {name: SimulatedHost(name) for name in names(story.hosts)}
        self.first = self.plan.hosts[0]
        self.went_wrong: list[tuple[float, str, str]] = []  # (when, host, what)
        self.mpirun_failed = False
        self.tried_again: set[tuple[str, str]] = set()  # what failed in a way that allows another attempt
        self.given_up: set[int] = set()  # attempts with such a failure
        for name in self.hosts:
            self.at(self.random.uniform(0, story.late), self.boot, name)
        chosen = list(self.plan.processes)
        self.will_fail = {
            (spec.host, spec.name): self.random.choice([1, 3, 137, 139])
            for spec in self.random.sample(chosen, min(story.fails, len(chosen)))
        }
        self.staying = {
            (spec.host, spec.name)
            for spec in self.random.sample(chosen, min(story.stays, len(chosen)))
            if spec.duty is not Duty.STEP
        }
        self.known_at: float | None = None  # when it was known on its host that a script had raised, before any stop
        who = list(self.hosts)
        if story.absent:
            self.hosts[self.random.choice(who)].alive = False
        for name in self.random.sample(who, min(story.dies, len(who))):
            self.at(self.random.uniform(0, 25), self.die, name)
        for name in self.random.sample(who, min(story.frozen, len(who))):
            self.at(self.random.uniform(0, 25), self.freeze, name, self.random.uniform(0.5, 12))
        self.unread_until = {
            name: self.random.uniform(5, 40) for name in self.random.sample(who, min(story.unread, len(who)))
        }
        self.vanished: set[str] = set()
        self.vanished_early = False  # before all had met
        self.links: set[str] = set()  # followers whose connection to the coordinator is open
        for name in self.random.sample(who, min(story.vanish, len(who))):
            self.at(self.random.uniform(0, 25), self.vanish, name)
        if not story.crosses:
            self.stop_after(self.random.uniform(0, 25))

    def stop_after(self, delay: float) -> None:
        who = list(self.hosts)
        for name in {"all": who, "one": [self.random.choice(who)], "": []}[self.story.stop]:
            self.at(delay + self.random.uniform(0, 0.5), self.happen, name, events.Signalled(number=15))

    # --- time ---

    def at(self, delay: float, act, *what) -> None:
        heapq.heappush(self.agenda, (self.now + delay, next(self.order), act, what))

    def run(self) -> "World":
        steps = 0
        while self.agenda and (steps := steps + 1) < 400_000:
            self.now, _, act, what = heapq.heappop(self.agenda)
            if self.now > BOUND or not any(
                host.there or (host.policy is None and host.alive) for host in self.hosts.values()
            ):
                break
            act(*what)
        assert steps < 400_000, "the policies never sleep"
        return self

    # --- a host ---

    def boot(self, name: str) -> None:
        host = self.hosts[name]
        if host.alive:
            host.policy = Policy(self.plan, name, self.job.settings, self.now)
            self.happen(name, events.Due())
            self.wake(name)

    def wake(self, name: str) -> None:
        host = self.hosts[name]
        if host.there and self.now >= host.frozen_until:
            self.happen(name, events.Due())
        if host.there:
            delay = max(host.frozen_until, host.policy.deadline) - self.now
            self.at(max(delay, 0.01), self.wake, name)

    def happen(self, name: str, event: events.Event) -> None:
        host = self.hosts[name]
        if not host.there:
            return
        if self.now < host.frozen_until:
            host.backlog.append(event)
            return
        for action in host.policy.on((event,), self.now):
            self.carry_out(host, action)

    def freeze(self, name: str, seconds: float) -> None:
        self.hosts[name].frozen_until = self.now + seconds
        self.at(seconds + 0.001, self.thaw, name)

    def thaw(self, name: str) -> None:
        host = self.hosts[name]
        backlog, host.backlog = host.backlog, []
        for event in backlog:
            self.happen(name, event)

    def die(self, name: str) -> None:
        host = self.hosts[name]
        if host.there or (host.alive and host.policy is None):
            self.went_wrong.append((self.now, name, "dies"))
        host.alive = False
        self.hang_up(name)
        if any(spec.duty is Duty.RANK for spec in self.plan.on(name)):
            self.fail_mpirun()

    def vanish(self, name: str) -> None:
        """Remove a host's name for good.

        Hosts that know its address keep calling it; the coordinator calls no host that has a link.
        """
        self.vanished.add(name)
        met = [host.policy and host.policy.rendezvous.is_over() for host in self.hosts.values()]
        self.vanished_early = self.vanished_early or not all(met)
        if self.story.hang_up and self.hosts[name].there:
            followers = self.plan.hosts[1:] if name == self.first else [name]
            for follower in self.links & set(followers):
                self.links.discard(follower)
                self.happen(self.first, events.LinkEnded(host=follower))
                self.happen(follower, events.LinkEnded(host=self.first))
                self.at(0, self.send_report, follower, False)

    def is_called(self, sender: str, receiver: str) -> bool:
        """Return whether a message reaches its receiver: over a link, or by a known name or address."""
        follower = sender if receiver == self.first else receiver
        known = receiver == self.first and self.hosts[sender].policy.facts.hosts.last_contact
        return receiver not in self.vanished or follower in self.links or bool(known)

    def hang_up(self, name: str) -> None:
        """Close a host's links as its kernel would: messages that were sent before still arrive."""
        self.links -= set(self.plan.hosts) if name == self.first else {name}
        for other in self.plan.hosts[1:] if name == self.first else [self.first]:
            if (policy := self.hosts[other].policy) and name in policy.facts.hosts.last_contact:
                self.at(self.random.uniform(0.1, 0.2), self.happen, other, events.LinkEnded(host=name))

    def carry_out(self, host: SimulatedHost, action: events.Action) -> None:
        match action:
            case events.Start(spec=spec):
                self.start(host, spec)
            case events.Ask(name=name):
                self.ask(host, name)
            case events.Force(name=name):
                if (host.name, name) not in self.staying:
                    self.at(0.02, self.end, host.name, name, 137)
            case events.Inspect(name=name):
                if name in host.processes:  # else it has just ended
                    self.happen(host.name, events.Survived(name=name, left=("pid 1",)))
            case events.Sweep(keep=keep, within=within):
                left = any((host.name, name) in self.staying for name in host.processes if name not in keep)
                swept = events.Swept(left=("pid 1",) if left else ())
                self.at(within if left else 0.01, self.happen, host.name, swept)
            case events.TellCoordinator(report=report):
                host.report = report
                if not host.sender_runs:
                    host.sender_runs = True
                    self.at(0, self.send_report, host.name)
                else:
                    self.at(0, self.send_report, host.name, False)
            case events.TellFollowers(news=news):
                host.news = news
                for name in filter(self.links.__contains__, self.plan.hosts[1:]):  # others hear it with their reports
                    self.message(host.name, name, lambda name=name, news=news: self.inform(name, news))
            case events.Probe(hosts=hosts):
                found = tuple(
                    events.Reach(host=name, address="", why="unknown name")
                    if name in self.vanished
                    else events.Reach(host=name, address="10.0.0.1", why="" if self.hosts[name].there else "no answer")
                    for name in hosts
                )
                self.at(self.random.uniform(0.001, 0.2), self.happen, host.name, events.Probed(found=found))
            case events.Knock(host=name):
                if not self.hosts[name].there:
                    self.at(self.random.uniform(0.001, 0.5), self.happen, host.name, events.Unreached(host=name))
            case events.TakeInventory():
                if self.random.random() < 0.9:  # or a disk does not answer
                    found = events.Inventoried(artifacts=Artifacts(model=True))
                    self.at(self.random.uniform(0.001, 1), self.happen, host.name, found)
            case events.Finish(outcome=outcome):
                host.outcome, host.ended_at = outcome, self.now
                self.at(PATIENCE_SECONDS if self.is_unread(host.name) else 0, self.hang_up, host.name)

    # --- processes ---

    def is_unread(self, host: str) -> bool:
        return self.now < self.unread_until.get(host, 0)

    def waits_for_a_reader(self, host: str, name: str, act, *what) -> bool:
        """Return whether a process waits for a reader of its full pipe; if so, call `act` again in 0.5 s."""
        running = self.hosts[host].processes.get(name)
        users = running is not None and running.spec.duty in (Duty.SCRIPT, Duty.RANK, Duty.SIDECAR)
        if not users or running.prints_on or not self.is_unread(host):
            return False
        self.at(0.5, act, host, name, *what)
        return True

    def start(self, host: SimulatedHost, spec: ProcessSpec) -> None:
        host.processes[spec.name] = Running(spec)
        code = self.will_fail.pop((host.name, spec.name), None)  # the next attempt may go well
        if spec.duty is Duty.LAUNCHER:
            self.mpirun_failed = False
        after = self.random.uniform(0.1, 3) if spec.duty is Duty.STEP else self.random.uniform(1, 20)
        if code:
            self.at(after, self.fail, host.name, spec.name, code)
        elif spec.duty in (Duty.STEP, Duty.SCRIPT, Duty.RANK):
            self.at(after, self.end, host.name, spec.name, 0)
        if spec.ready is Ready.LISTENING:
            self.at(self.random.uniform(0.05, 2), self.listen, host.name, spec.name)
        if spec.duty is Duty.LAUNCHER:
            ranks = [each for each in self.plan.processes if each.duty is Duty.RANK]
            if self.vanished & {rank.host for rank in ranks if rank.host != self.first}:  # ssh asks for all names first
                self.at(0.5, self.fail, host.name, spec.name, 1)
                return
            for rank in ranks:
                self.at(self.random.uniform(0.2, 1), self.start_rank, rank, host.policy.facts.attempt.number)

    def listen(self, host: str, name: str) -> None:
        if name in self.hosts[host].processes:
            self.happen(host, events.Listening(name=name))

    def start_rank(self, spec: ProcessSpec, attempt: int) -> None:
        host = self.hosts[spec.host]
        if not host.there:
            self.fail_mpirun()
        elif attempt != host.policy.facts.attempt.number or host.policy.facts.attempt.clearing:
            pass  # as the supervisor refuses it
        elif not self.mpirun_failed:
            self.happen(spec.host, events.RankStarted(name=spec.name, pid=1, attempt=attempt))
            self.start(host, spec)

    def ask(self, host: SimulatedHost, name: str) -> None:
        running = host.processes.get(name)
        if running is not None:
            running.prints_on = True
        if running is None or running.ending or (host.name, name) in self.staying:
            return
        if running.spec.duty is Duty.LAUNCHER:
            self.at(0.05, self.fail_mpirun)
        elif running.spec.duty in (Duty.SCRIPT, Duty.RANK) and self.story.scripts != "dies":
            if self.story.scripts == "saves":
                running.ending = True
                self.at(self.random.uniform(0.1, 8), self.end, host.name, name, 0)
        else:
            self.at(self.random.uniform(0.01, 0.5), self.end, host.name, name, 143)

    def fail(self, host: str, name: str, code: int) -> None:
        if code < 128 and self.waits_for_a_reader(host, name, self.fail, code):
            return
        if name in self.hosts[host].processes:
            if self.hosts[host].there and not self.settled():
                spec = self.hosts[host].processes[name].spec
                if self.story.crosses and not self.went_wrong:
                    raises = code in (1, 3) and spec.duty in (Duty.SCRIPT, Duty.RANK, Duty.SIDECAR)
                    self.known_at = self.now if raises else None
                    self.stop_after(0.001)
                self.went_wrong.append((self.now, host, name))
                attempt = messages.report(self.hosts[host].policy.facts).attempt
                if self.story.restarts and code > 128 and spec.restart is not Restart.KEEP:
                    self.given_up.add(attempt)
                if attempt in self.given_up:  # what came later in it is forgiven, too, and mpirun, which may follow it
                    self.tried_again |= {(host, name), (self.first, "mpirun")}
            self.end(host, name, code)

    def settled(self) -> bool:
        """Return whether the job is decided or stopped, so that a process that fails now is not its cause."""
        return any(
            h.policy and (h.policy.facts.outcome or h.policy.facts.stopping_since is not None)
            for h in self.hosts.values()
        )

    def end(self, host: str, name: str, code: int) -> None:
        at = self.hosts[host]
        if code == 0 and self.waits_for_a_reader(host, name, self.end, code):
            return
        running = at.processes.pop(name, None)
        if running is None or not at.alive:
            return
        exit = Exit(code=code, signal=code - 128 if code > 128 else None)
        output = TRACEBACK + f"ValueError: {host} {name}\n" if code in (1, 3) else ""
        if code == 0 and running.spec.key_name:
            self.happen(host, events.PublicKey(name=running.spec.key_name, key=f"{host} key"))
        if code == 0 and name == "prepare":
            self.happen(host, events.Prepared(flags=frozenset()))
        self.happen(host, events.Ended(name=name, exit=exit, output=output))
        if running.spec.duty is Duty.RANK:
            if code:
                self.fail_mpirun()
            else:
                self.mpirun_may_end()
        elif running.spec.duty is Duty.LAUNCHER and code:
            self.fail_mpirun()

    def mpirun_may_end(self) -> None:
        ranks = [spec for spec in self.plan.processes if spec.duty is Duty.RANK]
        left = [spec for spec in ranks if spec.name in self.hosts[spec.host].processes]
        began = [
            spec
            for spec in ranks
            if self.hosts[spec.host].policy and spec.name in self.hosts[spec.host].policy.facts.own.started
        ]
        if not left and len(began) == len(ranks):
            self.at(0.05, self.end, self.first, "mpirun", 0)

    def fail_mpirun(self) -> None:
        """Fail mpirun, which kills the running ranks and ends with 1."""
        if not self.mpirun_failed and "mpirun" in self.hosts[self.first].processes:
            self.mpirun_failed = True
            for spec in self.plan.processes:
                if spec.duty is Duty.RANK and (spec.host, spec.name) not in self.staying:
                    self.at(self.random.uniform(0, 0.3), self.end, spec.host, spec.name, 143)
            self.at(self.random.uniform(0, 0.3), self.end, self.first, "mpirun", 1)

    # --- the wire ---

    def message(self, sender: str, receiver: str, arrive, slow: float = 0.0) -> bool:
        """Send a message with a delay. Return whether it will arrive; a paused host gets it when it goes on."""
        if not self.hosts[sender].alive or self.random.random() < self.story.loss:
            return False
        if not self.hosts[receiver].there or not self.is_called(sender, receiver):
            self.at(self.random.uniform(0.001, 1), self.happen, sender, events.Unreached(host=receiver))
            return False
        self.at(self.random.uniform(0.001, 0.1) + slow, arrive)
        return True

    def send_report(self, name: str, again: bool = True) -> None:
        """Send a report as peers.py does: with every change and heartbeat, and soon again if it did not arrive."""
        host = self.hosts[name]
        last_words = host.outcome is not None
        if not host.alive or host.report is None or (last_words and self.now > host.ended_at + 1.0):
            return
        if self.now < host.frozen_until:
            if again:
                self.at(host.frozen_until - self.now + 0.001, self.send_report, name)
            return
        answered = self.random.random() >= self.story.loss  # a lost answer is a failed call, too
        report, sent = host.report, self.now
        arrived = answered & self.message(
            name, self.first, lambda: self.take_report(report, answered, sent), self.story.slow
        )
        if again and not (last_words and arrived):
            self.at(self.job.settings.heartbeat if arrived else RETRY, self.send_report, name)
        elif not arrived and last_words:
            self.at(RETRY, self.send_report, name, False)

    def take_report(self, report: events.Report, answered: bool, sent: float) -> None:
        first = self.hosts[self.first]
        if not first.there:
            return
        self.links.add(report.host)
        self.happen(self.first, events.Reported(report=report))
        if answered and self.now >= first.frozen_until:
            self.at(0.001, self.answer, report.host, first.news, sent, self.now)

    def answer(self, name: str, news: events.News, sent: float, read: float) -> None:
        """Deliver an answer, by which a follower measures the coordinator's clock."""
        host = self.hosts[name]
        host.clock.compare(sent, read, max(self.now, host.frozen_until))
        self.inform(name, news)

    def inform(self, name: str, news: events.News) -> None:
        clock = self.hosts[name].clock
        self.happen(name, events.Informed(news=news, offset=clock.offset, error=clock.error))


def check(world: World) -> None:
    story, hosts = world.story, world.hosts
    living = [host for host in hosts.values() if host.alive]
    unfinished = [host.name for host in living if host.outcome is None]
    assert not unfinished, f"never ended: {unfinished} at {world.now:.1f}; {story}"
    codes = {host.outcome.exit_code for host in living if host.outcome}
    texts = {host.outcome.failure_text() for host in living if host.outcome}
    first_lives = hosts[world.first].alive
    # A name that is gone before all have met keeps the job from starting.
    misfortune = (
        story.fails or story.dies or story.absent or story.frozen or story.vanish or (story.stop and not story.crosses)
    )
    if not misfortune and not story.late:
        assert codes == {0}, (codes, texts, story)
    # A host that boots when a stopped job has already left finds nobody to agree with.
    # Nor does one that boots when the coordinator's name is gone: to it, that host did not appear.
    found = not (story.late and world.vanished_early and world.first in world.vanished)
    if first_lives and found and not story.frozen and not (story.stop and story.late):
        assert len(codes) <= 1, (codes, texts, story)
        # Where a link has ended, no name leads back and messages are lost, two hosts may each name the other.
        cut_off = story.vanish and story.hang_up and story.loss
        assert len(texts) <= 1 or cut_off, (codes, texts, story)
    for when, where, what in world.went_wrong:
        for host in living:
            assert host.outcome
            # What fell to a host after the job was decided changes nothing any more.
            if host.outcome.kind is Kind.SUCCEEDED and what != "dies" and (where, what) not in world.tried_again:
                raise AssertionError(f"{where} {what} failed at {when:.1f} and {host.name} exited with 0; {story}")
    if story.absent:
        assert 0 not in codes, (codes, story)
    if world.went_wrong and not (story.frozen or story.stop or story.absent) and first_lives and found:
        culprits = {(where, "" if what == "dies" else what) for _, where, what in world.went_wrong}
        if story.restarts:  # what stays is in the way of another attempt
            culprits |= world.staying | {(where, "") for where, _ in world.staying}
        for host in living:
            if host.outcome and host.outcome.cause:
                blamed = (host.outcome.cause.host, host.outcome.cause.process)
                assert blamed in culprits, (blamed, culprits, story)

    undisturbed = not (story.dies or story.absent or story.frozen or story.loss or story.late or story.restarts)
    if world.known_at is not None and undisturbed and story.fails == 1:
        kinds = {host.outcome.kind for host in living if host.outcome}
        assert kinds == {Kind.FAILED}, f"a failure at {world.known_at:.1f} was known before the stop: {kinds}; {story}"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tmp_path_factory.mktemp("base")


def worlds(base: Path, seeds: Iterable[int], **facts) -> Iterator[World]:
    """Run a story with each of these seeds, and check the world. A fact may be a function of the seed."""
    for seed in seeds:
        of_seed = {name: fact(seed) if callable(fact) else fact for name, fact in facts.items()}
        world = World(Story(seed=seed, **of_seed), base).run()
        check(world)
        yield world


def codes(world: World) -> set[int]:
    return {host.outcome.exit_code for host in world.hosts.values() if host.outcome}


by_mode = pytest.mark.parametrize("mode", MODES)


@by_mode
@pytest.mark.parametrize("hosts", [1, 2, 5])
def test_hosts_of_undisturbed_job_succeed_and_end_together(base, mode, hosts):
    for world in worlds(base, range(2), hosts=hosts, mode=mode, per_host=2):
        ends = [host.ended_at for host in world.hosts.values()]
        assert max(ends) - min(ends) < 3


@pytest.mark.parametrize("mode", MODES[1:])
def test_job_succeeds_despite_endless_scripts_outside_the_distribution(base, mode):
    for world in worlds(base, range(2), hosts=4, mode=mode, outside=2):
        assert world.first == "algo-3"
        stopped = [str(host.policy.facts.own.ended.get("script")) for host in world.hosts.values()]
        assert stopped == ["killed by SIGTERM", "killed by SIGTERM", "None", "None"]


@by_mode
def test_restarted_job_succeeds(base, mode):
    """The failure must allow a restart, and no other host may fail. With mpi, seed 36 is the first of these."""
    tried = [world for world in worlds(base, range(36, 60), mode=mode, fails=1, restarts=1) if world.tried_again]
    assert tried
    for world in tried:
        assert codes(world) == {0}, world.story
        assert {host.policy.facts.attempt.number for host in world.hosts.values()} == {1}


@by_mode
@pytest.mark.parametrize("stop", ["all", "one"])
def test_stopped_job_that_saves_ends_with_0(base, mode, stop):
    """A stop before the scripts run is no success, as there was nothing to save."""
    for world in worlds(base, range(5), mode=mode, stop=stop):
        workers = [spec for spec in world.plan.processes if spec.decides or spec.duty is Duty.RANK]
        all_ran = all(spec.name in world.hosts[spec.host].policy.facts.own.ended for spec in workers)
        assert codes(world) == ({0} if all_ran else {143})


@by_mode
@pytest.mark.parametrize("stop", ["all", "one"])
def test_stop_does_not_hide_a_known_failure(base, mode, stop):
    """`check` asserts that such a job fails on every host."""
    found = worlds(base, range(16), mode=mode, stop=stop, crosses=True, fails=1, slow=lambda seed: seed % 2 * 0.4)
    assert [world for world in found if world.known_at is not None]


@by_mode
def test_processes_that_survive_sigkill_delay_no_host(base, mode):
    """The processes survive after a failure, at a stop, and between attempts."""
    stop, restarts = (lambda seed: ["", "all"][seed % 2]), (lambda seed: [0, 2][seed // 2 % 2])
    assert list(worlds(base, range(8), mode=mode, stop=stop, restarts=restarts, fails=1, stays=2))


def test_unkillable_script_outside_the_distribution_does_not_delay_a_stop(base):
    (world,) = worlds(base, [321071], outside=2, loss=0.1, stop="all", stays=2, scripts="ignores")
    assert any(host.policy.facts.own.stuck for host in world.hosts.values() if host.policy), "the seed says so"


@by_mode
@pytest.mark.parametrize("stop", ["", "all"])
def test_unread_output_of_a_host_changes_no_outcome(base, mode, stop):
    """The host's programs wait until their output is read, or until they are terminated."""
    fails, unread = (lambda seed: seed % 2), (lambda seed: 1 + seed % 3)
    for world in worlds(base, range(9), mode=mode, stop=stop, fails=fails, unread=unread):
        assert world.unread_until
        for host in world.hosts.values():
            if host.outcome.kind is Kind.SUCCEEDED and not stop:  # nobody lost patience with a script that was held up
                scripts = [spec.name for spec in world.plan.on(host.name) if spec.decides]
                assert all(name in host.policy.facts.own.ended for name in scripts), world.story


@by_mode
@pytest.mark.parametrize("hang_up", [False, True])
def test_host_with_a_vanished_name_is_not_lost(base, mode, hang_up):
    """The host lives, and its link or its reports reach the coordinator. A process may still need the name to start."""
    found = list(worlds(base, range(16), mode=mode, vanish=lambda seed: 1 + seed % 2, hang_up=hang_up))
    undisturbed = [each for each in found if each.vanished and not each.vanished_early and not each.went_wrong]
    assert undisturbed and all(codes(world) == {0} for world in undisturbed)
    for world in found:
        causes = [host.outcome.cause for host in world.hosts.values() if host.outcome and host.outcome.cause]
        assert not [cause for cause in causes if cause.what.startswith("lost")], (causes, world.story)


stories = st.builds(
    Story,
    seed=st.integers(0, 10**6),
    hosts=st.integers(1, 5),
    mode=st.sampled_from(MODES),
    per_host=st.integers(1, 2),
    outside=st.sampled_from([0, 0, 1, 2]),
    loss=st.sampled_from([0, 0, 0.1, 0.3]),
    slow=st.sampled_from([0, 0, 0.4]),
    fails=st.sampled_from([0, 0, 1, 1, 2]),
    dies=st.sampled_from([0, 0, 0, 1, 2]),
    absent=st.sampled_from([False, False, False, True]),
    late=st.sampled_from([0, 0, 5, 20]),
    frozen=st.sampled_from([0, 0, 0, 1]),
    stop=st.sampled_from(["", "", "all", "one"]),
    crosses=st.sampled_from([False, False, True]),
    stays=st.sampled_from([0, 0, 0, 1, 2]),
    unread=st.sampled_from([0, 0, 0, 1, 2]),
    vanish=st.sampled_from([0, 0, 0, 1, 2]),
    hang_up=st.booleans(),
    restarts=st.sampled_from([0, 0, 1, 3]),
    scripts=st.sampled_from(["saves", "dies", "ignores"]),
)


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(story=stories)
def test_every_random_story_ends_correctly(base, story):
    check(World(story, base).run())
