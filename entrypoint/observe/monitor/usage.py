"""Measure what this host and its processes have used since the last look, with psutil, control groups and NVML.

All figures but sizes of memory are differences. In a container, CPU time and memory come from the control group, which
counts the container alone; psutil's figures of disks, network and (with version 1) CPUs are what the machine shows in
this namespace.
"""

import array
import contextlib
import fcntl
import os
import re
import termios
from collections.abc import Collection, Mapping
from pathlib import Path
from stat import S_ISFIFO
from typing import Any

import psutil

from entrypoint.launcher.host.cgroups import groups, read
from entrypoint.launcher.host.descendants import read_stat
from entrypoint.observe.monitor.differences import Differences

_MICRO = 1e-6
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class HostUsage:
    """Measure one host: HOST_PART of README.md. Figures that cannot be read are left out."""

    def __init__(self, free: Path) -> None:
        self._since = Differences()
        self._free = free
        self._memory = _folder("memory", "memory.current", "memory.usage_in_bytes")
        self._cpu = _folder("cpu", "cpu.stat")
        self._gpus = _Gpus()

    def look(self) -> dict[str, Any]:
        """Return what was used since the last look."""
        found: dict[str, Any] = {"cpu": self._processor_time(), "memory": self._memory_used()}
        events = read(self._memory, "memory.events", "memory.oom_control") if self._memory else ""
        if killed := self._since("oom", _number("oom_kill", events)):
            found["oom"] = int(killed)
        with contextlib.suppress(Exception):  # some kernels do not count them
            disks = psutil.disk_io_counters()
            if disks:
                found["disk"] = [
                    int(self._since("read", disks.read_bytes)), int(self._since("written", disks.write_bytes))
                ]  # fmt: skip
        with contextlib.suppress(Exception):
            net = psutil.net_io_counters(nowrap=False)
            found["net"] = [int(self._since("received", net.bytes_recv)), int(self._since("sent", net.bytes_sent))]
        with contextlib.suppress(OSError):
            found["free"] = psutil.disk_usage(str(self._free)).free
        if gpus := self._gpus.look():
            found["gpus"] = gpus
        return found

    def _processor_time(self) -> list[float]:
        """Return [user, system, waiting for disks, stolen, throttled], in seconds."""
        times = psutil.cpu_times()
        told = read(self._cpu, "cpu.stat") if self._cpu else ""
        if "usage_usec" in told:  # version 2 counts the container alone; version 1 keeps that elsewhere, in ticks
            user, system = (_MICRO * _number(name, told) for name in ("user_usec", "system_usec"))
        else:
            user, system = times.user + times.nice, times.system
        throttled = _MICRO * _number("throttled_usec", told) or 1e-9 * _number("throttled_time", told)
        totals = (user, system, getattr(times, "iowait", 0.0), getattr(times, "steal", 0.0), throttled)
        return [round(self._since(("cpu", number), total), 3) for number, total in enumerate(totals)]

    def _memory_used(self) -> list[int]:
        """Return [anonymous, page cache, what counts against the limit], in bytes."""
        told = read(self._memory, "memory.stat") if self._memory else ""
        used = read(self._memory, "memory.current", "memory.usage_in_bytes").split() if self._memory else []
        if told and used:
            anonymous, cache = _number("anon|total_rss", told), _number("file|total_cache", told)
            return [int(anonymous), int(cache), int(used[0])]
        memory = psutil.virtual_memory()
        return [memory.total - memory.available, getattr(memory, "cached", 0), memory.total - memory.available]


def memory_limit() -> int:
    """Return the bytes of memory that this host may use: the least limit of its control groups and the machine."""
    said = [
        int(words[0])
        for group in groups("memory") for folder in group
        if (words := read(folder, "memory.max", "memory.limit_in_bytes").split()) and words[0].isdecimal()
    ]  # fmt: skip
    return min([*said, psutil.virtual_memory().total])


class ProcessUsage:
    """Measure the processes of the plan, each with its descendants: PROCESS_PART of README.md."""

    def __init__(self) -> None:
        self._since = Differences()

    def look(self, families: Mapping[str, Collection[int]]) -> dict[str, dict[str, float]]:
        """Return what the processes (pids) of each name have used since the last look."""
        found, seen = {}, set()
        for name, pids in families.items():
            sums: dict[str, float] = {}
            for pid in pids:
                for key, value in _of_process(pid).items():
                    counter = (pid, key)
                    if key in _SIZES:
                        amount = value
                    else:
                        amount = self._since(counter, value)
                        seen.add(counter)
                    sums[key] = sums.get(key, 0) + amount
            found[name] = {
                key: round(value, 3) if key in _TIMES else int(value) for key, value in sums.items() if value
            }
        self._since.forget(seen)
        return found


