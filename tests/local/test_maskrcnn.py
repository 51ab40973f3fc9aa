"""Test examples/maskrcnn alone, without Horovod: a run that is stopped saves, and the next one resumes."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.tensorflow, pytest.mark.more]  # a minute of a processor, most of it for tracing
ROOT = Path(__file__).resolve().parents[2]
MASKRCNN = ROOT / "examples/maskrcnn"
PATIENCE = 600.0  # seconds: when to give up
SMALL = {
    "training-split": "train", "validation-split": "val", "image-size": 64, "longest-side": 64,
    "depth": 10, "width": 8, "channels": 16, "head-width": 32, "mask-convolutions": 1, "anchor-scale": 4,
    "anchors-per-image": 32, "proposals-per-level": 50, "proposals": 20, "regions-per-image": 16, "detections": 5,
    "batch-size": 2, "warmup-epochs": 0, "optimizer": "adam", "log-steps": 1,
}  # fmt: skip


def test_stopped_maskrcnn_run_resumes_at_its_step(no_leftovers, tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    pytest.importorskip("pycocotools")
    shapes = [sys.executable, MASKRCNN / "draw_shapes.py", f"--output={tmp_path}/shapes"]
    subprocess.run([*shapes, "--training=8", "--validation=2", "--size=64"], check=True, timeout=PATIENCE)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "SM_CHANNEL_TRAINING": f"{tmp_path}/shapes",
        "SM_INPUT_DIR": f"{tmp_path}/input",  # beside it are the checkpoints
        "SM_MODEL_DIR": f"{tmp_path}/model",
        "TF_NUM_INTRAOP_THREADS": "1",
    }
    (tmp_path / "model").mkdir()
    command = [sys.executable, MASKRCNN / "train.py", *(f"--{name}={value}" for name, value in SMALL.items())]

    lines = []
    with subprocess.Popen([*command, "--epochs=1000"], env=environment, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout
        for line in first.stdout:
            lines.append(line)
            if "epochs=" in line and len(lines) < 4:
                first.send_signal(signal.SIGTERM)
        assert first.wait(PATIENCE) == 0, lines
    (seen,) = re.findall(r"SIGTERM: saved behind (\d+) images", lines[-1])
    assert not list((tmp_path / "model").iterdir())

    images = 8 if "8 images of 3 classes" in lines[0] else 7  # of a drawing with nothing but a crowd nothing is learned
    epochs = int(seen) / images + 0.5
    second = subprocess.run(
        [*command, f"--epochs={epochs}"], env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert second.returncode == 0, second.stderr
    assert f"2 steps to go, resumed behind {seen} images" in second.stdout
    assert len(re.findall(r"mAP\((?:bbox|segm)\)/IoU=0.5:0.95: (?:0|1)\.\d+", second.stdout)) == 2
    assert (tmp_path / "model/1/saved_model.pb").is_file()
    assert (tmp_path / "model/categories.txt").read_text() == "1 circle\n2 square\n3 triangle\n"
