"""Match boxes with objects, draw some of them by chance, as many as always, and average the losses of what was drawn.

Each image has the same number of objects in a batch; `classes` says which of them are real: 1 ... for an object, -1 for
a crowd (COCO's `iscrowd`), which is neither found nor missed, 0 for padding.
"""

import tensorflow as tf

import boxes as bx

CROWD = -1


def match(candidates, objects, classes):
    """Return (best [B, N], which object; overlap [B, N], its IoU; in_crowd [B, N], whether it lies in a crowd).

    For candidates [B, N, 4] or [N, 4], objects [B, M, 4], classes [B, M]. A candidate lies in a crowd if 70 % of it do.
    """
    overlaps = tf.where((classes > 0)[:, None, :], bx.iou(candidates, objects), 0.0)
    in_crowds = tf.where((classes == CROWD)[:, None, :], bx.covered(candidates, objects), 0.0)
    return tf.argmax(overlaps, axis=-1), tf.reduce_max(overlaps, axis=-1), tf.reduce_max(in_crowds, axis=-1) > 0.7


def is_best_of_any(candidates, objects, classes):
    """Return [B, N]: whether no other candidate overlaps some object more. So every object has an anchor at least."""
    overlaps = tf.where((classes > 0)[:, None, :], bx.iou(candidates, objects), 0.0)
    best = tf.reduce_max(overlaps, axis=1, keepdims=True)
    return tf.reduce_any((overlaps >= best - 1e-6) & (best > 1e-3), axis=-1)


def draw(eligible, count):
    """Return (indices [B, count], real [B, count]) of eligible candidates [B, N], drawn by chance.

    Where fewer are eligible than wanted, the last places stay empty, and `real` says so: shapes are always the same.
    """
    chance = tf.where(eligible, tf.random.uniform(tf.shape(eligible)), -1.0)
    short = tf.maximum(count - tf.shape(eligible)[1], 0)
    chance = tf.pad(chance, [[0, 0], [0, short]], constant_values=-1.0)
    values, indices = tf.math.top_k(chance, count, sorted=True)
    return tf.where(values >= 0, indices, 0), values >= 0


# ---- losses of what was drawn: empty places count for nothing --------------------------------------------------------


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
