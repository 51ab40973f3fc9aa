"""Test sharding: however data are shared, the processes of a job together read each record once in each pass."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from containers import BUSY, PROGRAMS, Cluster, repeated, sh
from epochs import CELLS, FAST_FILE, FILE, OWN, PIPE, SAME, SHARDED, make, name_of

from images import DEFAULT_LINE, LINE

ROOT = Path(__file__).resolve().parents[2]

StartCluster = Callable[..., Cluster]


def read(cluster: StartCluster, tmp_path: Path, data, mode: str, **environment: str) -> dict[str, str]:
    """Return what the processes of two hosts, two on each, read wrongly from the channels."""
    with cluster(
        program="reads.py",
        mode=mode,
        hosts=2,
        channels={channel.name: channel for channel in data.channels},
        hyperparameters={"names": data.names},
        environment={
            "ENTRYPOINT_PROCESSES_PER_HOST": "2",
            "ENTRYPOINT_CHANNEL_GROUPS": data.groups,
            "TF_CPP_MIN_LOG_LEVEL": "2",
            **BUSY,
            **environment,
        },
    ) as job:
        endings = job.wait(within=400)
        assert {host: ending.exit_code for host, ending in endings.items()} == {"algo-1": 0, "algo-2": 0}
        files = [path for ending in endings.values() for path in (ending.ml / "output/data").glob("numbers-*.json")]
        assert len(files) == (1 if mode == "ps" else 4)  # there the chief writes what the workers found
        return data.missing_and_double(files)


@pytest.mark.parametrize(
    "mode, reader",
    [("mpi", "operator" if LINE == DEFAULT_LINE else "own"), pytest.param("mwms", "own", marks=pytest.mark.more)],
)
def test_every_record_once_in_every_pass(cluster: StartCluster, tmp_path: Path, mode: str, reader: str) -> None:
    data = make(tmp_path / "data", CELLS)
    assert len(data.channels) == 28
    assert read(cluster, tmp_path, data, mode, SAGEMAKER_TF_DATA_READER=reader) == {}


@pytest.mark.more  # local/test_channels_local.py has it without containers
def test_every_record_once_under_entrypoint_local(image: str, tmp_path: Path) -> None:
    data = make(tmp_path / "data", [cell for cell in CELLS if cell[2] is FAST_FILE])
    words = ["--hosts", "2", "--mode", "mpi", "--processes-per-host", "2", "--engine", "docker", "--image", image]
    groups = {"ENTRYPOINT_CHANNEL_GROUPS": data.groups, "TF_CPP_MIN_LOG_LEVEL": "2"}
    words += repeated("--env", (f"{name}={value}" for name, value in BUSY.items()))
    (tmp_path / "code").mkdir()
    shutil.copy(PROGRAMS / "reads.py", tmp_path / "code")
    sh(
        sys.executable, "-m", "entrypoint", "local", str(tmp_path / "code/reads.py"), *words, *data.words,
        "--hyperparameters", f"names={data.names}", "--output", str(tmp_path / "out"),
        within=400, env={**os.environ, **groups, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    files = list(tmp_path.glob("out/*/ml/output/data/numbers-*.json"))
    assert len(files) == 4
    assert data.missing_and_double(files) == {}


@pytest.mark.more  # local/test_channels_local.py has it without containers, by our own reader
@pytest.mark.parametrize("reader", ["operator", "own"] if LINE == DEFAULT_LINE else ["own"])
def test_every_record_once_where_a_coordinator_has_workers_read(
    cluster: StartCluster, tmp_path: Path, reader: str
) -> None:
    """The first host has one worker, beside the chief: nobody reads its part of a second channel."""
    cells = [cell for cell in CELLS if cell[2] is PIPE or (cell[2] is FILE and cell[0] != SAME)]
    data = make(tmp_path / "data", cells)
    wrong = read(cluster, tmp_path, data, "ps", ENTRYPOINT_PS_WORKERS="server", ENTRYPOINT_PS_COUNT="1",
                 SAGEMAKER_TF_DATA_READER=reader)  # fmt: skip
    unread = {name_of(cell) for cell in cells if cell[:2] == (OWN, SHARDED)}
    assert {where.partition(",")[0] for where in wrong} == unread
    dealt = [100, 101, *range(111, 115)]  # the first and the third file of epochs.make's second source
    assert set(wrong.values()) == {f"missing {dealt}, too often []"}
