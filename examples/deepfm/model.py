"""DeepFM: a factorization machine and a small neural network that share one table of embeddings.

    logit = bias + sum_i w[id_i] x_i              first order: what each feature says by itself
                 + sum_{i<j} <v[id_i], v[id_j]> x_i x_j    second order: what every pair says
                 + mlp(v[id_1] x_1, ..., v[id_n] x_n)      deep: whatever else there is

Guo et al., "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction", 2017.
"""

import math

import tensorflow as tf

from data import FEATURES, FIELDS


class Damp(tf.keras.layers.Layer):
    """Counts have long tails (0.001 to 145 in one field): take their logarithm.

    The factors are chosen so that 0 stays 0 and 1, the value of every category, stays 1. It is a part
    of the model and not of the input, so that whoever calls the saved model sends plain values.
    """

    def call(self, values):
        return tf.sign(values) * tf.math.log1p(100.0 * tf.abs(values)) / math.log(101.0)


class PairwiseProducts(tf.keras.layers.Layer):
    """Sum over all pairs of fields of their inner product, in time linear in the number of fields."""

    def call(self, vectors):  # [rows, fields, dim]
        square_of_sum = tf.square(tf.reduce_sum(vectors, axis=1))
        sum_of_squares = tf.reduce_sum(tf.square(vectors), axis=1)
        return 0.5 * tf.reduce_sum(square_of_sum - sum_of_squares, axis=1, keepdims=True)


class PenalizeRows(tf.keras.layers.Layer):
    """L2 penalty on the embeddings that this batch has looked up, and on no others.

    An `embeddings_regularizer` would take the whole table into every gradient: the update would be
    dense, and a parameter server would send 117,600 rows instead of the few that a batch touches.
    """

    def __init__(self, l2, **kwargs):
        super().__init__(**kwargs)
        self.l2 = l2

    def call(self, vectors):
        rows = tf.cast(tf.shape(vectors)[0], vectors.dtype)
        self.add_loss(self.l2 * tf.reduce_sum(tf.square(vectors)) / rows)
        return vectors


def deepfm(features=FEATURES, fields=FIELDS, dim=8, hidden=(64, 32), dropout=0.5, l2=1e-3):
    """The model, not compiled: {"ids", "values"} in, the probability of a click out."""
    ids = tf.keras.Input([fields], dtype=tf.int64, name="ids")
    values = tf.keras.Input([fields], dtype=tf.float32, name="values")
    x = Damp(name="damp")(values)[:, :, tf.newaxis]

    # The weights start at zero and the vectors near it: an id that training never saw adds nothing.
    weights = tf.keras.layers.Embedding(features, 1, embeddings_initializer="zeros", name="weights")(ids)
    weights = PenalizeRows(l2, name="penalize_weights")(weights)
    vectors = tf.keras.layers.Embedding(
        features, dim, embeddings_initializer=tf.keras.initializers.RandomNormal(stddev=0.01), name="vectors"
    )(ids)
    vectors = PenalizeRows(l2, name="penalize_vectors")(vectors) * x

    first_order = tf.reduce_sum(weights * x, axis=1)
    second_order = PairwiseProducts(name="pairs")(vectors)
    deep = tf.keras.layers.Reshape([fields * dim])(vectors)
    for index, units in enumerate(hidden):
        deep = tf.keras.layers.Dense(units, activation="relu", name=f"deep_{index}")(deep)
        deep = tf.keras.layers.Dropout(dropout)(deep)
    deep = tf.keras.layers.Dense(1, name="deep_logit")(deep)  # its bias is the bias of the whole

    click = tf.keras.layers.Activation("sigmoid", name="click")(first_order + second_order + deep)
    return tf.keras.Model({"ids": ids, "values": values}, click, name="deepfm")
