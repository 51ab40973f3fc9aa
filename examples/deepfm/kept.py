"""Save files for later jobs: checkpoints from which a training resumes, and models that answer requests.

Both contain the sizes of the model: a checkpoint in a variable of its own, a SavedModel in `assets.extra`, TensorFlow
Serving's place for what it does not read.
"""

import json
import os
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import tensorflow as tf

from model import deepfm, predictor
from sagemaker_tf_data import DataError, channel, checkpoints, first_of
from settings import Sizes

SIZES = "assets.extra/deepfm.json"  # in the folder of a SavedModel
OF_CHECKPOINT = "made_of/.ATTRIBUTES/VARIABLE_VALUE"  # where TensorFlow puts a Checkpoint's `made_of`


def say(text):
    if os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0":  # what all ranks know, one says
        print(f"deepfm: {text}", flush=True)


# ---- checkpoints ---------------------------------------------------------------------------------------------------


class Progress:
    """The progress of training, in memory and on disk: weights, the optimizer's state, completed steps and epochs.

    It begins at the last checkpoint, if any. It raises SystemExit if that is of other sizes or another optimizer.
    """

    def __init__(self, model, args):
        self.model, self.epochs = model, args.epochs
        self.over = tf.Variable(0, dtype=tf.int64, trainable=False)
        made_of = json.dumps({"sizes": args.sizes.to_json(), "optimizer": args.optimizer})
        state = tf.train.Checkpoint(
            model=model, optimizer=model.optimizer, epochs=self.over, made_of=tf.Variable(made_of, trainable=False)
        )
        self._saver = checkpoints.manager(state, args.checkpoints)
        self._began = self._epoch_began = time.monotonic()
        # A checkpoint holds the learning rate, too. It is this job's that counts, on the rank that reads as on those
        # that do not: Keras's list of an optimizer's variables is without it, so it would not be broadcast.
        rate = float(model.optimizer.learning_rate)
        try:
            path = self._saver.restore()
        except DataError:
            refuse_others(self._saver.latest, args)
            raise
        if path and self._saver.writes:
            refuse_others(path, args)  # what is missing in the model, as batch normalizations, restores without a word
        model.optimizer.learning_rate = rate
        where = f"resumed behind epoch {int(self.over)}, from {path}" if path else "no checkpoint yet"
        say(f"training begins at step {self.steps}: {where}")
        self._first = self.steps

    @property
    def steps(self):
        return int(self.model.optimizer.iterations)

    def epochs_left(self):
        """Yield the numbers, from 1, of the epochs to come."""
        for epoch in range(int(self.over) + 1, self.epochs + 1):
            self._epoch_began, self._first = time.monotonic(), self.steps
            yield epoch

    def reached(self, epoch, loss, rows_per_step):
        """Save a checkpoint after an epoch. `rows_per_step`: the rows of all processes in one step."""
        now = time.monotonic()
        rate = (self.steps - self._first) * rows_per_step / (now - self._epoch_began)
        self.over.assign(epoch)
        self._saver.save(epoch)
        say(
            f"epoch {epoch}/{self.epochs} is over: loss={loss:.4f} step={self.steps} seconds={now - self._began:.1f} "
            f"examples/s={rate:.0f}"
        )


def refuse_others(path, args):
    """Raise SystemExit if the checkpoint is of other sizes than the job's, or of another optimizer."""
    sizes, optimizer = what_it_is_of(path)
    found = [sizes.differences(vars(args.sizes))]
    if optimizer != args.optimizer:
        found.append(f"found optimizer {optimizer}, wanted {args.optimizer}")
    if any(found):
        raise SystemExit(
            f"deepfm: checkpoint {path} is not of this job's model: {'; '.join(filter(None, found))}. "
            "Give the job the same hyperparameters, or another folder of checkpoints"
        )


