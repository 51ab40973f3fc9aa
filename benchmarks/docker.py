"""Run docker's command line, and label what this process starts, so that all of it can be removed."""

import subprocess
import uuid
from datetime import datetime

LABEL = "sagemaker-tf-entrypoint.benchmarks"
SESSION = uuid.uuid4().hex[:8]
MARK = f"{LABEL}={SESSION}"


def docker(*words: str, within: float = 120, check: bool = True) -> str:
    """Return what the command printed; raise RuntimeError with its error output if it failed."""
    result = subprocess.run(
        ["docker", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=within, errors="replace"
    )
    if check and result.returncode:
        raise RuntimeError(f"docker {' '.join(words[:6])} ...: {(result.stderr or result.stdout).strip()[-2000:]}")
    return result.stdout.strip()


def seconds(engine_time: str) -> float:
    """Return a time that docker has printed (UTC, nanoseconds) as seconds since 1970."""
    whole, _, fraction = engine_time.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")


def remove_all() -> None:
    """Remove every container and network of this session."""
    mark = ("--filter", f"label={MARK}")
    if containers := docker("ps", "-aq", *mark).split():
        docker("rm", "-f", "-v", *containers, check=False)
    if networks := docker("network", "ls", "-q", *mark).split():
        docker("network", "rm", *networks, check=False)
