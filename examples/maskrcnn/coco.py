"""Read images and their objects from files in COCO's format, and make batches of them.

A data set is a folder as COCO's archives unpack: `annotations/instances_SPLIT.json` and images in `SPLIT/`. Masks are
polygons, or run lengths (RLE), compressed or not.
"""

import contextlib
import functools
import io
from pathlib import Path

import numpy as np
import tensorflow as tf
from pycocotools import mask as rle
from pycocotools.coco import COCO

from sampling import CROWD

MULTIPLE = 64  # pixels: every level of the pyramid has whole cells


class Split:
    """The images of one split, e.g. `train2017`, with their annotations.

    `categories`: COCO's ids in order; class 1 of the network is the first of them.
    """

    def __init__(self, folder, name):
        self.folder, self.name = Path(folder), name
        file = self.folder / "annotations" / f"instances_{name}.json"
        if not file.is_file():
            raise SystemExit(f"maskrcnn: there is no {file}; wanted a folder as COCO's archives unpack")
        with contextlib.redirect_stdout(io.StringIO()):  # of all ranks
            self.coco = COCO(str(file))
        self.categories = sorted(self.coco.getCatIds())
        self._classes = {category: number for number, category in enumerate(self.categories, 1)}
        self.images = sorted(self.coco.getImgIds())

    def names(self):
        return [self.coco.cats[category]["name"] for category in self.categories]

    def path(self, image):
        """Return the path of the image with this id."""
        return str(self.folder / self.name / self.coco.imgs[image]["file_name"])

    def to_learn_from(self):
        """Return the ids of images with at least one object that is no crowd."""
        return [image for image in self.images if any(each > 0 for each in self.objects(image)[1])]

    def objects(self, image):
        """Return (annotations, classes) of an image: -1 for crowds. Without those that have no area or no mask."""
        found, classes = [], []
        for each in self.coco.imgToAnns[image]:
            _, _, width, height = each["bbox"]
            if width >= 1 and height >= 1 and each.get("segmentation"):
                found.append(each)
                classes.append(CROWD if each.get("iscrowd") else self._classes[each["category_id"]])
        return found, classes

    def example(self, image, side):
        """Return (boxes [M, 4] in pixels of the file, classes [M], masks [M, side, side]) of an image's objects."""
        found, classes = self.objects(image)
        boxes = np.array([[y, x, y + h, x + w] for x, y, w, h in (each["bbox"] for each in found)], np.float32)
        masks = [mask_in_box(self.coco, each, side) for each in found]
        return boxes.reshape([-1, 4]), np.array(classes, np.int32), np.array(masks, np.uint8).reshape([-1, side, side])


def mask_in_box(coco, annotation, side):
    """Return the mask [side, side], 0 or 1, of what is in the box of an annotation of `coco`.

    The box becomes a square of so many cells: an object of a photograph of a megapixel takes no more than a small one.
    """
    (x, y, width, height), mask = annotation["bbox"], annotation["segmentation"]
    if isinstance(mask, list):  # polygons, which can be drawn into the square at once
        scale = np.array([side / width, side / height])
        polygons = [((np.reshape(each, [-1, 2]) - [x, y]) * scale).ravel().tolist() for each in mask]
        return rle.decode(rle.merge(rle.frPyObjects(polygons, side, side)))
    whole = coco.annToMask(annotation)
    ys = np.clip(y + (np.arange(side) + 0.5) * height / side, 0, len(whole) - 1).astype(int)
    xs = np.clip(x + (np.arange(side) + 0.5) * width / side, 0, len(whole[0]) - 1).astype(int)
    return whole[np.ix_(ys, xs)]


# ---- who reads what --------------------------------------------------------------------------------------------------


def at(place, images, seed):
    """Return the image at a place, from 0, of the endless row in which each pass has all images in a new order.

    All ranks compute the same row, so they need not agree on it; and a job that goes on behind a checkpoint, perhaps
    with another number of ranks, goes on in this row where it was.
    """
    number, place = divmod(place, len(images))
    return images[shuffled(len(images), seed, number)[place]]


@functools.lru_cache(maxsize=2)
def shuffled(count, seed, number):
    """Return the numbers below `count` in the order of a pass."""
    return np.random.default_rng([seed, number]).permutation(count)


