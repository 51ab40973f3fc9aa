"""Read the control groups of this process: limits of memory, CPUs and processes, and what lack of memory has killed.

See the kernel's admin-guide/cgroup-v2 and cgroup-v1. A container sees its own group at the mount point.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

_UNLIMITED_BYTES = 1 << 60  # bytes; version 1 writes "no limit" as a number of this size


def groups(controller: str, process: Path = Path("/proc/self")) -> Iterator[list[Path]]:
    """Yield the folders of our group and its ancestors for each hierarchy that may have this controller."""
    try:
        own = [line.split(":", 2) for line in (process / "cgroup").read_text().splitlines()]
        mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
    except OSError:
        return
    for mount in mounts:
        root, point, rest = mount[3].rstrip("/"), Path(mount[4]), mount[mount.index("-") + 1 :]
        if rest[0] == "cgroup2":
            paths = [path for _, controllers, path in own if not controllers]
        elif rest[0] == "cgroup" and controller in rest[-1].split(","):
            paths = [path for _, controllers, path in own if controller in controllers.split(",")]
        else:
            continue
        for path in paths[:1]:
            below = path.removeprefix(root).strip("/") if f"{path}/".startswith(f"{root}/") else ""
            folder = point / below
            yield [each for each in (folder, *folder.parents) if each.is_relative_to(point)]


def read(folder: Path, *names: str) -> str:
    """Return the contents of these files. Each version has names of its own; the other's files are absent."""
    found = ""
    for name in names:
        with contextlib.suppress(OSError):
            found += (folder / name).read_text() + "\n"
    return found


def most_processes() -> int | None:
    """Return the least limit of processes and threads of our group and its ancestors; None if there is none."""
    limits = [read(folder, "pids.max").strip() for group in groups("pids") for folder in group]
    return min((int(most) for most in limits if most.isdecimal()), default=None)  # "max" is no limit


class Meter:
    """Read the counter of our control group. Without one, nothing is ever reported."""

    def __init__(self, process: Path = Path("/proc/self")) -> None:
        folders = [group[0] for group in groups("memory", process)]
        self._folder = next((folder for folder in folders if _count(folder) is not None), None)
        self._seen = _count(self._folder) or 0

    def killed_since(self) -> str:
        """Return a line about what was killed since the last call; "" if nothing was, or there is no counter."""
        new = (_count(self._folder) or 0) - self._seen
        if self._folder is None or new <= 0:
            return ""
        self._seen += new
        limit = _megabytes(self._folder, "limit", "memory.max", "memory.limit_in_bytes")
        peak = _megabytes(self._folder, "peak", "memory.peak", "memory.max_usage_in_bytes")
        shown = f" ({', '.join([*limit, *peak])})" if limit or peak else ""
        return f"the kernel killed {new} process{'es' * (new > 1)} of this host for lack of memory{shown}"


def _count(folder: Path | None) -> int | None:
    text = read(folder, "memory.events", "memory.oom_control") if folder else ""
    found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


def _megabytes(folder: Path, what: str, *names: str) -> list[str]:
    size = read(folder, *names).strip()
    return [f"{int(size) / (1 << 20):,.0f} MiB {what}"] if size.isdecimal() and 0 < int(size) < _UNLIMITED_BYTES else []
