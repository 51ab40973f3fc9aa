"""Find and signal the processes of one host: its launcher and the launcher's descendants.

It imports nothing of ours: the Docker engine passes this file to the Python in a container.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import psutil

SENDING = "sending to "
_MARK = "ENTRYPOINT_PROCESS"  # in the environment of each process of the plan and of its descendants
_STILL = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


def family(root: int) -> list[psutil.Process]:
    """Return the process `root` and its descendants, parents first; [] if it is gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        launcher = psutil.Process(root)
        return [launcher, *launcher.children(recursive=True)]
    return []


def is_up(launcher: int) -> bool:
    """Return whether a launcher has installed its handler of SIGTERM."""
    with contextlib.suppress(OSError):
        caught = Path(f"/proc/{launcher}/status").read_text(errors="replace").partition("\nSigCgt:")[2].split()[0]
        return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)
    return False


def find(launcher: int, name: str) -> int | None:
    """Return the pid of the plan's process `name` on a host, or else of a program; None while there is none."""
    programs = []
    for process in family(launcher)[1:]:
        with contextlib.suppress(psutil.Error):  # it has ended
            if process.environ().get(_MARK) == name:
                return process.pid
            # The program may follow an interpreter and its options.
            words = {word.rpartition("/")[2] for word in process.cmdline()[:5]}
            if words & {name, f"{name}.py"} or process.name()[:15] == name[:15]:
                programs.append(process.pid)
    return next(iter(programs), None)


def send(pid: int, number: int) -> bool:
    """Signal a process; False if it is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def send_all(launcher: int, number: int) -> None:
    """Signal all processes of a host."""
    for process in family(launcher):
        send(process.pid, number)


def freeze(launcher: int) -> None:
    """Stop all processes of a host by SIGSTOP, and those that they start meanwhile."""
    for _ in range(200):
        send_all(launcher, signal.SIGSTOP)
        with contextlib.suppress(psutil.NoSuchProcess):  # one has ended meanwhile: look again
            if all(process.status() in _STILL for process in family(launcher)):
                return
        time.sleep(0.002)


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
