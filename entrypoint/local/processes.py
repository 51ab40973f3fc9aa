"""The processes of one host, as /proc shows them: its launcher and all that descends from it.

Standard library only: the Docker engine hands this file to the Python inside a container.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

SENDING = "sending to "
_KEYS = {"host-key": "host_key", "client-key": "client_key"}  # the plan's name of a step, the comment in its command


def family(root: int) -> list[int]:
    """The process `root` and its descendants, parents first. Who has ended and is not reaped yet does not count."""
    children: dict[int, list[int]] = {}
    for entry in (path.name for path in Path("/proc").iterdir()):
        if entry.isdigit() and (stat := _stat(int(entry))) and stat[0] != "Z":
            children.setdefault(int(stat[1]), []).append(int(entry))
    found, todo = ([root] if _stat(root) else []), [root]
    while todo:
        new = sorted(children.get(todo.pop(0), []))
        found += new
        todo += new
    return found


def is_up(launcher: int) -> bool:
    """Whether a launcher is past its beginning: it hears SIGTERM."""
    caught = _status(launcher).get("SigCgt", "0")
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def find(launcher: int, name: str, told: int | None = None) -> int | None:
    """The process that `name` means on a host: one of the plan, else a program; None while there is none.

    `told`: its pid in the host's own words, for what the launcher says to have started.
    """
    members = family(launcher)[1:]
    if told is not None:
        return next((pid for pid in members if _status(pid).get("NSpid", "").split()[-1:] == [str(told)]), None)
    return next((pid for pid in members if _is(pid, name)), None)


def send(pid: int, number: int) -> bool:
    """Signal a process; False if it is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def freeze(launcher: int) -> None:
    """Stop all processes of a host, and those that they start meanwhile."""
    for _ in range(200):
        running = [pid for pid in family(launcher) if (stat := _stat(pid)) and stat[0] not in "TtZX"]
        if not running:
            return
        for pid in running:
            send(pid, signal.SIGSTOP)
        time.sleep(0.002)


def thaw(launcher: int) -> None:
    for pid in family(launcher):
        send(pid, signal.SIGCONT)


def _is(pid: int, name: str) -> bool:
    words = _words(pid)
    if name.startswith("rank "):
        # The user's program, not our own rank program above it.
        parent = (_stat(pid) or ["", "0"])[1]
        ours = any(word.endswith("/rank.py") for word in _words(int(parent)))
        return ours and f"OMPI_COMM_WORLD_RANK={name.removeprefix('rank ')}" in _read(pid, "environ")
    if name in _KEYS:
        return _KEYS[name] in words and words[0].endswith("ssh-keygen")
    programs = {word.rpartition("/")[2] for word in words[:5]}  # behind an interpreter and its options, too
    return bool(programs & {name, f"{name}.py"}) or "".join(_read(pid, "comm")).strip() == name[:15]


def _words(pid: int) -> list[str]:
    return _read(pid, "cmdline")


def _read(pid: int, what: str) -> list[str]:
    """A file of a process as its NUL-separated parts; [] if the process is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{what}").read_bytes().decode("utf-8", "replace").split("\0")
    return []


def _stat(pid: int) -> list[str]:
    """[state, parent, ...], or [] if the process is gone."""
    return "".join(_read(pid, "stat")).rpartition(")")[2].split()


def _status(pid: int) -> dict[str, str]:
    lines = "".join(_read(pid, "status")).splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def main() -> int:
    """NAME TOLD NUMBER: signal a process of this container, "" for its launcher; 75 if it is not there yet.

    It says so first: the signal may end the container, and this process with it.
    """
    name, told, number = sys.argv[1], int(sys.argv[2] or 0) or None, int(sys.argv[3])
    pid = find(1, name, told) if name else (1 if is_up(1) else None)
    if pid is None:
        return 75
    print(f"{SENDING}{pid}", flush=True)
    return 0 if send(pid, number) else 75


if __name__ == "__main__":
    sys.exit(main())
