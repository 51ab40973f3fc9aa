"""Which jobs train together, by what their hosts were seen to exchange. Records are made up."""

import pytest

from entrypoint.monitor.distributed import SECONDS, STEPS, TOGETHER, WORKED, Together

MB = 1_000_000


def seen(*hosts: str, seconds: int, to=None, step=None, cpu: float = 0.9) -> Together:
    """A job of so many seconds, one step a second if `step`: of each host {other: bytes a second}."""
    together = Together(hosts)
    for host in hosts:
        together.note(host, 0.0, "process", "worker", {"pid": 1})
    for now in range(1, seconds + 1):
        for host in hosts:
            peers = {other: [count, count] for other, count in (to or {}).get(host, {}).items()}
            together.note(host, now, "sample", 1.0, {}, {"worker": {"cpu": cpu}}, peers)
            if step is not None:
                together.note(host, now, "metric", "worker", {"step": now, "loss": 1.0})
    return together


ALL = {"algo-1": {"algo-2": MB, "algo-3": MB}, "algo-2": {"algo-1": MB}, "algo-3": {"algo-1": MB}}
HOSTS = ("algo-1", "algo-2", "algo-3")


def test_a_star_trains_together():
    together, words = seen(*HOSTS, seconds=60, to=ALL, step=1).look()
    assert together
    assert words == "distributed: yes: 3 hosts exchange 4.07 MB a step"


def test_without_steps_it_is_told_by_the_second():
    assert "exchange 4 MB a second" in seen(*HOSTS, seconds=60, to=ALL).look()[1]


def test_one_that_exchanges_nothing():
    together, words = seen(*HOSTS, seconds=60, to={"algo-1": {"algo-2": MB}, "algo-2": {"algo-1": MB}}, step=1).look()
    assert not together
    assert words == "distributed: NO: algo-3 trains alone (exchanged nothing with other hosts in 59 steps)"


def test_signs_of_life_are_no_gradients():
    some = {host: dict.fromkeys(others, 20) for host, others in ALL.items()}
    together, words = seen(*HOSTS, seconds=60, to=some, step=1).look()
    assert not together and "every host trains alone (exchanged" in words and "and no gradients" in words


def test_one_end_that_counts_is_enough():
    """On loopback only who has opened a connection knows whose the other end is."""
    together, _ = seen(*HOSTS, seconds=60, to={"algo-1": {"algo-2": MB, "algo-3": MB}}, step=1).look()
    assert together


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"seconds": int(TOGETHER) - 1, "to": ALL, "step": 1}, id="just begun"),
        pytest.param({"seconds": STEPS - 1, "step": 1}, id="few steps, alone"),
        pytest.param({"seconds": int(SECONDS) - 1}, id="no steps, not for long"),
        pytest.param({"seconds": 1000, "cpu": 0.9 * WORKED / 1000}, id="no steps, it waits for its data"),
    ],
)
def test_what_is_not_known_yet(options):
    assert seen(*HOSTS, **options).look() is None


def test_without_steps_it_takes_work_and_time():
    assert seen(*HOSTS, seconds=int(SECONDS)).look()[0] is False


@pytest.mark.parametrize("steps, told", [(STEPS, False), (2 * STEPS, True)])
def test_one_that_is_ahead_waits_for_what_is_known_of_the_others(steps, told):
    together = seen("algo-1", "algo-2", seconds=1)
    together.note("algo-1", 2.0, "metric", "worker", {"step": 0})
    together.note("algo-1", 60.0, "metric", "worker", {"step": steps})
    assert bool(together.look()) is told


def test_said_once():
    together = seen(*HOSTS, seconds=60, to=ALL)
    assert together.look() and together.look() is None


def test_a_host_that_has_not_started_is_waited_for():
    together = seen("algo-1", "algo-2", seconds=60, to=ALL)
    assert Together(HOSTS).look() is None
    assert together.look()[0]


def test_another_attempt_begins_anew():
    together = seen("algo-1", "algo-2", seconds=STEPS - 10, step=1)
    for host in ("algo-1", "algo-2"):
        together.note(host, STEPS, "process", "worker", {"pid": 2})
        together.note(host, STEPS + 20, "metric", "worker", {"step": 2 * STEPS})
    assert together.look() is None
