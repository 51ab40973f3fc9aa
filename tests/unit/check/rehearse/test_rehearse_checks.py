"""Test each check of a rehearsal on a run with its fault, and on one without."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from entrypoint.base.severity import Severity
from entrypoint.check.finding import Finding, fine, goes, note, warning
from entrypoint.check.instance_types import memory_of
from entrypoint.check.rehearse.rehearsal import Rehearsal, RehearsedRequest, as_json, as_text
from entrypoint.check.rehearse.rehearse import CHECKS
from entrypoint.check.rehearse.results import RunName, SeenHost, SeenProcess, SeenRun
from entrypoint.check.rehearse.runs import RunEnd
from entrypoint.check.rehearse.sample import ChannelSample
from entrypoint.launcher.job.channels import Distribution
from entrypoint.launcher.outcome.outcome import Kind
from entrypoint.simulate.local_channels import ChannelMode, LocalChannel

GIB = 1 << 30
CHECKPOINT = "/out/checkpoints/plain/ckpt-10"


def host(name: str, files: tuple[str, ...], **more: Any) -> SeenHost:
    metrics = tuple((10.0 + second, "script", {"step": 10.0 * second + 10, "loss": 0.5}) for second in range(20))
    given = {
        "processes": (SeenProcess(name="script", role="worker", began=9.0, ended=31.0, how="exit code 0"),),
        "metrics": metrics,
        "memory": GIB,
        "first": (("step", 0.0),),
        "dealt": (("training", files),),
        "read": (("training", files),),
        **more,
    }
    return SeenHost(name=name, **given)


def run(name: str, acted: float | None = 30.0, **more: Any) -> SeenRun:
    kept = more.pop("kept", ((15.0, CHECKPOINT), (31.0, CHECKPOINT)))
    given = {
        "hosts": (host("algo-1", ("a", "c")), host("algo-2", ("b", "d"))),
        "kind": "stopped",
        "together": (True, "distributed: yes: 2 hosts exchange 2 MB a step"),
        "log": f"/out/{name}.log",
        **more,
    }
    kind = given.pop("kind")
    return SeenRun(
        name=RunName(name),
        kind=Kind(kind) if kind else None,
        ended=RunEnd(code=0, began=8.0, ended=32.0, acted=acted, kept=kept),
        **given,
    )


PLAIN, KILL = run("plain"), run("kill", kind="failed", cause="algo-2 (does not answer)")
RESUME = run(
    "resume", hosts=(host("algo-1", (), first=(("step", 150.0),)), host("algo-2", (), first=(("step", 151.0),)))
)
SAMPLE = ChannelSample(
    channel=LocalChannel(name="training", source=Path("/out/samples/training"), distribution=Distribution.SHARDED),
    where="s3://bucket/rows", kind="TFRecord", records=2000, files=4, of_files=4, size=1000, of_size=100_000,
)  # fmt: skip
HEALTHY = Rehearsal(
    request=RehearsedRequest(
        title="mwms: the script as worker on each of 2 hosts", mode="mwms", hosts=2,
        instance_types=("ml.c5.xlarge",), keeps_checkpoints=True, hyperparameters={"max_steps": "36000"},
    ),
    engine="netns", hosts=2, samples=(SAMPLE,), runs=(PLAIN, KILL, RESUME),
)  # fmt: skip


def findings(case: Rehearsal, check: str = "") -> list[Finding]:
    found = [finding for each in CHECKS for finding in each(case)]
    return [finding for finding in found if not check or finding.check == check]


def told(case: Rehearsal, check: str) -> list[tuple[str, str]]:
    """Return (level, words) of what is not fine."""
    return [(str(each.severity), each.found) for each in findings(case, check) if each.severity is not Severity.FINE]


def with_plain(**more: Any) -> Rehearsal:
    acted = more.pop("acted", 30.0)
    return replace(HEALTHY, runs=(run("plain", acted, **more),))


def asking(**more: Any) -> Rehearsal:
    return replace(HEALTHY, request=replace(HEALTHY.request, **more))


def test_a_healthy_job_is_a_go() -> None:
    found = findings(HEALTHY)
    assert goes(found)
    assert {each.check for each in found if each.severity > Severity.FINE} == {"hours"}, as_text(found)
    assert {each.check for each in found} == {
        "plan", "data", "end", "shards", "distributed", "speed", "memory", "stop", "checkpoints", "kill", "resume",
        "hours",
    }  # fmt: skip


def test_what_is_not_fine_says_what_to_do() -> None:
    assert all(each.instead for each in findings(HEALTHY) if each.severity >= Severity.WARNING)
    assert not goes([fine("end", ""), Finding(check="end", severity=Severity.ERROR, found="")])
    assert goes([note("end", ""), warning("end", "", "")])


def test_what_was_left_out_as_no_data_is_a_note() -> None:
    case = replace(HEALTHY, samples=(replace(SAMPLE, no_data=("_SUCCESS", ".a.crc")),))
    ((level, words),) = told(case, "data")
    assert level == "note" and words.startswith(
        "training: _SUCCESS, .a.crc are ignored, as they are not data; SageMaker delivers"
    )


class TestPlain:
    def test_a_crash(self) -> None:
        case = with_plain(kind="failed", cause="algo-2 script (exit code 1): ValueError: no rows", acted=None)
        ((level, words),) = told(case, "end")
        assert level == "error" and "ValueError: no rows" in words
        assert not [each for each in findings(case) if each.check in ("stop", "checkpoints", "speed", "hours", "memory")
                    if each.check != "memory"]  # fmt: skip

    def test_an_end_without_a_word(self) -> None:
        case = with_plain(kind="", hosts=(), last_lines=("Killed",))
        ((level, words),) = told(case, "end")
        assert level == "error" and "Killed" in words

    def test_a_stop_that_a_script_calls_a_failure_is_none(self) -> None:
        assert told(with_plain(kind="failed", cause="algo-1 script (killed by SIGTERM)"), "end") == []

    def test_other_things_are_rehearsed_than_asked_for(self) -> None:
        case = asking(hosts=8, processes_per_host=4, moved=("model_dir",), unmoved=("rows",), ours=False, others=2)
        found = {each.check: each for each in findings(case) if each.severity is not Severity.FINE}
        assert "2 simulated hosts stand for 8" in found["hosts"].found
        assert "1 on each host, where the request makes 4" in found["processes"].found
        assert found["plan"].severity is Severity.WARNING and "2 further requests" in found["launch"].found
        places = [each.found for each in findings(case, "places")]
        assert places[0].startswith("model_dir: a folder") and places[1].startswith("rows name S3")

    def test_one_that_shows_nothing_of_a_training(self) -> None:
        """It may still import TensorFlow: not failing is no proof of training."""
        silent = tuple(replace(each, metrics=(), first=(), read=(("training", ()),)) for each in PLAIN.hosts)
        case = with_plain(hosts=silent, together=None, kept=())
        assert told(case, "end")[0][0] == "error" and told(case, "shards") == []
        reads = (replace(silent[0], read=(("training", ("a",)),)), silent[1])
        ((level, words),) = told(with_plain(hosts=reads, together=None, kept=()), "end")
        assert level == "warning" and "until it was stopped, and no step was seen" in words
        assert told(with_plain(hosts=reads, kept=()), "end") == []  # they exchange data

    @pytest.mark.parametrize("name", ["plain", "stop"])
    def test_one_that_was_started_again(self, name: str) -> None:
        words = "attempt 0 failed: algo-2 worker/1 (killed by SIGKILL)"
        hosts = host("algo-1", ("a",), failures=(words,), saved=1), host("algo-2", ("b",), failures=("worker/1 ...",))
        runs = run("plain", None, kind="succeeded"), run("stop")
        case = replace(HEALTHY, runs=tuple(replace(each, hosts=hosts) if each.name == name else each for each in runs))
        assert told(case, "end") == [("warning", f"it failed, and was started again: {words}")] and goes(findings(case))
        single = with_plain(hosts=(host("algo-1", (), failures=("algo-1 worker/0 was started again: exit code 1",)),))
        assert "algo-1 worker/0 was started again: exit code 1" in told(single, "end")[0][1]

    def test_hosts_that_end_differently(self) -> None:
        hosts = host("algo-1", ("a", "c"), kind="succeeded"), host("algo-2", ("b", "d"))
        case = with_plain(acted=None, kind="succeeded", hosts=hosts)
        plain = replace(case.plain, ended=replace(case.plain.ended, code=137))
        ((level, words),) = told(replace(case, runs=(plain,)), "end")
        assert level == "error"
        assert words.endswith("with code 137: algo-1: succeeded, algo-2: no end in its record")

    def test_paths_of_a_real_host_on_hosts_that_are_processes(self) -> None:
        fixed = asking(fixed=("train.py:3",))
        assert told(fixed, "places") == []
        assert "train.py:3" in told(replace(fixed, own_ml=False), "places")[0][1]

    def test_one_that_never_begins(self) -> None:
        assert told(with_plain(acted=None, kind="stopped", hosts=()), "end")[0][0] == "error"

    def test_one_that_leaves_no_model(self) -> None:
        case = with_plain(acted=None, kind="succeeded")
        assert told(case, "model") == [("warning", "it saved no model in /opt/ml/model")]
        assert told(replace(case, request=replace(case.request, moved=("model_dir",))), "model") == []
        saving = with_plain(acted=None, kind="succeeded", hosts=(host("algo-1", (), saved=1),))
        assert told(saving, "model") == []

    def test_memory(self) -> None:
        def using(count: int, instance_type: str) -> list[tuple[str, str]]:
            case = with_plain(hosts=(host("algo-1", (), memory=count),))
            return told(replace(case, request=replace(case.request, instance_types=(instance_type,))), "memory")

        assert using(4 * GIB, "ml.c5.xlarge") == []
        assert using(7 * GIB, "ml.c5.xlarge") == [("warning", "7 GiB at most on algo-1, of the 8 GiB of ml.c5.xlarge")]
        assert using(9 * GIB, "ml.c5.xlarge") == [("error", "9 GiB at most on algo-1, and ml.c5.xlarge has 8 GiB")]
        assert (
            "0.977 GiB at most"
            in findings(with_plain(hosts=(host("algo-1", (), memory=1000 << 20),)), "memory")[0].found
        )
        ((level, words),) = using(GIB, "ml.new.xlarge")
        assert level == "note" and "ml.new.xlarge has is not known here" in words

    @pytest.mark.parametrize(
        ("name", "gib"),
        [("m5.large", 8), ("c5.18xlarge", 144), ("p3.8xlarge", 244), ("g5.48xlarge", 768), ("r5.4xlarge", 128)],
    )  # fmt: skip
    def test_instances(self, name: str, gib: int) -> None:
        assert memory_of(f"ml.{name}") == gib * GIB
        assert memory_of("ml.m5.huge") is memory_of("local") is None

    def test_speed(self) -> None:
        assert "10 steps a second" in findings(HEALTHY, "speed")[0].found
        silent = with_plain(hosts=(host("algo-1", (), metrics=()),))
        assert told(silent, "speed")[0][0] == "note"

    @pytest.mark.parametrize("values", [{"step": 7.0}, {"epoch": 1.0, "epochs": 30.0}])
    def test_steps_that_were_seen_once_have_no_rate(self, values: dict[str, float]) -> None:
        case = with_plain(hosts=(host("algo-1", ("a", "c"), metrics=((10.0, "script", values),)),))
        found = findings(replace(case, price=2.0, speedup=10.0))
        assert goes(found)
        assert {"speed", "hours"} <= {each.check for each in found if each.severity is Severity.NOTE}
        assert as_json(case, found)["runs"][0]["steps_per_second"] is None


class TestShards:
    def reading(self, *reads: tuple[str, ...] | None, kind: str = "succeeded") -> list[tuple[str, str]]:
        dealt = (("a", "b"), ("a", "b"))
        hosts = tuple(
            host(f"algo-{rank + 1}", files, read=None if read is None else (("training", read),))
            for rank, (files, read) in enumerate(zip(dealt, reads, strict=True))
        )
        return told(with_plain(hosts=hosts, kind=kind, acted=None if kind == "succeeded" else 30.0), "shards")

    def test_each_file_by_one_host(self) -> None:
        assert self.reading(("a",), ("b",)) == []

    def test_files_that_all_hosts_read(self) -> None:
        ((level, words),) = self.reading(("a", "b"), ("a", "b"))
        assert level == "note" and "2 of 2 files were opened by several hosts" in words

    def test_files_that_nobody_reads(self) -> None:
        assert ("warning", "training: no host has read any file of it") in self.reading((), ())
        (level, words), *_ = self.reading(("a",), ("a",))
        assert level == "warning" and "1 of 2 files were not read, such as b" in words
        assert self.reading(("a",), ("a",), kind="stopped")[0][0] == "note"

    def test_a_host_that_reads_nothing(self) -> None:
        assert ("warning", "training: algo-2 read nothing of it") in self.reading(("a", "b"), ())

    def test_what_cannot_be_seen(self) -> None:
        assert "does not show" in self.reading(None, None)[0][1]
        piped = replace(SAMPLE, channel=replace(SAMPLE.channel, mode=ChannelMode.PIPE))
        assert "streamed" in told(replace(HEALTHY, samples=(piped,)), "shards")[0][1]

    def test_fewer_files_than_hosts(self) -> None:
        few = replace(HEALTHY, samples=(replace(SAMPLE, of_files=1),))
        ((level, words),) = told(few, "shards")
        assert level == "error" and "1 files for 2 hosts: 1 of them get nothing" in words
        empty = with_plain(hosts=(host("algo-1", ("a",)), host("algo-2", ())))
        assert ("error", "training: algo-2 got no file of the sample") in told(empty, "shards")

    def test_files_that_cannot_be_dealt_evenly(self) -> None:
        ((level, words),) = told(replace(HEALTHY, samples=(replace(SAMPLE, of_files=5),)), "shards")
        assert level == "warning" and "some of which get one more" in words

    def test_files_that_are_left_out(self) -> None:
        assert told(replace(HEALTHY, samples=(replace(SAMPLE, left_out=3),)), "data")[0][0] == "warning"


class TestDistributed:
    NO = (False, "distributed: NO: every host trains alone (exchanged nothing with other hosts in 200 steps)")

    def test_hosts_that_train_alone(self) -> None:
        ((level, words),) = told(with_plain(together=self.NO), "distributed")
        assert level == "error" and words.startswith("NO: every host trains alone")

    def test_no_distribution_was_asked_for(self) -> None:
        case = asking(mode="single")
        unknown = replace(case, runs=(replace(case.plain, together=None), *case.runs[1:]))
        ((level, words),) = told(unknown, "distributed")
        assert level == "error" and "no distribution was asked for" in words
        assert told(asking(mode="single", meant_alone=True), "distributed")[0][0] == "note"

    def test_what_is_not_known(self) -> None:
        assert told(with_plain(together=None), "distributed")[0][0] == "note"
        ranks = replace(with_plain(together=None), engine="process")
        ranks = replace(ranks, request=replace(ranks.request, mode="mpi"))
        ((level, words),) = told(ranks, "distributed")
        assert level == "note" and "share its memory" in words
        # What their framework itself shows is known there, too.
        alone = replace(ranks, runs=(replace(ranks.plain, together=self.NO), *ranks.runs[1:]))
        assert told(alone, "distributed")[0][0] == "error"

    def test_what_is_missing_is_named(self) -> None:
        missing = "train.py:31 makes the model outside of strategy.scope()"
        (finding,) = findings(with_plain(together=self.NO, missing=missing), "distributed")
        assert missing in str(finding)

    def test_a_script_that_joins_its_hosts_itself(self) -> None:
        case = asking(mode="single")
        yes = replace(case.plain, together=(True, "distributed: yes: 2 hosts exchange 8 MB a step"))
        assert told(replace(case, runs=(yes, *case.runs[1:])), "distributed") == []

    def test_one_host_is_not_asked(self) -> None:
        assert findings(with_plain(hosts=(host("algo-1", ()),)), "distributed") == []


class TestStop:
    def test_one_that_ignores_it(self) -> None:
        killed = (SeenProcess(name="script", role="worker", began=9.0, ended=31.0, how="killed by SIGKILL"),)
        case = with_plain(hosts=(host("algo-1", (), processes=killed),))
        (level, words), *_ = told(case, "stop")
        assert level == "warning" and "algo-1 script had to be killed after 100 s" in words

    def test_a_spot_instance_does_not_wait_for_one_that_ignores_it(self) -> None:
        killed = (SeenProcess(name="script", role="worker", began=9.0, ended=31.0, how="killed by SIGKILL"),)
        case = with_plain(hosts=(host("algo-1", (), processes=killed),))
        assert told(replace(case, request=replace(case.request, spot=True)), "stop")[0][0] == "error"

    def test_one_that_takes_too_long(self) -> None:
        (level, words), *_ = told(with_plain(acted=-100.0), "stop")
        assert level == "error" and "took 2.2 min to end; SageMaker kills after 120 s" in words

    def test_one_that_leaves_nothing(self) -> None:
        assert told(with_plain(kept=()), "stop") == [
            ("warning", "it saves neither a checkpoint nor a model when it is stopped")
        ]
        assert told(with_plain(kept=(), hosts=(host("algo-1", (), saved=2),)), "stop") == []
        killed = SeenProcess(name="script", role="worker", began=9.0, ended=31.0, how="killed by SIGTERM")
        ((level, words),) = told(with_plain(hosts=(host("algo-1", (), processes=(killed,)),)), "stop")
        assert level == "warning" and "saves nothing" in words, "a checkpoint that came by chance just then"
        ((level, words),) = told(with_plain(kept=((15.0, CHECKPOINT),)), "stop")
        assert level == "warning" and "the last checkpoint was 15 s old" in words

    def test_one_that_ended_before(self) -> None:
        case = replace(HEALTHY, runs=(run("plain", None, kind="succeeded"), run("stop", None, kind="succeeded")))
        assert told(case, "stop")[0][0] == "note"

    def test_one_that_fails_of_it(self) -> None:
        case = replace(
            HEALTHY, runs=(run("plain", None, kind="succeeded"), run("stop", kind="failed", cause="OSError"))
        )
        assert told(case, "stop") == [("error", "it failed when it was stopped: OSError")]


class TestKeeping:
    def test_no_checkpoints(self) -> None:
        ((level, words),) = told(with_plain(kept=((30.5, CHECKPOINT),)), "checkpoints")
        assert level == "warning" and "none was written within 21 s" in words
        ((level, words),) = told(with_plain(acted=None, kind="succeeded", kept=()), "checkpoints")
        assert level == "error" and "without writing a checkpoint" in words

    def test_nowhere_to_keep_them(self) -> None:
        case = with_plain(kept=())
        case = replace(case, request=replace(case.request, keeps_checkpoints=False))
        ((level, words),) = told(case, "checkpoints")
        assert level == "warning" and "starts from the beginning" in words
        spot = replace(case, request=replace(case.request, spot=True))
        assert told(spot, "checkpoints")[0][0] == "error"

    def resumed(self, kill: SeenRun, resume: SeenRun) -> list[tuple[str, str]]:
        return told(replace(HEALTHY, runs=(PLAIN, kill, resume)), "resume")

    def test_one_that_begins_anew(self) -> None:
        ((level, words),) = self.resumed(KILL, replace(RESUME, hosts=PLAIN.hosts))
        assert level == "error"
        assert words == (
            "after a lost host the next job starts from the beginning: its first step is 0, though the killed run had "
            "reached 200 and kept checkpoints"
        )

    def test_one_that_fails(self) -> None:
        failed = replace(RESUME, kind=Kind.FAILED, cause="algo-1 script (exit code 1): KeyError: 'optimizer'")
        assert self.resumed(KILL, failed)[0][0] == "error"

    def test_one_that_had_nothing_left_to_do(self) -> None:
        silent = (host("algo-1", (), metrics=(), first=()),)
        assert self.resumed(KILL, replace(RESUME, hosts=silent, kind=Kind.SUCCEEDED)) == []

    def test_one_that_says_no_steps_is_known_by_its_checkpoints(self) -> None:
        silent = (host("algo-1", (), metrics=(), first=()),)

        def by(name: str, *numbers: int) -> SeenRun:
            kept = tuple((20.0 + n, f"/c/ckpt-{n}.data-00000-of-00001") for n in numbers)
            return run(name, hosts=silent, kept=kept)

        assert self.resumed(by("kill", 1, 2, 3), by("resume", 4, 5)) == []
        assert self.resumed(by("kill", 1, 2, 3), by("resume", 1, 2))[0][0] == "error"
        assert self.resumed(by("kill", 1), by("resume", 1))[0][0] == "note"

    def test_a_kill_that_came_too_late(self) -> None:
        late = run("kill", None, kind="succeeded")
        assert told(replace(HEALTHY, runs=(PLAIN, late)), "kill")[0][0] == "note"

    @pytest.mark.parametrize("name", ["kill", "stop"])
    def test_a_run_that_fails_by_itself_is_no_late_one(self, name: str) -> None:
        plain = run("plain", None, kind="succeeded")
        ill = run(name, None, kind="failed", cause="algo-2 (no report for 5 s)")
        ((level, words),) = told(replace(HEALTHY, runs=(plain, ill)), name)
        assert level == "warning" and words.endswith("algo-2 (no report for 5 s)")


class TestHours:
    def test_hours_of_this_machine_are_a_note(self) -> None:
        ((level, words),) = told(HEALTHY, "hours")
        assert level == "note" and "1.0 min" not in words
        assert words.startswith("60 min at the rate of this machine with 2 simulated hosts (max_steps 36000")
        assert "are not ml.c5.xlarge, so hours here do not predict hours there" in words

    def test_price(self) -> None:
        priced = replace(HEALTHY, price=2.0, speedup=10.0)
        assert [each.severity for each in findings(priced) if each.check in ("hours", "price")] == [Severity.FINE] * 2
        assert findings(priced, "price")[0].found.startswith("0.40 USD for 2 hosts at 2 USD an hour each")
        assert told(replace(priced, speedup=None), "price")[0][1].startswith("4.00 USD")

    def test_a_sample_that_was_trained_to_its_end(self) -> None:
        case = with_plain(acted=None, kind="succeeded")
        case = replace(case, request=replace(case.request, hyperparameters={}))
        assert told(case, "hours")[0][1].startswith("35 min at the rate")  # 21 s for 1 %, and 1 s

    def test_a_copy_may_be_a_part_of_the_data(self) -> None:
        """--channel takes a part of the data: the cost is of all."""
        case = with_plain(acted=None, kind="succeeded")
        case = replace(case, request=replace(case.request, hyperparameters={}))
        assert "if the copy" not in told(case, "hours")[0][1]
        copied = replace(case, samples=(replace(SAMPLE, where="/home/me/rows"),))
        assert "of the data, if the copy of training is whole" in told(copied, "hours")[0][1]

    def test_the_start_is_no_longer_with_more_data(self) -> None:
        metrics = tuple((18.0 + n, "script", {"step": float(n)}) for n in range(14))
        case = with_plain(acted=None, kind="succeeded", hosts=(host("algo-1", (), metrics=metrics),))
        case = replace(case, request=replace(case.request, hyperparameters={}))
        found = told(case, "hours")[0][1]
        assert found.startswith("21.8 min at the rate") and "plus 9 s for the start" in found

    def test_epochs_of_as_many_steps_whatever_the_data(self) -> None:
        metrics = tuple(
            (10.0 + n, "script", {"step": 10.0 * n, "epochs": 30.0, "epoch_steps": 100.0}) for n in range(9)
        )
        case = with_plain(hosts=(host("algo-1", (), metrics=metrics),))
        case = replace(case, request=replace(case.request, hyperparameters={}, same_epochs=True))
        assert told(case, "hours")[0][1].startswith("5 min at the rate")

    def test_epochs_of_keras(self) -> None:
        metrics = tuple((10.0 + n, "script", {"step": 10.0 * n, "epochs": 3.0, "epoch_steps": 100.0}) for n in range(9))
        case = with_plain(hosts=(host("algo-1", (), metrics=metrics),))
        case = replace(case, request=replace(case.request, hyperparameters={}))
        assert told(case, "hours")[0][1].startswith("50 min at the rate")

    def test_epochs_without_steps(self) -> None:
        metrics = tuple((10.0 + 2 * n, "script", {"epoch": 1.0 + n, "epochs": 30.0}) for n in range(9))
        case = with_plain(hosts=(host("algo-1", (), metrics=metrics),))
        case = replace(case, request=replace(case.request, hyperparameters={}))
        assert told(case, "speed") == [] and "30 epochs a minute" in findings(case, "speed")[0].found
        assert told(case, "hours")[0][1].startswith("100 min at the rate")

    def test_epochs_that_are_asked_for(self) -> None:
        metrics = tuple((10.0 + 2 * n, "script", {"epoch": 1.0 + n}) for n in range(9))
        case = with_plain(hosts=(host("algo-1", (), metrics=metrics),))
        case = replace(case, request=replace(case.request, hyperparameters={"epochs": '"60"'}))
        assert told(case, "hours")[0][1].startswith("3.33 h at the rate")
        case = replace(case, request=replace(case.request, same_epochs=True))
        assert told(case, "hours")[0][1].startswith("2 min at the rate")

    def test_what_is_not_known_is_not_said(self) -> None:
        case = with_plain()
        case = replace(case, request=replace(case.request, hyperparameters={"lr": "0.1"}))
        assert "does not show" in told(case, "hours")[0][1]


def test_the_table_and_its_json() -> None:
    found = findings(replace(HEALTHY, runs=(replace(PLAIN, together=TestDistributed.NO),)))
    text = as_text(found)
    assert text.endswith("no-go: 1 error, 0 warnings")
    assert "error   distributed  NO: every host trains alone" in text
    value = as_json(HEALTHY, found)
    assert value["go"] is False and value["samples"][0]["records"] == 2000
    assert [run["name"] for run in value["runs"]] == ["plain", "kill", "resume"]
    assert {"check", "severity", "found", "instead"} == set(value["findings"][0])
