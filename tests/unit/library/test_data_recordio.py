"""Test RecordIO of MXNet and of SageMaker's algorithms, in File and Pipe mode: round trips and errors."""

import json
import os
import random
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from named_pipes import feeding

from sagemaker_tf_data import chunks, image_record, protobuf_record, recordio
from sagemaker_tf_data.errors import DataError
from sagemaker_tf_data.protobuf_record import Column
from sagemaker_tf_data.recordio_datasets import image_records, protobuf_records

np = pytest.importorskip("numpy")
JPEG = b"\xff\xd8\xff\xe0 whatever a picture is made of"
FIELDS = {"float32_tensor": np.float32, "float64_tensor": np.float64, "int32_tensor": np.int32}


def rec(*records: bytes) -> bytes:
    return b"".join(map(recordio.frame, records))


def column(shape: list[int], dtype: str = "float32", *, sparse: bool = False, of: str = "features") -> Column:
    return Column(of, "values", dtype, tuple(shape), sparse)


# ---- frames


@given(st.lists(st.lists(st.sampled_from([recordio.WORD, b"", b"a", b"abc", b"abcd"]), max_size=8).map(b"".join)))
def test_records_with_the_magic_number_are_read_back(records):
    stream = bytearray(rec(*records))
    assert recordio.split(stream, len(stream), True, recordio.WORD) == (records, len(stream))
    for at in range(4, len(stream), 4):  # no frame begins within another
        if stream[at : at + 4] == recordio.WORD:
            assert stream[at + 4 : at + 8] != recordio.WORD
    for number in range(len(records)):
        assert recordio.skip(stream, len(stream), True, number) == len(rec(*records[:number]))


def test_recordio_frames_equal_those_of_mxnet():
    """Where the magic number divides a record, the parts have flags 1, 2 and 3, and the number is left out."""
    magic = bytes.fromhex("0a23d7ce")
    assert recordio.frame(b"hello") == magic + struct.pack("<I", 5) + b"hello\0\0\0"
    assert recordio.frame(b"abcd" + magic + b"efgh" + magic + b"ij") == (
        magic + struct.pack("<I", 1 << 29 | 4) + b"abcd"
        + magic + struct.pack("<I", 2 << 29 | 4) + b"efgh"
        + magic + struct.pack("<I", 3 << 29 | 2) + b"ij\0\0"
    )  # fmt: skip
    assert recordio.frame(b"a" + magic) == magic + struct.pack("<I", 5) + b"a" + magic + b"\0\0\0"


def test_record_too_long_for_recordio_is_refused():
    class Long(bytes):
        def __len__(self) -> int:
            return 1 << 29

    with pytest.raises(DataError, match=r"536,870,912 bytes; wanted fewer than 536,870,912"):
        recordio.frame(Long())


# ---- records


@given(st.binary(), st.lists(st.floats(width=32, allow_nan=False), max_size=5), st.integers(0, 2**64 - 1))
def test_images_are_read_back_with_their_labels(rest, labels, number):
    packed = image_record.pack(JPEG + rest, labels, number)
    assert packed[:24] == struct.pack("<IfQQ", len(labels), 0, number, 0)
    if labels:
        assert image_record.unpack(packed, len(labels)) == (JPEG + rest, struct.pack(f"<{len(labels)}f", *labels))
    assert image_record.unpack(image_record.pack(JPEG + rest, 7, number), 1) == (JPEG + rest, struct.pack("<f", 7))


