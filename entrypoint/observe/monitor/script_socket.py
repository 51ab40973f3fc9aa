"""What scripts tell of themselves, by sagemaker_tf_data: a socket of this host, and sums of what came by it."""

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from entrypoint.observe.monitor.model import model_of
from entrypoint.record.read import WRONG, is_value, number

MOST, LONGEST = 100, 1 << 14  # messages that are read at once, and bytes of each
MOST_NAMES, LONGEST_NAME = 30, 60  # of one process, until they are taken; characters
MOST_PROCESSES = 256  # that are ever heard


def listen(path: Path, mask: Callable[[str], str]) -> "Marks | None":
    """Return what takes marks; None if the socket cannot be had, such as for too long a path."""
    with suppress(OSError):
        return Marks(path, mask)
    return None


class Marks:
    """Takes messages of `sagemaker_tf_data.marks`; what is none is dropped. OSError if the socket cannot be had.

    `mask`: names are a script's own, and may be secrets.
    """

    def __init__(self, path: Path, mask: Callable[[str], str]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        path.chmod(0o600)
        self.socket.setblocking(False)
        self._path, self._mask = path, mask
        self._heard: set[str] = set()  # processes
        self._sums: dict[str, dict[str, list[float]]] = {}
        self._metrics: dict[str, dict[str, float]] = {}
        self._weights: list[tuple[str, list[float]]] = []
        self._models: dict[str, dict[str, Any]] = {}

    def close(self) -> None:
        """Take no more."""
        self.socket.close()
        self._path.unlink(missing_ok=True)

    def hear(self) -> None:
        """Take what has come."""
        with suppress(OSError):
            for _ in range(MOST):
                message = self.socket.recv(LONGEST)
                with suppress(*WRONG):
                    self._note(json.loads(message))

    def _note(self, told: dict[str, Any]) -> None:
        process = self._name(told["process"])
        marks = {self._name(what): (number(times), number(seconds)) for what, (times, seconds) in told["marks"].items()}
        values = {self._name(name): value for name, value in told["metrics"].items() if is_value(name, value)}
        weights = list(map(float, told["weights"]))
        if len(weights) not in (0, 3):
            raise ValueError("no weights")
        if len(self._heard | {process}) > MOST_PROCESSES:
            return
        self._heard.add(process)
        sums, metrics = self._sums.setdefault(process, {}), self._metrics.setdefault(process, {})
        for what, (times, seconds) in marks.items():
            if what in sums or len(sums) < MOST_NAMES:
                before = sums.get(what, [0, 0.0])
                sums[what] = [before[0] + int(times), before[1] + max(0.0, seconds)]
        for name, value in values.items():
            if name in metrics or len(metrics) < MOST_NAMES:
                metrics[name] = float(value)
        if isinstance(model := told.get("model"), dict):  # by programs/on_path/
            self._models[process] = vars(model_of(model))
        if weights and is_value("step", weights[0]) and len(self._weights) < MOST:
            self._weights.append((process, [int(weights[0]), *weights[1:]]))

    def _name(self, name: str) -> str:
        """Return a name as it may be recorded; ValueError if it is none."""
        if not (name and name.isprintable()):
            raise ValueError("no name")
        return self._mask(name)[:LONGEST_NAME]

    def take(self) -> tuple[dict[str, dict[str, list[float]]], dict[str, dict[str, float]], list[Any]]:
        """Return what has come since the last call: {process: {what: [times, seconds]}}, {process: metrics}, weights.

        Weights are (process, [step, norm, sum]).
        """
        taken = self._sums, self._metrics, self._weights
        self._sums, self._metrics, self._weights = {}, {}, []
        return taken

    def take_models(self) -> dict[str, dict[str, Any]]:
        """Return what processes were seen to train since the last call: {process: a Model's fields}."""
        taken, self._models = self._models, {}
        return taken
