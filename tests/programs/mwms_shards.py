"""Read shards of different sizes through MultiWorkerMirrored's strategy; then save and resume."""

import json
import os
from pathlib import Path

import tensorflow as tf

from sagemaker_tf_data import DataError, checkpoints, end_together, shard

strategy = tf.distribute.MultiWorkerMirroredStrategy()
me = strategy.cluster_resolver.task_id


def read(dataset):
    """Return this worker's records, batch by batch; every worker reads the same number of batches."""
    batches = strategy.experimental_distribute_dataset(dataset)
    return [[int(each) for part in strategy.experimental_local_results(b) for each in part] for b in batches]


def meet():
    """Wait until all workers have come here."""
    read(shard(tf.data.Dataset.range(2), "train").batch(2))


told = {
    "even": read(shard(tf.data.Dataset.range(20), "train").batch(4)),
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
