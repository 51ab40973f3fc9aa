"""Run one job of DeepFM (examples/deepfm) by `entrypoint local` on made rows, and read the figures in its log."""

import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import machine

DEEPFM = Path(__file__).resolve().parents[1] / "examples" / "deepfm"
SHARDS = 4  # files, of which the last is kept aside


@contextmanager
def rows_of(seed: int, rows: int) -> Iterator[Path]:
    """Make a folder with so many rows in four files, which lasts as long as the block."""
    with tempfile.TemporaryDirectory(prefix="deepfm-rows-") as folder:
        maker = [sys.executable, str(DEEPFM / "make_rows.py"), "--rows", str(rows), "--seed", str(seed)]
        command = [*maker, "--shards", str(SHARDS), "--output", f"{folder}/rows"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        yield Path(folder) / "rows"


@dataclass(frozen=True, kw_only=True)
class Job:
    """With parameter servers, the first host is the chief, which does not train. `before`: words before the command."""

    mode: str
    hosts: int = 1
    processes_per_host: int = 1
    hyperparameters: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    before: Sequence[str] = ()

    def command(self, data: Path, output: str, engine: str, image: str | None) -> list[str]:
        command = [*self.before, sys.executable, "-m", "entrypoint", "local", str(DEEPFM / "train.py")]
        command += ["--mode", self.mode, "--hosts", str(self.hosts), "--engine", engine]
        command += ["--channel", f"training={data}", "--output", f"{output}/out"]
        command += ["--processes-per-host", str(self.processes_per_host)] if self.processes_per_host > 1 else []
        command += ["--image", image] if image else []
        for name, value in {"ENTRYPOINT_PS_WORKERS": "server", **self.environment}.items():
            command += ["--env", f"{name}={value}"]
        given = [f"{name}={value}" for name, value in self.hyperparameters.items()]
        return command + (["--hyperparameters", *given] if given else [])


def run_job(job: Job, data: Path, rows: int, engine: str, image: str | None) -> dict[str, float]:
    """Return the measures: `auc` and `logloss` on the file kept aside, `examples_per_s` and `wall_s`.

    Raise SystemExit with the log if the job fails. `rows` are all, as made.
    """
    with tempfile.TemporaryDirectory(prefix="deepfm-job-") as output:
        began = time.monotonic()
        command = job.command(data, output, engine, image)
        log = machine.run_gently(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        seconds = time.monotonic() - began
    try:
        if log.returncode:
            raise ValueError(f"it ended with exit code {log.returncode}")
        return {**heard(log.stdout, job, rows), "wall_s": round(seconds, 1)}
    except ValueError as error:
        raise SystemExit(f"{log.stdout}\ndeepfm: {job}: {error}") from None


def heard(log: str, job: Job, rows: int) -> dict[str, float]:
    """Return the figures in the log of a job with so many rows. Raise ValueError if they are not there.

    Examples per second are the median of the epochs after the first, in which functions are traced. The job counts
    whole batches. The last batch of a pass is smaller, so the count is corrected here for Horovod and for one process.
    With parameter servers all batches are whole.
    """
    aside = rows // SHARDS
    epochs = [
        (int(step), float(rate))
        for step, rate in re.findall(r"epoch \d+/\d+ is over: .* step=(\d+) .*examples/s=(\d+)", log)
    ]
    found = re.findall(r"evaluation auc=([\d.]+) rows=(\d+) logloss=([\d.]+)", log)
    if not epochs or len(found) != 1 or int(found[0][1]) != aside:
        raise ValueError(f"found {len(epochs)} epochs and evaluations {found}; wanted some, and one of {aside} rows")
    first_steps, _ = epochs[0]
    counted = first_steps * int(str(job.hyperparameters.get("batch-size", 64))) * job.hosts * job.processes_per_host
    right = 1.0 if job.mode == "ps" else min(1.0, (rows - aside) / counted)
    rates = [rate for _, rate in epochs[1:] or epochs]
    return {
        "auc": float(found[0][0]),
        "logloss": float(found[0][2]),
        "examples_per_s": round(statistics.median(rates) * right, 1),
    }
