"""Measure how fast and how well DeepFM (examples/deepfm) trains on made rows, and what its settings are worth.

    scaling          examples per second and AUC, by parameter servers with 1 to 4 workers and by Horovod with 1 to 4
                     ranks, for two batch sizes
    hyperparameters  AUC of one process with the defaults, and with one of them changed: dropout, batch normalization,
                     L2, optimizer, ... Each round has rows and weights of its own

Cases of a part take turns, another one first in each round, so that other work of the machine affects all alike.
`--json` is written after every run, and `--resume` goes on from it. Wants an idle machine, and for Horovod the image.

    python -m benchmarks.deepfm --json docs/benchmarks/deepfm.json
    python -m benchmarks.deepfm --parts scaling --modes ps --engine process --rows 4000 --rounds 1    # without Docker
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.report import page

DEEPFM = machine.ROOT / "examples" / "deepfm"
SHARDS = 4  # files, of which the last is kept aside
PARTS = {"scaling": (40_000, 3), "hyperparameters": (50_000, 4)}  # rows, epochs
CHANGES: dict[str, dict[str, object]] = {  # of hyperparameters, one at a time
    "the defaults": {},
    "no dropout": {"dropout": 0},
    "dropout 0.2": {"dropout": 0.2},
    "batch normalization": {"batch-norm": "true"},
    "batch normalization, no dropout": {"batch-norm": "true", "dropout": 0},
    "no L2": {"l2-reg": 0},
    "L2 ten times as strong": {"l2-reg": 0.01},
    "Adam": {"optimizer": "adam"},
    "SGD with momentum": {"optimizer": "momentum"},
    "SGD": {"optimizer": "sgd"},
    "FTRL": {"optimizer": "ftrl"},
    "embeddings of 4": {"embedding-size": 4},
    "embeddings of 16": {"embedding-size": 16},
    "deep layers 256,128,64": {"deep-layers": "256,128,64"},
}
Case = dict[str, Any]  # what a run is of: JSON, with a name


def main() -> None:
    parser = machine.parser(__doc__, rounds=3)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--modes", nargs="+", choices=["ps", "mpi"], default=["ps", "mpi"], help="of scaling")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4], help="of scaling: workers, or ranks")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[64, 1024], help="of scaling, of each process")
    parser.add_argument("--rows", type=int, help="a quarter of them is kept aside")
    parser.add_argument("--epochs", type=int, help="the first is not timed if there are more")
    parser.add_argument("--engine", default="docker", help="of entrypoint local, for scaling; Horovod is in the image")
    parser.add_argument("--image", help="for --engine docker")
    parser.add_argument("--resume", action="store_true", help="go on from --json: what is there is not run again")
    args = parser.parse_args()
    known = args.json and args.resume and args.json.exists()
    record = json.loads(args.json.read_text()) if known else machine.head("deepfm")
    for part in args.parts:
        rows, epochs = args.rows or PARTS[part][0], args.epochs or PARTS[part][1]
        record["limits"] |= {f"{part}_rows": rows, f"{part}_epochs": epochs}
        done = {(run["part"], run["name"], run["round"]) for run in record["runs"]}
        for number in range(1, args.rounds + 1):
            turned = machine.turned(cases_of(part, args), number - 1)
            left = [case for case in turned if (part, case["name"], number) not in done]
            with rows_of(number, rows) as data:
                for case in left:
                    load, measures = machine.load(), run_job(command(part, case, epochs, data, args), case, rows)
                    run = {"part": part, **case, "round": number, "load": load, "measures": measures}
                    machine.add(record, run, args.json)
    print(page(record))


@contextmanager
def rows_of(seed: int, rows: int) -> Iterator[Path]:
    """Yield a folder with `rows` rows in four files, which exists during the block."""
    with tempfile.TemporaryDirectory(prefix="deepfm-rows-") as folder:
        maker = [sys.executable, str(DEEPFM / "make_rows.py"), "--rows", str(rows), "--seed", str(seed)]
        command = [*maker, "--shards", str(SHARDS), "--output", f"{folder}/rows"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        yield Path(folder) / "rows"


def cases_of(part: str, args: argparse.Namespace) -> list[Case]:
    """Return the cases; `mode` and `processes` are those of the job, `batch` the rows of each process's step."""
    if part == "hyperparameters":
        return [{"name": name, "mode": "single", "processes": 1, "batch": 64} for name in CHANGES]
    return [
        {"name": f"{mode} {count} {batch}", "mode": mode, "processes": count, "batch": batch, "embedding": 8}
        for batch in args.batch_sizes
        for mode in args.modes
        for count in args.processes
    ]


def command(part: str, case: Case, epochs: int, data: Path, args: argparse.Namespace) -> list[str]:
    """Return the words that run the case's job; with parameter servers, the first host is a chief alone."""
    given: dict[str, object] = {"epochs": epochs, "batch-size": case["batch"]}
    engine, hosts = "process", 1
    if part == "hyperparameters":
        given |= CHANGES[case["name"]]
    else:
        engine, hosts = args.engine, case["processes"] + (case["mode"] == "ps")
        given |= {"sagemaker_entrypoint_ps_count": 1} if case["mode"] == "ps" else {}
    words = [sys.executable, "-m", "entrypoint", "local", str(DEEPFM / "train.py"), "--mode", case["mode"]]
    words += ["--hosts", str(hosts), "--engine", engine, "--channel", f"training={data}"]
    words += ["--image", args.image] if args.image and engine == "docker" else []
    words += ["--env", "ENTRYPOINT_PS_WORKERS=server", "--hyperparameters"]
    return [*words, *(f"{name}={value}" for name, value in given.items())]


def run_job(words: list[str], case: Case, rows: int) -> dict[str, float]:
    """Return the measures: `auc` and `logloss` on the file kept aside, `examples_per_s` and `wall_s`.

    Raise SystemExit with the log if the job fails. `rows` is the number of all rows.
    """
    with tempfile.TemporaryDirectory(prefix="deepfm-job-") as output:
        began = time.monotonic()
        at = words.index("--hyperparameters")
        placed = [*words[:at], "--output", f"{output}/out", *words[at:]]
        job = machine.run_gently(placed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        seconds = time.monotonic() - began
    aside = rows // SHARDS
    progress = re.findall(r"epoch \d+/\d+ is over: .* step=(\d+) .*examples/s=(\d+)", job.stdout)
    judged = re.findall(rf"evaluation auc=([\d.]+) rows={aside} logloss=([\d.]+)", job.stdout)
    if job.returncode or not progress or len(judged) != 1:
        raise SystemExit(f"{job.stdout}\ndeepfm: {case}: exit code {job.returncode}, evaluations {judged}")
    # The job counts whole batches, and the last of a pass is smaller; with parameter servers all are whole. The median
    # is of the epochs after the first, in which functions are traced.
    counted = int(progress[0][0]) * case["batch"] * case["processes"]
    right = 1.0 if case["mode"] == "ps" else min(1.0, (rows - aside) / counted)
    rate = statistics.median(int(each) for _, each in progress[1:] or progress) * right
    auc, logloss = map(float, judged[0])
    return {"auc": auc, "logloss": logloss, "examples_per_s": round(rate, 1), "wall_s": round(seconds, 1)}


if __name__ == "__main__":
    main()
