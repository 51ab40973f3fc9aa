"""Make records of invented jobs, as a monitor writes them, from a few values."""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BEGAN = 1_800_000_000.0  # seconds since the epoch
GB = 1e9


class HostRecord:
    """One host's record. Times are seconds since the start of the job."""

    def __init__(self, name: str = "algo-1", hosts: int = 1, **about: Any) -> None:
        names = [f"algo-{number + 1}" for number in range(hosts)]
        self.name, self.lines = name, []
        told = {
            "version": 1, "host": name, "rank": int(name.rpartition("-")[2]) - 1, "hosts": names,
            "coordinator": "algo-1", "mode": "mwms" if hosts > 1 else "single", "instance_type": "ml.c5.2xlarge",
            "cpus": 8, "gpus": 0,
            "interval": 1.0, "limits": {"stop": 100.0}, "memory_limit": 16 * GB, "disk_size": 100 * GB,
        }  # fmt: skip
        self.add("host", 0.0, {**told, **about})

    def add(self, kind: str, at: float, *values: Any) -> None:
        """Add a line."""
        self.lines.append([kind, round(BEGAN + at, 3), *values])

    def of(self, kind: str) -> list[list[Any]]:
        """Return the lines of the given kind."""
        return [line for line in self.lines if line[0] == kind]

    def drop(self, *kinds: str) -> None:
        """Drop the lines of these kinds."""
        self.lines = [line for line in self.lines if line[0] not in kinds]

    def runs(self, name: str, start: float, end: float | None, role: str = "worker", how: str = "exit code 0") -> None:
        """Add the run of a process of the plan; an end of None means that it has not ended."""
        self.add("process", start, name, {"pid": 7, "role": role, "task": name})
        if end is not None:
            self.add("ended", end, name, how)

    def sample(
        self,
        at: float,
        *,
        cpu: list[float] | None = None,
        programs: float = 2 * GB,
        free: float = 50 * GB,
        seconds: float = 1.0,
        processes: Mapping[str, Any] | None = None,
        peers: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """Add the usage in the `seconds` before `at`."""
        host = {
            "cpu": cpu or [4.0, 0.5, 0.0, 0.0, 0.0], "memory": [programs, 3 * GB, programs + 3 * GB], "disk": [0, 0],
            "net": [0, 0], "free": free, **more,
        }  # fmt: skip
        self.add("sample", at, seconds, host, processes or {}, peers or {})

    def ends(self, at: float, kind: str = "succeeded", code: int = 0, cause: Mapping[str, str] | None = None) -> None:
        """Add the end of the job."""
        self.add("outcome", at, {"kind": kind, "exit_code": code, "cause": cause, "there": []})

    @property
    def data(self) -> bytes:
        """Return the file's content, lines in order of time."""
        ordered = sorted(self.lines, key=lambda line: line[1])
        return packed("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in ordered).encode())


def packed(content: bytes) -> bytes:
    """Compress a record as the monitor does."""
    gzip = zlib.compressobj(6, zlib.DEFLATED, 31)
    return gzip.compress(content) + gzip.flush()


def trained(
    name: str = "algo-1",
    hosts: int = 1,
    *,
    seconds: int = 60,
    begins: float = 5.0,
    step: float = 0.1,
    loss: float = 0.97,
    process: str = "script",
    role: str = "script",
    sample: Mapping[str, Any] | None = None,
    used: Mapping[str, Any] | None = None,
    **about: Any,
) -> HostRecord:
    """Make a host without faults: one process trains for `seconds`, a step in `step` s, with a falling loss.

    `sample`: the host's other usage; `used`: the usage of the process.
    """
    record = HostRecord(name, hosts, **about)
    end = begins + seconds
    record.runs("prepare", 0.2, 1.5, "prepare")
    record.runs(process, begins, end, role)
    for second in range(1, int(end) + 1):
        working = second > begins
        uses = {process: {"cpu": 4.0, "memory": int(2 * GB), "output": 80, **(used or {})}} if working else {}
        record.sample(second, processes=uses, **(sample or {}))
        if second >= begins + 2:
            done = (second - begins) / step
            record.add("metric", second, process, {"step": float(round(done)), "loss": 2.0 * loss ** (second - begins)})
    record.ends(end + 1)
    return record


def write(folder: Path, *records: HostRecord) -> Path:
    """Write records into a folder as a job does; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for record in records:
        (folder / f"{record.name}.jsonl.gz").write_bytes(record.data)
    return folder
