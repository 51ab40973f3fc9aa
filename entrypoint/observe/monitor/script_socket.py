"""Receive messages of scripts (by sagemaker_tf_data) at a socket of this host, and sum them up."""

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from entrypoint.observe.monitor.trained_model import model_of
from entrypoint.record import lines

MOST, LONGEST = 100, 1 << 14  # messages read at once, and bytes of each
MOST_NAMES, LONGEST_NAME = 30, 60  # names of one process until they are taken, and characters of each
MOST_PROCESSES = 256  # processes in all; messages of more are dropped


class Marks:
    """Receive messages of `sagemaker_tf_data.marks`, and drop all others. Raise OSError if the socket cannot be opened.

    `mask` hides secrets in names, which a script may choose freely.
    """

    def __init__(self, path: Path, mask: Callable[[str], str]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        path.chmod(0o600)
        self.socket.setblocking(False)
        self._path, self._mask = path, mask
        self.heard: set[str] = set()  # processes that have sent a message
        self._sums: dict[str, dict[str, list[float]]] = {}
        self._metrics: dict[str, dict[str, float]] = {}
        self._weights: list[lines.WeightsLine] = []
        self._models: dict[str, lines.ModelLine] = {}

    def close(self) -> None:
        self.socket.close()
        self._path.unlink(missing_ok=True)

    def receive(self) -> None:
        with suppress(OSError):
            for _ in range(MOST):
                message = self.socket.recv(LONGEST)
                with suppress(*lines.WRONG):
                    self._note(json.loads(message))

    def _note(self, told: dict[str, Any]) -> None:
        process = self._name(told["process"])
        marks = {self._name(what): (lines.number(n), lines.number(took)) for what, (n, took) in told["marks"].items()}
        values = {self._name(name): value for name, value in told["metrics"].items() if lines.is_value(name, value)}
        weights = list(map(float, told["weights"]))
        if len(weights) not in (0, 3):
            raise ValueError("no weights")
        if len(self.heard | {process}) > MOST_PROCESSES:
            return
        self.heard.add(process)
        sums, metrics = self._sums.setdefault(process, {}), self._metrics.setdefault(process, {})
        for what, (times, seconds) in marks.items():
            if what in sums or len(sums) < MOST_NAMES:
                before = sums.get(what, [0, 0.0])
                sums[what] = [before[0] + int(times), before[1] + max(0.0, seconds)]
        for name, value in values.items():
            if name in metrics or len(metrics) < MOST_NAMES:
                metrics[name] = float(value)
        if isinstance(model := told.get("model"), dict):  # from programs/on_path/
            self._models[process] = lines.ModelLine(process=process, model=vars(model_of(model)))
        if weights and lines.is_value("step", weights[0]) and len(self._weights) < MOST:
            step, norm, total = weights
            self._weights.append(lines.WeightsLine(process=process, step=int(step), norm=norm, total=total))

    def _name(self, name: str) -> str:
        """Return a name masked and cut for the record. Raise ValueError if it is empty or not printable."""
        if not (name and name.isprintable()):
            raise ValueError("no name")
        return self._mask(name)[:LONGEST_NAME]

    def take(self) -> tuple[dict[str, dict[str, float]], list[lines.Line]]:
        """Return the messages since the last call: {process that has sent one: its metrics}, and lines."""
        marks = [
            lines.MarkLine(process=process, what=what, seconds=round(seconds, 4), times=int(times))
            for process, sums in self._sums.items()
            for what, (times, seconds) in sums.items()
        ]
        taken = self._metrics, [*marks, *self._weights, *self._models.values()]
        self._sums, self._metrics, self._weights, self._models = {}, {}, [], {}
        return taken
