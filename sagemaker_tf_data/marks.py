"""Tell the monitor what the script does: steps, waits for data, checkpoints, evaluations, metrics, weights.

It goes to a socket of this host's launcher, at most twice a second. Where nobody listens, as in the first quarter of a
second of a job, it is summed up for the next message. Outside of a job, or without a monitor, all of this does nothing.
What cannot be told is left out: no training fails by it.
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
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import tensorflow as tf

SOCKET, PROCESS = "ENTRYPOINT_MARKS", "ENTRYPOINT_PROCESS"  # environment variables of the launcher
OFTEN = 0.5  # seconds between two messages
LONGEST = 1 << 14  # bytes of a message
Batch = TypeVar("Batch")


def _harmless(told: Callable[..., None]) -> Callable[..., None]:
    """Have a failure cost what was to be told, and nothing else."""

    @functools.wraps(told)
    def tell(*args: Any, **kwargs: Any) -> None:
        with contextlib.suppress(Exception):
            told(*args, **kwargs)

    return tell


class Teller:
    """Sums up what happens between two messages. `where`: the launcher's socket, or "" for nobody."""

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
        """Note that something took so long."""
        if self._where:
            sums = self._marks.setdefault(str(what), [0, 0.0])
            sums[0] += 1
            sums[1] += seconds
            self._tell_if_due()

    @_harmless
    def metrics(self, values: Mapping[str, Any]) -> None:
        """Note numbers; of one name, the last counts. What is no number is left out."""
        if self._where:
            self._metrics.update(_numbers(values))
            self._tell_if_due()

    @_harmless
    def model(self, weights: int) -> None:
        """Note how many weights are trained; it goes with the next message."""
        self._model = {"weights": weights} if self._where and weights else {}

    @_harmless
    def weights(self, step: int, norm: float, total: float) -> None:
        """Note what the weights are after a step, in two numbers."""
        if self._where:
            self._weights = [step, norm, total]
            self.tell()

    def is_due(self) -> bool:
        """Return whether what is noted next is sent at once."""
        return bool(self._where) and time.monotonic() >= self._told + OFTEN

    def _tell_if_due(self) -> None:
        if self.is_due():
            self.tell()

    @_harmless
    def tell(self) -> None:
        """Send what there is, or keep it for the next message if nobody takes it now: no step of the training waits."""
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
        """Send what there is, the last."""
        self.tell()
        if self._socket:
            self._socket.close()


_TELLER = Teller(os.environ.get(SOCKET, ""), os.environ.get(PROCESS, ""))
atexit.register(_TELLER.close)


@contextlib.contextmanager
def mark(what: str) -> Iterator[None]:
    """Tell how long the block takes: `with mark("checkpoint"): ...`.

    The report knows `step`, `data_wait`, `compute`, `checkpoint` and `evaluation`; others are shown by their names.
    """
    began = time.monotonic()
    try:
        yield
    finally:
        _TELLER.mark(what, time.monotonic() - began)


def log_metrics(**values: float) -> None:
    """Tell numbers of the training, as `log_metrics(step=300, loss=0.51)`, without printing them."""
    _TELLER.metrics(values)


def timed(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield the batches, and tell of each how long it was waited for, and how long the body of the loop took.

    For loops of your own: `for images, labels in timed(dataset): ...`. In Keras' `fit` the wait is inside of the step.
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
    """Tell what the trained variables are after a step, so that ranks whose weights differ are found.

    Each rank is to call it after the same steps. Two sums over all weights are sent, and no weight; of a model that has
    none, nothing is.
    """
    variables = list(variables)
    if not variables:
        return
    import tensorflow as tf

    _TELLER.model(_count(variables))
    values = [tf.cast(tf.convert_to_tensor(variable), tf.float32) for variable in variables]
    norm, total = tf.linalg.global_norm(values), tf.add_n([tf.reduce_sum(value) for value in values])
    _TELLER.weights(int(step), float(norm), float(total))


def keras_callback(weights_every: int = 500, base: type | None = None) -> Any:
    """Return a callback for Keras' `fit` that tells its steps, epochs, evaluations and metrics, and the weights.

    `weights_every`: steps between two looks at the weights; 0: never (as with parameter servers, whose weights all
    share). `base`: the class Callback, where it is not `tf.keras`'s, as with tf_keras beside Keras 3.
    """
    if base is None:
        import tensorflow as tf

        base = tf.keras.callbacks.Callback

    class Tell(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self._supports_tf_logs = True  # Keras 2: else it waits for each step, to have numbers for us
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
            # To read a loss that is still computed waits for it.
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
        with contextlib.suppress(Exception):  # what is no number, or one that is not known yet
            found[str(name)] = float(value)
    return found


def _count(variables: Iterable[Any]) -> int:
    return sum(math.prod(variable.shape) for variable in variables)
