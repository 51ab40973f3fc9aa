"""What counts as a hang and what does not; and the words for it. Times are made up."""

import pytest

from entrypoint.monitor.hang import Hangs, Place, Still, hangs, in_words, missing
from entrypoint.monitor.horovod import Stalls
from entrypoint.monitor.progress import Progress

AFTER = 600.0
DATA, REDUCE = Place(place="data.py:41 __next__"), Place(place="train.py:9 step", inside="horovod.allreduce")


def job(*used: float | tuple[float, float] | None, seconds: float = AFTER) -> dict:
    """Processes that have shown nothing for so long, by CPUs (and of these, Horovod's thread's); None: one that has."""
    return {
        ("algo-1", f"rank {number}"): None
        if each is None
        else Still(**dict(zip(Still.fields, (seconds, *(each if isinstance(each, tuple) else (each,))), strict=False)))
        for number, each in enumerate(used)
    }


@pytest.mark.parametrize(
    "processes, ranks, hang",
    [
        pytest.param(job(0.0, 0.05, 0.05), True, True, id="all wait"),
        pytest.param(job(0.0, 0.01), False, True, id="parameter servers, one of which is frozen"),
        pytest.param(job(0.0, 1.0, 1.0), True, True, id="one sleeps, the others ask Open MPI again and again"),
        pytest.param(job(0.05, 1.0), True, False, id="one evaluates, the others wait for it"),
        pytest.param(job(1.0, 1.0), True, False, id="a long compilation, or epoch"),
        pytest.param(job((1.0, 0.95), (0.08, 0.08)), True, True, id="Horovod's own threads, and nobody else"),
        pytest.param(job((1.0, 0.02), (0.9, 0.9)), True, False, id="one evaluates, Horovod's threads cycle"),
        pytest.param(job(0.0, 1.0), False, False, id="a chief that saves for long"),
        pytest.param(job(0.0, None), True, False, id="one has printed something"),
        pytest.param(job(0.0, 0.0, seconds=AFTER - 1), True, False, id="not for long enough"),
        pytest.param({}, True, False, id="nothing runs"),
    ],
)
def test_what_hangs(processes, ranks, hang):
    assert hangs(processes, AFTER, ranks) is hang


def test_who_is_missing():
    places = {("algo-2", "rank 3"): DATA, **{("algo-1", f"rank {number}"): REDUCE for number in range(3)}}
    assert in_words(places) == (
        "rank 3 on algo-2 is in data.py:41 __next__, the other 3 wait in train.py:9 step, in horovod.allreduce"
    )
    assert missing(places) == [("algo-2", "rank 3")]


def test_all_at_one_place():
    places = {("algo-1", "rank 0"): DATA, ("algo-2", "rank 1"): DATA}
    assert in_words(places) == "rank 0 on algo-1, rank 1 on algo-2 are in data.py:41 __next__"
    assert missing(places) == list(places)


def test_many_are_named_in_short():
    places = {("algo-1", f"rank {number}"): DATA for number in range(9)}
    assert "rank 3 on algo-1 and 5 more are in" in in_words(places)


