"""Take from Python what it lacks on macOS, in each process that has this folder on PYTHONPATH.

No test machine is a Mac. Modules that are imported afterwards see sys.platform, os, select, socket and so on as on a
Mac, and find neither /proc nor /sys. What a Mac has and Linux lacks is not here, and the kernel stays Linux's.
"""

import ctypes
import errno
import fcntl
import os
import re
import resource
import select
import signal
import socket
import sys
import time
import types

# Names that typeshed has for Linux and not for macOS, of modules that we use.
LACKS = {
    fcntl: r"F_(GETPIPE_SZ|SETPIPE_SZ|ADD_SEALS|GET_SEALS|SEAL_.*|NOTIFY|[GS]ETSIG)",
    os: r"(CLONE|EFD|GRND|MFD|POSIX_FADV|RWF|SPLICE|XATTR)_.*|O_(DIRECT|LARGEFILE|NOATIME|PATH|RSYNC|TMPFILE)|P_PIDFD"
    r"|ST_(?!NOSUID|RDONLY).*|copy_file_range|eventfd.*|fdatasync|getrandom|[gs]etres[ug]id|.*xattr|memfd_create"
    r"|pidfd_open|pipe2|posix_fa.*|sched_(?!yield|get_priority).*|setns|splice|unshare|waitid.*",
    resource: r"RLIMIT_(MSGQUEUE|NICE|RT.*|SIGPENDING)|RUSAGE_THREAD|prlimit",
    select: r"EPOLL.*|POLLMSG|POLLRDHUP|epoll",
    signal: r"SIG(CLD|POLL|PWR|RTMAX|RTMIN|STKFLT)|pidfd_send_signal|sig(timedwait|waitinfo)",
    socket: r"AF_(ALG|CAN|NETLINK|PACKET|TIPC|VSOCK)|MSG_(CMSG_CLOEXEC|CONFIRM|ERRQUEUE|FASTOPEN|MORE)"
    r"|SO_(BINDTODEVICE|DOMAIN|INCOMING_CPU|MARK|PASS.*|PEER.*|PRIORITY|PROTOCOL)|SOCK_(CLOEXEC|NONBLOCK)"
    r"|TCP_(CONGESTION|CORK|DEFER_ACCEPT|INFO|KEEPIDLE|LINGER2|QUICKACK|SYNCNT|USER_TIMEOUT|WINDOW_CLAMP)",
    time: r"CLOCK_(BOOTTIME|TAI)|pthread_getcpuclockid",
}
NOT_THERE = ("/proc", "/sys")
LOOKS = {"open", "os.listdir", "os.scandir", "os.mkdir", "os.link", "os.rename", "os.truncate"}


class _Libc(ctypes.CDLL):
    """The C library without functions of Linux's own."""

    def __getattr__(self, name: str) -> object:
        if name in ("prctl", "unshare", "setns", "mount", "umount2", "syscall"):
            raise AttributeError(f"dlsym: symbol not found: {name}")
        return super().__getattr__(name)


def refuse(event: str, arguments: tuple) -> None:
    if event not in LOOKS or not isinstance(arguments[0], (str, bytes, os.PathLike)):
        return
    path = os.fsdecode(arguments[0])
    if any(path == place or path.startswith(f"{place}/") for place in NOT_THERE):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def without(look):  # stat, access and readlink have no audit event
    def looked(path, *rest, **more):
        refuse("open", (path,))
        return look(path, *rest, **more)

    return looked


sys.platform = "darwin"
for _module, _names in LACKS.items():
    for _name in [name for name in vars(_module) if re.fullmatch(_names, name)]:
        delattr(_module, _name)
ctypes.CDLL = _Libc
os.stat, os.lstat, os.readlink = map(without, (os.stat, os.lstat, os.readlink))
_uname = os.uname_result(("Darwin", "mac.local", "24.6.0", "Darwin Kernel Version 24.6.0", "arm64"))  # Apple silicon
os.uname = lambda: _uname
# Of macOS: its settings of proxies, for urllib. None are set.
_proxies = types.ModuleType("_scproxy")
_proxies._get_proxies, _proxies._get_proxy_settings = dict, dict
sys.modules["_scproxy"] = _proxies
sys.addaudithook(refuse)
