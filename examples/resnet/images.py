"""Read the images of a channel, and make batches of them.

A record is a `tf.train.Example` as ImageNet's usual TFRecord files have it:

    image/encoded      bytes  a JPEG
    image/class/label  int64  its class

or, in `.rec` files, what MXNet's im2rec packs: the same two behind a header of its own.

Pixels leave here as bytes from 0 to 255, a quarter of what floats would take on their way; the model scales them.
"""

import tensorflow as tf

from sagemaker_tf_data import (
    DataError,
    channel,
    even_steps,
    file_names,
    files,
    image_records,
    part,
    pipe_dataset,
    shard,
)

FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}
PATTERNS = {"tfrecord": "*.tfrecord*", "rec": "*.rec"}  # what files of each format are called
CONTENT_TYPE = "application/x-recordio"  # of a channel of .rec files, as SageMaker's own image classification wants it
READS = 8  # files at a time; the same on all hosts, since the order of the records depends on it
CENTER = 224 / 256  # what is kept of the shorter side when an image is judged, not learned from


def format_of(name, args):
    """Return `tfrecord` or `rec`: as asked for, else by the names of the channel's files or the type of its pipe.

    Raises:
        DataError: There is no such channel, it has files of neither format, or of both.
    """
    if args.format != "auto":
        return args.format
    mine = channel(name)
    if mine.mode == "Pipe":
        return "rec" if mine.content_type == CONTENT_TYPE else "tfrecord"
    found = [each for each, pattern in PATTERNS.items() if any(mine.folder.rglob(pattern))]
    if len(found) != 1:
        kinds = " and ".join(PATTERNS[each] for each in found) or f"neither {' nor '.join(PATTERNS.values())}"
        raise DataError(f"channel '{mine.name}' has {kinds} in {mine.folder}; wanted files of one format, or format=")
    return found[0]


def steps(name, args):
    """Return how many batches a pass over a channel of files has: those of the rank with the fewest images."""
    pattern = PATTERNS[format_of(name, args)]
    return even_steps(name, batch_size=args.batch_size, by=dealt(name, pattern), pattern=pattern, drop_remainder=True)


def dealt(name, pattern):
    """Return the unit of sharding: whole files if each rank gets equally many, so that none reads another's."""
    return "records" if len(files(name, pattern)) % part(name).count else "files"


def records(name, args):
    """Return a pass over this rank's part of a channel: serialized Examples, or pairs of a JPEG and its label."""
    form = format_of(name, args)
    pattern = PATTERNS[form]
    if part(name).mode == "Pipe":
        return shard(image_records(name) if form == "rec" else pipe_dataset(name, "TFRecord"), name)
    if dealt(name, pattern) == "records":  # every rank reads all files, in the same order, and keeps its part
        found = files(name, pattern)
        everything = image_records(found) if form == "rec" else tf.data.TFRecordDataset(found, num_parallel_reads=READS)
        return shard(everything, name)
    mine = shard(file_names(name, pattern), name)
    read = image_records if form == "rec" else tf.data.TFRecordDataset
    return mine.shuffle(10_000).interleave(read, num_parallel_calls=tf.data.AUTOTUNE)


def training_batches(name, args):
    """Return a pass over the images, in a new order, each cropped and mirrored by chance; all batches are full."""
    return _batches(
        records(name, args).shuffle(args.shuffle),
        args,
        lambda jpeg: random_crop(jpeg, args.image_size),
        drop_remainder=True,
    )


def evaluation_batches(name, args):
    """Return the center of every image once; the last batch may be small."""
    return _batches(records(name, args), args, lambda jpeg: center_crop(jpeg, args.image_size), drop_remainder=False)


def _batches(records, args, pixels, drop_remainder):
    def parse(*record):
        jpeg, found = record if len(record) == 2 else _of_example(*record)
        label = tf.cast(found, tf.int64) - args.first_label
        # A GPU would take any label, and learn nonsense from it.
        check = tf.debugging.Assert(
            (label >= 0) & (label < args.classes),
            ["found label", found, f"wanted {args.classes} labels from {args.first_label} on"],
        )
        with tf.control_dependencies([check]):
            return pixels(jpeg), tf.identity(label)

    batches = records.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    return batches.batch(args.batch_size, drop_remainder).prefetch(tf.data.AUTOTUNE)


def _of_example(serialized):
    example = tf.io.parse_single_example(serialized, FEATURES)
    return example["image/encoded"], example["image/class/label"]


def random_crop(jpeg, size):
    """Return a piece of 8 % to 100 % of the image, of any shape from 3:4 to 4:3, mirrored or not.

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
    """Return the center of the image, whose shorter side is made a bit longer than `size` before."""
    pixels = tf.io.decode_jpeg(jpeg, channels=3)
    height, width = tf.shape(pixels)[0], tf.shape(pixels)[1]
    scale = tf.cast(size / CENTER, tf.float32) / tf.cast(tf.minimum(height, width), tf.float32)
    sides = tf.cast(tf.round(tf.cast([height, width], tf.float32) * scale), tf.int32)
    pixels = _resized(pixels, tf.maximum(sides, size))
    return tf.ensure_shape(tf.image.resize_with_crop_or_pad(pixels, size, size), [size, size, 3])


def _resized(pixels, size):
    return tf.saturate_cast(tf.round(tf.image.resize(pixels, size)), tf.uint8)
