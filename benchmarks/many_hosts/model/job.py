"""One simulated job: all hosts meet, nothing happens for a while, a script fails, all are told and end."""

import contextlib
import functools
import gc
import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.many_hosts.model.coordinator import Connection, Coordinator
from benchmarks.many_hosts.model.core import Agenda
from benchmarks.many_hosts.model.costs import PIECE, Costs
from benchmarks.many_hosts.model.follower import HEAD, Follower
from benchmarks.many_hosts.model.network import Network
from benchmarks.many_hosts.worker import SAID, trivial
from entrypoint.base.values import replace
from entrypoint.launcher.control.wire import to_json
from entrypoint.launcher.job import config, files
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.outcome.outcome import Exit
from entrypoint.launcher.plan.fingerprint import fingerprint
from entrypoint.launcher.plan.plan import Duty, Plan, ProcessSpec
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.policy import Policy
from entrypoint.observe.monitor.monitor import EARLY, REVIEW

SPREAD = 0.05  # seconds within which all launchers start
STEP = 0.01  # seconds that the prepare step takes, and a script to its end after SIGTERM
SETTLE = 2.0  # seconds after the rendezvous before the steady state is looked at
LONG = 90.0  # seconds of the steady state, beyond which its policies are asked only when something happens
LIMIT = 600.0  # seconds for anything


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is simulated. `backlog` is net.core.somaxconn of Linux since 5.4, and what the server asks for."""

    hosts: int
    seed: int = 1
    latency: float = 0.0005  # seconds, one way
    loss: float = 0.01  # of packets
    steady: float = 60.0  # seconds in which nothing happens
    records: bool = True  # whether the monitors bring their records
    backlog: int = 4096
    descriptors: int = 1 << 20  # RLIMIT_NOFILE, as Docker has it
    fails: bool = True  # whether a script fails at the end


@dataclass(frozen=True)
class Planned:
    """What the hosts of a job share, as it never changes."""

    job: Job
    plan: Plan
    rows: dict[str, tuple[ProcessSpec, ...]]
    fingerprints: dict[str, str]


@functools.lru_cache(maxsize=2)
def planned(hosts: int) -> Planned:
    """Return the plan of MultiWorkerMirrored workers, one on each host, however many the launcher takes."""
    with tempfile.TemporaryDirectory(prefix="model-") as folder, without_limits():
        job = read(Path(folder), hosts)
        plan = plan_for(job)
        prints = fingerprint(job, plan)
    plan = trivial(plan)
    rows: dict[str, tuple[ProcessSpec, ...]] = {}
    for spec in plan.processes:
        rows[spec.host] = (*rows.get(spec.host, ()), spec)
    return Planned(job, plan, rows, prints)


def read(base: Path, hosts: int) -> Job:
    there = base / "input" / "config"
    there.mkdir(parents=True)
    names = [f"algo-{number + 1}" for number in range(hosts)]
    resources = {"current_host": names[0], "hosts": names, "network_interface_name": "lo"}
    (there / "resourceconfig.json").write_text(json.dumps(resources))
    (there / "hyperparameters.json").write_text('{"sagemaker_program": "train.py"}')
    return config.read_job(base, {"ENTRYPOINT_MODE": "mwms"}, base / "run")


@contextlib.contextmanager
def without_limits() -> Iterator[None]:
    """Let jobs be larger than the launcher takes them."""
    with mock.patch.object(files, "MAX_HOSTS", 10**6), mock.patch.object(config, "MAX_TASKS", 10**6):
        yield


class World:
    """The hosts of a job, and what is counted of them."""

    def __init__(self, case: Case, costs: Costs) -> None:
        shared = planned(case.hosts)
        self.case, self.costs, self.plan, self.settings = case, costs, shared.plan, shared.job.settings
        self.agenda, self.dice = Agenda(), random.Random(f"{case.seed} {case.hosts}")
        self.network = Network(case.latency, case.loss, self.dice)
        self._fingerprinted = events.Fingerprinted(fingerprints=shared.fingerprints)
        _, self.fingerprint_s = costs.of(lambda: fingerprint(shared.job, shared.plan))
        self.is_steady = False  # nothing happens but heartbeats
        self._sizes: dict[Any, int] = {}
        self.counts = Counter[str]()
        self.busiest = Counter[int]()  # connections, by the second
        self.started: set[str] = set()  # hosts whose script runs
        self.started_at = 0.0  # the last of them
        self.told: dict[str, float] = {}
        self.gone: dict[str, float] = {}
        first, *others = shared.plan.hosts
        self.coordinator = Coordinator(self, Policy(shared.plan, first, self.settings, 0.0))
        self.followers = {name: Follower(self, name, self._policy_of(name, others, shared.rows)) for name in others}
        for host in (self.coordinator, *self.followers.values()):
            self.agenda.at(self.dice.uniform(0, SPREAD), host.boot)
        for host in self.followers.values() if case.records else ():
            self.agenda.at(EARLY + self.dice.uniform(0, REVIEW), self._bring_record, host)

    def _policy_of(self, name: str, others: list[str], rows: dict[str, tuple[ProcessSpec, ...]]) -> Policy:
        """Return a follower's, which looks at no rows but its own, and only whether there are other hosts."""
        policy = Policy(replace(self.plan, processes=rows[name]), name, self.settings, 0.0)
        policy.facts.others = others
        return policy

    @property
    def is_long(self) -> bool:
        """Whether heartbeats are too many for the coordinator's policy to be asked about each."""
        return self.is_steady and self.case.steady > LONG

    # --- what hosts do ---

    def fingerprinted(self) -> events.Fingerprinted:
        return self._fingerprinted

    def start(self, host: Any, spec: ProcessSpec, now: float) -> None:
        if spec.duty is Duty.STEP:
            self.agenda.at(now + STEP, host.happen, events.Prepared(flags=frozenset()))
            self.agenda.at(now + STEP, host.happen, events.Ended(name=spec.name, exit=Exit(code=0)))
        else:
            self.started.add(host.name)
            self.started_at = now

    def end_process(self, host: Any, name: str, now: float) -> None:
        self.agenda.at(now + STEP, host.happen, events.Ended(name=name, exit=Exit(code=143, signal=15)))

    def fail(self, host: Follower) -> None:
        """Let a script raise."""
        name = next(spec.name for spec in host.policy.facts.own.specs.values() if spec.duty is Duty.SCRIPT)
        host.happen(events.Ended(name=name, exit=Exit(code=1), output=SAID))

    def _bring_record(self, host: Follower) -> None:
        """Bring what is new of a record, over a connection of its own; what is lost is brought later."""
        if host.is_over or self.coordinator.is_over:
            return
        self.agenda.at(self.agenda.now + REVIEW, self._bring_record, host)
        brings = Connection(host, "record", size=len(PIECE) + HEAD)
        if not self.coordinator.server.is_full():
            self.coordinator.server.connected(brings)
            self.coordinator.server.arrived(brings)

    def reach(self, host: str, took: float | None) -> events.Reach:
        return events.Reach(host=host, address="10.0.0.1", why="" if took is not None else "no answer")

    def size_of(self, message: events.Report | events.News) -> int:
        """Return its bytes on the wire; of a host's, those that another host's with the same in it has."""
        if isinstance(message, events.News):
            return len(json.dumps(to_json(message)))
        shape = message.ready, message.ack, message.done, message.gone, len(message.exits), message.cause is None
        if (size := self._sizes.get(shape)) is None:
            size = self._sizes[shape] = len(json.dumps(to_json(message)))
        return size

    # --- what is seen ---

    def count(self, what: str, times: int = 1) -> None:
        self.counts[what] += times
        if what == "connections":
            self.busiest[int(self.agenda.now)] += 1

    def note(self, host: Any) -> None:
        if host.policy.facts.outcome is not None and host.name not in self.told:
            self.told[host.name] = self.agenda.now

    def ended(self, host: Any, now: float) -> None:
        self.gone[host.name] = now

    # --- the story ---

    def play(self) -> dict[str, float]:
        """Return what is measured, by its name."""
        agenda, coordinator, hosts = self.agenda, self.coordinator, self.case.hosts
        found: dict[str, float] = {}
        agenda.run(LIMIT, lambda: len(self.started) == hosts or bool(self.told))
        found["met"] = len(self.started) / hosts
        if len(self.started) == hosts:
            found["rendezvous_s"] = self.started_at
        found["rendezvous_coordinator_cpu_s"] = coordinator.core.busy
        found["rendezvous_waited_s"], coordinator.waited = coordinator.waited, 0.0
        found["rendezvous_bytes_in"], found["rendezvous_bytes_out"] = self.counts["bytes_in"], self.counts["bytes_out"]
        found["connections_a_second"] = max(self.busiest.values(), default=0)
        found["backlog"], found["dropped"] = coordinator.server.most_waiting, coordinator.server.dropped
        found["failed_calls"] = self.counts["failed_calls"]

        agenda.run(agenda.now + SETTLE)
        self.is_steady = True
        before, busy, began = Counter(self.counts), coordinator.core.busy, agenda.now
        coordinator.waited = 0.0
        agenda.run(began + self.case.steady, lambda: bool(self.told))
        self.is_steady, seconds = False, max(agenda.now - began, 1e-9)
        steady = {name: (self.counts[name] - before[name]) / seconds for name in self.counts}
        found["steady_s"] = seconds
        found["coordinator_cpu_share"] = (coordinator.core.busy - busy) / seconds
        found["requests_per_s"] = steady.get("requests", 0.0)
        found["bytes_in_per_s"], found["bytes_out_per_s"] = steady.get("bytes_in", 0.0), steady.get("bytes_out", 0.0)
        found["links_lost_per_hour"] = 3600 * steady.get("links_lost", 0.0)
        found["steady_waited_s"], coordinator.waited = coordinator.waited, 0.0
        found["links"] = len(coordinator.links)
        blamed = {noted.cause.host for noted in coordinator.policy.facts.attempt.causes}
        blamed |= {name for name, each in self.followers.items() if each.policy.facts.attempt.causes}
        found["false_alarms"] = len(blamed)
        if self.case.fails and not blamed and len(self.started) == hosts:
            found |= self._fail()
        return found

    def _fail(self) -> dict[str, float]:
        agenda, coordinator, hosts = self.agenda, self.coordinator, self.case.hosts
        began, busy, before = agenda.now, coordinator.core.busy, Counter(self.counts)
        self.fail(self.dice.choice(list(self.followers.values())))
        agenda.run(began + LIMIT, lambda: len(self.gone) == hosts)
        found = {
            "told": len(self.told) / hosts,
            "end_coordinator_cpu_s": coordinator.core.busy - busy,
            "end_waited_s": coordinator.waited,
            "end_bytes_in": self.counts["bytes_in"] - before["bytes_in"],
            "end_bytes_out": self.counts["bytes_out"] - before["bytes_out"],
        }
        if len(self.told) == hosts:
            found["verdict_s"] = self.told[coordinator.name] - began
            found["told_all_s"] = max(self.told.values()) - began
        if len(self.gone) == hosts:
            found["all_ended_s"] = max(self.gone.values()) - began
        return found


def play(case: Case, costs: Costs) -> dict[str, float]:
    """Play a job, without the collector of garbage: what it does is no host's work."""
    world = World(case, costs)
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        return world.play()
    finally:
        gc.enable()
        gc.unfreeze()