@pytest.fixture(scope="module")
def record_of() -> Any:
    """Return the class Record that protobuf generates from the record.proto of AWS's toolkit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it was made by an older protobuf
        return pytest.importorskip("sagemaker_training.record_pb2").Record


@pytest.mark.parametrize("name", FIELDS)
def test_tensors_equal_those_of_protobuf(record_of, name):
    dtype = FIELDS[name]
    values = np.array([0, -1, 2**31 - 1, -(2**31), 127, 128, 3], dtype)
    keys = [5, 128, 129, 2**14, 2**20, 2**21, 2**27]
    their = record_of(uid="the 3rd", metadata="{}")
    tensor = getattr(their.features["values"], name)
    tensor.values.extend(values.tolist())
    tensor.keys.extend(keys)
    tensor.shape.append(2**28)
    dense = getattr(their.features["dense"], name)
    dense.values.extend(values.tolist())
    dense.shape.append(7)
    their.label["values"].float32_tensor.values.append(4)
    their.label["values"].float32_tensor.shape.append(1)
    their.label["picture"].bytes.value.append(b"pixels")

    ours = protobuf_record.pack(
        {"values": (keys, values, [2**28]), "dense": values}, {"values": np.float32([4]), "picture": b"pixels"}
    )
    seen = record_of.FromString(ours)
    seen.uid, seen.metadata = their.uid, their.metadata
    assert seen == their
    for record in (ours, their.SerializeToString()):
        (found_keys, found), whole, label, picture = protobuf_record.unpack(
            record,
            [column([2**28], dtype.__name__, sparse=True), Column("features", "dense", dtype.__name__, (7,)),
             column([], of="label"), Column("label", "picture", "string", ())],
        )  # fmt: skip
        assert (found_keys.tolist(), found.tolist()) == (keys, values.tolist())
        assert (whole.tolist(), whole.dtype) == (values.tolist(), dtype)
        assert (label.shape, float(label), picture) == ((), 4.0, b"pixels")


def test_unpacked_values_are_read():
    """Protobuf's readers accept packed and unpacked values, whatever the schema asks for."""

    def block(field: int, content: bytes) -> bytes:
        return bytes([field << 3 | 2, len(content)]) + content

    values = b"".join(b"\x0d" + struct.pack("<f", each) for each in (1.5, 2.5))
    keys = b"\x10\x01\x10\x03"
    record = block(1, block(1, b"values") + block(2, block(2, values + keys)))
    keys_found, found = protobuf_record.unpack(record, [column([4], sparse=True)])[0]
    assert (keys_found.tolist(), found.tolist()) == ([1, 3], [1.5, 2.5])


def test_tensor_is_dense_or_sparse_as_requested():
    sparse = protobuf_record.pack({"values": ([5, 1], np.float32([0.5, 0.1]), [2, 3])})
    assert protobuf_record.unpack(sparse, [column([2, 3])])[0].tolist() == [[0, pytest.approx(0.1), 0], [0, 0, 0.5]]
    dense = protobuf_record.pack({"values": np.float32([[1, 2], [3, 4]])})
    keys, values = protobuf_record.unpack(dense, [column([2, 2], sparse=True)])[0]
    assert (keys.tolist(), values.tolist()) == ([0, 1, 2, 3], [1, 2, 3, 4])


@pytest.mark.parametrize(
    "tensor, wanted, words",
    [
        (np.float64([1]), column([1]), "found Float64Tensor as features['values']; wanted float32: ask for tf.float64"),
        (b"abc", column([1]), "found Bytes as features['values']; wanted float32: ask for tf.string"),
        (np.float32([1, 2]), column([3]), "found 2 values as features['values']; wanted 3, as of shape [3]"),
        (([4], np.float32([1]), [4]), column([4]), "found key 4 in features['values']; wanted 0 to 3"),
        (([1, 1], np.float32([1, 2]), [4]), column([4]), "found a key twice"),
        (([1, 2], np.float32([1]), [4]), column([4]), "found 2 keys and 1 values"),
        (np.float32([1]), column([1], of="label"), "found features['values']; wanted label['values']"),
    ],
)
def test_wrong_tensor_is_reported(tensor, wanted, words):
    with pytest.raises(DataError) as caught:
        protobuf_record.unpack(protobuf_record.pack({"values": tensor}), [wanted])
    assert words in str(caught.value)


