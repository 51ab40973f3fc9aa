"""Read a channel in Pipe mode as a dataset, by sagemaker-tensorflow's operator or by a reader of our own."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sagemaker_tf_data import chunks, in_graph, on_workers, places, recordio
from sagemaker_tf_data.channels import channel as channel_of
from sagemaker_tf_data.channels import input_folder, key_of_readers
from sagemaker_tf_data.errors import DataError
from sagemaker_tf_data.fifo import Fifo, Passes, ProgramEnded
from sagemaker_tf_data.lazy import tf

FORMATS = ("TFRecord", "RecordIO", "TextLine")
READER = "SAGEMAKER_TF_DATA_READER"  # auto, operator or own
PATIENCE = "SAGEMAKER_TF_DATA_PATIENCE"  # seconds
READERS = ("auto", "operator", "own")


def pipe_dataset(
    channel: str | None,
    record_format: str,
    *,
    attributes: Sequence[str] = (),
    reader: str | None = None,
    patience: float | None = None,
) -> "tf.data.Dataset":
    """Return the records of a Pipe mode channel as scalar strings, or with `attributes` its examples as dictionaries.

    Every iterator, and so every round of `repeat()`, reads one pass: the next named pipe, from the first byte to the
    last. Only one process of a host can read a channel; `shard(pipe_dataset(...))` keeps its part of the records.

    In the dataset function of a ClusterCoordinator, the workers read: the launcher's servers, or scripts that have
    called `serve_pipes`.

    Args:
        channel: As for `channels.channel`.
        record_format: "TFRecord", "RecordIO" (where the channel has record_wrapper="RecordIO") or "TextLine". For
            objects that are RecordIO themselves there are `image_records` and `protobuf_records`.
        attributes: For an augmented manifest, the AttributeNames of the job, in their order: one record for each makes
            an example, {name: scalar string}, which `shard`, `shuffle` and `batch` keep whole. Needs "RecordIO".
        reader: "operator" is sagemaker-tensorflow's, "own" that of this library; "auto" is the operator if it is
            installed for this TensorFlow, else our own. Default: $SAGEMAKER_TF_DATA_READER, or "auto".
        patience: Seconds to wait for a pipe, or for bytes in it, before it is an error. Default:
            $SAGEMAKER_TF_DATA_PATIENCE, or half an hour: SageMaker may need minutes for the first object of a pass.

    Raises:
        DataError: There is no such channel, it is in File mode, or an argument is wrong. Iterating raises TensorFlow's
            errors with a DataError's text: no pipe appeared, another process reads the channel, the pass has another
            format, or it ends within a record or an example.
    """
    if record_format not in FORMATS:
        raise DataError(f"record_format is {record_format!r}; wanted one of {', '.join(FORMATS)}")
    names = list(attributes)
    if names and (isinstance(attributes, str) or record_format != "RecordIO" or len({*names}) < len(names)):
        found = f"attributes={attributes!r} and record_format={record_format!r}"
        raise DataError(f"{found}; wanted a list of different names, and RecordIO, which keeps attributes apart")
    read = _dataset(channel, record_format, reader, patience)
    return _examples(read, names) if names else read


def _examples(records: "tf.data.Dataset", names: list[str]) -> "tf.data.Dataset":
    def whole(example: "tf.Tensor") -> "dict[str, tf.Tensor]":
        said = f"the pass ends within an example; wanted {len(names)} records for each: {', '.join(names)}"
        enough = tf.debugging.assert_equal(tf.size(example), len(names), message=said)
        with tf.control_dependencies([each for each in (enough,) if each is not None]):
            return dict(zip(names, tf.unstack(tf.identity(example), len(names)), strict=True))

    return records.batch(len(names)).map(whole)


def _dataset(channel: str | None, record_format: str, reader: str | None, patience: float | None) -> "tf.data.Dataset":
    reader = _reader(reader)
    operator = None if reader == "own" else _load_operator(required=reader == "operator")
    if places.reads_elsewhere() and tf.inside_function():
        key = key_of_readers(channel)
        if operator is not None:
            return _by_operator_of_workers(operator, key, record_format)
        words = [key, record_format, str(patience_of(patience))]
        return _records(on_workers.dataset(words, _signature(record_format)), record_format)
    passes = passes_of(channel, patience_of(patience))
    if operator is not None:
        return _by_operator(operator, passes, record_format)
    return _generated(lambda: _pieces_of_next(passes, record_format), record_format)


def serve(channel: str, record_format: str, patience: float) -> Iterator[tuple[Any, ...]]:
    """Yield pieces of this process's channel for a graph of another process; `serve_pipes` registers it."""
    for piece in _pieces_of_next(passes_of(channel, patience), record_format):
        yield piece if record_format == "TFRecord" else (piece,)


def records(fifo: Fifo, record_format: str) -> "tf.data.Dataset":
    """Return the records of one open pass; `benchmarks/pipe.py` measures our reader with it."""
    return _generated(lambda: _pieces(fifo, record_format), record_format)


def passes_of(channel: str | None, patience: float) -> Passes:
    """Return the passes of a channel. Raise DataError if it is not in Pipe mode."""
    found = channel_of(channel)
    found.need("Pipe")
    return Passes(found, _state_folder(), patience)


