"""Scale and number features by tensorflow-transform on Beam, and train on what comes out on all hosts."""

import tempfile

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from shown import survives, trains
from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

FEATURES = {"size": tf.io.FixedLenFeature([], tf.float32), "colour": tf.io.FixedLenFeature([], tf.string)}


def preprocess(inputs):
    number = tft.compute_and_apply_vocabulary(inputs["colour"])
    return {"size": tft.scale_to_z_score(inputs["size"]), "colour": number}


strategy = tf.distribute.MultiWorkerMirroredStrategy()
draws = np.random.default_rng(0)
sizes, colours = draws.normal(50, 10, 320).astype("float32"), draws.choice(["red", "green"], 320)
labels = ((sizes > 50) == (colours == "red")).astype("float32")
rows = [{"size": size, "colour": colour} for size, colour in zip(sizes, colours.tolist(), strict=True)]
metadata = dataset_metadata.DatasetMetadata(schema_utils.schema_from_feature_spec(FEATURES))
with tft_beam.Context(temp_dir=tempfile.mkdtemp()):
    _, transform = (rows, metadata) | tft_beam.AnalyzeAndTransformDataset(preprocess)
    transform | tft_beam.WriteTransformFn(folder := tempfile.mkdtemp())
layer = tft.TFTransformOutput(folder).transform_features_layer()
found = layer({"size": tf.constant(sizes), "colour": tf.constant(colours)})
x = tf.stack([found["size"], tf.cast(found["colour"], tf.float32)], 1)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(16, "relu"), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.Adam(0.03), "mse")
data = tf.data.Dataset.from_tensor_slices((x, labels)).repeat().batch(16)
trains(model, data, epochs=4, steps_per_epoch=8)
survives(model, x[:4], "model.h5", compile=True)
