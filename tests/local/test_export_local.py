"""Test a job's metrics for other tools: `entrypoint local --tensorboard`, `tensorboard` and `metrics`."""

import json
import re
import subprocess
import sys
import urllib.request

from hosts import LONG, ROOT, entrypoint, write
from waiting import eventually

STEPS = """
import os, pathlib, time
stop = pathlib.Path(os.environ["TEST_FOLDER"], "stop")
for step in range(100_000):
    print(f"step={step} loss={1 / (1 + step):.5f}", flush=True)
    if stop.exists() and step > 20:
        break
    time.sleep(0.05)
"""
# TensorBoard looks for this module, and then reads files by itself, without TensorFlow, whose import takes seconds.
ALONE = "import sys, types\nsys.modules['tensorboard.compat.notf'] = types.ModuleType('notf')\n"
# By TensorBoard's own reader.
READ = f"""{ALONE}
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
written = EventAccumulator(sys.argv[1])
written.Reload()
print(json.dumps([[event.step, event.value] for event in written.Scalars("loss")]))
"""


def made_by(*words: object) -> str:
    done = entrypoint(*words)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_tensorboard_shows_a_job_while_it_runs_and_afterwards(local, tmp_path):
    write(tmp_path / "site/sitecustomize.py", ALONE)
    path = f"{tmp_path / 'site'}:{ROOT}"
    env = {"TEST_FOLDER": str(tmp_path)}
    run = local(STEPS, "--tensorboard", "0", count=2, mode="single", env=env, PYTHONPATH=path)
    address = eventually(lambda: re.search(r"TensorBoard: (http://localhost:\d+/)", run.terminal), within=LONG)[1]

    def tags() -> str:
        with urllib.request.urlopen(f"{address}data/plugin/scalars/tags", timeout=LONG) as answer:
            return answer.read().decode()

    eventually(lambda: '"algo-2/script": {"' in tags() and '"loss"' in tags(), within=LONG)
    (tmp_path / "stop").touch()
    run.must_end(0)
    assert "points in" in made_by("tensorboard", run.output, "--logdir", tmp_path / "runs")

    read = [sys.executable, "-c", READ, str(tmp_path / "runs" / "algo-2" / "script")]
    steps = json.loads(subprocess.run(read, capture_output=True, timeout=LONG, check=True).stdout.splitlines()[-1])
    assert steps and all(abs(value - 1 / (1 + step)) < 1e-4 for step, value in steps)
    assert '"Name": "loss"' in made_by("metrics", run.output, "--sdk", "json")
