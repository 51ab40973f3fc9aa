"""Test which jobs count as hanging, and how a hang is described. Times are made up."""

import threading
from types import SimpleNamespace

import pytest
from waiting import eventually

from entrypoint.observe.monitor import stacks
from entrypoint.observe.monitor.hang import NO_STALL, Hangs, hangs, in_words, may_hang, missing
from entrypoint.observe.monitor.output_scan import Stalls
from entrypoint.observe.monitor.silence import LastSigns, Silence
from entrypoint.observe.monitor.threads import Work
from entrypoint.observe.monitor.wait_sites import Doing, Stand
from entrypoint.record.lines import SampleLine, Silent, Stacks, Stalled, line_of

AFTER = 600.0
DATA = Stand(place="data.py:41 __next__", doing=Doing.SLEEPS)
REDUCE = Stand(place="train.py:9 step", inside="horovod.allreduce", doing=Doing.COLLECTIVE)
NOT_SEEN = Stand()


def job(*used: float | dict[str, float] | None, seconds: float = AFTER) -> dict:
    """Return ranks of algo-1 by name.

    CPU use, or fields of Silent, make a silent rank; None makes a rank with progress.
    """
    return {
        ("algo-1", f"rank {number}"): None
        if each is None
        else Silent(seconds=seconds, **(each if isinstance(each, dict) else {"cpus": each}))
        for number, each in enumerate(used)
    }


SPINS = {"cpus": 1.0, "main": 1.0, "ran": 1.0}  # or computes: numbers alone do not tell
LOADS_SLOWLY = {"cpus": 0.01, "main": 0.01, "ran": 0.01, "wakes": 2.0}
POLLS = {"cpus": 0.002, "main": 0.002, "ran": 0.002, "wakes": 20.0}


@pytest.mark.parametrize(
    "processes, may_spin, may_hang_",
    [
        pytest.param(job(0.0, 0.05, 0.05), True, True, id="all wait"),
        pytest.param(job(0.0, 0.01), False, True, id="parameter servers, one of which is frozen"),
        pytest.param(job(0.0, SPINS, SPINS), True, True, id="main threads that may spin"),
        pytest.param(job(0.0, SPINS), False, False, id="main threads where nothing spins"),
        pytest.param(job(0.0, 1.0), True, False, id="other threads of one compute"),
        pytest.param(job({"cpus": 1.0, "waiters": 0.95}, {"cpus": 0.08, "waiters": 0.08}), True, True, id="Horovod's"),
        pytest.param(job({"cpus": 1.0, "waiters": 0.02}, 0.0), True, False, id="one evaluates, Horovod cycles"),
        pytest.param(job(0.0, LOADS_SLOWLY), True, False, id="a loader that is slow and steady"),
        pytest.param(job(0.0, POLLS), True, True, id="one looks again and again for what never comes"),
        pytest.param(job(0.0, None), True, False, id="one has printed something"),
        pytest.param(job(0.0, 0.0, seconds=AFTER - 1), True, False, id="not for long enough"),
        pytest.param({}, True, False, id="nothing runs"),
    ],
)
def test_cpu_usage_shows_whether_a_job_may_hang(processes, may_spin, may_hang_):
    assert may_hang(processes, AFTER, may_spin, NO_STALL) is may_hang_


@pytest.mark.parametrize(
    "processes, stands, stall, hang",
    [
        pytest.param(job(0.0, SPINS), [DATA, REDUCE], NO_STALL, True, id="one sleeps, one spins in a collective"),
        pytest.param(job(0.0, SPINS), [REDUCE, Stand(doing=Doing.WORKS)], NO_STALL, False, id="one evaluates"),
        pytest.param(job(0.0, SPINS), [DATA, NOT_SEEN], NO_STALL, False, id="one is busy, and nobody may look at it"),
        pytest.param(
            job(0.0, SPINS), [NOT_SEEN, NOT_SEEN], Stalled(ranks=[0]), True,
            id="nobody may look, but Horovod misses one that does nothing",
        ),
        pytest.param(
            job(SPINS, SPINS), [NOT_SEEN, NOT_SEEN], Stalled(ranks=[0]), False,
            id="nobody may look, and Horovod misses one that is busy",
        ),
        pytest.param(job(0.0, 0.0), [NOT_SEEN, NOT_SEEN], NO_STALL, True, id="nobody does anything"),
    ],
)  # fmt: skip
def test_stacks_show_whether_a_job_hangs(processes, stands, stall, hang):
    assert hangs(processes, dict(zip(processes, stands, strict=True)), stall) is hang


