"""Search by KerasTuner: its chief on the first host hands out trials, and a tuner on each host runs them."""

import json
import os
import subprocess
import sys
import tempfile

import keras
import keras_tuner
import numpy as np
from shown import agree, falls, loads, model_dir

TRIED = []  # by this process: (losses, model)


class Network(keras_tuner.HyperModel):
    """Build a network of the size that the search proposes."""

    def build(self, hp):
        layers = [keras.layers.Dense(hp.Int("units", 8, 32, step=8), hp.Choice("activation", ["relu", "tanh"]))]
        model = keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(hp.Float("rate", 1e-3, 1e-1, sampling="log")), "mse")
        return model

    def fit(self, hp, model, *args, **options):
        history = model.fit(*args, **options)
        TRIED.append((history.history["loss"], model))
        return history


hosts, me = json.loads(os.environ["SM_HOSTS"]), os.environ["SM_CURRENT_HOST"]
os.environ |= {"KERASTUNER_ORACLE_IP": hosts[0], "KERASTUNER_ORACLE_PORT": "8000"}
is_chief = "KERASTUNER_TUNER_ID" in os.environ
if not is_chief:
    chief = {**os.environ, "KERASTUNER_TUNER_ID": "chief"}
    chief = subprocess.Popen([sys.executable, __file__], env=chief) if me == hosts[0] else None
    os.environ["KERASTUNER_TUNER_ID"] = f"tuner-{me}"
x = np.random.default_rng(0).normal(size=(320, 8)).astype("float32")
tuner = keras_tuner.RandomSearch(Network(), objective="loss", max_trials=8, directory=tempfile.mkdtemp())
tuner.search(x, x.sum(1), epochs=5, batch_size=16, verbose=0)
if not is_chief:
    losses, best = min(TRIED, key=lambda tried: tried[0][-1])
    falls(losses[0], losses[-1])
    agree(best.get_weights())
    path = str(model_dir() / "best.h5")
    best.save(path)
    loads(best(x[:4]), keras.models.load_model(path, compile=False)(x[:4]))
    assert chief is None or chief.wait() == 0
