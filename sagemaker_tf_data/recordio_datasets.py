"""Read RecordIO of MXNet and of SageMaker's algorithms as datasets, in File and in Pipe mode.

Python reads it in pieces and unpacks their records, so that errors can name the record and the file. TensorFlow gets
whole arrays of records.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from sagemaker_tf_data import chunks, image_record, on_workers, places, protobuf_record, recordio
from sagemaker_tf_data.channels import channel as channel_of
from sagemaker_tf_data.channels import key_of_readers
from sagemaker_tf_data.errors import DataError
from sagemaker_tf_data.fifo import ProgramEnded
from sagemaker_tf_data.lazy import np, tf
from sagemaker_tf_data.pipe import passes_of, patience_of
from sagemaker_tf_data.protobuf_record import Column
from sagemaker_tf_data.sharding import files

Pieces = Iterator[tuple[Any, ...]]


def image_records(
    source: Any = None, *, labels: int | None = 1, pattern: str = "*.rec", patience: float | None = None
) -> "tf.data.Dataset":
    """Return pairs (image, label) of MXNet's im2rec: an image's file as a scalar string, and its label as float32.

    The image is a JPEG or PNG, for `tf.io.decode_image` or `decode_jpeg`. In Pipe mode every iterator reads the next
    pass, always by our own reader.

    Args:
        source: A channel, as for `channels.channel`; or files: a list of paths, or a dataset of them, as `file_names`
            and `shard` return it.
        labels: The number of each image's labels. 1 makes the label a scalar, more a vector of that length, None a
            vector of any length.
        pattern: Of the names of the channel's files in File mode.
        patience: As for `pipe_dataset`.

    Raises:
        DataError: There is no such channel, or no such file in it. Iterating raises TensorFlow's errors with a
            DataError's text: a file is truncated or not RecordIO; an image is neither JPEG nor PNG, or has another
            number of labels. The text has the file, the number of records before, and the byte.
    """

    def finish(images: "tf.Tensor", found: "tf.Tensor") -> "tf.data.Dataset":
        pairs = tf.data.Dataset.from_tensor_slices((images, found))
        shape = [] if labels == 1 else [labels]

        def decode(image: "tf.Tensor", label: "tf.Tensor") -> "tuple[tf.Tensor, tf.Tensor]":
            numbers = tf.io.decode_raw(label, tf.float32)
            return image, numbers if labels is None else tf.reshape(numbers, shape)

        return pairs.map(decode)

    text = tf.TensorSpec([None], tf.string)
    return _dataset(source, {"images": labels}, (text, text), finish, pattern, patience)


def protobuf_records(
    source: Any,
    features: "tf.TypeSpec | Mapping[str, tf.TypeSpec]",
    labels: "tf.TypeSpec | Mapping[str, tf.TypeSpec] | None" = None,
    *,
    pattern: str = "*",
    patience: float | None = None,
) -> "tf.data.Dataset":
    """Return the requested tensors of records of SageMaker's own algorithms (application/x-recordio-protobuf).

    `tf.TensorSpec(shape, dtype)` requests a dense tensor and `tf.SparseTensorSpec(shape, dtype)` a sparse one,
    whichever the file has. The dtype must be the file's: float32, float64, int32, or string (shape []) for Bytes.

    Args:
        source: As for `image_records`; None is the job's channel.
        features: Specs by name; or one spec, of the tensor "values", as the algorithms call it.
        labels: The same. With labels an element is a pair (features, labels), without them the features.
        pattern: Of the names of the channel's files in File mode.
        patience: As for `pipe_dataset`.

    Raises:
        DataError: There is no such channel, or no such file in it, or no record can have such a tensor. Iterating
            raises TensorFlow's errors with a DataError's text: a file is truncated or not RecordIO, a record is not a
            protobuf, or its tensor is missing or has another type or size. The text has the file, the number of records
            before, and the byte.
    """
    given = [features] if labels is None else [features, labels]
    asked = [
        (map_, specs if isinstance(specs, Mapping) else {"values": specs})
        for map_, specs in zip(protobuf_record.MAPS, given, strict=False)
    ]
    columns = [_column(map_, name, spec) for map_, specs in asked for name, spec in specs.items()]

    def finish(number: "tf.Tensor", *arrays: "tf.Tensor") -> "tf.data.Dataset":
        left = iter(arrays)
        whole = {(each.map, each.name): _whole(each, number, left) for each in columns}
        made = [
            {name: whole[map_, name] for name in specs} if isinstance(as_given, Mapping) else whole[map_, "values"]
            for (map_, specs), as_given in zip(asked, given, strict=True)
        ]
        return tf.data.Dataset.from_tensor_slices(made[0] if len(made) == 1 else tuple(made))

    signature = [tf.TensorSpec([], tf.int64)]
    for each in columns:
        if each.sparse:
            signature.append(tf.TensorSpec([None, 1 + len(each.shape)], tf.int64))
            signature.append(tf.TensorSpec([None], each.dtype))
        else:
            signature.append(tf.TensorSpec([None, *each.shape], each.dtype))
    reading = {"columns": [asdict(each) for each in columns]}
    return _dataset(source, reading, tuple(signature), finish, pattern, patience)


def serve(channel: str, reading: str, patience: float, pattern: str) -> Pieces:
    """Yield pieces of this process's channel for a graph of another process; `serve_pipes` registers it."""
    return _of_channel(channel, json.loads(reading), pattern, patience)


