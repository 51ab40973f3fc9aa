"""Define DeepFM: a factorization machine and a small neural network that share one table of embeddings.

    logit = bias + sum_i w[id_i] x_i              first order: what each feature says by itself
                 + sum_{i<j} <v[id_i], v[id_j]> x_i x_j    second order: what every pair says
                 + mlp(v[id_1] x_1, ..., v[id_n] x_n)      deep: whatever else there is

Guo et al., "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction", 2017.

All weights are in two variables: a row of the table is (w, v) of one feature, and the network's are one long vector.
With parameter servers each variable costs messages in every step, which for small ones are dearer than what they bring.
"""

import functools
import itertools
import math

import tensorflow as tf

from settings import Sizes


class Damp(tf.keras.layers.Layer):
    """Take the logarithm of counts, which have long tails (0.001 to 145 in one field).

    The factors are chosen so that 0 stays 0 and 1, the value of every category, stays 1. It is a part
    of the model and not of the input, so that whoever calls the saved model sends plain values.
    """

    def call(self, values):
        return tf.sign(values) * tf.math.log1p(100.0 * tf.abs(values)) / math.log(101.0)


class Sum(tf.keras.layers.Layer):
    """Sum over all fields."""

    def call(self, weights):  # [rows, fields]
        return tf.reduce_sum(weights, axis=1, keepdims=True)


class PairwiseProducts(tf.keras.layers.Layer):
    """Sum over all pairs of fields of their inner product, in time linear in the number of fields."""

    def call(self, vectors):  # [rows, fields, dim]
        square_of_sum = tf.square(tf.reduce_sum(vectors, axis=1))
        sum_of_squares = tf.reduce_sum(tf.square(vectors), axis=1)
        return 0.5 * tf.reduce_sum(square_of_sum - sum_of_squares, axis=1, keepdims=True)


class PenalizeRows(tf.keras.layers.Layer):
    """Add an L2 penalty on the embeddings that this batch has looked up, and on no others.

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


class Network(tf.keras.layers.Layer):
    """Dense layers down to one output, with ReLU and dropout in between; kernels and biases lie in one variable.

    Batch normalization, if any, comes between the two, and has four variables of its own in each layer.
    """

    def __init__(self, widths, dropout, batch_norm=False, decay=0.9, **kwargs):
        super().__init__(**kwargs)
        self.widths = widths
        self.dropouts = [tf.keras.layers.Dropout(share) for share in dropout]
        self.norms = [tf.keras.layers.BatchNormalization(momentum=decay) for _ in widths] if batch_norm else []

    def build(self, shape):
        self.pairs = list(itertools.pairwise([shape[-1], *self.widths, 1]))  # what goes into a layer, what comes out
        size = sum(inputs * outputs + outputs for inputs, outputs in self.pairs)
        self.packed = self.add_weight(name="packed", shape=[size], initializer=self.first)
        for norm, width in zip(self.norms, self.widths, strict=False):
            norm.build([None, width])

    def first(self, shape, dtype=None):
        """Return initial weights as of `tf.keras.layers.Dense`, by a separate draw each, as one draw repeats itself."""
        kernels = [tf.reshape(tf.keras.initializers.GlorotUniform()(pair, dtype), [-1]) for pair in self.pairs]
        biases = [tf.zeros(sum(outputs for _, outputs in self.pairs), dtype)]
        return tf.concat(kernels + biases, axis=0)

    def call(self, x, training=False):
        sizes = [inputs * outputs for inputs, outputs in self.pairs] + [outputs for _, outputs in self.pairs]
        parts = tf.split(self.packed, sizes)
        kernels, biases = parts[: len(self.pairs)], parts[len(self.pairs) :]
        for number, (pair, kernel, bias) in enumerate(zip(self.pairs, kernels, biases, strict=True)):
            if number:
                x = tf.nn.relu(x)
                if self.norms:
                    x = self.norms[number - 1](x, training=training)
                x = self.dropouts[number - 1](x, training=training)
            x = x @ tf.reshape(kernel, pair) + bias
        return x


def deepfm(sizes=Sizes(), dropout=(0.5,), batch_norm_decay=0.9, l2_reg=1e-3):  # noqa: B008  (it is frozen)
    """Make the model, not compiled: {"ids", "values"}, [rows, fields] each, in; probabilities, [rows, 1], out.

    `dropout` is the share that is dropped behind each deep layer, one for all of them or one for each.
    """
    fields, dim = sizes.field_size, sizes.embedding_size
    ids = tf.keras.Input([fields], dtype=tf.int64, name="ids")
    values = tf.keras.Input([fields], dtype=tf.float32, name="values")
    x = Damp(name="damp")(values)[:, :, None]

    # All start near zero: an id that training never saw adds next to nothing.
    near_zero = tf.keras.initializers.RandomNormal(stddev=0.01)
    rows = tf.keras.layers.Embedding(sizes.feature_size, 1 + dim, embeddings_initializer=near_zero, name="features")(
        ids
    )
    rows = PenalizeRows(l2_reg, name="penalize")(rows) * x
    weights, vectors = rows[:, :, 0], rows[:, :, 1:]

    first_order = Sum(name="weights")(weights)
    second_order = PairwiseProducts(name="pairs")(vectors)
    deep = tf.keras.layers.Reshape([fields * dim])(vectors)
    dropout = tuple(dropout) if len(dropout) > 1 else tuple(dropout) * len(sizes.deep_layers)
    network = Network(sizes.deep_layers, dropout, sizes.batch_norm, batch_norm_decay, name="deep")
    deep = network(deep)  # its last bias is the bias of the whole

    click = tf.keras.layers.Activation("sigmoid", name="click")(first_order + second_order + deep)
    return tf.keras.Model({"ids": ids, "values": values}, click, name="deepfm")


OPTIMIZERS = {
    "adagrad": tf.keras.optimizers.Adagrad,
    "adam": tf.keras.optimizers.Adam,
    "momentum": functools.partial(tf.keras.optimizers.SGD, momentum=0.9),
    "sgd": tf.keras.optimizers.SGD,
    "ftrl": tf.keras.optimizers.Ftrl,
}


def compiled(args, times=1.0, wrap=lambda optimizer: optimizer):
    """Make the model of the hyperparameters and its optimizer, at `times` the learning rate."""
    model = deepfm(args.sizes, args.dropout, args.batch_norm_decay, args.l2_reg)
    model.compile(wrap(OPTIMIZERS[args.optimizer](args.learning_rate * times)), "binary_crossentropy")
    # Where it sees a GPU, Keras 2's optimizer has XLA compile its update of each variable. XLA takes no variable of
    # another device, as the learning rate is to all parameter servers but one, and it would compile anew for each
    # number of different ids in a batch. Keras 3's optimizers know no such thing.
    if hasattr(model.optimizer, "jit_compile"):
        model.optimizer.jit_compile = False
    model.optimizer.build(model.trainable_variables)  # its variables are there from the start, to be restored
    return model


def predictor(model):
    """Return the function from {"ids", "values"} to the probabilities, [rows]."""
    return lambda features: model(features, training=False)[:, 0]
