"""List the files of this host in the folders that SageMaker packs, with limits on time, reading and length."""

import json
import os
import stat
import time
from collections.abc import Iterator

from entrypoint.launcher.job.job import Tree
from entrypoint.launcher.plan.fingerprint import blake2b
from entrypoint.launcher.policy.artifacts import DATA, MODEL, Artifacts, File, is_version

SECONDS = 0.5  # for everything; what was not seen by then is left out
READ_BYTES = 4 << 20  # bytes that are read of all files together
END_BYTES = 1 << 16  # bytes at each end of a large file
LIST = 1 << 17, 1 << 12  # bytes of the list of one host, at most and at least
LISTS_BYTES = 1 << 22  # bytes of the lists of all hosts


def take(tree: Tree, hosts: int) -> Artifacts:
    """List the files below `tree`, within one host's share of the limits. `hosts`: the number of the job's hosts."""
    ours = {tree.records.name, tree.report.name, f".{tree.report.name}.new"}
    reader = _Reader(str(tree.base), time.monotonic() + SECONDS, ours)
    size = max(LIST[1], min(LIST[0], LISTS_BYTES // hosts)) // 2
    files = [*reader.list(MODEL, size), *reader.list(DATA, size)]
    return Artifacts(files=tuple(files), model=reader.model, saved=reader.saved, whole=reader.whole)


class _Reader:
    """Read folders and files. It remembers what was seen, and how much may still be read."""

    def __init__(self, base: str, until: float, ours: set[str]) -> None:
        self.base, self.until, self.left = base, until, READ_BYTES
        # Our own files are left out: where hosts share the folder, as in the SDK's local mode, they still change.
        self.ours = ours
        self.model, self.saved, self.whole = False, "", True

    def list(self, part: str, size: int) -> Iterator[File]:
        for name, status in self._walk(part):
            if time.monotonic() > self.until:
                self.whole = False
                return
            if part == MODEL:
                self.model = True
                self._note_saved(name)
            if size > 0:
                file = File(path=name, size=status.st_size, digest=self._digest(name, status))
                size -= len(json.dumps(name)) + 45
                if size >= 0:
                    yield file

    def _walk(self, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        """Yield all files below a folder, in the same order on every host."""
        try:
            with os.scandir(f"{self.base}/{folder}") as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            return
        for entry in found:
            if folder == DATA and entry.name in self.ours:
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(status.st_mode):
                yield from self._walk(f"{folder}/{entry.name}")
            elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                yield f"{folder}/{entry.name}", status

    def _note_saved(self, name: str) -> None:
        folder, _, file = name.rpartition("/")
        if file in ("saved_model.pb", "saved_model.pbtxt") and (not self.saved or is_version(folder)):
            self.saved = self.saved if is_version(self.saved) else folder

    def _digest(self, name: str, status: os.stat_result) -> str:
        """Return a digest of the content: for a large file, of both its ends; for a link, of its target's name."""
        if self.left <= 0:
            return ""
        self.left -= min(status.st_size, 2 * END_BYTES)
        path, is_large = f"{self.base}/{name}", status.st_size > 2 * END_BYTES
        try:
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(os.fsencode(path))  # noqa: PTH115 - a target is bytes, and no path to clean up
            else:
                with open(path, "rb", buffering=0) as file:
                    content = file.read(END_BYTES if is_large else 2 * END_BYTES)
                    if is_large:
                        file.seek(-END_BYTES, os.SEEK_END)
                        content += file.read(END_BYTES)
        except OSError:
            return ""
        return blake2b(content, digest_size=8).hexdigest()
