"""Train by Horovod as Hydra configures it: the job's hyperparameters name a configuration, and override values."""

import sys
from pathlib import Path

import hydra
import numpy as np
import tensorflow as tf
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from shown import for_horovod, rank, survives, trains, wrote


@hydra.main(version_base=None)
def main(config):
    assert config == {"units": 32, "optimizer": {"rate": 0.01}, "epochs": 5}, config
    wrote(Path(HydraConfig.get().runtime.output_dir), "config.yaml")
    x = np.random.default_rng(rank()).normal(size=(512, 8)).astype("float32")
    layers = [tf.keras.Input((8,)), tf.keras.layers.Dense(config.units, "relu"), tf.keras.layers.Dense(1)]
    model, callbacks = for_horovod(*layers, rate=config.optimizer.rate)
    trains(model, x, x.sum(1), epochs=config.epochs, callbacks=callbacks)
    survives(model, x[:8])


at = sys.argv.index("--overrides")  # a hyperparameter, since SageMaker passes all as --name value
sys.argv[at : at + 2] = sys.argv[at + 1].split()
ConfigStore.instance().store(name="large", node={"units": 32, "optimizer": {"rate": 1e-5}, "epochs": 1})
main()
