"""Train with SageMaker's data-parallel library: `model.fit` with its optimizer and callbacks."""

import json
import os
from pathlib import Path

import smdistributed.dataparallel.tensorflow.keras as dist
import tensorflow as tf

dist.init()
tf.random.set_seed(dist.rank())
x = tf.random.stateless_uniform([64, 4], seed=[1, 2])
rows = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, axis=1, keepdims=True)))
rows = rows.shard(dist.size(), dist.rank()).batch(8)
model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
optimizer = dist.DistributedOptimizer(tf.optimizers.SGD(0.01 * dist.size()), compression=dist.Compression.none)
model.compile(loss="mse", optimizer=optimizer, experimental_run_tf_function=False)
callbacks = [dist.callbacks.BroadcastGlobalVariablesCallback(0), dist.callbacks.MetricAverageCallback()]
history = model.fit(rows, epochs=2, callbacks=callbacks, verbose=2 if dist.rank() == 0 else 0)
facts = {
    "rank": dist.rank(),
    "local_rank": dist.local_rank(),
    "size": dist.size(),
    "loss": float(history.history["loss"][-1]),
    "weights": [float(w) for w in tf.reshape(model.weights[0], [-1])],
}
Path(os.environ["SM_OUTPUT_DATA_DIR"], f"rank-{dist.rank()}.json").write_text(json.dumps(facts))
