"""Test what counts as a hang and what does not, and the words for it. Times are made up."""

import pytest

from entrypoint.observe.monitor.hang import NO_STALL, Hangs, hangs, in_words, may_hang, missing
from entrypoint.observe.monitor.output_scan import Stalls
from entrypoint.observe.monitor.silence import LastSigns
from entrypoint.observe.monitor.threads import Work
from entrypoint.observe.monitor.wait_sites import Doing, Stand
from entrypoint.record.lines import SampleLine, Silent, Stalled, line_of

AFTER = 600.0
DATA = Stand(place="data.py:41 __next__", doing=Doing.SLEEPS)
REDUCE = Stand(place="train.py:9 step", inside="horovod.allreduce", doing=Doing.COLLECTIVE)
NOT_SEEN = Stand()


def job(*used: float | dict[str, float] | None, seconds: float = AFTER) -> dict:
    """Return ranks without progress for so long, by CPUs or by fields of Silent; None: a rank with progress."""
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
def test_what_may_hang_by_numbers(processes, may_spin, may_hang_):
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
def test_what_hangs_by_where_they_stand(processes, stands, stall, hang):
    assert hangs(processes, dict(zip(processes, stands, strict=True)), stall) is hang


def test_who_is_missing():
    places = {("algo-2", "rank 3"): DATA, **{("algo-1", f"rank {number}"): REDUCE for number in range(3)}}
    assert in_words(places, NO_STALL) == (
        "rank 3 on algo-2 is in data.py:41 __next__ (sleeps), "
        "the other 3 wait in train.py:9 step, in horovod.allreduce (waits in a collective)"
    )
    assert missing(places, NO_STALL) == [("algo-2", "rank 3")]


def test_one_of_two_who_is_in_no_collective_is_missing():
    places = {("algo-1", "rank 0"): REDUCE, ("algo-2", "rank 1"): DATA}
    assert missing(places, NO_STALL) == [("algo-2", "rank 1")]
    stopped = {**places, ("algo-3", "rank 2"): Stand(place="no code", doing=Doing.STOPPED)}
    assert missing(stopped, NO_STALL) == [("algo-3", "rank 2")]


def test_all_at_one_place():
    places = {("algo-1", "rank 0"): DATA, ("algo-2", "rank 1"): DATA}
    assert in_words(places, NO_STALL) == "rank 0 on algo-1, rank 1 on algo-2 are in data.py:41 __next__ (sleeps)"
    assert missing(places, NO_STALL) == list(places)


def test_many_are_named_in_short():
    places = {("algo-1", f"rank {number}"): DATA for number in range(9)}
    assert "rank 3 on algo-1 and 5 more are in" in in_words(places, NO_STALL)


class TestHangs:
    """Tests of the coordinator's input, line by line."""

    @pytest.fixture
    def heard(self):
        found = Hangs(AFTER, may_spin=False)
        for host in ("algo-1", "algo-2"):
            found.note(host, line_of(["process", 0.0, "worker", {"pid": 1}]))
        return found

    def still(self, heard: Hangs, *hosts: str) -> None:
        for host in hosts:
            heard.note(host, line_of(["still", 0.0, {"worker": [AFTER, 0.0]}]))

    def stacks(self, heard: Hangs, host: str, doing: Doing = Doing.LOCK) -> None:
        heard.note(host, line_of(["stacks", 0.0, "worker", {"place": host, "inside": "", "doing": doing.value}]))

    def test_once_for_each_hang(self, heard):
        self.still(heard, "algo-1")
        assert heard.look(0) is None and heard.asked == 0
        self.still(heard, "algo-2")
        assert heard.look(1) is None and heard.asked == 1, "stacks are asked for"
        self.stacks(heard, "algo-1")
        assert heard.look(2) is None
        self.stacks(heard, "algo-2")
        assert {who: place.place for who, place in heard.look(3).items()} == {
            ("algo-1", "worker"): "algo-1", ("algo-2", "worker"): "algo-2"
        }  # fmt: skip
        assert heard.look(4) is None and heard.asked == 1
        heard.note("algo-1", line_of(["still", 0.0, {}]))
        assert heard.look(5) is None
        self.still(heard, "algo-1")
        heard.look(6)
        assert heard.asked == 2, "it had gone on meanwhile"

    def test_a_host_that_tells_no_stacks_is_not_waited_for_for_ever(self, heard):
        self.still(heard, "algo-1", "algo-2")
        heard.look(0)
        self.stacks(heard, "algo-1")
        assert heard.look(Hangs.COLLECT_SECONDS) is None
        assert str(heard.look(Hangs.COLLECT_SECONDS + 1)["algo-2", "worker"]) == "an unknown place"

    def test_it_goes_on_while_stacks_are_taken(self, heard):
        self.still(heard, "algo-1", "algo-2")
        heard.look(0)
        heard.note("algo-2", line_of(["still", 0.0, {}]))
        for host in ("algo-1", "algo-2"):
            self.stacks(heard, host)
        assert heard.look(1) is None

    def test_where_somebody_works_they_are_looked_at_again_later(self, heard):
        self.still(heard, "algo-1", "algo-2")
        heard.look(0)
        self.stacks(heard, "algo-1", Doing.WORKS)
        self.stacks(heard, "algo-2")
        assert heard.look(1) is None
        assert heard.look(AFTER) is None and heard.asked == 1
        assert heard.look(AFTER + 1) is None and heard.asked == 2
        for host in ("algo-1", "algo-2"):
            self.stacks(heard, host)
        assert heard.look(AFTER + 2)

    def test_one_that_has_ended_is_not_waited_for(self, heard):
        heard.note("algo-2", line_of(["ended", 0.0, "worker", "exit code 0"]))
        self.still(heard, "algo-1")
        heard.look(0)
        self.stacks(heard, "algo-1")
        assert list(heard.look(1)) == [("algo-1", "worker")]

    def test_off(self):
        heard = Hangs(0, may_spin=False)
        heard.note("algo-1", line_of(["process", 0.0, "worker", {"pid": 1}]))
        heard.note("algo-1", line_of(["still", 0.0, {"worker": [1e6, 0.0]}]))
        assert heard.look(0) is None and heard.asked == 0


