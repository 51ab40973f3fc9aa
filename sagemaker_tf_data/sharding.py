"""Each training process's own part of the data, with numbers that nobody has to work out."""

from typing import TYPE_CHECKING, Any

from sagemaker_tf_data import channels, in_graph, places
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

    So they are in the same order on all hosts that have the same files. Not sharded yet.

    Raises:
        DataError: There is no such channel, it is in Pipe mode, no file matches, or a dataset function of a
        ClusterCoordinator
            asks: its files are on other hosts, and `file_names` finds them there.
    """
    if places.reads_elsewhere() and _tracing():
        raise DataError("files() looks on the chief's disk, and workers read what is made here: use file_names()")
    mine = channels.channel(channel)
    mine.need("File")
    if not mine.folder.is_dir():
        raise DataError(f"channel '{mine.name}' has no folder {mine.folder}; wanted it there with files")
    found = sorted(str(path) for path in mine.folder.rglob(pattern) if path.is_file())
    if not found:
        raise DataError(f"channel '{mine.name}': no file in {mine.folder} is called {pattern}")
    return found


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
        return tf.data.Dataset.list_files(tf.stack(patterns), shuffle=False)

    return tf.data.Dataset.from_tensors(0).flat_map(of_the_reader)


def _tracing() -> bool:
    import tensorflow as tf

    return bool(tf.inside_function())
