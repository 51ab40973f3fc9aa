"""Test script_socket.py and weights.py, and sagemaker_tf_data.marks, which sends them."""

import json
import math
import socket
import time
from types import SimpleNamespace

import pytest

from entrypoint.base.secrets import NONE, Secrets
from entrypoint.observe.monitor.script_socket import MOST_NAMES, MOST_PROCESSES, Marks
from entrypoint.observe.monitor.trained_model import WeightSums
from entrypoint.record.lines import MarkLine
from sagemaker_tf_data import marks as marks_module
from sagemaker_tf_data.marks import Teller, keras_callback, log_metrics, mark, tell_weights, timed

ONE, OTHER = ("algo-1", "rank 0"), ("algo-2", "rank 1")


@pytest.fixture
def marks(tmp_path):
    taken = Marks(tmp_path / "marks.sock", NONE.mask)
    yield taken
    taken.close()


@pytest.fixture
def teller(tmp_path):
    made = []

    def make(process: str = "script", where: str = str(tmp_path / "marks.sock")) -> Teller:
        made.append(Teller(where, process))
        return made[-1]

    yield make
    for each in made:
        each.close()


def taken(marks: Marks) -> tuple[dict, dict, list]:
    """Return {process: {what: [times, seconds]}}, {process: metrics}, and other lines."""
    metrics, lines = marks.take()
    sums, others = {}, []
    for line in lines:
        if isinstance(line, MarkLine):
            sums.setdefault(line.process, {})[line.what] = [line.times, line.seconds]
        else:
            others.append(line)
    return sums, metrics, others


def test_what_a_script_tells_arrives_in_sums(marks, teller):
    teller = teller("rank 3")
    teller.mark("step", 0.25)  # told at once
    teller.mark("step", 0.5)
    teller.mark("checkpoint", 2.0)
    teller.metrics({"loss": 0.5, "step": 7})
    teller.weights(7, 12.5, -1.0)  # and the rest with it
    marks.receive()
    sums, metrics, weights = taken(marks)
    assert sums == {"rank 3": {"step": [2, 0.75], "checkpoint": [1, 2.0]}}
    assert metrics == {"rank 3": {"loss": 0.5, "step": 7.0}}
    assert [(line.process, line.step, line.norm, line.total) for line in weights] == [("rank 3", 7, 12.5, -1.0)]
    assert taken(marks) == ({}, {}, [])


@pytest.mark.parametrize(
    "message",
    [b"", b"\xff", b"[]", b"1", b'{"process": "x"}',
     b'{"process": "x", "marks": {"a": 1}, "metrics": {}, "weights": []}',
     b'{"process": "x", "marks": {}, "metrics": {"loss": "high"}, "weights": []}',
     b'{"process": "x", "marks": {}, "metrics": {}, "weights": [1]}', b'{"process": "x", "marks": 3}',
     b'{"process": "x", "marks": {"step": [Infinity, 1]}, "metrics": {}, "weights": []}',
     b'{"process": "x", "marks": {"step": [1, Infinity]}, "metrics": {}, "weights": []}',
     b'{"process": "x", "marks": {"step": [1, 1' + b"0" * 400 + b']}, "metrics": {}, "weights": []}',
     b'{"process": "x", "marks": {}, "metrics": {}, "weights": [1' + b"0" * 400 + b", 1, 1]}",
     b'{"process": "x", "marks": {}, "metrics": {}, "weights": [1e300, 1, 1]}',
     b'{"process": "\\ud800", "marks": {"step": [1, 1]}, "metrics": {}, "weights": []}',
     b'{"process": "x", "marks": {"\\u009b31m": [1, 1]}, "metrics": {}, "weights": []}',
     b"[" * 8000],
    ids=lambda message: message[:60],
)  # fmt: skip
def test_what_is_no_message_is_dropped_and_the_next_is_heard(marks, teller, tmp_path, message):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(message, str(tmp_path / "marks.sock"))
    teller().mark("step", 1.0)
    marks.receive()
    sums, _, weights = taken(marks)
    assert sums["script"] == {"step": [1, 1.0]} and not sums.get("x") and not weights


def tell(tmp_path, **told) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        message = {"process": "x", "marks": {}, "metrics": {}, "weights": [], **told}
        sender.sendto(json.dumps(message).encode(), str(tmp_path / "marks.sock"))


def test_a_number_that_none_can_be_costs_that_number(marks, tmp_path):
    tell(tmp_path, metrics={"step": math.inf, "epoch": 10**400, "loss": math.nan, "lr": 0.1, "note": "high"})
    marks.receive()
    metrics = taken(marks)[1]["x"]
    assert metrics.keys() == {"loss", "lr"} and math.isnan(metrics["loss"]), "a loss may be none, which is to be seen"


