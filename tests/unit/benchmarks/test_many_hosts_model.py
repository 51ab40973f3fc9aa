"""benchmarks/many_hosts/model: what the simulated network, cores and hosts do, where it can be said beforehand."""

from dataclasses import replace

import pytest

from benchmarks import machine
from benchmarks.many_hosts.model import coordinator, costs, job, limits
from benchmarks.many_hosts.model.core import Agenda, Core, Thread
from benchmarks.many_hosts.model.job import Case, play
from benchmarks.many_hosts.model.network import RTO_MIN, Network
from benchmarks.report import many_hosts_model as page
from benchmarks.report import pages
from benchmarks.report.figures import Measured
from entrypoint.launcher.control.client import NEXT
from entrypoint.launcher.control.probe import PATIENCE

pytestmark = pytest.mark.unmeasured

FREE = costs.Costs(accept=0, request=0, link=0, tell=0, record=0, ask=0, say=0, probe=0, policy=0)
SOME = costs.Costs(
    accept=1e-4, request=3e-4, link=2e-4, tell=2e-5, record=1e-3, ask=2e-4, say=2e-4, probe=2e-4, policy=2e-4
)
QUIET = {"loss": 0.0, "records": False, "steady": 2.0}


@pytest.fixture
def at_once(monkeypatch):
    """All launchers start at the same moment, and their servers listen."""
    monkeypatch.setattr(job, "SPREAD", 0.0)
    monkeypatch.setattr(coordinator, "OPENS", 0.0)


class Dice:
    """Loses packets by a list of 1 (it is lost) and 0; what comes behind the list is not."""

    def __init__(self, *lost: int) -> None:
        self._lost = iter(lost)

    def random(self) -> float:
        return 1 - next(self._lost, 0)


# --- the network ---


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ([], (0.001, True)),
        ([1], (0.001 + RTO_MIN + 0.002, True)),  # the message
        ([0, 1], (0.001, True)),  # only that it was confirmed
        ([1, 1], (0.001 + 3 * (RTO_MIN + 0.002), True)),
        ([1, 1, 1], (None, False)),  # the connection ends
        ([0, 1, 0, 1, 0, 1], (0.001, False)),  # at the end of the one who said it
    ],
)
def test_tcp_says_what_is_lost_again_after_its_timeout_until_the_connection_ends(lost, said):
    network = Network(latency=0.001, loss=0.5, dice=Dice(*lost))
    arrives, confirmed = network.say()
    assert (arrives, confirmed) == (said[0] and pytest.approx(said[0]), said[1])


@pytest.mark.parametrize(("lost", "took"), [([], 0.002), ([1], NEXT + 0.002), ([0, 1, 1], 3 * NEXT + 0.002)])
def test_another_connection_is_tried_before_the_kernel_would_say_a_syn_again(lost, took):
    network = Network(latency=0.001, loss=0.5, dice=Dice(*lost))
    assert network.connect(PATIENCE) == pytest.approx(took)


def test_who_never_answers_is_not_reached():
    assert Network(latency=0.001, loss=1.0).connect(PATIENCE) is None


# --- the core ---


class Counting(Thread):
    def __init__(self, core: Core, seconds: float) -> None:
        super().__init__(core)
        self.seconds, self.began = seconds, list[float]()

    def step(self) -> float:
        self.queue.popleft()
        self.began.append(self.agenda.now)
        return self.seconds


def test_threads_of_a_core_take_turns_and_wait_for_one_another():
    core = Core(Agenda())
    long, short = Counting(core, 1.0), Counting(core, 0.5)
    for _ in range(2):
        long.add("work")
        short.add("work")
    core.agenda.run(10.0)
    assert (long.began, short.began) == ([0.0, 1.5], [1.0, 2.5])
    assert core.busy == 3.0


# --- a job ---


@pytest.mark.parametrize("latency", [0.01, 0.02])
def test_two_hosts_meet_in_four_round_trips(at_once, latency):
    """Connect; report, and hear that all are there; look for the other; report that, and hear that all may start."""
    found = play(Case(hosts=2, latency=latency, **QUIET), FREE)
    assert found["rendezvous_s"] == pytest.approx(8 * latency)


def test_a_failure_is_told_in_a_round_trip_and_a_half_where_nobody_else_is_asked(at_once):
    found = play(Case(hosts=2, latency=0.01, **QUIET), FREE)
    assert found["told_all_s"] > found["verdict_s"] >= 0.01
    assert found["told"] == 1


def test_a_slow_core_makes_it_slower(at_once):
    fast, slow = (play(Case(hosts=30, **QUIET), replace(SOME, slower=slower)) for slower in (1, 8))
    for measure in ("rendezvous_s", "told_all_s", "coordinator_cpu_share", "rendezvous_waited_s"):
        assert slow[measure] > 4 * fast[measure], measure


