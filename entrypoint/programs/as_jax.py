"""Run the user's program as one process of a JAX job.

It takes what `python` takes: `as_jax.py train.py ARGUMENT...` or `as_jax.py -m MODULE ARGUMENT...`. It imports no jax
itself. When the program does,

- `jax.distributed.initialize()` without arguments finds the coordinator, as it does under Slurm;
- gloo connects by the address that the other hosts know. By itself it takes the address of the machine's own name,
  which in a container may be unknown, or another one;
- gloo's thread, which receives, does not take the core away from the thread that sends. It would look for events
  without pause until that one has released their lock: on two hosts with a core each, steps took four times as long;
- SIGTERM ends the program or calls the program's handler. jax would put its own handler there. Only a program that
  calls `reached_preemption_sync_point` needs that one, and gets it at its first call;
- a program that fails ends at once. Without this, jax waits 300 s for the other processes, which wait for this one.
"""

import atexit
import contextlib
import functools
import importlib
import os
import runpy
import signal
import sys
import threading
from pathlib import Path
from typing import Any

END_SECONDS = 5.0  # for what the program has registered to run at its end
DISTRIBUTED = "jax._src.distributed"
ON_PATH = str(Path(__file__).resolve().parent / "on_path")
sys.path.insert(0, ON_PATH)
entrypoint_looks_on: Any = importlib.import_module("entrypoint_looks_on")
entrypoint_program: Any = importlib.import_module("entrypoint_program")
sys.path.remove(ON_PATH)


# --- what is changed in jax ---


def find_coordinator(module: Any) -> None:
    """Add this job to the kinds of clusters that `jax.distributed.initialize` recognises, before all others."""
    base = module.clusters.ClusterEnv

    class ThisJob(base):  # type: ignore[misc, valid-type]
        name = "sagemaker-tf-entrypoint"

        @classmethod
        def is_env_present(cls) -> bool:
            return "JAX_PROCESS_ID" in os.environ

        @classmethod
        def get_coordinator_address(cls, **_: Any) -> str:
            return os.environ["JAX_COORDINATOR_ADDRESS"]

        @classmethod
        def get_process_count(cls) -> int:
            return int(os.environ["JAX_NUM_PROCESSES"])

        @classmethod
        def get_process_id(cls) -> int:
            return int(os.environ["JAX_PROCESS_ID"])

    base._cluster_types.remove(ThisJob)
    base._cluster_types.insert(0, ThisJob)


def bind_gloo(module: Any) -> None:
    """Have gloo listen on this host's address, and its thread wait for its turn (SCHED_BATCH)."""
    address, made = os.environ.get("ENTRYPOINT_ADDRESS"), module._jax.make_gloo_tcp_collectives

    @functools.wraps(made)
    def make(*args: Any, **kwargs: Any) -> Any:
        before = _threads()
        here = {"hostname": address} if address and not {"hostname", "interface"} & kwargs.keys() else {}
        collectives = made(*args, **here, **kwargs)
        for thread in _threads() - before:
            with contextlib.suppress(OSError):  # a thread that has ended; a container that may not set this
                os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
        return collectives

    module._jax.make_gloo_tcp_collectives = make


def _threads() -> set[int]:
    """Return the kernel's numbers of this process's threads; none where there is no /proc."""
    with contextlib.suppress(OSError):
        return {int(path.name) for path in Path("/proc/self/task").iterdir()}
    return set()


def keep_handler(module: Any) -> None:
    """Have `initialize` leave SIGTERM as the program has it, until the program asks jax whether to save.

    jax has a handler that notes the signal for `reached_preemption_sync_point`, and the program goes on. A program that
    never calls that would train on until it is killed.
    """
    initialize = module.State.initialize

    @functools.wraps(initialize)
    def keeping(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = entrypoint_looks_on.exchange_sigterm(None)
        try:
            return initialize(self, *args, **kwargs)
        finally:
            of_jax, manager = entrypoint_looks_on.exchange_sigterm(before), self.preemption_sync_manager
            if manager is not None and not callable(signal.getsignal(signal.SIGTERM)):
                self.preemption_sync_manager = Manager(manager, of_jax)

    module.State.initialize = keeping


class Manager:
    """Wrap jax's manager of preemptions. Hand SIGTERM over to it when the program first asks it."""

    def __init__(self, inner: Any, action: Any) -> None:
        self.inner, self.action = inner, action

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def reached_sync_point(self, step: int) -> bool:
        if self.action is not None:
            entrypoint_looks_on.exchange_sigterm(self.action)
            self.action = None
        return bool(self.inner.reached_sync_point(step))


def adapt(module: Any) -> None:
    for change in (find_coordinator, bind_gloo, keep_handler):
        with contextlib.suppress(Exception):  # another jax: the program runs as it would without us
            change(module)


# --- the end of a program that fails ---


class Failed:
    """Hold the exit code of a program that fails while other processes of the job wait for it."""

    code = 0

    @classmethod
    def note(cls, code: int) -> None:
        """End this process with `code` when all else is done, or soon; jax does not wait for the other processes."""
        jax = sys.modules.get(DISTRIBUTED)
        state = getattr(jax, "global_state", None)
        if not code or getattr(state, "client", None) is None or state.num_processes < 2:  # type: ignore[union-attr]
            return
        cls.code = code
        state.shutdown = lambda: None  # type: ignore[union-attr]
        timer = threading.Timer(END_SECONDS, cls.end)
        timer.daemon = True
        timer.start()

    @classmethod
    def end(cls) -> None:
        if cls.code:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            os._exit(cls.code)


# --- the program ---


def main() -> None:
    program, module = entrypoint_program.taken()
    if threads := os.environ.get("TF_NUM_INTRAOP_THREADS"):  # XLA reads NPROC
        os.environ.setdefault("NPROC", threads)
    sys.meta_path.insert(0, entrypoint_looks_on.Finder({DISTRIBUTED: adapt}))
    atexit.register(Failed.end)  # the first that is registered runs last
    try:
        if module:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        else:
            exec(compile(Path(program).read_bytes(), program, "exec"), entrypoint_program.names_of_main(program))
    except SystemExit as end:
        Failed.note(end.code & 0xFF if isinstance(end.code, int) else 0 if end.code is None else 1)
        raise
    except BaseException as error:
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename in (__file__, runpy.run_module.__code__.co_filename):
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        Failed.note(1)
        sys.exit(1)


if __name__ == "__main__":
    main()
