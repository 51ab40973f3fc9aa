"""Find where in the code a process is, and whether it works or waits, from two looks at it. Pure."""

import re
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from entrypoint.base.values import Value
from entrypoint.observe.monitor.threads import WAITERS

WORKS = 0.2  # CPUs: less than this is waiting
LOOKS_ON = "/entrypoint_looks_on.py"  # the module of programs/on_path/
OUR_THREAD = "entrypoint-looks-on"  # its thread; no script waits for it
# Wrappers around functions of libraries, which a user has not called: ours, TensorFlow's and Keras's.
_AROUND = (LOOKS_ON, "/utils/traceback_utils.py", "/util/traceback_utils.py", "/util/dispatch.py")
# Our programs, which stand around the user's, are in site-packages in our own image only.
_OUR_PACKAGE = f"{Path(__file__).resolve().parents[2]}/"
_LIBRARIES = (
    "/site-packages/", "/dist-packages/", "/lib/python", "<frozen", "<string>", LOOKS_ON, _OUR_PACKAGE,
    "/sagemaker_tf_data/",
)  # fmt: skip


class Doing(Enum):
    """Name the activity of a process, as far as two looks show it."""

    WORKS = "works"
    COLLECTIVE = "waits in a collective"
    TENSORFLOW = "waits in TensorFlow"
    JAX = "waits in jax"
    DEVICE = "waits for a GPU"
    SLEEPS = "sleeps"
    LOCK = "waits for a lock"
    PIPE = "waits for a pipe"
    SOCKET = "waits for a socket"
    POLL = "waits for a socket or a pipe"
    CHILD = "waits for another process"
    DISK = "waits for a disk"
    ENDED = "has ended"
    STOPPED = "stopped by a signal"
    WAITS = "waits"
    UNKNOWN = ""

    @classmethod
    def _missing_(cls, value: object) -> "Doing":
        return cls.UNKNOWN  # of a newer version's record


# Names of the innermost native function, or of the kernel's function in which a thread waits (wchan).
_WAITS = (
    (Doing.SLEEPS, re.compile(r"nanosleep|^usleep|^sleep$")),
    (Doing.PIPE, re.compile(r"pipe_(?:read|write|wait)")),
    (Doing.SOCKET, re.compile(r"^recv|^accept|^connect$|sk_wait|inet_|unix_stream|skb_|^tcp_|wait_woken|^sock_")),
    (Doing.POLL, re.compile(r"poll|^select$|do_select")),
    (Doing.CHILD, re.compile(r"^do_wait|^waitpid|^wait4|^waitid")),
    (Doing.DISK, re.compile(r"io_schedule|^f(?:data)?sync|folio_wait|rpc_|nfs_|jbd2|on_page|fuse_|request_wait")),
    (Doing.LOCK, re.compile(r"futex|sem_wait|pthread_cond|acquire_lock|pthread_mutex")),
)
# Inside these libraries and functions a thread waits for other ranks or for a device, even if it keeps a CPU busy.
_COLLECTIVE = re.compile(
    r"/lib(?:mpi|open-pal|open-rte|nccl|gloo|mca_)[\w.+-]*\.so|/mca_\w+\.so|^(?:P?MPI_|ompi_|opal_|nccl|gloo::|horovod)"
    r"|-packages/(?:horovod|mpi4py)/"
)
_TENSORFLOW = re.compile(r"-packages/(?:tensorflow|keras|tf_keras)/")
_JAX = re.compile(r"/jaxlib/lib\w+\.so|-packages/jax/")  # its collectives, by gloo, are inside of this library, too
_DEVICE = re.compile(r"/libcuda(?:rt)?\.so|^cu(?:da)?(?:Stream|Event|Ctx|Device)Synchronize")
_ALLOCATES = re.compile(r"AllocatorRetry")  # TensorFlow waits 10 s for memory of a GPU before it gives up


class StackLook(Value):
    """Hold one look at a process: py-spy's stacks, and the kernel's figures by thread.

    `waits`: the kernel's function in which a thread waits; `used`: CPU seconds since the thread began.
    """

    at: float = 0.0  # by time.monotonic()
    stacks: Sequence[Mapping[str, Any]] = ()
    state: str = ""  # state of the main thread, as in /proc/PID/stat
    waits: Mapping[int, str] = {}
    used: Mapping[int, float] = {}
    names: Mapping[int, str] = {}


class Stand(Value):
    """Hold the place in the code where a process is, and what it does there."""

    place: str = ""  # line of the user's own code: `data.py:41 __next__`
    inside: str = ""  # library function that it has called: `horovod.allreduce`
    doing: Doing = Doing.UNKNOWN

    def __str__(self) -> str:
        where = f"{self.place}, in {self.inside}" if self.place and self.inside else self.place or self.inside
        return (where or "an unknown place") + (f" ({self.doing.value})" if self.doing.value else "")


def stand(pid: int, first: StackLook, second: StackLook, waiting: Collection[int] = ()) -> Stand:
    """Return where a process is and what it does, from two looks; `waiting`: threads that are known to wait busily."""
    if second.state in {"T", "t"}:
        return Stand(place="no code", doing=Doing.STOPPED)
    frames = _frames(pid, second) or _frames(pid, first)
    # Code that a user would recognise: no native code, no wrapper.
    python = [frame for frame in frames if str(frame["filename"]).endswith(".py")]
    python = [frame for frame in python if not frame["filename"].endswith(_AROUND)]
    own = next(filter(_is_own, frames), None)
    called = python[: python.index(own)] if own else python
    doing = _doing(pid, first, second, waiting)
    if python and python[0]["name"] == "_shutdown" and Path(python[0]["filename"]).name == "threading.py":
        place = f"the end of the script, which waits for {_thread_left(pid, second)}"
        return Stand(place=place, doing=doing if doing is Doing.WORKS else Doing.ENDED)
    return Stand(place=_place(own) if own else "", inside=_library(called), doing=doing)


