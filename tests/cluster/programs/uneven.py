"""Train on shards of different sizes, in ways that end at the same step on all ranks, and last in a way that does not.

Writes how many batches of four this rank has, and how many steps it took each time.
"""

import json
import logging
import os
from pathlib import Path

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import tensorflow as tf

from sagemaker_tf_data import count_records, end_together, even_steps, files

logging.basicConfig(level="INFO")
hvd.init()
weight = tf.Variable(1.0)
told = {"batches": -(-count_records(files("train")) // 4)}


def batches():
    records = tf.data.TFRecordDataset(files("train"))
    return records.map(lambda record: tf.reshape(tf.strings.to_number(record), [1])).batch(4).prefetch(2)


def train(dataset):
    """Train in a loop of the script's own; return the number of steps."""
    steps = 0
    for batch in dataset:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((batch * weight) ** 2)
        (gradient,) = hvd.DistributedGradientTape(tape).gradient(loss, [weight])
        weight.assign_sub(1e-6 * gradient)
        steps += 1
    return steps


told["even_steps"] = even_steps("train", batch_size=4)
told["taken"] = train(batches().take(told["even_steps"]))

together = end_together(batches())
told["together"] = []
for _ in range(3):
    told["together"].append(train(together))
    train(together.take(2))  # leaves an iterator in the middle

counted = batches().apply(tf.data.experimental.assert_cardinality(told["batches"]))
told["counted"] = train(end_together(counted))

model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.legacy.SGD(1e-6)), "mse")
callbacks = [hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0), hvd_keras.callbacks.MetricAverageCallback()]
pairs = end_together(batches().map(lambda batch: (batch, batch)))
model.fit(pairs, epochs=2, validation_data=pairs, callbacks=callbacks, verbose=0)
told["fit"] = int(model.optimizer.iterations)

try:  # last, since Horovod ends with it: HOROVOD_STALL_SHUTDOWN_TIME_SECONDS says when it gives up
    told["alone"] = train(batches())
    hvd.allreduce(tf.constant(1.0), name="what comes after training")
except tf.errors.OpError:
    told["alone"] = "stalled"
Path(os.environ["SM_OUTPUT_DATA_DIR"], f"rank-{hvd.rank()}.json").write_text(json.dumps(told))
