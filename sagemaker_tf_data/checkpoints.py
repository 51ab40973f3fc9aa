"""Save and restore checkpoints: choose the folder, the one process that writes, and the latest intact checkpoint."""

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

from sagemaker_tf_data import channels, places
from sagemaker_tf_data.errors import DataError
from sagemaker_tf_data.lazy import tf

LOGGER = logging.getLogger(__name__)

_PATTERN = re.compile(r"[*?\[\\]")  # TensorFlow takes names with these for patterns, even the prefix of a checkpoint
_PIECE = 21  # bits of a number to be summed: the squares of a million workers still fit an int64


def manager(checkpoint: "tf.train.Checkpoint", directory: str | Path | None = None, *, keep: int = 2) -> "Saver":
    """Return a Saver, which saves and restores `checkpoint` in `directory` and keeps the last `keep`.

    The default directory is the one that SageMaker copies to S3 (`folder()`). It may also be on a file system that all
    hosts share, or a URI that TensorFlow can write to. One process of the job writes: rank 0, TensorFlow's chief, or
    worker 0.

    Raises:
        DataError: TensorFlow cannot write there.
    """
    # If it ended in a slash, TensorFlow would save into it and then find nothing there.
    where = str(directory or folder()).rstrip("/") or "/"
    if "://" in where and _PATTERN.search(where):
        raise DataError(
            f"checkpoints cannot go to {where}: TensorFlow reads *, ?, [ and \\ as a pattern; use a path without them"
        )
    writes = writer()
    if writes or "://" in where:
        _make(where)
    return Saver(checkpoint, where, keep, writes)


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder that SageMaker copies to and from S3: LocalPath of checkpointconfig.json, or the default.

    The default is `checkpoints` beside the input folder: /opt/ml/checkpoints, or in a host's own folder where
    `entrypoint local` has no containers, so that no other job has written there.

    Raises:
        DataError: checkpointconfig.json has another form.
    """
    inputs = channels.input_folder(environ)
    path = inputs / "config" / "checkpointconfig.json"
    try:
        given = json.loads(path.read_text()) if path.is_file() else {}
        return Path((given or {}).get("LocalPath") or inputs.parent / "checkpoints")
    except (ValueError, AttributeError, TypeError):
        raise DataError(f'{path} holds {path.read_text()[:200]!r}; wanted {{"LocalPath": FOLDER}}') from None


def writer(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process writes. Scripts without ranks and TF_CONFIG share nothing, and all of them write."""
    config = places.tf_config(environ)
    if config and places.horovod() is None:
        first = next(job for job in ("chief", "master", "worker") if config["cluster"].get(job))
        return bool(config["task"] == {"type": first, "index": 0})
    return places.here(environ).rank == 0


class Saver:
    """Save and restore one tf.train.Checkpoint in `directory`; `writes`: whether this process saves there."""

    def __init__(self, checkpoint: "tf.train.Checkpoint", directory: str, keep: int, writes: bool) -> None:
        self.checkpoint, self.directory, self.keep, self.writes = checkpoint, directory, keep, writes
        self._manager: tf.train.CheckpointManager | None = None
        self._alias = ""

    @property
    def latest(self) -> str | None:
        """Return the prefix of the latest intact checkpoint, or None. Damaged checkpoints are logged."""
        for number, path in reversed(self._found()):
            if (damage := _damage(self._plain(path))) is None:
                return path
            LOGGER.warning("skipped checkpoint %d in %s: %s", number, self.directory, damage)
        return None

    def restore(self) -> str | None:
        """Restore the latest intact checkpoint, and return its prefix; None if there is none.

        With Horovod only rank 0 reads, and all ranks return the prefix: broadcast all variables from rank 0 afterwards.
        With MultiWorkerMirroredStrategy every worker reads the same checkpoint: call it in the strategy's scope.

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
                f"checkpoint {path} belongs to another model: {str(error).splitlines()[0]}. Use its model, or "
                "another folder"
            ) from error
        LOGGER.info("restored %s", path)
        return path

    def save(self, number: int | None = None) -> str | None:
        """Save, and return the prefix, or None if another process writes. Call it on all ranks and workers.

        `number` is the checkpoint's, such as the step; by default checkpoints are counted. An interrupted save is never
        taken for a checkpoint.
        """
        if self.writes:
            if self._manager is None:
                self._manager = self._managed()
            path: str = self._manager.save(checkpoint_number=number, options=_options())
            return f"{self.directory}/{path.rpartition('/')[2]}"
        if _mirrored():  # saving sums variables over all workers, so each must save; only one result is kept
            with tempfile.TemporaryDirectory(prefix="checkpoint-", ignore_cleanup_errors=True) as scrap:
                tf.train.CheckpointManager(self.checkpoint, scrap, max_to_keep=1).save(checkpoint_number=number)
        return None

    def _managed(self) -> "tf.train.CheckpointManager":
        """Return TensorFlow's manager with all checkpoints of the folder, since it deletes only those that it knows."""
        folder = self._plain(self.directory)
        for name in _names(folder):
            if re.fullmatch(r"ckpt-.*_temp/?|checkpoint\.tmp.*", name):  # of an interrupted save
                path = f"{folder}/{name}"
                tf.io.gfile.rmtree(path) if tf.io.gfile.isdir(path) else tf.io.gfile.remove(path)
        state, paths = tf.train.get_checkpoint_state(folder), [self._plain(path) for _, path in self._found()]
        if paths and (state is None or list(state.all_model_checkpoint_paths) != paths):
            tf.compat.v1.train.update_checkpoint_state(
                folder, paths[-1], paths, all_model_checkpoint_timestamps=[time.time()] * len(paths)
            )
        return tf.train.CheckpointManager(self.checkpoint, folder, max_to_keep=self.keep)

    def _found(self) -> list[tuple[int, str]]:
        """Return (number, prefix), oldest first, by the index files, which TensorFlow writes last.

        The file `checkpoint` may be older, or damaged.
        """
        names = [re.fullmatch(r"(ckpt-(\d+))\.index", name) for name in _names(self.directory)]
        numbered = [match for match in names if match]
        return sorted((int(match[2]), f"{self.directory}/{match[1]}") for match in numbered)

    def _plain(self, path: str) -> str:
        """Return `path`, the directory or a path in it, without characters that TensorFlow takes for a pattern.

        An open directory has a name without such characters in /proc, for this process. A path that cannot be opened
        stays as it is.
        """
        if not self._alias and _PATTERN.search(self.directory) and Path(self.directory).is_dir():
            fd = os.open(self.directory, os.O_PATH | os.O_DIRECTORY)
            weakref.finalize(self, os.close, fd)
            self._alias = f"/proc/self/fd/{fd}"
        return self._alias + path.removeprefix(self.directory) if self._alias else path

    def _agree(self, path: str | None) -> None:
        """Raise DataError unless all workers found the same checkpoint, since no later step would make them equal."""
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
                f"workers found different checkpoints (this worker: {path} in {self.directory}); wanted a folder that "
                "all hosts share (EFS, FSx), or one that SageMaker has filled from S3 on every host"
            )


