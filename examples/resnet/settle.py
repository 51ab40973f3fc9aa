"""Take the averages of batch normalizations anew: "precise BN" (Wu, Johnson, "Rethinking 'Batch' in BatchNorm", 2021).

In training they follow weights that move. After few steps they still hold some of where they began, which is enough to
spoil every evaluation of a network of fifty layers that has learned well.
"""

import tensorflow as tf


def make_settle(model):
    """Return a function that sets the averages to the means and variances of given batches."""
    norms = [layer for layer in model.submodules if isinstance(layer, tf.keras.layers.BatchNormalization)]
    averages = [average for layer in norms for average in (layer.moving_mean, layer.moving_variance)]
    steps = [1 - layer.momentum for layer in norms for _ in range(2)]

    @tf.function
    def of_one(pixels):
        for average in averages:
            average.assign(tf.zeros_like(average))
        model(pixels, training=True)  # each goes a step of its way, from zero to what this batch has
        return [average / step for average, step in zip(averages, steps, strict=True)]

    def settle(batches):
        for average, *found in zip(averages, *map(of_one, batches), strict=True):
            average.assign(tf.add_n(found) / len(found))

    return settle
