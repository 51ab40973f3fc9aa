"""Run a helper program in a fork of the launcher, since a new Python would import again what we have.

Only the first program runs so, while no other thread of the launcher holds a lock that it needs. The program gets what
it would get as a command: its environment, its input, the usual signal handlers, and Python's own `sys.path`.
"""

import contextlib
import itertools
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import NoReturn

from entrypoint.launcher.host import process
from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.plan.plan import ProcessSpec


def fork(spec: ProcessSpec, env: Mapping[str, str], log: Log) -> process.Process:
    """Start a spec whose command is `python OPTIONS FOLDER`, as `spawn` would. Raise OSError if that fails."""
    with process.plumbing(spec, log) as (stdin, out, err):
        pid = os.fork()
        if pid == 0:
            _be(Path(spec.argv[-1]), dict(env), (stdin, out, err))
    return process.started(spec, pid)


def _be(folder: Path, env: dict[str, str], streams: tuple[int, int, int]) -> NoReturn:
    code = 1
    try:
        _become(env, streams)
        sys.path[:] = [str(folder), *path_of_python(sys.path, env)]
        with contextlib.suppress(OSError):
            Path("/proc/self/comm").write_text(folder.name)  # for people; its command line stays ours
        file = str(folder / "__main__.py")
        program = SourceFileLoader("__main__", file).get_code("__main__")
        assert program
        exec(program, {"__name__": "__main__", "__file__": file})
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)


def _become(env: dict[str, str], streams: tuple[int, int, int]) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)  # else signals would be noted in a file that the program opens
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    most = os.sysconf("SC_OPEN_MAX")
    for above, below in itertools.pairwise(sorted({2, *streams, most})):
        os.closerange(above + 1, below)  # first, since there may be hardly any free descriptor
    for target, fd in enumerate([os.dup(fd) for fd in streams]):
        os.dup2(fd, target)
    os.closerange(3, most)
    os.environ.clear()
    os.environ.update(env)
    sys.stdin = open(0)  # noqa: SIM115 - open for as long as the process lives
    sys.stdout, sys.stderr = open(1, "w"), open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115


def path_of_python(path: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return `sys.path` as a new Python in this environment has it. `path`: ours, which may have more entries first.

    The entries of PYTHONPATH stand before Python's library, whose first entry is an archive that hardly ever exists.
    """
    library = next(at for at, entry in enumerate(path) if Path(entry).name == _LIBRARY)
    given = env.get("PYTHONPATH", "")
    named = [os.path.abspath(entry) for entry in given.split(os.pathsep)] if given else []  # noqa: PTH100
    return [*dict.fromkeys(named), *path[library:]]


_LIBRARY = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
