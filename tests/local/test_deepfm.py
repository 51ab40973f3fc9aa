"""Test that DeepFM learns pairs that a logistic regression cannot, resumes after a stop, and serves other jobs."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

# What is shown is the example's model; that it trains: cluster/test_cluster_examples.py.
pytestmark = [pytest.mark.tensorflow, pytest.mark.more]
ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 850.0


def test_parameter_servers_beat_a_logistic_regression(no_leftovers, tell):
    """By 0.02 at least; benchmarks/deepfm_auc.py does it with more rows and more often; Horovod does it in
    cluster/test_cluster_examples.py.
    """
    command = [sys.executable, "-m", "benchmarks.deepfm_auc", "--engine", "process", "--modes", "ps"]
    command += ["--rows", "20000", "--seeds", "1", "--least", "0.02"]
    result = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
    )
    assert result.returncode == 0, result.stdout + result.stderr
    tell(result.stdout)


SMALL = ("batch-size=32", "embedding-size=4", "deep-layers=16,8", "dropout=0.2,0.1", "batch-norm=true")
OPTIMIZERS = ("adam", "adagrad", "momentum", "sgd", "ftrl")


@pytest.fixture
def job(tmp_path, no_leftovers):
    """Run one job by `entrypoint local`; return its log. `names`: the channels that get the rows or the model."""
    rows = tmp_path / "rows"
    maker = [sys.executable, ROOT / "examples/deepfm/make_rows.py", "--rows", "2000", "--output", rows]
    subprocess.run(maker, check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL)

    def run(mode, *hyperparameters, channels=("training",), fault=None, code=0, output="out"):
        shutil.rmtree(tmp_path / output, ignore_errors=True)  # of an earlier job
        hosts = {"single": "1", "ps": "2"}[mode]
        command = [sys.executable, "-m", "entrypoint", "local", str(ROOT / "examples/deepfm/train.py")]
        command += ["--mode", mode, "--hosts", hosts, "--checkpoints", str(tmp_path / "kept"), "--output"]
        command += [str(tmp_path / output), "--env", "ENTRYPOINT_PS_WORKERS=server"]
        for name in channels:
            command += ["--channel", f"{name}={tmp_path / 'packed' if name == 'model' else rows}"]
        command += ["--fault", fault] if fault else []
        command += ["--hyperparameters", *hyperparameters] if hyperparameters else []
        result = subprocess.run(
            command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=PATIENCE, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert (result.returncode == 0) == (code == 0), result.stdout
        return result.stdout

    return run


def found(log, pattern):
    [only] = re.findall(pattern, log)
    return only


@pytest.mark.parametrize("mode", ["single", "ps"])
def test_a_training_is_stopped_goes_on_is_judged_and_foretells(job, tmp_path, mode):
    job(mode, *SMALL, "epochs=3", fault="kill all when 'epoch 2/3 is over'", code=1)
    assert "is not of this job's model: found embedding-size 4, wanted 5" in job(
        mode, *SMALL[:1], "embedding-size=5", *SMALL[2:], code=1
    )
    log = job(mode, *SMALL, "epochs=3")
    assert found(log, r"resumed behind epoch (\d)") == "2"
    auc = found(log, r"evaluation auc=([\d.]+) rows=500 logloss=[\d.]+")

    log = job(mode, "task=eval")  # sizes and weights are the checkpoint's
    assert found(log, r"evaluation auc=([\d.]+) rows=500") == auc
    log = job(mode, "task=infer", channels=["inference"], output="inferred")
    assert found(log, r"inferred rows=(\d+) of part-00003") == "500"
    (folder,) = (tmp_path / "inferred").rglob("probabilities")
    files = sorted(folder.iterdir())
    assert [path.name for path in files] == [f"part-0000{n}-of-00004.tfrecords.txt" for n in range(4)]
    lines = [float(line) for line in files[3].read_text().splitlines()]
    assert len(lines) == 500 and all(0 < each < 1 for each in lines) and len(set(lines)) > 400

    job(mode, "task=export", channels=[], output="exported")
    (model,) = (tmp_path / "exported").rglob("saved_model.pb")
    (tmp_path / "packed").mkdir()
    with tarfile.open(tmp_path / "packed/model.tar.gz", "w:gz") as tar:  # as SageMaker packs it
        tar.add(model.parents[1], ".")
    log = job(mode, "task=eval", channels=["model", "evaluation"])
    assert float(found(log, r"evaluation auc=([\d.]+) rows=2000")) > 0.5


@pytest.mark.parametrize("mode", ["single", "ps"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_learns_in_every_way(job, mode, optimizer):
    """It also resumes with the memory that it saved."""
    job(mode, *SMALL, "epochs=1", f"optimizer={optimizer}")
    log = job(mode, *SMALL, "epochs=2", f"optimizer={optimizer}")
    assert found(log, r"resumed behind epoch (\d)") == "1"
    assert float(found(log, r"evaluation auc=([\d.]+)")) > 0.5
