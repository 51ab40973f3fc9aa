"""Test examples/maskrcnn in containers: two ranks learn to find shapes, and `serve` finds them."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from containers import BUSY, PATIENCE, Cluster, download
from endpoint import predictions

pytestmark = [pytest.mark.more, pytest.mark.timeout(3600)]
Figure = Callable[[str, float], None]

MASKRCNN = Path(__file__).resolve().parents[2] / "examples/maskrcnn"
SIZE = {  # of the network and its images, for processors
    "training-split": "train", "validation-split": "val", "image-size": 128, "longest-side": 128,
    "depth": 10, "width": 32, "channels": 64, "head-width": 256, "mask-convolutions": 2, "anchor-scale": 4,
    "anchors-per-image": 64, "proposals-per-level": 200, "proposals": 100, "regions-per-image": 64, "detections": 20,
}  # fmt: skip
LEARNS = {"batch-size": 4, "optimizer": "adam", "learning-rate": 0.0015, "schedule": "cosine", "warmup-epochs": 0.5}
WANTED = 0.45  # of what it had not seen, by masks; it reaches 0.6 and more


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheels of requirements.txt, since the hosts have no index."""
    return download(tmp_path_factory.mktemp("wheels"), "--no-deps", "-r", str(MASKRCNN / "requirements.txt"))


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("numpy")
    folder = tmp_path_factory.mktemp("shapes")
    command = [sys.executable, MASKRCNN / "draw_shapes.py", f"--output={folder}"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)
    return folder


def test_two_hosts_learn_shapes(
    image: str,
    cluster: Callable[..., Cluster],
    figure: Figure,
    tell: Callable[[str], None],
    wheels: Path,
    shapes: Path,
) -> None:
    """local/test_maskrcnn.py tests that a stopped training resumes."""
    with cluster(
        code=MASKRCNN,
        hosts=2,
        mode="mpi",
        channels={"training": shapes},
        environment={**BUSY, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"},
        mounts=[f"{wheels}:/wheels:ro"],
        hyperparameters={**SIZE, **LEARNS, "epochs": 8, "log-steps": 60},
    ) as job:
        first, second = job.all_end(within=3000)
        assert "on 2 ranks, 4 images each per step" in first.line("steps to go")
        figures = {
            kind: float(number) for kind, number in re.findall(r"mAP\((\w+)\)/IoU=0.5:0.95: ([\d.]+)", first.log)
        }
        figure(f"Mask R-CNN, 2 ranks: mAP(bbox) {figures['bbox']}, mAP(segm) {figures['segm']} after", first.seconds)
        tell(re.findall(r"epochs=8\S* .*", first.log)[-1])
        assert figures["segm"] >= WANTED and figures["bbox"] >= WANTED
        assert "mAP(" not in second.log, "one rank speaks for all"

        assert found_by_serve(image, first.ml / "model", shapes) >= 0.7


def found_by_serve(image: str, model: Path, shapes: Path) -> float:
    """Return the share of shapes in ten images that `serve` finds, with the right class and an IoU of at least 0.5."""
    content = json.loads((shapes / "annotations/instances_val.json").read_text())
    images = content["images"][:10]
    answers = predictions(image, model, [shapes / "val" / each["file_name"] for each in images])
    hits, wanted = 0, 0
    for described, answered in zip(images, answers, strict=True):
        assert len(answered["masks"]) == 20 and len(answered["masks"][0]) == len(answered["masks"][0][0]) == 28
        sure = [place for place in range(answered["count"]) if answered["scores"][place] >= 0.5]
        for each in content["annotations"]:
            if each["image_id"] == described["id"] and not each["iscrowd"]:
                wanted += 1
                hits += any(
                    answered["classes"][place] == each["category_id"]
                    and iou(answered["boxes"][place], each["bbox"]) >= 0.5
                    and max(map(max, answered["masks"][place])) >= 128
                    for place in sure
                )
    return hits / wanted


def iou(one: list[float], other: list[float]) -> float:
    """Return the intersection over union of two boxes (x, y, width, height)."""
    sides = [
        max(0.0, min(one[axis] + one[axis + 2], other[axis] + other[axis + 2]) - max(one[axis], other[axis]))
        for axis in (0, 1)
    ]
    common = sides[0] * sides[1]
    return common / (one[2] * one[3] + other[2] * other[3] - common)
