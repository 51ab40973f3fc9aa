"""Count what a job of many hosts costs: instructions, messages and connections.

Twice the hosts may cost at most twice as much. `python -m benchmarks.many_hosts` measures times, with sockets.
"""

import sys
from collections import Counter

import pytest
from builders import names, read
from test_simulation import Story, World

from entrypoint.launcher.outcome.outcome import Cause
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.policy import Policy
from entrypoint.launcher.policy.rendezvous import ALL_MEET, meets

pytestmark = pytest.mark.unmeasured

FEW, MANY = 25, 100
MODES = ["ps", "mwms", "mpi"]


def instructions(act) -> int:
    """Return how many instructions the interpreter executes for `act`. The number is the same every time."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


class Coordinator:
    """The coordinator's policy, which gets its followers' reports one after another, or several (`swarm`) at once."""

    def __init__(self, base, hosts: int, mode: str, swarm: int = 1) -> None:
        job = read(base, hosts, {}, {"ENTRYPOINT_MODE": mode})
        self.plan, self.swarm = plan_for(job), swarm
        self.policy = Policy(self.plan, "algo-1", job.settings, 0.0)
        self.followers = self.plan.hosts[1:]
        self.now, self.did = 1.0, Counter()
        self.happen(events.Due())

    def happen(self, *happened: events.Event) -> None:
        self.now += 0.001
        for action in self.policy.on(happened, self.now):
            self.did[type(action).__name__] += 1

    def hear(self, **facts) -> None:
        reports = [events.Reported(report=events.Report(host=host, **facts)) for host in self.followers]
        for start in range(0, len(reports), self.swarm):
            self.happen(*reports[start : start + self.swarm])

    def meet(self) -> None:
        steps = [spec.name for spec in self.plan.on("algo-1") if spec.duty == "step"]
        self.hear(public_keys=(("known_hosts", "key"),))
        self.hear(**{**self.well, "ready": self.well["ready"] - {"preflight"}})
        found = tuple(events.Reach(host=host, address="10.0.0.1") for host in self.followers)
        self.happen(events.Probed(found=found))
        self.happen(events.Prepared(flags=frozenset()))
        for name in steps:
            self.happen(events.Ended(name=name, exit=events.Exit(code=0)))
        self.happen(events.Listening(name="sshd"))
        self.hear(**self.well)
        assert any(spec.decides and spec.name in self.policy.facts.own.started for spec in self.plan.on("algo-1"))

    @property
    def well(self) -> dict:
        ready = frozenset(spec.name for spec in self.plan.on("algo-2") if spec.duty in ("step", "server"))
        return {"ready": ready | {"preflight"}, "public_keys": (("known_hosts", "key"),)}

    def fail(self) -> None:
        host = self.followers[len(self.followers) // 2]
        cause = Cause(host=host, process="worker/1", what="exit code 1", error="ValueError: x", code=1)
        self.happen(events.Reported(report=events.Report(host=host, cause=cause, **self.well)))
        self.hear(ack=1, **self.well)
        assert self.policy.facts.outcome is not None and self.policy.facts.outcome.cause == cause

    def end(self) -> None:
        self.hear(ack=1, gone=True, **self.well)


@pytest.mark.parametrize("mode", MODES)
def test_cost_of_a_report_is_independent_of_number_of_hosts(tmp_path, mode):
    """Here, each report comes alone, which is the worst case."""
    spent = []
    for hosts in (FEW, MANY):
        job = Coordinator(tmp_path, hosts, mode)
        spent.append(
            {
                "meet": instructions(job.meet) / hosts,
                "live": instructions(lambda job=job: [job.hear(**job.well) for _ in range(3)]) / hosts,
                "fail": instructions(job.fail) / hosts,
                "end": instructions(job.end) / hosts,
            }
        )
    few, many = spent
    assert all(many[phase] < 1.6 * few[phase] for phase in few), (few, many)


@pytest.mark.parametrize("mode", MODES)
def test_cost_of_a_report_during_probe_is_independent_of_hosts(tmp_path, mode):
    """All hosts have reported, and the coordinator has reached none yet."""
    spent = []
    for hosts in (FEW, 4 * MANY):
        job = Coordinator(tmp_path, hosts, mode)
        job.hear()
        assert job.did["Probe"] == 1
        job.followers = job.followers[:FEW]
        spent.append(instructions(lambda job=job: job.hear(public_keys=(("known_hosts", "key"),))))
    few, many = spent
    assert many < 1.6 * few, (few, many)


def test_heartbeats_update_last_contact_without_other_work(tmp_path, monkeypatch):
    job = Coordinator(tmp_path, FEW, "mwms")
    job.meet()
    looked = Counter()
    advance = Policy._advance
    monkeypatch.setattr(Policy, "_advance", lambda self, now: (looked.update(["once"]), advance(self, now))[1])
    before = job.now
    job.hear(**job.well)
    assert not looked
    assert min(job.policy.facts.hosts.last_contact.values()) > before
    job.hear(**{**job.well, "done": True})
    assert looked["once"] == FEW - 1


def test_reports_that_arrive_together_are_handled_together(tmp_path):
    """The job ends as if the reports came one by one."""
    alone, together = Coordinator(tmp_path, FEW, "mpi"), Coordinator(tmp_path, FEW, "mpi", swarm=FEW)
    for job in (alone, together):
        job.meet()
        job.fail()
        job.end()
    assert together.policy.facts.outcome == alone.policy.facts.outcome
    assert together.did["WritePublicKeys"] <= 3 < alone.did["WritePublicKeys"]


class Counted(World):
    """The simulated job, with counts of its messages."""

    def __init__(self, story: Story, base) -> None:
        self.count = Counter()
        super().__init__(story, base)

    def carry_out(self, host, action) -> None:
        if isinstance(action, events.TellCoordinator | events.TellFollowers):
            self.count[type(action).__name__] += 1
        super().carry_out(host, action)


@pytest.mark.parametrize("mode", MODES)
def test_number_of_announcements_does_not_grow_with_hosts(tmp_path, mode):
    """News go to every host, so each host must not cause news of its own."""
    few, many = (Counted(Story(hosts=hosts, mode=mode), tmp_path).run().count for hosts in (10, 40))
    assert many["TellFollowers"] <= few["TellFollowers"] + 3, (few, many)
    assert many["TellCoordinator"] < 1.5 * 4 * few["TellCoordinator"], (few, many)


def test_each_host_of_a_small_job_probes_all_others():
    hosts = names(ALL_MEET)
    assert all(sorted([*meets(hosts, host), host]) == sorted(hosts) for host in hosts)


@pytest.mark.parametrize("count", [ALL_MEET + 1, 100, 1000])
def test_two_hosts_probe_each_follower_of_a_large_job(count):
    hosts = names(count)
    met = {host: meets(hosts, host) for host in hosts}
    assert met[hosts[0]] == hosts[1:]
    assert all(host not in others and len(others) == len(set(others)) for host, others in met.items())
    tried = Counter(other for others in met.values() for other in others)
    assert min(tried[host] for host in hosts[1:]) >= 2, "by the coordinator and by one other"
    assert sum(tried.values()) < 5 * count
