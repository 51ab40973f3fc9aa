"""Hosts as containers of the image, on a network made for this run. Nothing of them outlives it."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from entrypoint.config import read_job
from entrypoint.errors import ConfigError
from entrypoint.local.engine import Command, last_line
from entrypoint.local.spec import LocalJob, settings_in
from entrypoint.local.tree import HostFolder, write_config

LABEL = "sagemaker-tf-entrypoint=local"
ML = PurePosixPath("/opt/ml")
PATIENCE = 60.0  # seconds for a daemon's answer


class DockerEngine:
    """Runs the hosts of a job by the docker command."""

    def __init__(self, job: LocalJob, environment: Mapping[str, str], image: str, shm_size: str | None) -> None:
        self.job, self.image, self.shm_size = job, image, shm_size
        self._ours = dict(environment)
        self._theirs = {**settings_in(environment), **dict(job.environment)}
        self._run = f"entrypoint-{os.getpid()}-{secrets.token_hex(3)}"
        self._docker = shutil.which("docker") or "docker"

    def check(self) -> None:
        if not shutil.which("docker"):
            raise ConfigError("there is no docker command; install Docker, or use --engine process")
        if (answer := self._call("version", "--format", "{{.Server.Version}}")).returncode:
            raise ConfigError(f"the Docker daemon does not answer: {last_line(answer.stderr, 'no reason given')}")
        if self._call("image", "inspect", self.image).returncode:
            raise ConfigError(f"there is no image {self.image} here; ./build.sh builds it, --image names another")
        with tempfile.TemporaryDirectory() as config:  # a bad description is to be seen before anything starts
            write_config(self.job, self.job.names[0], Path(config))
            read_job(Path(ML), self._theirs, Path("/run/entrypoint"), config=Path(config))

    def plan(self) -> str:
        """As the image's own launcher prints it."""
        with tempfile.TemporaryDirectory() as config:
            write_config(self.job, self.job.names[0], Path(config))
            Path(config).chmod(0o755)
            command = ["run", "--rm", "--label", LABEL, *_mount(Path(config), ML / "input/config", readonly=True)]
            command += [*self._variables(), self.image, "entrypoint", "plan"]
            answer = self._call(*command, environment=self._client_environment())
        if answer.returncode:
            raise ConfigError(f"the image {self.image} prints no plan: {last_line(answer.stderr, 'no reason given')}")
        return answer.stdout.decode(errors="replace").rstrip("\n")

    @contextlib.contextmanager
    def ready(self) -> Iterator[None]:
        made = self._call("network", "create", "--label", LABEL, self._run)
        try:
            if made.returncode:
                raise ConfigError(f"docker makes no network: {last_line(made.stderr, 'no reason given')}")
            yield
        finally:
            self._call("rm", "--force", "--volumes", *(self._container(host) for host in self.job.names))
            self._call("network", "rm", self._run)

    def command(self, folder: HostFolder) -> Command:
        run = [self._docker, "run", "--name", self._container(folder.host), "--label", LABEL]
        run += ["--network", self._run, "--network-alias", folder.host]
        if self.shm_size:
            run += ["--shm-size", self.shm_size]
        for part in ("input/config", "model", "output", "code"):
            run += _mount(folder.base / part, ML / part)
        for name, channel in self.job.channels:
            run += _mount(channel, ML / "input" / "data" / name, readonly=True)
        return Command(argv=(*run, *self._variables(), self.image, "train"), environment=self._client_environment())

    def signal(self, running: Mapping[str, int], number: int) -> None:
        names = [self._container(host) for host in running]
        self._call("kill", "--signal", signal.Signals(number).name, *names)

    def _container(self, host: str) -> str:
        return f"{self._run}-{host}"

    def _variables(self) -> list[str]:
        """The hosts' environment: names only, since values may be secrets and a command line is public."""
        made = {"TRAINING_JOB_NAME": self.job.name, "ENTRYPOINT_SUMMARY": str(ML / "output" / "summary.json")}
        words = [f"--env={name}={value}" for name, value in made.items()]
        for name, value in self._theirs.items():
            words.append(f"--env={name}={value}" if _is_clients(name) else f"--env={name}")
        return words

    def _client_environment(self) -> dict[str, str]:
        """The docker command's own environment, from which it takes the values of the names above."""
        return {**self._ours, **{name: value for name, value in self._theirs.items() if not _is_clients(name)}}

    def _call(self, *words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
        """docker, with its own session: a Ctrl-C is for us to hear, and not for a clean-up to die of."""
        command = [self._docker, *words]
        try:
            return subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE,
                start_new_session=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 124, b"", f"no answer in {PATIENCE:g} s".encode())


def _is_clients(name: str) -> bool:
    """Whether the docker command itself would be led astray by a variable meant for the hosts."""
    return name.startswith("DOCKER_") or name in ("HOME", "PATH")


def _mount(source: Path, target: PurePosixPath, readonly: bool = False) -> list[str]:
    """docker reads the value as a line of CSV."""
    parts = ["type=bind", f"source={source}", f"target={target}", *(["readonly"] if readonly else [])]
    quoted = ['"' + part.replace('"', '""') + '"' if any(c in part for c in ',"') else part for part in parts]
    return ["--mount", ",".join(quoted)]
