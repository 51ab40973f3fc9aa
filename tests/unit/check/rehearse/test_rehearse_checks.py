"""Test each check of a rehearsal on a run with its fault and on a run without."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from entrypoint.base.severity import Severity
from entrypoint.check.finding import Finding, goes
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
KEPT = ((15.0, CHECKPOINT), (31.0, CHECKPOINT))


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
    kept = more.pop("kept", KEPT)
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


def told(case: Rehearsal, check: str) -> list[str]:
    """Return the findings that are warnings or errors, as "LEVEL: WORDS"."""
    found = [each for each in findings(case, check) if each.severity is not Severity.FINE]
    return [f"{each.severity}: {each.found}" for each in found]


def plain(acted: float | None = 30.0, **more: Any) -> Rehearsal:
    """Return a rehearsal that has only a plain run."""
    return replace(HEALTHY, runs=(run("plain", acted, **more),))


def alone(acted: float | None = 30.0, kind: str = "stopped", kept: Any = KEPT, **more: Any) -> Rehearsal:
    """Return a rehearsal with only a plain run on one host, with these facts."""
    return plain(acted, kind=kind, kept=kept, hosts=(host("algo-1", (), **more),))


def asking(case: Rehearsal = HEALTHY, **more: Any) -> Rehearsal:
    """Return a rehearsal of a request with these changes."""
    return replace(case, request=replace(case.request, **more))


def sampled(**more: Any) -> Rehearsal:
    return replace(HEALTHY, samples=(replace(SAMPLE, **more),))


def reading(*reads: tuple[str, ...] | None, kind: str = "succeeded") -> Rehearsal:
    """Return a rehearsal with files a and b on every host, of which host n read the n-th tuple of files."""
    hosts = tuple(
        host(f"algo-{number}", ("a", "b"), read=None if read is None else (("training", read),))
        for number, read in enumerate(reads, 1)
    )
    return plain(None if kind == "succeeded" else 30.0, hosts=hosts, kind=kind)


def process(how: str) -> tuple[SeenProcess, ...]:
    return (SeenProcess(name="script", role="worker", began=9.0, ended=31.0, how=how),)


def metrics(*rows: dict[str, float], every: float = 1.0) -> Any:
    """Return the metrics that a process printed, from second 10 on."""
    return tuple((10.0 + every * number, "script", values) for number, values in enumerate(rows))


def trained(*rows: dict[str, float], every: float = 1.0, **request: Any) -> Rehearsal:
    """Return a stopped rehearsal on one host that printed these metrics, of a request without a number of steps."""
    return asking(alone(metrics=metrics(*rows, every=every)), **{"hyperparameters": {}, **request})


def resumed(kill: SeenRun, resume: SeenRun) -> Rehearsal:
    return replace(HEALTHY, runs=(PLAIN, kill, resume))


def numbered(name: str, *numbers: int) -> SeenRun:
    """Return a run that printed no steps and saved checkpoints with these numbers."""
    kept = tuple((20.0 + n, f"/c/ckpt-{n}.data-00000-of-00001") for n in numbers)
    return run(name, hosts=SILENT, kept=kept)


def after_plain(name: str, acted: float | None = 30.0, **more: Any) -> Rehearsal:
    return replace(HEALTHY, runs=(run("plain", None, kind="succeeded"), run(name, acted, **more)))


def ended_before(name: str) -> list[Any]:
    """Return rows of a run that ended before it was stopped or killed."""
    fails = {"kind": "failed", "cause": "algo-2 (no report for 5 s)"}
    return [
        (after_plain(name, None, kind="succeeded"), "note: it ended before"),
        (after_plain(name, None, **fails), f"warning: {fails['cause']}"),
    ]


SILENT = (host("algo-1", (), metrics=(), first=()),)
UNSEEN = tuple(replace(each, metrics=(), first=(), read=(("training", ()),)) for each in PLAIN.hosts)
ONE_READS = (replace(UNSEEN[0], read=(("training", ("a",)),)), UNSEEN[1])
NO = (False, "distributed: NO: every host trains alone (exchanged nothing with other hosts in 200 steps)")
MISSING = "train.py:31 makes the model outside of strategy.scope()"
YES = (True, "distributed: yes: 2 hosts exchange 8 MB a step")
RANKS = asking(replace(plain(together=None), engine="process"), mode="mpi")
ONE_ENDS = run("plain", None, kind="succeeded", hosts=(host("algo-1", (), kind="succeeded"), host("algo-2", ())))
KILLED = replace(ONE_ENDS, ended=replace(ONE_ENDS.ended, code=137))
NO_TOTAL = asking(plain(None, kind="succeeded"), hyperparameters={})
EPOCHS_OF_100_STEPS = [{"step": 10.0 * n, "epoch_steps": 100.0} for n in range(9)]
FIRST_EPOCH = (("epoch", 1.0),)
EPOCHS = [{"epoch": 1.0 + n} for n in range(9)]

# Rehearsals by the check that looks at them, with the level and the words of what is not fine; nothing: all is fine.
TOLD: dict[str, list[Any]] = {
    "end": [
        (plain(None, kind="failed", cause="algo-2 script (exit code 1): ValueError"), "error: ValueError"),
        (plain(kind="", hosts=(), last_lines=("Killed",)), "error: Killed"),
        (plain(kind="failed", cause="algo-1 script (killed by SIGTERM)"),),
        (plain(hosts=UNSEEN, together=None, kept=()), "error: no training was seen"),
        (plain(hosts=ONE_READS, together=None, kept=()), "warning: until it was stopped, and no step was seen"),
        (plain(hosts=ONE_READS, kept=()),),
        (alone(failures=("algo-1 worker/0 was started again",)), "warning: algo-1 worker/0 was started again"),
        (replace(HEALTHY, runs=(KILLED,)), "error: with code 137: algo-1: succeeded, algo-2: no end in its record"),
        (plain(None, hosts=()), "error: in which no training began"),
    ],
    "shards": [
        (plain(hosts=UNSEEN, together=None, kept=()),),
        (reading(("a",), ("b",)),),
        (reading(("a", "b"), ("a", "b")), "note: 2 of 2 files were opened by several hosts"),
        (reading((), ()), "warning: training: no host has read any file of it"),
        (
            reading(("a",), ("a",)),
            "warning: 1 of 2 files were not read, such as b",
            "note: 1 of 2 files were opened by several hosts",
        ),
        (
            reading(("a",), ("a",), kind="stopped"),
            "note: 1 of 2 files were not read, such as b",
            "note: 1 of 2 files were opened by several hosts",
        ),
        (reading(("a", "b"), ()), "warning: training: algo-2 read nothing of it"),
        (reading(None, None), "note: does not show"),
        (sampled(channel=replace(SAMPLE.channel, mode=ChannelMode.PIPE)), "note: training is streamed"),
        (sampled(of_files=1), "error: 1 files for 2 hosts: 1 of them get nothing"),
        (plain(hosts=(host("algo-1", ("a",)), host("algo-2", ()))), "error: training: algo-2 got no file of the"),
        (sampled(of_files=5), "warning: some of which get one more"),
    ],
    "places": [
        (asking(fixed=("train.py:3",)),),
        (replace(asking(fixed=("train.py:3",)), own_ml=False), "warning: train.py:3"),
        (asking(moved=("model_dir",), unmoved=("rows",)), "note: model_dir: a folder", "note: rows name S3"),
    ],
    "hosts": [(asking(hosts=8), "note: 2 simulated hosts stand for 8")],
    "processes": [(asking(processes_per_host=4), "note: 1 on each host, where the request makes 4")],
    "plan": [(asking(ours=False), "warning: does not start our launcher")],
    "launch": [(asking(others=2), "note: 2 further requests")],
    "model": [
        (plain(None, kind="succeeded"), "warning: it saved no model in /opt/ml/model"),
        (asking(plain(None, kind="succeeded"), moved=("model_dir",)),),
        (alone(None, "succeeded", saved=1),),
    ],
    "memory": [
        (alone(memory=4 * GIB),),
        (alone(memory=7 * GIB), "warning: 7 GiB at most on algo-1, of the 8 GiB of ml.c5"),
        (alone(memory=9 * GIB), "error: 9 GiB at most on algo-1, and ml.c5.xlarge has 8"),
        (
            asking(alone(memory=1000 << 20), instance_types=("ml.new.xlarge",)),
            "note: 0.977 GiB at most on algo-1; how much ml.new.xlarge has is not known here",
        ),
    ],
    "speed": [
        (alone(metrics=(), first=()), "note: prints no steps"),
        (alone(metrics=metrics(*EPOCHS, every=2)),),
        (alone(metrics=metrics({"step": 7.0})), "note: the steps printed within 21 s are too few"),
        (alone(metrics=metrics({"epoch": 1.0, "epochs": 30.0}), first=FIRST_EPOCH), "note: no epoch of Keras's fit"),
        (asking(alone(metrics=(), first=()), fits=True), "note: no epoch of Keras's fit ended within 21 s"),
        (alone(metrics=metrics({"epoch": 1.0}), first=FIRST_EPOCH), "note: the epochs printed within 21 s are too few"),
    ],
    "data": [
        (sampled(no_data=("_SUCCESS", "a.crc")), "note: training: _SUCCESS, a.crc are ignored, as they are not data"),
        (sampled(left_out=3), "warning: 3 files were left out"),
    ],
    "distributed": [
        (plain(together=NO), "error: NO: every host trains alone"),
        (asking(plain(together=None), mode="single"), "error: no distribution was asked for"),
        (asking(mode="single", meant_alone=True), "note: each host trains alone"),
        (asking(plain(together=YES), mode="single"),),
        (plain(together=None), "note: it is not known"),
        (RANKS, "note: share its memory"),
        (replace(RANKS, runs=(replace(RANKS.plain, together=NO),)), "error: NO: every host"),
    ],
    "stop": [
        (alone(processes=process("killed by SIGKILL")), "warning: algo-1 script had to be killed after 100 s"),
        (asking(alone(processes=process("killed by SIGKILL")), spot=True), "error: algo-1 script had to be killed"),
        (plain(-100.0), "error: took 2.2 min to end; SageMaker kills after 120 s"),
        (plain(kept=()), "warning: it saves neither a checkpoint nor a model when it is stopped"),
        (alone(kept=(), saved=2),),
        (alone(processes=process("killed by SIGTERM")), "warning: saves nothing"),
        (plain(kept=((15.0, CHECKPOINT),)), "warning: the last checkpoint was 15 s old"),
        (after_plain("stop", kind="failed", cause="OSError"), "error: it failed when it was stopped: OSError"),
        *ended_before("stop"),
    ],
    "kill": ended_before("kill"),
    "checkpoints": [
        (plain(kept=((30.5, CHECKPOINT),)), "warning: none was written within 21 s"),
        (plain(None, kind="succeeded", kept=()), "error: without writing a checkpoint"),
        (asking(plain(kept=()), keeps_checkpoints=False), "warning: starts from the beginning"),
        (asking(plain(kept=()), keeps_checkpoints=False, spot=True), "error: starts from the beginning"),
    ],
    "resume": [
        (
            resumed(KILL, replace(RESUME, hosts=PLAIN.hosts)),
            "error: starts from the beginning: its first step is 0, though the killed run had reached 200 and kept",
        ),
        (
            resumed(KILL, replace(RESUME, kind=Kind.FAILED, cause="KeyError: 'optimizer'")),
            "error: it fails: KeyError: 'optimizer'",
        ),
        (resumed(KILL, replace(RESUME, hosts=SILENT, kind=Kind.SUCCEEDED)),),
        (resumed(numbered("kill", 1, 2, 3), numbered("resume", 4, 5)),),
        (
            resumed(numbered("kill", 1, 2, 3), numbered("resume", 1, 2)),
            "error: its first checkpoint is number 1, though there was 3",
        ),
        (resumed(numbered("kill", 1), numbered("resume", 1)), "note: it is not known"),
    ],
    "hours": [
        (HEALTHY, "note: 60 min at the rate of this machine with 2 simulated hosts (max_steps 36000"),
        (HEALTHY, "note: are not ml.c5.xlarge, so hours here do not predict hours there"),
        (NO_TOTAL, "note: 35 min at the rate"),
        (
            replace(NO_TOTAL, samples=(replace(SAMPLE, where="/home/me/rows"),)),
            "note: of the data, if the copy of training is whole",
        ),
        (
            asking(
                alone(None, "succeeded", metrics=tuple((18.0 + n, "script", {"step": float(n)}) for n in range(14))),
                hyperparameters={},
            ),
            "note: 21.8 min at the rate of this machine with 2 simulated hosts (13 s for 1.00% of the data, plus 9 s",
        ),
        (trained(*EPOCHS_OF_100_STEPS, hyperparameters={"epochs": "3"}), "note: 50 min at the rate"),
        (trained(*EPOCHS_OF_100_STEPS, hyperparameters={"epochs": "30"}, same_epochs=True), "note: 5 min at the rate"),
        (trained(*({**row, "epochs": 30.0} for row in EPOCHS), every=2), "note: 100 min at the rate"),
        (trained(*EPOCHS, every=2, hyperparameters={"epochs": '"60"'}), "note: 3.33 h at the rate"),
        (trained(*EPOCHS, every=2, hyperparameters={"epochs": "60"}, same_epochs=True), "note: 2 min at the rate"),
        (asking(plain(), hyperparameters={"lr": "0.1"}), "note: does not show"),
    ],
    "price": [(replace(HEALTHY, price=2.0), "note: 4.00 USD")],
}


@pytest.mark.parametrize(
    "check, case, wanted",
    [
        pytest.param(check, case, wanted, id=f"{check}: {'; '.join(wanted)}")
        for check in TOLD
        for case, *wanted in TOLD[check]
    ],
)
def test_rehearsal_check_gives_the_expected_findings(check: str, case: Rehearsal, wanted: list[str]) -> None:
    found = told(case, check)
    assert [each.partition(": ")[0] for each in found] == [each.partition(": ")[0] for each in wanted], found
    for each, words in zip(found, wanted, strict=True):
        assert words.partition(": ")[2] in each


@pytest.mark.parametrize(("mode", "words"), [("mpi", "hvd.rank()"), ("mwms", "nothing, if TensorFlow"), ("ps", "sage")])
def test_remedy_for_files_read_twice_suits_the_mode(mode: str, words: str) -> None:
    (found,) = findings(asking(reading(("a", "b"), ("a", "b")), mode=mode), "shards")
    assert words in found.instead


HAS_ALL = {"writes_checkpoints": True, "reads_checkpoints": True, "handles_sigterm": True}
LATE = plain(kept=((30.5, CHECKPOINT),))
AGAIN = resumed(KILL, replace(RESUME, hosts=PLAIN.hosts))


@pytest.mark.parametrize(
    ("case", "check", "words"),
    [
        (plain(kept=()), "stop", "signal.signal"),
        (LATE, "checkpoints", "saver.save()"),
        (asking(plain(kept=()), keeps_checkpoints=False), "checkpoints", "checkpoint_s3_uri"),
        (AGAIN, "resume", "saver.restore()"),
    ],
)
def test_remedies_name_only_what_the_job_lacks(case: Rehearsal, check: str, words: str) -> None:
    found, left = (findings(each, check)[-1] for each in (case, asking(case, **HAS_ALL)))
    assert words in found.instead and left.instead
    assert not any(each in left.instead for each in ("signal.signal", "saver."))
    assert ("checkpoint_s3_uri" in left.instead) is not case.request.keeps_checkpoints


def test_healthy_job_rehearses_as_go() -> None:
    found = findings(HEALTHY)
    assert goes(found)
    assert {each.check for each in found if each.severity > Severity.FINE} == {"hours"}, as_text(found)
    assert {each.check for each in found} == {
        "plan", "data", "end", "shards", "distributed", "speed", "memory", "stop", "checkpoints", "kill", "resume",
        "hours",
    }  # fmt: skip


def test_crashed_run_gets_no_whole_run_findings() -> None:
    found = findings(plain(None, kind="failed", cause="ValueError"))
    assert not {each.check for each in found} & {"stop", "checkpoints", "speed", "hours"}


@pytest.mark.parametrize("name", ["plain", "stop"])
def test_failed_attempts_give_a_warning(name: str) -> None:
    words = "attempt 0 failed: algo-2 worker/1 (killed by SIGKILL)"
    hosts = host("algo-1", ("a",), failures=(words,), saved=1), host("algo-2", ("b",), failures=("worker/1 ...",))
    case = after_plain("stop")
    case = replace(case, runs=tuple(replace(each, hosts=hosts) if each.name == name else each for each in case.runs))
    assert told(case, "end") == [f"warning: it failed, and was started again: {words}"] and goes(findings(case))


@pytest.mark.parametrize(
    ("name", "gib"),
    [("m5.large", 8), ("c5.18xlarge", 144), ("p3.8xlarge", 244), ("g5.48xlarge", 768), ("r5.4xlarge", 128)],
)
def test_memory_of_instance_types_is_known(name: str, gib: int) -> None:
    assert memory_of(f"ml.{name}") == gib * GIB
    assert memory_of("ml.m5.huge") is memory_of("local") is None


def test_speed_is_computed_from_steps_or_epochs() -> None:
    assert "10 steps a second" in findings(HEALTHY, "speed")[0].found
    assert "30 epochs a minute" in findings(alone(metrics=metrics(*EPOCHS, every=2)), "speed")[0].found


def test_single_step_report_gives_no_rate() -> None:
    once = metrics({"step": 7.0})
    case = replace(plain(hosts=(host("algo-1", ("a", "c"), metrics=once),)), price=2.0, speedup=10.0)
    found = findings(case)
    assert goes(found) and "hours" in {each.check for each in found if each.severity is Severity.NOTE}
    assert as_json(case, found)["runs"][0]["steps_per_second"] is None


def test_missing_distribution_call_is_named() -> None:
    (finding,) = findings(plain(together=NO, missing=MISSING), "distributed")
    assert MISSING in str(finding)


def test_single_host_gets_no_distributed_finding() -> None:
    assert findings(alone(), "distributed") == []


def test_price_finding_with_speedup_is_fine() -> None:
    priced = replace(HEALTHY, price=2.0, speedup=10.0)
    assert [each.severity for each in findings(priced) if each.check in ("hours", "price")] == [Severity.FINE] * 2
    assert findings(priced, "price")[0].found.startswith("0.40 USD for 2 hosts at 2 USD an hour each")
    assert "if the copy" not in told(NO_TOTAL, "hours")[0]


def test_table_and_json_list_each_finding() -> None:
    found = findings(plain(together=NO))
    text = as_text(found)
    assert text.endswith("no-go: 1 error, 0 warnings")
    assert "error   distributed  NO: every host trains alone" in text
    value = as_json(HEALTHY, found)
    assert value["go"] is False and value["samples"][0]["records"] == 2000
    assert [run["name"] for run in value["runs"]] == ["plain", "kill", "resume"]
    assert all(run["failures"] == [] for run in value["runs"])
    assert {"check", "severity", "found", "instead"} == set(value["findings"][0])