def test_processes_without_end_do_not_fill_the_memory(marks, tmp_path):
    for number in range(MOST_PROCESSES + 50):
        tell(tmp_path, process=f"p{number}", metrics={"loss": 1.0})
        marks.receive()
    assert len(taken(marks)[1]) == MOST_PROCESSES


def test_names_are_short_and_no_secrets(tmp_path):
    secret = "hunter2-and-a-half"
    marks = Marks(tmp_path / "marks.sock", Secrets({"DB_PASSWORD": secret}).mask)
    tell(tmp_path, marks={f"load {secret}": [1, 1]}, metrics={f"{secret}/loss": 1.0, "n" * 5000: 2.0})
    marks.receive()
    sums, metrics, _ = taken(marks)
    marks.close()
    assert sums["x"].keys() == {"load ***"}
    assert sorted(map(len, metrics["x"])) == [8, 60] and "***/loss" in metrics["x"]


def test_names_without_end_do_not_fill_the_memory(marks, tmp_path):
    told = {"process": "x", "marks": {f"m{n}": [1, 1] for n in range(90)}, "metrics": {}, "weights": []}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(json.dumps(told).encode(), str(tmp_path / "marks.sock"))
    marks.receive()
    assert len(taken(marks)[0]["x"]) == MOST_NAMES


def test_nobody_elses_scripts_are_heard(marks, tmp_path):
    assert (tmp_path / "marks.sock").stat().st_mode & 0o077 == 0


def test_outside_of_a_job_and_with_nobody_who_listens_nothing_happens(teller, tmp_path):
    for where in ("", str(tmp_path / "none.sock")):
        nobody = teller("", where)
        nobody.mark("step", 1.0)
        nobody.metrics({"loss": 1.0})
        nobody.weights(1, 1.0, 1.0)


def test_what_is_told_before_the_monitor_listens_comes_with_the_next_message(teller, tmp_path):
    early = teller()
    early.mark("step", 0.25)  # as the first step of a quick script
    early.metrics({"loss": 0.5})
    late = Marks(tmp_path / "marks.sock", NONE.mask)
    early.tell()
    late.receive()
    assert taken(late)[:2] == ({"script": {"step": [1, 0.25]}}, {"script": {"loss": 0.5}})
    early.tell()
    late.receive()
    assert taken(late) == ({}, {}, []), "nothing is told twice"
    late.close()


def test_a_monitor_that_does_not_read_keeps_no_step_waiting(marks, teller):
    teller = teller()
    began = time.monotonic()
    for step in range(2000):  # far more than a socket holds
        teller.weights(step, 1.0, 1.0)
    assert time.monotonic() - began < 30


def test_timed_tells_how_long_batches_are_waited_for(monkeypatch, marks, teller):
    teller = teller()
    monkeypatch.setattr("sagemaker_tf_data.marks._TELLER", teller)

    def slow():
        for number in range(3):
            time.sleep(0.05)
            yield number

    assert list(timed(slow())) == [0, 1, 2]
    teller.tell()
    marks.receive()
    sums = taken(marks)[0]["script"]
    assert {what: times for what, (times, _) in sums.items()} == {"data_wait": 3, "compute": 3, "step": 3}
    assert sums["data_wait"][1] >= 0.15 > sums["compute"][1]


def test_what_is_no_number_is_left_out_and_the_rest_is_told(monkeypatch, marks, teller):
    """Outside of a job this goes unnoticed; inside one, the training failed."""
    monkeypatch.setattr("sagemaker_tf_data.marks._TELLER", teller())
    log_metrics(a=[1, 2], b="high", c=None, loss=0.5)
    with mark(("not", "a", "name")):
        pass
    with mark({"no": "name"}):
        pass
    log_metrics(step=1)
    marks_module._TELLER.tell()
    marks.receive()
    sums, metrics, _ = taken(marks)
    assert metrics == {"script": {"loss": 0.5, "step": 1.0}}
    assert sum(times for times, _ in sums["script"].values()) == 2


class Callback:
    """A Keras callback, as far as ours needs it."""

    params = None
    model = SimpleNamespace(trainable_variables=[])


def fit(callback, logs):
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    callback.on_train_batch_begin(0)
    callback.on_train_batch_end(0, logs)
    callback.on_test_begin()
    callback.on_test_end(logs)
    callback.on_train_end()


def test_a_model_without_trained_weights_is_fitted(monkeypatch, marks, teller):
    monkeypatch.setattr("sagemaker_tf_data.marks._TELLER", teller())
    fit(keras_callback(weights_every=1, base=Callback), {"loss": 0.5})
    marks.receive()
    _, metrics, weights = taken(marks)
    assert metrics["script"]["step"] == 1 and weights == []