def waits_for_disk(look: StackLook) -> bool:
    """Return whether a thread waits for a disk: no signal reaches it then."""
    return any(map(dict(_WAITS)[Doing.DISK].search, look.waits.values()))


def _doing(pid: int, first: StackLook, second: StackLook, waiting: Collection[int]) -> Doing:
    if _works(pid, first, second, waiting):
        return Doing.WORKS
    frames = [*_within(_frames(pid, first)), *_within(_frames(pid, second))]
    marks = [str(frame[key]) for frame in frames for key in ("name", "module", "filename") if frame.get(key)]
    if any(map(_ALLOCATES.search, marks)):
        return Doing.WORKS
    if any(map(_COLLECTIVE.search, marks)):
        return Doing.COLLECTIVE
    if any(map(_DEVICE.search, marks)):
        return Doing.DEVICE
    innermost = str(next((frame["name"] for frame in _frames(pid, first)), ""))
    said = [word for word in (second.waits.get(pid, ""), innermost) if word]
    found = next((doing for word in said for doing, pattern in _WAITS if pattern.search(word)), Doing.WAITS)
    if found is Doing.LOCK and not any(frame.get("module") for frame in _frames(pid, first)):
        found = Doing.WAITS  # py-spy cannot unwind some libraries, such as jaxlib: a collective's lock looks the same
    if found in {Doing.LOCK, Doing.WAITS} and any(map(_JAX.search, marks)):
        return Doing.JAX
    python = _python_lines(frames)
    if found in {Doing.LOCK, Doing.WAITS} and python and _TENSORFLOW.search(python[0][0]):
        return Doing.TENSORFLOW
    return found if said else Doing.UNKNOWN


def _works(pid: int, first: StackLook, second: StackLook, waiting: Collection[int]) -> bool:
    """Return whether threads of a process work, or its main thread has moved between the looks."""
    python = {int(thread["os_thread_id"]) for thread in second.stacks if thread["os_thread_id"] is not None}
    used = 0.0
    for tid, total in second.used.items():
        is_waiter = WAITERS.match(second.names.get(tid, "")) or (tid in waiting and tid not in python)
        if tid in first.used and not (is_waiter and tid != pid) and not _spins(tid, first):
            used += min(total - first.used[tid], second.at - first.at)
    before, after = (_python_lines(_frames(pid, look)) for look in (first, second))
    return used >= WORKS * (second.at - first.at) or bool(before and after and before != after)


def _spins(tid: int, look: StackLook) -> bool:
    """Return whether a thread that Python knows is inside a collective, or waits for a GPU."""
    native = [str(frame[key]) for frame in _frames(tid, look) for key in ("module", "name") if frame.get("module")]
    return any(pattern.search(word) for word in native for pattern in (_COLLECTIVE, _DEVICE))


def _thread_left(pid: int, look: StackLook) -> str:
    """Name the thread that has not ended, and the place where it is."""
    for thread in look.stacks:
        own = next(filter(_is_own, thread["frames"]), None)
        if thread["os_thread_id"] != pid and own and thread["thread_name"] != OUR_THREAD:
            return f"its thread {thread['thread_name'] or thread['os_thread_id']} in {_place(own)}"
    return "a thread of its own"


def _frames(tid: int, look: StackLook) -> Sequence[Mapping[str, Any]]:
    return next((thread["frames"] for thread in look.stacks if thread["os_thread_id"] == tid), ())


def _within(frames: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the frames that the user's own code called, without those of its callers, such as mpi4py."""
    python = next((at + 1 for at, frame in enumerate(frames) if str(frame["filename"]).endswith(".py")), len(frames))
    return frames[: next((at for at, frame in enumerate(frames) if _is_own(frame)), python)]


def without_ours(threads: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the stacks of threads, the main one first, without our own threads and frames."""
    theirs = [thread for thread in threads if thread["thread_name"] != OUR_THREAD]
    return [
        {**thread, "frames": [frame for frame in thread["frames"] if LOOKS_ON not in str(frame["filename"])]}
        for thread in sorted(theirs, key=lambda thread: thread["thread_name"] != "MainThread")
    ]


def _is_own(frame: Mapping[str, Any]) -> bool:
    name = str(frame["filename"])
    return name.endswith(".py") and not any(part in name for part in _LIBRARIES)


def _python_lines(frames: Sequence[Mapping[str, Any]]) -> list[tuple[str, int, str]]:
    return [
        (frame["filename"], frame["line"], frame["name"])
        for frame in frames if str(frame["filename"]).endswith((".py", ">"))
    ]  # fmt: skip


def _place(frame: Mapping[str, Any]) -> str:
    return f"{Path(frame['filename']).name}:{frame['line']} {frame['name']}"


def _library(frames: Sequence[Mapping[str, Any]]) -> str:
    """Return the call by which the user's code entered a library, as `package.function`."""
    if not frames:
        return ""
    frame = frames[-1]
    _, found, rest = str(frame["filename"]).rpartition("-packages/")
    return f"{rest.split('/')[0].removesuffix('.py') if found else Path(frame['filename']).stem}.{frame['name']}"