ONE_SLEEPS = {("algo-2", "rank 3"): DATA, **{("algo-1", f"rank {number}"): REDUCE for number in range(3)}}
TWO = {("algo-1", "rank 0"): REDUCE, ("algo-2", "rank 1"): DATA}
MANY = {("algo-1", f"rank {number}"): DATA for number in range(9)}
ALIKE = {("algo-1", "rank 0"): DATA, ("algo-2", "rank 1"): DATA}


@pytest.mark.parametrize(
    "places, lacking, words",
    [
        (
            ONE_SLEEPS, [("algo-2", "rank 3")],
            "rank 3 on algo-2 is in data.py:41 __next__ (sleeps), "
            "the other 3 wait in train.py:9 step, in horovod.allreduce (waits in a collective)",
        ),
        (TWO, [("algo-2", "rank 1")], "rank 1 on algo-2 is in"),
        (
            {**TWO, ("algo-3", "rank 2"): Stand(place="no code", doing=Doing.STOPPED)}, [("algo-3", "rank 2")],
            "rank 2 on algo-3 is in no code (stopped by a signal), ",
        ),
        (ALIKE, [*ALIKE], "rank 0 on algo-1, rank 1 on algo-2 are in data.py:41 __next__ (sleeps)"),
        (MANY, [*MANY], f"{', '.join(f'rank {n} on algo-1' for n in range(4))} and 5 more are in"),
    ],
    ids=["one of four sleeps", "one of two is in no collective", "one is stopped", "all at one place", "many"],
)  # fmt: skip
def test_processes_blocking_the_others_are_named(places, lacking, words):
    assert missing(places, NO_STALL) == lacking
    assert in_words(places, NO_STALL).startswith(words)


class Heard(Hangs):
    """The coordinator's watch, with the lines that it receives of two hosts."""

    def __init__(self, after: float = AFTER, hosts: tuple[str, ...] = ("algo-1", "algo-2")) -> None:
        super().__init__(after, may_spin=False)
        for host in hosts:
            self.note(host, line_of(["process", 0.0, "worker", {"pid": 1}]))

    def silent(self, *hosts: str) -> "Heard":
        for host in hosts:
            self.note(host, line_of(["still", 0.0, {"worker": [AFTER, 0.0]}]))
        return self

    def stacks(self, *hosts: str, doing: Doing = Doing.LOCK) -> None:
        for host in hosts:
            self.note(host, line_of(["stacks", 0.0, "worker", {"place": host, "inside": "", "doing": doing.value}]))


def test_hang_is_reported_once():
    heard = Heard().silent("algo-1")
    assert heard.look(0) is None and heard.asked == 0
    heard.silent("algo-2")
    assert heard.look(1) is None and heard.asked == 1, "stacks are asked for"
    heard.stacks("algo-1")
    assert heard.look(2) is None
    heard.stacks("algo-2")
    found = {host: stand.place for (host, _), stand in heard.look(3).items()}
    assert found == {"algo-1": "algo-1", "algo-2": "algo-2"}
    assert heard.look(4) is None and heard.asked == 1
    heard.note("algo-1", line_of(["still", 0.0, {}]))
    assert heard.look(5) is None
    heard.silent("algo-1").look(6)
    assert heard.asked == 2, "it had gone on meanwhile"


def test_waiting_for_a_hosts_stacks_is_bounded():
    heard = Heard().silent("algo-1", "algo-2")
    heard.look(0)
    heard.stacks("algo-1")
    assert heard.look(Hangs.COLLECT_SECONDS) is None
    assert str(heard.look(Hangs.COLLECT_SECONDS + 1)["algo-2", "worker"]) == "an unknown place"


