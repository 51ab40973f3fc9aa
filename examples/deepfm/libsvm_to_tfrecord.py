"""Turns click data from libsvm text into the TFRecord files that `train.py` reads.

    python libsvm_to_tfrecord.py --shards 4 --output data/training  train.libsvm more.libsvm.gz

A line is a label and 39 pairs, one for every field: `1 1:0.05 2:0.066 ... 586:1 1079:1 ...`. Labels are 0
or 1 (or -1 for 0); what follows a `#` is a comment. Rows are dealt out to the shards one by one, so no two
shards differ by more than one row. Nothing is kept in memory, and files get their names only when all of
them are complete.
"""

import argparse
import contextlib
import functools
import gzip
import math
import os
import struct
import sys
from pathlib import Path

import tensorflow as tf

from data import FEATURES, FIELDS

LABELS = {1.0: 1.0, 0.0: 0.0, -1.0: 0.0}


class BadRow(ValueError):
    """A line that is not a row; the message begins with `file:line:`."""


def convert(inputs, output, shards, prefix="part", fields=FIELDS, features=FEATURES):
    """Write the rows of `inputs` to `shards` files in the folder `output`; return [(path, rows), ...]."""
    return write_shards((serialize(*row) for row in read_rows(inputs, fields, features)), output, shards, prefix)


def write_shards(records, output, shards, prefix="part"):
    """Deal records out to `shards` files in the folder `output`; return [(path, records), ...]."""
    if shards < 1:
        raise ValueError(f"shards must be 1 or more, not {shards}")
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    paths = [output / f"{prefix}-{index:05d}-of-{shards:05d}.tfrecords" for index in range(shards)]
    strangers = sorted(set(output.glob("*.tfrecord*")) - set(paths))
    if strangers:  # training reads the whole folder: rows of an earlier conversion would come twice
        raise FileExistsError(f"{output} already holds other TFRecord files, such as {strangers[0].name}")

    # A name without .tfrecord in it: whoever looks for *.tfrecord* before the end sees no half-written file.
    unfinished = [path.with_name(f".{path.stem}.{os.getpid()}.tmp") for path in paths]
    count = 0
    try:
        with contextlib.ExitStack() as stack:
            writers = [stack.enter_context(tf.io.TFRecordWriter(str(path))) for path in unfinished]
            for record in records:
                writers[count % shards].write(record)
                count += 1
        for path, final in zip(unfinished, paths, strict=True):
            path.replace(final)
    finally:
        for path in unfinished:
            path.unlink(missing_ok=True)
    return [(path, count // shards + (index < count % shards)) for index, path in enumerate(paths)]


def read_rows(inputs, fields=FIELDS, features=FEATURES):
    """Yield (label, ids, values) of every row of the files, one file after the other."""
    for path in inputs:
        # Bytes that are not UTF-8 become characters no number has: the line is then reported as bad.
        opened = gzip.open if str(path).endswith(".gz") else open
        with opened(path, "rt", encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                words = line.partition("#")[0].split()
                if not words:
                    continue
                try:
                    yield parse_row(words, fields, features)
                except ValueError as error:
                    raise BadRow(f"{path}:{number}: {error}") from None


def parse_row(words, fields=FIELDS, features=FEATURES):
    label, *pairs = words
    label = LABELS.get(_number(label, "label"))
    if label is None:
        raise ValueError(f"the label must be 0 or 1, not {words[0]!r}")
    if len(pairs) != fields:
        raise ValueError(f"{fields} pairs of id:value are expected, but there are {len(pairs)}")
    ids, values = [], []
    for pair in pairs:
        id_, colon, value = pair.partition(":")
        if not colon:
            raise ValueError(f"expected id:value, not {pair!r}")
        if not (id_.isascii() and id_.isdigit() and int(id_) < features):
            raise ValueError(f"the id must be a whole number from 0 to {features - 1}, not {id_!r}")
        ids.append(int(id_))
        values.append(_number(value, f"value of id {id_}"))
    return label, ids, values


def _number(text, what):
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"the {what} must be a number, not {text!r}")
    return number


def serialize(label, ids, values):
    """Return the bytes of a `tf.train.Example`.

    Written out, since protobuf 3.20, which TensorFlow 2.14 and sagemaker-training have in common, is all Python: ten
    times as slow. `_inside` is its one rule here; numbers lie side by side, whole ones as varints.
    """
    features = [
        (b"label", FLOATS, struct.pack("<f", label)),
        (b"ids", WHOLE, b"".join(map(_varint, ids))),
        (b"values", FLOATS, struct.pack(f"<{len(values)}f", *values)),
    ]
    return _inside(
        1,
        b"".join(
            _inside(1, _inside(1, name) + _inside(2, _inside(kind, _inside(1, numbers))))
            for name, kind, numbers in features
        ),
    )


FLOATS, WHOLE = 2, 3  # which field of a Feature they are


def _inside(field, content):
    """Return a field of a message: its number with the mark of what has a length, that length, and the content."""
    return bytes([field << 3 | 2]) + _varint(len(content)) + content


@functools.cache
def _varint(number):
    """Return a number with seven bits in each byte, the lowest first; the eighth says that another byte follows."""
    head, number = number & 0x7F, number >> 7
    return bytes([head | 0x80]) + _varint(number) if number else bytes([head])


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n\n")[0], epilog="Exit status 1 when a file is not as it should be."
    )
    parser.add_argument("inputs", nargs="+", metavar="FILE", help="libsvm text, or the same in gzip (*.gz)")
    parser.add_argument("--output", required=True, metavar="DIR", help="folder for the shards; made if need be")
    parser.add_argument("--shards", type=int, default=4, help="one or more for every process (default: %(default)s)")
    parser.add_argument("--prefix", default="part", help="how the names of the shards begin (default: %(default)s)")
    args = parser.parse_args(argv)
    try:
        written = convert(args.inputs, args.output, args.shards, args.prefix)
    except (OSError, EOFError, ValueError) as error:  # EOFError: a gzip file that was cut off
        print(f"libsvm_to_tfrecord: {error}", file=sys.stderr)
        return 1
    for path, rows in written:
        print(f"{path}: {rows} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
