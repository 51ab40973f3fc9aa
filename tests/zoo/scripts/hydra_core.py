"""Train by Horovod as Hydra configures it: the job's hyperparameters name a configuration, and override values."""

import sys
from pathlib import Path

import horovod.tensorflow.keras as hvd
import hydra
import numpy as np
import tensorflow as tf
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from shown import survives, trains, wrote


@hydra.main(version_base=None)
def main(config):
    assert config == {"units": 32, "optimizer": {"rate": 0.01}, "epochs": 5}, config
    wrote(Path(HydraConfig.get().runtime.output_dir), "config.yaml")
    hvd.init()
    x = np.random.default_rng(hvd.rank()).normal(size=(512, 8)).astype("float32")
    layers = [tf.keras.layers.Dense(config.units, "relu"), tf.keras.layers.Dense(1)]
    model = tf.keras.Sequential([tf.keras.Input((8,)), *layers])
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(config.optimizer.rate)), "mse")
    starts = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    trains(model, x, x.sum(1), epochs=config.epochs, callbacks=[starts])
    survives(model, x[:8])


at = sys.argv.index("--overrides")  # a hyperparameter, since SageMaker passes all as --name value
sys.argv[at : at + 2] = sys.argv[at + 1].split()
ConfigStore.instance().store(name="large", node={"units": 32, "optimizer": {"rate": 1e-5}, "epochs": 1})
main()
