"""Measure how many bytes wait in the pipes of channels."""

import array
import contextlib
import fcntl
import os
import termios
from collections.abc import Collection, Mapping
from stat import S_ISFIFO

from entrypoint.observe.monitor.sockets import descriptors


def fifos_filled(channels: Mapping[str, str], pids: Collection[int]) -> dict[str, list[int]]:
    """Return {channel: [bytes waiting in its pipe, its capacity]} of the pipes (name: path prefix) that `pids` read.

    A pipe is inspected only by the descriptor of its reader. Opening the FIFO ourselves would make us its first reader,
    for which the writer waits.
    """
    found = {}
    for _, descriptor, link in descriptors(pids if channels else ()):
        name = next((name for name, path in channels.items() if link.startswith(path)), None)
        with contextlib.suppress(OSError):
            if name and S_ISFIFO(os.stat(descriptor).st_mode):  # noqa: PTH116
                found[name] = _filled(descriptor)
    return found


def _filled(path: str) -> list[int]:
    waiting = array.array("i", [0])
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        fcntl.ioctl(fd, termios.FIONREAD, waiting)
        return [waiting[0], fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)]
    finally:
        os.close(fd)
