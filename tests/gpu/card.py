"""The GPU as nvidia-smi tells of it: which it is, how much of its memory is taken, and by which processes of a job."""

import contextlib
import json
import subprocess
import threading
from pathlib import Path

LOOK_SECONDS = 1.0


def ask(*query: str) -> list[str]:
    """Return the lines that nvidia-smi prints; [] where there is none, no GPU, or no answer."""
    command = ["nvidia-smi", *query, "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.splitlines()
    return []


def names() -> list[str]:
    """Return each GPU's name and driver."""
    return ask("--query-gpu=name,driver_version")


def memory_used() -> int:
    """Return the MiB of all GPUs together that are taken."""
    return sum(int(line) for line in ask("--query-gpu=memory.used") if line.strip().isdecimal())


class Watch:
    """Looks every second which processes have memory of the GPU, until the block ends; `who`: their names."""

    def __init__(self) -> None:
        self.who = set[str]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            pids = [line.strip() for line in ask("--query-compute-apps=pid")]
            self.who |= {name_of(Path("/proc", pid)) for pid in pids if pid.isdecimal()}


def name_of(process: Path) -> str:
    """Return the task of TF_CONFIG that a process (a folder of /proc) is, such as ps/0, or else its command."""
    with contextlib.suppress(OSError, KeyError, ValueError, StopIteration):
        variables = (process / "environ").read_bytes().split(b"\0")
        config = next(each for each in variables if each.startswith(b"TF_CONFIG="))
        task = json.loads(config.partition(b"=")[2])["task"]
        return f"{task['type']}/{task['index']}"
    with contextlib.suppress(OSError):
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return "a process that is gone"
