"""Print the results of a script of the zoo, in lines that tests/zoo/test_zoo.py reads. It is beside the script."""

import hashlib
import json
import os
import socket
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

HOSTS = 2
DIGITS = 4  # of weights that replicas must have in common


def _print(text):
    print(f"zoo: {text}", flush=True)


def falls(first, last):
    """Check that the loss has become smaller."""
    first, last = float(first), float(last)
    _print(f"loss {first:.3f} -> {last:.3f}")
    assert last < first, f"the loss does not fall: {first} -> {last}"


def agree(weights):
    """Print a digest of a list of arrays. It must be equal on all processes with replicas."""
    arrays = [np.asarray(each, np.float64).round(DIGITS) + 0.0 for each in weights]  # + 0.0: no -0
    assert arrays and all(np.isfinite(each).all() for each in arrays)
    digest = hashlib.sha256(b"".join(each.tobytes() for each in arrays)).hexdigest()[:12]
    _print(f"weights {digest} on {socket.gethostname()}")


def weighted_sums():
    """Return rows of this process and the weighted sum of each, which a small network can learn."""
    x = np.random.default_rng(rank()).normal(size=(512, 8)).astype("float32")
    return x, x @ np.arange(8, dtype="float32")[:, None]


def for_horovod(*layers, loss="mse", rate=0.01):
    """Return a Keras model of these layers that Horovod's ranks train together, and the callbacks for its `fit`."""
    import horovod.tensorflow.keras as hvd  # not above: other scripts do without it and TensorFlow
    import tensorflow as tf

    hvd.init()
    model = tf.keras.Sequential(layers)
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(rate)), loss)
    return model, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]


def trains(model, *data, **how):
    """Fit a Keras model; assert that its loss becomes smaller, print a digest of its weights, and return the losses."""
    losses = model.fit(*data, verbose=0, **how).history["loss"]
    falls(losses[0], losses[-1])
    agree(model.get_weights())
    return losses


def loads(before, after):
    """Assert that a model that was loaded again predicts the same."""
    np.testing.assert_allclose(np.asarray(after), np.asarray(before), rtol=1e-3, atol=1e-4)
    _print("loads")


def survives(model, x, name="model.keras", compile=False, **options):
    """Save a Keras model, assert that it predicts the same after it was loaded, and return the loaded one.

    `options` are those of Keras's `load_model`. The end of `name` is the format: none is that of a SavedModel.
    """
    import tensorflow as tf

    path = str(model_dir() / name)
    model.save(path)
    again = tf.keras.models.load_model(path, compile=compile, **options)
    loads(model(x, training=False), again(x, training=False))
    return again


def wrote(folder, pattern="*"):
    """Check that a library, such as a tracker, has written files into a folder."""
    files = [each for each in Path(folder).rglob(pattern) if each.is_file() and each.stat().st_size]
    assert files, f"nothing in {folder}"
    _print(f"wrote {len(files)} files")


def rank():
    """Return the rank of this process among those with replicas. The model of rank 0 is kept."""
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"index": 0})
    return int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("JAX_PROCESS_ID", task["index"])))


def model_dir():
    """Return the folder to save in: SM_MODEL_DIR on rank 0, else a folder whose content is discarded."""
    return Path(os.environ["SM_MODEL_DIR"] if rank() == 0 else tempfile.mkdtemp())


_print(f"version {version(os.environ['ZOO_LIBRARY'])}")
