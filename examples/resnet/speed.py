"""Measure the seconds of steps, and make the tables at the end of a run."""

import time

import numpy as np


class Stopwatch:
    """Measure each step from the end of the one before, and how much of it went by until its images were there.

    A step counts as ended when its loss is known on the host, so nothing is still in flight on a device. The first
    `skip` steps of a run are not counted: TensorFlow traces the step, the input fills its buffers.
    """

    def __init__(self, skip):
        self.skip, self.steps, self.waits = skip, [], []
        self._last = self._arrived = None

    def began(self):
        """Begin a step now: what was before (an evaluation, a checkpoint) is no part of it."""
        self._last = time.perf_counter()

    def arrived(self):
        self._arrived = time.perf_counter()

    def ended(self):
        now = time.perf_counter()
        if self.skip:
            self.skip -= 1
        else:
            self.steps.append(now - self._last)
            self.waits.append(self._arrived - self._last)
        self._last = now

    def figures(self, batch_size):
        """Return the figures of this rank, or None if no step was counted."""
        if not self.steps:
            return None
        median = float(np.median(self.steps))
        return {
            "steps": len(self.steps),
            "median": median,
            "slowest tenth": float(np.quantile(self.steps, 0.9)),
            "waiting": sum(self.waits) / sum(self.steps),
            "images per second": batch_size / median,
        }


def table_of_ranks(ranks):
    """Yield the lines of a table of ranks. `ranks` is a list of (host, figures)."""
    yield "rank  host              images/s  median ms  90% ms  waiting for images"
    for rank, (host, figures) in enumerate(ranks):
        yield (
            f"{rank:>4}  {host:<16}  {figures['images per second']:8.1f}  {1000 * figures['median']:9.1f}  "
            f"{1000 * figures['slowest tenth']:6.1f}  {figures['waiting']:17.0%}"
        )


def table_of_scaling(rows):
    """Yield the lines of a table of scaling. `rows`: (ranks, hosts, images per step, median of each rank)."""
    yield "ranks  hosts  step ms  (fastest-slowest rank)  images/s per rank  images/s in all  efficiency"
    alone = None
    for ranks, hosts, batch_size, medians in rows:
        step = float(np.median(medians))
        each = batch_size / step
        alone = alone or each
        spread = f"({1000 * min(medians):.1f}-{1000 * max(medians):.1f})"
        yield (
            f"{ranks:>5}  {hosts:>5}  {1000 * step:7.1f}  {spread:>22}  {each:17.1f}  {each * ranks:15.1f}  "
            f"{each / alone:10.0%}"
        )
