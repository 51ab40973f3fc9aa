"""Give a process and its descendants their own /opt/ml by mounts that no other process sees and that end with them.

As root only. A mount needs a place: where this machine has no /opt/ml, a file system in memory covers /opt, with all
that is in it, so that no folder is left behind.
"""

import ctypes
import os
import stat
from pathlib import Path
from threading import Thread

from entrypoint.base.errors import ExitCode

ML = Path("/opt/ml")
NEW_MOUNTS = 0x0002_0000  # CLONE_NEWNS
READ_ONLY, REMOUNT, BIND, RECURSIVE, PRIVATE, SLAVE = 0x1, 0x20, 0x1000, 0x4000, 0x4_0000, 0x8_0000  # MS_*

libc = ctypes.CDLL(None, use_errno=True)


def own_ml(base: str | Path = "") -> None:
    """Show a folder as /opt/ml to this thread and to what it starts.

    By default, show the host's. Raise OSError if impossible.
    """
    unshare(NEW_MOUNTS)
    mount("none", "/", flags=RECURSIVE | SLAVE)  # what the machine mounts later is seen here, and ours not there
    held = hold(base or os.environ["SAGEMAKER_BASE_DIR"])
    if not ML.is_dir():
        cover_opt()
    show(held, ML)


def become_host() -> None:
    """Give this process the host's own /opt/ml, or exit: the script must not write into this machine's."""
    try:
        own_ml()
    except OSError as error:
        print(f"error: this simulated host cannot have an /opt/ml of its own: {error}", flush=True)
        os._exit(ExitCode.INTERNAL)


def possible() -> bool:
    """Return whether `own_ml` works here. A thread tries it: its mounts end with the thread."""
    done = []

    def attempt() -> None:
        try:
            own_ml("/tmp")
        except OSError:  # a container may forbid it to its root
            return
        done.append(True)

    if os.geteuid() == 0 and ML.parent.is_dir():
        thread = Thread(target=attempt)
        thread.start()
        thread.join()
    return bool(done)


def cover_opt() -> None:
    """Cover /opt by a file system in memory that shows all that was in /opt, except for ml."""
    opt = hold(ML.parent)
    mount("tmpfs", ML.parent, "tmpfs", data="mode=755")
    for entry in os.scandir(f"/proc/self/fd/{opt}"):
        target = ML.parent / entry.name
        if entry.name != ML.name and entry.is_symlink():
            target.symlink_to(Path(entry.path).readlink())
        elif entry.name != ML.name:
            show(hold(entry.path), target)
    os.close(opt)


def hold(path: str | Path) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def show(opened: int, target: Path) -> None:
    """Bind an open file or folder to a path, which is made if it is missing."""
    if stat.S_ISDIR(os.fstat(opened).st_mode):
        target.mkdir(parents=True, exist_ok=True)
    elif not target.exists():
        target.touch()
    mount(f"/proc/self/fd/{opened}", target, flags=BIND | RECURSIVE)
    os.close(opened)


def unshare(kinds: int) -> None:
    """Move the calling thread, and all that it starts from now on, into new namespaces."""
    check(libc.unshare(kinds), "unshare")


def mount(source: str | Path, target: str | Path, kind: str = "none", flags: int = 0, data: str = "") -> None:
    """Call mount(2). A source /proc/self/fd/N means the file as it was opened, even if something covers it now."""
    code = libc.mount(
        os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data.encode() or None
    )
    check(code, f"mount {source} on {target}")


def check(code: int, what: str) -> None:
    if code:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
