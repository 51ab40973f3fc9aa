"""The rows: where their files lie, which of them are kept aside, and how they become batches.

A row is one advertisement that was shown to somebody, as a `tf.train.Example`:

    label   float     1 if it was clicked, else 0
    ids     39 int64  one feature of every field
    values  39 float  how much of it: a count for the first 13 fields, 1 for the categories
"""

import os
import struct
from pathlib import Path

import tensorflow as tf

FIELDS = 39  # 13 counts, each with one id to itself, then 26 categories with many ids each
FEATURES = 117_600  # every id is smaller than this

COLUMNS = {
    "label": tf.io.FixedLenFeature([], tf.float32),
    "ids": tf.io.FixedLenFeature([FIELDS], tf.int64),
    "values": tf.io.FixedLenFeature([FIELDS], tf.float32),
}


def channel(*names):
    """The folder of the first of these channels that the job has, or None."""
    folders = (os.environ.get(f"SM_CHANNEL_{name.upper()}", f"/opt/ml/input/data/{name}") for name in names)
    return next((Path(folder) for folder in folders if Path(folder).is_dir()), None)


def split():
    """(files to train on, files to evaluate on): whole files, and none of them in both.

    With an evaluation channel that is its files. Without one the last training file, by name, is kept
    aside: every host sorts the same names and so leaves out the same file, without a word between them.
    """
    training_folder = channel("training", "train")
    if training_folder is None:
        raise SystemExit("deepfm: no data: give the job a channel named 'training' or 'train'")
    training = files_in(training_folder)

    evaluation_folder = channel("evaluation", "eval", "test", "validation")
    if evaluation_folder is not None:
        evaluation = files_in(evaluation_folder)
    elif len(training) > 1:
        training, evaluation = training[:-1], training[-1:]
    else:
        raise SystemExit(
            f"deepfm: {training_folder} holds one file and there is no channel named 'evaluation'"
        )

    both = {os.path.realpath(path) for path in training} & {os.path.realpath(path) for path in evaluation}
    if both:
        raise SystemExit(f"deepfm: both trained and evaluated on: {', '.join(sorted(both))}")
    return training, evaluation


def files_in(folder):
    files = sorted(str(path) for path in folder.rglob("*.tfrecord*") if path.is_file())
    if not files:
        raise SystemExit(f"deepfm: no *.tfrecord or *.tfrecords file in {folder}")
    return files


def count_rows(files):
    """Rows in TFRecord files, found by hopping from header to header without reading what lies between.

    A record is its length (8 bytes), a checksum (4), the bytes, and another checksum (4).
    """
    rows = 0
    for path in files:
        size = Path(path).stat().st_size
        with open(path, "rb") as file:
            while file.tell() < size:
                header = file.read(12)
                if len(header) == 12:
                    file.seek(struct.unpack("<Q", header[:8])[0] + 4, os.SEEK_CUR)
                if len(header) < 12 or file.tell() > size:
                    raise SystemExit(
                        f"deepfm: {path} ends in the middle of a record: cut off, or not a TFRecord file"
                    )
                rows += 1
    return rows


def batches(files, batch_size):
    """Every row once, in the order of the files: for evaluation."""
    return _parsed(tf.data.TFRecordDataset(files).batch(batch_size))


def endless_batches(files, batch_size, shards=1, index=0, shuffle_rows=20_000):
    """Rows without end, in a new random order every time round, all batches full: for training.

    Without an end, because how long training lasts is then a number of steps and nothing else. Ranks that
    wait for each other at every step may not own one batch more or less than the next: that would hang
    the job at its very end. Of `shards` ranks, each takes the rows whose number is its `index`, before they
    are shuffled or parsed.
    """
    rows = tf.data.TFRecordDataset(files).shard(shards, index)
    return _parsed(rows.shuffle(shuffle_rows).repeat().batch(batch_size))


def _parsed(records):
    """Parses whole batches: one operation for all its rows is many times faster than one for each."""

    def parse(serialized):
        row = tf.io.parse_example(serialized, COLUMNS)
        return {"ids": row["ids"], "values": row["values"]}, row["label"]

    return records.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
