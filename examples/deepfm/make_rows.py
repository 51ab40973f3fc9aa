"""Makes rows in the shape of Criteo's, for whoever has none: invented clicks from which there is something to learn.

    python make_rows.py --rows 200000 --output data/training

Counts have long tails and many zeros, a few categories of each field come often and most hardly ever, and a quarter of
the rows are clicks. Whether a row is one is drawn with the probability of a factorization machine:

    logit = bias + sum_i w[id_i] x_i              first order: what each feature says by itself
                 + sum_{i<j} <v[id_i], v[id_j]>   second order: what pairs of categories say, in fields that have few

Seen from any one category its pairs come to 0 on average: who adds up what features say by themselves, as a logistic
regression does, gets nothing of the second order. All of it depends on the seed, so rows to train on and rows to
evaluate on are to be of one run. The same seed gives the same bytes, by the same version of NumPy.
"""

import argparse
import itertools
import sys

import numpy as np
from libsvm_to_tfrecord import serialize, write_shards

from data import FIELDS

CLICKS = 0.25  # of all rows
FIRST_ORDER, SECOND_ORDER = 1.3, 1.2  # standard deviations of the logit's sums
DIM = 4  # of the vectors v

# A count is exp(normal), rounded down: mean and standard deviation for each of the 13 fields.
COUNTS = (
    (-1.0, 2.0), (1.0, 2.0), (1.3, 1.6), (1.5, 1.2), (3.0, 1.8), (1.8, 1.8), (1.2, 1.7),
    (2.2, 1.3), (2.6, 1.5), (-0.8, 1.0), (0.8, 1.2), (-2.0, 1.6), (1.4, 1.3),
)  # fmt: skip
SCALE = 100  # of the values, of which Criteo's are not counts any more either

# How many categories each of the 26 fields has. Of each the k-th comes 1 / k ** STEEP times as often as the first.
CATEGORIES = (
    500, 500, 11_000, 13_000, 150, 10, 9_000, 250, 3, 11_000, 4_000, 11_000, 3_000,
    23, 5_500, 12_000, 9, 2_700, 1_400, 4, 11_500, 8, 12, 9_500, 45, 7_500,
)  # fmt: skip
STEEP = 1.1
PAIRED = 200  # fields with fewer categories have vectors: a few thousand rows show most of their pairs

BLOCK = 10_000  # rows that are drawn at once


class Clicks:
    """The distribution of all rows of a seed: frequencies of features, and their weights.

    Ids [rows, 39] and values [rows, 39] go in and out, and scores [rows] out.
    """

    def __init__(self, seed):
        self.seed = seed
        draw = np.random.default_rng([seed, 0])
        bounds = np.cumsum([len(COUNTS), *CATEGORIES])
        self.categories = list(itertools.pairwise(bounds.tolist()))  # ids from, and below
        self.shares = [np.arange(1, count + 1) ** -STEEP for count in CATEGORIES]
        self.shares = [each / each.sum() for each in self.shares]
        self.weights = draw.normal(size=bounds[-1])
        self.vectors = np.zeros([bounds[-1], DIM])
        for (begin, end), shares in zip(self.categories, self.shares, strict=True):
            if end - begin < PAIRED:
                vectors = draw.normal(size=[end - begin, DIM])
                self.vectors[begin:end] = vectors - shares @ vectors  # 0 on average over the rows

        ids, values = self.features(draw, 10 * BLOCK)
        self.weights *= FIRST_ORDER / self.first_order(ids, values).std()
        self.vectors *= np.sqrt(SECOND_ORDER / self.second_order(ids).std())
        self.bias = 0.0
        logits = self.logits(ids, values)
        low, high = -20.0, 20.0
        while high - low > 1e-9:  # more clicks with every bias that is higher
            self.bias = (low + high) / 2
            low, high = (low, self.bias) if sigmoid(logits + self.bias).mean() > CLICKS else (self.bias, high)

    def blocks(self):
        """Yield (labels, ids, values) of BLOCK rows each, without end."""
        draw = np.random.default_rng([self.seed, 1])
        while True:
            ids, values = self.features(draw, BLOCK)
            yield draw.random(BLOCK) < sigmoid(self.logits(ids, values)), ids, values

    def features(self, draw, rows):
        """Return (ids, values) of rows, whose fields are drawn independently."""
        ids, values = np.tile(np.arange(FIELDS), (rows, 1)), np.ones((rows, FIELDS))
        for field, (mean, deviation) in enumerate(COUNTS):
            values[:, field] = np.floor(np.exp(draw.normal(mean, deviation, rows))) / SCALE
        for field, ((begin, _), shares) in enumerate(zip(self.categories, self.shares, strict=True), start=len(COUNTS)):
            ids[:, field] = begin + draw.choice(len(shares), rows, p=shares)
        return ids, values

    def logits(self, ids, values):
        return self.bias + self.first_order(ids, values) + self.second_order(ids)

    def first_order(self, ids, values):
        x = np.log1p(SCALE * values) / np.log1p(SCALE)  # 1 stays 1
        return (self.weights[ids] * x).sum(axis=1)

    def second_order(self, ids):
        vectors = self.vectors[ids]
        return (np.square(vectors.sum(axis=1)) - np.square(vectors).sum(axis=1)).sum(axis=1) / 2


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


def serialized(rows, seed):
    """Yield the given number of rows, each as the bytes of a `tf.train.Example`."""
    every = (row for block in Clicks(seed).blocks() for row in zip(*(column.tolist() for column in block), strict=True))
    for row in itertools.islice(every, rows):
        yield serialize(*row)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--output", required=True, metavar="DIR", help="folder for the shards; made if need be")
    parser.add_argument("--rows", type=int, default=200_000, help="of all shards together (default: %(default)s)")
    parser.add_argument("--shards", type=int, default=4, help="the last is kept aside (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="0 or more (default: %(default)s)")
    args = parser.parse_args(argv)
    try:
        if args.rows < 1 or args.seed < 0:
            raise ValueError(f"wanted 1 row or more and a seed of 0 or more, not {args.rows} and {args.seed}")
        written = write_shards(serialized(args.rows, args.seed), args.output, args.shards)
    except (OSError, ValueError) as error:
        print(f"make_rows: {error}", file=sys.stderr)
        return 1
    for path, rows in written:
        print(f"{path}: {rows} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