_SIZES, _TIMES = {"memory", "threads"}, {"cpu", "wait"}


def _of_process(pid: int) -> dict[str, float]:
    """Return the totals of one process; {} if it is gone. psutil would take three times as long."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        words = _quickly(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        found = {
            "cpu": (int(words[11]) + int(words[12])) / _TICKS,
            "threads": int(words[17]),
            "memory": int(words[21]) * _PAGE,
            "wait": int(words[39]) / _TICKS,  # delayacct_blkio_ticks
        }
        with contextlib.suppress(OSError):  # the process is another user's
            numbers = [int(word) for word in _quickly(f"/proc/{pid}/io").split()[1::2]]
            found |= {"read": numbers[0], "written": numbers[1], "stored": numbers[4] + numbers[5]}
        return found
    return {}


def _quickly(path: str) -> bytes:
    """Read a small file. With many files, pathlib takes longer than the kernel."""
    with open(path, "rb", buffering=0) as file:
        return file.read(4096) or b""


class Families:
    """Find the descendants of the plan's processes. A result is kept for some looks: each search reads all of /proc."""

    AGAIN = 5  # looks until the next search

    def __init__(self) -> None:
        self._looks, self._known, self._families = 0, frozenset[tuple[str, int]](), dict[str, list[int]]()

    def of(self, processes: Mapping[str, int]) -> dict[str, list[int]]:
        """Return {name: its pid and those of its descendants}; a process belongs to its nearest ancestor here."""
        known = frozenset(processes.items())
        self._looks += 1
        if known != self._known or self._looks >= self.AGAIN:
            self._looks, self._known = 0, known
            self._families = _families(processes)
        return self._families


def _families(processes: Mapping[str, int]) -> dict[str, list[int]]:
    names = {pid: name for name, pid in processes.items()}
    parents = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdigit() and (stat := read_stat(entry)):
            parents[stat.pid] = stat.parent
    found: dict[str, list[int]] = {name: [] for name in processes}
    for pid in parents:
        above = pid
        while above and above not in names:
            above = parents.get(above, 0)
        if above:
            found[names[above]].append(pid)
    return found


class _Gpus:
    """Measure GPUs with NVML. The binding is imported only where device files show an NVIDIA GPU."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        if any(Path("/dev").glob("nvidia[0-9]*")):
            with contextlib.suppress(Exception):
                import pynvml

                pynvml.nvmlInit()
                self._nvml = pynvml
                self._handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]

    def look(self) -> list[list[float]]:
        """Return [busy 0-1, bytes used, bytes in all, watts, memory's activity 0-1] of each GPU."""
        found = []
        for handle in self._handles:
            with contextlib.suppress(Exception):  # NVML has exceptions of its own; a lost GPU has no figures
                rates, memory = (
                    self._nvml.nvmlDeviceGetUtilizationRates(handle),
                    self._nvml.nvmlDeviceGetMemoryInfo(handle),
                )
                watts = self._nvml.nvmlDeviceGetPowerUsage(handle) / 1000
                found.append([rates.gpu / 100, memory.used, memory.total, round(watts, 1), rates.memory / 100])
        return found


def fifos_filled(channels: Mapping[str, str], pids: Collection[int]) -> dict[str, list[int]]:
    """Return {channel: [bytes waiting in its pipe, its capacity]} of the pipes (name: path prefix) that `pids` read.

    A pipe is inspected only by the descriptor of its reader. Opening the FIFO ourselves would make us its first reader,
    for which the writer waits.
    """
    found = {}
    for pid in pids if channels else ():
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    link = os.readlink(entry.path)  # noqa: PTH115
                    name = next((name for name, path in channels.items() if link.startswith(path)), None)
                    if name and S_ISFIFO(entry.stat().st_mode):
                        found[name] = _filled(entry.path)
    return found


def _filled(path: str) -> list[int]:
    waiting = array.array("i", [0])
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        fcntl.ioctl(fd, termios.FIONREAD, waiting)
        return [waiting[0], fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)]
    finally:
        os.close(fd)


def _folder(controller: str, *names: str) -> Path | None:
    folders = [group[0] for group in groups(controller)]
    return next((folder for folder in folders if read(folder, *names)), None)


def _number(names: str, text: str) -> float:
    found = re.search(rf"^(?:{names}) (\d+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0
