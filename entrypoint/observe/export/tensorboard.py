"""TensorBoard's event files of a job, by its own writer: no TensorFlow is imported for them."""

import importlib
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from entrypoint.base.errors import ConfigError
from entrypoint.observe.export.points import Points

_UNSAFE = re.compile(r"[^\w. -]+")


class EventFiles:
    """Writes points below `folder`, a run for each host and process. ConfigError if TensorBoard is not here."""

    def __init__(self, folder: Path) -> None:
        try:
            self._proto: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
            self._records: Any = importlib.import_module("tensorboard.summary.writer.record_writer")
        except ImportError:
            raise ConfigError("event files are written by the package tensorboard: pip install tensorboard") from None
        self._folder = folder
        self._writers: dict[str, tuple[IO[bytes], Any]] = {}

    def add(self, source: Points, lines: Iterable[list[Any]]) -> int:
        """Write what lines of a host's record say, so that a TensorBoard that looks sees it; how many points."""
        count = 0
        for count, point in enumerate(source.of(lines), 1):  # noqa: B007
            event = self._proto.Event(wall_time=point.at, step=point.step)
            event.summary.value.add(tag=point.name, simple_value=point.value)
            self._writer(point.run).write(event.SerializeToString())
        for file, _ in self._writers.values():
            file.flush()
        return count

    def _writer(self, run: str) -> Any:
        if run not in self._writers:
            folder = self._folder.joinpath(*(_UNSAFE.sub("-", part) for part in run.split("/")))
            folder.mkdir(parents=True, exist_ok=True)
            # As TensorBoard knows them by, and no two writers of one name.
            file = (folder / f"events.out.tfevents.{time.time_ns()}.entrypoint").open("wb")
            writer = self._records.RecordWriter(file)
            writer.write(self._proto.Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
            self._writers[run] = file, writer
        return self._writers[run][1]

    def close(self) -> None:
        """Write no more."""
        for file, _ in self._writers.values():
            file.close()
        self._writers.clear()
