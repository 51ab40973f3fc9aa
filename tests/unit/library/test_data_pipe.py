"""Test Pipe mode: RecordIO, the state files of a channel, and datasets of real FIFOs that a thread feeds."""

import fcntl
import itertools
import json
import os
import queue
import random
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from named_pipes import feeding
from waiting import eventually

from sagemaker_tf_data import chunks, fifo, image_record, protobuf_record, recordio, tfrecord
from sagemaker_tf_data.channels import Channel
from sagemaker_tf_data.errors import DataError
from sagemaker_tf_data.fifo import Fifo, Passes
from sagemaker_tf_data.pipe import pipe_dataset
from sagemaker_tf_data.recordio_datasets import image_records, protobuf_records

np = pytest.importorskip("numpy")

ROOT = Path(__file__).parents[3]


def record_io(records: list[bytes]) -> bytes:
    return b"".join(struct.pack("<II", recordio.MAGIC, len(one)) + one + bytes(-len(one) % 4) for one in records)


def in_parts(record: bytes, cuts: list[int]) -> bytes:
    """Return one record, split into several RecordIO frames."""
    edges = [0, *sorted(cut % (len(record) + 1) for cut in cuts), len(record)]
    parts = [record[a:b] for a, b in itertools.pairwise(edges)]
    flags = [0] if len(parts) == 1 else [1, *[2] * (len(parts) - 2), 3]
    return b"".join(
        struct.pack("<II", recordio.MAGIC, flag << 29 | len(part)) + part + bytes(-len(part) % 4)
        for flag, part in zip(flags, parts, strict=True)
    )


def tf_record(records: list[bytes], checksum: int = 0) -> bytes:
    """Return TFRecords, all with this checksum of their contents."""
    framed = []
    for one in records:
        length = struct.pack("<Q", len(one))
        framed.append(length + struct.pack("<I", tfrecord.masked_crc32c(length)) + one + struct.pack("<I", checksum))
    return b"".join(framed)


def pieces(stream: bytes, split: chunks.Split, kind: str, folder: Path, patience: float = 30) -> list[bytes]:
    """Return the records that are read from a real FIFO with these bytes."""
    path = folder / "pipe_0"
    with suppress(FileNotFoundError):
        path.unlink()
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with feeding(path, stream):
            return [one for array in chunks.of_records(Fifo(path, descriptor, patience), split, kind) for one in array]
    finally:
        os.close(descriptor)


# ---- formats, without TensorFlow


