"""Take a sample of this host: the use by the host, its processes and their connections since the last sample.

All figures but sizes of memory are differences. In a container, CPU time and memory come from the control group, which
counts the container alone; figures of disks, network and (with version 1) CPUs are what the machine shows in this
namespace.
"""

import contextlib
import os
import re
import time
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from entrypoint.launcher.host.machine import groups, read
from entrypoint.launcher.job.channels import InputMode
from entrypoint.launcher.job.job import Job
from entrypoint.observe.monitor.process_usage import Differences, ProcessUsage, contents, fifos_filled
from entrypoint.observe.monitor.traffic import Exchange
from entrypoint.record.lines import HostUse, SampleLine

_TICKS = os.sysconf("SC_CLK_TCK")
BLOCKS = Path("/sys/block")
_SECTOR_BYTES = 512  # of /proc/diskstats, whatever the disk has


class HostUsage:
    """Measure one host, by the kernel's files, control groups and NVML. Figures that cannot be read are left out."""

    def __init__(self, free: Path) -> None:
        self._since = Differences()
        self._free = free
        self._memory = _folder("memory", "memory.current", "memory.usage_in_bytes")
        self._cpu = _folder("cpu", "cpu.stat")
        self._gpus: list[Any] = []
        if any(Path("/dev").glob("nvidia[0-9]*")):  # else NVML's binding is not imported
            with contextlib.suppress(Exception):
                import pynvml

                pynvml.nvmlInit()
                self._nvml = pynvml
                self._gpus = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]

    def look(self) -> HostUse:
        found: HostUse = {"cpu": self._processor_time(), "memory": self._memory_used()}
        events = read(self._memory, "memory.events", "memory.oom_control")
        if killed := self._since("oom", _number("oom_kill", events)):
            found["oom"] = int(killed)
        with contextlib.suppress(OSError, ValueError, IndexError):  # some kernels do not count them
            if disks := [words for line in _lines("/proc/diskstats") if is_disk((words := line.split())[2])]:
                found["disk"] = [
                    int(self._since(column, sum(int(words[column]) for words in disks))) * _SECTOR_BYTES
                    for column in (5, 9)  # read, written
                ]
        with contextlib.suppress(OSError, ValueError, IndexError):
            named = [line.rpartition(":") for line in _lines("/proc/net/dev")[2:]]
            links = [words.split() for name, _, words in named if name.strip() != "lo"]  # loopback is no network
            found["net"] = [
                int(self._since(("net", column), sum(int(words[column]) for words in links)))
                for column in (0, 8)  # received, sent
            ]
        with contextlib.suppress(OSError):
            disk = os.statvfs(self._free)
            found["free"] = disk.f_bavail * disk.f_frsize
        if gpus := self._gpus_used():
            found["gpus"] = gpus
        return found

    def _processor_time(self) -> list[float]:
        """Return [user, system, waiting for disks, stolen, throttled], in seconds."""
        # user, nice, system, idle, waiting for disks, two kinds of interrupts, stolen
        times = [int(word) / _TICKS for word in contents("/proc/stat").split(None, 9)[1:9]]
        told = read(self._cpu, "cpu.stat")
        if "usage_usec" in told:  # version 2 counts the container alone; version 1 keeps that elsewhere, in ticks
            user, system = (1e-6 * _number(name, told) for name in ("user_usec", "system_usec"))
        else:
            user, system = times[0] + times[1], times[2]
        throttled = 1e-6 * _number("throttled_usec", told) or 1e-9 * _number("throttled_time", told)
        totals = (user, system, times[4], times[7], throttled)
        return [round(self._since(("cpu", number), total), 3) for number, total in enumerate(totals)]

    def _memory_used(self) -> list[int]:
        """Return [anonymous, page cache, bytes that count against the limit], in bytes."""
        told = read(self._memory, "memory.stat")
        used = read(self._memory, "memory.current", "memory.usage_in_bytes").split()
        if told and used:
            anonymous, cache = _number("anon|total_rss", told), _number("file|total_cache", told)
            return [int(anonymous), int(cache), int(used[0])]
        memory = _machine_memory()
        taken = memory["MemTotal"] - memory["MemAvailable"]
        return [taken, memory["Cached"] + memory["SReclaimable"], taken]

    def _gpus_used(self) -> list[list[float]]:
        """Return [busy 0-1, bytes used, bytes in all, watts, memory's activity 0-1] of each GPU."""
        found = []
        for gpu in self._gpus:
            with contextlib.suppress(Exception):  # NVML has exceptions of its own; a lost GPU has no figures
                rates = self._nvml.nvmlDeviceGetUtilizationRates(gpu)
                memory = self._nvml.nvmlDeviceGetMemoryInfo(gpu)
                watts = self._nvml.nvmlDeviceGetPowerUsage(gpu) / 1000
                found.append([rates.gpu / 100, memory.used, memory.total, round(watts, 1), rates.memory / 100])
        return found


