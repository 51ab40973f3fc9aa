"""Mount a disk that never answers: a process that reads a file on it ignores all signals, even SIGKILL.

It is a FUSE file system that accepts requests and never answers. Its end releases all waiting processes. Only root can
mount one, and only if the kernel has FUSE: else `why_not` returns the reason.
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

    The file `<folder>-has-<tid>` shows that the request of that thread was accepted. From then on the thread cannot be
    killed. Before that it can, though it already waits for the answer.
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
        """Release all waiting processes; those that were killed end now."""
        unmount(self.folder, self._fd)
