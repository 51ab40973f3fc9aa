"""Test that tests/run.sh, stopped while its tests run, cleans up and leaves nothing."""

import os
import subprocess
from pathlib import Path

import pytest
from waiting import eventually

ROOT = Path(__file__).resolve().parents[2]

# A test that is at work when the command is stopped. Its fixture takes a while to clean up, as containers do; a second
# SIGINT would break that off.
AT_WORK = """
import subprocess, time
from pathlib import Path
import pytest

HERE = Path(__file__).parent

@pytest.fixture
def something():
    yield
    time.sleep(2)
    (HERE / "cleaned").touch()

def test_that_waits(something):
    (HERE / "waits").touch()
    time.sleep(600)
"""


@pytest.mark.skipif(not (ROOT / ".venv/.stamp").exists(), reason="tests/run.sh has not made .venv")
@pytest.mark.usefixtures("no_leftovers")
def test_signal_ends_the_test_run_and_cleans_up_once(tmp_path: Path) -> None:
    (tmp_path / "test_at_work.py").write_text(AT_WORK)
    only_that = ["-n", "0", "--ignore-glob", f"{ROOT}/tests/unit/*", "--rootdir", str(tmp_path), str(tmp_path)]
    command = [ROOT / "tests/run.sh", "--ring", "unit", "--no-docker", "--", *only_that]
    with subprocess.Popen(
        command, env={**os.environ, "CI": ""}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        eventually(lambda: (tmp_path / "waits").exists() or run.poll() is not None, within=240)
        run.terminate()
        said, _ = run.communicate(timeout=240)
    assert run.returncode == 143, said
    assert (tmp_path / "cleaned").exists(), said
