"""Count what a script trains and what Horovod reduces, and report it to the monitor of this host.

It imports no framework. When the script imports one, a few of its functions are wrapped: optimizers' `apply_gradients`
gets the variables that are trained, Keras' callbacks count the steps of `fit`, and Horovod's reductions have a size.
Horovod's own threads get a name. Only numbers are reported. If something fails here it is left out, and the training
goes on as without it.

Without a monitor nothing is counted. The action on SIGTERM is kept in any case.

It is one file, as each module beside it would be one more name on the path of users' scripts.
"""

import atexit
import contextlib
import ctypes
import functools
import json
import math
import os
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

SOCKET, PROCESS = "ENTRYPOINT_MARKS", "ENTRYPOINT_PROCESS"  # environment variables that the launcher sets
FIRST_SECONDS, MOST_SECONDS = 2.0, 16.0  # between two messages, at first and later
MOST_NAMES = 20_000  # tensors that Horovod reduces
UNSEEN = {"mpi4py.MPI", "torch.distributed", "byteps", "ray", "mxnet"}  # modules that exchange gradients, too
NOT_THE_USERS = ("/site-packages/", "/dist-packages/", "/entrypoint/programs/", "__autograph_generated", "<")
LIBRARY = os.path.dirname(os.__file__) + "/"  # noqa: PTH120
AS_NOTED = ("horovod", "reduced", "strategy", "workers", "made", "made_at", "trained_at")  # facts that need no sum
MARK = "autograph_info__"  # AutoGraph calls a function with this attribute, and does not rewrite it


class SeenTraining:
    """Hold what was seen of this process's training so far."""

    def __init__(self) -> None:
        self.optimizers: dict[int, tuple[Any, int]] = {}  # reference, and how many variables it trains
        self.variables: dict[int, tuple[Any, int, bool]] = {}  # reference, size, whether it has dense gradients
        self.eager_steps: dict[int, int] = {}  # by optimizer
        self.fit_steps = 0
        self.gradients: set[tuple[int, int]] = set()  # (tensors, weights in dense ones) of wrapped tapes' reductions
        self.asked: dict[str, int] = {}  # size of each tensor that Horovod was asked to reduce
        self.reduced = 0  # weights in all reductions that ran at once, outside of a graph
        self.strategy, self.workers = "", 0
        self.made = 0  # workers of the largest strategy that was made
        self.others = 0  # 1: what could exchange gradients unseen is in use
        self.made_at, self.trained_at = "", ""  # lines of the script that train outside of every strategy
        self.horovod = 0  # 1: imported, and all its reductions are seen; 2: imported
        self.changes = 0
        self.reports = False  # whether a thread of this process does

    def facts(self) -> dict[str, Any]:
        """Return these facts in the form that the monitor reads."""
        living = [each for each in list(self.variables.values()) if each[0]() is not None]
        asked = list(self.asked.values())
        return {
            "weights": sum(size for _, size, _ in living),
            "dense": sum(size for _, size, is_dense in living if is_dense),
            "steps": max(self.fit_steps, *self.eager_steps.values(), 0),
            "tensors": sum(tensors for tensors, _ in list(self.gradients)),
            "gradients": sum(weights for _, weights in list(self.gradients)),
            "asked": sum(asked),
            "largest": max(asked, default=0),
            "others": int(self.others or exchanges_unseen(self.fit_steps)),
            **{name: getattr(self, name) for name in AS_NOTED},
        }


SEEN = SeenTraining()
MADE: dict[int, tuple[Any, str]] = {}  # models made outside of every strategy: reference, and where


# --- what is wrapped, and what is noted of a call ---


def of_keras_3(optimizer: Any, grads: Iterable[Any] = (), variables: Any = None, *_: Any, **__: Any) -> None:
    """Note the variables that an optimizer of Keras 3 trains."""
    variables = optimizer._trainable_variables if variables is None else variables
    if isinstance(grads, (list, tuple)) and isinstance(variables, (list, tuple)):
        of_optimizer(optimizer, list(zip(grads, variables, strict=False)))


