"""Runs pip, one at a time, as sagemaker-training does, and keeps the lines that say what is wrong.

Apart from installing.py, since most jobs install nothing, and this imports what takes some milliseconds.
"""

import contextlib
import fcntl
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from unusable import Unusable

LAST_RETRY = "Retry(total=0,"  # of pip's, in the line that says why its index was not reached
UNREACHED = (
    " (pip did not reach its index: under network isolation, or in a VPC without a way to one, a job has only what the "
    "image or the code brings)"
)


def run_pip(package: bool, code: Path) -> None:
    _keep_cache()
    # With a network that is cut off, pip would look for a newer pip for a quarter of a minute.
    os.environ.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    if package:
        _build_with_what_is_here(code)
    requirements = (code / "requirements.txt").is_file()
    what = "requirements.txt" if requirements else "the package"
    words = [*(["."] if package else []), *(["-r", "requirements.txt"] if requirements else [])]
    env = dict(os.environ)
    if requirements and (arn := os.environ.get("CA_REPOSITORY_ARN")):
        from codeartifact import index

        try:  # there is a token in it, and everybody on the host sees a command line
            env["PIP_INDEX_URL"] = index(arn)
        except Unusable as wrong:
            raise Unusable(f"{what} in {code} cannot be installed: {wrong}") from None
    with one_at_a_time(), errors_of_pip() as said:
        pip = subprocess.run([sys.executable, "-m", "pip", "install", *words], cwd=code, env=env, check=False)
    if pip.returncode:
        found = said[-1] if said else f"pip ended with exit code {pip.returncode}: see its lines above"
        raise Unusable(f"{what} in {code} cannot be installed: {found}")


def _keep_cache() -> None:
    """In a warm pool, pip finds what the job before has downloaded and built."""
    if folder := os.environ.get("SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY"):
        os.environ.setdefault("PIP_CACHE_DIR", str(Path(folder) / "pip"))


def _build_with_what_is_here(code: Path) -> None:
    """To build a plain setup.py, pip fetches setuptools from an index, which network isolation keeps away."""
    asks_for_more = any((code / name).is_file() for name in ("pyproject.toml", "requirements.txt"))
    if not asks_for_more and find_spec("setuptools"):
        os.environ.setdefault("PIP_NO_BUILD_ISOLATION", "false")  # pip reads it as --no-build-isolation


@contextlib.contextmanager
def errors_of_pip() -> Iterator[list[str]]:
    """Return the lines in which pip says what is wrong; everything still reaches our stderr, as it comes."""
    said: list[str] = []
    real = os.dup(2)
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(writer)

    def copy() -> None:
        with open(reader, "rb") as lines:
            unreached = ""
            for line in lines:
                os.write(real, line)
                text = line.decode("utf-8", "replace").strip()
                unreached = UNREACHED if LAST_RETRY in text else unreached
                if text.lower().startswith("error:"):
                    said.append(text + unreached)

    copier = threading.Thread(target=copy, daemon=True)
    copier.start()
    try:
        yield said
    finally:
        os.dup2(real, 2)  # closes the last writer of ours, so the copier comes to an end
        copier.join(timeout=5)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Let pip run once at a time: hosts that are simulated on one machine share its Python."""
    name = re.sub(r"\W", "_", sys.prefix)
    with open(Path(tempfile.gettempdir()) / f"entrypoint-install{name}-{os.getuid()}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