def test_unknown_tensor_type_is_reported():
    record = bytearray(protobuf_record.pack({"values": np.float32([1])}))
    at = bytes(record).index(b"\x12", 10)  # the tag of Float32Tensor, field 2
    record[bytes(record).index(b"\x12", at + 1)] = 4 << 3 | 2
    with pytest.raises(DataError, match=r"a value of an unknown type, field 4 as features\['values'\]; wanted one of"):
        protobuf_record.unpack(bytes(record), [column([1])])
    with pytest.raises(DataError, match=r"wanted float32, float64 or int32, or bytes"):
        protobuf_record.pack({"values": np.int64([1])})


@given(st.data())
def test_damaged_record_raises_only_data_error(data):
    record = bytearray(protobuf_record.pack({"values": ([1, 200], np.int32([-1, 5]), [300])}, {"values": b"x"}))
    for _ in range(data.draw(st.integers(1, 3))):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(record[: data.draw(st.integers(0, len(record)))])
    try:
        protobuf_record.unpack(cut, [column([300], "int32", sparse=True), Column("label", "values", "string", ())])
        image_record.unpack(cut, None)
    except DataError:
        pass


# ---- datasets


@pytest.fixture
def job(job_with: Callable[[str], Path]) -> Path:
    return job_with("stream")


def pictures(number: int) -> list[bytes]:
    """Return JPEGs of one gray each, and one with RecordIO's magic number where a frame could begin."""
    import tensorflow as tf

    made = [tf.io.encode_jpeg(tf.fill([4, 6, 3], tf.constant(n, tf.uint8))).numpy() for n in range(number - 1)]
    return [*made, made[0] + bytes(-len(made[0]) % 4) + recordio.WORD + b"its end"]


@pytest.mark.tensorflow
def test_images_of_im2rec_are_read_in_file_and_pipe_mode(job, tmp_path, monkeypatch):
    """The cases: sharding by records and by files; one label, several, or a varying number of labels."""
    import tensorflow as tf

    from sagemaker_tf_data import file_names, shard

    monkeypatch.setattr(chunks, "SIZE", 1 << 12)  # records on both sides of a piece's border
    images = pictures(12)
    records = [image_record.pack(image, number) for number, image in enumerate(images)]
    (job / "plain" / "a.rec").write_bytes(rec(*records[:7]))
    (job / "plain" / "b.rec").write_bytes(rec(*records[7:]))
    (job / "plain" / "a.lst").write_text("0\t0.0\tcat/1.jpg\n")
    monkeypatch.setenv("ENTRYPOINT_SHARDS", json.dumps({
        name: {"channel": name, "mode": mode, "count": 2, "index": 1}
        for name, mode in (("plain", "File"), ("stream", "Pipe"))
    }))  # fmt: skip

    def found(dataset: "tf.data.Dataset") -> list[tuple[bytes, float]]:
        assert dataset.element_spec == (tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.float32))
        return [(image.numpy(), label.numpy()) for image, label in dataset]

    everything = [(image, float(number)) for number, image in enumerate(images)]
    assert found(image_records("plain")) == everything
    assert found(shard(image_records("plain"), "plain")) == everything[1::2]
    assert found(image_records(shard(file_names("plain", "*.rec"), "plain"))) == everything[7:]
    assert found(image_records([job / "plain" / "b.rec", job / "plain" / "a.rec"])) == everything[7:] + everything[:7]
    names = file_names("plain", "*.rec")
    assert sorted(found(names.interleave(image_records, cycle_length=2))) == sorted(everything)
    with feeding(job / "stream", rec(*records)):
        assert found(shard(image_records("stream", patience=30), "stream")) == everything[1::2]

    several = tmp_path / "several.rec"
    several.write_bytes(rec(image_record.pack(images[0], [1, 2, 3]), image_record.pack(images[1], [4, 5, 6])))
    assert [label.numpy().tolist() for _, label in image_records(several, labels=3)] == [[1, 2, 3], [4, 5, 6]]
    several.write_bytes(rec(image_record.pack(images[0], []), *records[1:2], image_record.pack(images[1], [4, 5])))
    assert [label.numpy().tolist() for _, label in image_records(several, labels=None)] == [[0], [1], [4, 5]]
    assert tf.io.decode_jpeg(next(iter(image_records(several, labels=None)))[0]).shape == [4, 6, 3]


