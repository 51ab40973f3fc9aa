"""Read shards of different sizes through MultiWorkerMirrored's strategy; train with Keras; then save and resume.

An evaluator creates the same strategy, and trains alone.
"""

import json
import os
from pathlib import Path

import tensorflow as tf

from sagemaker_tf_data import DataError, checkpoints, end_together, shard

strategy = tf.distribute.MultiWorkerMirroredStrategy()
me = strategy.cluster_resolver.task_id


def read(dataset):
    """Return this worker's records by batch. Every worker reads the same number of batches."""
    batches = strategy.experimental_distribute_dataset(dataset)
    return [[int(each) for part in strategy.experimental_local_results(b) for each in part] for b in batches]


class Rows(tf.keras.metrics.Metric):
    """A metric that collects the rows of an epoch from all workers."""

    def __init__(self):
        super().__init__("rows")
        self.count = self.add_weight("count", initializer="zeros")

    def update_state(self, wanted, predicted, sample_weight=None):
        self.count.assign_add(tf.cast(tf.shape(predicted)[0], tf.float32))

    def result(self):
        return self.count


def fit(rows, validation=None):
    """Return the rows of each epoch of Keras's `fit`, and whether its weights are numbers."""
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.BatchNormalization(), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=[Rows()])
    history = model.fit(rows, validation_data=validation, epochs=2, verbose=0).history
    finite = all(bool(tf.reduce_all(tf.math.is_finite(weights))) for weights in model.get_weights())
    return [history["rows"], history.get("val_rows"), finite]


def rows(count):
    """Return this worker's part of rows in batches, as docs/data.md says."""
    features = tf.reshape(tf.range(float(count)), [-1, 1])
    return shard(tf.data.Dataset.from_tensor_slices((features, features)), "train").batch(8)


def meet():
    """Wait until all workers have reached this point."""
    read(shard(tf.data.Dataset.range(2), "train").batch(2))


if strategy.cluster_resolver.task_type == "evaluator":
    Path(os.environ["SM_OUTPUT_DATA_DIR"], "evaluator.json").write_text(json.dumps(fit(rows(65))))
    raise SystemExit

told = {
    "even": read(shard(tf.data.Dataset.range(20), "train").batch(4)),
    "fit": fit(rows(65), rows(48)),
    "uneven": read(end_together(shard(tf.data.Dataset.range(20), "train").take(2 + 4 * me).batch(2))),
}
with strategy.scope():
    value = tf.Variable(tf.range(3.0))
    checkpoint = tf.train.Checkpoint(value=value)
    shared = checkpoints.manager(checkpoint, os.environ["TEST_FOLDER"] + "/checkpoints")
    told["saved"] = [shared.restore(), shared.save() is not None]
    meet()
    value.assign(tf.zeros(3))
    told["resumed"] = [Path(shared.restore()).name, value.numpy().tolist()]

    own = checkpoints.manager(checkpoint, os.environ["SM_MODEL_DIR"])
    own.save()
    meet()
    try:
        told["not shared"] = own.restore()
    except DataError as error:
        told["not shared"] = str(error)
Path(os.environ["SM_OUTPUT_DATA_DIR"], "read.json").write_text(json.dumps(told))
