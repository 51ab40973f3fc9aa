"""How ResNet-50 scales from one rank to four, with gradients sent in different ways: examples/resnet on noise.

Two containers with two ranks each, by `entrypoint local`; Docker and the image (./build.sh) are needed. Each job
measures one rank, two ranks of one host, and four of both, and prints its own table; this gathers them. The jobs run
in turn, `--runs` times, and what is shown is the median of the runs.
"""

import argparse
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

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
    """Ranks -> median step in seconds."""
    hyperparameters = {
        "synthetic": "true", "image-size": arguments.image_size, "batch-size": arguments.batch_size,
        "steps": arguments.steps, "skip-steps": 2, "cycle-time-ms": arguments.cycle_time_ms, **way,
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="bench-resnet-") as output:
        result = subprocess.run(
            [
                sys.executable, "-m", "entrypoint", "local", str(TRAIN), "--hosts", "2", "--mode", "mpi",
                "--processes-per-host", "2", "--engine", "docker", "--image", arguments.image, "--output", output,
                "--env", "OMPI_MCA_mpi_yield_when_idle=1",
                "--hyperparameters", *(f"{name}={value}" for name, value in hyperparameters.items()),
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
    rows = {int(ranks): float(step) / 1000 for ranks, _, step, _ in ROW.findall(result.stdout)}
    if result.returncode or sorted(rows) != [1, 2, 4]:
        raise SystemExit(f"exit code {result.returncode}, rows for {sorted(rows)} ranks:\n{result.stdout}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", default="sagemaker-tf-entrypoint:latest")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="measured in each run, after 2 that are not")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--cycle-time-ms", type=float, default=10, help="of Horovod")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    arguments = parser.parse_args()
    print(
        f"{os.cpu_count()} cores, {platform.system()} {platform.release()}; ResNet-50, {arguments.batch_size} images "
        f"of {arguments.image_size} x {arguments.image_size} per rank and step; {arguments.runs} runs of "
        f"{arguments.steps} steps\n"
    )
    runs: dict[str, list[dict[int, float]]] = {way: [] for way in arguments.ways}
    for _ in range(arguments.runs):
        for way, done in runs.items():
            done.append(one_run(arguments, WAYS[way]))
    print("| gradients | ranks | step, median (least-most of the runs) s | images/s in all | against 1 rank |")
    print("|---|---|---|---|---|")
    for way, done in runs.items():
        for ranks in (1, 2, 4):
            steps = [run[ranks] for run in done]
            step, alone = statistics.median(steps), statistics.median(run[1] for run in done)
            print(
                f"| {way} | {ranks} | {step:.2f} ({min(steps):.2f}-{max(steps):.2f}) "
                f"| {ranks * arguments.batch_size / step:.1f} | {ranks * alone / step:.2f} times |"
            )


if __name__ == "__main__":
    main()
