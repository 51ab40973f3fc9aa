"""Run docker's command line, and label all that this process starts, for its removal."""

import subprocess
import uuid
from datetime import datetime

LABEL = "sagemaker-tf-entrypoint.benchmarks"
SESSION = uuid.uuid4().hex[:8]
MARK = f"{LABEL}={SESSION}"


def docker(*words: str, within: float = 120, check: bool = True) -> str:
    """Run a command of docker; return its output, or raise RuntimeError with its error output."""
    result = subprocess.run(
        ["docker", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=within, errors="replace"
    )
    if check and result.returncode:
        raise RuntimeError(f"docker {' '.join(words[:6])} ...: {(result.stderr or result.stdout).strip()[-2000:]}")
    return result.stdout.strip()


def seconds(engine_time: str) -> float:
    """Convert a time that docker printed (UTC, nanoseconds) to seconds since 1970."""
    whole, _, fraction = engine_time.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")


def remove_all() -> None:
    """Remove every container and network of this session."""
    mark = ("--filter", f"label={MARK}")
    if containers := docker("ps", "-aq", *mark).split():
        docker("rm", "-f", "-v", *containers, check=False)
    if networks := docker("network", "ls", "-q", *mark).split():
        docker("network", "rm", *networks, check=False)
