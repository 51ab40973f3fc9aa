"""Read this process's control groups, in which the kernel accounts for memory and CPUs, in version 1 or 2.

See the kernel's admin-guide/cgroup-v2 and cgroup-v1. A container sees its own group at the mount point.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path


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
