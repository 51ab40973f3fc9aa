"""Test that DeepFM learns pairs that a logistic regression cannot, resumes after a stop, and serves other jobs."""

import contextlib
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from processes import processes_with
from waiting import eventually

# What is shown is the example's model; that it trains: cluster/test_cluster_examples.py.
pytestmark = [pytest.mark.tensorflow, pytest.mark.more]
ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 850.0


SMALL = ("batch-size=32", "embedding-size=4", "deep-layers=16,8", "dropout=0.2,0.1", "batch-norm=true")
OPTIMIZERS = ("adam", "adagrad", "momentum", "sgd", "ftrl")


def make_rows(folder: Path, count: int) -> Path:
    """Make rows for DeepFM, in four files; return their folder. Rows that are there already are made anew."""
    rows = folder / "rows"
    maker = [sys.executable, ROOT / "examples/deepfm/make_rows.py", "--rows", str(count), "--output", rows]
    subprocess.run(maker, check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL)
    return rows


@pytest.fixture
def job(tmp_path, no_leftovers):
    """Run one job by `entrypoint local`; return its log. `channels` are those that get the rows or the model."""
    rows = make_rows(tmp_path, 2000)

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


def test_parameter_servers_beat_a_logistic_regression(job, tmp_path, tell):
    """By 0.02 at least, on rows in which pairs of features count."""
    rows = make_rows(tmp_path, 20_000)
    auc = float(found(job("ps"), r"evaluation auc=([\d.]+) rows=5000"))
    program = [sys.executable, ROOT / "tests/programs/logistic_regression.py", rows]
    logistic = float(subprocess.run(program, check=True, timeout=PATIENCE, stdout=subprocess.PIPE, text=True).stdout)
    tell(f"DeepFM by parameter servers: AUC {auc:.3f}; a logistic regression: {logistic:.3f}")
    assert auc >= logistic + 0.02


def test_a_job_killed_during_a_save_resumes_from_the_last_whole_checkpoint(tmp_path, no_leftovers):
    """All processes get SIGKILL at the first file of the second checkpoint; the next job takes the steps of a whole."""
    rows, kept = make_rows(tmp_path, 2000), tmp_path / "kept"
    command = [sys.executable, "-m", "entrypoint", "local", str(ROOT / "examples/deepfm/train.py"), "--hosts", "2"]
    command += ["--mode", "ps", "--env", "ENTRYPOINT_PS_WORKERS=server", "--channel", f"training={rows}"]
    command += ["--checkpoints", str(kept), "--output", str(tmp_path / "out"), "--hyperparameters", *SMALL, "epochs=3"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes) as first:
        eventually(lambda: list(kept.glob("ckpt-1.index")), within=PATIENCE)
        eventually(lambda: list(kept.glob("ckpt-2*")), within=PATIENCE)
        while left := processes_with(str(tmp_path)):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        before = first.stdout.read()
    shutil.rmtree(tmp_path / "out")
    second = subprocess.run(command, cwd=tmp_path, env=environment, **pipes)
    assert second.returncode == 0, second.stdout
    over = max(map(int, re.findall(r"epoch (\d)/3 is over", before)))
    assert int(found(second.stdout, r"resumed behind epoch (\d)")) in (over, over + 1)  # the save had just ended
    assert found(second.stdout, r"epoch 3/3 is over: .* step=(\d+)") == str(3 * math.ceil(1500 / 32))