class TestHangs:
    """As the coordinator hears of it, line by line."""

    @pytest.fixture
    def heard(self):
        found = Hangs(AFTER, ranks=False)
        for host in ("algo-1", "algo-2"):
            found.note(host, "process", "worker", {"pid": 1})
        return found

    def still(self, heard: Hangs, *hosts: str) -> None:
        for host in hosts:
            heard.note(host, "still", {"worker": [AFTER, 0.0]})

    def stacks(self, heard: Hangs, host: str) -> None:
        heard.note(host, "stacks", "worker", {"place": host, "inside": ""})

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
        heard.note("algo-1", "still", {})
        assert heard.look(5) is None
        self.still(heard, "algo-1")
        heard.look(6)
        assert heard.asked == 2, "it had gone on meanwhile"

    def test_a_host_that_tells_no_stacks_is_not_waited_for_for_ever(self, heard):
        self.still(heard, "algo-1", "algo-2")
        heard.look(0)
        self.stacks(heard, "algo-1")
        assert heard.look(Hangs.COLLECT) is None
        assert str(heard.look(Hangs.COLLECT + 1)["algo-2", "worker"]) == "an unknown place"

    def test_it_goes_on_while_stacks_are_taken(self, heard):
        self.still(heard, "algo-1", "algo-2")
        heard.look(0)
        heard.note("algo-2", "still", {})
        for host in ("algo-1", "algo-2"):
            self.stacks(heard, host)
        assert heard.look(1) is None

    def test_one_that_has_ended_is_not_waited_for(self, heard):
        heard.note("algo-2", "ended", "worker", "exit code 0")
        self.still(heard, "algo-1")
        heard.look(0)
        self.stacks(heard, "algo-1")
        assert list(heard.look(1)) == [("algo-1", "worker")]

    def test_off(self):
        heard = Hangs(0, ranks=False)
        heard.note("algo-1", "process", "worker", {"pid": 1})
        heard.note("algo-1", "still", {"worker": [1e6, 0.0]})
        assert heard.look(0) is None and heard.asked == 0


class TestProgress:
    def look(self, progress: Progress, now: float, cpu: float = 0.0, output: int = 0, gpus=()) -> None:
        progress.look(now, ["a", "b"], {"a": {"cpu": cpu, "output": output}, "b": {"cpu": 0.5}}, gpus)

    def test_seconds_and_processors_since_the_last_sign(self):
        progress = Progress()
        self.look(progress, 0, output=5)
        for now in range(1, 11):
            self.look(progress, now, cpu=0.1)
        assert progress.still(10, least=10) == {"a": [10, 0.1, 0.0], "b": [10, 0.55, 0.0]}
        assert progress.still(10, least=11) == {}

    def test_who_gets_no_processor_is_at_work(self):
        progress = Progress()
        for now in range(11):
            progress.look(now, ["a"], {"a": {"cpu": 0.05}}, threads={"a": (0.9, 0.0)} if now else {})
        assert progress.still(10, least=1)["a"][1] > 0.9

    @pytest.mark.parametrize("sign", [{"output": 1}, {"gpus": [0.0, 0.3]}], ids=["output", "GPU"])
    def test_signs(self, sign):
        progress = Progress()
        for now in range(11):
            self.look(progress, now, **(sign if now == 9 else {}))
        assert progress.still(10, least=5) == {}

    def test_nothing_runs(self):
        assert Progress().still(1000, least=1) == {}


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
    assert stalls.without("rank 0", "step=1\n" + WARNED) == "step=1\n"
    assert stalls.take() == [0, 3]
    assert stalls.take() == []
    first, second = WARNED[: WARNED.index("3:")], WARNED[WARNED.index("3:") :]
    assert stalls.without("rank 0", first) == ""
    assert stalls.without("rank 1", "0: [1]\n") == "0: [1]\n"
    assert stalls.without("rank 0", second + "step=2\n0: [1]\n") == "step=2\n0: [1]\n"
    assert stalls.take() == [0, 3]


def test_whom_horovod_misses_is_to_blame():
    heard = Hangs(AFTER, ranks=True)
    heard.note("algo-1", "stalled", [1])
    assert heard.missing({("algo-1", "rank 0"): DATA, ("algo-2", "rank 1"): REDUCE}) == [("algo-2", "rank 1")]


def test_a_stall_that_is_over_blames_nobody():
    places = {("algo-1", "rank 0"): DATA, ("algo-2", "rank 1"): REDUCE, ("algo-2", "rank 2"): REDUCE}
    heard = Hangs(AFTER, ranks=True)
    heard.note("algo-2", "stalled", [1])
    heard.look(0)
    heard.look(AFTER)
    assert heard.missing(places) == [("algo-2", "rank 1")]
    heard.look(AFTER + 1)
    assert heard.missing(places) == [("algo-1", "rank 0")]
    heard.note("algo-2", "stalled", [2])
    heard.look(AFTER + 2)
    assert heard.missing(places) == [("algo-2", "rank 2")], "and the next one does"
