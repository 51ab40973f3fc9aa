"""Learns handwritten digits with a small network, on one host or on all hosts of the job together.

On one host with several GPUs, `--mirrored` uses all of them.

The images come with scikit-learn (1,797 of 8 x 8 pixels), so there is nothing to download.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported: warnings and worse

import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def main():
    args = parse_args()
    task = json.loads(os.environ.get("TF_CONFIG") or "{}")
    workers = len(task.get("cluster", {}).get("worker", [])) or 1
    index = task["task"]["index"] if workers > 1 else 0

    # First of all: the strategy connects to the other workers, and TensorFlow must not have been used before.
    if workers > 1:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    elif args.mirrored:
        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
        print(f"digits: mirrored on {strategy.num_replicas_in_sync} devices", flush=True)
    else:
        strategy = tf.distribute.get_strategy()

    # A fixed random_state: all workers agree which images are kept aside for the test.
    digits = load_digits()
    images = digits.images[..., None] / 16.0  # pixels are 0 to 16
    train_x, test_x, train_y, test_y = train_test_split(
        images, digits.target, test_size=360, random_state=0, stratify=digits.target
    )

    # Workers take every step together, so each must own the same number of batches: all repeat their
    # share of the images without end, and the number of steps says when an epoch is over.
    steps = len(train_x) // args.batch_size
    train = tf.data.Dataset.from_tensor_slices((train_x, train_y)).shard(workers, index)
    train = train.shuffle(len(train_x)).repeat().batch(args.batch_size // workers)

    with strategy.scope():  # variables made here are mirrored: one copy per worker and device, kept equal
        model = small_network()
        # Ever smaller steps, down to none: the result then depends little on when training stopped.
        learning_rate = tf.keras.optimizers.schedules.CosineDecay(args.learning_rate, steps * args.epochs)
        optimizer = tf.keras.optimizers.Adam(learning_rate)
        model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])

    model.fit(as_it_is(train), steps_per_epoch=steps, epochs=args.epochs, verbose=2 if index == 0 else 0)

    # Every worker tests on all test images: Keras evaluates on all workers or on none.
    test = tf.data.Dataset.from_tensor_slices((test_x, test_y)).batch(len(test_x))
    _, accuracy = model.evaluate(as_it_is(test), verbose=0)
    if index == 0:
        print(f"digits: test accuracy={accuracy:.4f} images={len(test_x)}", flush=True)
    save(model, index)


def parse_args():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", "--batch_size", type=int, default=128, help="images per step, of all workers")
    parser.add_argument("--learning-rate", "--learning_rate", type=float, default=0.01)
    parser.add_argument(
        "--mirrored",
        nargs="?",  # as a hyperparameter it comes with a value
        const=True,
        default=False,
        type=lambda text: text.lower() != "false",
        help="on one host: a copy of the network on each of its GPUs, and a part of each batch (MirroredStrategy)",
    )
    args, _ = parser.parse_known_args()  # SageMaker's SDK may send more, such as --model_dir
    return args


def small_network():
    return tf.keras.Sequential(
        [
            tf.keras.Input([8, 8, 1]),
            tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dropout(0.3),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )


def as_it_is(dataset):
    """Tell TensorFlow not to shard this dataset among the workers by itself, as it otherwise does."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)


def save(model, index):
    """Save on every worker, because saving can exchange variables, and keep what worker 0 saved."""
    with tempfile.TemporaryDirectory() as elsewhere:
        kept = Path(os.environ.get("SM_MODEL_DIR", "/opt/ml/model"), "1")
        folder = str(kept if index == 0 else Path(elsewhere, "1"))
        if hasattr(tf.keras, "version"):  # Keras 3, where `save` is for files of its own
            model.export(folder, verbose=False)
        else:
            model.save(folder)


if __name__ == "__main__":
    main()
