"""Test lines in CloudWatch's embedded metric format."""

import json
import math

from entrypoint.observe.monitor.emf import EVERY_SECONDS, MOST, Emf

USED = {"cpu": [0.5, 0.5, 3.0, 0.0, 0.0], "memory": [1, 2, 700], "gpus": [[0.5, 10, 40, 100.0], [1.0, 20, 40, 100.0]]}


def line_of(emf: Emf) -> dict:
    return json.loads(emf.take(1_700_000_000.5))


def test_emf_line_has_the_figures_of_a_minute():
    emf = Emf("Training", "job-1", "algo-2", cpus=4.0)
    assert emf.take(0) == ""
    for _ in range(int(EVERY_SECONDS) // 2):
        assert not emf.is_due
        emf.note(2.0, USED)
    emf.note_metrics({"loss": 0.7, "step": 3})
    emf.note_metrics({"loss": 0.5, "lr": math.nan})
    assert emf.is_due
    told = line_of(emf)
    (directive,) = told.pop("_aws").pop("CloudWatchMetrics")
    values = {"CPUUtilization": 12.5, "MemoryUsed": 700, "GPUMemoryUsed": 30, "GPUUtilization": 75.0}
    assert told == {"TrainingJobName": "job-1", "Host": "algo-2", **values, "loss": 0.5, "step": 3}
    assert directive["Namespace"] == "Training"
    assert directive["Dimensions"] == [["TrainingJobName", "Host"]]
    units = {metric["Name"]: metric["Unit"] for metric in directive["Metrics"]}
    assert units == {
        "CPUUtilization": "Percent", "MemoryUsed": "Bytes", "GPUMemoryUsed": "Bytes", "GPUUtilization": "Percent",
        "loss": "None", "step": "None",
    }  # fmt: skip
    assert emf.take(0) == "", "begun anew"


def test_emf_line_has_at_most_the_allowed_metrics():
    emf = Emf("Training", "", "algo-1", cpus=1.0)
    emf.note(1.0, {})
    emf.note_metrics({f"m{number}": number for number in range(200)})
    told = line_of(emf)
    assert "TrainingJobName" not in told  # no dimension may be empty
    assert len(told["_aws"]["CloudWatchMetrics"][0]["Metrics"]) == MOST


def test_script_cannot_set_reserved_emf_fields():
    """A line such as `TrainingJobName=7 CPUUtilization=1` would otherwise do so."""
    emf = Emf("Training", "job-1", "algo-2", cpus=1.0)
    emf.note(2.0, {"cpu": [1.0, 0.0], "memory": [1, 2, 700]})
    ours = ("_aws", "TrainingJobName", "Host", "CPUUtilization", "MemoryUsed", "GPUUtilization", "GPUMemoryUsed")
    emf.note_metrics({**dict.fromkeys(ours, 7.0), "loss": 0.5, "far": 1e200})
    told = line_of(emf)
    assert told.pop("_aws")["Timestamp"] == 1_700_000_000_500
    who = {"TrainingJobName": "job-1", "Host": "algo-2"}
    assert told == {**who, "CPUUtilization": 50.0, "MemoryUsed": 700, "loss": 0.5}
