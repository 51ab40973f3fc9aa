"""Test channels as a script sees them under `entrypoint local`: folders, FIFOs, lists, and nothing left at the end."""

import gzip
import json
import os
import re
import shutil
import stat
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from epochs import CELLS, OWN, PIPE, SHARDED, make, name_of

ROOT = Path(__file__).resolve().parents[2]
LONG = 120.0  # seconds; says when to give up, not how fast anything is

pytestmark = pytest.mark.usefixtures("no_leftovers")

namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip", path=f"{os.environ['PATH']}:/usr/sbin:/sbin"),
    reason="takes root and iproute2",
)
ENGINES = [
    pytest.param("process", marks=[pytest.mark.more] if os.geteuid() == 0 else []),
    pytest.param("netns", marks=namespaces),
]

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


READS_NUMBERS = (ROOT / "tests/cluster/programs/reads.py").read_text()


def run(tmp_path: Path, program: str, *words: str, **environment: str) -> tuple[int, str]:
    """Run `entrypoint local` on a program; return (exit code, terminal). No FIFO may be left."""
    code, out = tmp_path / "code", tmp_path / "out"
    code.mkdir()
    (code / "train.py").write_text(program)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ENTRYPOINT_", "SM_"))}
    env |= {"PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-m", "entrypoint", "local", str(code / "train.py"), "--output", str(out), *words],
        env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LONG,
    )  # fmt: skip
    print(done.stdout)
    assert not [path for path in out.rglob("*") if stat.S_ISFIFO(path.lstat().st_mode)]
    return done.returncode, done.stdout


@pytest.fixture
def rows(tmp_path) -> Path:
    """Make seven objects, each with its own name as content; a comma is in the folder's name."""
    folder = tmp_path / "rows,all"
    folder.mkdir()
    for number in range(7):
        (folder / f"row-{number}").write_text(f"row-{number}\n")
    return folder


@pytest.mark.parametrize("engine", ENGINES)
def test_two_hosts_with_channels_of_all_modes(tmp_path, rows, engine):
    code, _ = run(
        tmp_path, READS, "--engine", engine, "--hosts", "2", "--input-mode", "Pipe",
        "--channel", f"stream={rows},distribution=ShardedByS3Key,shuffle=7",
        "--channel", f"part={rows},mode=File,distribution=ShardedByS3Key", "--channel", f"fast={rows},mode=FastFile",
        "--channel", f"idle={rows}", "--checkpoints", str(tmp_path / "kept" / "here"),
    )  # fmt: skip
    assert code == 0
    hosts = [json.loads((tmp_path / f"out/algo-{n}/ml/output/data/seen.json").read_text()) for n in (1, 2)]
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


@pytest.mark.parametrize("engine", ENGINES)
def test_a_job_without_a_folder_for_checkpoints_goes_on_from_no_other_job(tmp_path, engine):
    program = (
        "from sagemaker_tf_data import checkpoints\n"
        "folder = checkpoints.folder()\n"
        "folder.mkdir(exist_ok=True)\n"
        "print('found', sorted(path.name for path in folder.iterdir()))\n"
        "(folder / 'ckpt-1').touch()\n"
    )
    for place in ("first", "second"):
        (tmp_path / place).mkdir()
        code, terminal = run(tmp_path / place, program, "--engine", engine, "--hosts", "2")
        assert code == 0
        assert terminal.count("found []") == 2, "two hosts, and nothing of the other one's or of an earlier job's"


# --- as SageMaker feeds a job, read by a script that knows nothing of us ---

COPIES = """
import json, os, shutil, time
data, out = os.environ["SM_INPUT_DIR"] + "/data", os.environ["SM_OUTPUT_DATA_DIR"]
rank = int(os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", 0))
ranks = int(os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", 1))
wanted = [name for name in json.loads(os.environ["SM_CHANNELS"]) if name != "unread"]
for number in range(3):
    for name in wanted[rank::ranks]:
        while not os.path.exists(f"{data}/{name}_{number}"):
            time.sleep(0.01)
        with open(f"{data}/{name}_{number}", "rb") as stream, open(f"{out}/{name}_{number}", "wb") as file:
            shutil.copyfileobj(stream, file)
"""
PASSES = range(3)


