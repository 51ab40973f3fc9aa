"""Test how stacks of busy or waiting processes are described, with frames as of py-spy and made-up counters."""

from pathlib import Path

import pytest

import entrypoint
from entrypoint.observe.monitor.wait_sites import Doing, StackLook, stand

PID = 7
OWN = {"name": "step", "filename": "/opt/ml/code/train.py", "short_filename": "train.py", "module": None, "line": 9}


def native(name: str, module: str) -> dict:
    return {"name": name, "filename": module, "short_filename": module.rpartition("/")[2], "module": module, "line": 0}


def python(name: str, package: str) -> dict:
    path = f"/opt/venv/lib/python3.11/site-packages/{package}"
    return {"name": name, "filename": path, "short_filename": package, "module": None, "line": 1}


RUNNER = python("main", "mpi4py/run.py")
MPI = native("opal_progress", "/usr/lib/x86_64-linux-gnu/libopen-pal.so.40")
CUDA = native("cuStreamSynchronize", "/usr/lib/x86_64-linux-gnu/libcuda.so.1")
RETRY = native("tensorflow::AllocatorRetry::AllocateRaw", "/opt/venv/lib/libtensorflow_framework.so.2")
FUTEX = native("pthread_cond_wait", "/usr/lib/x86_64-linux-gnu/libc.so.6")
JAXLIB = native("0x7efd603e0c49", "/opt/venv/lib/python3.11/site-packages/jaxlib/libjax_common.so")
NUMPY = native("dgemm_kernel", "/opt/venv/lib/python3.11/site-packages/numpy.libs/libopenblas.so")
EXECUTE = python("quick_execute", "tensorflow/python/eager/execute.py")
ALLREDUCE = python("allreduce", "horovod/tensorflow/mpi_ops.py")


def look(at: float, *frames: dict, used: float = 0.0, waits: str = "") -> StackLook:
    stacks = [{"os_thread_id": PID, "thread_name": "MainThread", "active": True, "frames": [*frames, OWN, RUNNER]}]
    return StackLook(at=at, stacks=stacks, state="S", waits={PID: waits}, used={PID: used}, names={PID: "python"})


@pytest.mark.parametrize(
    ("frames", "used", "waits", "doing"),
    [
        pytest.param([MPI], 3.0, "", Doing.COLLECTIVE, id="spins in Open MPI"),
        pytest.param([CUDA, EXECUTE], 3.0, "", Doing.DEVICE, id="spins until a GPU is ready"),
        pytest.param([NUMPY], 3.0, "", Doing.WORKS, id="computes, started by mpi4py"),
        pytest.param([FUTEX, EXECUTE], 0.0, "futex_wait", Doing.TENSORFLOW, id="waits for an operation"),
        pytest.param([FUTEX, JAXLIB], 0.0, "futex_wait", Doing.JAX, id="waits for a step of jax"),
        pytest.param([FUTEX, EXECUTE, ALLREDUCE], 0.0, "futex_wait", Doing.COLLECTIVE, id="waits for an allreduce"),
        pytest.param([FUTEX, RETRY, EXECUTE], 0.0, "futex_wait", Doing.WORKS, id="waits for GPU memory, 10 s at most"),
        pytest.param([FUTEX], 0.0, "futex_wait", Doing.LOCK, id="waits for a lock"),
        pytest.param([], 0.0, "futex_wait", Doing.WAITS, id="waits for a lock, maybe of a collective"),
        pytest.param([], 0.0, "hrtimer_nanosleep", Doing.SLEEPS, id="sleeps, started by mpi4py"),
        pytest.param([], 0.0, "folio_wait_bit_common", Doing.DISK, id="waits for a disk"),
    ],
)
def test_main_thread_stack_shows_its_activity(frames, used, waits, doing):
    found = stand(PID, look(1.0, *frames, waits=waits), look(4.0, *frames, used=used, waits=waits))
    assert (found.doing, found.place) == (doing, "train.py:9 step")


def test_main_thread_whose_stack_changes_counts_as_working():
    later = {**OWN, "line": 10}
    second = look(4.0)
    second.stacks[0]["frames"][0] = later
    assert stand(PID, look(1.0), second).doing is Doing.WORKS


def test_kernel_state_shows_activity_without_stacks():
    first, second = (StackLook(at=at, used={PID: 0.0}, names={PID: "python"}) for at in (1.0, 4.0))
    assert stand(PID, first, second).doing is Doing.UNKNOWN
    asleep = StackLook(at=4.0, used={PID: 0.0}, names={PID: "python"}, waits={PID: "hrtimer_nanosleep"})
    assert stand(PID, first, asleep).doing is Doing.SLEEPS, "the kernel's word"


@pytest.mark.parametrize(
    "path",
    [
        "/opt/venv/lib/python3.11/site-packages/entrypoint/programs/on_path/entrypoint_looks_on.py",
        "/home/me/checkout/entrypoint/programs/on_path/entrypoint_looks_on.py",
        "/opt/venv/lib/python3.11/site-packages/tensorflow/python/util/traceback_utils.py",
        "/opt/venv/lib/python3.11/site-packages/keras/src/utils/traceback_utils.py",
    ],
)
def test_library_wrappers_are_not_named_in_stacks(path):
    around = {**OWN, "name": "wrap.<locals>.around", "filename": path}
    frames = (FUTEX, EXECUTE, ALLREDUCE, around)
    found = stand(PID, look(1.0, *frames), look(4.0, *frames))
    assert str(found) == "train.py:9 step, in horovod.allreduce (waits in a collective)"


def test_launcher_wrapper_of_a_rank_is_not_user_code():
    """The parent of a rank is one of our programs, which in a checkout lies outside site-packages."""
    ours = {**python("main", "rank.py"), "filename": str(Path(entrypoint.__file__).with_name("programs") / "rank.py")}
    found = [look(at) for at in (1.0, 4.0)]
    for each in found:
        each.stacks[0]["frames"] = [ours]
    assert stand(PID, *found).place == ""
