"""Find the class, the box and the mask of a proposal (He et al., "Mask R-CNN", 2017). Class 0 is the background."""

import tensorflow as tf

import boxes as bx
import roi_align
import sampling

L = tf.keras.layers

SCALE = (0.1, 0.1, 0.2, 0.2)
BOX_SIZE, MASK_SIZE = 7, 14  # bins of a side that the heads see; masks come out twice as large
FOREGROUND = 0.5  # IoU with an object from which a proposal stands for it


def build_box_head(args, classes):
    """Return a Keras model from [N, 7, 7, channels] to logits [N, classes + 1], offsets [N, classes, 4]."""
    region = tf.keras.Input([BOX_SIZE, BOX_SIZE, args.channels])
    x = L.Flatten()(region)
    for _ in range(2):
        x = L.Dense(args.head_width, activation="relu", kernel_initializer="he_normal")(x)
    normal = tf.keras.initializers.RandomNormal
    logits = L.Dense(classes + 1, kernel_initializer=normal(stddev=0.01), dtype="float32")
    offsets = L.Dense(4 * classes, kernel_initializer=normal(stddev=0.001), dtype="float32")
    return tf.keras.Model(region, [logits(x), L.Reshape([classes, 4])(offsets(x))], name="box_head")


def build_mask_head(args, classes):
    """Return a Keras model from [N, 14, 14, channels] to logits [N, 28, 28, classes]."""
    region = tf.keras.Input([MASK_SIZE, MASK_SIZE, args.channels])
    x = region
    for _ in range(args.mask_convolutions):
        x = L.Conv2D(args.channels, 3, padding="same", activation="relu", kernel_initializer="he_normal")(x)
    x = L.Conv2DTranspose(args.channels, 2, 2, activation="relu", kernel_initializer="he_normal")(x)
    return tf.keras.Model(region, L.Conv2D(classes, 1, dtype="float32")(x), name="mask_head")


def apply(head, regions):
    """Return the output of a head for regions [B, N, size, size, channels], each of its outputs as [B, N, ...]."""
    batch, count = tf.shape(regions)[0], tf.shape(regions)[1]
    said = head(tf.reshape(regions, [-1, *regions.shape[2:]]))
    return tf.nest.map_structure(lambda each: tf.reshape(each, [batch, count, *each.shape[1:]]), said)


def targets(proposals, batch, args):
    """Draw what the heads learn from; returns a dict of [B, R, ...], of which the first F are to be foreground.

    `boxes`; `classes`, what is in them; `objects`, where exactly; `which`, its number; `real`, or an empty place. R is
    args.regions_per_image, F a quarter of it.
    """
    # The objects themselves are proposals, too: at first the network has none that hit.
    real_objects = tf.where((batch["classes"] > 0)[:, :, None], batch["boxes"], 0.0)
    candidates = tf.concat([proposals, real_objects], axis=1)
    best, overlap, in_crowd = sampling.match(candidates, batch["boxes"], batch["classes"])
    positive = overlap >= FOREGROUND
    negative = ~positive & ~in_crowd & (bx.area(candidates) > 0)
    foreground = args.regions_per_image // 4
    chosen, chosen_real = sampling.draw(positive, foreground)
    others, others_real = sampling.draw(negative, args.regions_per_image - foreground)

    indices = tf.concat([chosen, others], axis=1)
    which = tf.gather(best, indices, batch_dims=1)
    classes = tf.gather(batch["classes"], which, batch_dims=1)
    is_foreground = tf.concat([chosen_real, tf.zeros_like(others_real)], axis=1)
    return {
        "boxes": tf.gather(candidates, indices, batch_dims=1),
        "classes": tf.where(is_foreground, classes, 0),
        "objects": tf.gather(batch["boxes"], which, batch_dims=1),
        "which": which,
        "real": tf.concat([chosen_real, others_real], axis=1),
    }


def box_loss(logits, offsets, wanted):
    """Return (label loss, box loss), scalars, of logits [B, R, classes + 1] and offsets [B, R, classes, 4]."""
    classes = wanted["classes"]
    label_loss = sampling.mean(tf.nn.sparse_softmax_cross_entropy_with_logits(classes, logits), wanted["real"])
    mine = tf.gather(offsets, tf.maximum(classes - 1, 0), batch_dims=2)
    errors = sampling.smooth_l1(mine - bx.encode(wanted["objects"], wanted["boxes"], SCALE), beta=1.0)
    return label_loss, sampling.share(errors, wanted["real"] & (classes > 0), wanted["real"])


def mask_targets(regions, objects, masks):
    """Return masks [N, 28, 28], 0 or 1, of regions [N, 4]: what is there of objects [N, 4].

    `masks` [N, S, S] are those of the objects, each within its box.
    """
    size = tf.cast(tf.shape(masks)[1], tf.float32)
    corner, sides = objects[:, :2], tf.maximum(objects[:, 2:] - objects[:, :2], 1e-3)
    inside = (regions - tf.tile(corner, [1, 2])) / tf.tile(sides, [1, 2]) * size  # in cells of the mask
    cells = tf.cast(masks, tf.float32)[..., None]
    sampled = roi_align.sample(cells, inside, tf.range(tf.shape(masks)[0]), 2 * MASK_SIZE)[..., 0]
    return tf.cast(sampled >= 0.5, tf.float32)


def mask_loss(logits, wanted, masks):
    """Return the loss, a scalar, of logits [B, F, 28, 28, classes]; masks [B, M, S, S] are those of all objects.

    Only the mask of the right class is looked at, so classes do not compete for pixels.
    """
    count = tf.shape(logits)[1]
    first = {name: each[:, :count] for name, each in wanted.items()}
    mine = tf.gather(masks, first["which"], batch_dims=1)
    side = tf.shape(masks)[2]
    truth = mask_targets(
        tf.reshape(first["boxes"], [-1, 4]), tf.reshape(first["objects"], [-1, 4]), tf.reshape(mine, [-1, side, side])
    )
    said = of_class(logits, first["classes"])
    errors = tf.nn.sigmoid_cross_entropy_with_logits(tf.reshape(truth, tf.shape(said)), said)
    return sampling.mean(tf.reduce_mean(errors, axis=[2, 3]), first["real"])


def of_class(logits, classes):
    """Return logits [B, N, 28, 28] of one class each, of logits [B, N, 28, 28, classes] and classes [B, N] from 1."""
    chosen = tf.one_hot(tf.maximum(classes, 1) - 1, tf.shape(logits)[-1], dtype=logits.dtype)
    return tf.einsum("bnhwc,bnc->bnhw", logits, chosen)


def detections(logits, offsets, proposals, sizes, args):
    """Return (boxes [B, D, 4], classes [B, D] from 1, scores [B, D], count [B]) of what the box head says.

    Of every class those that no better one of that class overlaps, of all classes the best D = args.detections.
    """
    scores = tf.nn.softmax(logits)[..., 1:]
    # Proposals without area are empty places.
    scores = tf.where((bx.area(proposals) > 0)[..., None], scores, 0.0)
    found = bx.decode(offsets, proposals[:, :, None, :], SCALE)
    limits = tf.concat([sizes, sizes], axis=-1)[:, None, None, :]
    best, scores, classes, count = tf.image.combined_non_max_suppression(
        tf.clip_by_value(found, 0.0, limits),
        scores,
        max_output_size_per_class=args.detections,
        max_total_size=args.detections,
        iou_threshold=0.5,
        score_threshold=args.least_score,
        clip_boxes=False,
    )
    return best, tf.cast(classes, tf.int32) + 1, scores, count