# ---- from a channel or files to pieces


def _dataset(
    source: Any,
    reading: dict[str, Any],
    signature: "tuple[tf.TensorSpec, ...]",
    finish: Callable[..., "tf.data.Dataset"],
    pattern: str,
    patience: float | None,
) -> "tf.data.Dataset":
    seconds = patience_of(patience)
    elsewhere = places.reads_elsewhere() and tf.inside_function()
    if source is None or isinstance(source, str):
        if elsewhere:
            words = [key_of_readers(source), json.dumps(reading), str(seconds), pattern]
            pieces = on_workers.dataset(words, signature)
        else:
            channel = channel_of(source)
            if channel.mode == "File":
                files(source, pattern)  # raises DataError at once
            made = partial(_of_channel, source, reading, pattern, seconds)
            pieces = tf.data.Dataset.from_generator(made, output_signature=signature)
        return pieces.prefetch(1).flat_map(finish)
    if elsewhere:
        raise DataError("files are on this process's host, but workers read the dataset: wanted the name of a channel")

    def of_file(path: "tf.Tensor") -> "tf.data.Dataset":
        made = partial(_of_file_named, reading)
        pieces = tf.data.Dataset.from_generator(made, output_signature=signature, args=(path,))
        return pieces.prefetch(1).flat_map(finish)

    return _paths(source).flat_map(of_file)


def _paths(source: Any) -> "tf.data.Dataset":
    if isinstance(source, tf.data.Dataset):
        return source
    if isinstance(source, Path):
        source = [source]
    if not tf.is_tensor(source):
        source = tf.constant([str(each) for each in source], tf.string)
    return tf.data.Dataset.from_tensor_slices(tf.reshape(source, [-1]))


def _of_channel(name: str | None, reading: dict[str, Any], pattern: str, patience: float) -> Pieces:
    channel = channel_of(name)
    if channel.mode == "Pipe":
        with suppress(ProgramEnded), passes_of(name, patience).next() as fifo:
            yield from _taken_apart(fifo, reading)
        return
    for path in files(name, pattern):
        yield from _of_file(Path(path), reading)


def _of_file_named(reading: dict[str, Any], path: bytes) -> Pieces:
    return _of_file(Path(path.decode()), reading)


