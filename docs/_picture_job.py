"""Train a softmax regression on four ranks, of which the third waits for its data: the job of docs/_picture.py."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

from sagemaker_tf_data import mark, timed

WORLD = MPI.COMM_WORLD
READING_SECONDS = 0.30 if WORLD.rank == 2 else 0.04
STEP_SECONDS, EVALUATION_SECONDS, CHECKPOINT_SECONDS = 0.05, 1.2, 0.8
RATE = 0.3


def batches(count: int) -> Iterator[tuple[Any, Any]]:
    truth, random = np.random.default_rng(99).normal(size=(64, 10)), np.random.default_rng(WORLD.rank)
    for _ in range(count):
        time.sleep(READING_SECONDS)
        rows = random.normal(size=(256, 64))
        yield rows, (rows @ truth + random.normal(size=(256, 10))).argmax(1)


def mean(values: Any) -> Any:
    """Return the mean over all ranks; MPI itself would keep a CPU busy while it waits."""
    total = np.empty_like(values)
    request = WORLD.Iallreduce(values, total)
    while not request.Test():
        time.sleep(0.004)
    return total / WORLD.size


def main() -> None:
    weights, step = np.zeros((64, 10)), 0
    for _ in range(4):
        for rows, labels in timed(batches(40)):
            step += 1
            scores = np.exp(rows @ weights - (rows @ weights).max(1, keepdims=True))
            shares, of_labels = scores / scores.sum(1, keepdims=True), (np.arange(len(labels)), labels)
            loss, accuracy = -np.log(shares[of_labels]).mean(), (shares.argmax(1) == labels).mean()
            shares[of_labels] -= 1
            weights -= RATE * mean(rows.T @ shares / len(rows))
            time.sleep(STEP_SECONDS)
            print(f"step={step} loss={loss:.4f} accuracy={accuracy:.4f}", flush=True)
        with mark("evaluation"):
            time.sleep(EVALUATION_SECONDS)
        with mark("checkpoint"):
            time.sleep(CHECKPOINT_SECONDS)


if __name__ == "__main__":
    main()
