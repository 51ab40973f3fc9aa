"""Write the Outcome into the failure file, or mark the success. No other module writes either."""

import contextlib
from pathlib import Path

from entrypoint.base import secrets
from entrypoint.launcher.outcome.outcome import Kind, Outcome


def write_failure(path: Path, outcome: Outcome, secret: secrets.Secrets = secrets.NONE) -> str:
    """Write /opt/ml/output/failure, unless the job succeeded or the script wrote one. Return a line for the log, or "".

    It never raises: a full or read-only disk must not hide the failure behind another one.
    """
    if outcome.kind is not Kind.FAILED:
        return ""
    # Masked before it is cut: half of a secret would not be recognised.
    text = outcome.with_texts(secret.mask).failure_text()
    complaint = ""
    try:
        if path.is_dir():
            path.rename(aside := path.with_name(f"{path.name}-folder"))
            complaint = f"{path} is a folder, which SageMaker does not read: it was renamed to {aside}"
        elif path.exists() and path.stat().st_size > 0:
            return f"{path} was written by the script and is left as it is"
    except OSError as error:
        complaint = f"{path}: {error}"
    if why := _write(path, text):
        return f"{path} cannot be written ({why}); its text would be: {text.splitlines()[0]}"
    return complaint


def write_success(path: Path, outcome: Outcome) -> str:
    """Write the marker of a success, as sagemaker-training does. Return an error to log, since it must fail no job."""
    if outcome.kind is Kind.SUCCEEDED:
        try:
            path.touch()
        except OSError as error:
            return f"{path} cannot be written: {error}"
    return ""


def write_evidence(path: Path, text: str, secret: secrets.Secrets = secrets.NONE) -> str:
    """Write the evidence of an end besides its cause. Return the error to log, if any."""
    why = _write(path, secret.mask(text))
    return f"{path} cannot be written: {why}" if why else ""


def add_evidence(path: Path, line: str) -> None:
    """Add a line that is known only later. Ignore errors, since the log is closed by then."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"\n{line}\n")


def _write(path: Path, text: str) -> str:
    """Write a file, whole or not at all. Return why it cannot be written; "" if it is."""
    scratch = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(text, "utf-8", errors="replace")
        scratch.replace(path)
    except OSError as error:
        return str(error)
    return ""
