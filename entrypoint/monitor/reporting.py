"""Has the report made, at the job's end, by a program of its own: entrypoint/report/__main__.py."""

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[1] / "report" / "__main__.py"
WITHIN = 3.0  # seconds, after which it is killed, and the job ends without


def make_report(records: Path, report: Path, within: float = WITHIN) -> list[str]:
    """Make the report of all records; what is to be said: the worst verdicts, or why there is no report."""
    command = [sys.executable, "-I", "-S", str(PROGRAM), str(records), str(report), str(within)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=within, env={"LC_ALL": "C.UTF-8"}
        )
    except subprocess.TimeoutExpired:
        why = f"it was not made within {within:g} s"
    except OSError as error:
        why = str(error)
    else:
        said = [f"report: {line}" for line in done.stdout.decode("utf-8", "replace").splitlines() if line]
        if done.returncode == 0:
            return said
        why = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2] or f"exit code {done.returncode}"
    return [f"no report.html: {why[:300]}; `entrypoint report` makes it of the records"]
