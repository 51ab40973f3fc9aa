"""Outcome -> failure file and exit code. The one writer of the failure file."""

import json
from pathlib import Path
from typing import Any

from entrypoint.outcome import Kind, Outcome


def write_failure(path: Path, outcome: Outcome) -> str:
    """Write /opt/ml/output/failure unless the job succeeded or the user's script wrote one; what to log about it.

    Never raises: a full or read-only disk must not hide the failure behind another one.
    """
    if outcome.kind is not Kind.FAILED:
        return ""
    try:
        if path.exists() and path.stat().st_size > 0:
            return f"{path} was written by the script and is left as it is"
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.new")
        scratch.write_text(outcome.failure_text(), "utf-8", errors="replace")
        scratch.replace(path)
    except OSError as error:
        return f"{path} cannot be written ({error}); it would have said: {outcome.failure_text()}"
    return ""


def write_summary(path: Path, summary: dict[str, Any]) -> str:
    """Write a JSON summary, for `entrypoint local`; what to log if that fails."""
    try:
        scratch = path.with_name(f".{path.name}.new")
        scratch.write_text(json.dumps(summary, indent=1), "utf-8")
        scratch.replace(path)
    except OSError as error:
        return f"{path} cannot be written: {error}"
    return ""
