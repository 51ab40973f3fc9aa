"""Which processes belong to a test: those with its folder in their environment or command line."""

import contextlib
import os
from pathlib import Path


def processes_with(mark: str) -> dict[int, str]:
    """Living processes, other than this one, whose environment or command line holds `mark`: pid to command."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        proc = Path("/proc", entry)
        with contextlib.suppress(OSError):
            command = (proc / "cmdline").read_bytes()
            if mark.encode() in command + (proc / "environ").read_bytes():
                if (proc / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    found[int(entry)] = command.replace(b"\0", b" ").decode(errors="replace")[:200]
    return found
