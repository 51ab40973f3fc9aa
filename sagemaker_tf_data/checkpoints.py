"""What tf.train.CheckpointManager leaves to the script: the folder, who writes, and what to resume from."""

import importlib
import importlib.util
import json
import logging
import os
import re
import tempfile
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sagemaker_tf_data import channels, places
from sagemaker_tf_data.errors import DataError

if TYPE_CHECKING:
    import tensorflow as tf

LOGGER = logging.getLogger(__name__)

_PATTERN = re.compile(r"[*?\[\\]")  # TensorFlow reads names with these as patterns, even the prefix of a checkpoint
_PIECE = 21  # bits of a number that is summed up: its square, of a million workers, still fits an int64


def manager(checkpoint: "tf.train.Checkpoint", directory: str | Path | None = None, *, keep: int = 2) -> "Saver":
    """Saves and restores `checkpoint` in `directory`; the last `keep` of them stay.

    Without a directory it is the one that SageMaker copies to S3 (`folder()`); a file system that all hosts share, or a
    URI that TensorFlow can write to, does as well. One process of the job writes: rank 0, TensorFlow's chief, or worker
    0.

    Raises:
        DataError: TensorFlow cannot write there.
    """
    # With a slash at its end TensorFlow would save into a folder and find nothing in it.
    where = str(directory or folder()).rstrip("/") or "/"
    if "://" in where and _PATTERN.search(where):
        raise DataError(f"checkpoints cannot go to {where}: TensorFlow takes *, ?, [ and \\ for a pattern; use none")
    writes = writer()
    if writes or "://" in where:
        _make(where)
    return Saver(checkpoint, where, keep, writes)


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """LocalPath of checkpointconfig.json, the folder that SageMaker copies to and from S3; else /opt/ml/checkpoints.

    A host of `entrypoint local` that is no container has a folder of its own in place of /opt/ml: nothing there is of
    another job.
    """
    inputs = channels.input_folder(environ)
    path = inputs / "config" / "checkpointconfig.json"
    try:
        given = json.loads(path.read_text()) if path.is_file() else {}
        return Path((given or {}).get("LocalPath") or inputs.parent / "checkpoints")
    except (ValueError, AttributeError, TypeError):
        raise DataError(f'{path} holds {path.read_text()[:200]!r}; wanted {{"LocalPath": FOLDER}}') from None


def writer(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether this is the process that writes. Scripts that know nothing of each other all do."""
    config = places.tf_config(environ)
    if config and places.horovod() is None:
        first = next(job for job in ("chief", "master", "worker") if config["cluster"].get(job))
        return bool(config["task"] == {"type": first, "index": 0})
    return places.here(environ).rank == 0


class Saver:
    """`directory`: where. `writes`: whether this process does."""

    def __init__(self, checkpoint: "tf.train.Checkpoint", directory: str, keep: int, writes: bool) -> None:
        self.checkpoint, self.directory, self.keep, self.writes = checkpoint, directory, keep, writes
        self._manager: tf.train.CheckpointManager | None = None
        self._alias = ""

    @property
    def latest(self) -> str | None:
        """The prefix of the latest checkpoint of which nothing is missing or damaged; older ones are tried in turn."""
        for number, path in reversed(self._found()):
            if (damage := _damage(self._plain(path))) is None:
                return path
            LOGGER.warning("checkpoint %d in %s is passed over: %s", number, self.directory, damage)
        return None

    def restore(self) -> str | None:
        """Restores the latest whole checkpoint, and returns its prefix; None where there is none.

        With Horovod rank 0 reads, and the others are only told what: broadcast all variables from rank 0 afterwards.
        With MultiWorkerMirroredStrategy every worker reads, so call it in the strategy's scope, and all must find the
        same one.

        Raises:
            DataError: The checkpoint is not of these variables, or workers find different ones.
        """
        hvd = places.horovod()
        path = self.latest if hvd is None or hvd.rank() == 0 else None
        if hvd is not None and hvd.size() > 1:
            path = hvd.broadcast_object(path, root_rank=0)
        if _mirrored():
            self._agree(path)
        if path is None or (hvd is not None and hvd.rank() != 0):
            return path
        try:
            self.checkpoint.restore(self._plain(path), options=_options()).assert_existing_objects_matched()
        except (AssertionError, ValueError) as error:
            raise DataError(
                f"checkpoint {path} is not of this model: {str(error).splitlines()[0]}. Use its model, or "
                "another folder"
            ) from error
        LOGGER.info("restored %s", path)
        return path

    def save(self, number: int | None = None) -> str | None:
        """Saves, and returns the prefix, or None where another process writes. Call it on all ranks and workers.

        `number` is the checkpoint's, say the step; without it they are counted. A save that is cut off is never taken
        for a checkpoint.
        """
        if self.writes:
            if self._manager is None:
                self._manager = self._managed()
            path: str = self._manager.save(checkpoint_number=number, options=_options())
            return f"{self.directory}/{path.rpartition('/')[2]}"
        if _mirrored():  # saving sums up what each worker has a part of, so all do the very same, and others' is scrap
            import tensorflow as tf

            with tempfile.TemporaryDirectory(prefix="checkpoint-", ignore_cleanup_errors=True) as scrap:
                tf.train.CheckpointManager(self.checkpoint, scrap, max_to_keep=1).save(checkpoint_number=number)
        return None

    def _managed(self) -> "tf.train.CheckpointManager":
        """TensorFlow's manager, told of all that is there: it deletes only what it knows of."""
        import tensorflow as tf

        folder = self._plain(self.directory)
        for name in _names(folder):
            if re.fullmatch(r"ckpt-.*_temp/?|checkpoint\.tmp.*", name):  # of a save that was cut off
                path = f"{folder}/{name}"
                tf.io.gfile.rmtree(path) if tf.io.gfile.isdir(path) else tf.io.gfile.remove(path)
        state, paths = tf.train.get_checkpoint_state(folder), [self._plain(path) for _, path in self._found()]
        if paths and (state is None or list(state.all_model_checkpoint_paths) != paths):
            tf.compat.v1.train.update_checkpoint_state(
                folder, paths[-1], paths, all_model_checkpoint_timestamps=[time.time()] * len(paths)
            )
        return tf.train.CheckpointManager(self.checkpoint, folder, max_to_keep=self.keep)

    def _found(self) -> list[tuple[int, str]]:
        """(number, prefix), oldest first. The index is written last; the file `checkpoint` may be older, or damaged."""
        names = [re.fullmatch(r"(ckpt-(\d+))\.index", name) for name in _names(self.directory)]
        numbered = [match for match in names if match]
        return sorted((int(match[2]), f"{self.directory}/{match[1]}") for match in numbered)

    def _plain(self, path: str) -> str:
        """`path`, which is in the directory or it, under a name that TensorFlow takes as it is.

        An open directory has one in /proc, for this process; where there is nothing to open the name stays.
        """
        if not self._alias and _PATTERN.search(self.directory) and Path(self.directory).is_dir():
            fd = os.open(self.directory, os.O_PATH | os.O_DIRECTORY)
            weakref.finalize(self, os.close, fd)
            self._alias = f"/proc/self/fd/{fd}"
        return self._alias + path.removeprefix(self.directory) if self._alias else path

    def _agree(self, path: str | None) -> None:
        """All workers must go on from the same values: nothing makes them equal later."""
        import tensorflow as tf

        strategy = tf.distribute.get_strategy()
        size = strategy.num_replicas_in_sync
        if size < 2:
            return
        match = re.search(r"\d+$", path or "")
        pieces = tf.constant(squared(int(match[0]) + 1 if match else 0), tf.int64)

        @tf.function
        def total() -> "tf.Tensor":
            return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(lambda: tf.identity(pieces)), axis=None)

        sums, squares = total().numpy().tolist()
        if not are_equal(sums, squares, size):
            raise DataError(
                f"workers find different checkpoints, this one {path} in {self.directory}; wanted a folder that all "
                "hosts share (EFS, FSx), or one that SageMaker has filled from S3 on every host"
            )


