"""Make control groups that limit the processes or the memory of a host in a test."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from waiting import eventually

LIMITS = {"pids": "pids.max", "memory": "memory.limit_in_bytes"}  # of version 1
NEW_LIMITS = {"pids": "pids.max", "memory": "memory.max"}  # of version 2


class NoGroup(Exception):
    """This machine cannot make a control group, for the given reason."""


@contextlib.contextmanager
def control_group(controller: str, limit: int | None = None) -> Iterator[Path]:
    """Make a group with a limit (`pids`: processes and threads, `memory`: bytes); raise NoGroup if it cannot.

    At the end wait until the group is empty, and remove it.
    """
    made = _make(controller, limit)

    def gone() -> bool:
        with contextlib.suppress(OSError):
            made.rmdir()
        return not made.exists()

    try:
        yield made
    finally:
        eventually(gone, within=60)


def _make(controller: str, limit: int | None) -> Path:
    why = f"there is no control group for {controller}"
    tree = Path("/sys/fs/cgroup")
    for root, file in ((tree / controller, LIMITS[controller]), (tree, NEW_LIMITS[controller])):
        folder = root / f"entrypoint-test-{uuid.uuid4().hex[:8]}"
        try:
            folder.mkdir()
            with open(folder / file, "r+") as limits, open(folder / "cgroup.procs", "r+"):  # they are there already
                if limit is not None:
                    limits.write(str(limit))
            return folder
        except OSError as error:
            why = why if isinstance(error, FileNotFoundError) else f"{root} cannot be written: {error}"
            with contextlib.suppress(OSError):
                folder.rmdir()
    raise NoGroup(why)


def why_not(controller: str) -> str:
    """Return why this machine cannot make such a group; "" if it can."""
    if os.geteuid() != 0:
        return "limiting a host takes root"
    try:
        with control_group(controller):
            return ""
    except NoGroup as error:
        return str(error)