def sample(used: dict, gpus=(), peer_bytes: float = 0.0) -> SampleLine:
    return SampleLine(seconds=1.0, host={"gpus": gpus}, processes=used, peers={"algo-2": [peer_bytes, 0]})


class TestProgress:
    def look(self, progress: LastSigns, now: float, cpu=0.0, output=0, gpus=(), peer_bytes=0.0, **more) -> None:
        used = {"a": {"cpu": cpu, "output": output}, "b": {"cpu": 0.5}}
        progress.look(now, ["a", "b"], sample(used, gpus, peer_bytes), **more)

    def test_seconds_and_processors_since_the_last_sign(self):
        progress = LastSigns()
        self.look(progress, 0, output=5)
        for now in range(1, 11):
            self.look(progress, now, cpu=0.1)
        still = progress.still(10, least=10)
        assert {name: numbers[:3] for name, numbers in still.items()} == {"a": [10, 0.1, 0.0], "b": [10, 0.55, 0.0]}
        assert progress.still(10, least=11) == {}

    def test_who_gets_no_processor_is_at_work(self):
        progress = LastSigns()
        for now in range(11):
            progress.look(now, ["a"], sample({"a": {"cpu": 0.05}}), threads={"a": Work(waited=0.9)})
        assert progress.still(10, least=1)["a"][1] > 0.9

    def test_work_before_the_last_seconds_is_none_of_now(self):
        progress = LastSigns(window=20)
        for now in range(61):
            self.look(progress, now, cpu=1.0 if now < 40 else 0.0)
        assert progress.still(60, least=1)["a"][1] < 0.1

    def test_what_was_used_before_threads_were_looked_at_is_of_unknown_threads(self):
        progress = LastSigns(window=600)
        for now in range(60):
            threads = {"threads": {"a": Work(waiters=1.0), "b": Work()}} if now > 20 else {}
            self.look(progress, now, cpu=1.0, **threads)
        _, cpus, waiters, *_ = progress.still(59, least=1)["a"]
        assert cpus - waiters < 0.1

    @pytest.mark.parametrize(
        "sign",
        [
            {"output": 1}, {"gpus": [[0.3, 1, 2, 90.0, 0.1]]}, {"told": {"a"}}, {"peer_bytes": 5e6},
            {"moved": {"a": 2e6}},
        ],
        ids=["output", "GPU", "told", "between hosts", "files"],
    )  # fmt: skip
    def test_signs(self, sign):
        progress = LastSigns()
        for now in range(11):
            self.look(progress, now, **(sign if now == 9 else {}))
        assert progress.still(10, least=5) == {}

    @pytest.mark.parametrize(
        "no_sign",
        [{"gpus": [[1.0, 1, 2, 120.0, 0.0]]}, {"peer_bytes": 2e5}, {"moved": {"a": 500.0, "b": 500.0}}],
        ids=["a GPU that waits for another", "Horovod's questions", "a tracker's heartbeats"],
    )
    def test_signs_of_life_are_no_progress(self, no_sign):
        progress = LastSigns()
        for now in range(31):
            self.look(progress, now, **no_sign)
        assert progress.still(30, least=30)

    def test_a_loader_that_reads_slowly_gets_on(self):
        progress = LastSigns()
        for now in range(61):
            self.look(progress, now, moved={"a": 1e5 if now % 5 == 0 else 0.0, "b": 1e5 if now % 5 == 0 else 0.0})
        assert progress.still(60, least=15) == {}

    def test_nothing_runs(self):
        assert LastSigns().still(1000, least=1) == {}


WARNED = """\
[2026-11-25 18:22:30.153037: W /horovod/horovod/common/stall_inspector.cc:107] One or more tensors were submitted \
to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 \
seconds. This may indicate that different ranks are trying to submit different tensors or that only subset of ranks is \
submitting tensors, which will cause deadlock.
Missing ranks:
0: [HorovodAllreduce]
3: [HorovodAllreduce, gradient_1]
"""


def test_horovods_warning_is_no_progress_and_tells_who_is_missing():
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


def test_whom_horovod_misses_is_to_blame():
    heard = Hangs(AFTER, may_spin=True)
    heard.note("algo-1", line_of(["stalled", 0.0, [1], "1: [HorovodAllreduce]"]))
    stands = {("algo-1", "rank 0"): DATA, ("algo-2", "rank 1"): REDUCE}
    assert missing(stands, heard.stall) == [("algo-2", "rank 1")]
    assert in_words(stands, heard.stall).endswith("; Horovod reports missing 1: [HorovodAllreduce]")


def test_a_stall_that_is_over_blames_nobody():
    places = {("algo-1", "rank 0"): DATA, ("algo-2", "rank 1"): REDUCE, ("algo-2", "rank 2"): REDUCE}
    heard = Hangs(AFTER, may_spin=True)
    heard.note("algo-2", line_of(["stalled", 0.0, [1]]))
    heard.look(0)
    heard.look(AFTER)
    assert missing(places, heard.stall) == [("algo-2", "rank 1")]
    heard.look(AFTER + 1)
    assert missing(places, heard.stall) == [("algo-1", "rank 0")]
    heard.note("algo-2", line_of(["stalled", 0.0, [2]]))
    heard.look(AFTER + 2)
    assert missing(places, heard.stall) == [("algo-2", "rank 2")], "and the next one does"
