"""Test export/: records become TensorBoard's points and SageMaker's metric definitions."""

import json
import re
import sys

import pytest

from entrypoint.base.errors import ConfigError
from entrypoint.observe.export.definitions import USUAL, definitions, metrics_in, regex
from entrypoint.observe.export.mlflow_run import MlflowRun
from entrypoint.observe.export.points import Points
from entrypoint.observe.monitor.printed_metrics import MetricReader
from entrypoint.record.lines import line_of

LINES = [
    ["host", 100.0, {"cpus": 4, "memory_limit": 1000}],
    ["sample", 102.0, 2.0, {"cpu": [3, 1, 0, 0, 0], "memory": [1, 2, 250], "net": [20, 40], "gpus": [[0.5, 7, 9, 1]]},
     {"rank 0": {"cpu": 1.0, "memory": 9}}, {"algo-2": [10, 30]}],
    ["metric", 103.0, "rank 0", {"step": 7, "loss": 0.5}],
    ["mark", 104.0, "rank 0", {"what": "step", "seconds": 3.0, "times": 6}],
    ["comet", 105.0],
    ["outcome", 107.0, {"kind": "succeeded", "exit_code": 0, "cause": None}],
]  # fmt: skip


def test_record_becomes_tensorboard_points():
    points = Points("algo-1")
    found = {(point.run, point.name): (point.step, point.value) for point in points.of(map(line_of, LINES))}
    assert found["algo-1", "cpu"] == (2, 0.5), "2 s of the job: 4 s of processor time of 8"
    assert found["algo-1", "memory/of limit"] == (2, 0.25)
    assert found["algo-1", "net/in bytes per second"] == (2, 10.0)
    assert found["algo-1", "gpu 0/busy"] == (2, 0.5)
    assert found["algo-1", "exchange/algo-2 bytes per second"] == (2, 20.0)
    assert found["algo-1/rank 0", "cpus"] == (2, 0.5)
    assert found["algo-1/rank 0", "loss"] == (7, 0.5)
    assert found["algo-1/rank 0", "seconds/step"] == (7, 0.5)
    assert points.outcome


PRINTED = [
    ("loss", "32/32 [=====] - 1s 8ms/step - loss: 0.5123 - val_loss: 0.7", "0.5123"),
    ("val_loss", "32/32 [=====] - 1s 8ms/step - loss: 0.5123 - val_loss: 0.7", "0.7"),
    ("loss", "[algo-1 rank 0] step=3 loss=1.5e-3", "1.5e-3"),
    ("mAP(segm)", "mAP(segm)=0.63", "0.63"),
    ("loss", "val_loss=3", None),
    ("epoch", "Epoch 3/10", "3"),
    ("epoch", "[algo-1 worker/0] epoch=3 loss=0.5", "3"),
]


@pytest.mark.parametrize("name, line, value", PRINTED)
def test_metric_expression_matches_only_printed_metrics(name, line, value):
    found = re.search(regex(name), line)
    assert (found and found[1]) == value


@pytest.mark.parametrize("sdk", ["v2", "v3"])
def test_printed_metric_definitions_are_valid_python(sdk):
    code = definitions(["loss", "mAP(segm)"], sdk)
    made: dict = {}
    rows = code[code.index("metrics = [") : code.index("]\n", code.index("metrics = [")) + 1]
    exec(rows, {"MetricDefinition": lambda **values: values}, made)
    first, second = made["metrics"]
    assert first.get("Name", first.get("name")) == "loss"
    assert re.search(second.get("Regex", second.get("regex")), "mAP(segm)=0.5")[1] == "0.5"


def test_json_metric_definitions_fit_a_request():
    assert [sorted(each) for each in json.loads(definitions(USUAL, "json"))] == [["Name", "Regex"]] * len(USUAL)


def test_metrics_are_listed_by_frequency():
    assert metrics_in(map(line_of, [*LINES, ["metric", 108.0, "rank 1", {"loss": 1}]])) == ["loss", "step"]
    reader = MetricReader()
    for line in ("9/9 [=====] - 1s 9ms/step - loss: 0.5", "9/9 - 1s - loss: 0.5 - 1s/epoch - 9ms/step"):
        reader.read(f"Epoch 3/10\n{line}")
        assert metrics_in([line_of(["metric", 1.0, "worker/0", reader.take()])]) == ["epoch", "loss"]


def test_error_of_mlflow_names_what_to_install(monkeypatch):
    """`entrypoint mlflow` runs where there may be no job, and so no requirements.txt."""
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:///nowhere")
    with pytest.raises(ConfigError, match=r"add mlflow-skinny to requirements\.txt, or pip install mlflow-skinny$"):
        MlflowRun()
