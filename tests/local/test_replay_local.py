"""Test `entrypoint replay`: replay a job's records, and run the job again with the same faults."""

import shlex
import subprocess
import sys

import pytest
from hosts import LONG, ROOT

STEPS = """
import time
for step in range(200):
    print(f"step={step}", flush=True)
    time.sleep(0.05)
"""


def replay(*arguments) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "entrypoint", "replay", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=3 * LONG, cwd=ROOT)


@pytest.mark.parametrize(
    "fault, ending",
    [
        ("kill algo-2:script when step=30", "failed, exit code 137, by algo-2 script (killed by SIGKILL)"),
        pytest.param("kill algo-2 when step=60", "failed, exit code 69, by algo-2 (lost)", marks=pytest.mark.more),
        pytest.param("stop algo-1 when step=30", "stopped, exit code 143", marks=pytest.mark.more),
    ],
)
def test_a_failed_job_is_played_and_run_again_to_the_same_end(local, tmp_path, fault, ending):
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text(STEPS)
    run = local(folder / "train.py", "--hosts", "2", "--mode", "single", "--fault", fault)
    run.end()
    played = replay(run.output)
    assert played.returncode == 0, played
    assert "as then, by the same" in played.stdout and "decides otherwise" not in played.stdout
    again = replay(run.output, "--rerun", folder / "train.py", "--output", tmp_path / "again")
    assert again.returncode == 0, again.stdout + again.stderr
    command = shlex.split(again.stdout.splitlines()[0])
    assert command[:2] == ["entrypoint", "local"] and "--fault" in command
    assert f"then: {ending}\nnow:  {ending}" in again.stdout


def test_what_is_no_bundle(tmp_path):
    nothing = replay(tmp_path)
    assert nothing.returncode == 78 and "there are no records" in nothing.stderr
