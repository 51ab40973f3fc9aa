"""Feed named pipes from a thread, as SageMaker does for a channel in Pipe mode."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def feeding(path: Path, *passes: bytes) -> Iterator[None]:
    """Write a pass to each of the pipes path_0, path_1 ..., or one pass to `path` if it exists."""

    def feed() -> None:
        for number, content in enumerate(passes):
            pipe = path if path.exists() else path.with_name(f"{path.name}_{number}")
            if pipe is not path:
                os.mkfifo(pipe)
            with suppress(BrokenPipeError), open(pipe, "wb") as stream:
                stream.write(content)
            pipe.unlink()

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    yield
    thread.join(timeout=30)
    assert not thread.is_alive(), "the feeder is stuck: somebody did not read to the end"
