"""Test sagemaker_tf_data: counting records, and messages if ranks have different numbers of records."""

import json
import struct

import pytest

from sagemaker_tf_data import DataError, count_records, even_steps, recordio, shard
from sagemaker_tf_data.evenness import end_together, uneven


def records(*lengths):
    """Return a TFRecord file without valid checksums, which these tests do not read."""
    return b"".join(struct.pack("<Q", length) + b"\0" * (4 + length + 4) for length in lengths)


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Make the files of channel `train` and make this process one of four ranks."""

    def make(rank, **files):
        folder = tmp_path / "data/train"
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / f"{name}.tfrecord").write_bytes(content)
        monkeypatch.setenv("SM_INPUT_DIR", str(tmp_path))
        share = {"channel": "train", "mode": "File", "count": 4, "index": rank}
        monkeypatch.setenv("ENTRYPOINT_SHARDS", json.dumps({"train": share}))

    return make


@pytest.mark.parametrize("lengths", [(), (0,), (5, 0, 70_000), (1,) * 1000])
def test_records_are_counted_by_their_headers(tmp_path, lengths):
    file = tmp_path / "x"
    file.write_bytes(records(*lengths))
    assert count_records(file) == len(lengths)
    assert count_records([file, str(file)]) == 2 * len(lengths)


@pytest.mark.parametrize("cut", range(1, 21))
def test_counting_a_truncated_file_is_refused(tmp_path, cut):
    file = tmp_path / "x"
    file.write_bytes(records(9, 5)[:-cut])
    with pytest.raises(DataError, match="x ends within record 1: cut off, compressed, or not a TFRecord file"):
        count_records(file)


def test_recordio_records_are_counted_by_headers(tmp_path):
    """A record with the magic number inside has several frames but counts once. The last padding may be missing."""
    file, whole = tmp_path / "x.rec", [b"abc", recordio.WORD * 2 + b"a", b"", b"b" * 70_001]
    content = b"".join(map(recordio.frame, whole))
    file.write_bytes(content)
    assert count_records(file) == 4
    file.write_bytes(content[:-3])
    assert count_records(file) == 4
    file.write_bytes(content[:-4])
    with pytest.raises(DataError, match=r"x\.rec ends within record 3: cut off"):
        count_records(file)
    file.write_bytes(content[:21])  # between the frames of the second record
    with pytest.raises(DataError, match=r"x\.rec ends within record 1: cut off"):
        count_records(file)
    file.write_bytes(content[:12] + b"no frame")
    with pytest.raises(DataError, match=r"x\.rec after 1 records, at byte 12: wanted RecordIO's 0xced7230a, found 0x"):
        count_records(file)


def test_even_steps_is_the_minimum_over_ranks(train):
    for rank, expected in enumerate([3, 3, 2, 2]):  # ten records
        train(rank, a=records(*[1] * 7), b=records(2, 2), c=records(3))
        assert even_steps("train") == expected
    train(1)
    assert even_steps("train", by="files") == 2  # of three files the second
    assert even_steps("train", batch_size=2) == 2
    assert even_steps("train", batch_size=2, drop_remainder=True) == 1


def test_error_of_rank_without_a_batch_gives_its_records_and_files(train):
    train(3, a=records(1), b=records(1))
    with pytest.raises(DataError, match=r"no batch of 1 for rank 0: .*rank 0: 0 \(0 records, 0 files\)"):
        even_steps("train", by="files")


def test_warning_of_uneven_ranks_lists_their_numbers():
    line = uneven([(31, 2), (19, 1)], [8, 5])
    assert "5 to 8: rank 0: 8 (31 records, 2 files); rank 1: 5 (19 records, 1 files)" in line
    long = uneven([(1, 1)] * 99 + [(2, 1)], [1] * 99 + [2])
    assert "and 84 more" in long and len(long) < 900


def test_several_ranks_without_horovod_are_refused(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(DataError, match=r"2 ranks, but Horovod is not initialised: call hvd.init\(\)"):
        end_together(None)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "cluster, task, size",
    [
        ({"worker": ["a:1", "b:1"]}, "worker", -2),
        ({"chief": ["a:1"], "worker": ["b:1"]}, "worker", -2),
        ({"worker": ["a:1"]}, "worker", 4),
        ({"worker": ["a:1", "b:1"], "evaluator": ["localhost:0"]}, "evaluator", 4),
        ({"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}, "worker", 4),
    ],
)
def test_mirrored_dataset_hides_its_batch_count_from_keras(train, monkeypatch, cluster, task, size):
    """With a count, Keras would end before the last row, and workers after different numbers of steps."""
    tf = pytest.importorskip("tensorflow")
    train(1)
    config = {"cluster": cluster, "task": {"type": task, "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    rows = {"n": tf.range(14), "x": tf.ragged.constant([[n] * (n % 3) for n in range(14)]), "y": tf.sparse.eye(14)}
    whole = tf.data.Dataset.from_tensor_slices(rows)
    mine, own = shard(whole, "train"), end_together(whole.skip(10))
    for dataset, numbers in ((mine, [1, 5, 9, 13]), (own, [10, 11, 12, 13])):
        assert int(dataset.cardinality()) == size
        assert [row["n"].numpy() for row in dataset] == numbers
    assert shard(whole, "train").repeat().cardinality() == tf.data.INFINITE_CARDINALITY
