"""Search with Ray Tune inside each host: two trials train side by side, and the best one's model is kept."""

import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from ray import init, tune
from shown import agree, falls, loads, model_dir


def data():
    x = np.random.default_rng(0).normal(size=(512, 8)).astype("float32")
    return x, x @ np.arange(8, dtype="float32")[:, None]


def train(config):
    model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.Adam(config["rate"]), "mse")
    found = model.fit(*data(), epochs=5, verbose=0).history["loss"]
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, "model.keras"))
        predicted = model.predict(data()[0][:8], verbose=0).tolist()
        told = {"first": found[0], "loss": found[-1], "predicted": predicted}
        tune.report(told, checkpoint=tune.Checkpoint.from_directory(folder))


init(num_cpus=2, include_dashboard=False)
run = tune.RunConfig(storage_path=tempfile.mkdtemp(), verbose=0)
tuner = tune.Tuner(train, param_space={"rate": tune.grid_search([1e-4, 0.01])}, run_config=run)
best = tuner.fit().get_best_result("loss", "min")
assert best.config["rate"] == 0.01
falls(best.metrics["first"], best.metrics["loss"])
best.checkpoint.to_directory(model_dir())
model = tf.keras.models.load_model(model_dir() / "model.keras")
agree(model.get_weights())
loads(best.metrics["predicted"], model.predict(data()[0][:8], verbose=0))
