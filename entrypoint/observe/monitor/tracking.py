"""Run the program that reports the running job to MLflow: entrypoint/observe/export/mlflow_run.py."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BEGIN = f"""
import os, sys
sys.path.append({str(ROOT)!r})
from entrypoint.observe.export.mlflow_run import main
code = main({{}})
sys.stdout.flush()
os._exit(code)  # what MLflow does at the end of its interpreter takes a second, and is nothing of ours
"""
LAST_SECONDS = 10.0  # seconds at the end, to send the rest


class Tracking:
    """Hold the program. It starts with the first training process: by then the job's requirements are installed."""

    def __init__(self, records: Path, log: Callable[[str], None]) -> None:
        self._records, self._log = records, log
        self._program: subprocess.Popen[bytes] | None = None
        self._has_begun = False

    def look(self, trains: bool) -> None:
        """Start the program once the job trains; if it has ended too early, log its output."""
        if trains and not self._has_begun:
            self._has_begun = True
            self._program = subprocess.Popen(
                [sys.executable, "-c", BEGIN.format(repr(str(self._records)))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/",
            )  # fmt: skip
        elif self._program and self._program.poll() is not None:
            self.finish()

    def finish(self) -> None:
        """Let the program send the rest within LAST_SECONDS, and log its output."""
        program, self._program = self._program, None
        if program is None:
            return
        try:
            said, _ = program.communicate(timeout=LAST_SECONDS)
        except subprocess.TimeoutExpired:
            program.kill()
            program.communicate()
            said = f"warning: mlflow: not all data sent within {LAST_SECONDS:g} s; its run is left unfinished".encode()
        for line in said.decode("utf-8", "replace").splitlines():
            self._log(line)
