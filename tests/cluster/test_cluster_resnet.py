"""examples/resnet in containers: ranks on two hosts learn from photographs, `serve` answers with their model."""

import base64
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from containers import BUSY, PATIENCE, Cluster
from endpoint import ask, serving

from entrypoint.local.channels import Channel, InputMode

StartCluster = Callable[..., Cluster]
Figure = Callable[[str, float], None]

RESNET = Path(__file__).resolve().parents[2] / "examples/resnet"
SMALL = {"cycle-time-ms": 20, "classes": 2, "skip-steps": 2}
LEARNS = {"model": "MobileNetV2", "epochs": 4, "warmup-epochs": 1, "schedule": "cosine", "settle-batches": 10}
# Half as many layers and epochs show that all of it works, and not that it learns.
RUNS = {**LEARNS, "model": "MobileNet", "epochs": 2}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pieces of two photographs, as the example's own tools make them: folders of JPEGs, and TFRecord files."""
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


@pytest.mark.more  # test_cluster_restarts.py and sharding have its Horovod and its pipes, tests/unit/examples its parts
@pytest.mark.parametrize("how, local_ranks", [(RUNS, 1), (LEARNS, 2)], ids=["runs", "learns"])
def test_photographs_streamed(
    image: str, cluster: StartCluster, figure: Figure, photos: Path, how: dict[str, str | int], local_ranks: int
) -> None:
    """With a small network: ResNet-50 on four ranks is too much for two processors. All else is the same.

    Each rank of a host has a pipe with its part of the images, of which its fellow on the other host takes every other
    one.
    """
    ranks = 2 * local_ranks
    folders = {"training-1": "half-1", "training-2": "half-2"} if local_ranks == 2 else {"training": "training"}
    pipes = {
        name: Channel(name=name, source=photos / "data" / folder, mode=InputMode.PIPE)
        for name, folder in folders.items()
    }
    with cluster(
        program="train.py",
        code=RESNET,
        mode="mpi",
        hosts=2,
        environment=BUSY,
        hyperparameters={
            **SMALL, **how,
            "sagemaker_mpi_num_of_processes_per_host": local_ranks, "image-size": 48, "batch-size": 16,
            "compression": "fp16", "groups": 4, "images": 160 * ranks,
        },
        channels={**pipes, "validation": photos / "data/validation"},
    ) as job:  # fmt: skip
        endings = job.wait(within=780)
        assert [ending.exit_code for ending in endings.values()] == [0, 0]
        first = endings["algo-1"]
        assert re.search(f"{how['model']} on {ranks} ranks, .* 10 steps", first.line("steps per epoch"))
        found = re.findall(r"validation accuracy=(\d\.\d+) top5=1\.0000 images=(\d+)", first.log)
        assert len(found) == how["epochs"]
        accuracy, seen = float(found[-1][0]), int(found[-1][1])
        figure(f"{how['model']}, {ranks} ranks: accuracy {accuracy} after", first.finished - first.started)
        assert seen == 120, "every image is to be judged by one rank"
        if how is LEARNS:
            assert accuracy >= 0.7, "chance is 0.5; 84 of 120 by chance: once in 140,000 runs"
        assert len(re.findall(r"resnet: +[0-3]  algo-[12] ", first.log)) == ranks, "a row of the table for each rank"
        assert float(re.search(rf"speed ranks={ranks} images_per_second=([\d.]+)", first.log)[1]) > 0
        assert [bool(list((ending.ml / "model").iterdir())) for ending in endings.values()] == [True, False]

        answers = serve(image, first.ml / "model", photos / "photos/validation")
        assert all(abs(sum(answer["probabilities"]) - 1) < 1e-3 for answer in answers)
        assert len(answers) == 10
        assert all(answer["label"] == answer["probabilities"].index(max(answer["probabilities"])) for answer in answers)


def serve(image: str, model: Path, pictures: Path) -> list[dict]:
    """What `serve` says to five JPEGs of each class."""
    files = [path for part in ("china", "flower") for path in sorted((pictures / part).iterdir())[:5]]
    rows = [{"b64": base64.b64encode(path.read_bytes()).decode()} for path in files]
    with serving(image, model) as (_, url):
        answer = ask(f"{url}/invocations", json.dumps({"instances": rows}).encode())
    assert isinstance(answer, dict)
    return answer["predictions"]


@pytest.mark.more
def test_resnet_50_on_noise(cluster: StartCluster, figure: Figure) -> None:
    """The table of scaling: the first rank alone, then both, each on a host of its own."""
    with cluster(
        program="train.py",
        code=RESNET,
        mode="mpi",
        hosts=2,
        environment=BUSY,
        hyperparameters={**SMALL, "synthetic": True, "image-size": 32, "batch-size": 2, "steps": 3},
    ) as job:
        endings = job.wait(within=420)
        assert [ending.exit_code for ending in endings.values()] == [0, 0]
        log = endings["algo-1"].log
        assert "ResNet50, 2 images of 32 x 32" in log and "in 214 tensors" in log
        alone, both = re.findall(r"resnet: +([12]) +([12]) +[\d.]+ +\([\d.]+-[\d.]+\) +[\d.]+ +([\d.]+) +(\d+)%", log)
        assert (alone[0], alone[1], alone[3]) == ("1", "1", "100") and both[:2] == ("2", "2")
        first = endings["algo-1"]
        figure(f"ResNet-50, 2 ranks: {both[2]} images per second of 32 x 32 after", first.finished - first.started)