def of_optimizer(optimizer: Any, given: Any = (), *_: Any, **__: Any) -> None:
    """Note the variables that an optimizer trains, once, from pairs of gradient and variable.

    Count a step if it runs outside of a graph.
    """
    pairs = given if isinstance(given, (list, tuple)) else ()
    if runs_at_once():
        SEEN.eager_steps[id(optimizer)] = SEEN.eager_steps.get(id(optimizer), 0) + 1
        changed()
    known, count = SEEN.optimizers.get(id(optimizer), (None, 0))
    if known and known() is optimizer and count == len(pairs):
        return
    for grad, variable in pairs:
        if grad is not None:
            SEEN.variables[id(variable)] = weakref.ref(variable), size_of(variable), not is_sparse(grad)
        SEEN.others = SEEN.others or int(hasattr(variable, "layout") and hasattr(variable.layout, "mesh"))  # DTensor's
        if "/job:ps" in str(getattr(variable, "device", "")):
            SEEN.strategy = SEEN.strategy or "ParameterServer"
    name, workers = strategy()
    if (workers, name) >= (SEEN.workers, SEEN.strategy):  # a small model may be trained outside of it, too
        SEEN.strategy, SEEN.workers = name, workers
    if not SEEN.strategy:
        SEEN.trained_at = SEEN.trained_at or users_place()
    changed()
    SEEN.optimizers[id(optimizer)] = weakref.ref(optimizer), len(pairs)


def of_fit(callbacks: Any = None, *_: Any, **__: Any) -> None:
    """Count a step of Keras' `fit`."""
    SEEN.fit_steps += 1
    if not SEEN.strategy:
        model = getattr(callbacks, "model", None) or getattr(callbacks, "_model", None)
        SEEN.made_at = MADE.get(id(model), (None, ""))[1]
    changed()


def of_model(model: Any, *_: Any, **__: Any) -> None:
    """Note where a model of Keras is made outside of every strategy."""
    if len(MADE) < MOST_NAMES and not strategy()[0]:
        MADE[id(model)] = weakref.ref(model), users_place()


def users_place() -> str:
    """Return the innermost line of the user's code that runs now, and the one that has called it: `FILE:LINE`."""
    found: list[str] = []
    frame: Any = sys._getframe(1)
    while frame and len(found) < 2:
        path = frame.f_code.co_filename
        if not path.startswith(LIBRARY) and not any(part in path for part in NOT_THE_USERS):
            found.append(f"{os.path.basename(path)}:{frame.f_lineno}")  # noqa: PTH119
        frame = frame.f_back
    return " (called at ".join(found) + ")" * (len(found) > 1)


def of_gradients(grads: Any) -> None:
    """Note the gradients that a wrapped tape or optimizer has reduced."""
    sizes = [0 if is_sparse(grad) else size_of(grad) for grad in grads if grad is not None]
    if len(SEEN.gradients) < MOST_NAMES:
        SEEN.gradients.add((len(sizes), sum(sizes)))
    changed()


def of_reduction(tensors: Any, name: Any = None, *_: Any, **__: Any) -> None:
    """Note tensors that Horovod is asked to reduce, or to gather."""
    for at, tensor in enumerate(tensors if isinstance(tensors, (list, tuple)) else [tensors]):
        size = size_of(tensor)
        if runs_at_once():
            called, SEEN.reduced = name, SEEN.reduced + size
        else:
            called = name or getattr(tensor, "name", "")
        if len(SEEN.asked) < MOST_NAMES:
            SEEN.asked[f"{called} {at} {size}"] = size
    changed()


def size_of(tensor: Any) -> int:
    """Return how many numbers a tensor has; 0 if that is not known yet."""
    shape: Any = getattr(tensor, "shape", None)
    count = shape.num_elements() if hasattr(shape, "num_elements") else math.prod(shape or ())
    return int(count or 0)


def is_sparse(grad: Any) -> bool:
    """Return whether a gradient has only some rows of its variable, as an embedding's does."""
    return hasattr(grad, "indices") and hasattr(grad, "values")


def runs_at_once() -> bool:
    """Return whether operations run at once, and not as part of a graph."""
    tensorflow = sys.modules.get("tensorflow")
    return bool(tensorflow and tensorflow.executing_eagerly())


def strategy() -> tuple[str, int]:
    """Return the name of the present strategy, of TensorFlow or of Keras 3 on jax, and its number of workers."""
    distributed, keras = sys.modules.get("jax._src.distributed"), sys.modules.get("keras")
    if distributed and keras and distributed.global_state.client is not None:
        spread = keras.distribution.distribution()
        mesh = getattr(spread, "device_mesh", None)
        leaves_out = mesh is not None and mesh.devices.size < sys.modules["jax"].device_count()  # other processes'
        if spread is None or leaves_out:
            return "", 0
        return type(spread).__name__, distributed.global_state.num_processes
    tensorflow = sys.modules.get("tensorflow")
    if not (tensorflow and tensorflow.distribute.has_strategy()):
        return "", 0
    found = tensorflow.distribute.get_strategy()
    return type(found).__name__, int(getattr(found.extended, "_num_workers", 0) or 0)


def exchanges_unseen(fit_steps: int) -> bool:
    """Return whether this process may exchange gradients in a way that is not seen here.

    A loop on JAX may do so in processes that are joined: its arrays may be spread over all of them.
    """
    distributed = sys.modules.get("jax._src.distributed")
    is_joined = bool(distributed and distributed.global_state.client is not None)
    return bool(UNSEEN & sys.modules.keys()) or (is_joined and not fit_steps)


