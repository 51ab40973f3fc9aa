"""Test a job that is killed with all its processes, and the next one: DeepFM with parameter servers."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Of checkpoints: test_data.py; of a job that goes on from one: cluster/test_cluster_restarts.py.
pytestmark = [pytest.mark.tensorflow, pytest.mark.more]
ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 840.0


def python(program: str, *words: object) -> str:
    command = [sys.executable, str(ROOT / program), *map(str, words)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, **pipes, text=True) as process:
        try:
            printed, _ = process.communicate(timeout=PATIENCE)
        except BaseException:
            process.send_signal(signal.SIGINT)  # it stops its job
            raise
    assert process.returncode == 0, printed
    return printed


def test_the_next_job_goes_on_from_the_last_checkpoint(tmp_path, no_leftovers, tell):
    """One kill, while a checkpoint is written; benchmarks/kills.py states the question, and does it more often."""
    data = tmp_path / "rows"
    python("examples/deepfm/make_rows.py", "--rows", 2000, "--shards", 2, "--output", data)
    how = ("--mode", "ps", "--data", data, "--kills", 1, "--unkilled", 1, "--epochs", 4, "--not-before", 1, "--seed", 9)
    how += ("--at-checkpoints", 1)
    printed = python("benchmarks/kills.py", *how)
    tell(printed.splitlines()[0])
    assert "1 kills in " in printed and "; 1 jobs resumed" in printed, printed
    assert "1 of them at a checkpoint" in printed, printed
