"""Sample the features of a region as a small square, by RoIAlign (He et al., "Mask R-CNN", 2017), without rounding."""

import tensorflow as tf

from backbone import STRIDES

SAMPLES = 2  # in each direction of a bin


def sample(images, boxes, indices, count):
    """Return values [N, count, count, C] at the centers of count x count parts of boxes [N, 4], between cells.

    `images` are [B, h, w, C], `boxes` in cells of these, `indices` [N] say of which image; outside is 0. The center of
    the first cell is at (0.5, 0.5).
    """
    limits = tf.cast(tf.shape(images)[1:3], tf.float32) - 1
    corner, opposite = boxes[:, :2], boxes[:, 2:]
    half = (opposite - corner) / count / 2
    # TensorFlow's operation wants the first and the last point, as parts of the way between the outermost centers.
    ends = tf.concat([(corner + half - 0.5) / limits, (opposite - half - 0.5) / limits], axis=1)
    return tf.image.crop_and_resize(images, tf.stop_gradient(ends), indices, [count, count])


def align(features, boxes, indices, size):
    """Return means [N, size, size, C] of size x size bins of boxes [N, 4], in cells of features [B, h, w, C].

    Up to half a cell beyond the outermost centers, where image and box end, is what these cells hold.
    """
    padded = tf.pad(features, [[0, 0], [1, 1], [1, 1], [0, 0]], "SYMMETRIC")
    values = sample(padded, boxes + 1, indices, size * SAMPLES)
    return tf.nn.avg_pool2d(values, SAMPLES, SAMPLES, "VALID")


def level_of(boxes, anchor_scale):
    """Return the level [N], 0 for P2 to 3 for P5, that boxes [N, 4] in pixels are taken from, by their size.

    With the usual anchors of 8 cells a box of 224 pixels, ImageNet's size, is taken from P4.
    """
    sides = tf.sqrt(tf.maximum((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]), 1.0))
    level = tf.math.log(sides / (28.0 * anchor_scale) + 1e-6) / tf.math.log(2.0)
    return tf.clip_by_value(tf.cast(tf.floor(level), tf.int32) + 2, 0, 3)


def align_levels(levels, boxes, size, anchor_scale):
    """Return features [B, N, size, size, C] of boxes [B, N, 4] in pixels, each from the level that suits its size."""
    batch, count = tf.shape(boxes)[0], tf.shape(boxes)[1]
    flat = tf.reshape(boxes, [-1, 4])
    images = tf.repeat(tf.range(batch), count)
    which = level_of(flat, anchor_scale)
    parts, places = [], []
    for number, (level, stride) in enumerate(zip(levels[:4], STRIDES[:4], strict=True)):
        mine = tf.where(which == number)[:, 0]
        single = tf.cast(level, tf.float32)
        parts.append(align(single, tf.gather(flat, mine) / stride, tf.gather(images, mine), size))
        places.append(mine)
    order = tf.argsort(tf.concat(places, axis=0))
    channels = levels[0].shape[-1]
    return tf.reshape(tf.gather(tf.concat(parts, axis=0), order), [batch, count, size, size, channels])
