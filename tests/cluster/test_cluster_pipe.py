"""Test Pipe mode in the image, with sagemaker-tensorflow's operator if there is one for its TensorFlow."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from containers import BUSY, PROGRAMS, Cluster, run_alone
from epochs import REPLICATED, SHARDED, tfrecords
from sent import by_sdk, mpi
from variants import variants

from entrypoint.simulate.local_channels import ChannelMode, LocalChannel
from images import DEFAULT_LINE, LINE

FOREIGN = Path(__file__).resolve().parents[1] / "programs/foreign"
EPOCHS = 2  # of pipe_channels.py

StartCluster = Callable[..., Cluster]

needs_the_operator = pytest.mark.skipif(
    LINE != DEFAULT_LINE, reason="sagemaker-tensorflow has no release for this TensorFlow"
)


def test_the_operator_and_our_reader_take_turns(image: str, tmp_path: Path) -> None:
    """They read the same from all formats; each continues with the next pass, whichever had the last one."""
    formats = ("TFRecord", "RecordIO", "TextLine")
    for folder in ("input/config", "input/data"):
        (tmp_path / folder).mkdir(parents=True)
    config = tmp_path / "input/config/inputdataconfig.json"
    config.write_text(json.dumps({name: {"TrainingInputMode": "Pipe"} for name in formats}))
    shares = {name: {"channel": name, "mode": "Pipe", "count": 1, "index": 0} for name in formats}
    result = run_alone(
        image,
        "python",
        "/programs/pipes.py",
        mounts={tmp_path: "/job", PROGRAMS: "/programs:ro"},
        environment={
            "SAGEMAKER_BASE_DIR": "/job",
            "ENTRYPOINT_SHARDS": json.dumps(shares),
            "SAGEMAKER_TF_DATA_PATIENCE": "60",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        },
    )
    assert result.returncode == 0, result.stdout
    assert result.stdout.count(": 1503 records, right") == 18, result.stdout
    assert "TFRecord pass 6 in a graph: right" in result.stdout
    assert ("by_operator" in result.stdout) == (LINE == DEFAULT_LINE)


# --- a script that reads as the DeepFM article does, with two ranks on each of two hosts ---


def read_by_ranks(cluster: StartCluster, folder: Path, told: dict[str, bool], **sources: Path) -> list[dict]:
    """Return what each rank read of these channels, in rank order. `told`: what is passed to the script about them.

    Channels are dealt to hosts where the script is told so; `evaluation` never is.
    """
    sharded = SHARDED if told["enable_s3_shard"] else REPLICATED
    channels = {
        name: LocalChannel(
            name=name,
            source=source,
            mode=ChannelMode.PIPE,
            distribution=REPLICATED if name == "evaluation" else sharded,
        )
        for name, source in sources.items()
    }
    code = folder / "code"
    code.mkdir()
    shutil.copy(FOREIGN / "pipe_channels.py", code / "train.py")
    with cluster(
        program="train.py",
        code=code,
        hosts=2,
        channels=channels,
        # More ranks than cores: those that wait leave their core to others.
        hyperparameters=by_sdk("train.py", mpi(2, "--mca mpi_yield_when_idle 1"), worker_per_host=2, **told),
        environment={**BUSY, "TF_CPP_MIN_LOG_LEVEL": "2"},
    ) as job:
        endings = job.wait(within=400)
        assert {host: ending.exit_code for host, ending in endings.items()} == {"algo-1": 0, "algo-2": 0}
        # A container is not told whether they have one S3 path.
        assert "If all have one S3 path, every process reads all of it: set ENTRYPOINT_CH" in endings["algo-1"].log
        files = [path for ending in endings.values() for path in (ending.ml / "output/data").glob("rank-*.json")]
        return [json.loads(path.read_text()) for path in sorted(files, key=lambda path: path.name)]


def in_epoch(ranks: list[dict], epoch: int) -> Counter[int]:
    """Return how often all ranks together read each record."""
    return Counter(number for rank in ranks for number in rank["epochs"][epoch])


@needs_the_operator
@pytest.mark.parametrize(
    ("several_paths", "s3_shard"),
    # test_cluster_sharding.py has the operator and a pass that is dealt out; the article's matrix is of variants.
    variants(
        {
            "several paths, dealt by SageMaker": (True, True),
            "several paths, whole": (True, False),
            "one path, dealt by SageMaker": (False, True),
            "one path, whole": (False, False),
        }
    ),
)
def test_a_script_with_a_channel_for_each_rank_and_shards_of_its_own(
    cluster: StartCluster, tmp_path: Path, several_paths: bool, s3_shard: bool
) -> None:
    """Each record is read once per epoch, in each cell of the article's matrix; SM_CHANNELS has its order."""
    first = tfrecords(tmp_path / "first", [13, 7, 1, 20, 6], 0)
    second = tfrecords(tmp_path / "second", [2, 9, 4], 100)
    evaluation = tfrecords(tmp_path / "test", [5, 3], 200)
    ranks = read_by_ranks(
        cluster,
        tmp_path,
        {"enable_data_multi_path": several_paths, "enable_s3_shard": s3_shard},
        **{
            "training": tmp_path / "first",
            "training-2": tmp_path / ("second" if several_paths else "first"),
            "evaluation": tmp_path / "test",
        },
    )
    assert [rank["channels"] for rank in ranks] == 4 * [["evaluation", "training", "training-2"]]
    assert [rank["channel"] for rank in ranks] == 2 * ["training", "training-2"]
    assert [rank["evaluation"] for rank in ranks] == [evaluation, None, evaluation, None]
    for epoch in range(EPOCHS):
        assert in_epoch(ranks, epoch) == Counter(first + second if several_paths else first)


@pytest.mark.more
@needs_the_operator
def test_such_a_script_reads_twice_what_it_takes_for_several_paths_and_is_one(
    cluster: StartCluster, tmp_path: Path
) -> None:
    """Both channels have one S3 path, and the script is configured for several: the launcher cannot repair that."""
    first = tfrecords(tmp_path / "first", [3, 4], 0)
    tfrecords(tmp_path / "test", [2], 200)
    sources = {"training": "first", "training-2": "first", "evaluation": "test"}
    ranks = read_by_ranks(
        cluster,
        tmp_path,
        {"enable_data_multi_path": True, "enable_s3_shard": False},
        **{name: tmp_path / folder for name, folder in sources.items()},
    )
    for epoch in range(EPOCHS):
        assert in_epoch(ranks, epoch) == Counter(first + first)
