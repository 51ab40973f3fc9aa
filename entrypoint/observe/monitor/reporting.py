"""Make the report at the job's end, in a forked process: a new Python would start too slowly."""

import contextlib
import os
import select
import signal
from pathlib import Path

WITHIN_SECONDS = 3.0  # seconds, after which it is killed, and the job ends without
MOST_BYTES = select.PIPE_BUF  # bytes of the lines: so many come in one piece


def make_report(records: Path, report: Path, within: float = WITHIN_SECONDS) -> list[str]:
    """Make the report of all records; return the lines to log: the worst verdicts, or why there is no report."""
    ends: tuple[int, ...] = ()
    try:
        ends = heard, told = os.pipe()
        pid = os.fork()
    except OSError as error:
        for end in ends:
            os.close(end)
        return [_why_not(records, str(error))]
    if pid == 0:
        _make(records, report, within, told)
    os.close(told)
    is_in_time = bool(select.select([heard], [], [], within)[0])
    if not is_in_time:
        os.kill(pid, signal.SIGKILL)
    lines = os.read(heard, MOST_BYTES).decode("utf-8", "replace").splitlines()
    os.close(heard)
    _, status = os.waitpid(pid, 0)
    if not is_in_time:
        return [_why_not(records, f"it was not made within {within:g} s")]
    if status:
        return [_why_not(records, lines[-1] if lines else f"its process ended with {status}")]
    return [f"report: {line}" for line in lines]


def _make(records: Path, report: Path, within: float, told: int) -> None:
    """Run as the forked process: make the report, write the lines to `told`, and exit."""
    code, lines = 1, list[str]()
    with contextlib.suppress(BaseException):
        try:
            from entrypoint.observe.report.make import make
            from entrypoint.record.find import records_in

            lines, code = make(records_in(records), report, within=within), 0
        except Exception as error:  # a traceback of ours does not belong in the job's log
            lines = [f"{type(error).__name__}: {error}"]
        os.write(told, "\n".join(lines).encode("utf-8", "replace")[:MOST_BYTES])
    os._exit(code)


def _why_not(records: Path, why: str) -> str:
    there = any(records.glob("*.jsonl.gz"))
    advice = "`entrypoint report` makes it from the records" if there else f"the records are gone from {records}, too"
    return f"no report.html: {why[:300]}; {advice}"
