"""Test messages of scripts: `sagemaker_tf_data.marks` sends them, and the monitor checks them."""

import json
import math
import socket
import time
from types import SimpleNamespace

import pytest

from entrypoint.base.secrets import NONE, Secrets
from entrypoint.observe.monitor.script_socket import MOST_NAMES, MOST_PROCESSES, Marks
from entrypoint.record.lines import MarkLine
from sagemaker_tf_data.marks import Teller, keras_callback, log_metrics, mark, tell_weights, timed


class Listener(Marks):
    """The monitor's end of the socket."""

    def hear(self) -> tuple[dict, dict, list]:
        """Return {process: {mark: [count, seconds]}}, {process: metrics} and other lines since the last call."""
        self.receive()
        metrics, lines = self.take()
        sums, others = {}, []
        for line in lines:
            if isinstance(line, MarkLine):
                sums.setdefault(line.process, {})[line.what] = [line.times, line.seconds]
            else:
                others.append(line)
        return sums, metrics, others


@pytest.fixture
def marks(tmp_path):
    listener = Listener(tmp_path / "marks.sock", NONE.mask)
    yield listener
    listener.close()


@pytest.fixture
def teller(tmp_path, monkeypatch):
    """Return a script's end of the socket, which the library's functions use as well."""
    made = []

    def make(process: str = "script", where: str = str(tmp_path / "marks.sock")) -> Teller:
        made.append(Teller(where, process))
        monkeypatch.setattr("sagemaker_tf_data.marks._TELLER", made[-1])
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def send(tmp_path):
    """Send a message that the library would not send: bytes, or the fields of a message."""

    def send(message: bytes = b"", **told: object) -> None:
        whole = {"process": "x", "marks": {}, "metrics": {}, "weights": [], **told}
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(message if not told else json.dumps(whole).encode(), str(tmp_path / "marks.sock"))

    return send


def test_marks_of_a_script_arrive_as_sums(marks, teller):
    teller = teller("rank 3")
    teller.mark("step", 0.25)  # told at once
    teller.mark("step", 0.5)
    teller.mark("checkpoint", 2.0)
    teller.metrics({"loss": 0.5, "step": 7})
    teller.weights(7, 12.5, -1.0)  # and the rest with it
    sums, metrics, weights = marks.hear()
    assert sums == {"rank 3": {"step": [2, 0.75], "checkpoint": [1, 2.0]}}
    assert metrics == {"rank 3": {"loss": 0.5, "step": 7.0}}
    assert [(line.process, line.step, line.norm, line.total) for line in weights] == [("rank 3", 7, 12.5, -1.0)]
    assert marks.hear() == ({}, {}, [])


# --- messages that mean harm ---


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
def test_malformed_message_is_dropped_and_next_is_received(marks, teller, send, message):
    send(message)
    teller().mark("step", 1.0)
    sums, _, weights = marks.hear()
    assert sums["script"] == {"step": [1, 1.0]} and not sums.get("x") and not weights


def test_impossible_metric_is_dropped_and_other_metrics_are_kept(marks, send):
    send(metrics={"step": math.inf, "epoch": 10**400, "loss": math.nan, "lr": 0.1, "note": "high"})
    metrics = marks.hear()[1]["x"]
    assert metrics.keys() == {"loss", "lr"} and math.isnan(metrics["loss"]), "a loss may be none, which is to be seen"


def test_endless_processes_and_names_use_bounded_memory(marks, send):
    send(marks={f"m{n}": [1, 1] for n in range(90)})
    assert len(marks.hear()[0]["x"]) == MOST_NAMES
    for number in range(MOST_PROCESSES + 50):
        send(process=f"p{number}", metrics={"loss": 1.0})
        marks.receive()
    assert len(marks.hear()[1]) == MOST_PROCESSES - 1


def test_mark_names_are_shortened_and_secrets_masked(tmp_path, send):
    secret = "hunter2-and-a-half"
    marks = Listener(tmp_path / "marks.sock", Secrets({"DB_PASSWORD": secret}).mask)
    send(marks={f"load {secret}": [1, 1]}, metrics={f"{secret}/loss": 1.0, "n" * 5000: 2.0})
    sums, metrics, _ = marks.hear()
    marks.close()
    assert sums["x"].keys() == {"load ***"}
    assert sorted(map(len, metrics["x"])) == [8, 60] and "***/loss" in metrics["x"]


