"""Send a follower's record to the coordinator piece by piece, and receive the coordinator's requests in return."""

import json
import queue
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from entrypoint.launcher.control.client import Calls
from entrypoint.launcher.control.wire import Refused
from entrypoint.launcher.job.job import Job
from entrypoint.record.lines import WRONG

PIECE_BYTES = 1 << 17  # bytes at once
PATIENCE_SECONDS = 2.0  # seconds for an answer


class Delivery:
    """Send in a thread, so that a coordinator that does not answer delays no sample."""

    def __init__(self, job: Job, path: Path) -> None:
        self.wants: dict[str, Any] = {}  # the last requests of the coordinator's monitor
        self._job, self._path = job, path
        self._call = Calls(job.cluster, job.settings)
        self._at = 0  # bytes that the coordinator has
        self._due: queue.SimpleQueue[bool] = queue.SimpleQueue()  # requests to send; True: the last one
        self.whole = False  # whether the coordinator has all of it
        self._thread = threading.Thread(target=self._run, name="delivery", daemon=True)
        self._thread.start()

    def bring(self, last: bool = False) -> None:
        """Send new bytes of the record soon."""
        self._due.put(last)

    def finish(self, within: float) -> bool:
        """Send the rest, for at most `within` seconds. Return whether the coordinator has the whole record."""
        self.bring(last=True)
        self._thread.join(within)
        return self.whole

    def _run(self) -> None:
        last = False
        while not last:
            last = self._due.get()
            while not self._due.empty():  # one delivery answers all requests that wait
                last |= self._due.get()
            with suppress(OSError, Refused, *WRONG):  # the next call sends it again
                self._bring(last)

    def _bring(self, last: bool) -> None:
        me = self._job.cluster.me.name
        with self._path.open("rb") as file:
            while True:
                file.seek(self._at)
                piece = file.read(PIECE_BYTES)
                is_whole = last and len(piece) < PIECE_BYTES
                where = f"/record/{me}/{self._at}" + ("/end" if is_whole else "")
                answer = json.loads(self._call(self._job.cluster.coordinator, where, piece, PATIENCE_SECONDS).body)
                before, self._at = self._at, max(0, int(answer["have"]))
                self.wants = answer["wants"] if isinstance(answer["wants"], dict) else {}
                if self._at == before + len(piece):
                    if len(piece) < PIECE_BYTES:
                        self.whole = is_whole
                        return
                elif self._at <= before:  # the coordinator has no room, or has lost its copy
                    return
