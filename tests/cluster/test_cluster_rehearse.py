"""Test `entrypoint rehearse` with containers as hosts: ranks read, exchange, save, and resume from checkpoints."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 300.0  # seconds; says when to give up
TRAINS = """
import os, pathlib, signal, time
from mpi4py import MPI

world, stop = MPI.COMM_WORLD, []
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
files = sorted(pathlib.Path("/opt/ml/input/data/training").iterdir())[world.rank :: world.size]
rows = [row for path in files for row in path.read_text().split()]
kept = pathlib.Path("/opt/ml/checkpoints/step")
first = world.bcast(int(kept.read_text()) + 1 if world.rank == 0 and kept.exists() else 0)
for step in range(first, 100_000):
    stopping = world.allreduce(len(stop))
    world.allreduce(bytearray(1 << 16))
    if world.rank == 0:
        print(f"step={step} loss={1 / (1 + step):.4f} rows={len(rows)}", flush=True)
        if step % 10 == 9 or stopping:
            kept.with_suffix(".tmp").write_text(str(step))
            kept.with_suffix(".tmp").replace(kept)
    if stopping:
        break
    time.sleep(0.02)
"""
REQUEST = {
    "TrainingJobName": "job",
    "RoleArn": "arn:aws:iam::123456789012:role/Training",
    "AlgorithmSpecification": {"TrainingImage": "image:2.14.1-cpu", "TrainingInputMode": "File"},
    "HyperParameters": {
        "sagemaker_program": "train.py", "sagemaker_mpi_enabled": "true",
        "sagemaker_mpi_num_of_processes_per_host": "2",
    },
    "InputDataConfig": [
        {
            "ChannelName": "training",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/rows/"}},
        }
    ],
    "CheckpointConfig": {"S3Uri": "s3://bucket/kept"},
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
}  # fmt: skip


@pytest.mark.more  # local/test_rehearse_local.py rehearses one process on each host
def test_ranks_in_containers_are_rehearsed(image: str, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text(TRAINS)
    (tmp_path / "rows").mkdir()
    for number in range(4):
        (tmp_path / f"rows/part-{number}.csv").write_text("1,2\n" * 100)
    (tmp_path / "request.json").write_text(json.dumps(REQUEST))
    words = [sys.executable, "-m", "entrypoint", "rehearse", "request.json", "--engine", "docker", "--image", image]
    words += ["--source", "src", "--channel", "training=rows", "--records", "40", "--seconds", "5", "--json"]
    words += ["--output", "out"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    value = json.loads(ended.stdout)
    told = {each["check"]: (each["severity"], each["found"]) for each in value["findings"]}
    assert [run["name"] for run in value["runs"]] == ["plain", "kill", "resume"]
    assert told["plan"] == ("fine", "MPI: 4 ranks on 2 hosts, 2 on each")
    assert told["shards"] == ("fine", "training: each of 4 files was read by one host (algo-1 2, algo-2 2)")
    assert told["distributed"][0] in ("fine", "note") and "exchange" in told["distributed"][1]
    assert told["resume"][0] == "fine" and told["resume"][1].startswith("it continued from step ")
    assert told["stop"] == ("fine", "it saved a checkpoint after the SIGTERM")
