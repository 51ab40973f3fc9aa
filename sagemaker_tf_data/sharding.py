"""Each training process's own part of the data, with numbers that nobody has to work out."""

import re
from typing import TYPE_CHECKING, Any

from sagemaker_tf_data import channels, hidden, in_graph, places
from sagemaker_tf_data.errors import DataError

if TYPE_CHECKING:
    import tensorflow as tf

DEPTH = 4  # folders below a channel's that `file_names` looks into where a graph has to list them


def shard(dataset: "tf.data.Dataset", channel: str | None = None) -> "tf.data.Dataset":
    """Return the records, or file names, of `dataset` that are this process's: those whose number modulo N is I.

    N and I are the launcher's for the channel (ENTRYPOINT_SHARDS), or follow from the ranks and the channel's
    S3DistributionType; N is 1 where the channel's data is this process's alone. Call it on what is the same, in the
    same order, on all processes that share the channel: before `shuffle`. `channel` as for `channels.channel`.

    Works for Horovod, MultiWorkerMirroredStrategy and parameter servers. tf.data's own sharding of
    MultiWorkerMirroredStrategy is switched off for the dataset that is returned (AutoShardPolicy.OFF), since it would
    shard a second time. What the dataset function of a ClusterCoordinator returns is sharded by the numbers of the
    worker that reads it.

    Raises:
        DataError: There is no such channel, or it belongs to another local rank.
    """
    import tensorflow as tf

    if places.reads_elsewhere():
        name = channels.key_of_readers(channel)

        def of_the_reader(_: Any) -> "tf.data.Dataset":
            _, _, count, index = in_graph.part(name)
            return dataset.shard(count, index)

        sharded = tf.data.Dataset.from_tensors(0).flat_map(of_the_reader)
    else:
        part = channels.part(channel)
        sharded = dataset.shard(part.count, part.index) if part.count > 1 else dataset
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return sharded.with_options(options)


def files(channel: str | None = None, pattern: str = "*") -> list[str]:
    """Return paths of the files of this process's channel, at any depth, whose names match `pattern`, sorted.

    So they are in the same order on all hosts that have the same files. Not sharded yet. Names of files and folders
    that begin with . or _, and desktop.ini, are left out, and said once, unless the pattern begins so, too.

    Raises:
        DataError: There is no such channel, it is in Pipe mode, no file matches, or a dataset function of a
            ClusterCoordinator asks: its files are on other hosts, and `file_names` finds them there.
    """
    if places.reads_elsewhere() and _tracing():
        raise DataError("files() looks on the chief's disk, and workers read what is made here: use file_names()")
    mine = channels.channel(channel)
    mine.need("File")
    if not mine.folder.is_dir():
        raise DataError(f"channel '{mine.name}' has no folder {mine.folder}; wanted it there with files")
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
    """Return what data match, and what files of Windows match."""
    asked_for = re.fullmatch(hidden.OF_WINDOWS, f"/{pattern}")
    return hidden.data(pattern), "" if asked_for else hidden.OF_WINDOWS


def file_names(channel: str | None = None, pattern: str = "*") -> "tf.data.Dataset":
    """`files` as a dataset of scalar strings, listed by the process that reads it. Not sharded yet.

    In a job with a ClusterCoordinator `pattern` must not match folders, and files may lie at most three folders deep.
    """
    import tensorflow as tf

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
    import tensorflow as tf

    return bool(tf.inside_function())