def squared(number: int) -> tuple[list[int], list[int]]:
    """Return (pieces of a number, their squares), so small that the sums over all workers are exact."""
    pieces = [number >> shift & ((1 << _PIECE) - 1) for shift in range(0, 64, _PIECE)]
    return pieces, [piece * piece for piece in pieces]


def are_equal(sums: list[int], squares: list[int], size: int) -> bool:
    """Return whether `size` numbers are equal, from the sums of their pieces and of the squares of these.

    By Cauchy and Schwarz (sum)^2 = size * (sum of squares) only if all are equal.
    """
    return all(plain * plain == size * square for plain, square in zip(sums, squares, strict=True))


def _names(folder: str) -> list[str]:
    """Return the names in a folder; none if it does not exist, as S3 has no empty folders."""
    try:
        names: list[str] = tf.io.gfile.listdir(folder)
    except tf.errors.NotFoundError:
        return []
    return names


def _damage(path: str) -> str | None:
    """Return the fault of a damaged checkpoint, else None.

    Reads all of it: TensorFlow verifies each tensor's checksum.
    """
    try:
        reader = tf.train.load_checkpoint(path)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except (tf.errors.OpError, ValueError, RuntimeError, IndexError) as error:
        return str(error).splitlines()[0]
    return None


def _mirrored() -> bool:
    """Return whether the job uses MultiWorkerMirroredStrategy."""
    config = places.tf_config()
    return bool(config) and "ps" not in config["cluster"] and places.horovod() is None


def _options() -> "tf.train.CheckpointOptions":
    """Return options that let the chief do all I/O for parameter servers: their own disks are lost with the job."""
    if "ps" not in places.tf_config().get("cluster", {}):
        return tf.train.CheckpointOptions()
    with tf.device("CPU:0"):  # its full name, which changes when the cluster is connected
        return tf.train.CheckpointOptions(experimental_io_device=tf.constant(0).device)


def _make(directory: str) -> None:
    """Create the directory; for a URI, import tensorflow_io if it is installed. Raise DataError if that fails."""
    if "://" in directory and importlib.util.find_spec("tensorflow_io"):
        importlib.import_module("tensorflow_io")  # registers its file systems
    try:
        tf.io.gfile.makedirs(directory)
    except tf.errors.UnimplementedError:
        scheme = directory.partition("://")[0]
        raise DataError(
            f"checkpoints cannot go to {directory}: this TensorFlow has no file system for {scheme}://. Omit the "
            "folder (SageMaker copies the default one to the CheckpointConfig's S3Uri), pass one that all hosts share, "
            "or add tensorflow-io to requirements.txt: 0.34.0 for TensorFlow 2.14 (later ones end with exit code 134)"
        ) from None
    except tf.errors.OpError as error:
        raise DataError(f"checkpoints cannot go to {directory}: {str(error).splitlines()[0]}") from error
