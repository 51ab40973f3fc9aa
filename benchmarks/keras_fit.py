"""Measure Keras's `fit` on two hosts: mode jax, Horovod and MultiWorkerMirroredStrategy.

Two containers with one process each, by our launcher. Three ways train the same two networks on made-up rows:

    jax      mode jax, Keras 3 on JAX, in the image of TensorFlow 2.21
    horovod  Horovod, Keras 3 on TensorFlow, in the same image
    mwms     MultiWorkerMirroredStrategy, Keras 2, in the image of TensorFlow 2.14

The networks are that of examples/digits, and a dense one of 10 million weights. Each way compiles as Keras does by
itself: by XLA with JAX, not with TensorFlow on CPUs. Ways take turns, so other work of the machine affects all alike.

    python -m benchmarks.keras_fit --rounds 5 --json keras-fit.json
"""

import json
import re

from benchmarks import machine
from benchmarks.profile_start.jobs import PYTHON, Case, printed
from benchmarks.report import page

WAYS = {
    "jax": {"sagemaker_entrypoint_mode": "jax"},
    "horovod": {"sagemaker_mpi_enabled": "true"},
    "mwms": {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"},
}
NETWORKS = {"digits": (64, 200), "dense": (64, 10)}  # rows of a step of each process, steps of an epoch
PROGRAM = """
import json, os, time
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf

way, network, rows, steps, epochs = {given}
strategy = tf.distribute.get_strategy()
callbacks = []
if way == "jax":
    import keras
    from sagemaker_tf_data import initialize_jax
    rank = initialize_jax().rank
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
elif way == "horovod":
    import horovod.tensorflow.keras as hvd
    import keras
    hvd.init()
    rank = hvd.rank()
    callbacks.append(hvd.callbacks.BroadcastGlobalVariablesCallback(0))
else:
    keras, strategy = tf.keras, tf.distribute.MultiWorkerMirroredStrategy()
    rank = strategy.cluster_resolver.task_id

layers = keras.layers
shape, hidden = {{
    "digits": ([8, 8, 1], lambda: [
        layers.Conv2D(32, 3, padding="same", activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(64, 3, padding="same", activation="relu"), layers.Flatten(), layers.Dropout(0.3),
    ]),
    "dense": ([1024], lambda: [layers.Dense(2048, activation="relu") for _ in range(3)]),
}}[network]
draw = np.random.default_rng(rank)
x, y = draw.random((8 * rows, *shape), dtype=np.float32), draw.integers(0, 10, 8 * rows)
data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(rows, drop_remainder=True).prefetch(2)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF

class Clock(keras.callbacks.Callback):
    seconds = []

    def on_epoch_begin(self, epoch, logs=None):
        self.began = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds.append(time.perf_counter() - self.began)

with strategy.scope():
    model = keras.Sequential([keras.Input(shape), *hidden(), layers.Dense(10, activation="softmax")])
    optimizer = keras.optimizers.Adam(0.001)
    model.compile(hvd.DistributedOptimizer(optimizer) if way == "horovod" else optimizer,
                  "sparse_categorical_crossentropy")
clock = Clock()
model.fit(data.with_options(options), steps_per_epoch=steps, epochs=epochs, verbose=0, callbacks=[*callbacks, clock])
weights = float(sum(np.abs(np.asarray(each)).sum() for each in model.get_weights()))
print("FIT " + json.dumps([clock.seconds, weights]), flush=True)
"""


def speed(image: str, way: str, network: str, epochs: int) -> dict[str, float]:
    """Return rows per second of both hosts in the epochs after the first; raise SystemExit if they trained apart."""
    rows, steps = NETWORKS[network]
    program = PROGRAM.format(given=(way, network, rows, steps, 1 + epochs))
    logs = printed(image, Case(f"{network}, {way}", WAYS[way], (PYTHON, PYTHON), program), ours=True)
    # mpirun's host prints for all ranks where hosts do not print for themselves.
    found = [json.loads(each) for each in re.findall(r"FIT (\[.*\])", "".join(logs))]
    if len(found) != 2 or abs(found[0][1] - found[1][1]) > 1e-3 * found[0][1]:
        raise SystemExit(f"{network}, {way}: wanted two with the same weights, found {found}:\n{''.join(logs)}")
    seconds = max(sum(of_epochs[1:]) for of_epochs, _ in found)
    return {"rows_per_s": round(2 * rows * steps * epochs / seconds, 1)}


def main() -> None:
    parser = machine.parser(__doc__, rounds=5)
    parser.add_argument("--image", default="sagemaker-tf-entrypoint:2.21", help="with jax, Keras 3 and Horovod")
    parser.add_argument("--keras-2", default="sagemaker-tf-entrypoint:latest", metavar="IMAGE", help="for mwms")
    parser.add_argument("--epochs", type=int, default=3, help="measured in each job, after one that is not")
    arguments = parser.parse_args()
    record = machine.head("keras-fit", limits={"epochs": arguments.epochs})
    for number in range(arguments.rounds):
        for network in NETWORKS:
            for way in machine.turned(WAYS, number):
                image = arguments.keras_2 if way == "mwms" else arguments.image
                measures = speed(image, way, network, arguments.epochs)
                head = {"network": network, "way": way, "round": number + 1, "load": machine.load()}
                machine.add(record, {**head, "measures": measures}, arguments.json)
    print(page(record))


if __name__ == "__main__":
    main()
