"""Print what a script of the zoo has shown, in lines that tests/zoo/test_zoo.py reads. It lies beside the script."""

import hashlib
import json
import os
import socket
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

DIGITS = 4  # of weights that replicas must have in common


def _print(text):
    print(f"zoo: {text}", flush=True)


def falls(first, last):
    """Assert that the loss has become smaller."""
    first, last = float(first), float(last)
    _print(f"loss {first:.3f} -> {last:.3f}")
    assert last < first, f"the loss does not fall: {first} -> {last}"


def agree(weights):
    """Print a digest of a list of arrays: all processes that hold replicas must have the same."""
    arrays = [np.asarray(each, np.float64).round(DIGITS) + 0.0 for each in weights]  # + 0.0: no -0
    assert arrays and all(np.isfinite(each).all() for each in arrays)
    digest = hashlib.sha256(b"".join(each.tobytes() for each in arrays)).hexdigest()[:12]
    _print(f"weights {digest} on {socket.gethostname()}")


def trains(model, *data, **how):
    """Fit a Keras model; assert that its loss becomes smaller, and print a digest of its weights."""
    losses = model.fit(*data, verbose=0, **how).history["loss"]
    falls(losses[0], losses[-1])
    agree(model.get_weights())


def loads(before, after):
    """Assert that a model that was loaded again predicts the same."""
    np.testing.assert_allclose(np.asarray(after), np.asarray(before), rtol=1e-3, atol=1e-4)
    _print("loads")


def survives(model, x):
    """Save a Keras model, and assert that it predicts the same after it was loaded."""
    import tensorflow as tf  # not above: scripts for JAX do without it

    path = model_dir() / "model.keras"
    model.save(path)
    again = tf.keras.models.load_model(path, compile=False)
    loads(model.predict(x, verbose=0), again.predict(x, verbose=0))


def wrote(folder, pattern="*"):
    """Assert that a tracker, say, has written files into a folder."""
    files = [each for each in Path(folder).rglob(pattern) if each.is_file() and each.stat().st_size]
    assert files, f"nothing in {folder}"
    _print(f"wrote {len(files)} files")


def rank():
    """Return the number of this process among those that hold replicas; 0 is the one whose model is kept."""
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"index": 0})
    return int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("JAX_PROCESS_ID", task["index"])))


def model_dir():
    """Return where to save: SM_MODEL_DIR, or a folder of its own for a process whose model nobody keeps."""
    return Path(os.environ["SM_MODEL_DIR"] if rank() == 0 else tempfile.mkdtemp())


_print(f"version {version(os.environ['ZOO_LIBRARY'])}")
