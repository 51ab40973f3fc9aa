"""Describe a lack of processes, threads or file descriptors, and report it if it lasts."""

import errno
import resource
import time
from collections.abc import Callable
from math import inf

from entrypoint.base.errors import ExitCode
from entrypoint.launcher.host.machine import most_processes
from entrypoint.launcher.policy.events import Broken, Event, NotStarted

NAP_SECONDS = 0.05  # seconds until a connection is tried again that found no descriptor
CLONE3 = 435  # the system call by which glibc starts threads; if it does not exist (ENOSYS) there is an older one
LASTING_SECONDS = 2.0  # without a descriptor for any connection: then other hosts will not be reached either


class Shortage:
    """Report, once, that this host has no file descriptors left for connections. Each thread needs its own object."""

    def __init__(self, put: Callable[[Event], None]) -> None:
        self._put = put
        self._since = inf
        self._reported = False

    def note(self, error: Exception) -> bool:
        """Note that a connection failed. Return whether the cause is a lack of file descriptors."""
        if not _of_descriptors(error):
            return False
        now = time.monotonic()
        self._since = min(self._since, now)
        if now >= self._since + LASTING_SECONDS and not self._reported:
            self._reported = True
            self._put(broken(error))
        return True

    def over(self) -> None:
        """Note that a connection succeeded."""
        self._since = inf


def broken(error: Exception) -> Broken:
    """Return a fault of ours as an event, which the policy reports to the other hosts."""
    return Broken(why=in_words(error), code=ExitCode.INTERNAL)


def in_words(error: Exception) -> str:
    """Return a fault of ours as text. If this host allows too little of something, add the limit."""
    words, number = f"{type(error).__name__}: {error}", getattr(error, "errno", None)
    if why := refused(error):
        words += f"; {why}"
    elif number == errno.EAGAIN or (isinstance(error, RuntimeError) and "start new thread" in str(error)):
        most = most_processes()
        words += f"; this host allows {most or 'too few'} processes and threads, wanted 100 and those of the script"
    elif _of_descriptors(error):
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        words += f"; this host allows {allowed} open files, wanted 100 and two for each host of the job"
    return words


def refused(error: Exception) -> str:
    """Return why this container allows no threads, if the error came from that; else ""."""
    if not (isinstance(error, RuntimeError) and "start new thread" in str(error)):
        return ""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(ctypes.c_long(CLONE3), None, ctypes.c_size_t(0))  # with a size that no kernel takes
    if ctypes.get_errno() != errno.EPERM:
        return ""
    return "the seccomp profile of this container refuses clone3, as Docker's before 20.10.10 does; wanted a newer one"


def not_started(name: str, program: str, error: Exception) -> NotStarted:
    """Return why a process could not be started: because of the program, or because this host allows too little."""
    if _of_descriptors(error) or getattr(error, "errno", None) in (errno.EAGAIN, errno.ENOMEM):
        return NotStarted(name=name, why=in_words(error), code=ExitCode.INTERNAL)
    why = str(getattr(error, "strerror", None) or error)
    if getattr(error, "errno", None) == errno.E2BIG:
        why += ": hyperparameters and environment are longer than Linux passes on; use fewer, or a file"
    return NotStarted(name=name, why=f"{program}: {why}")


def _of_descriptors(error: Exception) -> bool:
    return getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE)
