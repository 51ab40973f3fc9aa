"""Kill jobs of DeepFM (examples/deepfm) at random moments, and check what the next job resumes from.

A story is one training: jobs of `entrypoint local` on the same folder of checkpoints, each killed with all that it has
started (SIGKILL), until one of them comes to the end. --seed draws the moments: half of the kills (--at-checkpoints)
come at the first file of a checkpoint that is written after a random moment, the others at that moment. Stories begin
until there were --kills of them. Exit status 1 if

    a job goes on from an earlier epoch than one that the log has reported as over,
    a job fails by itself, or the last of a story has not taken as many steps as a job that nobody has killed.

Prints the area under the ROC curve of each story and of as many trainings that nobody has killed. The rows are TFRecord
files as examples/deepfm/make_rows.py makes them; without --data it makes some.

    python benchmarks/kills.py --mode ps --data data/training
    python -m benchmarks.kills --mode ps --json kills.json
    python -m benchmarks.kills --mode mpi --engine docker --json kills.json --add
"""

import argparse
import contextlib
import json
import os
import queue
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

DEEPFM = Path(__file__).resolve().parents[1] / "examples" / "deepfm"
PS = ["sagemaker_entrypoint_ps_workers=server"]
PATIENCE = 300.0  # seconds for a job
ROWS = 10_000


@dataclass
class Job:
    """What one job printed, from start to end."""

    killed: bool = False
    while_writing: bool = False
    exit_code: int | None = None
    began: float = 0.0  # when training began
    seconds: float = 0.0  # from there to the end of the last epoch
    first_step: int = 0
    resumed: int = 0  # behind this epoch
    over: int = 0  # the last epoch that is over
    step: int = 0
    auc: float | None = None
    log: list[str] = field(default_factory=list)

    def hear(self, line: str) -> None:
        self.log.append(line)
        if found := re.search(r"training begins at step (\d+)(?:: resumed behind epoch (\d+))?", line):
            self.began, self.first_step, self.resumed = time.monotonic(), int(found[1]), int(found[2] or 0)
            self.over = self.resumed
        elif found := re.search(r"epoch (\d+)/\d+ is over: .* step=(\d+)", line):
            self.over, self.step, self.seconds = int(found[1]), int(found[2]), time.monotonic() - self.began
        elif found := re.search(r"evaluation auc=([\d.]+)", line):
            self.auc = float(found[1])


