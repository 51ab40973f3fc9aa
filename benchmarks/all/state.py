"""Keep what was measured so far, and refuse to add figures of another commit, machine or tree to it."""

import fcntl
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.report.figures import BadRecord, read

WORK = ".measuring"  # folder beside the JSON files: the state, logs, and files of benchmarks that have not ended
SAME = ("cpus", "cpu", "memory_gib", "kernel", "docker")  # of a machine
MODIFIED = "-modified"  # build.sh appends it to the revision
BUILT_FROM = ("Dockerfile", "container", "entrypoint", "sagemaker_tf_data", "pyproject.toml")  # an image of ours


class Refused(Exception):
    """Figures would be mixed. The text names what was found, what was wanted, and what to do."""


def here() -> dict[str, Any]:
    """Return the commit of the tree, and what identifies the machine."""
    found = machine.head("all")
    return {"commit": found["commit"], "machine": {name: found["machine"][name] for name in SAME}}


def changed() -> list[str]:
    """Return the files of the tree that differ from the commit, other than pages."""
    found = machine.said("git", "-C", str(machine.ROOT), "status", "--porcelain", "--", ".", *machine.NOT_CODE)
    return [line[2:].strip() for line in found.splitlines()]


def check_tree(files: list[str]) -> None:
    if files:
        some = ", ".join(files[:5]) + (" and more" if len(files) > 5 else "")
        raise Refused(f"found a tree with changes: {some}; wanted the commit alone; commit or stash them, then repeat")


def other_launcher(image: str) -> str:
    """Return why an image of ours cannot be measured: it holds another launcher than this commit; "" if it can."""
    form = '{{index .Config.Labels "org.opencontainers.image.revision"}}'
    revision = machine.said("docker", "image", "inspect", "-f", form, image)
    if not revision:
        return "its labels name no commit"
    if revision.endswith(MODIFIED):
        return f"it was built of commit {revision[:8]} with changes; commit them, then build it again"
    same = ["git", "-C", str(machine.ROOT), "diff", "--quiet", revision, "HEAD", "--", *BUILT_FROM]
    differs = subprocess.run(same, capture_output=True).returncode
    return f"its launcher, of commit {revision[:8]}, differs from this commit's" if differs else ""


class State:
    """`steps`: {name: how it went}. Everything is written at once, so that a kill loses nothing."""

    def __init__(self, folder: Path, of: dict[str, Any]) -> None:
        self.folder, self.work = folder, folder / WORK
        self.file, self.lock = self.work / "state", self.work / "lock"
        self.of = of
        self.steps: dict[str, dict[str, Any]] = {}

    def read(self) -> None:
        """Read what an earlier call has measured. Raise Refused if it was on another commit or machine."""
        if not self.file.exists():
            return
        try:
            found = json.loads(self.file.read_text())
            before, self.steps = {name: found[name] for name in self.of}, found["steps"]
        except (ValueError, KeyError, TypeError):
            raise Refused(
                f"found {self.file}, which is no state; wanted what this command writes; {self.anew}"
            ) from None
        if before["commit"] != self.of["commit"]:
            raise Refused(
                f"found figures of commit {before['commit']} in {self.folder}; wanted those of {self.of['commit']}, "
                f"which is checked out; go on with git checkout {before['commit']}, or {self.anew}"
            )
        differ = [name for name in SAME if before["machine"].get(name) != self.of["machine"][name]]
        if differ:
            was, now = (
                ", ".join(f"{name} {each['machine'].get(name)}" for name in differ) for each in (before, self.of)
            )
            raise Refused(
                f"found figures of another machine ({was}); wanted this one ({now}); go on there, or {self.anew}"
            )

    def check_commit(self) -> None:
        """Raise Refused if another commit has been checked out since the command began."""
        if (found := machine.commit()) != self.of["commit"]:
            raise Refused(
                f"found commit {found} checked out; wanted {self.of['commit']}, of which the other figures are"
            )

    @property
    def anew(self) -> str:
        return "measure all anew: --fresh"

    def forget(self) -> None:
        """Forget what was measured so far, and the unfinished files."""
        self.steps = {}
        for path in self.work.glob("*"):
            if path != self.lock:
                path.unlink()

    def write(self) -> None:
        self.work.mkdir(parents=True, exist_ok=True)
        new = self.work / "state.new"
        new.write_text(json.dumps({**self.of, "steps": self.steps}, indent=1) + "\n")
        new.replace(self.file)

    def is_done(self, name: str, what: str) -> bool:
        """Return whether a benchmark has ended well, and the folder still has its figures."""
        if "ended" not in self.steps.get(name, {}):
            return False
        try:
            return bool(read(self.folder / f"{what}.json", [what])["commit"] == self.of["commit"])
        except BadRecord:
            return False

    def part(self, what: str) -> Path:
        """Return the JSON file of a benchmark that has not ended."""
        return self.work / f"{what}.json"

    def log(self, what: str) -> Path:
        return self.work / f"{what}.log"

    def finish(self, what: str, repeated_by: str, in_image: bool) -> None:
        """Move a benchmark's figures into the folder. Raise Refused if they are not of this commit."""
        record = read(self.part(what), [what])
        if in_image:
            record |= {"commit": self.of["commit"]}
            record["machine"] |= {"docker": self.of["machine"]["docker"]}
        if record["commit"] != self.of["commit"]:
            raise Refused(f"found figures of commit {record['commit']}; wanted those of {self.of['commit']}")
        machine.keep(self.folder / f"{what}.json", record | {"command": repeated_by})
        self.part(what).unlink()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder: two of these commands would disturb each other."""
        self.work.mkdir(parents=True, exist_ok=True)
        with self.lock.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Refused(
                    f"found another benchmarks.all at work in {self.folder}; wanted none; wait for it"
                ) from None
            yield