@pytest.mark.parametrize(
    "model",
    [{"weights": 10**400}, {"weights": float("inf"), "dense": -1}, {"weights": [1], "strategy": {"a": 1}}, [7], 7],
)
def test_impossible_model_sizes_are_bounded(marks, send, model):
    send(model=model)
    for known in marks.hear()[2]:
        assert 0 <= known.model["weights"] <= 1e15 and known.model["dense"] == 0


def test_messages_of_other_users_are_refused(marks, tmp_path):
    assert (tmp_path / "marks.sock").stat().st_mode & 0o077 == 0


# --- the library's end ---


def test_marks_do_nothing_without_a_monitor(teller, tmp_path):
    for where in ("", str(tmp_path / "none.sock")):
        nobody = teller("", where)
        nobody.mark("step", 1.0)
        nobody.metrics({"loss": 1.0})
        nobody.weights(1, 1.0, 1.0)


def test_marks_before_the_monitor_listens_are_sent_later(teller, tmp_path):
    early = teller()
    early.mark("step", 0.25)  # as the first step of a quick script
    early.metrics({"loss": 0.5})
    late = Listener(tmp_path / "marks.sock", NONE.mask)
    early.tell()
    assert late.hear()[:2] == ({"script": {"step": [1, 0.25]}}, {"script": {"loss": 0.5}})
    early.tell()
    assert late.hear() == ({}, {}, []), "nothing is told twice"
    late.close()


def test_monitor_that_does_not_read_delays_no_step(marks, teller):
    teller = teller()
    began = time.monotonic()
    for step in range(2000):  # far more than a socket holds
        teller.weights(step, 1.0, 1.0)
    assert time.monotonic() - began < 30


def test_timed_reports_waiting_time_for_batches(marks, teller):
    teller = teller()

    def slow():
        for number in range(3):
            time.sleep(0.05)
            yield number

    assert list(timed(slow())) == [0, 1, 2]
    teller.tell()
    sums = marks.hear()[0]["script"]
    assert {what: times for what, (times, _) in sums.items()} == {"data_wait": 3, "compute": 3, "step": 3}
    assert sums["data_wait"][1] >= 0.15 > sums["compute"][1]


def test_non_numeric_metrics_are_dropped_and_others_sent(marks, teller):
    """Such a value once failed the training, but only inside a job."""
    teller = teller()
    log_metrics(a=[1, 2], b="high", c=None, loss=0.5)
    with mark(("not", "a", "name")):
        pass
    with mark({"no": "name"}):
        pass
    log_metrics(step=1)
    teller.tell()
    sums, metrics, _ = marks.hear()
    assert metrics == {"script": {"loss": 0.5, "step": 1.0}}
    assert sum(times for times, _ in sums["script"].values()) == 2


def fit(logs, *, every: int = 1, **of_keras) -> None:
    """Call the library's callback as Keras does. `every`: steps between two sums of weights."""
    base = {"params": None, "model": SimpleNamespace(trainable_variables=[]), **of_keras}
    callback = keras_callback(weights_every=every, base=type("Callback", (), base))
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    callback.on_train_batch_begin(0)
    callback.on_train_batch_end(0, logs)
    callback.on_test_begin()
    callback.on_test_end(logs)
    callback.on_train_end()


def test_model_without_trainable_weights_can_be_fitted(marks, teller):
    teller()
    fit({"loss": 0.5})
    _, metrics, weights = marks.hear()
    assert metrics["script"]["step"] == 1 and weights == []


@pytest.mark.parametrize("broken", [{"model": None}, {"model": SimpleNamespace(trainable_variables=[object()])},
                                    {"params": 7}])  # fmt: skip
def test_unreportable_values_do_not_fail_the_training(teller, broken):
    teller()
    fit(7, **broken)
    fit({"loss": object()}, **broken)
    tell_weights(None, 7)


def test_number_of_trainable_weights_is_reported(marks, teller):
    teller()
    variables = [SimpleNamespace(shape=(3, 4)), SimpleNamespace(shape=())]
    fit({}, every=0, model=SimpleNamespace(trainable_variables=variables))
    assert marks.hear()[2][0].model["weights"] == 13
