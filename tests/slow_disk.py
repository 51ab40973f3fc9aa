"""Mount a disk with a constant low speed, like a network disk: it accepts ten pieces a second.

It is a FUSE file system with one file. Written bytes pass through a connection within this machine, so that the kernel
counts them as traffic. Only root can mount one (`silent_disk.why_not`).
"""

import os
import socket
import struct
import threading
from pathlib import Path

from silent_disk import mount, unmount

LOOKUP, FORGET, GETATTR, SETATTR, OPEN, WRITE = 1, 2, 3, 4, 14, 16
RELEASE, FSYNC, FLUSH, INIT, INTERRUPT, FORGET_SEVERAL = 18, 20, 25, 26, 36, 42
BIG_WRITES = 1 << 5
PIECE = 1 << 17  # bytes
ENOSYS = 38


class SlowDisk:
    """A disk mounted on the existing folder `folder`. After `is_fast` is set, it no longer waits."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.is_fast = folder, threading.Event()
        with socket.create_server(("127.0.0.1", 0)) as server:
            self._near = socket.create_connection(server.getsockname())
            self._far, _ = server.accept()
        self._fd = mount(folder)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                request = os.read(self._fd, 2 * PIECE)
            except OSError:
                return
            _, operation, number, node = struct.unpack("IIQQ", request[:24])
            if operation in (FORGET, FORGET_SEVERAL, INTERRUPT):  # they want no answer
                continue
            body = self._answer(operation, node, request[40:])
            error = -ENOSYS if body is None else 0
            os.write(self._fd, struct.pack("IiQ", 16 + len(body or b""), error, number) + (body or b""))

    def _answer(self, operation: int, node: int, asked: bytes) -> bytes | None:
        if operation == INIT:
            return struct.pack("IIIIHHI", 7, 31, 0, BIG_WRITES, 0, 0, PIECE).ljust(64, b"\0")
        if operation == LOOKUP:
            return struct.pack("QQQQII", 2, 0, 60, 60, 0, 0) + _attributes(2)
        if operation in (GETATTR, SETATTR):
            return struct.pack("QII", 60, 0, 0) + _attributes(node)
        if operation == WRITE:
            (size,) = struct.unpack("I", asked[16:20])
            self.is_fast.wait(0.1)
            self._near.sendall(bytes(size))
            self._far.recv(size, socket.MSG_WAITALL)
            return struct.pack("II", size, 0)
        return {OPEN: bytes(16), RELEASE: b"", FSYNC: b"", FLUSH: b""}.get(operation)

    def close(self) -> None:
        unmount(self.folder, self._fd)
        for end in (self._near, self._far):
            end.close()


def _attributes(node: int) -> bytes:
    """Return the attributes of the root, a folder, or of the file."""
    return struct.pack("QQQQQQIIIIIIIIII", node, *[0] * 8, 0o40777 if node == 1 else 0o100666, 1, 0, 0, 0, 4096, 0)
