"""Measure examples per second of two Horovod ranks on one host, with and without the launcher's thread settings.

Needs Docker and the image (./build.sh). One container is one host; its ranks train DeepFM, or ResNet-50 on small
images, on data that is made up in memory, so that only computing is measured. Variants take turns, so that other work
of the machine affects all alike:

    ours               ENTRYPOINT_THREADS=auto: CPUs are divided among the ranks, and a rank that waits yields its CPU
    ours, spinning     the same, but a rank that waits keeps asking, as Open MPI does by itself
    each all           ENTRYPOINT_THREADS=off: each rank starts as many threads as there are CPUs, as TensorFlow does by
                       itself, and spins
    each all, yielding the same, but a rank that waits yields
    each 32            as without settings in a container that may use as much CPU time as here, of a machine with 32

Prints a Markdown table.

    python -m benchmarks.threads --rounds 5 --json threads.json
"""

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.docker import write_config
from benchmarks.machine import spread

ROOT = Path(__file__).resolve().parent.parent
MANY = "32"
YIELD = "OMPI_MCA_mpi_yield_when_idle"
VARIANTS = {
    "ours": {"ENTRYPOINT_THREADS": "auto"},
    "ours, spinning": {"ENTRYPOINT_THREADS": "auto", YIELD: "0"},
    "each all": {"ENTRYPOINT_THREADS": "off"},
    "each all, yielding": {"ENTRYPOINT_THREADS": "off", YIELD: "1"},
    f"each {MANY}": {
        "TF_NUM_INTRAOP_THREADS": MANY,
        "TF_NUM_INTEROP_THREADS": MANY,
        "OMP_NUM_THREADS": MANY,
        YIELD: "0",
    },
}
PROGRAM = """
import argparse, resource, time
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--model")
parser.add_argument("--seconds", type=float)
args, _ = parser.parse_known_args()
hvd.init()
draw = np.random.default_rng(hvd.rank())
if args.model == "deepfm":
    from data import FEATURES, FIELDS
    from model import deepfm
    model, rows = deepfm(), 1024
    batch = {
        "ids": tf.constant(draw.zipf(1.2, (rows, FIELDS)) % FEATURES),
        "values": tf.constant(draw.random((rows, FIELDS), dtype=np.float32)),
    }
    labels = tf.constant(draw.integers(0, 2, (rows, 1)))
    loss = tf.keras.losses.BinaryCrossentropy()
else:
    rows = 8
    model = tf.keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10)
    batch = tf.constant(draw.random((rows, 64, 64, 3), dtype=np.float32))
    labels = tf.constant(draw.integers(0, 10, rows))
    loss = tf.keras.losses.SparseCategoricalCrossentropy()
optimizer = tf.keras.optimizers.legacy.SGD(0.001)

@tf.function
def step():
    with tf.GradientTape() as tape:
        value = loss(labels, model(batch, training=True))
    tape = hvd.DistributedGradientTape(tape, sparse_as_dense=False)
    gradients = tape.gradient(value, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return value

def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

def run(steps):
    began = time.perf_counter()
    for _ in range(steps):
        step()
    hvd.allreduce(tf.zeros(1))
    return time.perf_counter() - began

run(2)
steps = int(hvd.broadcast(tf.constant(max(4, int(2 * args.seconds / run(2)))), 0))
used = cpu()
seconds = run(steps)
used = float(hvd.allreduce(tf.constant(cpu() - used, tf.float64), op=hvd.Sum))
if hvd.rank() == 0:
    examples = steps * rows * hvd.size()
    print(f"BENCH {examples / seconds:.3f} {1000 * used / examples:.6f}", flush=True)
"""


def one_run(image: str, model: str, variant: str, ranks: int, cpus: float | None, seconds: float) -> dict[str, float]:
    """Return examples per second of all ranks, and CPU time for each example."""
    with tempfile.TemporaryDirectory(prefix="bench-threads-") as folder:
        (code := Path(folder, "code")).mkdir()
        for name in ("data.py", "model.py", "settings.py"):
            (code / name).write_bytes((ROOT / "examples" / "deepfm" / name).read_bytes())
        (code / "train.py").write_text(PROGRAM)
        hyperparameters = {
            "sagemaker_mpi_enabled": "true",
            "sagemaker_mpi_num_of_processes_per_host": str(ranks),
            "model": model,
            "seconds": str(seconds),
        }
        write_config(Path(folder), "algo-1", ["algo-1"], hyperparameters)
        command = ["docker", "run", "--rm", "-v", f"{folder}/input:/opt/ml/input", "-v", f"{code}:/opt/ml/code"]
        command += ["--cpus", str(cpus)] if cpus else []
        for key, value in {**VARIANTS[variant], "TF_CPP_MIN_LOG_LEVEL": "2"}.items():
            command += ["-e", f"{key}={value}"]
        result = subprocess.run([*command, image, "train"], capture_output=True, text=True)
    if not (found := re.findall(r"BENCH ([\d.]+) ([\d.]+)", result.stdout)):
        raise SystemExit(f"{model}, {variant}: exit code {result.returncode}\n{result.stdout}\n{result.stderr}")
    rate, milliseconds = map(float, found[0])
    return {"examples_per_s": rate, "cpu_us_per_example": 1000 * milliseconds}


def main() -> None:
    parser = machine.parser(__doc__, rounds=5, counted="counted runs of each variant")
    parser.add_argument("--image", default="sagemaker-tf-entrypoint:latest")
    parser.add_argument("--model", choices=["deepfm", "resnet50"], nargs="+", default=["deepfm", "resnet50"])
    parser.add_argument("--variants", choices=VARIANTS, nargs="+", default=list(VARIANTS))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--cpus", type=float, help="quota of the container, in CPUs; default: none")
    parser.add_argument("--seconds", type=float, default=8, help="measured in each run, about")
    args = parser.parse_args()
    record = machine.head("threads", limits={"ranks": args.ranks, "quota": args.cpus, "seconds": args.seconds})
    for model in args.model:
        for number in range(args.rounds):
            for variant in machine.turned(args.variants, number):
                measures = one_run(args.image, model, variant, args.ranks, args.cpus, args.seconds)
                run = {"model": model, "variant": variant, "round": number + 1, "load": machine.load()}
                machine.add(record, {**run, "measures": measures}, args.json)
    print(f"{machine.here(record)}; median (least-most)\n")
    print("\n".join(table(record["runs"])))


def table(runs: list[dict[str, Any]]) -> list[str]:
    lines = ["| model | variant | runs | examples/s | ours to this, by round | CPU time of an example, µs |"]
    lines.append("|---|---|---|---|---|---|")
    by_case: dict[tuple[str, str], list[dict[str, float]]] = {}
    for run in sorted(runs, key=lambda run: run["round"]):
        by_case.setdefault((run["model"], run["variant"]), []).append(run["measures"])
    for (model, variant), mine in by_case.items():
        rates, costs = ([each[measure] for each in mine] for measure in ("examples_per_s", "cpu_us_per_example"))
        ours = [each["examples_per_s"] for each in by_case.get((model, "ours"), [])]
        ratios = [our / other for our, other in zip(ours, rates, strict=True)] if ours and variant != "ours" else []
        cells = [str(len(mine)), spread(rates, ".0f"), spread(ratios, ".2f") if ratios else "", spread(costs, ".1f")]
        lines.append(f"| {model} | {variant} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    main()
