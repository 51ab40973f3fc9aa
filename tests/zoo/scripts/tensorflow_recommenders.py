"""Train two towers by tensorflow-recommenders' Retrieval task with parameter servers; export its BruteForce index."""

import numpy as np
import tensorflow as tf
import tensorflow_recommenders as tfrs
from shown import loads, model_dir, trains


class Towers(tfrs.Model):
    def __init__(self):
        super().__init__()
        self.users, self.films = tf.keras.layers.Embedding(20, 8), tf.keras.layers.Embedding(10, 8)
        self.task = tfrs.tasks.Retrieval()

    def compute_loss(self, inputs, training=False):
        return self.task(self.users(inputs["user"]), self.films(inputs["film"]), compute_metrics=not training)


def rows(context):
    users = np.random.default_rng(context.input_pipeline_id).integers(0, 20, 640)
    data = tf.data.Dataset.from_tensor_slices({"user": users, "film": users % 10})
    return data.repeat().batch(16, drop_remainder=True)


strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
with strategy.scope():
    model = Towers()
    model.compile(tf.keras.optimizers.Adam(0.02))
creator = tf.keras.utils.experimental.DatasetCreator(rows)
trains(model, creator, epochs=4, steps_per_epoch=8)
index = tfrs.layers.factorized_top_k.BruteForce(k=3)
index.index(tf.constant(model.films.get_weights()[0]))
queries, folder = tf.constant(model.users.get_weights()[0][:5]), str(model_dir() / "1")
scores, _ = index(queries)
tf.saved_model.save(index, folder)
loads(scores, tf.saved_model.load(folder)(queries)[0])
