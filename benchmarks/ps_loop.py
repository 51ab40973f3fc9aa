"""Examples per second of parameter-server training: a loop that waits for each step, and one that does not.

One job of `entrypoint local` with DeepFM (examples/deepfm): a parameter server, a chief and two workers, as processes.
In it, in turns, from fresh weights each time, for the same number of rows:

    waits, metrics   as common TF2 examples have it: one step per `schedule`, `fetch` of its loss, two Keras metrics
                     in each step, read every ten steps
    waits            the same without metrics
    hands out        what examples/deepfm/train.py does: several steps per `schedule`, none waited for until the end

Prints Markdown; --json FILE keeps the raw figures. The rows are TFRecord files as examples/deepfm/libsvm_to_tfrecord.py
makes them; the last one is evaluated on.

    python benchmarks/ps_loop.py --data data/training
"""

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DEEPFM = Path(__file__).resolve().parents[1] / "examples" / "deepfm"
LOOPS = ("waits, metrics", "waits", "hands out")


# --- the job: runs on its chief ---


def measure() -> None:
    import tensorflow as tf
    import train

    import data

    parser = argparse.ArgumentParser()
    for name in ("--rounds", "--epochs", "--batch_size", "--steps_per_call"):
        parser.add_argument(name, type=int)
    args, _ = parser.parse_known_args()
    training, evaluation = data.split()
    steps = args.epochs * -(-data.count(training) // args.batch_size)

    strategy = train.parameter_servers()
    with strategy.scope():
        model = train.compiled(0.1)
        metrics = [tf.keras.metrics.MeanAbsoluteError(), tf.keras.metrics.MeanSquaredError()]
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    dataset = coordinator.create_per_worker_dataset(
        lambda: data.shuffled_batches(training, args.batch_size, passes=None)
    )
    batches, take_steps = iter(dataset), train.steps_on_a_worker(strategy, model)

    @tf.function
    def one_step(batches):
        return strategy.run(train.step, args=(model, next(batches)))

    @tf.function
    def one_step_with_metrics(batches):
        def step(batch):  # train.step, and the metrics of what it has predicted
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
        train.hand_out(coordinator, take_steps, batches, steps, args.steps_per_call)

    loops = dict(zip(LOOPS, (waits_and_measures, waits, hands_out), strict=True))
    for loop in loops.values():
        loop(2 * args.steps_per_call)  # traces its function, on both workers
    for number in range(args.rounds):
        for name, loop in loops.items():
            here = train.compiled(0.1)
            train.send(here, model)
            began = time.monotonic()
            loop(steps)
            seconds = time.monotonic() - began
            train.fetch(model, here)
            auc, _ = train.evaluate(here, evaluation)
            figures = {"round": number, "loop": name, "rows": steps * args.batch_size, "seconds": seconds, "auc": auc}
            print("MEASURED", json.dumps(figures | {"load": os.getloadavg()[0]}), flush=True)


# --- the command ---


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, metavar="DIR", help="folder of TFRecord files, two at least"
    )
    parser.add_argument("--rounds", type=int, default=7, help="of all three loops in turn")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps-per-call", type=int, default=25)
    parser.add_argument("--json", type=Path, help="file for the raw figures")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ps-loop-") as folder:
        code = shutil.copytree(DEEPFM, Path(folder) / "code", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(__file__, code)
        passed = [f"{name}={getattr(args, name)}" for name in ("rounds", "epochs", "batch_size", "steps_per_call")]
        command = [sys.executable, "-m", "entrypoint", "local", str(code / Path(__file__).name), "--hosts", "3"]
        command += ["--mode", "ps", "--channel", f"training={args.data.resolve()}", "--output", f"{folder}/out"]
        command += ["--hyperparameters", "sagemaker_entrypoint_ps_workers=server", "sagemaker_entrypoint_ps_count=1"]
        log = subprocess.run([*command, *passed], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    runs = [json.loads(found) for found in re.findall(r"MEASURED (\{.*\})", log.stdout)]
    if log.returncode or len(runs) != args.rounds * len(LOOPS):
        raise SystemExit(f"{log.stdout}\nps_loop: the job ended with exit code {log.returncode} after {len(runs)} runs")
    loads = [run["load"] for run in runs]
    print(
        f"{os.cpu_count()} cores, {platform.system()} {platform.release()}; 1 parameter server, 2 workers; batches of "
        f"{args.batch_size}, {args.steps_per_call} steps per call; {args.rounds} rounds of {runs[0]['rows']} rows; "
        f"load {min(loads):.1f} to {max(loads):.1f}; medians (least to most)\n"
    )
    print("| loop | rows per second | times the first | AUC |\n|---|---|---|---|")
    speeds = {name: [run["rows"] / run["seconds"] for run in runs if run["loop"] == name] for name in LOOPS}
    for name in LOOPS:
        times = [mine / first for mine, first in zip(speeds[name], speeds[LOOPS[0]], strict=True)]
        aucs = [run["auc"] for run in runs if run["loop"] == name]
        print(f"| {name} | {spread(speeds[name], '.0f')} | {spread(times, '.2f')} | {spread(aucs, '.4f')} |")
    second = [mine / theirs for mine, theirs in zip(speeds["hands out"], speeds["waits"], strict=True)]
    print(f"\n'hands out' against 'waits': {spread(second, '.2f')} times")
    if args.json:
        args.json.write_text(json.dumps(runs, indent=1))


def spread(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}}-{max(values):{form}})"


if __name__ == "__main__":
    measure() if "TF_CONFIG" in os.environ else main()
