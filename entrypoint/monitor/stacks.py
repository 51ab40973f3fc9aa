"""Where a process stands: its Python stack, by py-spy, which reads it from outside and changes nothing in it.

Where reading another's memory is refused (a container without ptrace), the kernel's word for what it waits in is all.
"""

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from entrypoint.host.descendants import read_stat
from entrypoint.values import Value, replace

PATIENCE = 20.0  # seconds for one process
MOST = 8  # processes of a family
_OURS = ("/site-packages/", "/dist-packages/", "/lib/python", "<frozen", "<string>")


class Stack(Value):
    """What is known of one process: all stacks as text, and where its main thread stands."""

    by: str  # which tool told it
    text: str
    place: str = ""  # in the user's own code: `data.py:41 __next__`
    inside: str = ""  # what that has called, of a library: `horovod allreduce`


def stack_of_family(pids: Collection[int]) -> Stack:
    """Return the stacks of a process and what it has started, and where the first stands that is in the user's code.

    What we have started may be a shell, or the small program by which mpirun starts a rank.
    """
    found = {pid: stack_of(pid) for pid in sorted(pids)[:MOST]}
    best = max(found.values(), key=lambda stack: (bool(stack.place), bool(stack.inside)), default=Stack(by="", text=""))
    return replace(best, text="\n\n".join(f"pid {pid}, by {stack.by}\n\n{stack.text}" for pid, stack in found.items()))


def stack_of(pid: int) -> Stack:
    """Return the stacks of one process: all of its threads, with native frames where they can be had."""
    if (status := read_stat(pid)) and status.state in "Tt":
        return Stack(by="the kernel", text="stopped by a signal", place="no code: stopped by a signal")
    tool = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    why = "py-spy is not installed"
    for native in (["--native"], []) if tool else ():
        with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
            command = [str(tool), "dump", "--json", "--pid", str(pid), *native]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
            if done.returncode == 0:
                return _read(pid, json.loads(done.stdout))
            why = (done.stderr.strip().splitlines() or ["py-spy failed"])[-1]
    return Stack(by=f"the kernel ({why})", text=_kernels_word(pid))


def _read(pid: int, threads: Sequence[dict[str, Any]]) -> Stack:
    text = "\n\n".join(
        f"thread {thread['os_thread_id']} {thread['thread_name'] or ''} ({'active' if thread['active'] else 'idle'})\n"
        + "\n".join(f"  {frame['short_filename'] or frame['filename']}:{frame['line']} {frame['name']}"
                    for frame in thread["frames"])
        for thread in threads
    )  # fmt: skip
    main: list[dict[str, Any]] = next((thread["frames"] for thread in threads if thread["os_thread_id"] == pid), [])
    python = [frame for frame in main if str(frame["filename"]).endswith(".py")]
    own = next((frame for frame in python if not any(part in frame["filename"] for part in _OURS)), None)
    called = python[: python.index(own)] if own else python
    return Stack(by="py-spy", text=text, place=_place(own), inside=_library(called))


def _place(frame: dict[str, Any] | None) -> str:
    return f"{Path(frame['filename']).name}:{frame['line']} {frame['name']}" if frame else ""


def _library(frames: Sequence[dict[str, Any]]) -> str:
    """Return the call by which the user's code went into a library: the package's name, and the function's."""
    if not frames:
        return ""
    frame = frames[-1]
    _, found, rest = str(frame["filename"]).rpartition("-packages/")
    return f"{rest.split('/')[0].removesuffix('.py') if found else Path(frame['filename']).stem}.{frame['name']}"


def _kernels_word(pid: int) -> str:
    lines = []
    with contextlib.suppress(OSError):
        for task in sorted(Path(f"/proc/{pid}/task").iterdir()):
            with contextlib.suppress(OSError):
                name, waits = (task / "comm").read_text().strip(), (task / "wchan").read_text().strip("0")
                lines.append(f"thread {task.name} {name}: {f'waits in {waits}' if waits else 'runs'}")
    return "\n".join(lines)
