"""Count records, and give all ranks equally many batches, since one batch more on a rank hangs Horovod or JAX."""

import logging
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal

from sagemaker_tf_data import channels, jax_processes, places, recordio, sharding
from sagemaker_tf_data.errors import DataError
from sagemaker_tf_data.lazy import tf

LOGGER = logging.getLogger(__name__)

# A rank that requests an element ahead of its step may wait for an allreduce that no other rank joins.
OUT_OF_STEP = (
    "end_together: ranks are at different steps. Put it last, with no prefetch, map or shuffle behind it, and let all "
    "ranks leave a loop at the same step. [has one, iterator, step] of this rank, and the sum of all ranks':"
)

_named = 0  # datasets so far: the allreduces of each have a name of their own, the same on all ranks


def count_records(files: str | Path | Iterable[str | Path]) -> int:
    """Count the records in uncompressed TFRecord or RecordIO files by their headers, 8 or 12 bytes per record.

    Raises:
        DataError: A file ends in the middle of a record, or begins as RecordIO and continues as something else.
    """
    return sum(_count(Path(path)) for path in ([files] if isinstance(files, str | Path) else files))


def _count(path: Path) -> int:
    size = path.stat().st_size
    with path.open("rb") as file:
        # As a TFRecord's length, RecordIO's magic number would be more than three gigabytes.
        if file.read(len(recordio.WORD)) != recordio.WORD:
            return _count_tfrecords(path, file, size)
        try:
            return recordio.count(file, size)
        except DataError as error:
            raise DataError(f"{path} {error}") from None


def _count_tfrecords(path: Path, file: BinaryIO, size: int) -> int:
    """Count TFRecords. A record is its length (8 bytes), a checksum (4), the bytes, and another checksum (4)."""
    position, records = 0, 0
    while position < size:
        file.seek(position)
        header = file.read(12)
        if len(header) == 12:
            position += 16 + struct.unpack("<Q", header[:8])[0]
        if len(header) < 12 or position > size:
            raise DataError(f"{path} ends within record {records}: cut off, compressed, or not a TFRecord file")
        records += 1
    return records


