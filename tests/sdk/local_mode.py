"""Run jobs in the local mode of Amazon's SDKs: a driver runs in the SDK's own Python, without network.

It has invented credentials and its own home folder. All its connections go to a proxy of the test, which records
every attempt.
"""

import contextlib
import json
import os
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hiccups
import pytest
from proxies import proxy
from waiting import locked

ROOT = Path(__file__).resolve().parents[2]
DRIVERS = Path(__file__).parent / "drivers"
COMPOSE = ROOT / ".venv-sdk-compose"  # there if the machine's own docker has no compose
NETWORK = "sagemaker-local"  # what both SDKs call it, for all jobs of a machine
PATIENCE = 600.0  # seconds: when to give up, not how fast a job has to be

NO_TELEMETRY = "SchemaVersion: '1.0'\nSageMaker: {PythonSDK: {Modules: {TelemetryOptOut: true}}}\n"


def python_of(sdk: str) -> Path:
    return ROOT / f".venv-sdk-{sdk}/bin/python"


def missing(why: str) -> None:
    """Skip a test that a user's machine cannot run; fail with CI=true."""
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)


def needed_python(sdk: str) -> Path:
    """Return the Python of an SDK; skip the test if there is none."""
    python = python_of(sdk)
    if not python.exists():
        missing(f"no environment of SageMaker's SDK {sdk} (tests/sdk/make_environments.sh makes it)")
    return python


def docker(*words: str) -> list[str]:
    """Return the lines that a docker command prints."""
    result = hiccups.run(("docker", *words), timeout=60)
    assert result.returncode == 0, f"docker {words}: {result.stderr}"
    return result.stdout.splitlines()


@dataclass(frozen=True, kw_only=True)
class Job:
    """The end of a driver, and the results of the job in the SDK."""

    exit_code: int
    output: str  # what the user sees: the SDK's words, and among them the hosts' logs
    folder: Path

    def artifact(self, name: str) -> Path:
        """Return model.tar.gz or output.tar.gz, unpacked; the SDK collects them after a failure, too."""
        archives = list(self.folder.rglob(f"compressed_artifacts/{name}.tar.gz"))
        assert len(archives) == 1, f"{name}.tar.gz: {archives}\n{self.output}"
        unpacked = self.folder / name
        with tarfile.open(archives[0]) as archive:
            archive.extractall(unpacked, filter="data")
        return unpacked


def run(sdk: str, folder: Path, call: Any, driver: str = "") -> Job:
    """Let the driver of this SDK ("v2", "v3"), or another one, make a call; leave only files, below `folder`."""
    # The last part of the path becomes the name of compose's project, and so must be no other job's.
    here = Path(tempfile.mkdtemp(prefix="sdk", dir=folder))
    home = here / "home"
    home.mkdir()
    docker_config = COMPOSE if COMPOSE.is_dir() else os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker"
    (home / "defaults.yaml").write_text(NO_TELEMETRY)
    environment = {
        **{name: value for name, value in os.environ.items() if name in ("PATH", "DOCKER_HOST")},
        "HOME": str(home),
        "TMPDIR": str(home),
        "DOCKER_CONFIG": str(docker_config),
        "SAGEMAKER_ADMIN_CONFIG_OVERRIDE": str(home / "defaults.yaml"),
        "SAGEMAKER_USER_CONFIG_OVERRIDE": str(home / "defaults.yaml"),
        "AWS_ACCESS_KEY_ID": "AKIAINVENTEDEXAMPLE1",
        "AWS_SECRET_ACCESS_KEY": "invented",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with proxy(answer=b"HTTP/1.1 403 Forbidden\r\n\r\n") as (url, asked), one_at_a_time():
        # Whatever botocore or requests would say to anybody.
        ways_out = ("AWS_ENDPOINT_URL", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
        environment |= dict.fromkeys(ways_out, url)
        exit_code, output = _drive(sdk, driver or sdk, here, json.dumps(call), environment)
    assert asked == [], f"the SDK spoke to the world: {asked}"
    return Job(exit_code=exit_code, output=output, folder=here)


def _drive(sdk: str, driver_name: str, here: Path, call: str, environment: dict[str, str]) -> tuple[int, str]:
    driver = subprocess.Popen(
        [python_of(sdk), "-u", DRIVERS / f"{driver_name}.py"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=here, env=environment, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = driver.communicate(call, timeout=PATIENCE)
        return driver.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(driver.pid, signal.SIGKILL)  # the SDK, and compose
        raise AssertionError(f"not over within {PATIENCE:g} s:\n{driver.communicate()[0]}") from None
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
        _remove(here.parent)  # of the whole test: a call can name another folder


def _remove(folder: Path) -> None:
    """Remove containers of jobs whose compose file is below `folder`: the SDKs leave them."""
    label = "com.docker.compose.project.working_dir"
    form = '{{.ID}} {{.Label "' + label + '"}}'
    lines = docker("ps", "-a", "--filter", f"label={label}", "--format", form)
    mine = [words[0] for line in lines if (words := line.split(" ", 1))[1].startswith(f"{folder}/")]
    if mine:
        docker("rm", "-f", "-v", *mine)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Run one job at a time: SDK 3 names its hosts algo-1, algo-2 on a network that all jobs of the machine share.

    The network is gone afterwards if it was not there before.
    """
    with locked(Path(tempfile.gettempdir())):  # a folder that all test runs know; no file is left there
        before = _networks()
        try:
            yield
        finally:
            if _networks() and not before:
                docker("network", "rm", NETWORK)


def _networks() -> list[str]:
    return docker("network", "ls", "--quiet", "--filter", f"name=^{NETWORK}$")