def squared(number: int) -> tuple[list[int], list[int]]:
    """(pieces of a number, their squares), so small that the sums over all workers are exact."""
    pieces = [number >> shift & ((1 << _PIECE) - 1) for shift in range(0, 64, _PIECE)]
    return pieces, [piece * piece for piece in pieces]


def are_equal(sums: list[int], squares: list[int], size: int) -> bool:
    """Return whether `size` numbers are equal, by the sums of their pieces and of the squares of these."""
    return all(plain * plain == size * square for plain, square in zip(sums, squares, strict=True))


def _names(folder: str) -> list[str]:
    """Return what lies in a folder; nothing if it is not there, as none is in S3 before something lies in it."""
    import tensorflow as tf

    try:
        names: list[str] = tf.io.gfile.listdir(folder)
    except tf.errors.NotFoundError:
        return []
    return names


def _damage(path: str) -> str | None:
    """Return what is wrong with a checkpoint. Reads all of it: TensorFlow compares each tensor with its checksum."""
    import tensorflow as tf

    try:
        reader = tf.train.load_checkpoint(path)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except (tf.errors.OpError, ValueError, RuntimeError, IndexError) as error:
        return str(error).splitlines()[0]
    return None


def _mirrored() -> bool:
    config = places.tf_config()
    return bool(config) and "ps" not in config["cluster"] and places.horovod() is None


def _options() -> "tf.train.CheckpointOptions":
    """With parameter servers the chief reads and writes: their own disks are of no use to a job that starts anew."""
    import tensorflow as tf

    if "ps" not in places.tf_config().get("cluster", {}):
        return tf.train.CheckpointOptions()
    with tf.device("CPU:0"):  # its full name, which is another one once the cluster is connected
        return tf.train.CheckpointOptions(experimental_io_device=tf.constant(0).device)


def _make(directory: str) -> None:
    import tensorflow as tf

    if "://" in directory and importlib.util.find_spec("tensorflow_io"):
        importlib.import_module("tensorflow_io")  # brings file systems along
    try:
        tf.io.gfile.makedirs(directory)
    except tf.errors.UnimplementedError:
        scheme = directory.partition("://")[0]
        raise DataError(
            f"checkpoints cannot go to {directory}: this TensorFlow has no file system for {scheme}://. Leave it out "
            "(SageMaker copies its own to the CheckpointConfig's S3Uri), name one that all hosts share, or add "
            "tensorflow-io to requirements.txt: 0.34.0 for TensorFlow 2.14 (later ones end with exit code 134)"
        ) from None
    except tf.errors.OpError as error:
        raise DataError(f"checkpoints cannot go to {directory}: {str(error).splitlines()[0]}") from error
