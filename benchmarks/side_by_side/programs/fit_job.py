"""Train a network on made-up rows by Keras's fit: in mode jax, by Horovod or by MultiWorkerMirrored. Print how long."""

import argparse
import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--way")
parser.add_argument("--network")
for name in ("rows", "steps", "epochs"):
    parser.add_argument(f"--{name}", type=int)
args, _ = parser.parse_known_args()
strategy = tf.distribute.get_strategy()
callbacks = []
if args.way == "jax":
    import keras

    from sagemaker_tf_data import initialize_jax

    rank = initialize_jax().rank
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
elif args.way == "mpi":
    import horovod.tensorflow.keras as hvd
    import keras

    hvd.init()
    rank = hvd.rank()
    callbacks.append(hvd.callbacks.BroadcastGlobalVariablesCallback(0))
else:
    keras, strategy = tf.keras, tf.distribute.MultiWorkerMirroredStrategy()
    rank = strategy.cluster_resolver.task_id


class Clock(keras.callbacks.Callback):
    """Measures the seconds of each epoch."""

    seconds = []  # noqa: RUF012  (there is one)

    def on_epoch_begin(self, epoch, logs=None):
        self.began = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds.append(time.perf_counter() - self.began)


def layers_of(network):
    """Return the hidden layers of examples/digits, or three dense ones with 10 million weights."""
    layers = keras.layers
    if network == "dense":
        return [layers.Dense(2048, activation="relu") for _ in range(3)]
    return [
        layers.Conv2D(32, 3, padding="same", activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(64, 3, padding="same", activation="relu"), layers.Flatten(), layers.Dropout(0.3),
    ]  # fmt: skip


shape = [1024] if args.network == "dense" else [8, 8, 1]
draw = np.random.default_rng(rank)
x, y = draw.random((8 * args.rows, *shape), dtype=np.float32), draw.integers(0, 10, 8 * args.rows)
data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(args.rows, drop_remainder=True).prefetch(2)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
with strategy.scope():
    last = keras.layers.Dense(10, activation="softmax")
    model = keras.Sequential([keras.Input(shape), *layers_of(args.network), last])
    optimizer = keras.optimizers.Adam(0.001)
    optimizer = hvd.DistributedOptimizer(optimizer) if args.way == "mpi" else optimizer
    model.compile(optimizer, "sparse_categorical_crossentropy")
clock = Clock()
how = {"steps_per_epoch": args.steps, "epochs": args.epochs, "verbose": 0, "callbacks": [*callbacks, clock]}
model.fit(data.with_options(options), **how)
weights = float(sum(np.abs(np.asarray(each)).sum() for each in model.get_weights()))
print("FIT " + json.dumps([clock.seconds, weights]), flush=True)
