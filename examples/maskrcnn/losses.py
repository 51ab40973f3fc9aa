"""Losses of what was drawn: empty places count for nothing."""

import tensorflow as tf


def smooth_l1(errors, beta):
    """Return sums [...] over the last axis of errors [..., 4]: half their squares up to `beta`, then straight on."""
    size = tf.abs(errors)
    return tf.reduce_sum(tf.where(size < beta, 0.5 * size**2 / beta, size - 0.5 * beta), axis=-1)


def mean(values, real):
    """Return the mean, a scalar, of those values [...] that are real [...]; 0 if none is."""
    return share(values, real, real)


def share(values, real, of):
    """Return the sum of the real values over the number of `of`: few boxes among many places weigh little."""
    total = tf.reduce_sum(tf.where(real, values, 0.0))
    return total / tf.maximum(tf.reduce_sum(tf.cast(of, tf.float32)), 1.0)
