"""Measure how ResNet-50 scales from one rank to four, with gradients sent in different ways: examples/resnet on noise.

Two containers with two ranks each, by `entrypoint local`; needs Docker and the image (./build.sh). Each job measures
one rank, two ranks of one host, and four of both, and prints its own table; this gathers them. The jobs run in turn,
`--rounds` times, and the median of the rounds is shown. On two processors a job takes two to three minutes, and all
four in three rounds half an hour; `--ways` and `--rounds` make it less.

    python -m benchmarks.resnet --rounds 3 --json resnet.json
    python -m benchmarks.resnet --rounds 1 --ways "as it comes"
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import machine

TRAIN = Path(__file__).resolve().parents[1] / "examples/resnet/train.py"
WAYS = {
    "as it comes": {},
    "fp16": {"compression": "fp16"},
    "no fusion": {"fusion-threshold-mb": "0"},
    "8 groups, fp16": {"compression": "fp16", "groups": "8"},
}
# Of a table: ranks, hosts, step in ms, (fastest-slowest rank), images per second of each.
ROW = re.compile(r"resnet: +(\d+) +(\d+) +([\d.]+) +\([\d.]+-[\d.]+\) +([\d.]+) +[\d.]+ +\d+%")


def one_run(arguments: argparse.Namespace, way: dict[str, str]) -> dict[int, float]:
    """Return {ranks: median step in seconds}."""
    hyperparameters = {
        "synthetic": "true", "image-size": arguments.image_size, "batch-size": arguments.batch_size,
        "steps": arguments.steps, "skip-steps": 2, "cycle-time-ms": arguments.cycle_time_ms, **way,
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="bench-resnet-") as output:
        result = machine.run_gently(
            [
                sys.executable, "-m", "entrypoint", "local", str(TRAIN), "--hosts", "2", "--mode", "mpi",
                "--processes-per-host", "2", "--engine", "docker", "--image", arguments.image, "--output", output,
                "--hyperparameters", *(f"{name}={value}" for name, value in hyperparameters.items()),
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    rows = {int(ranks): float(step) / 1000 for ranks, _, step, _ in ROW.findall(result.stdout)}
    if result.returncode or sorted(rows) != [1, 2, 4]:
        raise SystemExit(f"exit code {result.returncode}, rows for {sorted(rows)} ranks:\n{result.stdout}")
    return rows


def main() -> None:
    parser = machine.parser(__doc__, rounds=3)
    parser.add_argument("--image", default="sagemaker-tf-entrypoint:latest")
    parser.add_argument("--steps", type=int, default=6, help="measured in each run, after 2 that are not")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--cycle-time-ms", type=float, default=10, help="of Horovod")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    arguments = parser.parse_args()
    sizes = {name: getattr(arguments, name) for name in ("steps", "image_size", "batch_size", "cycle_time_ms")}
    record = machine.head("resnet", limits=sizes)
    for number in range(arguments.rounds):
        for way in arguments.ways:
            for ranks, step in one_run(arguments, WAYS[way]).items():
                measures = {"step_s": step, "images_per_s": ranks * arguments.batch_size / step}
                run = {"gradients": way, "ranks": ranks, "round": number + 1, "load": machine.load()}
                machine.add(record, {**run, "measures": measures}, arguments.json)
    print(
        f"{machine.here(record)}; ResNet-50, "
        f"{arguments.batch_size} images of {arguments.image_size} x {arguments.image_size} per rank and step; "
        f"{arguments.rounds} rounds of {arguments.steps} steps\n"
    )
    print("\n".join(table(record["runs"])))


def table(runs: list[dict[str, Any]]) -> list[str]:
    lines = ["| gradients | ranks | step, median (least-most) s | images/s in all | against 1 rank |"]
    lines.append("|---|---|---|---|---|")
    by_case: dict[tuple[str, int], list[dict[str, float]]] = {}
    for run in runs:
        by_case.setdefault((run["gradients"], run["ranks"]), []).append(run["measures"])
    for (way, ranks), mine in by_case.items():
        steps = [each["step_s"] for each in mine]
        speed = statistics.median(each["images_per_s"] for each in mine)
        alone = statistics.median(each["images_per_s"] for each in by_case[way, 1])
        lines.append(f"| {way} | {ranks} | {machine.spread(steps, '.2f')} | {speed:.1f} | {speed / alone:.2f} times |")
    return lines


if __name__ == "__main__":
    main()
