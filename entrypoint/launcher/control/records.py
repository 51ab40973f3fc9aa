"""Store the followers' records as their monitors send them, without reading their content."""

import json
import re
import threading
from collections.abc import Callable, Container
from pathlib import Path

from entrypoint.launcher.control.wire import Refused
from entrypoint.launcher.job.job import Job
from entrypoint.record.write import RECORD_BYTES

_PATH = re.compile(r"/record/([^/]+)/(\d{1,12})(/end)?")


class Records:
    """Keep files HOST.jsonl.gz in `folder`. Answers carry what the coordinator's monitor wrote into `wants`.

    `say` logs when a record cannot be kept, such as on a full disk. The follower keeps its record until all of it is
    here.
    """

    def __init__(self, folder: Path, wants: Path, followers: Container[str], say: Callable[[str], None]) -> None:
        self.folder, self._wants, self._followers, self._say = folder, wants, followers, say
        self._failing: set[str] = set()  # hosts whose last piece could not be kept
        self._lock = threading.Lock()  # a piece that was given up and its next attempt may come together

    def take(self, path: str, hosts: Container[str], piece: bytes) -> bytes:
        """Add a piece to the record of one of these hosts. Return its length here, and the requests to that host.

        A piece that does not begin where the record ends is not taken: the answer shows where to continue.
        """
        asked = _PATH.fullmatch(path)
        if not asked or asked[1] not in self._followers:
            raise Refused(f"unknown path {path[:100]}", 404)
        host, at = asked[1], int(asked[2])
        if host not in hosts:
            raise Refused(f"that is not the address of {host}", 403)
        file = self.folder / f"{host}.jsonl.gz"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._lock, file.open("ab", buffering=0) as record:
                size = record.tell()
                if at == size and size + len(piece) <= RECORD_BYTES:
                    size += record.write(piece)
                if asked[3] and size == at + len(piece):
                    file.with_name(f"{host}.whole").touch()
        except OSError as error:
            if host not in self._failing:
                self._failing.add(host)
                why = error.strerror or str(error)
                self._say(
                    f"warning: the record of {host} cannot be kept in {self.folder}: {why}; {host} sends it again"
                )
            raise Refused(f"the record cannot be kept: {error}", 507) from None
        if host in self._failing and piece and size == at + len(piece):
            self._failing.discard(host)
            self._say(f"the record of {host} can be kept again")
        return json.dumps({"have": size, "wants": self._wanted()}).encode()

    def _wanted(self) -> object:
        try:
            return json.loads(self._wants.read_bytes())
        except (OSError, ValueError):
            return {}


def store(job: Job, say: Callable[[str], None]) -> Records | None:
    """Return the store for the followers' records; None on followers, and if the monitor is off."""
    if not (job.settings.monitor and job.cluster.is_coordinator):
        return None
    followers = {host.name for host in job.cluster.followers}
    return Records(job.paths.records, job.paths.run / "wants.json", followers, say)
