"""Test that all processes of a job together read each record once in each pass, for each way of sharing data."""

from collections.abc import Callable
from pathlib import Path

import pytest
from containers import BUSY, Cluster
from epochs import CELLS, make
from variants import variants

from images import DEFAULT_LINE, LINE

READER = "operator" if LINE == DEFAULT_LINE else "own"


# local/test_channels_local.py has FastFile under `entrypoint local`, and a coordinator that has workers read.
@pytest.mark.parametrize("mode, reader", variants({"mpi": ("mpi", READER), "mwms": ("mwms", "own")}, "mpi"))
def test_every_record_is_read_once_in_every_pass(
    cluster: Callable[..., Cluster], tmp_path: Path, mode: str, reader: str
) -> None:
    """Two processes run on each of two hosts."""
    data = make(tmp_path / "data", CELLS)
    assert len(data.channels) == 28
    with cluster(
        program="reads.py",
        mode=mode,
        hosts=2,
        channels={channel.name: channel for channel in data.channels},
        hyperparameters={"names": data.names},
        environment={
            "ENTRYPOINT_PROCESSES_PER_HOST": "2",
            "ENTRYPOINT_CHANNEL_GROUPS": data.groups,
            "SAGEMAKER_TF_DATA_READER": reader,
            "TF_CPP_MIN_LOG_LEVEL": "2",
            **BUSY,
        },
    ) as job:
        endings = job.all_end(within=400)
        files = [path for ending in endings for path in (ending.ml / "output/data").glob("numbers-*.json")]
        assert len(files) == 4
        assert data.missing_and_double(files) == {}
