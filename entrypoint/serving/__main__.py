"""Run `serve`: find the model, listen, load it, answer requests, and end on SIGTERM."""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from entrypoint.base.errors import CodeError, ConfigError, ExitCode
from entrypoint.base.extras import imported
from entrypoint.serving.config import Found, find_model, read_serving

if TYPE_CHECKING:
    from entrypoint.serving.app import Service

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
    try:
        code = serve(os.environ, early)
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
    """Serve, and return the exit code. Faults that can be found before the port is opened are raised before."""
    imported("flask", "serving", "`serve`")
    imported("numpy", "tensorflow", "`serve`")
    from entrypoint.serving.app import Service
    from entrypoint.serving.server import Server

    serving = read_serving(environment)
    found = find_model(serving.model, serving.default_name)
    service = Service(serving)
    try:
        server = Server(service)
    except OSError as error:
        raise ConfigError(f"port {serving.port} cannot be listened on: {error.strerror or error}") from None

    failures: list[BaseException] = []

    def load_then_answer() -> None:
        try:
            _load(service, found)
        except BaseException as error:  # otherwise this thread would end, and /ping would answer 503 for ever
            failures.append(error)
            server.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    is_done = True
    if not early_signals:
        threading.Thread(target=load_then_answer, name="load", daemon=True).start()
        is_done = server.run()
    if failures:
        raise failures[0]
    log.info("stopped; %s", "all requests are answered" if is_done else "time is up, and some requests are open")
    return ExitCode.SUCCESS


def _load(service: "Service", found: Found) -> None:
    """Load the user's code and the model. The port is open already; /ping answers 503 until this is done."""
    from entrypoint.serving.tensorflow_model import load
    from entrypoint.serving.tensors import ACCEPTED
    from entrypoint.serving.user_code import load_user_code

    began, serving = time.monotonic(), service.serving
    service.code = load_user_code(serving)
    if service.code is None and serving.accept_type not in ACCEPTED:
        raise ConfigError(
            f"environment variable SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT is {serving.accept[:100]!r}; "
            f"wanted {' or '.join(ACCEPTED)}, where there is no code of your own"
        )
    model = load(found)
    service.model = model
    log.info(
        "model %s loaded in %.1f s, %s; listening on port %d with %d threads%s",
        found.path,
        time.monotonic() - began,
        "; ".join(map(str, model.signatures.values())),
        serving.port,
        serving.threads,
        f", requests go through {service.code.path}" if service.code else "",
    )


if __name__ == "__main__":
    main()
