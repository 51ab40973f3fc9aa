"""Train DeepFM of DeepCTR with parameter servers, and load what was saved."""

import numpy as np
import tensorflow as tf
from deepctr.feature_column import DenseFeat, SparseFeat
from deepctr.layers import custom_objects
from deepctr.models import DeepFM
from shown import loads, model_dir, trains


def rows(seed):
    """Return columns and clicks, which depend on whether user and item fit."""
    draws = np.random.default_rng(seed)
    x = {"user": draws.integers(0, 20, 640), "item": draws.integers(0, 10, 640), "price": draws.normal(size=640)}
    return x, ((x["user"] % 2) == (x["item"] % 2)).astype("float32")


def batches(context):
    """Return an endless dataset of a worker."""
    return tf.data.Dataset.from_tensor_slices(rows(context.input_pipeline_id)).repeat().batch(32)


resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type == "worker":
    tf.distribute.Server(resolver.cluster_spec(), "worker", resolver.task_id, protocol="grpc").join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
columns = [SparseFeat("user", 20, embedding_dim=4), SparseFeat("item", 10, embedding_dim=4), DenseFeat("price", 1)]
with strategy.scope():
    model = DeepFM(columns, columns, dnn_hidden_units=(16,), task="binary")
    model.compile(tf.keras.optimizers.Adam(0.02), "binary_crossentropy")
creator = tf.keras.utils.experimental.DatasetCreator(batches)
trains(model, creator, epochs=4, steps_per_epoch=8)
alone = DeepFM(columns, columns, dnn_hidden_units=(16,), task="binary")
alone.set_weights(model.get_weights())
path, x = str(model_dir() / "deepfm.h5"), {name: values[:8] for name, values in rows(0)[0].items()}
alone.save(path)
loads(alone.predict(x, verbose=0), tf.keras.models.load_model(path, custom_objects).predict(x, verbose=0))