@pytest.fixture
def objects(tmp_path, rows) -> dict[str, Path]:
    """Return sources by what they hold: `rows`, the same compressed, and an augmented manifest of three pictures."""
    zipped = tmp_path / "zipped"
    zipped.mkdir()
    for path in rows.iterdir():
        (zipped / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    lines = []
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(picture(number))
        lines.append({"label": {"class": number}, "weight": 0.5, "image-ref": f"{number}.jpg"})
    (tmp_path / "pictures.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return {"rows": rows, "zipped": zipped, "pictures": tmp_path / "pictures.jsonl"}


def picture(number: int) -> bytes:
    """Return bytes that are no text, with a length that is no multiple of RecordIO's padding of four."""
    return b"\xff\xd8" + bytes(range(200)) * number + b"\n"


def records(stream: bytes) -> list[bytes]:
    """Return the records of a RecordIO text."""
    found = []
    while stream:
        magic, length = struct.unpack_from("<II", stream)
        assert magic == 0xCED7230A
        found.append(stream[8 : 8 + length])
        stream = stream[8 + length + -length % 4 :]
    return found


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((), id="single"),
        pytest.param(
            ("--mode", "mpi", "--processes-per-host", "2"),
            id="mpi",
            marks=pytest.mark.skipif(
                not (shutil.which("mpirun") and Path("/usr/sbin/sshd").exists()),
                reason="needs Open MPI and an ssh daemon",
            ),
        ),
    ],
)
def test_more_channels_than_ranks_shuffled_compressed_and_of_an_augmented_manifest(tmp_path, objects, words):
    """Each rank reads several channels, pass after pass; one is not read. All data are right, and the job ends."""
    rows, zipped, pictures = objects.values()
    code, _ = run(
        tmp_path, COPIES, "--engine", "process", "--hosts", "2", "--input-mode", "Pipe", *words,
        "--channel", f"plain={rows}", "--channel", f"unread={rows}", "--channel", f"mixed={rows},shuffle=7",
        "--channel", f"mixed-too={rows},shuffle=7", "--channel", f"zipped={zipped},compression=Gzip",
        "--channel", f"dealt={rows},distribution=ShardedByS3Key,shuffle=7",
        "--channel", f"pictures={pictures},attributes=image-ref:label,wrapper=RecordIO",
        "--channel", f"pictures-dealt={pictures},attributes=label:image-ref,wrapper=RecordIO,"
        "distribution=ShardedByS3Key,shuffle=7",
    )  # fmt: skip
    assert code == 0

    def came(channel: str, number: int) -> list[bytes]:
        """Return the pass as each host got it."""
        return [(tmp_path / f"out/algo-{host}/ml/output/data/{channel}_{number}").read_bytes() for host in (1, 2)]

    every = [f"row-{number}\n".encode() for number in range(7)]
    pairs = [(picture(number), {"class": number}) for number in range(3)]
    for number in PASSES:
        # In order of keys; what was compressed as if it had not been.
        assert came("plain", number) == came("zipped", number) == 2 * [b"".join(every)]
        # One order for all hosts and channels with one seed.
        first, second = came("mixed", number)
        assert first == second == came("mixed-too", number)[0]
        assert sorted(first.splitlines(True)) == every
        # Each object on one of the hosts.
        assert sorted(b"".join(came("dealt", number)).splitlines(True)) == every
        # A record for each attribute, in the order of AttributeNames and not of the line; no other attribute.
        wanted = [record for image, label in pairs for record in (image, json.dumps(label).encode())]
        assert [records(stream) for stream in came("pictures", number)] == 2 * [wanted]
        # Lines are dealt out and shuffled whole.
        dealt = [record for stream in came("pictures-dealt", number) for record in records(stream)]
        found = [(image, json.loads(label)) for label, image in zip(dealt[::2], dealt[1::2], strict=True)]
        assert sorted(found, key=lambda pair: pair[1]["class"]) == pairs
    assert len({came("mixed", number)[0] for number in PASSES}) == len(PASSES), "another order in each pass"
    parts = {tuple(sorted(came("dealt", number)[0].splitlines())) for number in PASSES}
    assert len(parts) > 1, "other objects for the first host in another pass"


@pytest.mark.more  # the examples: unit/library/test_data_pipe.py; the records: above
@pytest.mark.tensorflow
def test_examples_of_an_augmented_manifest_are_read_once_and_whole(tmp_path, objects):
    """`shard` deals them out to two hosts, before `batch`, pass after pass."""
    program = """
import json, os
from sagemaker_tf_data import pipe_dataset, shard
examples = shard(pipe_dataset("pictures", "RecordIO", attributes=["image-ref", "label"]), "pictures").batch(2)
passes = [
    [(image.hex(), json.loads(label)) for batch in examples.as_numpy_iterator() for image, label in
     zip(batch["image-ref"].tolist(), batch["label"].tolist(), strict=True)]
    for _ in range(2)
]
with open(os.environ["SM_OUTPUT_DATA_DIR"] + "/passes.json", "w") as file:
    json.dump(passes, file)
"""
    code, _ = run(
        tmp_path, program, "--engine", "process", "--hosts", "2", "--mode", "mwms",
        "--channel", f"pictures={objects['pictures']},mode=Pipe,attributes=image-ref:label,wrapper=RecordIO",
        SAGEMAKER_TF_DATA_READER="own", TF_CPP_MIN_LOG_LEVEL="2",
    )  # fmt: skip
    assert code == 0
    hosts = [json.loads((tmp_path / f"out/algo-{n}/ml/output/data/passes.json").read_text()) for n in (1, 2)]
    wanted = [[picture(number).hex(), {"class": number}] for number in range(3)]
    assert hosts == [2 * [wanted[::2]], 2 * [wanted[1::2]]]


