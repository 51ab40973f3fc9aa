"""Compute with boxes and anchors: rows of (y1, x1, y2, x2) in pixels, the order of TensorFlow's own operations.

Pixel (0, 0) covers the square from (0, 0) to (1, 1), so the box of a whole image is (0, 0, height, width).
"""

import math

import tensorflow as tf

# The longest jump that a regression may make: from a box of 16 pixels to one of 1000. Keeps exp() finite.
LONGEST_JUMP = math.log(1000 / 16)


def area(boxes):
    """Return the areas [...] of boxes [..., 4], in square pixels; zero where a box is turned inside out."""
    y1, x1, y2, x2 = tf.unstack(boxes, axis=-1)
    return tf.maximum(y2 - y1, 0) * tf.maximum(x2 - x1, 0)


def intersection(boxes, others):
    """Return the common areas [..., N, M] of boxes [..., N, 4] and others [..., M, 4], in square pixels."""
    boxes, others = boxes[..., :, None, :], others[..., None, :, :]
    corner = tf.maximum(boxes[..., :2], others[..., :2])
    opposite = tf.minimum(boxes[..., 2:], others[..., 2:])
    sides = tf.maximum(opposite - corner, 0)
    return sides[..., 0] * sides[..., 1]


def iou(boxes, others):
    """Return intersection over union [..., N, M], from 0 to 1; 0 for a box without area."""
    common = intersection(boxes, others)
    union = area(boxes)[..., :, None] + area(others)[..., None, :] - common
    return tf.math.divide_no_nan(common, union)


def covered(boxes, others):
    """Return which part [..., N, M] of each box, from 0 to 1, lies in each of the others. Crowds are judged by it."""
    return tf.math.divide_no_nan(intersection(boxes, others), area(boxes)[..., :, None])


def encode(boxes, references, scale):
    """Return the offsets [..., 4] from reference boxes to boxes, both [..., 4], that a head learns.

    (dy, dx) are in sides of the reference, (dh, dw) are logarithms of ratios; each divided by `scale`, four numbers,
    which bring them near to a variance of one.
    """
    center, sides = _center_and_sides(references)
    wanted_center, wanted_sides = _center_and_sides(boxes)
    offsets = tf.concat([(wanted_center - center) / sides, tf.math.log(wanted_sides / sides)], axis=-1)
    return offsets / scale


def decode(offsets, references, scale):
    """Return the boxes [..., 4] that lie at these offsets from the references: the inverse of `encode`."""
    offsets = offsets * scale
    center, sides = _center_and_sides(references)
    new_center = center + offsets[..., :2] * sides
    half = sides * tf.exp(tf.minimum(offsets[..., 2:], LONGEST_JUMP)) / 2
    return tf.concat([new_center - half, new_center + half], axis=-1)


def clip(boxes, sizes):
    """Cut boxes [B, N, 4] to their images of `sizes` [B, 2], (height, width) in pixels."""
    limits = tf.concat([sizes, sizes], axis=-1)[:, None, :]
    return tf.clip_by_value(boxes, 0.0, limits)


def anchors(height, width, stride, side, ratios):
    """Return anchors [height * width * R, 4] of a level of features with height x width cells of `stride` pixels.

    At the center of each cell are R boxes of side**2 square pixels; `ratios` are their heights over their widths.
    """
    ys = (tf.range(height, dtype=tf.float32) + 0.5) * stride
    xs = (tf.range(width, dtype=tf.float32) + 0.5) * stride
    centers = tf.stack(tf.meshgrid(ys, xs, indexing="ij"), axis=-1)[:, :, None, :]  # [height, width, 1, 2]
    half = tf.constant([[side * ratio**0.5 / 2, side / ratio**0.5 / 2] for ratio in ratios], tf.float32)
    return tf.reshape(tf.concat([centers - half, centers + half], axis=-1), [-1, 4])


def _center_and_sides(boxes):
    corner, opposite = boxes[..., :2], boxes[..., 2:]
    sides = tf.maximum(opposite - corner, 1e-3)  # padding has none, and its logarithm would be infinite
    return corner + sides / 2, sides