@pytest.mark.parametrize("broken", [{"model": None}, {"model": SimpleNamespace(trainable_variables=[object()])},
                                    {"params": 7}])  # fmt: skip
def test_no_training_fails_by_what_cannot_be_told(monkeypatch, teller, broken):
    monkeypatch.setattr("sagemaker_tf_data.marks._TELLER", teller())
    callback = keras_callback(weights_every=1, base=type("Broken", (Callback,), broken))
    fit(callback, 7)
    fit(callback, {"loss": object()})
    tell_weights(None, 7)


def test_how_many_weights_are_trained_is_told(monkeypatch, marks, teller):
    monkeypatch.setattr("sagemaker_tf_data.marks._TELLER", teller())
    model = SimpleNamespace(trainable_variables=[SimpleNamespace(shape=(3, 4)), SimpleNamespace(shape=())])
    fit(keras_callback(weights_every=0, base=type("Fitted", (Callback,), {"model": model})), {})
    marks.receive()
    assert taken(marks)[2][0].model["weights"] == 13


@pytest.mark.parametrize(
    "model",
    [{"weights": 10**400}, {"weights": float("inf"), "dense": -1}, {"weights": [1], "strategy": {"a": 1}}, [7], 7],
)
def test_a_model_that_cannot_be_is_none(marks, tmp_path, model):
    told = {"process": "x", "marks": {}, "metrics": {}, "weights": [], "model": model}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(json.dumps(told).encode(), str(tmp_path / "marks.sock"))
    marks.receive()
    for known in taken(marks)[2]:
        assert 0 <= known.model["weights"] <= 1e15 and known.model["dense"] == 0


# --- weights.py ---


def told(*notes) -> WeightSums:
    weights = WeightSums()
    for who, step, norm in notes:
        weights.note(who, step, norm, norm / 2)
    return weights


def differing(weights: WeightSums, *steps: int) -> WeightSums:
    for step in steps:
        weights.note(ONE, step, 12.5, 6.0)
        weights.note(OTHER, step, 12.9, 6.0)
    return weights


def test_equal_weights_are_said_once():
    weights = told((ONE, 500, 12.5), (OTHER, 500, 12.5))
    assert weights.look() == (True, "equal weights on all 2 processes after step 500")
    assert weights.look() is None


def test_weights_that_differ_are_said_with_their_norms():
    weights = differing(WeightSums(), 500, 1000, 1500)
    equal, words = weights.look()
    assert not equal
    assert words == (
        "distributed: NO: weights differ 3 times in a row, now after step 1500: their norm is rank 0 on algo-1 12.5, "
        "rank 1 on algo-2 12.9"
    )
    assert differing(weights, 2000, 2500, 3000).look() is None


def test_weights_that_are_averaged_now_and_then_differ_in_between():
    weights = differing(WeightSums(), 500, 1000)
    assert weights.look() is None
    weights.note(ONE, 1500, 12.5, 6.0)
    weights.note(OTHER, 1500, 12.5, 6.0)
    assert weights.look() == (True, "equal weights on all 2 processes after step 1500")
    assert differing(weights, 2000, 2500, 3000).look() is None


def test_weights_that_are_equal_after_all():
    weights = differing(WeightSums(), 500, 1000, 1500)
    assert not weights.look()[0]
    for who in (ONE, OTHER):
        weights.note(who, 2000, 12.5, 6.0)
    assert weights.look() == (True, "equal weights after all on all 2 processes after step 2000")


def test_they_are_compared_after_the_same_step():
    assert told((ONE, 500, 12.5), (OTHER, 400, 9.0)).look() is None
    assert told((ONE, 400, 9.0), (ONE, 500, 12.5), (OTHER, 400, 9.0)).look()[0]


def test_one_alone_is_never_equal():
    assert told((ONE, 500, 12.5)).look() is None


def test_rounding_is_no_difference_and_what_is_no_number_is_equal():
    assert told((ONE, 5, 12.5), (OTHER, 5, 12.500001)).look()[0]
    assert told((ONE, 5, float("nan")), (OTHER, 5, float("nan"))).look()[0]
    unequal = [(who, step, norm) for step in (5, 6, 7) for who, norm in ((ONE, float("nan")), (OTHER, 1.0))]
    assert not told(*unequal).look()[0]


def test_who_begins_anew_is_not_compared_with_what_it_told_before():
    weights = differing(WeightSums(), 500, 1000, 1500)
    weights.forget(OTHER)
    assert weights.look() is None
