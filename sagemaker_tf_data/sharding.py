"""List a channel's files, and shard a dataset by the numbers of the process that reads it."""

import re
from typing import Any

from sagemaker_tf_data import channels, hidden, in_graph, places
from sagemaker_tf_data.errors import DataError
from sagemaker_tf_data.lazy import tf

DEPTH = 4  # levels that `file_names` lists in a graph: the channel's folder, and three below it


def shard(dataset: "tf.data.Dataset", channel: str | None = None) -> "tf.data.Dataset":
    """Return this process's records, or file names, of `dataset`: each one whose number modulo N is I.

    The launcher sets N and I for the channel (ENTRYPOINT_SHARDS); otherwise they follow from the ranks and the
    channel's S3DistributionType. N is 1 if no other process reads the channel's data. Call it before `shuffle`, while
    the dataset has the same elements in the same order on all processes that share the channel. `channel` as for
    `channels.channel`.

    Works for Horovod, MultiWorkerMirroredStrategy and parameter servers. MultiWorkerMirroredStrategy would shard a
    second time, so its sharding is off for the returned dataset (AutoShardPolicy.OFF); and the dataset does not tell
    its size, see `without_size`. In the dataset function of a ClusterCoordinator, the numbers are those of the worker
    that reads the dataset.

    Raises:
        DataError: There is no such channel, or it belongs to another local rank.
    """
    if places.reads_elsewhere():
        name = channels.key_of_readers(channel)

        def of_the_reader(_: Any) -> "tf.data.Dataset":
            _, _, count, index = in_graph.part(name)
            return dataset.shard(count, index)

        sharded = tf.data.Dataset.from_tensors(0).flat_map(of_the_reader)
    else:
        part = channels.part(channel)
        sharded = without_size(dataset.shard(part.count, part.index) if part.count > 1 else dataset)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return sharded.with_options(options)


def without_size(dataset: "tf.data.Dataset") -> "tf.data.Dataset":
    """Return the dataset for a worker of MultiWorkerMirroredStrategy. If it is finite, its `cardinality()` is unknown.

    Keras would take as many steps as the dataset has batches, which is wrong twice: the strategy makes smaller ones of
    them, of which the last would be left out, and a worker with fewer steps than another breaks off their collectives.
    Of unknown size, the dataset is read to its end by all workers, of which some get empty batches at last.
    """
    if not places.are_mirrored() or int(dataset.cardinality()) < 0:
        return dataset
    return dataset.concatenate(dataset.take(0).filter(lambda *_: True))  # costs nothing, unlike a filter of all


def files(channel: str | None = None, pattern: str = "*") -> list[str]:
    """Return sorted paths of the files of this process's channel, at any depth, whose names match `pattern`.

    The order is the same on all hosts that have the same files; the list is not sharded. Files and folders whose names
    begin with . or _, desktop.ini and Thumbs.db are left out, and logged once, unless the pattern begins so, too.

    Raises:
        DataError: There is no such channel, it is in Pipe mode, no file matches, or a dataset function of a
            ClusterCoordinator calls this: its files are on other hosts, where `file_names` lists them.
    """
    if places.reads_elsewhere() and _tracing():
        raise DataError("files() lists the chief's disk, but workers read the dataset: use file_names()")
    mine = channels.channel(channel)
    mine.need("File")
    if not mine.folder.is_dir():
        raise DataError(f"channel '{mine.name}' has no folder {mine.folder}; wanted a folder with files")
    below = sorted(path.relative_to(mine.folder).as_posix() for path in mine.folder.rglob(pattern) if path.is_file())
    is_data, is_none = (re.compile(expression) for expression in _expressions(pattern))
    found = [name for name in below if is_data.fullmatch(f"/{name}") and not is_none.fullmatch(f"/{name}")]
    left_out = sorted(set(below).difference(found))
    if not found:
        but = f", but {hidden.listed(left_out)}" if left_out else ""
        raise DataError(f"channel '{mine.name}': no file in {mine.folder} is called {pattern}{but}")
    hidden.tell(mine.name, mine.folder, left_out)
    return [str(mine.folder / name) for name in found]


def _expressions(pattern: str) -> tuple[str, str]:
    """Return two expressions: the first matches data, the second Windows' own files."""
    asked_for = re.fullmatch(hidden.OF_WINDOWS, f"/{pattern}")
    return hidden.data(pattern), "" if asked_for else hidden.OF_WINDOWS


def file_names(channel: str | None = None, pattern: str = "*") -> "tf.data.Dataset":
    """Return `files` as a dataset of scalar strings, listed by the process that reads it, and not sharded.

    In a job with a ClusterCoordinator `pattern` must not match folders, and files lie at most three folders deep.
    """
    if not places.reads_elsewhere():
        return tf.data.Dataset.from_tensor_slices(files(channel, pattern))
    name = channels.key_of_readers(channel)

    def of_the_reader(_: Any) -> "tf.data.Dataset":
        own, *_ = in_graph.part(name)
        folder = tf.strings.join([in_graph.input_folder(), "data", own], separator="/")
        patterns = [tf.strings.join([folder, *["*"] * depth, pattern], separator="/") for depth in range(DEPTH)]
        of_data, of_none = _expressions(pattern)

        def is_data(path: "tf.Tensor") -> "tf.Tensor":
            below = tf.strings.substr(path, tf.strings.length(folder), -1)
            full_match = tf.strings.regex_full_match
            return full_match(below, of_data) & ~full_match(below, of_none)

        return tf.data.Dataset.list_files(tf.stack(patterns), shuffle=False).filter(is_data)

    return tf.data.Dataset.from_tensors(0).flat_map(of_the_reader)


def _tracing() -> bool:
    """Return whether this code runs while TensorFlow traces a function."""
    return bool(tf.inside_function())
