"""Report to the monitor what the script does: steps, waits for data, checkpoints, evaluations, metrics, weights.

Messages go to a socket of this host's launcher, at most twice a second. If nothing listens there, as in the first
quarter of a second of a job, the values are added to the next message. Outside of a job, or without a monitor, all of
this does nothing. Values that cannot be sent are dropped: reporting never makes a training fail.
"""

import atexit
import contextlib
import functools
import json
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from sagemaker_tf_data.lazy import tf

SOCKET, PROCESS = "ENTRYPOINT_MARKS", "ENTRYPOINT_PROCESS"  # environment variables that the launcher sets
OFTEN = 0.5  # seconds between two messages, at least
LONGEST = 1 << 14  # bytes of a message, at most
Batch = TypeVar("Batch")


def _harmless(told: Callable[..., None]) -> Callable[..., None]:
    """Return the method, changed so that an exception in it only drops the values."""

    @functools.wraps(told)
    def tell(*args: Any, **kwargs: Any) -> None:
        with contextlib.suppress(Exception):
            told(*args, **kwargs)

    return tell


class Teller:
    """Collect values and send them. `where`: the launcher's socket, or "" to collect nothing."""

    def __init__(self, where: str, process: str) -> None:
        self._where, self._process = where, process
        self._marks: dict[str, list[float]] = {}  # what -> [times, seconds]
        self._metrics: dict[str, float] = {}
        self._weights: list[float] = []
        self._model: dict[str, int] = {}
        self._told = float("-inf")
        self._socket: socket.socket | None = None

    @_harmless
    def mark(self, what: str, seconds: float) -> None:
        """Add `seconds` to the time of the mark named `what`, and one to its count."""
        if self._where:
            sums = self._marks.setdefault(str(what), [0, 0.0])
            sums[0] += 1
            sums[1] += seconds
            self._tell_if_due()

    @_harmless
    def metrics(self, values: Mapping[str, Any]) -> None:
        """Set metrics by name for the next message. A new value replaces the one before; only numbers are sent."""
        if self._where:
            self._metrics.update(_numbers(values))
            self._tell_if_due()

    @_harmless
    def model(self, weights: int) -> None:
        """Add the number of trained weights to the next message."""
        self._model = {"weights": weights} if self._where and weights else {}

    @_harmless
    def weights(self, step: int, norm: float, total: float) -> None:
        """Send the norm and the sum of the weights after a step."""
        if self._where:
            self._weights = [step, norm, total]
            self.tell()

    def is_due(self) -> bool:
        """Return whether the next value is sent at once."""
        return bool(self._where) and time.monotonic() >= self._told + OFTEN

    def _tell_if_due(self) -> None:
        if self.is_due():
            self.tell()

    @_harmless
    def tell(self) -> None:
        """Send the collected values; if the socket does not accept them, keep them for the next message.

        Never blocks.
        """
        if not (self._marks or self._metrics or self._weights or self._model):
            return
        self._told = time.monotonic()
        told = {"process": self._process, "marks": self._marks, "metrics": self._metrics, "weights": self._weights}
        if self._model:
            told["model"] = self._model
        with contextlib.suppress(OSError):
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.setblocking(False)
            self._socket.sendto(json.dumps(told).encode()[:LONGEST], self._where)
            self._marks, self._metrics, self._weights, self._model = {}, {}, [], {}

    def close(self) -> None:
        """Send the collected values, and close the socket."""
        self.tell()
        if self._socket:
            self._socket.close()


_TELLER = Teller(os.environ.get(SOCKET, ""), os.environ.get(PROCESS, ""))
atexit.register(_TELLER.close)


@contextlib.contextmanager
def mark(what: str) -> Iterator[None]:
    """Report how long the block takes: `with mark("checkpoint"): ...`.

    The report knows `step`, `data_wait`, `compute`, `checkpoint` and `evaluation`, and shows others by their names.
    """
    began = time.monotonic()
    try:
        yield
    finally:
        _TELLER.mark(what, time.monotonic() - began)


def log_metrics(**values: float) -> None:
    """Report numbers of the training, as `log_metrics(step=300, loss=0.51)`, without printing them."""
    _TELLER.metrics(values)


def timed(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield the batches. Report for each how long the loop waited for it, and how long the loop's body took.

    For loops of your own: `for images, labels in timed(dataset): ...`. In Keras' `fit` the step includes the wait.
    """
    asked = time.monotonic()
    for batch in batches:
        got = time.monotonic()
        _TELLER.mark("data_wait", got - asked)
        yield batch
        asked = time.monotonic()
        _TELLER.mark("compute", asked - got)
        _TELLER.mark("step", asked - got)


@_harmless
def tell_weights(step: int, variables: "Iterable[tf.Variable]") -> None:
    """Report the trained variables after a step, so that the monitor finds ranks whose weights differ.

    Call it on each rank after the same steps. It sends two sums over all weights, and no weight; nothing for a model
    without weights.
    """
    variables = list(variables)
    if not variables:
        return
    _TELLER.model(_count(variables))
    values = [tf.cast(tf.convert_to_tensor(variable), tf.float32) for variable in variables]
    norm, total = tf.linalg.global_norm(values), tf.add_n([tf.reduce_sum(value) for value in values])
    _TELLER.weights(int(step), float(norm), float(total))


def keras_callback(weights_every: int = 500, base: type | None = None) -> Any:
    """Return a callback for Keras' `fit` that reports its steps, epochs, evaluations and metrics, and the weights.

    `weights_every`: steps between two reports of the weights; 0: none (as with parameter servers, whose weights all
    workers share). `base`: the class Callback, if it is not `tf.keras`'s, as with tf_keras beside Keras 3.
    """
    if base is None:
        base = tf.keras.callbacks.Callback

    class Tell(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self._supports_tf_logs = True  # otherwise Keras 2 waits for each step to compute its logs
            self._step, self._began, self._test_began = 0, 0.0, 0.0
            self._epochs = 0

        @_harmless
        def on_train_begin(self, logs: Any = None) -> None:
            self._epochs = (self.params or {}).get("epochs") or 0

        @_harmless
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            _TELLER.metrics({"epoch": epoch + 1, **({"epochs": self._epochs} if self._epochs else {})})

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self._began = time.monotonic()

        @_harmless
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            _TELLER.mark("step", time.monotonic() - self._began)
            self._step += 1
            if self._step == 1:
                _TELLER.model(_count(self.model.trainable_variables))
            # Reading a loss blocks until it is computed, so only when a message is due.
            _TELLER.metrics({"step": self._step, **(_numbers(logs) if _TELLER.is_due() else {})})
            if weights_every and self._step % weights_every == 0:
                tell_weights(self._step, self.model.trainable_variables)

        def on_test_begin(self, logs: Any = None) -> None:
            self._test_began = time.monotonic()

        @_harmless
        def on_test_end(self, logs: Any = None) -> None:
            _TELLER.mark("evaluation", time.monotonic() - self._test_began)
            _TELLER.metrics({f"val_{name}": value for name, value in _numbers(logs).items()})

        def on_train_end(self, logs: Any = None) -> None:
            _TELLER.tell()

    return Tell()


def _numbers(logs: Any) -> dict[str, float]:
    found = {}
    for name, value in (logs or {}).items():
        with contextlib.suppress(Exception):  # not a number, or not computed yet
            found[str(name)] = float(value)
    return found


def _count(variables: Iterable[Any]) -> int:
    return sum(math.prod(variable.shape) for variable in variables)