def what_it_is_of(path):
    """Return (Sizes, name of the optimizer) of a checkpoint."""
    try:
        made_of = json.loads(tf.train.load_checkpoint(path).get_tensor(OF_CHECKPOINT))
    except tf.errors.NotFoundError:
        why = "does not say which sizes it is of; wanted one of this example"
        raise SystemExit(f"deepfm: checkpoint {path} {why}") from None
    return Sizes.from_json(made_of["sizes"]), made_of["optimizer"]


# ---- a model of an earlier job -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Earlier:
    """A model and its origin. `predict` takes {"ids", "values"} and returns probabilities, [rows].

    `model` is Keras's, of a checkpoint; a SavedModel has none.
    """

    where: str
    sizes: Sizes
    predict: Any
    model: Any = None


def earlier(args):
    """Find the model to evaluate, predict with or export: in channel `model`, else in the folder of checkpoints.

    The channel holds a SavedModel, checkpoints, or the model.tar.gz of an earlier job. Raise SystemExit if there is
    none, or if its sizes differ from the job's.
    """
    folder = unpacked(channel("model").folder) if first_of("model") else None
    if folder and (found := sorted(folder.rglob("saved_model.pb"))):
        model = of_saved_model(found[-1].parent)
    else:
        indexes = sorted(folder.rglob("ckpt-*.index")) if folder else []
        place = indexes[-1].parent if indexes else folder or args.checkpoints
        saver = checkpoints.manager(tf.train.Checkpoint(), place)
        if (path := saver.latest) is None:
            nothing = (
                f"no model in {folder}" if folder else f"no channel 'model', and no checkpoint in {saver.directory}"
            )
            raise SystemExit(f"deepfm: nothing to {args.task}: found {nothing}; wanted a model of an earlier job")
        model = of_checkpoint(path)
    if differ := model.sizes.differences(args.sizes_given):
        raise SystemExit(f"deepfm: {model.where} is of other sizes: {differ}. Leave these hyperparameters out")
    say(f"{args.task} with {model.where}")
    return model


def of_checkpoint(path):
    sizes, _ = what_it_is_of(path)
    model = deepfm(sizes)
    tf.train.Checkpoint(model=model).restore(path).expect_partial().assert_existing_objects_matched()
    return Earlier(path, sizes, predictor(model), model)


def of_saved_model(folder):
    try:
        sizes = Sizes.from_json((folder / SIZES).read_text())
    except FileNotFoundError:
        raise SystemExit(f"deepfm: {folder} has no {SIZES}; wanted a model that this example has saved") from None
    saved = tf.saved_model.load(str(folder))
    answer = saved.signatures["serving_default"]

    def predict(features):
        return answer(**features)["probability"]

    predict.model = saved  # the signature does not keep its variables alive
    return Earlier(str(folder), sizes, predict)


def unpacked(folder):
    """Return the folder, or one with the contents of its model.tar.gz if SageMaker has left that."""
    archive = folder / "model.tar.gz"
    if not archive.is_file():
        return folder
    to = Path(tempfile.mkdtemp(prefix="deepfm-model-"))
    with tarfile.open(archive) as tar:
        for member in tar:
            path = PurePosixPath(member.name)
            if member.isfile() and not path.is_absolute() and ".." not in path.parts:  # nothing outside of the folder
                (to / path).parent.mkdir(parents=True, exist_ok=True)
                (to / path).write_bytes(tar.extractfile(member).read())
    return to


def save(model, folder, sizes=Sizes()):  # noqa: B008  (it is frozen)
    """Save a SavedModel with one signature: `ids` and `values`, [rows, fields], in, `probability`, [rows], out."""
    fields = sizes.field_size

    def serve(ids, values):
        return {"probability": model({"ids": ids, "values": values}, training=False)[:, 0]}

    archive = tf.keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint(
        "serving_default",
        serve,
        input_signature=[
            tf.TensorSpec([None, fields], tf.int64, name="ids"),
            tf.TensorSpec([None, fields], tf.float32, name="values"),
        ],
    )
    archive.write_out(str(folder))
    note = Path(folder) / SIZES
    note.parent.mkdir(exist_ok=True)
    note.write_text(sizes.to_json())
    say(f"saved {folder}")