@pytest.mark.tensorflow
def test_tensors_of_sagemakers_algorithms_are_read_in_file_and_pipe_mode(job, monkeypatch):
    import tensorflow as tf

    monkeypatch.setattr(chunks, "SIZE", 1 << 10)
    chance = random.Random(1)
    dense = np.array([[chance.random() for _ in range(6)] for _ in range(50)], np.float32).reshape(50, 2, 3)
    sparse = [sorted(chance.sample(range(1000), chance.randrange(4))) for _ in range(50)]
    stream = rec(*[
        protobuf_record.pack(
            {"values": dense[n], "words": (sparse[n], np.int32([n] * len(sparse[n])), [1000]), "name": b"no. %d" % n},
            {"values": np.float64([n / 2])},
        )
        for n in range(50)
    ])  # fmt: skip
    (job / "plain" / "part-0").write_bytes(stream)
    features = {
        "values": tf.TensorSpec([2, 3], tf.float32),
        "words": tf.SparseTensorSpec([1000], tf.int32),
        "name": tf.TensorSpec([], tf.string),
    }
    label = tf.TensorSpec([], tf.float64)

    def check(dataset: "tf.data.Dataset") -> None:
        assert dataset.element_spec == (features, label)
        batches = [*dataset.batch(20)]
        assert [len(labels) for _, labels in batches] == [20, 20, 10]
        assert np.concatenate([labels for _, labels in batches]).tolist() == [n / 2 for n in range(50)]
        assert np.concatenate([batch["values"] for batch, _ in batches]).tolist() == dense.tolist()
        assert batches[2][0]["name"].numpy().tolist() == [b"no. %d" % n for n in range(40, 50)]
        words = batches[1][0]["words"]
        assert words.shape == [20, 1000]
        expected = [(n, key, 20 + n) for n in range(20) for key in sparse[20 + n]]
        found = [(*map(int, place), int(words.values[n])) for n, place in enumerate(words.indices.numpy())]
        assert found == expected

    check(protobuf_records("plain", features, label))
    with feeding(job / "stream", stream):
        check(protobuf_records("stream", features, label, patience=30))
    alone = protobuf_records([job / "plain" / "part-0"], tf.TensorSpec([2, 3], tf.float32))
    assert alone.element_spec == tf.TensorSpec([2, 3], tf.float32)
    os.mkfifo(job / "stream_1")
    with feeding(job / "stream_1", b""):
        assert [*protobuf_records("stream", features, label, patience=30)] == []


@pytest.mark.tensorflow
def test_wrong_arguments_raise_before_reading(job):
    import tensorflow as tf

    with pytest.raises(DataError, match=r"no channel 'plane'; the job has 'plain', 'stream'\. Did you mean 'plain'"):
        image_records("plane")
    with pytest.raises(DataError, match=r"channel 'plain': no file in .* is called \*\.rec"):
        image_records("plain")
    for spec in (tf.TensorSpec([None], tf.float32), tf.TensorSpec([2], tf.int64), tf.TensorSpec([2], tf.string)):
        with pytest.raises(DataError, match=r"features\['values'\] is requested as .*; wanted tf.TensorSpec or"):
            protobuf_records("stream", spec)


@pytest.mark.tensorflow
def test_workers_of_a_cluster_coordinator_read_their_own_channel(job, monkeypatch):
    """The chief's graph calls a function by name. Only a worker that called serve_pipes() has that function."""
    import tensorflow as tf

    from sagemaker_tf_data import serve_pipes

    serve_pipes()
    (job / "plain" / "a.rec").write_bytes(rec(image_record.pack(JPEG, 3), image_record.pack(JPEG, 4)))
    cluster = {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}}))

    @tf.function
    def labels() -> "tf.Tensor":
        return image_records("plain").reduce(0.0, lambda total, pair: 10 * total + pair[1])

    assert float(labels()) == 34
    with pytest.raises(DataError, match="wanted the name of a channel"):
        tf.function(lambda: image_records([job / "plain" / "a.rec"]).reduce(0.0, lambda _, pair: pair[1]))()
