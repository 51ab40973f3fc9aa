"""Compute the learning rate."""

import math


def learning_rate(epochs, args, ranks):
    """Return the learning rate after so many epochs, which need not be whole.

    From a tenth of that of one rank to that of all in the warm-up; then a tenth after 2/3 and again after 8/9 of all
    epochs, as COCO's schedules have it, or along a cosine to zero. SGD steps in proportion to the images of a step,
    Adam by their square root: it divides by how large gradients are, and only their noise falls with more images.
    """
    one = args.learning_rate * growth(args.batch_size / 8, args)
    full = args.learning_rate * growth(args.batch_size * ranks / 8, args)
    if epochs < args.warmup_epochs:
        return one / 10 + (full - one / 10) * epochs / args.warmup_epochs
    if args.schedule == "cosine":
        left = (args.epochs - epochs) / max(args.epochs - args.warmup_epochs, 1e-9)
        return full * 0.5 * (1 - math.cos(math.pi * left))
    return full * 0.1 ** sum(epochs >= args.epochs * part for part in (2 / 3, 8 / 9))


def growth(ratio, args):
    return math.sqrt(ratio) if args.optimizer == "adam" else ratio