def share(begin, batch_size, rank, ranks, steps):
    """Yield the places of a rank in that row, step after step: of each step's images, those behind the ranks' before.

    The first of these steps of all ranks begins at place `begin`.
    """
    for step in range(steps):
        first = begin + (step * ranks + rank) * batch_size
        yield from range(first, first + batch_size)


# ---- batches ---------------------------------------------------------------------------------------------------------


def training_batches(split, args, begin, steps, rank, ranks):
    """Yield this rank's batches of the next steps, behind the first `begin` images of all ranks, as dicts.

    `pixels` [B, H, W, 3], bytes; `sizes` [B, 2], what of it is no padding; `boxes` [B, M, 4]; `classes` [B, M]; `masks`
    [B, M, S, S], each within its box. Half of the images are mirrored; which, depends on nothing but their places.
    """
    images = split.to_learn_from()
    if not images:
        raise SystemExit(f"maskrcnn: no image of {split.name} has an object to learn from")
    side = args.mask_side

    def places():
        for place in share(begin, args.batch_size, rank, ranks, steps):
            yield at(place, images, args.seed), place

    def load(image, place):
        boxes, classes, masks = tf.numpy_function(
            lambda number: split.example(int(number), side), [image], [tf.float32, tf.int32, tf.uint8], stateful=False
        )
        boxes.set_shape([None, 4]), classes.set_shape([None]), masks.set_shape([None, side, side])
        pixels, scale, size = fit(tf.io.read_file(path_of(split, image)), args)
        boxes = boxes * tf.concat([scale, scale], axis=0)
        if args.mirror:
            mirrored = tf.random.stateless_uniform([], [args.seed, tf.cast(place, tf.int32)]) < 0.5
            pixels, boxes, masks = tf.cond(
                mirrored, lambda: mirror(pixels, boxes, masks), lambda: (pixels, boxes, masks)
            )
        return {"pixels": pad(pixels), "sizes": size, "boxes": boxes, "classes": classes, "masks": masks}

    signature = (tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int64))
    rows = tf.data.Dataset.from_generator(places, output_signature=signature)
    rows = rows.map(load, num_parallel_calls=tf.data.AUTOTUNE)
    return rows.padded_batch(args.batch_size, drop_remainder=True).prefetch(2)


def evaluation_batches(split, args, images):
    """Yield these images, as dicts: `pixels` and `sizes` as in training, `image`, the id, `scale` [B, 2] of (y, x)."""

    def load(image):
        pixels, scale, size = fit(tf.io.read_file(path_of(split, image)), args)
        return {"pixels": pad(pixels), "sizes": size, "image": image, "scale": scale}

    rows = tf.data.Dataset.from_tensor_slices(tf.constant(images, tf.int64))
    return rows.map(load, num_parallel_calls=tf.data.AUTOTUNE).padded_batch(args.batch_size).prefetch(2)


def path_of(split, image):
    """Return an image's path as a string tensor. `image` is a tensor with the image's number."""
    path = tf.numpy_function(lambda number: split.path(int(number)).encode(), [image], tf.string, stateful=False)
    return tf.ensure_shape(path, [])


def fit(data, args):
    """Return (pixels, scale of (y, x), size), of a JPEG or PNG: its shorter side as wanted, its longer no longer.

    The size is in pixels, (height, width), as floats.
    """
    pixels = tf.io.decode_image(data, channels=3, expand_animations=False)
    pixels.set_shape([None, None, 3])
    was = tf.cast(tf.shape(pixels)[:2], tf.float32)
    wanted = tf.minimum(args.image_size / tf.reduce_min(was), args.longest_side / tf.reduce_max(was))
    size = tf.maximum(tf.round(was * wanted), 1.0)
    pixels = tf.image.resize(pixels, tf.cast(size, tf.int32))
    return tf.saturate_cast(tf.round(pixels), tf.uint8), size / was, size


def pad(pixels):
    """Return pixels with black ones at bottom and right, up to the next multiple of 64."""
    short = -tf.shape(pixels)[:2] % MULTIPLE
    return tf.pad(pixels, [[0, short[0]], [0, short[1]], [0, 0]])


def mirror(pixels, boxes, masks):
    """Return an image with its objects, left and right exchanged."""
    y1, x1, y2, x2 = tf.unstack(boxes, axis=1)
    width = tf.cast(tf.shape(pixels)[1], tf.float32)
    return pixels[:, ::-1], tf.stack([y1, width - x2, y2, width - x1], axis=1), masks[:, :, ::-1]
