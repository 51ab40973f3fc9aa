"""Train with parameter servers as gin configures it, by bindings in the job's hyperparameters."""

import argparse

import gin
import numpy as np
import tensorflow as tf
from shown import survives, trains


def rows(context):
    x = np.random.default_rng(context.input_pipeline_id).normal(size=(512, 8)).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, x.sum(1))).repeat().batch(32)


@gin.configurable
def network(units, activation="linear"):
    return tf.keras.Sequential([tf.keras.layers.Dense(units, activation, input_shape=(8,)), tf.keras.layers.Dense(1)])


@gin.configurable
def train(strategy, optimizer, epochs=gin.REQUIRED):
    with strategy.scope():
        model = network()
        model.compile(optimizer(), "mse", steps_per_execution=10)
    data = tf.keras.utils.experimental.DatasetCreator(rows)
    trains(model, data, epochs=epochs, steps_per_epoch=50)
    return model


gin.external_configurable(tf.keras.optimizers.Adam, module="tf.keras.optimizers")
parser = argparse.ArgumentParser()
parser.add_argument("--gin_bindings", type=lambda text: text.split(";"))
gin.parse_config(parser.parse_args().gin_bindings)
model = train(tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver()))
survives(model, np.random.default_rng(0).normal(size=(8, 8)).astype("float32"))
