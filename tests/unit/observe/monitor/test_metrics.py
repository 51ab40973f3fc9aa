"""Test which metrics are found in programs' output, and which texts are not taken for metrics."""

import json
import math
from collections.abc import Callable

import pytest

from entrypoint.launcher.job.settings import read_settings
from entrypoint.observe.monitor.output_scan import Printed
from entrypoint.observe.monitor.printed_metrics import LAST_LINES, MOST, MetricReader, WantedMetric


def read(*lines: str, wanted: str = "", say: Callable[[str], None] = print) -> dict[str, float]:
    settings, *_ = read_settings({"ENTRYPOINT_METRICS": wanted}, {})
    reader = MetricReader(wanted=[WantedMetric(name, expression, say) for name, expression in settings.metrics])
    for line in lines:
        reader.read(line + "\n")
    return reader.take()


@pytest.mark.parametrize(
    "lines, found",
    [
        pytest.param(["Epoch 3/10"], {"epoch": 3, "epochs": 10}, id="Keras, epoch"),
        pytest.param(
            ["Epoch 2/4", " 45/100 [============>.................] - ETA: 1s - loss: 0.5123 - acc: 0.83"],
            {"epoch": 2, "epochs": 4, "epoch_step": 45, "epoch_steps": 100, "step": 145, "loss": 0.5123, "acc": 0.83},
            id="Keras 2",
        ),
        pytest.param(
            ["\x1b[1m100/100\x1b[0m \x1b[32m━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m2s\x1b[0m 20ms/step - loss: 3e-1"],
            {"epoch_step": 100, "epoch_steps": 100, "step": 100, "step_seconds": 0.02, "loss": 0.3},
            id="Keras 3, in colour",
        ),
        pytest.param(["12/Unknown [....] - loss: 2.5"], {"epoch_step": 12, "loss": 2.5}, id="Keras, no end known"),
        pytest.param(
            ["71/72 [===>.] - ETA: 0s - loss: 0.4452026-11-30 09:48:42.45: W tensorflow/core/dataset.cc:959] Input of"],
            {"epoch_step": 71, "epoch_steps": 72, "step": 71, "loss": 0.4452026}, id="a warning in the bar's line",
        ),
        pytest.param(["INFO:tensorflow:loss = 0.5, step = 300 (1.2 sec)"], {"loss": 0.5, "step": 300}, id="Estimator"),
        pytest.param(["INFO:tensorflow:global_step/sec: 75.3"], {"steps_per_second": 75.3}, id="Estimator, its rate"),
        pytest.param(["step=3 images_per_second=120"], {"step": 3, "images_per_second": 120}, id="pairs"),
        pytest.param(["step 300: loss 0.51"], {"step": 300, "loss": 0.51}, id="words"),
        pytest.param(["Train Epoch: 1 [640/60000 (1%)] Loss: 2.29"], {"epoch": 1, "loss": 2.29}, id="capitals"),
        pytest.param(["val_accuracy: 91%  lr: 1e-3"], {"val_accuracy": 0.91, "lr": 0.001}, id="percent"),
        pytest.param(["step=1 loss=0.9\rstep=2 loss=0.8"], {"step": 2, "loss": 0.8}, id="one line, written over"),
        pytest.param(["2026-11-25 10:20:00 host algo-1:7979 ready: 3"], {}, id="times and ports"),
        pytest.param(["reading 12 files: train/part-00001 took 3 s"], {}, id="prose"),
        pytest.param(["Namespace(epochs=4, lr=0.001, epoch=4)"], {}, id="arguments"),
        pytest.param(["loss: see the log of step one"], {}, id="no number"),
        pytest.param(["epoch=1 loss=nan"], {"epoch": 1, "loss": math.nan}, id="a loss that is no number"),
        pytest.param(["step=\N{ARABIC-INDIC DIGIT THREE} loss=1"], {"step": 3, "loss": 1}, id="Arabic digits"),
    ],
)  # fmt: skip
def test_metrics_are_found_in_usual_formats(lines, found):
    assert read(*lines) == pytest.approx(found, nan_ok=True)


def test_last_value_of_each_metric_is_reported_once():
    reader = MetricReader()
    reader.read("".join(f"step={n} loss={1 / n}\n" for n in range(1, 3 * LAST_LINES)))
    assert reader.take() == {"step": 3 * LAST_LINES - 1, "loss": 1 / (3 * LAST_LINES - 1)}
    assert reader.take() == {}


