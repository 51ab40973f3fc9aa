"""Turns a folder of images, one folder in it for each class, into the TFRecord files that `train.py` reads.

    python folder_to_tfrecord.py --shards 8 --output data/training  photos/training
    python folder_to_tfrecord.py --shards 2 --output data/validation  photos/validation

or, with `--format rec`, into RecordIO as MXNet's im2rec makes it. ImageNet's validation images, which come in one
folder, are taken from there with `--ground-truth`.

Classes are numbered by their names. The numbers are kept in `data/labels.txt`, beside the output, so that the second
conversion numbers as the first did. Images are mixed and dealt out to the shards one by one, so no two shards differ by
more than one. Every image is decoded once, to see that it can be; JPEGs are kept as they are, others become JPEGs.
Files get their names only when all of them are complete.
"""

import argparse
import contextlib
import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

from sort_into_classes import add_ground_truth, classes_of

ENDINGS = {".jpg", ".jpeg", ".png", ".gif", ".bmp"}
QUALITY = 95  # of the JPEGs that are made here
SUFFIXES = {"tfrecord": ".tfrecords", "rec": ".rec"}
WRITERS = {"tfrecord": lambda path: tf.io.TFRecordWriter(str(path)), "rec": lambda path: path.open("wb")}


class BadImage(ValueError):
    """A file that is no image; the message begins with its path."""


def convert(classes, output, shards, labels=None, shorter_side=None, seed=0, form="tfrecord", dry_run=False):
    """Write images to `shards` files in the folder `output`; return [(path, images), ...].

    `classes` has the class of each image by its path. With `dry_run` nothing is written, and no image is read.
    """
    if shards < 1:
        raise ValueError(f"shards must be 1 or more, not {shards}")
    output, suffix = Path(output), SUFFIXES[form]
    paths = [output / f"part-{index:05d}-of-{shards:05d}{suffix}" for index in range(shards)]
    # Training reads the whole folder: images of an earlier conversion would come twice.
    strangers = sorted({path for each in SUFFIXES.values() for path in output.glob(f"*{each[:9]}*")} - set(paths))
    if strangers:
        raise FileExistsError(f"{output} already holds other TFRecord or RecordIO files, such as {strangers[0].name}")
    numbers = number_classes(labels or output.parent / "labels.txt", set(classes.values()), dry_run)
    written = [(path, len(range(index, len(classes), shards))) for index, path in enumerate(paths)]
    if dry_run:
        return written
    images = list(classes)
    random.Random(seed).shuffle(images)  # classes come in folders, and training shuffles only thousands at a time
    output.mkdir(parents=True, exist_ok=True)

    # A name without .tfrecord in it: whoever looks for *.tfrecord* before the end sees no half-written file.
    unfinished = [path.with_name(f".{path.stem}.{os.getpid()}.tmp") for path in paths]
    try:
        with contextlib.ExitStack() as stack:
            writers = [stack.enter_context(WRITERS[form](path)) for path in unfinished]
            threads = stack.enter_context(ThreadPoolExecutor())
            for start in range(0, len(images), 256):  # no more than these are in memory
                some = images[start : start + 256]
                encoded = threads.map(lambda path: encode(path, shorter_side), some)
                for number, (path, jpeg) in enumerate(zip(some, encoded, strict=True), start):
                    name = classes[path]
                    writers[number % shards].write(serialize(jpeg, numbers[name], name, path, form))
        for path, final in zip(unfinished, paths, strict=True):
            path.replace(final)
    finally:
        for path in unfinished:
            path.unlink(missing_ok=True)
    return written


def find(source):
    """Return {path: class} of all images in the folders of `source`, by name."""
    source = Path(source)
    if not source.is_dir():
        raise FileNotFoundError(f"{source} is no folder; wanted one with a folder of images for each class")
    files = sorted(path for path in source.glob("*/*") if path.is_file())
    images = [path for path in files if path.suffix.lower() in ENDINGS]
    if not images:
        raise FileNotFoundError(
            f"no images in {source}; wanted CLASS/NAME in it, ending in {', '.join(sorted(ENDINGS))}"
        )
    return {path: path.parent.name for path in images}


def number_classes(file, found, dry_run=False):
    """Return {class: number} by the file, one name a line, which is written if it is not there."""
    if not file.exists():
        if dry_run:
            return {name: number for number, name in enumerate(sorted(found))}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{name}\n" for name in sorted(found)))
    names = file.read_text().split("\n")[:-1]
    unknown = sorted(found - set(names))
    if unknown:
        raise ValueError(f"{file} does not name the class {unknown[0]!r}; another data set's, or of other classes?")
    return {name: number for number, name in enumerate(names)}


def encode(path, shorter_side=None):
    """Return the image as JPEG, shrunk if its shorter side is longer than asked for."""
    data = tf.io.read_file(str(path))
    try:
        pixels = tf.io.decode_image(data, channels=3, expand_animations=False)
    except tf.errors.InvalidArgumentError as error:
        raise BadImage(f"{path}: {str(error.message).splitlines()[0]}") from None
    height, width, _ = pixels.shape
    if shorter_side and min(height, width) > shorter_side:
        scale = shorter_side / min(height, width)
        size = [round(height * scale), round(width * scale)]
        shrunk = tf.image.resize(tf.cast(pixels, tf.float32), size, method="area")
        pixels = tf.saturate_cast(tf.round(shrunk), tf.uint8)
    elif tf.io.is_jpeg(data):
        return data.numpy()
    return tf.io.encode_jpeg(pixels, quality=QUALITY).numpy()


def serialize(jpeg, label, name, path, form="tfrecord"):
    """Return what a writer of this format takes for one image."""
    if form == "rec":
        from sagemaker_tf_data import image_record, recordio

        return recordio.frame(image_record.pack(jpeg, label))

    def text(value):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    feature = {
        "image/encoded": text(jpeg),
        "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        "image/class/text": text(name.encode()),
        "image/filename": text(path.name.encode()),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n\n")[0], epilog="Exit status 1 when a file is not as it should be."
    )
    parser.add_argument("source", metavar="FOLDER", help="has a folder of images for each class")
    add_ground_truth(parser)
    parser.add_argument("--output", required=True, metavar="DIR", help="folder for the shards; made if need be")
    parser.add_argument("--shards", type=int, default=8, help="several for every process (default: %(default)s)")
    parser.add_argument(
        "--labels", type=Path, metavar="FILE", help="numbers of the classes (default: labels.txt beside DIR)"
    )
    parser.add_argument(
        "--shorter-side", type=int, metavar="PIXELS", help="shrink larger images to this; 256 suits training at 224"
    )
    parser.add_argument("--format", choices=SUFFIXES, default="tfrecord", help="of the shards (default: %(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="say which files would be written, and write none")
    args = parser.parse_args(argv)
    try:
        if args.ground_truth:
            classes = classes_of(args.source, args.ground_truth, args.synsets, args.partial)
        else:
            classes = find(args.source)
        written = convert(
            classes, args.output, args.shards, args.labels, args.shorter_side, form=args.format, dry_run=args.dry_run
        )
    except (OSError, ValueError) as error:
        print(f"folder_to_tfrecord: {error}", file=sys.stderr)
        return 1
    for path, images in written:
        print(f"{path}: {images} images")
    return 0


if __name__ == "__main__":
    sys.exit(main())
