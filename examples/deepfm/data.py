"""Find the rows of a channel, keep some of them aside, and make batches of them.

A row is one advertisement that was shown to somebody, as a `tf.train.Example`:

    label   float     1 if it was clicked, else 0
    ids     39 int64  one feature of every field
    values  39 float  how much of it: a count for the first 13 fields, 1 for the categories
"""

import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

import tensorflow as tf

from sagemaker_tf_data import all_channels, count_records, file_names, files, first_of, part, pipe_dataset, shard
from settings import Sizes

CLICKS = Sizes()  # Criteo's: where nobody says another
FIELDS, FEATURES = CLICKS.field_size, CLICKS.feature_size
EVALUATION = ("evaluation", "eval", "test", "validation")  # names of a channel
INFERENCE = ("inference", "infer", "predict")


@dataclass(frozen=True)
class Rows:
    """The rows of one channel: those in its files (File and FastFile mode) or those from its pipe.

    `channel` may stand for several: with channels training-1 and training-2 and two ranks on each host, "training" is
    a channel for each of them.
    """

    channel: str
    pipe: bool = False
    by_host: bool = False  # ShardedByS3Key: each host has other files
    pattern: str = "*.tfrecord*"
    without: str = ""  # the name of a file that is left out

    def records(self):
        """Return the rows as they are stored, in order. In Pipe mode every iterator reads the next pipe."""
        if self.pipe:
            return pipe_dataset(self.channel, record_format="TFRecord")
        names = file_names(self.channel, self.pattern)
        if self.without:
            left_out = f".*/{re.escape(self.without)}"
            names = names.filter(lambda path: not tf.strings.regex_full_match(path, left_out))
        return tf.data.TFRecordDataset(names)

    def files(self):
        """Return the paths of its files on this host."""
        found = files(self.channel, self.pattern)
        return [path for path in found if Path(path).name != self.without]


def split():
    """Return (rows to train on, rows to evaluate on), without a common row.

    With an evaluation channel that is its rows. Without one the last training file, by name, is kept aside: every host
    sorts the same names and so leaves out the same file, without communication.
    """
    training = channel("training", "train")
    if training is None:
        raise SystemExit("deepfm: no data: give the job a channel named 'training' or 'train'")
    evaluation = for_evaluation()
    if evaluation is None:
        if training.pipe or training.by_host:
            why = "comes through a pipe" if training.pipe else "has other files on each host"
            raise SystemExit(f"deepfm: the training channel {why}: wanted a channel named 'evaluation', too")
        *others, last = [Path(path).name for path in training.files()]
        if not others:
            raise SystemExit("deepfm: the training channel holds one file, and there is no channel named 'evaluation'")
        return replace(training, without=last), replace(training, pattern=last)
    if not (training.pipe or evaluation.pipe):
        both = {os.path.realpath(path) for path in training.files()}.intersection(
            map(os.path.realpath, evaluation.files())
        )
        if both:
            raise SystemExit(f"deepfm: both trained and evaluated on: {', '.join(sorted(both))}")
    return training, evaluation


def for_evaluation():
    """Return all rows of the evaluation channel, or None without one."""
    evaluation = channel(*EVALUATION)
    if evaluation and not is_whole(evaluation):
        raise SystemExit(
            f"deepfm: one process evaluates, and has only a part of channel '{evaluation.channel}': "
            "wanted it FullyReplicated, and one channel for all ranks"
        )
    return evaluation


def for_inference():
    """Return the rows to predict clicks for; they need no labels."""
    rows = channel(*INFERENCE, *EVALUATION)
    if rows is None:
        raise SystemExit("deepfm: no rows to infer: give the job a channel named 'inference'")
    return rows


def channel(*names):
    """Return the rows of the first of these channels that the job has, or None."""
    name = first_of(*names)
    if name is None:
        return None
    # The channels of a group are alike in this. The chief has none of them to call its own.
    one = next(each for each in all_channels().values() if re.fullmatch(rf"{name}([-_]?\d+)?", each.name))
    return Rows(name, pipe=one.mode == "Pipe", by_host=one.distribution == "ShardedByS3Key")


def is_whole(rows):
    """Return whether this process has all rows of a channel, not only those of its host or rank."""
    if rows.by_host and len(json.loads(os.environ.get("SM_HOSTS", "[]"))) > 1:
        return False
    # What all ranks have in common is dealt out to all of them.
    return part(rows.channel).count == int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))


def count(rows):
    """Return how many rows all hosts have, by the headers in this one's files; None if they come through a pipe."""
    if rows.pipe:
        return None
    return count_records(rows.files()) * (len(json.loads(os.environ["SM_HOSTS"])) if rows.by_host else 1)


def check(rows, sizes):
    """Raise SystemExit if the first row of this host's files has another number of fields. Pipes are not checked."""
    if rows.pipe:
        return
    for record in tf.data.TFRecordDataset(rows.files()[:1]).take(1):
        found = len(tf.train.Example.FromString(record.numpy()).features.feature["ids"].int64_list.value)
        if found != sizes.field_size:
            raise SystemExit(
                f"deepfm: rows of channel '{rows.channel}' have {found} fields; wanted the field-size, "
                f"{sizes.field_size}"
            )


def batches(rows, batch_size, sizes=CLICKS):
    """Return every row once, in order, as ({"ids", "values"}, label), for evaluation."""
    return _parsed(rows.records().batch(batch_size), sizes)


def unlabelled_batches(rows, path=None, batch_size=1000, sizes=CLICKS):
    """Return every row once, in order, as {"ids", "values"}: of the file `path`, or of the pipe."""
    records = rows.records() if path is None else tf.data.TFRecordDataset(path)
    return _parsed(records.batch(batch_size), sizes, labels=False)


def shuffled_batches(rows, batch_size, passes=1, shuffle_rows=20_000, sizes=CLICKS):
    """Return this process's part of the rows for training, in a new random order at each pass. None: without end.

    The library selects the part, by the other processes and by whether each host has all files. It does so before rows
    are shuffled or parsed.
    """
    part = shard(rows.records(), rows.channel)
    return _parsed(part.shuffle(shuffle_rows).repeat(passes).batch(batch_size), sizes)


def _parsed(records, sizes, labels=True):
    """Parse whole batches: one operation for all rows is many times faster than one for each."""
    wanted = {
        "ids": tf.io.FixedLenFeature([sizes.field_size], tf.int64),
        "values": tf.io.FixedLenFeature([sizes.field_size], tf.float32),
    }
    if labels:
        wanted["label"] = tf.io.FixedLenFeature([], tf.float32)

    def parse(serialized):
        row = tf.io.parse_example(serialized, wanted)
        ids = row["ids"]
        least, most = tf.reduce_min(ids), tf.reduce_max(ids)  # a GPU would take a row of zeros for an id too large
        fit = tf.debugging.Assert(
            tf.logical_and(least >= 0, most < sizes.feature_size),
            ["deepfm: found ids from", least, "to", most, "; wanted 0 or more, and less than the feature-size",
             sizes.feature_size],
        )  # fmt: skip
        with tf.control_dependencies([fit]):
            features = {"ids": tf.identity(ids), "values": row["values"]}
        return (features, row["label"]) if labels else features

    return records.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