# --- how ---


INSIDE: set[tuple[str, int]] = set()  # calls that are running


def wrap(owner: Any, name: str, note: Callable[..., None]) -> None:
    """Call `note` with a function's arguments before each call of the function."""
    inner = vars(owner)[name]
    if not callable(inner) or hasattr(inner, MARK):
        return

    @functools.wraps(inner)
    def looked_on(*args: Any, **kwargs: Any) -> Any:
        if len(args) > 1 and isinstance(args[1], Iterator):  # such as zip(...), which can be read only once
            args = (args[0], list(args[1]), *args[2:])
        elif isinstance(kwargs.get("grads_and_vars"), Iterator):
            kwargs["grads_and_vars"] = list(kwargs["grads_and_vars"])
        key = (name, id(args[0]) if args else 0)
        if key in INSIDE:  # a class calls the same method of its base
            return inner(*args, **kwargs)
        INSIDE.add(key)
        try:
            with contextlib.suppress(Exception):
                note(*args, **{("given" if key == "grads_and_vars" else key): value for key, value in kwargs.items()})
            return inner(*args, **kwargs)
        finally:
            INSIDE.discard(key)

    setattr(looked_on, MARK, None)
    setattr(owner, name, looked_on)


def wrap_methods(module: Any, name: str, note: Callable[..., None]) -> None:
    """Wrap a method in each class of the module that defines it."""
    for found in list(vars(module).values()):
        if isinstance(found, type) and found.__module__ == module.__name__ and name in vars(found):
            wrap(found, name, note)


def reductions(module: Any) -> None:
    SEEN.horovod = 2
    for name in ("_allreduce", "_reducescatter", "allgather"):
        wrap(module, name, lambda tensor, name=None, *_, **__: of_reduction([tensor], name))
    for name in ("_grouped_allreduce", "_grouped_reducescatter", "grouped_allgather"):
        wrap(module, name, of_reduction)
    SEEN.horovod = 1


def wrapped_tapes(module: Any) -> None:
    """Wrap the function by which Horovod makes the reductions of all its tapes and optimizers."""
    seen, SEEN.horovod = SEEN.horovod, 2
    make = module._make_allreduce_grads_fn

    @functools.wraps(make)
    def making(*args: Any, **kwargs: Any) -> Any:
        reduce = make(*args, **kwargs)

        def looked_on(grads: Any, *more: Any, **options: Any) -> Any:
            with contextlib.suppress(Exception):
                of_gradients(grads)
            return reduce(grads, *more, **options)

        setattr(looked_on, MARK, None)
        return looked_on

    setattr(making, MARK, None)
    module._make_allreduce_grads_fn = making
    SEEN.horovod = seen


def threads() -> set[str]:
    """Return the ids of this process's threads; none if the kernel does not show them."""
    with contextlib.suppress(OSError):
        return set(os.listdir("/proc/self/task"))  # noqa: PTH208
    return set()


@contextlib.contextmanager
def threads_named(*_: Any) -> Iterator[None]:
    """Name the threads that Horovod starts: those that begin during `hvd.init()`, and threads that these start later.

    They poll while they wait for other ranks. The name keeps the monitor from taking that for work.
    """
    before = threads()
    try:
        yield
    finally:
        for thread in threads() - before:
            with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/comm", "w") as name:
                name.write("horovod")


@contextlib.contextmanager
def sigterm_kept(*_: Any) -> Iterator[None]:
    """Leave SIGTERM as the script has it.

    TensorFlow's handler notes the signal for programs on Google's TPUs, and the script trains on until it is killed.
    """
    before = exchange_sigterm(None)
    try:
        yield
    finally:
        exchange_sigterm(before)


@contextlib.contextmanager
def workers_noted(extended: Any, *_: Any) -> Iterator[None]:
    """Note that a strategy of several hosts is made, and how many workers it has."""
    yield
    has_servers = type(extended).__name__.startswith("Parameter")  # which are elsewhere
    SEEN.made = max(SEEN.made, int(getattr(extended, "_num_workers", 0) or 0) + has_servers)


def exchange_sigterm(action: Any) -> Any:
    """Return the action on SIGTERM, as a C struct, and set another action unless it is None."""
    before = ctypes.create_string_buffer(256)  # more than a `struct sigaction` has
    ctypes.CDLL(None).sigaction(signal.SIGTERM, action, before)
    return before