def test_a_seed_and_fixed_costs_make_the_same_figures():
    case = Case(hosts=20, loss=0.05, steady=5.0)
    assert play(case, SOME) == play(case, SOME) != play(replace(case, seed=2), SOME)


def test_loss_makes_it_late_and_takes_nobody_for_lost():
    well, badly = (play(Case(hosts=30, **{**QUIET, "loss": loss}), FREE) for loss in (0.0, 0.05))
    assert badly["rendezvous_s"] > well["rendezvous_s"] + RTO_MIN
    assert badly["false_alarms"] == 0 == well["links_lost_per_hour"]
    assert badly["told"] == 1


def test_hosts_that_are_hardly_heard_are_taken_for_lost():
    found = play(Case(hosts=10, **{**QUIET, "loss": 0.4, "steady": 300.0}), FREE)
    assert found["false_alarms"] > 0
    assert "told_all_s" not in found


def test_a_full_queue_of_the_kernel_drops_connections_which_come_again(at_once):
    found = play(Case(hosts=60, backlog=8, **QUIET), SOME)
    assert found["dropped"] > 0
    assert found["met"] == 1


def test_who_has_no_descriptor_for_a_connection_that_stays_is_told_with_a_heartbeat(at_once):
    few = 2 * (coordinator.BASE + 10)
    usual, scarce = (play(Case(hosts=30, descriptors=most, **QUIET), SOME) for most in (1 << 20, few))
    assert (usual["links"], scarce["links"]) == (29, 10)
    assert usual["told_all_s"] < 0.2 < scarce["told_all_s"]
    assert scarce["told"] == 1


def test_records_take_the_coordinators_core():
    found = play(Case(hosts=20, loss=0.0, steady=10.0), replace(SOME, record=0.5))
    assert found["coordinator_cpu_share"] == pytest.approx(1.0, abs=0.05)
    few, many = (play(Case(hosts=hosts, loss=0.0, steady=10.0), SOME)["coordinator_cpu_share"] for hosts in (10, 20))
    assert many > 1.5 * few


def test_more_hosts_than_the_launcher_takes_are_planned_and_the_limit_is_there_again():
    assert len(job.planned(2500).plan.hosts) == 2500
    assert limits.allowed()["max_hosts"] == 1000


def test_costs_are_measured():
    found = costs.measure(rounds=1)
    assert all(0 < found.scaled(name) < 0.1 for name in page.COSTS)
    assert found.record > found.accept


# --- the page ---


def test_between_two_sizes_a_limit_is_where_a_line_reaches_it():
    figures = {100: Measured((1.0,)), 300: Measured((3.0,)), 1000: Measured((10.0,))}
    assert page.reaches(figures, 2.0) == 200
    assert page.reaches(figures, 20.0) is None
    runs = [
        {"hosts": hosts, "measures": {"coordinator_cpu_share": share}}
        for hosts, share in ((1000, 0.25), (3000, 0.75), (5000, 1.0))
    ]
    assert page.saturated(runs) == 4000


def test_what_breaks_is_in_the_order_of_the_hosts():
    runs = [
        {"part": "sizes", "hosts": hosts, "seed": 1, "measures": {"told_all_s": hosts / 500, "dropped": 0.0}}
        for hosts in (100, 1000)
    ]
    allowed = {"links": 473, "max_hosts": 1000, "max_tasks": 2000, "tf_config": 7000, "backlog": 4097}
    found = page.breaks(runs, allowed)
    assert [hosts for hosts, _ in found] == [474, 500, 1001, 2001, 4098, 7001]
    assert found[1][1] == "all are told later than 1 s"


def test_the_page_says_what_was_played():
    def run(part, hosts, **measures):
        return {"part": part, "hosts": hosts, "seed": 1, "measures": measures}

    runs = [
        run("sizes", 100, rendezvous_s=0.5, told_all_s=0.1),
        run("sizes", 1000, rendezvous_s=6.0, told_all_s=0.5),
        {**run("loss", 1000, rendezvous_s=9.0, false_alarms=2.0), "loss": 0.2},
        run("hour", 1000, steady_s=3600.0, false_alarms=0.0, links_lost_per_hour=14.0),
    ]
    head = machine.head("many-hosts-model", limits={"latency_ms": 0.5})
    lines = pages.page({**head, "runs": runs, "costs": {"link": 2e-4}}).splitlines()
    assert "| Rendezvous, s | 5.00 | 6.00 | **missed** |" in lines
    assert "| Failure to all hosts told, s | 1.00 | 0.50 | met |" in lines
    assert "- a host that is there is taken for lost with 20 % loss" in lines
    assert "| 20 % loss | 9.00 | never | never | never | 2.00 |" in lines
    assert "| it reads and answers a report over a connection that stays | 200 |" in lines
    text = " ".join(lines)
    assert "In 1.0 h with 1,000 hosts and 1 % loss, 0 hosts that were there were taken for lost; 14 connections" in text
