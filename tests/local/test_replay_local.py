"""Test `entrypoint replay`: replay a job's records, and run the job again with the same faults."""

import shlex

from hosts import entrypoint

STEPS = """
import time
for step in range(200):
    print(f"step={step}", flush=True)
    time.sleep(0.05)
"""


def test_replayed_job_fails_as_before(local, tmp_path):
    ending = "failed, exit code 137, by algo-2 script (killed by SIGKILL)"
    run = local(STEPS, count=2, mode="single", faults=["kill algo-2:script when step=30"])
    run.end()
    played = entrypoint("replay", run.output)
    assert played.returncode == 0, played
    assert "as then, by the same" in played.stdout and "decides otherwise" not in played.stdout
    program = run.folder / "code/train.py"
    again = entrypoint("replay", run.output, "--rerun", program, "--output", tmp_path / "again")
    assert again.returncode == 0, again.stdout
    command = shlex.split(again.stdout.splitlines()[0])
    assert command[:2] == ["entrypoint", "local"] and "--fault" in command
    assert f"then: {ending}\nnow:  {ending}" in again.stdout


def test_folder_without_records_is_refused(tmp_path):
    nothing = entrypoint("replay", tmp_path)
    assert nothing.returncode == 78 and "there are no records" in nothing.stdout
