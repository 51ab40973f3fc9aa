"""DeepFM learns from pairs what a logistic regression cannot, on rows that anybody can make."""

import subprocess
import sys
from pathlib import Path

import pytest

# What is shown is the example's model; that it trains: cluster/test_cluster_examples.py.
pytestmark = [pytest.mark.tensorflow, pytest.mark.more]
ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 600.0


def test_parameter_servers_beat_a_logistic_regression(no_leftovers, tell):
    """By 0.02 at least; benchmarks/deepfm_auc.py does it with more rows and more often; Horovod does it in
    cluster/test_cluster_examples.py."""
    command = [sys.executable, "-m", "benchmarks.deepfm_auc", "--engine", "process", "--modes", "ps"]
    command += ["--rows", "20000", "--seeds", "1", "--least", "0.02"]
    result = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
    )
    assert result.returncode == 0, result.stdout + result.stderr
    tell(result.stdout)