def even_steps(
    channel: str | None = None,
    *,
    batch_size: int = 1,
    by: Literal["records", "files"] = "records",
    pattern: str = "*",
    drop_remainder: bool = False,
) -> int:
    """Return the fewest batches per pass of all ranks, for `dataset.take` or `steps_per_epoch`.

    With `steps_per_epoch`, also call `.repeat()` on the dataset: else Keras ends the training when the data end once.

    Counts the records in this process's shard of TFRecord or RecordIO files, and compares them with the other ranks. If
    the ranks' batches differ, a warning lists their numbers. All ranks must call it, after `hvd.init()` or
    `initialize_jax()`.

    Args:
        channel: As for `channels.channel`; in File mode.
        batch_size: Records per batch of one rank.
        by: Whether `shard` is applied to the records of all files or to the file names.
        pattern: As for `files`.
        drop_remainder: Whether the last, smaller batch is dropped.

    Raises:
        DataError: As for `files` and `count_records`; or a rank has no batch, which raises on all ranks; or there are
            several ranks and neither Horovod nor JAX has been initialised.
    """
    try:
        counted = _of_this_process(channel, pattern, by)
    except Exception:
        _gather([-1, -1])  # the others must not wait for this one
        raise
    of_ranks = _gather(counted)
    if broken := [rank for rank, (records, _) in enumerate(of_ranks) if records < 0]:
        raise DataError(f"counting records failed on {_ranks(broken)}; see its log")
    batches = [records // batch_size if drop_remainder else -(-records // batch_size) for records, _ in of_ranks]
    if len(set(batches)) > 1:
        LOGGER.warning(uneven(of_ranks, batches))
    if min(batches) == 0:
        empty = [rank for rank, number in enumerate(batches) if number == 0]
        raise DataError(f"no batch of {batch_size} for {_ranks(empty)}: {uneven(of_ranks, batches)}")
    return min(batches)


def _of_this_process(channel: str | None, pattern: str, by: str) -> list[int]:
    """Return [records, files] of this process's shard."""
    part, found = channels.part(channel), sharding.files(channel, pattern)
    if by == "files":
        found = found[part.index :: part.count]
        return [count_records(found), len(found)]
    return [len(range(part.index, count_records(found), part.count)), len(found)]


def uneven(of_ranks: Sequence[Sequence[int]], batches: Sequence[int]) -> str:
    """Return a message with the batches, records and files of each rank, for at most 16 ranks."""
    ranks = [
        f"rank {rank}: {steps} ({records} records, {files} files)"
        for rank, ((records, files), steps) in enumerate(zip(of_ranks, batches, strict=True))
    ]
    shown = ranks if len(ranks) <= 16 else [*ranks[:16], f"and {len(ranks) - 16} more"]
    return (
        f"ranks have different numbers of batches, {min(batches)} to {max(batches)}: {'; '.join(shown)}. "
        f"A rank with more would wait forever for the others: take {min(batches)} on all, or use end_together"
    )


def end_together(dataset: "tf.data.Dataset") -> "tf.data.Dataset":
    """Return a dataset that ends at the same step on all ranks, when the first rank has no more elements.

    Call it last, on batches, after `prefetch`, on all ranks, for the same datasets in the same order. If all ranks know
    how many elements they have (`dataset.cardinality()`, which `assert_cardinality` sets), they agree on the fewest
    here, once; otherwise on each element, by one small allreduce of Horovod's. With MultiWorkerMirroredStrategy, which
    ends workers together by itself, the dataset only no longer tells its size, see `sharding.without_size`. It is
    returned unchanged in a single process, and with parameter servers, whose workers do not wait for one another.

    Raises:
        DataError: There are several ranks, and neither Horovod nor JAX has been initialised; or with JAX, a rank does
            not know how many elements it has.
    """
    hvd, jax = _horovod(), _with_jax()
    if hvd is None and not jax:
        return sharding.without_size(dataset)
    global _named
    _named += 1
    counts = [count for (count,) in _gather([int(dataset.cardinality())])]
    if tf.data.experimental.UNKNOWN_CARDINALITY in counts:
        if jax:
            unknown = [rank for rank, count in enumerate(counts) if count == tf.data.experimental.UNKNOWN_CARDINALITY]
            raise DataError(
                f"end_together: {_ranks(unknown)} cannot tell the number of elements; with jax, wanted "
                "dataset.apply(tf.data.experimental.assert_cardinality(N)), or dataset.take(even_steps(...))"
            )
        return _ask_at_each(dataset, hvd, f"end_together.{_named}")
    finite = [count for count in counts if count != tf.data.experimental.INFINITE_CARDINALITY]
    if not finite:
        return dataset
    if len(set(counts)) > 1:
        of = "; ".join(f"rank {rank}: {'no end' if count < 0 else count}" for rank, count in enumerate(counts[:16]))
        LOGGER.warning("ranks have different numbers of batches; all ranks take %d: %s", min(finite), of)
    return dataset.take(min(finite))


def _ask_at_each(dataset: "tf.data.Dataset", hvd: Any, name: str) -> "tf.data.Dataset":
    """Return the dataset with an allreduce before each element, which is passed on only if all ranks have one."""
    spec = dataset.element_spec
    whole = isinstance(spec, tuple)  # map passes the parts of a tuple as separate arguments
    some = dataset.map(lambda *parts: tf.experimental.Optional.from_value(parts if whole else parts[0]))
    none = tf.data.Dataset.from_tensors(0).repeat().map(lambda _: tf.experimental.Optional.empty(spec))
    with tf.device("CPU"):
        iterators = tf.Variable(0, dtype=tf.int64, trainable=False)  # started by this rank

    def iterate(_: Any) -> "tf.data.Dataset":
        iterator = iterators.assign_add(1)

        def all_have_one(step: "tf.Tensor", mine: Any) -> "tf.Tensor":
            said = tf.stack([tf.cast(mine.has_value(), tf.int64), iterator, step])
            heard = hvd.allreduce(said, op=hvd.Sum, name=name)
            in_step = tf.debugging.Assert(tf.reduce_all(heard[1:] == said[1:] * hvd.size()), [OUT_OF_STEP, said, heard])
            with tf.control_dependencies([in_step]):
                return heard[0] == hvd.size()

        asked = some.concatenate(none).enumerate().take_while(all_have_one)
        # A flat_map, as tf.data would make a map parallel.
        return asked.flat_map(lambda _, mine: tf.data.Dataset.from_tensors(mine.get_value()))

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return tf.data.Dataset.from_tensors(0).flat_map(iterate).with_options(options)


def _gather(numbers: Sequence[int]) -> list[list[int]]:
    """Return the numbers of all ranks, in rank order."""
    if _with_jax():
        return jax_processes.gather(numbers)
    if (hvd := _horovod()) is None:
        return [list(numbers)]
    of_ranks = hvd.allgather(tf.constant([list(numbers)], tf.int64), name="sagemaker_tf_data")
    return [[int(number) for number in row] for row in of_ranks.numpy()]


def _with_jax() -> bool:
    """Return whether several processes train with JAX. Raise DataError if the script has not initialised it."""
    several = jax_processes.COORDINATOR in os.environ and places.horovod() is None and places.ranks() > 1
    if several and not jax_processes.is_initialized():
        raise DataError(f"{places.ranks()} processes, but JAX is not initialised: call initialize_jax() first")
    return several


def _horovod() -> Any:
    """Return Horovod if there are several ranks, else None. Raise DataError if the script has not initialised it."""
    hvd = places.horovod()
    if hvd is None and places.ranks() > 1 and jax_processes.COORDINATOR not in os.environ:
        raise DataError(f"{places.ranks()} ranks, but Horovod is not initialised: call hvd.init() first")
    return hvd if hvd is not None and hvd.size() > 1 else None


def _ranks(numbers: Sequence[int]) -> str:
    return ("rank " if len(numbers) == 1 else "ranks ") + ", ".join(map(str, numbers))
