"""Test the folders, FIFOs and lists that a script finds under `entrypoint local`, and their removal at the end.

unit/simulate/test_simulated_channels.py tests the content of each channel.
"""

import gzip
import os
import re
import stat
from pathlib import Path

import pytest

READS = """
import json, os, stat, time
data = os.environ["SM_INPUT_DIR"] + "/data"
seen = {"listed": sorted(os.listdir(data)), "config": json.loads(os.environ["SM_INPUT_DATA_CONFIG"])}
def read(fifo):
    while not os.path.exists(f"{data}/{fifo}"):
        time.sleep(0.01)
    seen["is fifo"] = stat.S_ISFIFO(os.stat(f"{data}/{fifo}").st_mode)
    with open(f"{data}/{fifo}") as file:
        return file.read().split()
seen["passes"] = [read(f"stream_{number}") for number in range(3)]
seen["part"] = sorted(os.listdir(data + "/part"))
seen["list"] = open(data + "/part-manifest").read().splitlines()
seen["fast"] = open(data + "/fast/row-0").read()
try:
    open(data + "/fast/new", "w")
except OSError as error:
    seen["refused"] = error.strerror
with open(os.environ["SM_OUTPUT_DATA_DIR"] + "/seen.json", "w") as file:
    json.dump(seen, file)
checkpoints = json.load(open(os.environ["SM_INPUT_DIR"] + "/config/checkpointconfig.json"))["LocalPath"]
open(f"{checkpoints}/{os.environ['SM_CURRENT_HOST']}", "w").close()
"""


@pytest.fixture
def local(local):
    """Run `entrypoint local` to its end. No FIFO may be left."""

    def run(program: str, *words: str, code: int = 0, **options):
        made = local(program, *words, **options)
        made.must_end(code)
        assert not [path for path in made.folder.rglob("*") if stat.S_ISFIFO(path.lstat().st_mode)]
        return made

    return run


@pytest.fixture
def rows(tmp_path) -> Path:
    """Make seven objects, each with its own name as content; a comma is in the folder's name."""
    folder = tmp_path / "rows,all"
    folder.mkdir()
    for number in range(7):
        (folder / f"row-{number}").write_text(f"row-{number}\n")
    return folder


def test_simulated_hosts_get_channels_of_all_modes(local, tmp_path, rows, engine):
    run = local(
        READS, "--input-mode", "Pipe",
        "--channel", f"stream={rows},distribution=ShardedByS3Key,shuffle=7",
        "--channel", f"part={rows},mode=File,distribution=ShardedByS3Key", "--channel", f"fast={rows},mode=FastFile",
        "--channel", f"idle={rows}", "--checkpoints", str(tmp_path / "kept" / "here"), count=2, engine=engine,
    )  # fmt: skip
    hosts = run.json_of("seen.json")
    first, second = hosts
    every = [f"row-{number}" for number in range(7)]
    for number in range(3):
        assert sorted(first["passes"][number] + second["passes"][number]) == every
    assert first["passes"][0] != first["passes"][1]
    assert first["part"] == every[::2] and second["part"] == every[1::2]
    for host in hosts:
        assert host["listed"] == [
            "fast", "fast-manifest", "idle-manifest", "idle_0", "part", "part-manifest", "stream-manifest", "stream_0"
        ]  # fmt: skip
        assert host["is fifo"]
        assert host["list"] == ["part", *(f"s3://local/part/{name}" for name in host["part"])]
        assert host["fast"] == "row-0\n"
        modes = {name: each["TrainingInputMode"] for name, each in host["config"].items()}
        assert modes == {"stream": "Pipe", "part": "File", "fast": "File", "idle": "Pipe"}
        assert host["config"]["stream"]["S3DistributionType"] == "ShardedByS3Key"
        if engine == "netns":  # hosts that are processes alone cannot be kept from writing
            assert host["refused"] == "Read-only file system"
    assert sorted(path.name for path in (tmp_path / "kept/here").iterdir()) == ["algo-1", "algo-2"]
    assert sorted(path.name for path in rows.iterdir() if path.name != "new") == every


def test_job_without_checkpoint_folder_ignores_checkpoints_of_earlier_jobs(local, engine):
    program = (
        "from sagemaker_tf_data import checkpoints\n"
        "folder = checkpoints.folder()\n"
        "folder.mkdir(exist_ok=True)\n"
        "print('found', sorted(path.name for path in folder.iterdir()))\n"
        "(folder / 'ckpt-1').touch()\n"
    )
    for _ in range(2):
        found = local(program, engine=engine, count=2).terminal.count("found []")
        assert found == 2, "two hosts, and nothing of the other one's or of an earlier job's"


def test_sigterm_during_a_stream_ends_the_job(local, rows):
    (rows / "large").write_bytes(bytes(8_000_000))
    program = "import os, time\nfile = open(os.environ['SM_INPUT_DIR'] + '/data/train_0')\ntime.sleep(600)\n"
    run = local(program, "--timeout", "1.5", "--channel", f"train={rows},mode=Pipe", code=143)
    assert "stopping after 1.5 s" in run.terminal


def test_incomplete_data_ends_the_job(local, rows):
    for path in rows.iterdir():
        path.write_bytes(gzip.compress(os.urandom(100_000))[:50_000])
    program = "import os\nopen(os.environ['SM_INPUT_DIR'] + '/data/train_0', 'rb').read()\n"
    run = local(program, "--channel", f"train={rows},mode=Pipe,compression=Gzip", count=2, code=78)
    assert re.search(r"^error: channel train, pass 0: \S+/row-\d: .+", run.terminal, re.MULTILINE)


ON_A_WORKER = """
import tensorflow as tf
from sagemaker_tf_data import pipe_dataset
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type == "worker":
    tf.distribute.Server(resolver.cluster_spec(), "worker", resolver.task_id, protocol="grpc").join()
coordinator = tf.distribute.coordinator.ClusterCoordinator(tf.distribute.ParameterServerStrategy(resolver))
batches = iter(coordinator.create_per_worker_dataset(lambda: pipe_dataset("rows", "TextLine", reader="own").batch(9)))
lines = coordinator.schedule(tf.function(lambda batches: next(batches)), args=(batches,)).fetch()
print("read", b" ".join(lines).decode())
coordinator.join()
"""


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "workers, code, says",
    [
        ("server", 0, "read row-0 row-1 row-2 row-3 row-4 row-5 row-6"),
        pytest.param("script", 1, "a script that is a worker calls serve_pipes() first", marks=pytest.mark.more),
    ],
)
def test_worker_servers_of_a_coordinator_read_pipes(local, rows, workers, code, says):
    """The launcher starts these servers. unit/launcher/job/test_channels.py tests which records they read."""
    asked = {"ENTRYPOINT_PS_COUNT": "1", "ENTRYPOINT_PS_WORKERS": workers}
    run = local(ON_A_WORKER, "--channel", f"rows={rows},mode=Pipe", count=2, mode="ps", code=code, **asked)
    assert says in run.terminal