@given(st.lists(st.tuples(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=3))), st.integers(0, 3))
def test_recordio_records_are_whole_wherever_the_stream_is_cut(framed, padding_missing):
    stream = b"".join(in_parts(*one) for one in framed)
    wanted = [record for record, _ in framed]
    if framed and framed[-1][1] == []:
        stream = stream[: len(stream) - min(padding_missing, -len(wanted[-1]) % 4)]
    for cut in {0, 1, 7, 8, 9, len(stream) // 2, len(stream)}:
        first, used = recordio.split(bytearray(stream), min(cut, len(stream)), False)
        rest, used_then = recordio.split(bytearray(stream[used:]), len(stream) - used, True)
        assert first + rest == wanted
        assert used + used_then == len(stream)


@given(st.lists(st.binary(max_size=50).map(lambda line: line.replace(b"\n", b"\r"))), st.booleans())
def test_text_records_end_at_line_feeds(lines, last_is_ended):
    stream = b"\n".join(lines) + (b"\n" if last_is_ended and lines else b"")
    wanted = lines if last_is_ended or not lines or lines[-1] else lines[:-1]
    middle = len(stream) // 2
    first, used = chunks.split_lines(bytearray(stream), middle, False)
    rest, used_then = chunks.split_lines(bytearray(stream[used:]), len(stream) - used, True)
    assert first + rest == wanted
    assert used + used_then == len(stream)


@given(st.lists(st.binary(max_size=100), min_size=1))
def test_tfrecord_boundaries_are_found(records):
    stream = tf_record(records)
    assert tfrecord.whole(stream, len(stream)) == (len(records), len(stream))
    assert tfrecord.whole(stream, len(stream) - 1) == (len(records) - 1, len(stream) - 16 - len(records[-1]))
    assert tfrecord.size(stream) == 16 + len(records[0])
    with pytest.raises(DataError):
        tfrecord.size(b"\1" + stream if stream[0] != 1 else b"\2" + stream)


@settings(max_examples=20)
@example(seed=0, number=0, size=10)
@given(st.integers(0), st.integers(0, 40), st.sampled_from([10, 3000, 300_000]))
def test_records_arrive_through_a_pipe(tmp_path_factory, seed, number, size):
    """The cases: no record, records much shorter than a piece, and longer records."""
    chance = random.Random(seed)
    records = [chance.randbytes(chance.randrange(size * 2)) for _ in range(number)]
    folder = tmp_path_factory.mktemp("pipe")
    chunks_size, chunks.SIZE = chunks.SIZE, 1 << 16
    try:
        assert pieces(record_io(records), recordio.split, "RecordIO", folder) == records
        lines = [one.replace(b"\n", b"") + b"." for one in records]
        assert pieces(b"\n".join(lines), chunks.split_lines, "TextLine", folder) == lines
    finally:
        chunks.SIZE = chunks_size


def test_complete_records_of_a_slow_pipe_arrive_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe_0")
    descriptor = os.open(tmp_path / "pipe_0", os.O_RDONLY | os.O_NONBLOCK)
    with open(tmp_path / "pipe_0", "wb", buffering=0) as writer:
        arrays = chunks.of_records(Fifo(tmp_path / "pipe_0", descriptor, 30), recordio.split, "RecordIO")
        one, two = record_io([b"one"]), record_io([b"two"])
        writer.write(one + two[:6])
        assert list(next(arrays)) == [b"one"]  # the writer has not closed
        writer.write(two[6:])
        assert list(next(arrays)) == [b"two"]
    os.close(descriptor)


# ---- the channel's files


def passes(tmp_path: Path, patience: float = 30, name: str = "train") -> Passes:
    data = tmp_path / "data"
    data.mkdir(exist_ok=True)
    return Passes(Channel(name=name, mode="Pipe", folder=data / name), tmp_path / "state", patience)


def read_all(source: Passes) -> bytes:
    content = bytearray(1000)
    with source.next() as pipe, memoryview(content) as view:
        have = 0
        while read := pipe.read_into(view[have:]):
            have += read
    return bytes(content[:have])


def test_each_pass_opens_the_next_pipe_and_stores_its_number(tmp_path):
    source = passes(tmp_path)
    with feeding(tmp_path / "data" / "train", b"first", b"", b"third"):
        assert [read_all(source) for _ in range(3)] == [b"first", b"", b"third"]
    assert (tmp_path / "state" / ".train-pipe_mode-state").read_text() == "3"
    (tmp_path / "state" / ".train-pipe_mode-state").write_text("7")  # the operator has read some
    os.mkfifo(tmp_path / "data" / "train_7")
    with feeding(tmp_path / "data" / "train_7", b"eighth"):
        assert read_all(source) == b"eighth"


@pytest.mark.parametrize("late", ["pipe", "writer"])  # a pipe without a writer reads like one at its end
def test_reader_waits_for_late_pipe_or_writer(tmp_path, late):
    source, content = passes(tmp_path), []
    if late == "writer":
        os.mkfifo(tmp_path / "data" / "train_0")
    reader = threading.Thread(target=lambda: content.append(read_all(source)), daemon=True)
    reader.start()
    state = tmp_path / "state"
    if late == "writer":
        eventually(lambda: fifo.read_number(state / ".train-pipe_mode-state") == 1, within=60)
    else:
        eventually((state / ".train-pipe_mode-lock").exists, within=60, what="the reader looks for its pipe")
    with feeding(tmp_path / "data" / ("train_0" if late == "writer" else "train"), b"late"):
        reader.join(timeout=120)
    assert content == [b"late"]


def test_waiting_for_a_pipe_is_logged_and_bounded(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(fifo, "FIRST_WORD", 0.1)
    with pytest.raises(DataError, match=r"train_0: there is no such pipe, since \d\d:\d\d:\d\d UTC, for \d s"):
        read_all(passes(tmp_path, patience=0.6))
    assert [message for message in caplog.messages if "waiting for" in message and "at most" in message]
    os.mkfifo(tmp_path / "data" / "train_0")
    with pytest.raises(DataError, match=r"train_0: the pipe exists but is empty, since .*Does SageMaker still write"):
        read_all(passes(tmp_path, patience=0.3))
    with pytest.raises(DataError, match=r"train_1: there is no such pipe \(train_0 was the last one\)"):
        read_all(passes(tmp_path, patience=0.3))


def test_reader_skips_pipe_not_counted_by_a_killed_reader(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(fifo, "GRACE", 0.2)
    source = passes(tmp_path)
    os.mkfifo(tmp_path / "data" / "train_1")
    with feeding(tmp_path / "data" / "train_1", b"second"):
        assert read_all(source) == b"second"
    assert "train_0 does not exist, but train_1 does" in caplog.text
    assert (tmp_path / "state" / ".train-pipe_mode-state").read_text() == "2"


def test_malformed_pipe_state_is_reported(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / ".train-pipe_mode-state").write_text("many")
    with pytest.raises(DataError, match=r"\.train-pipe_mode-state holds 'many'; wanted the number"):
        read_all(passes(tmp_path))
    (tmp_path / "data" / "eval_0").write_text("a file")
    with pytest.raises(DataError, match="eval_0 is not a named pipe"):
        read_all(passes(tmp_path, name="eval"))


SECOND = """
import sys
from pathlib import Path
from sagemaker_tf_data import fifo
from sagemaker_tf_data.channels import Channel
fifo.GRACE = 0.3
folder = Path(sys.argv[1])
channel = Channel(name="train", mode="Pipe", folder=folder / "data" / "train")
with fifo.Passes(channel, folder / "state", 30).next() as pipe:
    print("reads", pipe.path.name)
"""


def test_second_reader_of_a_channel_is_refused(tmp_path):
    """The second reader fails even between two passes of the first. It may read once the first has ended."""
    source = passes(tmp_path)
    for number in range(2):
        os.mkfifo(tmp_path / "data" / f"train_{number}")
    with feeding(tmp_path / "data" / "train_0", b"first"):
        assert read_all(source) == b"first"
    second = [sys.executable, "-c", SECOND, str(tmp_path)]
    result = subprocess.run(second, capture_output=True, text=True, cwd=ROOT, timeout=240)
    assert result.returncode != 0
    assert f"channel 'train' is read by process {os.getpid()} since " in result.stderr.splitlines()[-1]
    assert "one channel per local rank ('train-1', 'train-2' ...)" in result.stderr

    descriptor = fifo._claims.pop((os.getpid(), tmp_path / "state" / ".train-pipe_mode-reader"))
    fcntl.flock(descriptor, fcntl.LOCK_UN)  # as the kernel does when a process ends
    os.close(descriptor)
    result = subprocess.run(second, capture_output=True, text=True, cwd=ROOT, timeout=240)
    assert result.stdout == "reads train_1\n", result.stderr


# ---- datasets


@pytest.fixture
def job(job_with: Callable[[str], Path]) -> Path:
    return job_with("train")


def encoded(records: list[bytes], record_format: str, folder: Path) -> bytes:
    if record_format == "TFRecord":
        import tensorflow as tf

        with tf.io.TFRecordWriter(str(folder / "records")) as writer:
            for one in records:
                writer.write(one)
        return (folder / "records").read_bytes()
    return record_io(records) if record_format == "RecordIO" else b"".join(one + b"\n" for one in records)


def of_pipe(record_format: str = "TFRecord", **more: Any) -> Any:
    """Return the dataset of the channel `train`, read by this process."""
    return pipe_dataset("train", record_format, reader="own", patience=30, **more)


@pytest.mark.tensorflow
@pytest.mark.parametrize("record_format", ["TFRecord", "RecordIO", "TextLine"])
def test_each_pass_of_a_channel_has_its_own_records(record_format, job, tmp_path, monkeypatch):
    """Some records are longer than a piece. Each round of repeat() is a separate pass."""
    monkeypatch.setattr(chunks, "FILE_SIZE", 1 << 17)
    chance = random.Random(1)
    orders = []
    for number in range(3):
        sizes = [*(chance.randrange(2000) for _ in range(1000)), 400_000, 0]
        records = [b"%d %d " % (number, n) + b"%d" % (n % 10) * size for n, size in enumerate(sizes)]
        chance.shuffle(records)
        orders.append(records)
    streams = [encoded(records, record_format, tmp_path) for records in orders]
    with feeding(job / "train", *streams):
        dataset = of_pipe(record_format)
        first = [one.numpy() for one in dataset]
        rest = [one.numpy() for one in dataset.repeat(2).prefetch(10)]
    assert first == orders[0]
    assert rest == orders[1] + orders[2]
    assert (tmp_path / "pipe_state" / ".train-pipe_mode-state").read_text() == "3"


@pytest.mark.tensorflow
def test_complete_tfrecords_of_a_slow_pipe_arrive_at_once(job, tmp_path):
    """Records come a few at a time and grow, so that the buffer is emptied, enlarged and filled again."""
    records = [b"%d " % n * size for n, size in enumerate([1, 1000, 3_000_000, 0, 10, 6_000_000, 1, 1, 1])]
    sent: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def feed() -> None:
        with open(job / "train_0", "wb", buffering=0) as writer:
            for record in iter(sent.get, None):
                writer.write(encoded([record], "TFRecord", tmp_path))

    os.mkfifo(job / "train_0")
    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    sent.put(records[0])
    came = iter(of_pipe())
    for now, following in zip(records, [*records[1:], None], strict=True):
        assert next(came).numpy() == now  # before the next one is written
        sent.put(following)
    assert next(came, None) is None
    feeder.join(timeout=120)
    assert not feeder.is_alive()


@pytest.mark.tensorflow
def test_next_pass_follows_a_pass_that_was_left_early(job, tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "FILE_SIZE", 1 << 17)
    records = [b"%d " % n + bytes(1000) for n in range(3000)]
    stream = encoded(records, "TFRecord", tmp_path)
    with feeding(job / "train", stream, stream):
        dataset = of_pipe()
        assert [one.numpy() for one in dataset.take(3)] == records[:3]
        assert [one.numpy() for one in dataset] == records


@pytest.mark.tensorflow
@pytest.mark.parametrize("policy", ["AUTO", "DATA", "OFF"])
def test_autosharded_workers_get_disjoint_records(policy, job, tmp_path, monkeypatch):
    """MultiWorkerMirroredStrategy itself shards a dataset without `shard` by records, as with SageMaker's dataset."""
    import tensorflow as tf
    from tensorflow.python.data.experimental.ops.distribute import _AutoShardDataset

    monkeypatch.setattr(chunks, "FILE_SIZE", 1 << 15)
    records = [b"%d " % n + bytes(1000) for n in range(500)]
    stream = encoded(records, "TFRecord", tmp_path)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[policy]
    workers = 3
    with feeding(job / "train", *[stream] * workers):
        for index in range(workers):
            dataset = of_pipe().with_options(options)
            mine = [one.numpy() for one in _AutoShardDataset(dataset, workers, index)]
            assert mine == (records if policy == "OFF" else records[index::workers])


RIGHT = tf_record([bytes(1000)] * 8, checksum=tfrecord.masked_crc32c(bytes(1000)))
IMAGE, SHORT = image_record.pack(b"\xff\xd8\xff\xe0 whatever a picture is made of", 0), recordio.frame(b"short")
SIZE = len(recordio.frame(IMAGE))
TENSORS = [protobuf_record.pack({name: np.float32([1])}) for name in ("values", "x")]
DAMAGED = [
    # reader, stream, whole records, what is said
    ("TFRecord", RIGHT[:-3], 7, "after 7 records, at byte 7112: the pass ends there, in the middle of a record"),
    ("TFRecord", RIGHT + b"\1" * 20, 8, "after 8 records, at byte 8128: wanted a TFRecord's length"),
    ("TFRecord", RIGHT[:1015], 0, "after 0 records, at byte 0: the pass ends there, in the middle of a record"),
    ("TFRecord", b"some\nlines of text", 0, "wanted a TFRecord's length and its checksum, found 73 6f 6d 65"),
    ("TFRecord", record_io([b"a record"] * 10), 0, "It looks like RecordIO, in which the channel wraps objects"),
    ("TFRecord", tf_record([b"its checksum is not zero"] * 3), 0, "orrupted record at 12"),
    ("RecordIO", record_io([b"abcd"] * 5)[:-2], 4, "after 4 records, at byte 48: the pass ends there, in the"),
    ("RecordIO", record_io([b"abcd"] * 5)[:-9], 4, "after 4 records, at byte 48: the pass ends there"),
    ("RecordIO", record_io([b"abcd"] * 5) + b"abcdefgh", 5, "after 5 records, at byte 60: wanted RecordIO's magic"),
    ("RecordIO", tf_record([b"abcd"]), 0, "at byte 0: wanted RecordIO's magic number 0xced7230a, found 0x0"),
    ("RecordIO", b"\x1f\x8b\x08\x00abcdefgh", 0, "It looks like gzip"),
    ("RecordIO", in_parts(b"abcdefgh", [4])[:12], 0, "after 0 records, at byte 0: the pass ends there"),
    ("image", record_io([IMAGE] * 5)[:-6], 4,
     f"after 4 records, at byte {4 * SIZE}: the file ends there, in the middle of a record; wanted a complete file"),
    ("image", record_io([IMAGE] * 2) + b"not a frame", 2,
     f"after 2 records, at byte {2 * SIZE}: wanted RecordIO's magic number 0xced7230a, found 0x20746f6e"),
    ("image", record_io([IMAGE, image_record.pack(b"GIF89a", 0)]), 1,
     f"after 1 records, at byte {SIZE}: found 47 49 46 38 where the image begins (flag 0, so at byte 24"),
    ("image", SHORT, 0, "after 0 records, at byte 0: found a record of 5 bytes; wanted im2rec's header"),
    ("image", record_io([IMAGE, image_record.pack(IMAGE[24:], [1, 2])]), 1,
     f"after 1 records, at byte {SIZE}: found 2 labels of an image; wanted 1: pass labels=2"),
    ("protobuf", record_io([IMAGE]), 0, "found no field of protobuf at byte 1 of the record (tag 0)"),
    ("protobuf", record_io(TENSORS), 1,
     "after 1 records, at byte 32: found features['x']; wanted features['values']: use one"),
]  # fmt: skip


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("reader", "stream", "whole", "words"), DAMAGED, ids=[f"{row[0]}: {row[3]}" for row in DAMAGED]
)
def test_damaged_pipe_data_is_reported_after_whole_records(job, reader, stream, whole, words):
    import tensorflow as tf

    got, path = 0, job / ("plain/data.rec" if reader in ("image", "protobuf") else "train_0")
    if reader == "image":
        dataset = image_records(path)
    elif reader == "protobuf":
        dataset = protobuf_records(path, tf.TensorSpec([1], tf.float32))
    else:
        dataset = of_pipe(reader)
    if path.suffix:
        path.write_bytes(stream)
    with feeding(job / "train", *[stream] * (not path.suffix)), pytest.raises(tf.errors.OpError) as caught:
        for _ in dataset:
            got += 1
    assert got == whole
    assert words in str(caught.value)
    assert f"DataError: {path} is not, or not all, " in str(caught.value) or words.startswith("orrupted")


NO_NAMES = "attributes=.* wanted a list of different names, and RecordIO"


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("channel", "record_format", "more", "complaint"),
    [
        ("trian", "TFRecord", {}, r"no channel 'trian'; the job has 'plain', 'train'\. Did you mean 'train'"),
        ("plain", "TFRecord", {}, "channel 'plain' is in File mode; wanted Pipe mode"),
        ("train", "tfrecord", {}, "record_format is 'tfrecord'; wanted one of TFRecord, RecordIO, TextLine"),
        ("train", "TFRecord", {"reader": "mine"}, "reader is 'mine'; wanted one of auto, operator, own"),
        ("train", "TFRecord", {"attributes": ["a", "b"]}, NO_NAMES),
        ("train", "RecordIO", {"attributes": "label"}, NO_NAMES),
        ("train", "RecordIO", {"attributes": ["a", "a"]}, NO_NAMES),
    ],
)
def test_wrong_pipe_arguments_raise_immediately(job, channel, record_format, more, complaint):
    with pytest.raises(DataError, match=complaint):
        pipe_dataset(channel, record_format, **more)


@pytest.mark.tensorflow
def test_wrong_pipe_patience_raises_immediately(job, monkeypatch):
    monkeypatch.setenv("SAGEMAKER_TF_DATA_PATIENCE", "soon")
    with pytest.raises(DataError, match="SAGEMAKER_TF_DATA_PATIENCE is 'soon'; wanted seconds"):
        pipe_dataset("train", "TFRecord")


@pytest.mark.tensorflow
def test_multi_record_examples_are_sharded_whole(job, monkeypatch):
    """Otherwise, with two attributes in a manifest, one worker would get all images and the other all labels."""
    import tensorflow as tf

    from sagemaker_tf_data import shard

    part = {"train": {"channel": "train", "mode": "Pipe", "count": 2, "index": 1}}
    monkeypatch.setenv("ENTRYPOINT_SHARDS", json.dumps(part))
    flat = [b"%s %d" % (name, number) for number in range(5) for name in (b"image", b"label")]
    with feeding(job / "train", record_io(flat), record_io(flat[:3])):
        made = of_pipe("RecordIO", attributes=["source-ref", "label"])
        assert made.element_spec == {name: tf.TensorSpec([], tf.string) for name in ("source-ref", "label")}
        found = [(one["source-ref"].numpy(), one["label"].numpy()) for one in shard(made, "train")]
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="the pass ends within an example; wanted 2 records for each: source-"
        ):
            list(made)
    assert found == [(b"image 1", b"label 1"), (b"image 3", b"label 3")]
