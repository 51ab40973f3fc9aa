"""Serve TensorBoard for a job that `entrypoint local --tensorboard` runs."""

import contextlib
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.observe.export.points import follow
from entrypoint.observe.export.tensorboard import EventFiles

LAST_SECONDS = 10.0  # seconds for the last records to be written


@contextlib.contextmanager
def board(records: Sequence[Path], logdir: Path, port: int, say: Callable[[str], None]) -> Iterator[None]:
    """Write the job's event files while it runs, and serve them on this machine; ConfigError if that fails."""
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
