"""docker's command line, and a mark on all that this process starts, so that nothing is left behind."""

import subprocess
import uuid

LABEL, SESSION = "sagemaker-tf-entrypoint.benchmarks", uuid.uuid4().hex[:8]
MARK = f"{LABEL}={SESSION}"


def docker(*words: str, within: float = 120, check: bool = True) -> str:
    """What the command printed; RuntimeError with its complaint if it failed."""
    result = subprocess.run(
        ["docker", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=within, errors="replace"
    )
    if check and result.returncode:
        raise RuntimeError(f"docker {' '.join(words[:6])} ...: {(result.stderr or result.stdout).strip()[-2000:]}")
    return result.stdout.strip()


def remove_all() -> None:
    """Every container and network of this process."""
    mark = ("--filter", f"label={MARK}")
    if containers := docker("ps", "-aq", *mark).split():
        docker("rm", "-f", "-v", *containers, check=False)
    if networks := docker("network", "ls", "-q", *mark).split():
        docker("network", "rm", *networks, check=False)
