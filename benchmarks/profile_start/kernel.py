"""Record exec and exit of every process on this machine with the kernel's times; needs root.

Linux reports them over the process connector (netlink), so that nothing is added to what is measured: no tracer, no
marks in the launcher, no change of the image. Times are nanoseconds of CLOCK_MONOTONIC, which containers share.
"""

import errno
import os
import socket
import struct
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

K = TypeVar("K", bound="Kernel")
NETLINK_CONNECTOR = 11
CN_IDX_PROC = CN_VAL_PROC = 1
LISTEN = 1
FORK, EXEC, NAME, EXIT = 0x1, 0x2, 0x200, 0x80000000
HEAD = 36  # bytes: of netlink's message and of the connector's


@dataclass
class Execution:
    """One program that a process ran: from its exec to the next one of the same process, or to its end.

    A fork that sets its own name counts as a new program, whose only word is that name.
    """

    pid: int
    began: int
    argv: tuple[str, ...]


@dataclass
class Seen:
    """The recorded programs of one process."""

    pid: int
    parent: int
    executions: list[Execution] = field(default_factory=list)
    ended: int | None = None


class Unseen(SystemExit):
    """The kernel's reports lack processes of the job, for example on a busy machine, so it has no figures."""


class Kernel:
    """A listener during the `with` block; `seen` grows meanwhile."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.is_deaf = False  # a message was lost: what was seen is incomplete
        self._living: dict[int, Seen] = {}
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_CONNECTOR)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)

    def __enter__(self: K) -> K:
        self._socket.bind((0, CN_IDX_PROC))
        body = struct.pack("=IIIIHHI", CN_IDX_PROC, CN_VAL_PROC, 0, 0, 4, 0, LISTEN)
        self._socket.send(struct.pack("=IHHII", 16 + len(body), 3, 0, 0, os.getpid()) + body)
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def below(self, pid: int) -> list[Seen]:
        """Return the newest process with this pid and its descendants, in the order of their starts."""
        if self.is_deaf:
            raise Unseen("the kernel had more to tell than we could hear")
        top = next((seen for seen in reversed(self.seen) if seen.pid == pid), None)
        if top is None:
            raise Unseen(f"no process {pid} was seen; 0: the container had ended before Docker said its number")
        found, members = [top], {pid: top}
        for seen in self.seen[self.seen.index(top) + 1 :]:
            if seen.parent in members and seen.pid not in members:
                members[seen.pid] = seen
                found.append(seen)
        return found

    def _listen(self) -> None:
        while True:
            try:
                data = self._socket.recv(4096)
            except OSError as error:
                self.is_deaf = error.errno == errno.ENOBUFS  # the kernel sent more than we could read; else closed
                return
            what, _, at = struct.unpack_from("=IIQ", data, HEAD)
            numbers = struct.unpack_from("=IIII", data, HEAD + 16)
            if what == FORK and numbers[2] == numbers[3]:
                self._living[numbers[2]] = seen = Seen(numbers[2], parent=numbers[1])
                self.seen.append(seen)
            elif what == EXEC and numbers[1] in self._living:
                pid = numbers[1]
                self._living[pid].executions.append(Execution(pid, at, _argv(pid)))
            elif what == NAME and numbers[0] == numbers[1] and numbers[0] in self._living:
                name = data[HEAD + 24 : HEAD + 40].split(b"\0")[0].decode(errors="replace")
                self._living[numbers[0]].executions.append(Execution(numbers[0], at, (name,)))
            elif what == EXIT and numbers[0] == numbers[1] and numbers[0] in self._living:
                self._living.pop(numbers[0]).ended = at


def _argv(pid: int) -> tuple[str, ...]:
    """Return the present command line of the process; () if it has ended."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(word.decode(errors="replace") for word in text.split(b"\0")[:-1])
