"""Find and signal the processes of one host in /proc: its launcher and the launcher's descendants.

It imports only the standard library: the Docker engine passes this file to the Python in a container.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

SENDING = "sending to "
_MARK = "ENTRYPOINT_PROCESS="  # in the environment of each process of the plan and of its descendants


def family(root: int) -> list[int]:
    """Return the process `root` and its descendants, parents first, without zombies among the descendants."""
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
    """Return whether a launcher has installed its handler of SIGTERM."""
    caught = "".join(_read(launcher, "status")).partition("\nSigCgt:")[2].split()
    return bool(caught and int(caught[0], 16) >> (signal.SIGTERM - 1) & 1)


def find(launcher: int, name: str) -> int | None:
    """Return the pid of the plan's process `name` on a host, else of a program of that name; None without one."""
    members = family(launcher)[1:]
    marked = (pid for pid in members if f"{_MARK}{name}" in _read(pid, "environ"))
    return next(marked, None) or next((pid for pid in members if _is(pid, name)), None)


def send(pid: int, number: int) -> bool:
    """Signal a process; False if it is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def send_all(launcher: int, number: int) -> None:
    """Signal all processes of a host."""
    for pid in family(launcher):
        send(pid, number)


def freeze(launcher: int) -> None:
    """Stop all processes of a host by SIGSTOP, and those that they start meanwhile."""
    for _ in range(200):
        running = [pid for pid in family(launcher) if (stat := _stat(pid)) and stat[0] not in "TtZX"]
        if not running:
            return
        for pid in running:
            send(pid, signal.SIGSTOP)
        time.sleep(0.002)


def _is(pid: int, name: str) -> bool:
    # The program may follow an interpreter and its options.
    programs = {word.rpartition("/")[2] for word in _read(pid, "cmdline")[:5]}
    return bool(programs & {name, f"{name}.py"}) or "".join(_read(pid, "comm")).strip() == name[:15]


def _read(pid: int, what: str) -> list[str]:
    """Return the NUL-separated parts of a process's file in /proc; [] if the process is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{what}").read_bytes().decode("utf-8", "replace").split("\0")
    return []


def _stat(pid: int) -> list[str]:
    """Return [state, parent, ...]; [] if the process is gone."""
    return "".join(_read(pid, "stat")).rpartition(")")[2].split()


def main() -> int:
    """Signal a process of this container (arguments: NAME NUMBER; "" is the launcher); return 75 if there is none yet.

    It prints SENDING before that: the signal may end the container, and this process with it.
    """
    name, number = sys.argv[1], int(sys.argv[2])
    pid = find(1, name) if name else (1 if is_up(1) else None)
    if pid is None:
        return 75
    print(f"{SENDING}{pid}", flush=True)
    return 0 if send(pid, number) else 75


if __name__ == "__main__":
    sys.exit(main())