def _by_operator(operator: Any, passes: Passes, record_format: str) -> "tf.data.Dataset":
    """Read by the operator, but only once its pipe exists and is ours, since it would wait without limit."""

    def turn() -> Iterator[int]:
        with suppress(ProgramEnded):
            passes.await_next()
            yield 0

    def of_operator(_: Any) -> "tf.data.Dataset":
        folder = passes.channel.fifo(0).parent
        return _read_by(operator, record_format, str(_state_folder()), passes.channel.name, str(folder))

    return tf.data.Dataset.from_generator(turn, output_signature=tf.TensorSpec([], tf.int64)).flat_map(of_operator)


def _pieces_of_next(passes: Passes, record_format: str) -> Iterator[Any]:
    with suppress(ProgramEnded), passes.next() as fifo:
        yield from _pieces(fifo, record_format)


def _pieces(fifo: Fifo, record_format: str) -> Iterator[Any]:
    if record_format == "TFRecord":
        return chunks.of_tfrecords(fifo)
    split = recordio.split if record_format == "RecordIO" else chunks.split_lines
    return chunks.of_records(fifo, split, record_format)


def _signature(record_format: str) -> "tuple[tf.TensorSpec, ...]":
    """Return the signature of one element: (file, size of its read buffer) for TFRecord, else an array of records."""
    if record_format == "TFRecord":
        return tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64)
    return (tf.TensorSpec([None], tf.string),)


def _generated(pieces: Callable[[], Iterator[Any]], record_format: str) -> "tf.data.Dataset":
    signature = _signature(record_format)
    made = tf.data.Dataset.from_generator(pieces, output_signature=signature if len(signature) > 1 else signature[0])
    return _records(made, record_format)


def _records(pieces: "tf.data.Dataset", record_format: str) -> "tf.data.Dataset":
    """Return the records of pieces. One piece is made while another is read: `chunks.of_tfrecords` relies on it."""
    pieces = pieces.prefetch(1)
    if record_format == "TFRecord":
        # tf.distribute's automatic sharding searches flat_map and map for a reader of files. It would distribute our
        # files to the workers, and skip some while their memory is filled again. It does not search take_while, and so
        # distributes records, as for any source that it does not know.
        return pieces.map(_of_file).take_while(lambda _: True).flat_map(lambda records: records)
    return pieces.flat_map(tf.data.Dataset.from_tensor_slices)


def _of_file(path: "tf.Tensor", buffer_size: "tf.Tensor") -> "tf.data.Dataset":
    """Return the raw operation, since tf.data.TFRecordDataset adds a flat_map: one more call for each record."""
    variant = tf.raw_ops.TFRecordDataset(filenames=[path], compression_type="", buffer_size=buffer_size)
    return tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))


def _by_operator_of_workers(operator: Any, key: str, record_format: str) -> "tf.data.Dataset":
    """Return a dataset for worker servers that have loaded the operator; it is traced on the chief."""

    def of_the_reader(_: Any) -> "tf.data.Dataset":
        own, mode, *_ = in_graph.part(key)
        folder = in_graph.input_folder()
        state = tf.strings.join([folder, "../pipe_state"], separator="/")
        streams = tf.debugging.Assert(
            tf.equal(mode, "Pipe"), ["pipe_dataset: wanted Pipe mode; channel and mode on the worker:", own, mode]
        )
        made = tf.io.write_file(tf.strings.join([state, ".here"], separator="/"), "")  # creates the folder
        with tf.control_dependencies([each for each in (streams, made) if each is not None]):
            state = tf.identity(state)
        return _read_by(operator, record_format, state, own, tf.strings.join([folder, "data"], separator="/"))

    return tf.data.Dataset.from_tensors(0).flat_map(of_the_reader)


def _read_by(operator: Any, record_format: str, state: Any, channel: Any, folder: Any) -> "tf.data.Dataset":
    variant = operator.pipe_mode_dataset(
        benchmark=False, record_format=record_format, state_directory=state, channel=channel, channel_directory=folder,
        benchmark_records_interval=0, max_corrupted_records_to_skip=0,
    )  # fmt: skip
    return tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))


def _load_operator(required: bool) -> Any:
    """Return the operator's module, or None if it is not installed or was built for another TensorFlow."""
    try:
        from sagemaker_tensorflow import PipeModeDataset

        return PipeModeDataset._tf_plugin  # a library can be loaded by tf.load_op_library() only once
    except (ImportError, tf.errors.OpError, AttributeError) as error:
        if required:
            raise DataError(
                f"sagemaker-tensorflow's operator cannot be loaded ({error}); wanted the version for TensorFlow "
                f"{tf.__version__}, or {READER}=own"
            ) from None
        return None


def _state_folder() -> Path:
    """Return the folder of the operator's state, created if need be: by default /opt/ml/pipe_state."""
    state = input_folder().parent / "pipe_state"
    state.mkdir(parents=True, exist_ok=True)
    return state


def _reader(given: str | None) -> str:
    chosen = given or os.environ.get(READER) or "auto"
    if chosen not in READERS:
        raise DataError(f"{'reader' if given else READER} is {chosen!r}; wanted one of {', '.join(READERS)}")
    return chosen


def patience_of(given: float | None) -> float:
    """Return seconds: `given`, else $SAGEMAKER_TF_DATA_PATIENCE, else 1800. Raise DataError if they are not above 0."""
    text = os.environ.get(PATIENCE) or "1800"
    try:
        seconds = float(text) if given is None else given
    except ValueError:
        seconds = -1.0
    if not seconds > 0:
        found = f"{PATIENCE} is {text!r}" if given is None else f"patience is {given!r}"
        raise DataError(f"{found}; wanted seconds, more than 0")
    return seconds
