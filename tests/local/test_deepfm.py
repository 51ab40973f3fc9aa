"""Test examples/deepfm: a stopped training resumes, evaluates and predicts, and other jobs use its model."""

import contextlib
import math
import os
import re
import signal
import subprocess
import sys
import tarfile

import pytest
from hosts import ROOT
from processes import processes_with
from waiting import eventually

# What is shown is the example's model; that it trains: cluster/test_cluster_examples.py.
pytestmark = [pytest.mark.tensorflow, pytest.mark.more]
SMALL = ("batch-size=32", "embedding-size=4", "deep-layers=16,8", "dropout=0.2,0.1", "batch-norm=true")


def make_rows(folder, count):
    """Write rows for DeepFM into four files, and replace older ones; return the folder."""
    rows = folder / "rows"
    maker = [sys.executable, ROOT / "examples/deepfm/make_rows.py", "--rows", str(count), "--output", rows]
    subprocess.run(maker, check=True, stdout=subprocess.DEVNULL)
    return rows


@pytest.fixture
def start(local, tmp_path):
    """Start one job and return it. `channels` receive the rows or the model."""
    rows = make_rows(tmp_path, 2000)

    def run(mode, *hyperparameters, channels=("training",), **options):
        words = ["--checkpoints", str(tmp_path / "kept"), "--hyperparameters", *hyperparameters]
        for name in channels:
            words += ["--channel", f"{name}={tmp_path / 'packed' if name == 'model' else rows}"]
        return local(
            ROOT / "examples/deepfm/train.py", *words, mode=mode, count=2 if mode == "ps" else 1,
            env={"ENTRYPOINT_PS_WORKERS": "server"}, **options,
        )  # fmt: skip

    return run


@pytest.fixture
def job(start):
    """Run one job to its end; return it."""

    def run(*arguments, is_well=True, **options):
        made = start(*arguments, **options)
        assert (made.process.wait(850) == 0) == is_well, made.terminal
        return made

    return run


def found(run, pattern):
    [only] = re.findall(pattern, run.terminal)
    return only


@pytest.mark.parametrize("mode", ["single", "ps"])
def test_stopped_training_resumes_then_evaluates_and_predicts(job, tmp_path, mode):
    job(mode, *SMALL, "epochs=3", faults=["kill all when 'epoch 2/3 is over'"], is_well=False)
    other = job(mode, *SMALL[:1], "embedding-size=5", *SMALL[2:], is_well=False)
    assert "is not of this job's model: found embedding-size 4, wanted 5" in other.terminal
    resumed = job(mode, *SMALL, "epochs=3")
    assert found(resumed, r"resumed behind epoch (\d)") == "2"
    auc = found(resumed, r"evaluation auc=([\d.]+) rows=500 logloss=[\d.]+")

    judged = job(mode, "task=eval")  # sizes and weights are the checkpoint's
    assert found(judged, r"evaluation auc=([\d.]+) rows=500") == auc
    foretold = job(mode, "task=infer", channels=["inference"])
    assert found(foretold, r"inferred rows=(\d+) of part-00003") == "500"
    (folder,) = foretold.output.rglob("probabilities")
    files = sorted(folder.iterdir())
    assert [path.name for path in files] == [f"part-0000{n}-of-00004.tfrecords.txt" for n in range(4)]
    lines = [float(line) for line in files[3].read_text().splitlines()]
    assert len(lines) == 500 and all(0 < each < 1 for each in lines) and len(set(lines)) > 400

    exported = job(mode, "task=export", channels=[])
    (model,) = exported.output.rglob("saved_model.pb")
    (tmp_path / "packed").mkdir()
    with tarfile.open(tmp_path / "packed/model.tar.gz", "w:gz") as tar:  # as SageMaker packs it
        tar.add(model.parents[1], ".")
    judged = job(mode, "task=eval", channels=["model", "evaluation"])
    assert float(found(judged, r"evaluation auc=([\d.]+) rows=2000")) > 0.5


@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "momentum", "sgd", "ftrl"])
def test_every_optimizer_learns_and_resumes_with_its_state(job, optimizer):
    job("ps", *SMALL, "epochs=1", f"optimizer={optimizer}")
    resumed = job("ps", *SMALL, "epochs=2", f"optimizer={optimizer}")
    assert found(resumed, r"resumed behind epoch (\d)") == "1"
    assert float(found(resumed, r"evaluation auc=([\d.]+)")) > 0.5


def test_parameter_servers_beat_a_logistic_regression(job, tmp_path, tell):
    """The AUC is higher by at least 0.02, on rows whose label depends on pairs of features."""
    rows = make_rows(tmp_path, 20_000)
    auc = float(found(job("ps"), r"evaluation auc=([\d.]+) rows=5000"))
    program = [sys.executable, ROOT / "tests/programs/logistic_regression.py", rows]
    logistic = float(subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True).stdout)
    tell(f"DeepFM by parameter servers: AUC {auc:.3f}; a logistic regression: {logistic:.3f}")
    assert auc >= logistic + 0.02


def test_job_killed_during_a_save_resumes_from_the_last_complete_checkpoint(start, job, tmp_path):
    """All processes get SIGKILL at the first file of the second checkpoint. The next job resumes from the first one."""
    kept = tmp_path / "kept"
    first = start("ps", *SMALL, "epochs=3")
    eventually(lambda: list(kept.glob("ckpt-1.index")), within=850)
    eventually(lambda: list(kept.glob("ckpt-2*")), within=850)
    while left := processes_with(str(tmp_path)):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    first.process.wait(60)
    resumed = job("ps", *SMALL, "epochs=3")
    over = max(map(int, re.findall(r"epoch (\d)/3 is over", first.terminal)))
    assert int(found(resumed, r"resumed behind epoch (\d)")) in (over, over + 1)  # the save had just ended
    assert found(resumed, r"epoch 3/3 is over: .* step=(\d+)") == str(3 * math.ceil(1500 / 32))