def within(owner: Any, name: str, context: Callable[..., contextlib.AbstractContextManager[None]]) -> None:
    """Run each call of a function inside of a context that gets its arguments."""
    inner = getattr(owner, name)

    @functools.wraps(inner)
    def called(*args: Any, **kwargs: Any) -> Any:
        with context(*args):
            return inner(*args, **kwargs)

    setattr(owner, name, called)


def mirrored(module: Any) -> None:
    """Wrap the function that makes MultiWorkerMirroredStrategy: keep SIGTERM, and note the workers."""
    within(module.CollectiveAllReduceExtended, "__init__", sigterm_kept)
    within(module.CollectiveAllReduceExtended, "__init__", workers_noted)


UNWATCHED: dict[str, Callable[[Any], None]] = {
    "tensorflow.python.distribute.collective_all_reduce_strategy": mirrored,
}
WRAPPED: dict[str, Callable[[Any], None]] = {
    **UNWATCHED,
    "tensorflow.python.distribute.parameter_server_strategy_v2": lambda module: within(
        module.ParameterServerStrategyV2Extended, "__init__", workers_noted
    ),
    **dict.fromkeys(
        (
            "keras.src.engine.training", "keras.engine.training", "tf_keras.src.engine.training",
            "keras.src.models.model",
        ),
        lambda module: wrap(module.Model, "__init__", of_model),
    ),
    **dict.fromkeys(
        (
            "keras.src.optimizers.optimizer", "keras.src.optimizers.legacy.optimizer_v2",
            "keras.optimizers.optimizer", "keras.optimizers.legacy.optimizer_v2",
            "keras.optimizers.optimizer_experimental.optimizer", "keras.optimizers.optimizer_v2.optimizer_v2",
            "tf_keras.src.optimizers.optimizer", "tf_keras.src.optimizers.legacy.optimizer_v2",
            "tensorflow.python.training.optimizer", "tensorflow.python.keras.optimizer_v2.optimizer_v2",
        ),
        lambda module: wrap_methods(module, "apply_gradients", of_optimizer),
    ),
    "keras.src.optimizers.base_optimizer": lambda module: wrap_methods(module, "apply", of_keras_3),
    **dict.fromkeys(
        ("keras.src.callbacks", "keras.src.callbacks.callback_list", "keras.callbacks", "tf_keras.src.callbacks"),
        lambda module: wrap(module.CallbackList, "on_train_batch_end", of_fit),
    ),
    "horovod.common.basics": lambda module: within(module.HorovodBasics, "init", threads_named),
    "horovod.tensorflow.mpi_ops": reductions,
    "horovod.tensorflow": wrapped_tapes,
}  # fmt: skip


class Finder:
    """Find some modules as Python would, and have each changed by its function when it is loaded."""

    def __init__(self, changes: dict[str, Callable[[Any], None]]) -> None:
        self.changes = changes

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.changes:
            return None
        specs = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, specs), None)
        if spec and hasattr(spec.loader, "exec_module") and not isinstance(spec.loader, type):
            change_after(spec.loader, self.changes[name])  # which no other module has
        return spec


def change_after(loader: Any, change: Callable[[Any], None]) -> None:
    """Have a loader change its module when it has loaded it."""
    load = loader.exec_module

    def exec_module(module: Any) -> None:
        load(module)
        with contextlib.suppress(Exception):
            change(module)

    loader.exec_module = exec_module


# --- reporting ---


def keep_reporting() -> None:
    """Report the facts whenever they have changed."""
    sent, wait = -1, FIRST_SECONDS
    while True:
        time.sleep(wait)
        wait = min(MOST_SECONDS, 1.25 * wait)
        now = SEEN.changes
        if now != sent and send():
            sent = now


def send() -> bool:
    """Send the facts of the training to the monitor; return whether that succeeded."""
    with contextlib.suppress(Exception):  # nobody listens, or it changes while it is read
        sent = {"process": os.environ[PROCESS], "marks": {}, "metrics": {}, "weights": [], "model": SEEN.facts()}
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(json.dumps(sent).encode(), os.environ[SOCKET])
        return True
    return False


def changed() -> None:
    """Count a change, and start the thread that reports if it does not run yet."""
    SEEN.changes += 1
    if not SEEN.reports:
        SEEN.reports = True
        atexit.register(send)  # a short training is over before the thread has reported all of it
        threading.Thread(target=keep_reporting, name="entrypoint-looks-on", daemon=True).start()


def forked() -> None:
    """Forget the thread in a forked child, which has none. The child starts its own when it trains."""
    SEEN.reports = False


def begin() -> Finder:
    """Start changing the modules that the script imports, and watching if a monitor listens."""
    sys.meta_path.insert(0, finder := Finder(WRAPPED if os.environ.get(SOCKET) else UNWATCHED))
    os.register_at_fork(after_in_child=forked)
    return finder
