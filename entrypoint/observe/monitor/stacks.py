"""Take two looks at each training process: its stacks by py-spy, and its threads by the kernel.

py-spy reads a process from outside and changes nothing in it. Where reading another's memory is refused (a container
without ptrace), only the kernel's figures of the threads are known.
"""

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from entrypoint.base.values import replace
from entrypoint.launcher.host.descendants import read_stat
from entrypoint.observe.monitor.wait_sites import Doing, StackLook, Stand, stand, waits_for_disk, without_ours
from entrypoint.record import lines

APART_SECONDS = 3.0  # between the two looks
PATIENCE_SECONDS = 20.0  # limit of py-spy's time for one process
MOST = 8  # processes of a family that are looked at
_TELLING = {Doing.WORKS: 3, Doing.STOPPED: 2, Doing.UNKNOWN: 0}  # which process of a family stands for it
SLOW_BYTES = 1e6  # moved between the looks: the host's disk is then slow, but not gone


def take(families: Mapping[str, Collection[int]], waiting: Mapping[str, int]) -> list[lines.Stacks]:
    """Return the stacks of each family of processes (name: pids), from two looks, APART_SECONDS apart.

    The first process of a family may be a shell, or the small program by which mpirun starts a rank. So a process that
    works represents its family. If none works, a process whose stack is in the user's code represents it.

    `waiting`: threads known to wait busily.
    """
    pids = {name: sorted(family)[:MOST] for name, family in families.items()}
    first, tools = {}, {}
    for pid in [pid for family in pids.values() for pid in family]:
        stacks, tools[pid] = _dump(pid, "--native")
        first[pid] = _look(pid, stacks)  # after py-spy, which makes every thread run for a moment
    bytes_before = _bytes_of_host()
    time.sleep(APART_SECONDS)
    is_io_slow = _bytes_of_host() - bytes_before > SLOW_BYTES
    found = []
    for name, family in pids.items():
        stands = {}
        for pid in family:
            second = replace(_look(pid, []), stacks=_dump(pid)[0])
            stands[pid] = stand(pid, first[pid], second, {waiting.get(name, 0)})
            if is_io_slow and (stands[pid].doing is Doing.DISK or waits_for_disk(second)):
                stands[pid] = replace(stands[pid], doing=Doing.WORKS)
        told = max(stands, key=lambda pid: (_TELLING.get(stands[pid].doing, 1), bool(stands[pid].place)), default=0)
        text = "\n\n".join(f"pid {pid}, by {tools[pid]}\n\n{_text(first[pid])}" for pid in family)
        at = stands.get(told, Stand())
        by, doing = tools.get(told, ""), at.doing.value
        found.append(lines.Stacks(process=name, by=by, place=at.place, inside=at.inside, doing=doing, text=text))
    return found


def _bytes_of_host() -> float:
    """Return the bytes that this host's disks and network have moved.

    The network counts, since a disk may be reached over it.
    """
    with contextlib.suppress(Exception):  # some kernels do not count them
        disks, net = psutil.disk_io_counters(), psutil.net_io_counters(nowrap=False)
        return net.bytes_recv + net.bytes_sent + (disks.read_bytes + disks.write_bytes if disks else 0)
    return 0.0


def _look(pid: int, stacks: Sequence[Mapping[str, Any]]) -> StackLook:
    """Return a look with these stacks and the kernel's figures of the process's threads."""
    status = read_stat(pid)
    waits, used, names = {}, {}, {}
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, ValueError):
                tid = int(task.name)
                ran, waited = (task / "schedstat").read_text().split()[:2]
                names[tid], used[tid] = (task / "comm").read_text().strip(), (int(ran) + int(waited)) / 1e9
                waits[tid] = (task / "wchan").read_text().strip("0")
    state = status.state if status else ""
    return StackLook(at=time.monotonic(), stacks=stacks, state=state, waits=waits, used=used, names=names)


def _dump(pid: int, *options: str) -> tuple[list[dict[str, Any]], str]:
    """Return the stacks of all threads that Python knows, and the tool used; if it fails, retry without `options`."""
    # py-spy would wait until all of its threads run again.
    if (status := read_stat(pid)) and (status.state in "Tt" or waits_for_disk(_look(pid, []))):
        return [], "the kernel"
    tool = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    why = "py-spy is not installed"
    for more in dict.fromkeys([options, ()]) if tool else ():
        with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
            done = subprocess.run(
                [str(tool), "dump", "--json", "--pid", str(pid), *more],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_SECONDS,
            )  # fmt: skip
            if done.returncode == 0:
                return json.loads(done.stdout), "py-spy"
            why = (done.stderr.strip().splitlines() or ["py-spy failed"])[-1]
    return [], f"the kernel ({why})"


def _text(look: StackLook) -> str:
    if look.state in {"T", "t"}:
        return "stopped by a signal"
    if not look.stacks:
        return "\n".join(
            f"thread {tid} {look.names.get(tid, '')}: {f'waits in {waits}' if waits else 'runs'}"
            for tid, waits in sorted(look.waits.items())
        )
    return "\n\n".join(
        f"thread {thread['os_thread_id']} {thread['thread_name'] or ''} ({'active' if thread['active'] else 'idle'})\n"
        + "\n".join(f"  {frame['short_filename'] or frame['filename']}:{frame['line']} {frame['name']}"
                    for frame in thread["frames"])
        for thread in without_ours(look.stacks)
    )  # fmt: skip
