"""Run `serve`: find the model, start the process that loads it, answer requests, and end on SIGTERM."""

import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import NoReturn

from entrypoint.base.errors import CodeError, ConfigError, ExitCode, imported
from entrypoint.serving.front import Front, ModelThreads, connect
from entrypoint.serving.http_server import MOST_CONNECTIONS, Server
from entrypoint.serving.serving_config import FoundModel, Serving, find_model, read_serving

log = logging.getLogger("serve")


def main() -> None:
    """Run the console script `serve`. Does not return."""
    early: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: early.append(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])  # the image blocks it until here
    logging.basicConfig(format="%(name)s: %(message)s", stream=sys.stdout, level=logging.INFO)
    logging.getLogger("waitress").setLevel(logging.ERROR)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # other containers of an endpoint may share the GPU
    _exit(partial(serve, os.environ, early))


def _exit(act: Callable[[], int]) -> NoReturn:
    """End this process with the code that `act` returns, or with the code for its exception."""
    try:
        code = act()
    except (ConfigError, CodeError) as error:
        log.error("error: %s", error)
        code = ExitCode.CONFIG if isinstance(error, ConfigError) else ExitCode.CODE
    except BaseException:
        log.exception("error: internal fault")
        code = ExitCode.INTERNAL
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # do not wait for threads of TensorFlow, or of requests that were given up


def serve(environment: Mapping[str, str], early_signals: list[int]) -> int:
    """Serve, and return the exit code. Raise faults that can be found early before the model is loaded."""
    imported("flask", "serving", "`serve`")
    imported("numpy", "tensorflow", "`serve`")
    _allow_files()
    serving = read_serving(environment)
    found = find_model(serving.model, serving.default_name)
    try:
        ours, theirs = connect(serving.threads + 1, serving.timeout)
    except OSError as error:
        raise ConfigError(
            f"{serving.threads} threads need {4 * serving.threads} open files (ulimit -n): {error.strerror}; wanted a "
            "higher limit, or fewer threads by SAGEMAKER_MODEL_SERVER_WORKERS"
        ) from None
    model_process = os.fork()  # before there are threads, and so small that it costs nothing
    if not model_process:
        for connection in ours:
            connection.close()
        _exit(partial(_serve_model, serving, found, theirs))
    for connection in theirs:
        connection.close()
    ready = ours.pop()
    workers = ModelThreads(ours, serving.timeout, partial(os.kill, model_process, signal.SIGUSR1))
    return _answer(serving, workers, model_process, ready, early_signals)


def _allow_files() -> None:
    """Raise the limit of open files to what we need, or to the highest that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MOST_CONNECTIONS
    if soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def _serve_model(serving: Serving, found: FoundModel, connections: list[Connection]) -> int:
    from entrypoint.serving.app import Service
    from entrypoint.serving.model_process import run

    run(Service(serving), found, connections[:-1], connections[-1])
    return ExitCode.SUCCESS


def _answer(
    serving: Serving, workers: ModelThreads, model_process: int, ready: Connection, early_signals: list[int]
) -> int:
    """Speak HTTP until a signal comes or the model's process ends. Return the exit code."""
    try:
        server = Server(Front(serving, workers), serving)
    except BaseException as error:
        os.kill(model_process, signal.SIGKILL)
        if not isinstance(error, OSError):
            raise
        raise ConfigError(f"port {serving.port} cannot be listened on: {error.strerror or error}") from None
    ended: list[int] = []

    def await_model() -> None:
        with suppress(EOFError, OSError):
            ready.recv_bytes()
            workers.is_loaded = True

    def await_end() -> None:  # apart from that: what the user's code forks may keep the connection open
        ended.append(os.waitstatus_to_exitcode(os.waitpid(model_process, 0)[1]))
        workers.has_ended = True
        server.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    is_done = True
    if not early_signals:
        for target in (await_model, await_end):
            threading.Thread(target=target, daemon=True).start()
        is_done = server.run()
    if not ended:
        os.kill(model_process, signal.SIGKILL)
    if ended and ended[0] in (ExitCode.CODE, ExitCode.CONFIG, ExitCode.INTERNAL) and not workers.is_loaded:
        return ended[0]  # it has logged why
    if ended:
        how = f"was killed by {signal.Signals(-ended[0]).name}" if ended[0] < 0 else f"ended with {ended[0]}"
        advice = "; memory may have been short" if ended[0] == -signal.SIGKILL else ""
        log.error("error: the process of the model %s%s", how, advice)
        return ExitCode.CODE
    log.info("stopped; %s", "all requests are answered" if is_done else "time is up, and some requests are open")
    return ExitCode.SUCCESS


if __name__ == "__main__":
    main()
