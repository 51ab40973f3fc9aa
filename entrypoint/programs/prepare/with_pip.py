"""Run pip, one at a time, as sagemaker-training does, and keep the lines with its errors.

It is not part of installing.py, since most jobs install nothing, and its imports take some milliseconds.
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
from typing import IO

from unusable import Unusable, missing, reason

RUN_PIP = Path(__file__).parents[1] / "run_pip.py"
ARN = re.compile(r"arn:[^:]+:codeartifact:(?P<region>[^:]+):(?P<owner>[^:]+):repository/(?P<domain>[^/]+)/(?P<name>.+)")
WANTED = (
    "wanted codeartifact:GetAuthorizationToken, codeartifact:GetRepositoryEndpoint, codeartifact:ReadFromRepository "
    "and sts:GetServiceBearerToken for the job's execution role, and a network that leads to that service"
)
LAST_RETRY = "Retry(total=0,"  # in pip's line about an index that it did not reach
UNREACHED = (
    " (pip did not reach its index: under network isolation, or in a VPC without a way to one, a job has only what the "
    "image or the code brings)"
)


def run_pip(package: bool, code: Path) -> None:
    # In a warm pool, pip finds what the job before has fetched and built.
    if cache := os.environ.get("SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY"):
        os.environ.setdefault("PIP_CACHE_DIR", str(Path(cache) / "pip"))
    # Without a network, pip would look for a newer pip for a quarter of a minute.
    os.environ.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    if package:
        _build_with_what_is_here(code)
    requirements = (code / "requirements.txt").is_file()
    what = "requirements.txt" if requirements else "the package"
    words = [*(["."] if package else []), *(["-r", "requirements.txt"] if requirements else [])]
    env = dict(os.environ)
    if requirements and (arn := os.environ.get("CA_REPOSITORY_ARN")):
        try:  # it holds a token, and everybody on the host can see a command line
            env["PIP_INDEX_URL"] = _index(arn)
        except ImportError as error:
            raise missing(error.name, "CA_REPOSITORY_ARN") from None
        except Unusable as wrong:
            raise Unusable(f"{what} in {code} cannot be installed: {wrong}") from None
    last: list[str] = []
    with one_at_a_time():
        command = [sys.executable, str(RUN_PIP), "install", *words]
        pip = subprocess.Popen(command, cwd=code, env=env, stderr=subprocess.PIPE)
        copier = threading.Thread(target=_copy, args=(pip.stderr, last), daemon=True)
        copier.start()
        pip.wait()
        copier.join(timeout=5)  # what a build has left running may keep the other end open for ever
    if pip.returncode:
        found = last[-1] if last else f"pip ended with exit code {pip.returncode}: see its lines above"
        raise Unusable(f"{what} in {code} cannot be installed: {found}")


def _index(arn: str) -> str:
    """Return the URL of a repository of AWS CodeArtifact for pip, with a token. sagemaker-training takes the same."""
    import boto3

    found = ARN.fullmatch(arn)
    if not found:
        raise Unusable(
            f"CA_REPOSITORY_ARN is {arn!r}; wanted arn:aws:codeartifact:REGION:ACCOUNT:repository/DOMAIN/REPOSITORY"
        )
    domain = {"domain": found["domain"], "domainOwner": found["owner"]}
    try:
        client = boto3.client("codeartifact", region_name=found["region"])
        token = client.get_authorization_token(**domain)["authorizationToken"]
        endpoint = client.get_repository_endpoint(**domain, repository=found["name"], format="pypi")
    except Exception as error:  # botocore has many kinds
        raise Unusable(f"CA_REPOSITORY_ARN is set, and there is no index: {reason(error)}; {WANTED}") from None
    scheme, _, rest = endpoint["repositoryEndpoint"].rstrip("/").partition("://")
    return f"{scheme}://aws:{token}@{rest}/simple/"


def _build_with_what_is_here(code: Path) -> None:
    """Build a plain setup.py with the installed setuptools: pip would fetch it, which network isolation prevents."""
    asks_for_more = any((code / name).is_file() for name in ("pyproject.toml", "requirements.txt"))
    if not asks_for_more and find_spec("setuptools"):
        os.environ.setdefault("PIP_NO_BUILD_ISOLATION", "false")  # pip reads it as --no-build-isolation


def _copy(lines: IO[bytes], last: list[str]) -> None:
    """Pass on pip's stderr as it comes, and keep the lines with errors."""
    unreached = ""
    for line in lines:
        os.write(2, line)
        text = line.decode("utf-8", "replace").strip()
        unreached = UNREACHED if LAST_RETRY in text else unreached
        if text.lower().startswith("error:"):
            last.append(text + unreached)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Let only one pip run at a time: hosts that are simulated on one machine share its Python."""
    name = re.sub(r"\W", "_", sys.prefix)
    with open(Path(tempfile.gettempdir()) / f"entrypoint-install{name}-{os.getuid()}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
