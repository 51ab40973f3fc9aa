"""Train with SageMaker's data-parallel library: a custom loop, with its tape, broadcast and out-of-band reduction."""

import argparse
import json
import os
from pathlib import Path

import smdistributed.dataparallel.tensorflow as sdp
import tensorflow as tf

sdp.init()

gpus = tf.config.experimental.list_physical_devices("GPU")
if gpus:
    tf.config.experimental.set_visible_devices(gpus[sdp.local_rank()], "GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", type=Path, default=os.environ["SM_MODEL_DIR"])
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--learning-rate", type=float, default=0.01)
parser.add_argument("--batch-size", type=int, default=8)
args = parser.parse_args()

tf.random.set_seed(sdp.rank())
images = tf.random.stateless_uniform([128, 4, 4], seed=[1, 2])
labels = tf.one_hot(tf.cast(tf.reduce_mean(images, axis=(1, 2)) > 0.5, tf.int32), 2)
train = tf.data.Dataset.from_tensor_slices((images, labels)).shard(sdp.size(), sdp.rank()).batch(args.batch_size)
model = tf.keras.Sequential(
    [tf.keras.layers.Flatten(input_shape=(4, 4)), tf.keras.layers.Dense(2, activation="softmax")]
)
loss = tf.losses.CategoricalCrossentropy()
opt = tf.optimizers.Adam(args.learning_rate * sdp.size())
sdp.broadcast_variables(model.variables, root_rank=0)
sdp.broadcast_variables(opt.variables(), root_rank=0)


@tf.function
def training_step(images, labels):
    with tf.GradientTape() as tape:
        loss_value = loss(labels, model(images, training=True))
    tape = sdp.DistributedGradientTape(tape)
    grads = tape.gradient(loss_value, model.trainable_variables)
    opt.apply_gradients(zip(grads, model.trainable_variables, strict=True))
    return sdp.oob_allreduce(loss_value)


for epoch in range(args.epochs):
    for images, labels in train:
        loss_value = training_step(images, labels)
    if sdp.rank() == 0:
        print(f"epoch {epoch + 1}, loss {loss_value:.4f}", flush=True)

mine = tf.constant([sdp.rank() + 1.0, 10.0 * sdp.rank()])
facts = {
    "rank": sdp.rank(),
    "local_rank": sdp.local_rank(),
    "size": sdp.size(),
    "local_size": sdp.local_size(),
    "loss": float(loss_value),
    "weights": [float(w) for w in tf.reshape(model.weights[0], [-1])],
    "average": sdp.oob_allreduce(mine).numpy().tolist(),
    "of a list": sdp.oob_allreduce([float(sdp.rank()), 1.0]).numpy().tolist(),
    "sum": sdp.allreduce(mine, 0, 1, op=sdp.ReduceOp.SUM).numpy().tolist(),
    "largest": sdp.allreduce(mine, 0, 1, compression=sdp.Compression.fp16, op=sdp.ReduceOp.MAX).numpy().tolist(),
    "of rank 1": sdp.broadcast(mine, root_rank=1).numpy().tolist(),
}
Path(os.environ["SM_OUTPUT_DATA_DIR"], f"rank-{sdp.rank()}.json").write_text(json.dumps(facts))
if sdp.rank() == 0:
    model.save(args.model_dir / "1")
sdp.shutdown()
