"""Which metrics are found in what programs print, and which words are not taken for one."""

import math
import re

import pytest

from entrypoint.job.settings import read_settings
from entrypoint.monitor.metrics import LAST, MOST, Reader


def read(*lines: str, wanted: str = "") -> dict[str, float]:
    settings, *_ = read_settings({"ENTRYPOINT_METRICS": wanted}, {})
    reader = Reader(wanted=[(name, re.compile(expression)) for name, expression in settings.metrics])
    for line in lines:
        reader.read(line + "\n")
    return reader.take()


@pytest.mark.parametrize(
    "lines, found",
    [
        pytest.param(["Epoch 3/10"], {"epoch": 3, "epochs": 10}, id="Keras, epoch"),
        pytest.param(
            ["Epoch 2/4", " 45/100 [============>.................] - ETA: 1s - loss: 0.5123 - accuracy: 0.83"],
            {
                "epoch": 2, "epochs": 4, "epoch_step": 45, "epoch_steps": 100, "step": 145, "loss": 0.5123,
                "accuracy": 0.83,
            },
            id="Keras 2",
        ),
        pytest.param(
            ["\x1b[1m100/100\x1b[0m \x1b[32m━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m2s\x1b[0m 20ms/step - loss: 3e-1"],
            {"epoch_step": 100, "epoch_steps": 100, "step": 100, "step_seconds": 0.02, "loss": 0.3},
            id="Keras 3, in colour",
        ),
        pytest.param(["12/Unknown [....] - loss: 2.5"], {"epoch_step": 12, "loss": 2.5}, id="Keras, no end known"),
        pytest.param(["INFO:tensorflow:loss = 0.5, step = 300 (1.2 sec)"], {"loss": 0.5, "step": 300}, id="Estimator"),
        pytest.param(["INFO:tensorflow:global_step/sec: 75.3"], {"steps_per_second": 75.3}, id="Estimator, its rate"),
        pytest.param(
            ["step=300 loss=0.51 images_per_second=120"],
            {"step": 300, "loss": 0.51, "images_per_second": 120},
            id="pairs",
        ),
        pytest.param(["step 300: loss 0.51"], {"step": 300, "loss": 0.51}, id="words"),
        pytest.param(["Train Epoch: 1 [640/60000 (1%)] Loss: 2.29"], {"epoch": 1, "loss": 2.29}, id="capitals"),
        pytest.param(["val_accuracy: 91%  lr: 1e-3"], {"val_accuracy": 0.91, "lr": 0.001}, id="percent"),
        pytest.param(["step=1 loss=0.9\rstep=2 loss=0.8"], {"step": 2, "loss": 0.8}, id="one line, written over"),
        pytest.param(["2026-11-25 10:20:00 host algo-1:7979 ready: 3"], {}, id="times and ports"),
        pytest.param(["reading 12 files: train/part-00001 took 3 s"], {}, id="prose"),
        pytest.param(["loss: see the log of step one"], {}, id="no number"),
    ],
)  # fmt: skip
def test_forms(lines, found):
    assert read(*lines) == pytest.approx(found)


def test_loss_that_is_no_number():
    assert math.isnan(read("epoch=1 loss=nan")["loss"])


def test_sagemakers_expressions():
    wanted = '[{"Name": "segm", "Regex": "mAP\\\\(segm\\\\)/IoU=0.5:0.95: ([0-9.]+)"}]'
    assert read("mAP(segm)/IoU=0.5:0.95: 0.44", wanted=wanted) == {"segm": 0.44}


def test_last_value_of_each_is_told_once():
    reader = Reader()
    reader.read("".join(f"step={n} loss={1 / n}\n" for n in range(1, 3 * LAST)))
    assert reader.take() == {"step": 3 * LAST - 1, "loss": 1 / (3 * LAST - 1)}
    assert reader.take() == {}


def test_names_are_bounded():
    reader = Reader()
    for number in range(2 * MOST):
        reader.read(f"loss_{number}=1\n")
        reader.take()
    reader.read(f"loss_0=2 loss_{2 * MOST - 1}=2\n")
    assert reader.take() == {"loss_0": 2}
