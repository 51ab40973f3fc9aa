"""Serve the live page of a job that `entrypoint local --watch` runs."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.observe.live.serve import Looks, application

SEE_THE_END_SECONDS = 3.0  # seconds for which an open page can still fetch how the job ended


@contextlib.contextmanager
def live_page(records: Path, port: int, say: Callable[[str], None]) -> Iterator[None]:
    """Serve the page of the job with these records on this machine's loopback; port 0 means any free one.

    ConfigError if the port is not free.
    """
    from waitress.server import create_server

    logging.getLogger("waitress").setLevel(logging.ERROR)
    looks = Looks()
    try:
        server = create_server(application(records, looks), host="127.0.0.1", port=port, threads=2, ident="")
    except OSError as error:
        raise ConfigError(f"--watch cannot have port {port} ({error.strerror}); wanted a free one, or 0") from None
    threading.Thread(target=server.run, name="live page", daemon=True).start()
    say(f"live page: http://localhost:{server.effective_port}/")
    try:
        yield
        looks.wait_for_one(SEE_THE_END_SECONDS)
    finally:
        server.close()