def run(
    args: argparse.Namespace,
    checkpoints: Path,
    kill_after: float | None = None,
    while_writing: bool = False,
    over: int = 0,
) -> Job:
    """Run a job, and kill it so many seconds after its training began, or at the next checkpoint after that."""
    mark = f"KILLS={uuid.uuid4().hex}"
    with tempfile.TemporaryDirectory(prefix="kills-") as output:
        command = [sys.executable, "-m", "entrypoint", "local", str(DEEPFM / "train.py"), "--mode", args.mode]
        command += ["--hosts", str(args.hosts), "--engine", args.engine, "--channel", f"training={args.data.resolve()}"]
        command += ["--image", args.image] if args.image else []
        command += ["--checkpoints", str(checkpoints), "--env", mark, "--output", f"{output}/out", "--hyperparameters"]
        command += [*(PS if args.mode == "ps" else []), f"epochs={args.epochs}", f"batch-size={args.batch_size}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        job, lines = Job(while_writing=while_writing, over=over), queue.Queue[str | None]()
        threading.Thread(target=read, args=(process, lines.put), daemon=True).start()
        try:
            return followed(process, job, lines, checkpoints, mark, kill_after, args.not_before)
        except BaseException:
            process.send_signal(signal.SIGINT)  # it ends its hosts
            process.wait()
            raise


def followed(
    process: subprocess.Popen[str],
    job: Job,
    lines: "queue.Queue[str | None]",
    checkpoints: Path,
    mark: str,
    kill_after: float | None,
    not_before: int,
) -> Job:
    """Follow the job until it has ended, and return it."""
    pids, written = list[int](), names(checkpoints)
    give_up = time.monotonic() + PATIENCE
    while True:
        trains = kill_after is not None and job.began and job.over >= not_before
        due = bool(trains and time.monotonic() >= job.began + kill_after)
        if due and not pids:
            pids, written = processes_with(mark), names(checkpoints)
        if due and not job.killed and (not job.while_writing or names(checkpoints) - written):
            kill(pids)
            kill(processes_with(mark))  # those that have come since
            job.killed = True
        try:
            line = lines.get(timeout=0.001 if due else 0.05)
        except queue.Empty:
            if time.monotonic() > give_up:
                raise SystemExit("\n".join([*job.log, f"kills: no end after {PATIENCE:g} s"])) from None
            continue
        if line is None:
            job.exit_code = process.wait()
            return job
        job.hear(line)


def read(process: subprocess.Popen[str], put: Callable[[str | None], None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        put(line.rstrip("\n"))
    put(None)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def processes_with(mark: str) -> list[int]:
    """Return the processes with this variable. To see those in containers takes root."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:  # gone meanwhile, or not ours
            continue
    return found


def kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def story(args: argparse.Namespace, draw: random.Random, whole: Job, kills: int) -> list[Job]:
    """Run jobs until one comes to the end of the training; kill at most so many of them."""
    with tempfile.TemporaryDirectory(prefix="checkpoints-") as folder:
        jobs = list[Job]()
        while not jobs or jobs[-1].killed:
            over = jobs[-1].over if jobs else 0
            left = (args.epochs - over + 1) / (args.epochs + 1)  # of the seconds: one share is for what comes before
            may = sum(job.killed for job in jobs) < kills and time.monotonic() < args.until
            moment, while_writing = draw.uniform(0, whole.seconds * left), draw.random() < args.at_checkpoints
            job = run(args, Path(folder), moment if may else None, while_writing, over)
            jobs.append(job)
            print(told(job), file=sys.stderr, flush=True)
            check(job, over, whole)
    return jobs


def told(job: Job) -> str:
    begin = f"began at step {job.first_step}" + (f", behind epoch {job.resumed}" if job.resumed else "")
    how = "at a checkpoint" if job.while_writing else "at a random moment"
    return f"{begin}; " + (f"killed {how}, epoch {job.over} over" if job.killed else f"AUC {job.auc}, step {job.step}")


def check(job: Job, over: int, whole: Job) -> None:
    """Raise SystemExit if a job went wrong that followed one with so many finished epochs."""
    wrong = ""
    if job.began and not over <= job.resumed <= over + 1:  # killed between a checkpoint and the line that reports it
        wrong = f"it went on behind epoch {job.resumed}, and epoch {over} was over"
    elif not job.killed and (job.exit_code or job.auc is None):
        wrong = f"it failed with exit code {job.exit_code}"
    elif not job.killed and max(job.step, job.first_step) != whole.step:
        wrong = f"it ended at step {job.step}, and one that nobody has killed at {whole.step}"
    if wrong:
        raise SystemExit("\n".join([*job.log, f"kills: {wrong}"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help=f"folder of TFRecord files, two at least; default: {ROWS:,} made rows"
    )
    parser.add_argument("--mode", choices=["ps", "mpi", "single"], required=True)
    parser.add_argument("--engine", default="process", help="of entrypoint local; Horovod is in the image only")
    parser.add_argument("--image", help="for --engine docker")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--most", type=int, default=4, help="kills in one story")
    parser.add_argument("--at-checkpoints", type=float, default=0.5, metavar="SHARE", help="of the kills")
    parser.add_argument("--not-before", type=int, default=0, metavar="EPOCH", help="no kill until this one is over")
    parser.add_argument("--minutes", type=float, default=120, help="no more kills after that")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument(
        "--batch-size", type=int, default=16, help="small, so that training is long enough to be killed"
    )
    parser.add_argument("--unkilled", type=int, help="trainings to compare with; default: as many as stories")
    parser.add_argument("--json", type=Path, help="file for the raw figures; only with python -m")
    parser.add_argument("--add", action="store_true", help="keep what --json has of other modes")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # jobs then end with this process
    with contextlib.ExitStack() as stack:
        if args.data is None:
            from benchmarks.deepfm_job import rows_of  # as a module only

            args.data = stack.enter_context(rows_of(args.seed, ROWS))
        measure(args)


def measure(args: argparse.Namespace) -> None:
    draw = random.Random(args.seed)
    args.until = time.monotonic() + 60 * args.minutes

    wholes, stories = [whole_training(args)], list[list[Job]]()
    while (
        left := args.kills - sum(job.killed for jobs in stories for job in jobs)
    ) > 0 and time.monotonic() < args.until:
        if len(stories) == 3 * args.kills:
            raise SystemExit(
                f"kills: {len(stories)} trainings ended before they were killed; wanted longer ones: --epochs"
            )
        stories.append(story(args, draw, wholes[0], min(left, args.most)))
    while len(wholes) < (len(stories) if args.unkilled is None else args.unkilled):
        wholes.append(whole_training(args))

    killed = [job for jobs in stories for job in jobs if job.killed]
    resumed = [job for jobs in stories for job in jobs if job.resumed]
    while_writing = sum(job.while_writing for job in killed)
    print(
        f"{args.mode}, {args.hosts} hosts, engine {args.engine}, {args.epochs} epochs, batches of {args.batch_size}, "
        f"seed {args.seed}: {len(killed)} kills in {len(stories)} stories, {while_writing} of them at a checkpoint; "
        f"{len(resumed)} jobs resumed, each from the last checkpoint, none failed\n"
    )
    print("| | AUC, mean (each) |\n|---|---|")
    print(f"| killed and resumed | {aucs([jobs[-1] for jobs in stories])} |\n| not killed | {aucs(wholes)} |")
    if args.json:
        write(args, stories, wholes)


def write(args: argparse.Namespace, stories: list[list[Job]], wholes: list[Job]) -> None:
    """Write the record, a run for each training; with --add, beside the runs of other modes."""
    from benchmarks import machine  # as a module only

    names = ("hosts", "engine", "epochs", "batch_size", "seed")
    record = json.loads(args.json.read_text()) if args.add and args.json.exists() else machine.head("kills")
    record["limits"] |= {name: getattr(args, name) for name in names}
    record["runs"] = [run for run in record["runs"] if run["mode"] != args.mode]
    for kind, trainings in {"killed": stories, "not killed": [[job] for job in wholes]}.items():
        for number, jobs in enumerate(trainings, 1):
            killed = [job for job in jobs if job.killed]
            record["runs"].append({
                "mode": args.mode, "kind": kind, "round": number, "kills": len(killed),
                "at_checkpoint": sum(job.while_writing for job in killed),
                "resumed": sum(bool(job.resumed) for job in jobs),
                "measures": {"auc": jobs[-1].auc, "steps": max(jobs[-1].step, jobs[-1].first_step)},
            })  # fmt: skip
    machine.write(args.json, record)


def whole_training(args: argparse.Namespace) -> Job:
    with tempfile.TemporaryDirectory(prefix="checkpoints-") as folder:
        job = run(args, Path(folder))
    print(told(job), file=sys.stderr, flush=True)
    if job.exit_code or job.auc is None:
        raise SystemExit("\n".join([*job.log, f"kills: a job that nobody has killed ended with {job.exit_code}"]))
    return job


def aucs(jobs: list[Job]) -> str:
    found = [job.auc for job in jobs if job.auc is not None]
    return f"{statistics.mean(found):.4f} ({' '.join(f'{auc:.3f}' for auc in found)})"


if __name__ == "__main__":
    main()
