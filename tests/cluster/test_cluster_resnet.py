"""Test examples/resnet in containers: ranks on two hosts learn from photographs; `serve` answers with their model."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from containers import BUSY, PATIENCE, Cluster
from endpoint import predictions

from entrypoint.simulate.local_channels import ChannelMode, LocalChannel

# test_cluster_examples.py and sharding have its Horovod and its pipes, tests/unit/examples its parts
pytestmark = pytest.mark.more
StartCluster = Callable[..., Cluster]
Figure = Callable[[str, float], None]

RESNET = Path(__file__).resolve().parents[2] / "examples/resnet"
SMALL = {"cycle-time-ms": 20, "classes": 2, "skip-steps": 2}
EPOCHS = 4


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cut two photographs into pieces by the example's own tools; return folders of JPEGs and TFRecord files."""
    pytest.importorskip("tensorflow")
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("resnet")
    tool(folder, "sample_photos.py", "photos", "--training=320", "--validation=60")
    # 3 files among 4 ranks: their records are dealt out. 4 files: 2 for each pipe of a host.
    tool(folder, "folder_to_tfrecord.py", "photos/training", "--output=data/training", "--shards=4")
    tool(folder, "folder_to_tfrecord.py", "photos/validation", "--output=data/validation", "--shards=3")
    assert (folder / "data/labels.txt").read_text() == "china\nflower\n"
    for number, file in enumerate(sorted((folder / "data/training").iterdir())):
        half = folder / f"data/half-{number % 2 + 1}"
        half.mkdir(exist_ok=True)
        (half / file.name).hardlink_to(file)
    return folder


def tool(folder: Path, name: str, *arguments: str) -> None:
    command = [sys.executable, RESNET / name, *arguments]
    subprocess.run(command, cwd=folder, check=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)


def test_resnet_learns_from_streamed_photographs(
    image: str, cluster: StartCluster, figure: Figure, photos: Path
) -> None:
    """The network is small, since ResNet-50 on four ranks is too much for two CPUs.

    Each rank of a host has its own pipe. It shares the images of that pipe with one rank on the other host.
    """
    pipes = {
        f"training-{half}": LocalChannel(
            name=f"training-{half}", source=photos / f"data/half-{half}", mode=ChannelMode.PIPE
        )
        for half in (1, 2)
    }
    with cluster(
        code=RESNET,
        mode="mpi",
        hosts=2,
        environment=BUSY,
        hyperparameters={
            **SMALL, "model": "MobileNetV2", "epochs": EPOCHS, "warmup-epochs": 1, "schedule": "cosine",
            "settle-batches": 10, "sagemaker_mpi_num_of_processes_per_host": 2, "image-size": 48, "batch-size": 16,
            "compression": "fp16", "groups": 4, "images": 640,
        },
        channels={**pipes, "validation": photos / "data/validation"},
    ) as job:  # fmt: skip
        endings = job.all_end(within=780)
        first = endings[0]
        assert re.search("MobileNetV2 on 4 ranks, .* 10 steps", first.line("steps per epoch"))
        found = re.findall(r"validation accuracy=(\d\.\d+) top5=1\.0000 images=(\d+)", first.log)
        assert len(found) == EPOCHS
        accuracy, seen = float(found[-1][0]), int(found[-1][1])
        figure(f"MobileNetV2, 4 ranks: accuracy {accuracy} after", first.seconds)
        assert seen == 120, "every image is to be judged by one rank"
        assert accuracy >= 0.7, "chance is 0.5; 84 of 120 by chance: once in 140,000 runs"
        assert len(re.findall(r"resnet: +[0-3]  algo-[12] ", first.log)) == 4, "a row of the table for each rank"
        assert float(re.search(r"speed ranks=4 images_per_second=([\d.]+)", first.log)[1]) > 0
        assert [bool(list((ending.ml / "model").iterdir())) for ending in endings] == [True, False]

        pictures = photos / "photos/validation"
        some = [path for part in ("china", "flower") for path in sorted((pictures / part).iterdir())[:5]]
        answers = predictions(image, first.ml / "model", some)
        assert all(abs(sum(answer["probabilities"]) - 1) < 1e-3 for answer in answers)
        assert len(answers) == 10
        assert all(answer["label"] == answer["probabilities"].index(max(answer["probabilities"])) for answer in answers)


def test_resnet_50_benchmark_prints_the_table_of_scaling(cluster: StartCluster, figure: Figure) -> None:
    """The first rank runs alone, then both run, each on its own host."""
    hyperparameters = {**SMALL, "synthetic": True, "image-size": 32, "batch-size": 2, "steps": 3}
    with cluster(code=RESNET, mode="mpi", hosts=2, environment=BUSY, hyperparameters=hyperparameters) as job:
        first, _ = job.all_end(within=420)
        assert "ResNet50, 2 images of 32 x 32" in first.log and "in 214 tensors" in first.log
        row = r"resnet: +([12]) +([12]) +[\d.]+ +\([\d.]+-[\d.]+\) +[\d.]+ +([\d.]+) +(\d+)%"
        alone, both = re.findall(row, first.log)
        assert (alone[0], alone[1], alone[3]) == ("1", "1", "100") and both[:2] == ("2", "2")
        figure(f"ResNet-50, 2 ranks: {both[2]} images per second of 32 x 32 after", first.seconds)
