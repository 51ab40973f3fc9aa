"""Measure examples per second of parameter-server training: a loop that waits for each step, and one that does not.

One job of `entrypoint local` for each number of workers, as processes: DeepFM (examples/deepfm), a parameter server, a
chief. In it, in turns, from fresh weights each time, for the same number of rows:

    waits, metrics   as common TF2 examples have it: one step per `schedule`, `fetch` of its loss, two Keras metrics
                     in each step, read every ten steps
    waits            the same without metrics
    hands out        what examples/deepfm/train.py does: several steps per `schedule`, none waited for until the end

Prints Markdown. The rows are TFRecord files as examples/deepfm/make_rows.py makes them; the last one is
evaluated on.

    python -m benchmarks.ps_loop --data data/training --workers 2 3 4 --json ps-loop.json
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

DEEPFM = Path(__file__).resolve().parents[1] / "examples" / "deepfm"
LOOPS = ("waits, metrics", "waits", "hands out")


# --- the job: runs on its chief ---


def measure() -> None:
    import tensorflow as tf

    import data
    import parameter_servers as ways
    from model import compiled, predictor
    from settings import parse_args
    from tasks import evaluate

    parser = argparse.ArgumentParser()
    for name in ("--rounds", "--epochs", "--batch_size", "--steps_per_call"):
        parser.add_argument(name, type=int)
    args, _ = parser.parse_known_args()
    example = parse_args([])  # the example's own settings
    training, evaluation = data.split()
    steps = args.epochs * -(-data.count(training) // args.batch_size)

    strategy = ways.parameter_servers()
    with strategy.scope():
        model = compiled(example)
        metrics = [tf.keras.metrics.MeanAbsoluteError(), tf.keras.metrics.MeanSquaredError()]
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    dataset = coordinator.create_per_worker_dataset(
        lambda: data.shuffled_batches(training, args.batch_size, passes=None)
    )
    batches, take_steps = iter(dataset), ways.steps_on_a_worker(strategy, model)

    @tf.function
    def one_step(batches):
        return strategy.run(ways.step, args=(model, next(batches)))

    @tf.function
    def one_step_with_metrics(batches):
        def step(batch):  # ways.step, and the metrics of what it has predicted
            features, labels = batch
            with tf.GradientTape() as tape:
                clicks = model(features, training=True)[:, 0]
                loss = tf.keras.losses.binary_crossentropy(labels, clicks) + tf.add_n(model.losses)
            variables = model.trainable_variables
            model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            for metric in metrics:
                metric.update_state(labels, clicks)
            return loss

        return strategy.run(step, args=(next(batches),))

    def waits(steps):
        for _ in range(steps):
            coordinator.schedule(one_step, args=(batches,)).fetch()

    def waits_and_measures(steps):
        for number in range(steps):
            coordinator.schedule(one_step_with_metrics, args=(batches,)).fetch()
            if number % 10 == 0:
                [metric.result().numpy() for metric in metrics]

    def hands_out(steps):
        ways.hand_out(coordinator, take_steps, batches, steps, args.steps_per_call)

    loops = dict(zip(LOOPS, (waits_and_measures, waits, hands_out), strict=True))
    workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
    for loop in loops.values():
        loop(2 * workers * args.steps_per_call)  # a first call for every worker, which takes seconds
    for number in range(args.rounds):
        for name, loop in loops.items():
            here = compiled(example)
            ways.send(here, model)
            began = time.monotonic()
            loop(steps)
            seconds = time.monotonic() - began
            ways.fetch(model, here)
            auc, *_ = evaluate(predictor(here), evaluation)
            rows = steps * args.batch_size
            measures = {"rows_per_s": rows / seconds, "wall_s": seconds, "auc": auc}
            run = {"round": number + 1, "loop": name, "rows": rows, "load": os.getloadavg()[0], "measures": measures}
            print("MEASURED", json.dumps(run), flush=True)


# --- the command ---


def main() -> None:
    from benchmarks import machine  # not on the job's chief, which has this file only

    parser = machine.parser(__doc__, rounds=5, counted="of all three loops in turn")
    parser.add_argument(
        "--data", type=Path, required=True, metavar="DIR", help="folder of TFRecord files, two at least"
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps-per-call", type=int, default=25)
    args = parser.parse_args()
    record = machine.head("ps-loop", limits={"batch_size": args.batch_size, "steps_per_call": args.steps_per_call})
    for workers in args.workers:
        record["runs"] += one_job(args, workers)
        if args.json:
            machine.write(args.json, record)
    loads = [run["load"] for run in record["runs"]]
    print(
        f"{machine.cpus()} CPUs, {record['machine']['kernel']}; 1 parameter server; batches of {args.batch_size}, "
        f"{args.steps_per_call} steps per call; {args.rounds} rounds of {record['runs'][0]['rows']} rows; load "
        f"{min(loads):.1f} to {max(loads):.1f}; median (least to most)\n"
    )
    print("\n".join(table(record["runs"])))


def one_job(args: argparse.Namespace, workers: int) -> list[dict[str, Any]]:
    from benchmarks import machine

    with tempfile.TemporaryDirectory(prefix="ps-loop-") as folder:
        code = shutil.copytree(DEEPFM, Path(folder) / "code", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(__file__, code)
        passed = [f"{name}={getattr(args, name)}" for name in ("rounds", "epochs", "batch_size", "steps_per_call")]
        command = [sys.executable, "-m", "entrypoint", "local", str(code / Path(__file__).name), "--mode", "ps"]
        command += ["--hosts", str(1 + workers), "--output", f"{folder}/out"]
        command += ["--channel", f"training={args.data.resolve()}"]
        command += ["--hyperparameters", "sagemaker_entrypoint_ps_workers=server", "sagemaker_entrypoint_ps_count=1"]
        log = machine.run_gently([*command, *passed], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    runs = [{"workers": workers, **json.loads(found)} for found in re.findall(r"MEASURED (\{.*\})", log.stdout)]
    if log.returncode or len(runs) != args.rounds * len(LOOPS):
        raise SystemExit(f"{log.stdout}\nps_loop: the job ended with exit code {log.returncode} after {len(runs)} runs")
    return runs


def table(runs: list[dict[str, Any]]) -> list[str]:
    from benchmarks.machine import spread

    lines = ["| workers | loop | rows per second | times the first | times the second | AUC |"]
    lines.append("|---|---|---|---|---|---|")
    for workers in sorted({run["workers"] for run in runs}):
        of_loop = {
            name: [run["measures"] for run in runs if (run["workers"], run["loop"]) == (workers, name)]
            for name in LOOPS
        }
        for name, mine in of_loop.items():
            speeds, aucs = ([each[measure] for each in mine] for measure in ("rows_per_s", "auc"))
            first, second = (times(mine, of_loop[other]) for other in LOOPS[:2])
            cells = [spread(speeds, ".0f"), spread(first, ".2f"), spread(second, ".2f"), spread(aucs, ".4f")]
            lines.append(f"| {workers} | {name} | {' | '.join(cells)} |")
    return lines


def times(mine: list[dict[str, float]], others: list[dict[str, float]]) -> list[float]:
    """Return how much faster it is, round by round."""
    return [each["rows_per_s"] / other["rows_per_s"] for each, other in zip(mine, others, strict=True)]


if __name__ == "__main__":
    measure() if "TF_CONFIG" in os.environ else main()