def test_job_that_progresses_during_stack_dump_does_not_hang():
    heard = Heard().silent("algo-1", "algo-2")
    heard.look(0)
    heard.note("algo-2", line_of(["still", 0.0, {}]))
    heard.stacks("algo-1", "algo-2")
    assert heard.look(1) is None


def test_stacks_are_taken_again_if_a_process_works():
    heard = Heard().silent("algo-1", "algo-2")
    heard.look(0)
    heard.stacks("algo-1", doing=Doing.WORKS)
    heard.stacks("algo-2")
    assert heard.look(1) is None
    assert heard.look(AFTER) is None and heard.asked == 1
    assert heard.look(AFTER + 1) is None and heard.asked == 2
    heard.stacks("algo-1", "algo-2")
    assert heard.look(AFTER + 2)


def test_stacks_of_an_ended_process_are_not_awaited():
    heard = Heard()
    heard.note("algo-2", line_of(["ended", 0.0, "worker", "exit code 0"]))
    heard.silent("algo-1").look(0)
    heard.stacks("algo-1")
    assert list(heard.look(1)) == [("algo-1", "worker")]


def test_hang_detection_is_off_without_the_setting():
    heard = Heard(after=0, hosts=("algo-1",)).silent("algo-1")
    assert heard.look(0) is None and heard.asked == 0


def sample(used: dict, gpus=(), peer_bytes: float = 0.0) -> SampleLine:
    return SampleLine(seconds=1.0, host={"gpus": gpus}, processes=used, peers={"algo-2": [peer_bytes, 0]})


def look(signs: LastSigns, now: float, cpu=0.0, output=0, gpus=(), peer_bytes=0.0, **more) -> None:
    used = {"a": {"cpu": cpu, "output": output}, "b": {"cpu": 0.5}}
    signs.look(now, ["a", "b"], sample(used, gpus, peer_bytes), **more)


def test_silence_and_cpu_use_count_from_the_last_progress():
    signs = LastSigns()
    look(signs, 0, output=5)
    for now in range(1, 11):
        look(signs, now, cpu=0.1)
    still = signs.still(10, least=10)
    assert {name: numbers[:3] for name, numbers in still.items()} == {"a": [10, 0.1, 0.0], "b": [10, 0.55, 0.0]}
    assert signs.still(10, least=11) == {}
    assert LastSigns().still(1000, least=1) == {}, "nothing runs"


def test_process_starved_of_cpu_counts_as_working():
    signs = LastSigns()
    for now in range(11):
        signs.look(now, ["a"], sample({"a": {"cpu": 0.05}}), threads={"a": Work(waited=0.9)})
    assert signs.still(10, least=1)["a"][1] > 0.9


def test_cpu_use_before_the_averaging_window_does_not_count():
    signs = LastSigns(window=20)
    for now in range(61):
        look(signs, now, cpu=1.0 if now < 40 else 0.0)
    assert signs.still(60, least=1)["a"][1] < 0.1


def test_work_before_thread_sampling_does_not_count():
    signs = LastSigns(window=600)
    for now in range(60):
        look(signs, now, cpu=1.0, **({"threads": {"a": Work(waiters=1.0), "b": Work()}} if now > 20 else {}))
    _, cpus, waiters, *_ = signs.still(59, least=1)["a"]
    assert cpus - waiters < 0.1


