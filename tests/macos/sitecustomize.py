"""Take from Python what it lacks on macOS, in each process that has this folder on PYTHONPATH.

No test machine is a Mac. Modules that are imported afterwards see sys.platform, os, select, socket and so on as on a
Mac, and find neither /proc nor /sys. What a Mac has and Linux lacks is not here, and the kernel stays Linux's.
"""

import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import sys
import time
import types

# Those of them that `mypy --platform darwin` would find missing, and the calls behind them.
LACKS = {
    fcntl: ("F_GETPIPE_SZ", "F_SETPIPE_SZ", "F_ADD_SEALS", "F_GET_SEALS"),
    os: (
        "CLONE_NEWNS", "CLONE_NEWNET", "CLONE_NEWPID", "CLONE_NEWUSER", "CLONE_NEWUTS", "O_DIRECT", "O_NOATIME",
        "O_PATH", "O_TMPFILE", "P_PIDFD", "ST_NOEXEC", "copy_file_range", "eventfd", "getrandom", "getresuid",
        "getresgid", "getxattr", "listxattr", "memfd_create", "pidfd_open", "pipe2", "posix_fadvise",
        "posix_fallocate", "removexattr", "sched_getaffinity", "sched_setaffinity", "setns", "setresuid", "setresgid",
        "setxattr", "splice", "unshare", "waitid",
    ),
    select: ("POLLRDHUP", "epoll", *(name for name in vars(select) if name.startswith("EPOLL"))),
    signal: ("pidfd_send_signal", "sigtimedwait", "sigwaitinfo", "SIGRTMAX", "SIGRTMIN"),
    socket: ("AF_NETLINK", "AF_PACKET", "SO_BINDTODEVICE", "SO_PEERCRED", "TCP_USER_TIMEOUT"),
    time: ("CLOCK_BOOTTIME",),
}  # fmt: skip
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
    for _name in _names:
        vars(_module).pop(_name, None)
ctypes.CDLL = _Libc
os.stat, os.lstat, os.readlink = map(without, (os.stat, os.lstat, os.readlink))
_uname = os.uname_result(("Darwin", "mac.local", "24.6.0", "Darwin Kernel Version 24.6.0", "arm64"))  # Apple silicon
os.uname = lambda: _uname
# Of macOS: its settings of proxies, for urllib. None are set.
_proxies = types.ModuleType("_scproxy")
_proxies._get_proxies, _proxies._get_proxy_settings = dict, dict
sys.modules["_scproxy"] = _proxies
sys.addaudithook(refuse)
