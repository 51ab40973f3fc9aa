"""List the TCP connections of this network namespace, with the bytes that have passed over each.

It uses Linux's sock_diag(7), which needs no privilege: one request over netlink, one answer for all connections, as `ss
-ti` shows them. The structures are those of linux/inet_diag.h and linux/tcp.h (bytes_acked, bytes_received: Linux 4.1).
"""

import contextlib
import ipaddress
import os
import socket
import struct
from collections.abc import Collection, Container, Iterator
from functools import lru_cache

from entrypoint.base.values import Value

# Asks for both families at once, which SOCK_DIAG_BY_FAMILY cannot: each request makes the kernel walk its whole table.
_TCPDIAG_GETSOCK, _NLMSG_DONE, _NLMSG_ERROR = 18, 3, 2
_REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
_INFO = 2  # INET_DIAG_INFO
_ESTABLISHED, _TIME_WAIT = 1, 6
_HEAD = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBB48sII")
_MESSAGE = struct.Struct("=BBBB2s2s16s16sI8sIIIII")
_COUNTS = 120  # offset of bytes_acked and bytes_received in tcp_info
_TIMEOUT_SECONDS = 1.0  # seconds
End = tuple[str, int]  # address, port


class Connection(Value):
    """Describe an established connection: its ends as (address, port), and bytes in all. `inode` leads to its owner.

    A connection that was closed in the last minute has neither owner nor count.
    """

    inode: int
    local: End
    remote: End
    received: int
    sent: int  # acknowledged by the other end
    is_closed: bool = False


def connections(remotes: Container[str] | None = None) -> Iterator[Connection]:
    """Yield all TCP connections over IPv4 and IPv6, open or just closed. Raise OSError if the kernel lists none.

    `remotes`: the wanted addresses of other ends; the other connections, often thousands, are skipped early.
    """
    body = _REQUEST.pack(socket.AF_UNSPEC, 0, 0, 1 << (_INFO - 1), bytes(48), 1 << _ESTABLISHED | 1 << _TIME_WAIT, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 4) as asking:  # NETLINK_SOCK_DIAG
        asking.settimeout(_TIMEOUT_SECONDS)
        asking.send(_HEAD.pack(_HEAD.size + len(body), _TCPDIAG_GETSOCK, _REQUEST_DUMP, 1, 0) + body)
        while True:
            block = memoryview(asking.recv(1 << 18))
            while len(block) >= _HEAD.size:
                length, kind, *_ = _HEAD.unpack_from(block)
                if kind == _NLMSG_DONE:
                    return
                if kind == _NLMSG_ERROR:
                    number = -struct.unpack_from("=i", block, _HEAD.size)[0]
                    raise OSError(number, os.strerror(number))
                if found := _read(block[_HEAD.size : length], remotes):
                    yield found
                block = block[(length + 3) & ~3 :]


def _read(message: memoryview, remotes: Container[str] | None) -> Connection | None:
    family, state, _, _, sport, dport, source, target, *_, inode = _MESSAGE.unpack_from(message)
    if remotes is not None and _address(family, target) not in remotes:
        return None
    ends = [
        (_address(family, address), int.from_bytes(port, "big")) for address, port in ((source, sport), (target, dport))
    ]
    if state == _TIME_WAIT:
        return Connection(inode=0, local=ends[0], remote=ends[1], received=0, sent=0, is_closed=True)
    at = _MESSAGE.size
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        if kind == _INFO and length >= 4 + _COUNTS + 16:
            sent, received = struct.unpack_from("=QQ", message, at + 4 + _COUNTS)
            return Connection(inode=inode, local=ends[0], remote=ends[1], received=received, sent=sent)
        at += max(4, (length + 3) & ~3)
    return None


@lru_cache(1 << 12)
def _address(family: int, address: bytes) -> str:
    if family == socket.AF_INET:
        return socket.inet_ntoa(address[:4])
    six = ipaddress.IPv6Address(address)
    return str(six.ipv4_mapped or six)


def inodes_of(pids: Collection[int]) -> dict[int, int]:
    """Return {inode of a socket: process that has it open} for these processes."""
    return {int(link[8:-1]): pid for pid, _, link in descriptors(pids) if link.startswith("socket:[")}


def descriptors(pids: Collection[int]) -> Iterator[tuple[int, str, str]]:
    """Yield (pid, path of the descriptor, its target) for each descriptor of these processes."""
    for pid in pids:
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    yield pid, entry.path, os.readlink(entry.path)  # noqa: PTH115
