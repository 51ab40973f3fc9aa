"""Choose the moment to stop a run or kill one of its hosts, from the hosts' growing records."""

import time
from pathlib import Path

from entrypoint.check.rehearse.runs import Moment, files_in
from entrypoint.record import lines
from entrypoint.record.read import RecordTail

NOT_TRAINING = ("prepare", "key", "sshd", "mpirun", "ps", "evaluator")  # roles that do not train


class Progress:
    """Measure how long a job has trained: since its first step (`by_steps`), or since its programs began."""

    def __init__(self, output: Path, by_steps: bool) -> None:
        self._output, self._by_steps = output, by_steps
        self._tails: dict[Path, RecordTail] = {}
        self._since: float | None = None

    @property
    def seconds(self) -> float | None:
        """Return the seconds of training until now; None before it has begun."""
        if self._since is None:
            self._read()
        return None if self._since is None else lines.now() - self._since

    def _read(self) -> None:
        for path in self._output.glob("algo-*/ml/output/data/record/*.jsonl.gz"):
            for line in self._tails.setdefault(path, RecordTail(path)).lines((lines.ProcessLine, lines.Metric)):
                match line:
                    case lines.ProcessLine(role=role) if role not in NOT_TRAINING and not self._by_steps:
                        self._since = min(line.at, self._since or line.at)
                    case lines.Metric(values=found) if self._by_steps and ("step" in found or "epoch" in found):
                        self._since = min(line.at, self._since or line.at)


def after(progress: Progress, seconds: float) -> Moment:
    """Return a moment: when the job has trained for so many seconds."""
    return lambda: (progress.seconds or -1.0) >= seconds


def after_keeping(progress: Progress, seconds: float, folders: list[Path]) -> Moment:
    """Return a moment: after so many seconds of training, and a second after the first checkpoint."""
    since: list[float] = []

    def reached() -> bool:
        if not since and files_in(folders):
            since.append(time.monotonic())
        return bool(since) and time.monotonic() >= since[0] + 1.0 and (progress.seconds or -1.0) >= seconds

    return reached
