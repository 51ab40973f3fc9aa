"""Learns handwritten digits by Keras 3's `fit` on its JAX backend, on one host or on all hosts of a job of mode jax.

It saves after each epoch, and goes on from there when the job is started again. For the image of TensorFlow 2.21, in
which are jax and scikit-learn (1,797 images of 8 x 8 pixels), so there is nothing to download.
"""

import argparse
import os
import tempfile
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported: warnings and worse

import keras
import numpy as np
import tensorflow as tf
from jax.experimental import multihost_utils
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from sagemaker_tf_data import checkpoints, initialize_jax


def main():
    args = parse_args()
    # First of all: it connects to the other processes, and jax must not have been used before.
    place = initialize_jax()
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))

    # A fixed random_state: all processes agree which images are kept aside for the test.
    digits = load_digits()
    images = (digits.images[..., None] / 16.0).astype("float32")  # pixels are 0 to 16
    train_x, test_x, train_y, test_y = train_test_split(
        images, digits.target, test_size=360, random_state=0, stratify=digits.target
    )

    # Processes take every step together, with batches of the same size: all repeat their share of the images without
    # end, and the number of steps says when an epoch is over.
    steps = len(train_x) // args.batch_size
    train = tf.data.Dataset.from_tensor_slices((train_x, train_y)).shard(place.size, place.rank)
    train = train.shuffle(len(train_x)).repeat().batch(args.batch_size // place.size)

    saved = checkpoints.folder() / "digits.keras"
    content = from_first_process(saved.read_bytes() if saved.exists() and place.rank == 0 else b"", place)
    model = load(content) if content else new_model(args, steps)
    done = int(model.optimizer.iterations) // steps
    if content and place.rank == 0:
        print(f"digits: goes on after {done} epochs", flush=True)

    ends = EndsOfEpochs(saved, place)
    model.fit(
        train, initial_epoch=done, steps_per_epoch=steps, epochs=args.epochs, callbacks=[ends],
        verbose=2 if place.rank == 0 else 0,
    )  # fmt: skip
    if ends.stopped:  # by SIGTERM; what was saved is of the last whole epoch
        return

    # All processes test on all test images: a step is one of all processes, here too.
    _, accuracy = model.evaluate(test_x, test_y, batch_size=len(test_x), verbose=0)
    if place.rank == 0:
        print(f"digits: test accuracy={accuracy:.4f} images={len(test_x)}", flush=True)
    with tempfile.TemporaryDirectory() as elsewhere:
        kept = Path(os.environ.get("SM_MODEL_DIR", "/opt/ml/model"), "1")
        model.export(str(kept if place.rank == 0 else Path(elsewhere, "1")), verbose=False)


def parse_args():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", "--batch_size", type=int, default=128, help="images per step, of all processes")
    parser.add_argument("--learning-rate", "--learning_rate", type=float, default=0.01)
    args, _ = parser.parse_known_args()  # SageMaker's SDK may send more, such as --model_dir
    return args


def new_model(args, steps):
    model = keras.Sequential(
        [
            keras.Input([8, 8, 1]),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    # Ever smaller steps, down to none: the result then depends little on when training stopped.
    learning_rate = keras.optimizers.schedules.CosineDecay(args.learning_rate, steps * args.epochs)
    model.compile(keras.optimizers.Adam(learning_rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def from_first_process(content, place):
    """Return the value of process 0, since all must load the same and a new host may lack the file."""
    if place.size == 1:
        return content
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(content))))
    found = np.frombuffer(content if place.rank == 0 else bytes(size), np.uint8)
    return multihost_utils.broadcast_one_to_all(found).tobytes()


def load(content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "digits.keras")
        path.write_bytes(content)
        return keras.saving.load_model(path)


class EndsOfEpochs(keras.callbacks.Callback):
    """Save after each epoch, and stop all processes after the same step when SIGTERM has come.

    Keras saves by operations that all processes take part in. So all save, and what the first saves is kept.
    """

    def __init__(self, path, place):
        super().__init__()
        self.path, self.place, self.steps, self.stopped = path, place, 0, False

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        if self.place.size > 1:
            self.stopped = self.stopped or multihost_utils.reached_preemption_sync_point(self.steps)
        self.model.stop_training = self.stopped

    def on_epoch_end(self, epoch, logs=None):
        if self.stopped:
            return
        if self.place.rank > 0:
            with tempfile.TemporaryDirectory() as elsewhere:
                self.model.save(Path(elsewhere, "new.keras"))
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_name("new.keras")
        self.model.save(new)
        new.replace(self.path)  # at once: a host that is killed leaves no half of a file


if __name__ == "__main__":
    main()
