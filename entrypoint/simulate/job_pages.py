"""Serve the pages of a running job: the live page of `--watch`, and TensorBoard of `--tensorboard`."""

import contextlib
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.observe.export.points import follow
from entrypoint.observe.live.serve import Looks, application

SEE_THE_END_SECONDS = 3.0  # seconds for which an open page can still fetch how the job ended
LAST_SECONDS = 10.0  # seconds for the last records to be written


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


@contextlib.contextmanager
def board(records: Sequence[Path], logdir: Path, port: int, say: Callable[[str], None]) -> Iterator[None]:
    """Write the job's event files while it runs, and serve them on this machine; ConfigError if that fails."""
    from entrypoint.observe.export.event_files import EventFiles

    files, over = EventFiles(logdir), threading.Event()
    writer = threading.Thread(target=follow, args=(lambda: list(records), files.add, over.is_set), daemon=True)
    writer.start()
    say(f"TensorBoard: {_serve(logdir, port)}")
    try:
        yield
    finally:
        over.set()
        writer.join(LAST_SECONDS)
        files.close()
        say(f"event files: {logdir}; tensorboard --logdir shows them again")


def _serve(logdir: Path, port: int) -> str:
    """Start TensorBoard in a thread and return its address: a process would be ended with the hosts' descendants."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of TensorBoard's own imports
        from tensorboard import program

    tool = program.TensorBoard()
    tool.configure(
        argv=["", "--logdir", str(logdir), "--host", "localhost", "--port", str(port),
              "--load_fast=false", "--reload_interval=2"]
    )  # fmt: skip
    try:
        return str(tool.launch())
    except program.TensorBoardServerException as error:
        raise ConfigError(f"--tensorboard: {error.msg.strip()}") from None
