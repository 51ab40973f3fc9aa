"""Call Linux for namespaces and mounts, which Python 3.11 has no functions for."""

import ctypes
import os
import signal
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

NEW_MOUNTS, NEW_NETWORK = 0x0002_0000, 0x4000_0000  # CLONE_NEWNS, CLONE_NEWNET
NEW_NAMES, NEW_IPC, NEW_PROCESSES = 0x0400_0000, 0x0800_0000, 0x2000_0000  # CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID
READ_ONLY, REMOUNT, BIND, RECURSIVE, PRIVATE = 0x1, 0x20, 0x1000, 0x4000, 0x4_0000  # MS_*
DETACH = 0x2  # MNT_DETACH

_libc = ctypes.CDLL(None, use_errno=True)


def with_sbin(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which root's tools are found, whatever PATH our shell has."""
    return {**environment, "PATH": f"{environment.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"}


def unshare(kinds: int) -> None:
    """Move the calling thread, and all that it starts from now on, into new namespaces."""
    _check(_libc.unshare(kinds), "unshare")


def die_with_parent(parent: int) -> None:
    """Arrange for SIGKILL when our parent (its pid in /proc) ends, and exit now if it has ended."""
    _check(_libc.prctl(1, signal.SIGKILL, 0, 0, 0), "prctl")  # PR_SET_PDEATHSIG
    if int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[1]) != parent:
        os._exit(137)


def mount(source: str | Path, target: str | Path, kind: str = "none", flags: int = 0, data: str = "") -> None:
    """Call mount(2). A source /proc/self/fd/N means the file as it was opened, even if something covers it now."""
    code = _libc.mount(
        os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data.encode() or None
    )
    _check(code, f"mount {source} on {target}")


def unmount(target: str | Path) -> None:
    _check(_libc.umount2(os.fsencode(target), DETACH), f"unmount {target}")


def new_network() -> int:
    """Create a network namespace without name or process; return a file that keeps it alive."""

    def make() -> int:
        unshare(NEW_NETWORK)  # for this thread only
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result()


def _check(code: int, what: str) -> None:
    if code:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
