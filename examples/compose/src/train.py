"""Learns y = 3x + 1 from rows of CSV, by parameter servers, MultiWorkerMirrored or Horovod: as the job says.

The rows come from channel `training` (files of lines `x,y`), or are made up where there is none.
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported: warnings and worse

import numpy as np
import tensorflow as tf

STEPS = 40  # of an epoch


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--learning_rate", type=float, default=0.1)
    args, _ = parser.parse_known_args()  # SageMaker's SDK may send more, such as --model_dir

    task = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task", {"type": "alone", "index": 0})
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        model, first = with_horovod(args)
    elif task["type"] in ("chief", "ps") or (task["type"] == "worker" and "chief" in os.environ["TF_CONFIG"]):
        model, first = with_parameter_servers(args, task)
    else:
        model, first = with_all_workers(args, task)
    if first:
        save(model.get_weights())


def with_horovod(args):
    import horovod.tensorflow.keras as hvd

    hvd.init()
    pin_gpu(hvd.local_rank())
    model = line(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(args.learning_rate)))
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    fit(model, args, rows(), verbose=2 if hvd.rank() == 0 else 0, callbacks=callbacks)
    return model, hvd.rank() == 0


def pin_gpu(local_rank):
    """Use one GPU for each rank; by default, each rank would use all."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[local_rank % len(gpus)], "GPU")


def with_all_workers(args, task):
    alone = task["type"] == "alone"
    strategy = tf.distribute.get_strategy() if alone else tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = line(tf.keras.optimizers.SGD(args.learning_rate))
    fit(model, args, rows(), verbose=2 if task["index"] == 0 else 0)
    return model, task["index"] == 0


def with_parameter_servers(args, task):
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if task["type"] != "chief":  # serves the chief, and ends with it
        tf.distribute.Server(resolver.cluster_spec(), job_name=task["type"], task_index=task["index"]).join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    with strategy.scope():
        # Where there are GPUs, XLA would compile its steps, and it takes no variable of another parameter server.
        model = line(tf.keras.optimizers.SGD(args.learning_rate, jit_compile=False))
    fit(model, args, tf.keras.utils.experimental.DatasetCreator(lambda _: rows()), verbose=2)
    return model, True


def line(optimizer):
    model = tf.keras.Sequential([tf.keras.Input([1]), tf.keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    return model


def fit(model, args, data, **options):
    model.fit(data, epochs=args.epochs, steps_per_epoch=STEPS, **options)


def save(weights):
    """Save a model of plain variables, since parameter servers would save theirs on their own disks."""
    plain = line("sgd")
    plain.set_weights(weights)
    plain.save(str(Path(os.environ["SM_MODEL_DIR"], "1")))
    weight, bias = (array.item() for array in weights)
    print(f"compose: learned y = {weight:.2f}x + {bias:.2f}", flush=True)


def rows():
    """Return batches of (x, y), each of shape [32, 1], without end; every process shuffles for itself."""
    folder = os.environ.get("SM_CHANNEL_TRAINING")
    if folder:
        import my_rows  # of an image of one's own: ../Dockerfile

        x, y = my_rows.read(folder)
    else:
        x = np.random.default_rng(0).uniform(-1, 1, [1000, 1]).astype(np.float32)
        y = 3 * x + 1
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).repeat().batch(32).with_options(options)


if __name__ == "__main__":
    main()
