"""Mount a disk that never answers: a process that reads a file on it sleeps beyond any signal, SIGKILL included.

It is a FUSE file system of our own that takes requests and says nothing. Its end lets go of all who wait. Only root can
mount one, and only where the kernel has FUSE: elsewhere `why_not` says so.
"""

import ctypes
import os
import struct
import threading
from pathlib import Path

INIT = 26
_libc = ctypes.CDLL(None, use_errno=True)


def why_not() -> str:
    """Return why this machine cannot have such a disk; "" if it can."""
    if os.geteuid():
        return "a process that cannot be killed is made with a FUSE mount, and only root may mount"
    return "" if os.access("/dev/fuse", os.R_OK | os.W_OK) else "a process that cannot be killed takes /dev/fuse"


def mount(folder: Path) -> int:
    """Mount a file system on the folder. Return the file descriptor of the kernel's requests to it."""
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if _libc.mount(b"tests", os.fsencode(folder), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), f"cannot mount FUSE on {folder}")
    return fd


def unmount(folder: Path, fd: int) -> None:
    _libc.umount2(os.fsencode(folder), 1 | 2)  # MNT_FORCE, which aborts what is asked, and MNT_DETACH
    os.close(fd)


class SilentDisk:
    """A disk mounted on the existing folder `folder`.

    `<folder>-has-<tid>` says that the request of that thread was taken. From then on it cannot be killed; before, it
    can, though it sleeps for the answer already.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._fd = folder, mount(folder)
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        """Answer the kernel's first request, and none after it."""
        while True:
            try:
                request = os.read(self._fd, 1 << 17)
            except OSError:
                return
            _, operation, number, _, _, _, thread = struct.unpack("IIQQIII", request[:36])
            if operation == INIT:
                body = struct.pack("IIIIHHI", 7, 31, 0, 0, 0, 0, 4096).ljust(64, b"\0")
                os.write(self._fd, struct.pack("IiQ", 16 + len(body), 0, number) + body)
            else:
                Path(f"{self.folder}-has-{thread}").touch()

    def close(self) -> None:
        """Release all processes that wait: those that were killed die now."""
        unmount(self.folder, self._fd)
