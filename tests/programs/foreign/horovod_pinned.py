"""Run Horovod in the manner of the Mask R-CNN article: ranks are pinned, each reads its part, rank 0 saves."""

import argparse
import json
import os
from pathlib import Path

import horovod.tensorflow as hvd
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", type=Path)
parser.add_argument("--learning-rate", type=float, default=0.05)
parser.add_argument("--epochs", type=int, default=2)
args = parser.parse_args()

hvd.init()
gpus = tf.config.experimental.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")

tf.random.set_seed(hvd.rank())  # each rank begins with weights of its own; the broadcast makes them one
x = tf.random.stateless_uniform([128, 4], seed=[1, 2])
rows = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, axis=1, keepdims=True)))
rows = rows.shard(hvd.size(), hvd.rank()).batch(8)
model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
loss_of = tf.keras.losses.MeanSquaredError()
optimizer = tf.keras.optimizers.legacy.SGD(args.learning_rate * hvd.size())


@tf.function
def step(x, y, first):
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    if first:
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(optimizer.variables(), root_rank=0)
    return loss


for epoch in range(args.epochs):
    for number, (x, y) in enumerate(rows):
        loss = step(x, y, epoch == 0 and number == 0)
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}, loss {loss:.4f}", flush=True)

facts = {
    "rank": hvd.rank(),
    "local_rank": hvd.local_rank(),
    "size": hvd.size(),
    "local_size": hvd.local_size(),
    "weights": [float(w) for w in tf.reshape(model.weights[0], [-1])],
}
Path(os.environ["SM_OUTPUT_DATA_DIR"], f"rank-{hvd.rank()}.json").write_text(json.dumps(facts))
if hvd.rank() == 0:
    model.save(args.model_dir / "1")