@pytest.mark.parametrize(
    "lines",
    [
        ["step=1 loss=2", "step=2 loss=3 lr=1", "step=3 loss=4"],
        ["loss_1: 0.5", "loss_2: 0.6", "loss_1: 0.7"],
        ["loss=0.5 step=1", "loss=nan step=2", "loss=0.25 step=3", "loss=1e-3 step=4", "loss=5 step=5"],
        ["acc: 91%", "acc: 0.5", "acc: 92%"],
        ["step 1: loss 0.5", "step: 2 loss: 1.5.2", "step 3: loss 1"],
        ["1/100 [>.....] - ETA: 9s - loss: 2", "2/100 [=>....] - ETA: 8s - loss: 1", "3/50 [==>...] - loss: 0.5"],
        ["\x1b[1mEpoch 1/3", "9/9 ━━━━━━━━ 2s 20ms/step - loss: 1", "\x1b[1mEpoch 2/3", "1/9 ━─────── 3s 30ms/step"],
        ["  Epoch 1/3", "9/9 [======] - loss: 1", "  Epoch 2/3", "1/9 [>.....] - loss: 3", "  Epoch 3/3"],
    ],
)
def test_lines_in_one_piece_give_the_metrics_of_single_lines(lines):
    together, alone, found = MetricReader(), MetricReader(), {}
    for line in lines:
        together.read(f"{line}\n")
        alone.read(f"{line}\n")
        found |= alone.take()
    assert together.take() == pytest.approx(found, nan_ok=True)


def test_number_of_metrics_of_a_process_is_limited():
    reader = MetricReader()
    for number in range(2 * MOST):
        reader.read(f"loss_{number}=1\n")
        reader.take()
    reader.read(f"loss_0=2 loss_{2 * MOST - 1}=2\n")
    assert reader.take() == {"loss_0": 2}


# --- what programs print can end nothing ---


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e400", "9" * 400, "9" * 5000], ids=lambda text: text[:6])
def test_impossible_metric_value_is_left_out(number):
    assert read(f"step={number} loss=1") == ({"loss": 1} if len(number) < 900 else {})
    assert read(f"Epoch 1/{number}", "loss=2").get("loss") == 2
    assert read("Epoch 3/4", f"{number}/8 [====>...] - loss: 3").get("loss", 3) == 3
    assert math.isfinite(sum(read("Epoch 3/4", f"{number}/{number} [====>...] - loss: 3 - steps: {number}").values()))


def test_user_regex_works_beside_one_with_unmatched_group():
    segm = r"mAP\(segm\)/IoU=0.5:0.95: ([0-9.]+)"
    wanted = json.dumps([{"Name": "mAP", "Regex": "mAP(x)?"}, {"Name": "segm", "Regex": segm}])
    assert read("mAP(segm)/IoU=0.5:0.95: 0.44", wanted=wanted) == {"segm": 0.44}


def test_user_regex_with_endless_backtracking_is_named_and_dropped():
    endless, said = "(([a-z=0-9 .:]+)+)+!", []
    wanted = json.dumps([{"Name": "slow", "Regex": endless}, {"Name": "map", "Regex": "map: ([0-9.]+)"}])
    settings, *_ = read_settings({"ENTRYPOINT_METRICS": wanted}, {})
    printed = Printed(settings.metrics, said.append)
    for step in range(3):
        printed.scan("rank 0", f"step={step} map: 0.{step} {'and so on ' * 9}\n")
    assert [(line.process, line.values) for line in printed.take_metrics()] == [("rank 0", {"step": 2, "map": 0.2})]
    (words,) = said
    assert "the expression of 'slow'" in words and endless in words


def test_slow_user_regex_is_kept_within_its_time_share(monkeypatch):
    """The regex reads as much output as its share of time allows."""
    monkeypatch.setattr("entrypoint.observe.monitor.printed_metrics.AT_ONCE", 0.01)
    quadratic = WantedMetric("n", "a*a*b([0-9])", pytest.fail)
    lines = ["a" * 150] * 10_000
    quadratic.last_in(lines)
    quadratic._room = 1.0
    assert quadratic.last_in(["aab7"]) == 7


def test_impossible_rank_in_stall_warning_is_left_out():
    printed = Printed((), print)
    printed.scan("rank 0", f"[W stall_inspector.cc:1] One or more\nMissing ranks:\n{'9' * 5000}: [a]\n1: [b]\n")
    printed.scan("rank 0", "loss=1\n")
    assert [(line.process, line.values) for line in printed.take_metrics()] == [("rank 0", {"loss": 1})]


def test_last_lines_have_no_control_characters():
    printed = Printed((), print)
    printed.scan("script", "a\x9b31mb\x1b]0;title\x07c\x85d\n")
    assert [(line.process, line.lines) for line in printed.take_lines()] == [("script", ["a31mb]0;titlecd"])]


@pytest.mark.parametrize(
    "logged",
    [
        "2026-11-21 12:21:14.232185: I tensorflow/core/platform/cpu_feature_guard.cc:182] This TensorFlow binary is\n"
        "To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow.\n",
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
        "I0000 00:00:1795263612.510118   12345 cuda_executor.cc:1015] successful NUMA node read\n",
    ],
)
def test_tensorflows_start_is_not_taken_for_the_scripts_first_line(logged):
    printed = Printed((), print)
    printed.scan("script", logged)
    assert printed.take_bytes() == {"script": {"output": len(logged), "startup": len(logged)}}
    printed.scan("script", f"{logged}rows: 5\n")
    assert "startup" not in printed.take_bytes()["script"]
    printed.scan("script", logged)
    assert printed.take_bytes() == {"script": {"output": len(logged)}}, "it spoke before"
