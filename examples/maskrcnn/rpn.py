"""Propose where objects might be, by a region proposal network (Ren et al., "Faster R-CNN", 2015)."""

import tensorflow as tf

import boxes as bx
import sampling
from backbone import STRIDES

L = tf.keras.layers

RATIOS = (0.5, 1.0, 2.0)  # heights over widths of the anchors of a cell
SCALE = (1.0, 1.0, 1.0, 1.0)
FOREGROUND, BACKGROUND = 0.7, 0.3  # IoU with an object from which an anchor stands for it; below which for none


def build_head(args):
    """Return a Keras model from a level [B, h, w, channels] to logits [B, h, w, 3] and offsets [B, h, w, 12].

    It is the same for all levels.
    """
    level, normal = tf.keras.Input([None, None, args.channels]), tf.keras.initializers.RandomNormal
    shared = L.Conv2D(args.channels, 3, padding="same", activation="relu", kernel_initializer="he_normal")(level)
    logits = L.Conv2D(len(RATIOS), 1, kernel_initializer=normal(stddev=0.01), dtype="float32")(shared)
    offsets = L.Conv2D(4 * len(RATIOS), 1, kernel_initializer=normal(stddev=0.01), dtype="float32")(shared)
    return tf.keras.Model(level, [logits, offsets], name="rpn")


def predict(head, levels, args):
    """Return what the head says of all levels: anchors, logits and offsets, one of each for each level.

    Shapes are [N, 4], [B, N], [B, N, 4], in pixels where they are boxes.
    """
    anchors, logits, offsets = [], [], []
    for level, stride in zip(levels, STRIDES, strict=True):
        height, width = tf.shape(level)[1], tf.shape(level)[2]
        anchors.append(bx.anchors(height, width, stride, stride * args.anchor_scale, RATIOS))
        said, moved = head(level)
        logits.append(tf.reshape(said, [tf.shape(said)[0], -1]))
        offsets.append(tf.reshape(moved, [tf.shape(moved)[0], -1, 4]))
    return anchors, logits, offsets


def propose(anchors, logits, offsets, sizes, args):
    """Return proposals [B, args.proposals, 4] in images of `sizes` [B, 2]; boxes without area where there are fewer.

    Of each level the best few hundred, then of all levels those that no better one overlaps.
    """
    found, scores = [], []
    for references, said, moved in zip(anchors, logits, offsets, strict=True):
        count = tf.minimum(args.proposals_per_level, tf.shape(said)[1])
        best, indices = tf.math.top_k(said, count)
        decoded = bx.decode(tf.gather(moved, indices, batch_dims=1), tf.gather(references, indices), SCALE)
        found.append(bx.clip(decoded, sizes))
        scores.append(tf.sigmoid(best))
    found, scores = tf.concat(found, axis=1), tf.concat(scores, axis=1)
    scores = tf.where(bx.area(found) > 1.0, scores, 0.0)  # what was clipped away is no place for an object
    proposals, *_ = tf.image.combined_non_max_suppression(
        found[:, :, None, :],
        scores[:, :, None],
        max_output_size_per_class=args.proposals,
        max_total_size=args.proposals,
        iou_threshold=0.7,
        score_threshold=1e-8,
        clip_boxes=False,
    )
    return tf.stop_gradient(proposals)


def loss(anchors, logits, offsets, batch, args):
    """Return (label loss, box loss), scalars: which anchors hold objects, and by how much those are off."""
    anchors, logits, offsets = tf.concat(anchors, 0), tf.concat(logits, 1), tf.concat(offsets, 1)
    objects, classes = batch["boxes"], batch["classes"]
    best, overlap, in_crowd = sampling.match(anchors, objects, classes)
    positive = (overlap >= FOREGROUND) | sampling.is_best_of_any(anchors, objects, classes)
    negative = (overlap < BACKGROUND) & ~positive & ~in_crowd
    half = args.anchors_per_image // 2
    chosen, chosen_real = sampling.draw(positive, half)
    others, others_real = sampling.draw(negative, half)

    real = tf.concat([chosen_real, others_real], axis=1)
    said = tf.gather(logits, tf.concat([chosen, others], axis=1), batch_dims=1)
    wanted = tf.concat([tf.ones_like(chosen, tf.float32), tf.zeros_like(others, tf.float32)], axis=1)
    label_loss = sampling.mean(tf.nn.sigmoid_cross_entropy_with_logits(wanted, said), real)

    targets = tf.gather(objects, tf.gather(best, chosen, batch_dims=1), batch_dims=1)
    targets = bx.encode(targets, tf.gather(anchors, chosen), SCALE)
    errors = sampling.smooth_l1(tf.gather(offsets, chosen, batch_dims=1) - targets, beta=1 / 9)
    return label_loss, sampling.share(errors, chosen_real, real)
