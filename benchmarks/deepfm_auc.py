"""Measure what DeepFM (examples/deepfm) learns beyond a logistic regression, by parameter servers and by Horovod.

Each round makes rows with its own seed (examples/deepfm/make_rows.py), in which pairs of categories carry what neither
carries by itself. The last file is kept aside; on the others are trained

    logistic    scikit-learn's logistic regression, with a column for each category and the same logarithms
                of the counts; a fifth of the training rows decides how much its weights are penalized
    ps          DeepFM in a job of `entrypoint local` with a chief, workers and parameter servers
    mpi         DeepFM in a job of `entrypoint local` with Horovod

and `truth` are the probabilities with which the clicks were drawn. Prints the areas under the ROC curve as Markdown.
Exit status 1 if in any round DeepFM does not beat the logistic regression by --least, in each way.

    python -m benchmarks.deepfm_auc --json deepfm-auc.json                                    # needs the image
    python -m benchmarks.deepfm_auc --engine process --modes ps --rows 40000 --seeds 1        # no Docker, a minute
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.deepfm_job import DEEPFM, Job, rows_of, run_job

SOFTNESS = (0.003, 0.01, 0.03, 0.1, 0.3)  # scikit-learn's C: weights are penalized by its inverse

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # labels, ids, values
Run = dict[str, Any]


def main() -> None:
    parser = machine.parser(__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="a quarter of them is kept aside")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="of the rows, one for each round")
    parser.add_argument("--modes", nargs="+", default=["ps", "mpi"], choices=["ps", "mpi", "single"])
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--engine", default="docker", help="of entrypoint local; Horovod is in the image only")
    parser.add_argument("--image", help="for --engine docker")
    parser.add_argument("--least", type=float, default=0.02, help="by which DeepFM is to be better")
    args = parser.parse_args()
    record = machine.head("deepfm-auc", limits={"rows": args.rows, "hosts": args.hosts, "least": args.least})
    for seed in args.seeds:
        for run in one_round(args, seed):
            machine.add(record, {"seed": seed, "load": machine.load(), **run}, args.json)
    print(f"{machine.cpus()} CPUs, {args.rows} rows, {args.hosts} hosts, engine {args.engine}, seeds {args.seeds}\n")
    print("\n".join(table(record["runs"])))
    worst = min(gain for mode in args.modes for gain in gains(record["runs"], mode))
    if worst < args.least:
        raise SystemExit(f"deepfm_auc: better than the logistic regression by {worst:.4f}, wanted {args.least}")


def one_round(args: argparse.Namespace, seed: int) -> Iterator[Run]:
    with rows_of(seed, args.rows) as data:
        *training, last = sorted(data.iterdir())
        aside = read([last])
        yield truth(seed, aside)
        yield logistic(read(training), aside)
        for mode in args.modes:
            yield deepfm(args, mode, data)


def read(files: list[Path]) -> Rows:
    import tensorflow as tf

    import data

    whole = tf.data.TFRecordDataset(list(map(str, files))).batch(1_000_000)
    row = tf.io.parse_example(next(iter(whole)), data.columns())
    return row["label"].numpy(), row["ids"].numpy(), row["values"].numpy()


def truth(seed: int, rows: Rows) -> Run:
    import make_rows

    labels, ids, values = rows
    return {"way": "truth", "auc": area(labels, make_rows.Clicks(seed).logits(ids, values))}


def logistic(training: Rows, aside: Rows) -> Run:
    """Fit to all rows, with the C that is best for the last fifth of them after a fit to the others."""
    from sklearn.linear_model import LogisticRegression

    def fitted(c: float, rows: slice) -> LogisticRegression:
        return LogisticRegression(C=c, max_iter=1000).fit(inputs[rows], labels[rows])

    began = time.monotonic()
    labels, inputs = training[0], columns(training)
    most = 4 * len(labels) // 5
    tried = {c: area(labels[most:], fitted(c, slice(most)).decision_function(inputs[most:])) for c in SOFTNESS}
    best = max(tried, key=tried.__getitem__)
    auc = area(aside[0], fitted(best, slice(None)).decision_function(columns(aside)))
    return {"way": "logistic", "auc": auc, "C": best, "wall_s": round(time.monotonic() - began, 1)}


def columns(rows: Rows) -> Any:
    """Return a column for every id: the logarithm of a count, 1 for a category."""
    import scipy.sparse

    import data
    import model

    _, ids, values = rows
    damped = model.Damp()(values).numpy()
    ends = np.arange(0, ids.size + 1, data.FIELDS)
    return scipy.sparse.csr_matrix((damped.ravel(), ids.ravel(), ends), shape=(len(ids), data.FEATURES))


def area(labels: np.ndarray, scores: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    return round(float(roc_auc_score(labels, scores)), 4)


def deepfm(args: argparse.Namespace, mode: str, data: Path) -> Run:
    """Run one job, with the example's own settings."""
    measures = run_job(Job(mode=mode, hosts=args.hosts), data, args.rows, args.engine, args.image)
    return {"way": mode, "auc": measures["auc"], "wall_s": measures["wall_s"]}


def table(runs: list[Run]) -> list[str]:
    lines = ["| | AUC, median (each) | better than logistic, median (least to most) |", "|---|---|---|"]
    for way in dict.fromkeys(run["way"] for run in runs):
        aucs, better = areas(runs, way), gains(runs, way)
        cells = [f"{statistics.median(aucs):.3f} ({' '.join(f'{auc:.3f}' for auc in aucs)})"]
        cells += ["" if way == "logistic" else f"{statistics.median(better):.3f} ({min(better):.3f}-{max(better):.3f})"]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return lines


def areas(runs: list[Run], way: str) -> list[float]:
    return [run["auc"] for run in runs if run["way"] == way]


def gains(runs: list[Run], way: str) -> list[float]:
    """Return the gains over the logistic regression on the same rows, round by round."""
    return [mine - other for mine, other in zip(areas(runs, way), areas(runs, "logistic"), strict=True)]


if __name__ == "__main__":
    sys.path.insert(0, str(DEEPFM))  # where data.py, model.py and make_rows.py are
    main()
