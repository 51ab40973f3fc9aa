"""Read nvidia-smi: the GPU's name, its used memory, and the processes of a job that use it."""

import contextlib
import json
import subprocess
import threading
from pathlib import Path

LOOK_SECONDS = 1.0


def ask(*query: str) -> list[str]:
    """Return the lines that nvidia-smi prints; [] without nvidia-smi, a GPU, or an answer."""
    command = ["nvidia-smi", *query, "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.splitlines()
    return []


def names() -> list[str]:
    """Return each GPU's name and driver."""
    return ask("--query-gpu=name,driver_version")


def memory_used() -> int:
    """Return the used memory of all GPUs together in MiB."""
    return sum(int(line) for line in ask("--query-gpu=memory.used") if line.strip().isdecimal())


class Watch:
    """Record each second which processes of a job have GPU memory, until the block ends. `who`: their names.

    Processes of the job have its folder in their environment.
    """

    def __init__(self, folder: Path) -> None:
        self.who = set[str]()
        self._folder = str(folder).encode()
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
            for pid in ask("--query-compute-apps=pid"):
                with contextlib.suppress(OSError):  # it is gone, or no number
                    environment = Path("/proc", pid.strip(), "environ").read_bytes()
                    if self._folder in environment:
                        self.who.add(task_of(environment))


def task_of(environment: bytes) -> str:
    """Return the task of TF_CONFIG, such as ps/0; "script" if there is none."""
    with contextlib.suppress(KeyError, ValueError, StopIteration):
        config = next(each for each in environment.split(b"\0") if each.startswith(b"TF_CONFIG="))
        task = json.loads(config.partition(b"=")[2])["task"]
        return f"{task['type']}/{task['index']}"
    return "script"
