"""The images: where they come from, and how they become batches.

A record is a `tf.train.Example` as ImageNet's usual TFRecord files have it:

    image/encoded      bytes  a JPEG
    image/class/label  int64  its class

Pixels leave here as bytes from 0 to 255, a quarter of what floats would take on their way; the model scales them.
"""

import tensorflow as tf

from sagemaker_tf_data import even_steps, file_names, files, part, pipe_dataset, shard

FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}
PATTERN = "*.tfrecord*"
READS = 8  # files at a time; the same on all hosts, since the order of the records depends on it
CENTER = 224 / 256  # what is kept of the shorter side when an image is judged, not learned from


def steps(name, args):
    """Batches of a pass over a channel of files: as many as the rank with the fewest images has."""
    return even_steps(name, batch_size=args.batch_size, by=dealt(name), pattern=PATTERN, drop_remainder=True)


def dealt(name):
    """What is dealt out to the ranks: whole files where each gets as many, so that none reads what is another's."""
    return "records" if len(files(name, PATTERN)) % part(name).count else "files"


def records(name):
    """One pass over this rank's part of a channel."""
    if part(name).mode == "Pipe":
        return shard(pipe_dataset(name, "TFRecord"), name)
    if dealt(name) == "records":  # every rank reads all files, in the same order, and keeps its part
        return shard(tf.data.TFRecordDataset(files(name, PATTERN), num_parallel_reads=READS), name)
    mine = shard(file_names(name, PATTERN), name)
    return mine.shuffle(10_000).interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE)


def training_batches(name, args):
    """One pass over the images, in a new order, each cropped and mirrored by chance; all batches full."""
    return _batches(
        records(name).shuffle(args.shuffle), args, lambda jpeg: random_crop(jpeg, args.image_size), drop_remainder=True
    )


def evaluation_batches(name, args):
    """Every image once, its center; the last batch may be small."""
    return _batches(records(name), args, lambda jpeg: center_crop(jpeg, args.image_size), drop_remainder=False)


def _batches(serialized, args, pixels, drop_remainder):
    def parse(record):
        example = tf.io.parse_single_example(record, FEATURES)
        label = example["image/class/label"] - args.first_label
        # A GPU would take any label, and learn nonsense from it.
        check = tf.debugging.Assert(
            (label >= 0) & (label < args.classes),
            ["found label", example["image/class/label"], f"wanted {args.classes} labels from {args.first_label} on"],
        )
        with tf.control_dependencies([check]):
            return pixels(example["image/encoded"]), tf.identity(label)

    batches = serialized.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    return batches.batch(args.batch_size, drop_remainder).prefetch(tf.data.AUTOTUNE)


def random_crop(jpeg, size):
    """A piece of 8 % to 100 % of the image, of any shape from 3:4 to 4:3, mirrored or not.

    Only that piece is decoded: it saves most of the time where images are large.
    """
    begin, extent, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(jpeg),
        bounding_boxes=tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        min_object_covered=0.0,
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(0.08, 1.0),
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    window = tf.stack([begin[0], begin[1], extent[0], extent[1]])
    piece = tf.io.decode_and_crop_jpeg(jpeg, window, channels=3)
    return tf.image.random_flip_left_right(_resized(piece, [size, size]))


def center_crop(jpeg, size):
    """The center of the image, after its shorter side was made a bit longer than that."""
    pixels = tf.io.decode_jpeg(jpeg, channels=3)
    height, width = tf.shape(pixels)[0], tf.shape(pixels)[1]
    scale = tf.cast(size / CENTER, tf.float32) / tf.cast(tf.minimum(height, width), tf.float32)
    sides = tf.cast(tf.round(tf.cast([height, width], tf.float32) * scale), tf.int32)
    pixels = _resized(pixels, tf.maximum(sides, size))
    return tf.ensure_shape(tf.image.resize_with_crop_or_pad(pixels, size, size), [size, size, 3])


def _resized(pixels, size):
    return tf.saturate_cast(tf.round(tf.image.resize(pixels, size)), tf.uint8)
