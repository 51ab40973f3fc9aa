"""Measure memory and CPU time of the launcher: those of all processes in the containers except the user's script.

Both sides are measured alike, from outside. All containers of a job are in one control group, made for it.
CPU: what the kernel counted for that group from its first process to its last, less what the scripts counted for
themselves, their interpreter's start included. sshd, mpirun, its daemons and parameter servers are the launcher's.
Memory: ten times a second, the group's anonymous memory less that of the scripts; the maximum. A page counts once,
however many processes share it. Pages of files, as those of libraries, do not count: they are the page cache's, and a
script that imports TensorFlow shares them with a launcher that does.
"""

import contextlib
import os
import threading
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
INTERVAL_S = 0.1
PAGE = os.sysconf("SC_PAGE_SIZE")


class Usage:
    """A control group for a job. `parent` is for `docker create --cgroup-parent`. Needs root."""

    def __init__(self, name: str, program: str) -> None:
        self.parent = f"/{name}"
        self.peak_bytes, self.is_sampled = 0, True
        self._name, self._program = name, program.encode()
        self._over = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "Usage":
        if self.is_sampled:
            self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self.is_sampled:
            self._sampler.join()
        for folder in [ROOT / self._name, *ROOT.glob(f"*/{self._name}")]:  # docker makes them and leaves them
            with contextlib.suppress(OSError):
                folder.rmdir()

    def cpu_s(self) -> float:
        """Return the CPU seconds of all processes of the job so far, including ended ones."""
        if (usage := self._folder("cpuacct") / "cpuacct.usage").exists():
            return int(usage.read_text()) / 1e9
        return _fields(self._folder("cpu") / "cpu.stat")["usage_usec"] / 1e6

    def _folder(self, controller: str) -> Path:
        """Return the job's folder; version 1 has a tree for each controller, version 2 one for all."""
        tree = ROOT / controller
        return (tree if tree.is_dir() else ROOT) / self._name

    def _sample(self) -> None:
        while not self._over.wait(INTERVAL_S):
            with contextlib.suppress(OSError):  # a container comes or goes
                # The scripts first: what they take in between would count as the launcher's.
                scripts = sum(self._scripts_bytes(pid) for pid in self._pids())
                self.peak_bytes = max(self.peak_bytes, self._all_bytes() - scripts)

    def _all_bytes(self) -> int:
        stats = [_fields(file) for file in self._folder("memory").glob("*/memory.stat")]
        return sum(fields["anon"] if "anon" in fields else fields["rss"] for fields in stats)

    def _pids(self) -> set[str]:
        files = self._folder("memory").glob("*/cgroup.procs")
        return {pid for file in files for pid in file.read_text().split()}

    def _scripts_bytes(self, pid: str) -> int:
        try:
            if not is_script(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"), self._program):
                return 0
            resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
            return (int(resident) - int(shared)) * PAGE
        except (OSError, ValueError):  # it has ended
            return 0


def _fields(file: Path) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in file.read_text().splitlines())}


def is_script(words: list[bytes], program: bytes) -> bool:
    """Return whether a command line is Python's with the user's script; mpirun and shells name the script, too."""
    names = [word.rpartition(b"/")[2] for word in words]
    python = bool(names) and names[0].startswith(b"python") and b"horovodrun" not in names
    return python and program in names[1:]
