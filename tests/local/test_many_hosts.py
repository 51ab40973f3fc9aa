"""Test benchmarks/many_hosts: its simulated hosts start and end as the present launcher does."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.usefixtures("no_leftovers")


def test_benchmark_with_simulated_hosts_measures_until_the_last_host_ends():
    command = [sys.executable, "-m", "benchmarks.many_hosts", "--hosts", "8", "--rounds", "1", "--steady", "0.5"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "Failure until all hosts have ended" in done.stdout, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
