"""Write TensorBoard's event files of a job with TensorBoard's own writer, without importing TensorFlow."""

import importlib
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from entrypoint.base.errors import ConfigError
from entrypoint.observe.export.points import Points
from entrypoint.record.lines import Line

_UNSAFE = re.compile(r"[^\w. -]+")


class EventFiles:
    """Write points below `folder`, with a run for each host and process. Raise ConfigError without TensorBoard."""

    def __init__(self, folder: Path) -> None:
        try:
            self._proto: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
            self._records: Any = importlib.import_module("tensorboard.summary.writer.record_writer")
        except ImportError:
            raise ConfigError("event files are written by the package tensorboard: pip install tensorboard") from None
        self._folder = folder
        self._writers: dict[str, tuple[IO[bytes], Any]] = {}

    def add(self, source: Points, lines: Iterable[Line]) -> int:
        """Write the points of a host's record lines, and flush them for a running TensorBoard; return their number."""
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
            # TensorBoard recognises files by this name; the time keeps names of two writers apart.
            file = (folder / f"events.out.tfevents.{time.time_ns()}.entrypoint").open("wb")
            writer = self._records.RecordWriter(file)
            writer.write(self._proto.Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
            self._writers[run] = file, writer
        return self._writers[run][1]

    def close(self) -> None:
        for file, _ in self._writers.values():
            file.close()
        self._writers.clear()
