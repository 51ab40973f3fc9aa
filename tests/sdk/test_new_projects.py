"""Test that the doctor plans the submit scripts of `entrypoint new` with both of Amazon's SDKs, and finds nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from local_mode import ROOT, needed_python

from entrypoint.cli import main, new

PLANS = {
    "single": "single: the script alone",
    "ps": "parameter servers: 2 ps, 1 chief, 1 worker (TensorFlow servers) on 2 hosts",
    "mwms": "MultiWorkerMirrored: 2 workers on 2 hosts",
    "mpi": "MPI: 2 ranks on 2 hosts, 1 on each",
    "jax": "JAX: 2 processes on 2 hosts",
}
# An SDK takes seconds of a processor. In unit/test_new.py the doctor reads the script of each mode.
FIRST = ("ps", "3")
CASES = [
    pytest.param(mode, sdk, marks=[] if (mode, sdk) == FIRST else [pytest.mark.more])
    for mode in PLANS
    for sdk in new.SDKS
]


@pytest.mark.parametrize("mode, sdk", CASES)
def test_the_doctor_plans_it_and_finds_nothing(mode: str, sdk: str, tmp_path: Path) -> None:
    python = needed_python(f"v{sdk}")
    folder = tmp_path / "project"
    assert main.run(["new", str(folder), "--mode", mode, "--sdk", sdk], {}) == 0
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    given = ["--args", "--role", "arn:aws:iam::000000000000:role/x", "--checkpoints", "s3://bucket/c"]
    for arguments in [[], given] if mode == "mpi" else [[]]:
        command = [sys.executable, "-m", "entrypoint", "doctor", "--strict", "--python", python, "submit.py"]
        done = subprocess.run(
            [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=400
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert PLANS[mode] in done.stdout
        assert "0 errors, 0 warnings, 0 notes" in done.stdout