def _folder(controller: str, *names: str) -> Path:
    """Return the folder of this host's group that has one of these files; if none has, a folder without them."""
    return next((folder for folder, *_ in groups(controller) if read(folder, *names)), Path("/nonexistent"))


def _lines(path: str) -> list[str]:
    return contents(path).decode().splitlines()


@cache
def is_disk(name: str) -> bool:
    """Return whether this block device is a whole disk of the machine.

    Partitions, LVM, RAID and loop devices count beside the disks that they lie on; none of these has a `device`.
    """
    return (BLOCKS / name.replace("/", "!") / "device").exists()


def _machine_memory() -> dict[str, int]:
    """Return the bytes of each kind of memory that the machine shows."""
    pairs = (line.split(":") for line in _lines("/proc/meminfo"))
    return {name: int(rest.split()[0]) << 10 for name, rest in pairs}


def _number(names: str, text: str) -> float:
    found = re.search(rf"^(?:{names}) (\d+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def memory_limit() -> int:
    """Return the bytes of memory that this host may use: the lowest of its control groups' limits and the machine's."""
    said = [
        int(words[0])
        for group in groups("memory") for folder in group
        if (words := read(folder, "memory.max", "memory.limit_in_bytes").split()) and words[0].isdecimal()
    ]  # fmt: skip
    return min([*said, _machine_memory()["MemTotal"]])


class Sampling:
    """Sample the host for the monitor's loop. All figures cover the time between two looks."""

    def __init__(self, job: Job) -> None:
        self._host = HostUsage(job.paths.base)
        self.processes = ProcessUsage()
        self.exchange = Exchange(job.cluster, (job.settings.control_port, job.settings.ssh_port))
        self._pipes = {
            channel.name: str(job.paths.input_data / channel.name)
            for channel in job.channels.all
            if channel.mode is InputMode.PIPE
        }
        self._looked = time.monotonic()
        self._host.look()

    def look(
        self, running: Mapping[str, int], training: Collection[str], printed: Mapping[str, Mapping[str, int]]
    ) -> SampleLine:
        """Return the use since the last look.

        `running`: {name: pid} of the plan's processes; `training`: the names of those that train; `printed`: bytes of
        output by process. The traffic of mpirun and its daemons, such as the ranks' output, is not training.
        """
        now = time.monotonic()
        seconds, self._looked = now - self._looked, now
        host, processes = self._host.look(), self.processes.look(running)
        families = self.processes.families
        pids = {pid for family in families.values() for pid in family}
        if filled := fifos_filled(self._pipes, pids):
            host["fifos"] = filled
        for name, counts in printed.items():
            processes.setdefault(name, {}).update(counts)
        trainers = {pid for name in training for pid in families.get(name, ())}
        exchanged = self.exchange.look(trainers)
        if self.exchange.is_blind:
            host["unseen"] = True
        return SampleLine(seconds=round(seconds, 3), host=host, processes=processes, peers=exchanged)
