"""Compute the learning rate."""

import math


def learning_rate(epochs, args, ranks):
    """Return the learning rate after so many epochs, which need not be whole.

    From that of one rank to that of all in the warm-up, then down: to a tenth after 1/3, 2/3 and 8/9 of all epochs (30,
    60 and 80 of 90), or along a cosine to zero.
    """
    one = args.learning_rate * args.batch_size / 256
    full = one * ranks
    if epochs < args.warmup_epochs:
        return one + (full - one) * epochs / args.warmup_epochs
    if args.schedule == "cosine":
        return full * 0.5 * (1 + math.cos(math.pi * (epochs - args.warmup_epochs) / (args.epochs - args.warmup_epochs)))
    return full * 0.1 ** sum(epochs >= args.epochs * part for part in (1 / 3, 2 / 3, 8 / 9))