def test_a_job_that_is_stopped_in_the_midst_of_a_stream(tmp_path, rows):
    (rows / "large").write_bytes(bytes(8_000_000))
    program = "import os, time\nopen(os.environ['SM_INPUT_DIR'] + '/data/train_0').read(3)\ntime.sleep(600)\n"
    slow = program.replace(".read(3)", "").replace("open", "file = open")  # it keeps the FIFO and reads nothing
    code, terminal = run(tmp_path, slow, "--timeout", "1.5", "--channel", f"train={rows},mode=Pipe")
    assert code == 143
    assert "stopping after 1.5 s" in terminal


def test_data_that_is_not_whole_ends_the_job(tmp_path, rows):
    for path in rows.iterdir():
        path.write_bytes(gzip.compress(os.urandom(100_000))[:50_000])
    program = "import os\nopen(os.environ['SM_INPUT_DIR'] + '/data/train_0', 'rb').read()\n"
    code, terminal = run(tmp_path, program, "--hosts", "2", "--channel", f"train={rows},mode=Pipe,compression=Gzip")
    assert code == 78
    assert re.search(r"^error: channel train, pass 0: \S+/row-\d: .+", terminal, re.MULTILINE)


@pytest.mark.parametrize(
    "channel, says",
    [
        ("train=rows,mode=Pope", "mode='Pope'; wanted one of File, FastFile, Pipe"),
        ("train=rows,shuffle=1", "wanted mode=Pipe, or no shuffle"),
        ("train=empty,mode=Pipe", "holds no file"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_starts(tmp_path, channel, says):
    (tmp_path / "empty").mkdir()
    word = channel.replace("=", f"={tmp_path}/", 1)
    code, terminal = run(tmp_path, "print('trained')\n", "--channel", word)
    assert code == 78
    assert says in terminal and len(terminal.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.more  # the reader: unit/library/test_data_pipe.py
@pytest.mark.tensorflow
@pytest.mark.skipif(
    not (shutil.which("mpirun") and Path("/usr/sbin/sshd").exists()), reason="needs Open MPI and an ssh daemon"
)
def test_ranks_together_read_every_record_once_in_every_pass(tmp_path):
    """The same as tests/cluster/test_cluster_sharding.py in containers, with our own reader of FIFOs."""
    pytest.importorskip("mpi4py")
    data = make(tmp_path / "data", [cell for cell in CELLS if cell[2] is PIPE])
    code, _ = run(
        tmp_path, READS_NUMBERS, "--hosts", "2", "--mode", "mpi", "--processes-per-host", "2", *data.words,
        "--hyperparameters", f"names={data.names}", ENTRYPOINT_CHANNEL_GROUPS=data.groups,
        SAGEMAKER_TF_DATA_READER="own", TF_CPP_MIN_LOG_LEVEL="2",
    )  # fmt: skip
    assert code == 0
    files = list(tmp_path.glob("out/*/ml/output/data/numbers-*.json"))
    assert len(files) == 4
    assert data.missing_and_double(files) == {}


@pytest.mark.more  # test_data.py has such servers; unit/library/test_data_recordio.py the reader in them
@pytest.mark.tensorflow
def test_worker_servers_together_read_every_record_once_in_every_pass(tmp_path):
    """By our own reader. The first host has one worker, beside the chief: nobody reads its part of a second channel."""
    data = make(tmp_path / "data", [cell for cell in CELLS if cell[2] is PIPE])
    code, _ = run(
        tmp_path, READS_NUMBERS, "--hosts", "2", "--mode", "ps", "--processes-per-host", "2", *data.words,
        "--hyperparameters", f"names={data.names}", ENTRYPOINT_CHANNEL_GROUPS=data.groups, ENTRYPOINT_PS_COUNT="1",
        ENTRYPOINT_PS_WORKERS="server", SAGEMAKER_TF_DATA_READER="own", TF_CPP_MIN_LOG_LEVEL="2",
    )  # fmt: skip
    assert code == 0
    wrong = data.missing_and_double(tmp_path.glob("out/algo-1/ml/output/data/numbers-*.json"))
    assert {where.partition(",")[0] for where in wrong} == {name_of((OWN, SHARDED, PIPE))}
    assert all(text.endswith("too often []") for text in wrong.values())


@pytest.mark.more  # the words: unit/library/test_data_pipe.py
@pytest.mark.tensorflow
def test_a_worker_server_says_what_is_wrong_with_its_pipe(tmp_path, rows):
    program = """
import tensorflow as tf
from sagemaker_tf_data import pipe_dataset
strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
batches = iter(coordinator.create_per_worker_dataset(lambda: pipe_dataset("rows", "TFRecord")))
print(coordinator.schedule(tf.function(lambda batches: next(batches)), args=(batches,)).fetch())
coordinator.join()
"""
    code, terminal = run(
        tmp_path, program, "--hosts", "2", "--mode", "ps", "--channel", f"rows={rows},mode=Pipe",
        ENTRYPOINT_PS_COUNT="1", ENTRYPOINT_PS_WORKERS="server", SAGEMAKER_TF_DATA_READER="own",
    )  # fmt: skip
    assert code == 1
    assert "rows_0 is not, or not all, TFRecord: after 0 records, at byte 0" in terminal


@pytest.mark.more  # the launcher's own servers do it above
@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "serves, says",
    [
        ("serve_pipes()", "read row-0 row-1 row-2 row-3 row-4 row-5 row-6"),
        ("", "a script that is a worker calls serve_pipes() first"),
    ],
    ids=["serves", "does not"],
)
def test_a_script_that_is_a_worker_serves_its_pipe(tmp_path, rows, serves, says):
    program = f"""
import tensorflow as tf
from sagemaker_tf_data import pipe_dataset, serve_pipes
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type == "worker":
    {serves}
    tf.distribute.Server(resolver.cluster_spec(), "worker", resolver.task_id, protocol="grpc").join()
coordinator = tf.distribute.coordinator.ClusterCoordinator(tf.distribute.ParameterServerStrategy(resolver))
batches = iter(coordinator.create_per_worker_dataset(lambda: pipe_dataset("rows", "TextLine", reader="own").batch(9)))
lines = coordinator.schedule(tf.function(lambda batches: next(batches)), args=(batches,)).fetch()
print("read", b" ".join(lines).decode())
coordinator.join()
"""
    code, terminal = run(
        tmp_path,
        program,
        "--hosts",
        "2",
        "--mode",
        "ps",
        "--channel",
        f"rows={rows},mode=Pipe",
        ENTRYPOINT_PS_COUNT="1",
    )
    assert code == (0 if serves else 1)
    assert says in terminal


@pytest.mark.more  # in one process: unit/library/test_data_recordio.py
@pytest.mark.tensorflow
def test_a_worker_server_reads_recordio_of_images_and_of_sagemakers_algorithms(tmp_path):
    """From its own channels, in Pipe and in File mode; the launcher's server has what the chief's graph asks for."""
    import numpy as np

    from sagemaker_tf_data import image_record, protobuf_record, recordio

    for name, records in (
        ("images", [image_record.pack(b"\xff\xd8\xff" + bytes(number), number) for number in range(5)]),
        ("tensors", [protobuf_record.pack({"values": ([number], np.int32([7]), [9])}) for number in range(5)]),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part.rec").write_bytes(b"".join(map(recordio.frame, records)))
    program = """
import tensorflow as tf
from sagemaker_tf_data import image_records, protobuf_records, shard
strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
spec = tf.SparseTensorSpec([9], tf.int32)
def read():
    images = shard(image_records("images"), "images").map(lambda image, label: (tf.strings.length(image), label))
    return tf.data.Dataset.zip((images, protobuf_records("tensors", spec).map(tf.sparse.to_dense))).batch(9)
batches = iter(coordinator.create_per_worker_dataset(read))
(lengths, labels), rows = coordinator.schedule(tf.function(lambda batches: next(batches)), args=(batches,)).fetch()
print("read", lengths.tolist(), labels.tolist(), rows.argmax(axis=1).tolist(), rows.sum())
coordinator.join()
"""
    code, terminal = run(
        tmp_path, program, "--hosts", "2", "--mode", "ps", "--channel", f"images={tmp_path}/images,mode=Pipe",
        "--channel", f"tensors={tmp_path}/tensors", ENTRYPOINT_PS_COUNT="1", ENTRYPOINT_PS_WORKERS="server",
    )  # fmt: skip
    assert code == 0, terminal
    assert "read [3, 4, 5, 6, 7] [0.0, 1.0, 2.0, 3.0, 4.0] [0, 1, 2, 3, 4] 35" in terminal
