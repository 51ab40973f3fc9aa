"""Test Pipe mode in the image, with sagemaker-tensorflow's operator if there is one for its TensorFlow."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from containers import BUSY, PROGRAMS, Cluster, run_alone
from epochs import REPLICATED, SHARDED, tfrecords
from sent import by_sdk, mpi

from entrypoint.simulate.local_channels import ChannelMode, LocalChannel
from images import DEFAULT_LINE, LINE

FOREIGN = Path(__file__).resolve().parents[1] / "programs/foreign"

StartCluster = Callable[..., Cluster]


@pytest.mark.more  # test_cluster_sharding.py has the operator, unit/library/ our reader
def test_operator_and_launchers_reader_alternate_on_one_pipe(image: str, tmp_path: Path) -> None:
    """Both readers return the same records of all formats, and continue with the next pass after the other one."""
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


# The article's matrix has more cells: unit/launcher/job/test_channels.py reads each once, sdk/test_submit.py plans it.
@pytest.mark.more  # test_cluster_sharding.py has the operator and passes that are dealt out
@pytest.mark.skipif(LINE != DEFAULT_LINE, reason="sagemaker-tensorflow has no release for this TensorFlow")
def test_ranks_with_a_channel_each_read_every_record_once(cluster: StartCluster, tmp_path: Path) -> None:
    """The script reads as in the DeepFM article, with two ranks on each of two hosts."""
    first = tfrecords(tmp_path / "training", [13, 7, 1, 20, 6], 0)
    second = tfrecords(tmp_path / "training-2", [2, 9, 4], 100)
    evaluation = tfrecords(tmp_path / "evaluation", [5, 3], 200)
    channels = {
        name: LocalChannel(name=name, source=tmp_path / name, mode=ChannelMode.PIPE, distribution=distribution)
        for name, distribution in (("training", SHARDED), ("training-2", SHARDED), ("evaluation", REPLICATED))
    }
    told = {"enable_data_multi_path": True, "enable_s3_shard": True}
    with cluster(
        code=FOREIGN / "pipe_channels.py",
        hosts=2,
        channels=channels,
        # More ranks than cores: those that wait leave their core to others.
        hyperparameters=by_sdk("train.py", mpi(2, "--mca mpi_yield_when_idle 1"), worker_per_host=2, **told),
        environment={**BUSY, "TF_CPP_MIN_LOG_LEVEL": "2"},
    ) as job:
        endings = job.all_end(within=400)
        # A container is not told whether they have one S3 path.
        assert "If all have one S3 path, every process reads all of it: set ENTRYPOINT_CH" in endings[0].log
        ranks = [facts for ending in endings for facts in ending.told.values()]
    assert [rank["channels"] for rank in ranks] == 4 * [["evaluation", "training", "training-2"]]
    assert [rank["channel"] for rank in ranks] == 2 * ["training", "training-2"]
    assert [rank["evaluation"] for rank in ranks] == [evaluation, None, evaluation, None]
    for epoch in range(2):
        assert sorted(number for rank in ranks for number in rank["epochs"][epoch]) == sorted(first + second)
