"""Our control groups: the folders in which the kernel tells of a host's memory and CPUs, in version 1 or 2.

See the kernel's admin-guide/cgroup-v2 and cgroup-v1. A container sees its own group at the mount point, whatever the
group's path is outside.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Group:
    """A control group that a controller rules us by."""

    version: int
    mount: Path  # where the hierarchy begins, as far as we see it
    folder: Path

    @property
    def line(self) -> list[Path]:
        """The group's folder and those of its ancestors, whose limits hold for us as well."""
        return [path for path in (self.folder, *self.folder.parents) if path.is_relative_to(self.mount)]


def groups(controller: str, process: Path = Path("/proc/self")) -> Iterator[Group]:
    """Return our groups in hierarchies that may have this controller; none where the kernel tells nothing."""
    try:
        own = [line.split(":", 2) for line in (process / "cgroup").read_text().splitlines()]
        mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
    except OSError:
        return
    paths = {controllers: path for _, controllers, path in own}
    for mount in mounts:
        root, point, rest = mount[3], Path(mount[4]), mount[mount.index("-") + 1 :]
        if rest[0] == "cgroup" and controller in rest[-1].split(","):
            path = next((path for names, path in paths.items() if controller in names.split(",")), None)
            version = 1
        elif rest[0] == "cgroup2":
            path, version = paths.get(""), 2
        else:
            continue
        if path is not None:
            yield Group(version=version, mount=point, folder=point / _below(root, path))


def _below(root: str, path: str) -> str:
    """Return a group's folder below the mount point."""
    inside = path == root or path.startswith(root.rstrip("/") + "/")
    return path[len(root.rstrip("/")) :].strip("/") if inside else ""


def most_processes() -> int | None:
    """Return how many processes and threads the kernel allows our group and those above it; None if it does not say."""
    limits: list[int] = []
    for group in groups("pids"):
        for folder in group.line:
            with contextlib.suppress(OSError, ValueError):  # "max" is no limit; the uppermost group has no file
                limits.append(int((folder / "pids.max").read_text()))
    return min(limits, default=None)
