"""Test a job in MLflow, by MLflow's own client: the run has parameters, metrics and figures, live or afterwards.

MLflow is in a separate folder, since it needs other versions of packages than TensorFlow 2.14.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hosts import LONG, ROOT
from waiting import eventually

MLFLOW = Path(sys.prefix) / "mlflow"  # tests/run.sh makes it
STEPS = """
import os, pathlib, time
for step in range(30):
    print(f"step={step} loss={1 / (1 + step):.3f}", flush=True)
    time.sleep(0.1)
if "WAITS" in os.environ:
    while not pathlib.Path(os.environ["TEST_FOLDER"], "go").exists():
        time.sleep(0.1)
    raise ValueError("as asked")
"""
READ = """
import json
from mlflow.tracking import MlflowClient
client = MlflowClient()
runs = [(each.name, run) for each in client.search_experiments() for run in client.search_runs([each.experiment_id])]
print(json.dumps([{
    "experiment": experiment,
    "name": run.info.run_name, "status": run.info.status, "params": run.data.params, "tags": run.data.tags,
    "metrics": {name: [[m.step, m.value] for m in client.get_metric_history(run.info.run_id, name)]
                for name in run.data.metrics},
} for experiment, run in runs]))
"""


@pytest.fixture
def tracking(tmp_path) -> dict[str, str]:
    """Return the variables of a job that writes into a folder."""
    if not MLFLOW.exists():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"no {MLFLOW}; tests/run.sh makes it")
    return {"MLFLOW_TRACKING_URI": f"file://{tmp_path}/runs", "PYTHONPATH": str(MLFLOW)}


def runs_in(tracking: dict[str, str]) -> list[dict]:
    done = subprocess.run(
        [sys.executable, "-c", READ], env={**os.environ, **tracking}, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_failed_job_becomes_an_mlflow_run_live_or_afterwards(hosts, tracking):
    environment = {**tracking, "TRAINING_JOB_NAME": "clicks-7", "MLFLOW_EXPERIMENT_NAME": "clicks"}
    environment["WAITS"] = ""  # until MLflow, which takes seconds to import, has brought what was there
    job = hosts(2, code=STEPS, hyperparameters={"lr": "0.1"}, environment=environment)
    folder = Path(tracking["MLFLOW_TRACKING_URI"].removeprefix("file://"))
    eventually(lambda: list(folder.rglob("metrics/loss")), within=LONG)
    (job.folder / "go").touch()
    job.must_end(1)
    assert "mlflow: run " in job[1].log and "mlflow" not in job[2].log
    done = subprocess.run(
        [sys.executable, "-m", "entrypoint", "mlflow", str(job[1].base / "output")],
        env={**os.environ, **tracking, "MLFLOW_EXPERIMENT_NAME": "afterwards"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run, afterwards = sorted(runs_in(tracking), key=lambda run: run["experiment"], reverse=True)
    assert afterwards["metrics"]["loss"][-1] == [29, 0.033]
    assert (run["name"], run["status"]) == ("clicks-7", "FAILED")
    assert run["params"]["lr"] == "0.1"
    assert run["tags"]["sagemaker.hosts"] == "2"
    metrics = run["metrics"]
    assert metrics["loss"][-1] == [29, 0.033]
    assert any(name.startswith("algo-2/") and name.endswith("/loss") for name in metrics)
    assert "system/algo-1/cpu" in metrics


def test_job_without_mlflow_logs_what_to_install(hosts):
    job = hosts(1, code=STEPS, environment={"MLFLOW_TRACKING_URI": "file:///nowhere"})
    job.must_end(0)
    assert "MLflow is not installed here: add mlflow-skinny to requirements.txt" in job[1].log


def test_unresponsive_mlflow_server_does_not_delay_the_job(hosts, tracking):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        tracking["MLFLOW_TRACKING_URI"] = "http://127.0.0.1:{1}".format(*silent.getsockname())
        job = hosts(1, code=STEPS, environment=tracking)
        job.must_end(0)
    assert "warning: mlflow: not all data sent within 10 s; its run is left unfinished" in job[1].log
