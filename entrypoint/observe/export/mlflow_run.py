"""Write a job as an MLflow run, by MLflow's client. Its environment variables name the server and the run."""

import importlib
import os
import re
import select
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from entrypoint.base.errors import ConfigError
from entrypoint.observe.export.points import Point, Points, follow
from entrypoint.record import lines

URI = "MLFLOW_TRACKING_URI"
USED = {"cpu", "memory/bytes", "memory/of limit"}  # figures of a host that are sent, beside those of its GPUs
EVERY, PACE = 10.0, 5.0  # seconds between two points of a host's figures, and between two batches
BATCH, PARAMS = 1000, 100  # metrics and parameters that MLflow accepts in one request
LONGEST_CHARS = 500  # characters of a parameter, that every server takes
STATUS = {"succeeded": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
_UNSAFE = re.compile(r"[^\w. /-]+")


class MlflowRun:
    """Write records into one run. Raise ConfigError if MLflow is not installed, or no destination is set."""

    def __init__(self) -> None:
        if not os.environ.get(URI):
            raise ConfigError(f"{URI} is not set; wanted the address of a tracking server, or file:///FOLDER")
        try:
            self._mlflow: Any = importlib.import_module("mlflow")
            self._entities: Any = importlib.import_module("mlflow.entities")
        except ImportError:
            raise ConfigError(
                f"{URI} is set, and MLflow is not installed here: add mlflow-skinny to requirements.txt, or "
                "pip install mlflow-skinny"
            ) from None
        self._client = self._mlflow.tracking.MlflowClient()
        self.id = ""
        self._first = ""  # the training process whose metrics have no prefix
        self._status = "FINISHED"
        self._waiting: list[Any] = []
        self._sent = time.monotonic()
        self._taken: dict[tuple[str, str], float] = {}

    def add(self, source: Points, lines: Iterable[lines.Line]) -> int:
        """Note lines of a host's record; return the number of metrics. They are sent every PACE seconds."""
        found = [self._metric(point) for point in source.of(lines) if self._is_wanted(source, point)]
        self._waiting += found
        if source.is_coordinator:
            if not self.id and source.about and source.described:
                self._begin(source.about, source.described)
            self._status = STATUS.get(source.outcome.kind if source.outcome else "", self._status)
        if self.id and time.monotonic() >= self._sent + PACE:
            self._send()
        return len(found)

    def close(self) -> None:
        """Send the rest, and end the MLflow run with the status of the job."""
        if self.id:
            self._send()
            self._client.set_terminated(self.id, self._status)

    def _begin(self, about: lines.HostLine, described: lines.DescribedLine) -> None:
        run = self._mlflow.start_run(run_name=about.job or None)
        self.id = run.info.run_id
        given = described.hyperparameters
        params = [
            self._entities.Param(_UNSAFE.sub("-", name), str(value)[:LONGEST_CHARS]) for name, value in given.items()
        ]
        labels = {"mode": about.mode, "instance_type": about.instance_type, "hosts": str(len(about.hosts or ()))}
        tags = [self._entities.RunTag(f"sagemaker.{name}", value) for name, value in labels.items() if value]
        for start in range(0, len(params) or 1, PARAMS):
            self._client.log_batch(self.id, params=params[start : start + PARAMS], tags=[] if start else tags)

    def _is_wanted(self, source: Points, point: Point) -> bool:
        _, _, process = point.run.partition("/")
        if process:
            self._first = self._first or (point.run if point.is_metric and source.is_coordinator else "")
            return point.is_metric
        if point.name not in USED and not point.name.startswith("gpu "):
            return False
        key = point.run, point.name
        if point.at < self._taken.get(key, 0.0) + EVERY:
            return False
        self._taken[key] = point.at
        return True

    def _metric(self, point: Point) -> Any:
        where = "" if point.run == self._first else f"{point.run}/"
        where = where if "/" in point.run else f"system/{where}"
        name = _UNSAFE.sub("-", f"{where}{point.name}")
        return self._entities.Metric(name, point.value, round(point.at * 1000), point.step)

    def _send(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            self._client.log_batch(self.id, metrics=batch)
        self._sent = time.monotonic()


def main(folder: str) -> int:
    """Write a job to MLflow until stdin is closed; return the exit code. The output goes to the job's log."""
    try:
        run = MlflowRun()
        follow(lambda: [Path(folder)], run.add, lambda: bool(select.select([sys.stdin], [], [], 0)[0]))
        run.close()
    except Exception as error:  # MLflow raises exceptions of any kind
        print(f"mlflow: {error}".splitlines()[0][:500])
        return 1
    print(f"mlflow: run {run.id}" if run.id else "mlflow: no run: the job ended before it was described")
    return 0