def _of_file(path: Path, reading: dict[str, Any]) -> Pieces:
    with path.open("rb", buffering=0) as file:
        yield from _taken_apart(_File(path, file), reading)


class _File:
    """Provide a file's bytes as a `chunks.Source`."""

    cut = "the file ends there, in the middle of a record; wanted a complete file: copy or make it again"

    def __init__(self, path: Path, file: Any) -> None:
        self.path = path
        self._file = file

    def read_into(self, view: memoryview, linger: float | None = None) -> int | None:
        return int(self._file.readinto(view))


def _taken_apart(source: chunks.Source, reading: dict[str, Any]) -> Pieces:
    """Yield pieces as arrays, in the order of the dataset's signature."""
    if "images" in reading:
        split = _split_by(lambda record: image_record.unpack(record, reading["images"]))
        for pairs in chunks.lists(source, split, image_record.KIND):
            yield tuple(np.array(each, object) for each in zip(*pairs, strict=True))
        return
    columns = [Column(**{**each, "shape": tuple(each["shape"])}) for each in reading["columns"]]
    split = _split_by(lambda record: protobuf_record.unpack(record, columns))
    for rows in chunks.lists(source, split, protobuf_record.KIND):
        arrays: list[Any] = [np.int64(len(rows))]
        for column, found in zip(columns, zip(*rows, strict=True), strict=True):
            arrays += _arrays(column, found)
        yield tuple(arrays)


def _split_by(unpack: Callable[[bytes], Any]) -> chunks.Split:
    """Return a function that splits RecordIO and unpacks records.

    Before a broken record it stops; its next call raises.
    """

    def split(buffer: chunks.Buffer, end: int, last: bool) -> tuple[list[Any], int]:
        records, used = recordio.split(buffer, end, last, recordio.WORD)
        good: list[Any] = []
        try:
            for record in records:
                good.append(unpack(record))
        except DataError:
            if not good:
                raise
            used = recordio.skip(buffer, end, last, len(good))
        return good, used

    return split


# ---- tensors of a piece


def _column(map_: str, name: str, spec: Any) -> Column:
    """Return the column that a spec requests. Raise DataError if no record can have it."""
    sparse = isinstance(spec, tf.SparseTensorSpec)
    dtypes = {dtype for _, dtype, _ in protobuf_record.TENSORS.values()} | (set() if sparse else {"string"})
    known = (sparse or isinstance(spec, tf.TensorSpec)) and spec.shape.is_fully_defined() and spec.dtype.name in dtypes
    if not known or (spec.dtype == tf.string and spec.shape.rank) or (sparse and not spec.shape.rank):
        raise DataError(
            f"{map_}['{name}'] is requested as {spec}; wanted tf.TensorSpec or tf.SparseTensorSpec, with all of its "
            f"shape, of {', '.join(sorted(dtypes))}"
        )
    return Column(map_, name, spec.dtype.name, tuple(spec.shape.as_list()), sparse)


def _arrays(column: Column, found: Sequence[Any]) -> list[Any]:
    """Return a column of a piece: one array, or for sparse tensors their indices and values."""
    if column.dtype == "string":
        return [np.array(found, object)]
    if not column.sparse:
        return [np.stack(found)]
    record = np.repeat(np.arange(len(found)), [len(keys) for keys, _ in found])
    places_of = np.unravel_index(np.concatenate([keys for keys, _ in found]), column.shape)
    return [np.stack([record, *places_of], axis=1), np.concatenate([values for _, values in found])]


def _whole(column: Column, number: "tf.Tensor", arrays: "Iterator[tf.Tensor]") -> Any:
    """Return a column of a piece of `number` records as one tensor, dense or sparse, from the next arrays."""
    if not column.sparse:
        return next(arrays)
    indices, values = next(arrays), next(arrays)
    shape = tf.concat([number[None], tf.constant(column.shape, tf.int64)], axis=0)
    return tf.SparseTensor(indices, values, shape)