@pytest.mark.parametrize(
    "sign, at, is_progress",
    [
        ({"output": 1}, [29], True),
        ({"gpus": [[0.3, 1, 2, 90.0, 0.1]]}, [29], True),
        ({"told": {"a"}}, [29], True),
        ({"peer_bytes": 5e6}, [29], True),
        ({"moved": {"a": 2e6}}, [29], True),
        ({"moved": {"a": 1e5, "b": 1e5}}, range(0, 31, 5), True),
        ({"gpus": [[1.0, 1, 2, 120.0, 0.0]]}, range(31), False),
        ({"peer_bytes": 2e5}, range(31), False),
        ({"moved": {"a": 500.0, "b": 500.0}}, range(31), False),
    ],
    ids=["output", "a GPU", "a message", "bytes between hosts", "bytes of files", "a slow loader",
         "a GPU that waits for another", "Horovod's questions", "a tracker's heartbeats"],
)  # fmt: skip
def test_only_signs_of_training_count_as_progress(sign, at, is_progress):
    signs = LastSigns()
    nothing = {"moved": {"a": 0.0, "b": 0.0}} if "moved" in sign else {}
    for now in range(31):
        look(signs, now, **(sign if now in at else nothing))
    assert (signs.still(30, least=15) == {}) is is_progress


WARNED = """\
[2026-11-25 18:22:30.153037: W /horovod/horovod/common/stall_inspector.cc:107] One or more tensors were submitted \
to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 \
seconds. This may indicate that different ranks are trying to submit different tensors or that only subset of ranks is \
submitting tensors, which will cause deadlock.
Missing ranks:
0: [HorovodAllreduce]
3: [HorovodAllreduce, gradient_1]
"""


def test_horovod_stall_warning_names_missing_ranks_and_is_not_progress():
    stalls = Stalls()

    def told() -> list:
        return [(line.ranks, line.words) for line in stalls.take()]

    assert stalls.without("rank 0", "step=1\n" + WARNED) == "step=1\n"
    assert told() == [([0, 3], "0: [HorovodAllreduce] 3: [HorovodAllreduce, gradient_1]")]
    assert told() == []
    first, second = WARNED[: WARNED.index("3:")], WARNED[WARNED.index("3:") :]
    assert stalls.without("rank 0", first) == ""
    assert stalls.without("rank 1", "0: [1]\n") == "0: [1]\n"
    assert stalls.without("rank 0", second + "step=2\n0: [1]\n") == "step=2\n0: [1]\n"
    assert told() == [([0, 3], "0: [HorovodAllreduce] 3: [HorovodAllreduce, gradient_1]")]


def test_rank_missed_by_horovod_is_named_until_the_stall_ends():
    places = {("algo-1", "rank 0"): DATA, ("algo-2", "rank 1"): REDUCE, ("algo-2", "rank 2"): REDUCE}
    heard = Hangs(AFTER, may_spin=True)
    heard.note("algo-2", line_of(["stalled", 0.0, [1], "1: [HorovodAllreduce]"]))
    heard.look(0)
    heard.look(AFTER)
    assert missing(places, heard.stall) == [("algo-2", "rank 1")]
    assert in_words(places, heard.stall).endswith("; Horovod reports missing 1: [HorovodAllreduce]")
    heard.look(AFTER + 1)
    assert missing(places, heard.stall) == [("algo-1", "rank 0")]
    heard.note("algo-2", line_of(["stalled", 0.0, [2]]))
    heard.look(AFTER + 2)
    assert missing(places, heard.stall) == [("algo-2", "rank 2")], "and the next one does"


def test_one_thread_takes_stacks_and_newest_request_counts(monkeypatch, tmp_path):
    """py-spy stops a process. A second py-spy at the same time would take it for stopped by a signal."""
    begun, go = [], threading.Event()

    def take(families, waiting):
        begun.append(len(begun) + 1)
        number = begun[-1]
        assert go.wait(60)
        return [Stacks(process=f"script {number}")]

    monkeypatch.setattr(stacks, "take", take)
    silence = Silence(SimpleNamespace(), after=2, ranks=False, stacks=tmp_path / "stacks.txt")
    silence.take_stacks(1, {})
    eventually(lambda: begun, within=60)
    silence.take_stacks(2, {})  # the job has shown progress, and is silent again
    assert begun == [1]
    go.set()

    def found():
        silence.take_stacks(2, {})
        return silence.stacks()

    assert [line.process for line in eventually(found, within=60)] == ["script 2"] and begun == [1, 2]
