"""Run a training job on several hosts, each a container with the tree that SageMaker mounts.

`Cluster` is a context manager. Tests assert inside of it, so that a failure prints each host's log.
Host names are aliases on a separate network, and a container's own hostname differs, as on SageMaker.
"""

import contextlib
import ipaddress
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import hiccups

from entrypoint.simulate.local_channels import LocalChannel
from entrypoint.simulate.pipe_writer import Stream, feeding
from entrypoint.simulate.tree import deliver, shown

PROGRAMS = Path(__file__).parent / "programs"
# On every container and network of this test session, so that the session can see that none is left. tests/run.sh names
# the label, and removes what a run that was stopped has left.
LABEL, SESSION = os.environ.get("TEST_LABEL", "sagemaker-tf-entrypoint.tests"), uuid.uuid4().hex[:8]
MARKED = ("--label", f"{LABEL}={SESSION}")
DOCKER_RUN = ("docker", "run", "--rm", *MARKED)  # `leftovers` finds what it starts
# For hosts that train: they share the processors of this machine, and one that does not come to its turn for a while is
# not lost.
BUSY = {"ENTRYPOINT_PEER_TIMEOUT": "30"}
PATIENCE = 240.0  # seconds: when to give up, not how fast a job has to be
SLOWER = float(os.environ.get("TEST_SLOWER", "1"))  # by what factor commands may be slower, as under emulation

Value = str | int | float | bool | list[Any] | dict[str, Any]


def sh(*command: str, within: float = 60, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command; repeat it after a hiccup of Docker. Raise AssertionError with its output if it fails."""
    result = hiccups.run(command, timeout=within * SLOWER, **options)
    if check:
        assert result.returncode == 0, f"{command}: {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result


def download(folder: Path, *wanted: str) -> Path:
    """Download wheels for these arguments of pip into the folder, for hosts without an index; return the folder."""
    sh(sys.executable, "-m", "pip", "download", "-q", "--only-binary", ":all:", "-d", str(folder), *wanted, within=300)
    return folder


def leftovers() -> str:
    """Return the containers and networks of this session that still exist."""
    mark = f"label={LABEL}={SESSION}"
    containers = sh("docker", "ps", "-a", "--filter", mark, "--format", "container {{.Names}} {{.Status}}").stdout
    return containers + sh("docker", "network", "ls", "--filter", mark, "--format", "network {{.Name}}").stdout


def write_config(
    folder: Path,
    *,
    resources: Any,
    hyperparameters: Mapping[str, Value] | None = None,
    channels: Mapping[str, Any] | None = None,
) -> None:
    """Write the files of /opt/ml/input/config. A str for `resources` is written unchanged; None omits the file."""
    folder.mkdir(parents=True, exist_ok=True)
    if resources is not None:
        text = resources if isinstance(resources, str) else json.dumps(resources)
        (folder / "resourceconfig.json").write_text(text)
    # On the wire every value is a string: JSON for what is not one already.
    strings = {key: v if isinstance(v, str) else json.dumps(v) for key, v in (hyperparameters or {}).items()}
    (folder / "hyperparameters.json").write_text(json.dumps(strings))
    (folder / "inputdataconfig.json").write_text(json.dumps(channels or {}))


def resources(hosts: Iterable[str], current: str) -> dict[str, Any]:
    """Return resourceconfig.json as SageMaker writes it today for a usual job."""
    names, group, kind = sorted(hosts), "homogeneousCluster", "ml.c5.xlarge"
    return {
        "current_host": current,
        "current_instance_type": kind,
        "current_group_name": group,
        "hosts": names,
        "instance_groups": [{"instance_group_name": group, "instance_type": kind, "hosts": names[::-1]}],
        "network_interface_name": "eth0",
        "topology": None,
    }


def write_script(folder: Path, script: str) -> None:
    """Write the /opt/ml of a job of one host with this script."""
    program = {"sagemaker_program": "train.py"}
    write_config(folder / "input/config", resources=resources(["algo-1"], "algo-1"), hyperparameters=program)
    (folder / "code").mkdir()
    (folder / "code/train.py").write_text(script)


def _write_code(folder: Path, program: str, code: Path | str, files: Mapping[str, str]) -> None:
    if isinstance(code, Path) and code.is_dir():
        shutil.copytree(code, folder, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        folder.mkdir()
        (folder / program).write_text(code if isinstance(code, str) else code.read_text())
    for name, text in files.items():
        (folder / name).write_text(text)


def repeated(option: str, values: Iterable[str]) -> list[str]:
    """Return the words of a command line in which the option precedes each value."""
    return [word for value in values for word in (option, value)]


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The end of one host. Times are seconds since 1970; all containers share this machine's clock."""

    host: str
    exit_code: int
    started: float
    finished: float
    log: str
    failure: str | None  # the text of /opt/ml/output/failure
    ml: Path  # the host's /opt/ml

    @property
    def seconds(self) -> float:
        return self.finished - self.started

    @property
    def told(self) -> dict[str, Any]:
        """Return the JSON values that the host's processes wrote to the output data, by file name."""
        files = sorted((self.ml / "output/data").glob("*.json"))
        return {file.stem: json.loads(file.read_text()) for file in files}

    def line(self, having: str) -> str:
        """Return the only line of the log that contains this text."""
        found = [line for line in self.log.splitlines() if having in line]
        assert len(found) == 1, f"{self.host}: {len(found)} lines with {having!r}, wanted one"
        return found[0]


class Cluster:
    """The hosts of one job: started when the `with` block begins, removed when it ends.

    `program` is the file to run; "" if the image or a channel provides and names it. `code` is its folder, the
    file itself, or its text; without it the program is one of tests/cluster/programs. `files`: other files beside it.
    `shared` is a folder that every host has as /opt/ml/checkpoints, as from a file system in the network. `isolated`:
    hosts reach only one another. `channels`: a folder, in File mode, or a LocalChannel under its own name.
    `open_to_all`: for an image whose user is not root. `read_only`: parts of /opt/ml that are mounted so. `options`:
    further options of Docker for each container. `starts`: the program that starts `command`, by default the image's
    entrypoint.
    """

    def __init__(
        self,
        image: str,
        folder: Path,
        *,
        program: str = "train.py",
        hosts: int | Iterable[str] = 3,
        mode: str = "",
        hyperparameters: Mapping[str, Value] | None = None,
        environment: Mapping[str, str] | None = None,
        host_environment: Mapping[str, Mapping[str, str]] | None = None,
        code: Path | str | None = None,
        channels: Mapping[str, Path | LocalChannel] | None = None,
        shared: Path | None = None,
        files: Mapping[str, str] | None = None,
        mounts: Iterable[str] = (),
        isolated: bool = False,
        open_to_all: bool = False,
        read_only: Iterable[str] = (),
        options: Iterable[str] = (),
        starts: Sequence[str] = (),
        command: Sequence[str] = ("train",),
    ) -> None:
        self.image, self.folder = image, folder
        self.hosts = [f"algo-{n + 1}" for n in range(hosts)] if isinstance(hosts, int) else sorted(hosts)
        self.network = f"tfe{uuid.uuid4().hex[:8]}"
        self.channels = [
            each if isinstance(each, LocalChannel) else LocalChannel(name=name, source=each.resolve())
            for name, each in (channels or {}).items()
        ]
        self._fed = contextlib.ExitStack()
        self._unfed: list[str] = []  # what was wrong with channels
        environment = {**({"ENTRYPOINT_MODE": mode} if mode else {}), **(environment or {})}
        self._isolated = isolated
        self._containers: list[tuple[str, ...]] = []  # what Docker is told of each
        for number, host in enumerate(self.hosts, 1):
            ml = self.ml(host)
            write_config(
                ml / "input/config",
                resources=resources(self.hosts, host),
                hyperparameters={**({"sagemaker_program": program} if program else {}), **(hyperparameters or {})},
                channels={channel.name: channel.described() for channel in self.channels},
            )
            for part in ("input/data", "model", "output/data"):
                (ml / part).mkdir(parents=True)
            data, parts = ml / "input/data", folder / host / "channels"
            deliver(self.channels, data, parts, number - 1, len(self.hosts))
            if program:
                _write_code(ml / "code", program, PROGRAMS / program if code is None else code, files or {})
            parts_of_ml = ["input", "model", "output", *(["code"] if program else [])]
            volumes = [f"{ml / part}:/opt/ml/{part}:{'ro' if part in read_only else 'rw'}" for part in parts_of_ml]
            volumes += mounts
            volumes += [f"{path}:/opt/ml/input/data/{name}:ro" for name, path in shown(self.channels, parts)]
            if shared:
                shared.mkdir(exist_ok=True)
                volumes += [f"{shared.resolve()}:/opt/ml/checkpoints"]
            if open_to_all:
                sh("chmod", "-R", "a+rwX", str(ml))
            variables = {**environment, **(host_environment or {}).get(host, {})}
            self._containers.append((
                "--name", self.container(host), "--hostname", f"ip-10-0-0-{number}.ec2.internal",
                "--network", self.network, "--network-alias", host, *options,
                *repeated("--volume", volumes),
                *repeated("--env", (f"{name}={value}" for name, value in variables.items())),
                *(("--entrypoint", starts[0]) if starts else ()), image, *starts[1:], *command,
            ))  # fmt: skip

    def ml(self, host: str) -> Path:
        """Return the path of the host's /opt/ml on this machine."""
        return self.folder / host / "ml"

    def container(self, host: str) -> str:
        return f"{self.network}-{host}"

    # --- up and down ---

    def __enter__(self) -> "Cluster":
        streams = [
            Stream(channel=channel, folder=self.ml(host) / "input/data", rank=rank, hosts=len(self.hosts))
            for rank, host in enumerate(self.hosts)
            for channel in self.channels
        ]
        self._fed.enter_context(feeding(streams, self._unfed.append))
        try:
            sh("docker", "network", "create", *MARKED, *(["--internal"] if self._isolated else []), self.network)
            for words in self._containers:
                sh("docker", "create", *MARKED, *words)
            sh("docker", "start", *map(self.container, self.hosts), within=PATIENCE)
        except BaseException:
            self._tear_down()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None:
                self._print_all()
        finally:
            self._tear_down()
        if kind is None:
            assert not self._unfed

    def _tear_down(self) -> None:
        with self._fed:  # to the end of those who read
            sh("docker", "rm", "--force", "--volumes", *map(self.container, self.hosts), within=PATIENCE, check=False)
            sh("docker", "network", "rm", self.network)

    def _print_all(self) -> None:
        for host in self.hosts:
            state = sh("docker", "inspect", "-f", "{{json .State}}", self.container(host), check=False).stdout
            print(f"\n---- {host}: {state.strip()}\n{self.log(host)}")
            print(f"---- {host}: failure file: {self._failure(host)!r}")

    # --- what happens to it ---

    def kill(self, host: str) -> None:
        """Kill the host at once, unless it has ended."""
        sh("docker", "kill", self.container(host), check=False)

    def stop(self, *hosts: str) -> None:
        """Send SIGTERM to these hosts (default: all), without waiting for their ends."""
        sh("docker", "kill", "--signal", "TERM", *map(self.container, hosts or self.hosts), check=False)

    def is_up(self, host: str) -> bool:
        return sh("docker", "inspect", "-f", "{{.State.Running}}", self.container(host)).stdout == "true\n"

    def exec(self, host: str, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return sh("docker", "exec", self.container(host), *command, check=check)

    # --- what is seen of it ---

    def log(self, host: str, *options: str) -> str:
        command = ["docker", "logs", *options, self.container(host)]
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        return result.stdout.decode("utf-8", "replace")

    def sees(self, text: str, *hosts: str, times: int = 1, within: float = PATIENCE) -> None:
        """Wait until the log of each of these hosts (default: all) contains the text the given number of times."""
        for host in hosts or self.hosts:
            command = ["docker", "logs", "--follow", self.container(host)]
            # Followed, and not asked for again and again, which would take half a processor from those that train.
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as log:
                give_up = threading.Timer(within, log.kill)
                give_up.start()
                found = 0
                while found < times and (line := log.stdout.readline()):
                    found += line.count(text.encode())
                give_up.cancel()
                log.kill()
            assert found >= times, f"{host} has ended, or {within:g} s are over, with {text!r} {found} times of {times}"

    def wait(self, *hosts: str, within: float = PATIENCE) -> dict[str, Ending]:
        """Wait until these hosts (default: all) have ended; return their endings."""
        names = list(hosts or self.hosts)
        try:
            sh("docker", "wait", *map(self.container, names), within=within)
        except subprocess.TimeoutExpired:
            states = sh("docker", "inspect", "-f", "{{.Name}} {{.State.Status}}", *map(self.container, names)).stdout
            raise AssertionError(f"not ended within {within:g} s: {states}") from None
        return {host: self._ending(host) for host in names}

    def all_end(self, code: int = 0, within: float = PATIENCE) -> list[Ending]:
        """Return the endings of the hosts by name; raise AssertionError unless all have this exit code.

        After a failure all hosts have the same text; after a success or a stop none has one. No host reports that
        hosts trained alone.
        """
        endings = list(self.wait(within=within).values())
        assert {ending.host: ending.exit_code for ending in endings} == dict.fromkeys(self.hosts, code)
        (text,) = {ending.failure for ending in endings}
        assert bool(text) == (code not in (0, 128 + signal.SIGTERM))
        assert not [ending.host for ending in endings if "distributed: NO" in ending.log]
        return endings

    def _ending(self, host: str) -> Ending:
        state = json.loads(sh("docker", "inspect", "-f", "{{json .State}}", self.container(host)).stdout)
        return Ending(
            host=host,
            exit_code=state["ExitCode"],
            started=seconds_of(state["StartedAt"]),
            finished=seconds_of(state["FinishedAt"]),
            log=self.log(host),
            failure=self._failure(host),
            ml=self.ml(host),
        )

    def _failure(self, host: str) -> str | None:
        path = self.ml(host) / "output/failure"
        return path.read_text() if path.exists() else None


def seconds_of(docker_time: str) -> float:
    """Return a time of Docker's, such as 2026-01-31T12:00:00.123456789Z, as seconds since 1970."""
    return datetime.fromisoformat(docker_time).timestamp()


def docker_bridge() -> str:
    """Return this machine's address on Docker's default network, which containers of all networks reach."""
    (bridge,) = json.loads(sh("docker", "network", "inspect", "bridge").stdout)
    config = bridge["IPAM"]["Config"][0]
    return config.get("Gateway") or str(next(ipaddress.ip_network(config["Subnet"]).hosts()))


def inside(image: str, *command: str, options: Iterable[str] = (), **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a container without a network; `more` is for `sh`."""
    return sh(*DOCKER_RUN, "--network", "none", *options, image, *command, within=300, **more)


def run_alone(
    image: str,
    *command: str,
    mounts: Mapping[Path, str] | None = None,
    environment: Mapping[str, str] | None = None,
    network: str = "bridge",
    within: float = PATIENCE,
    limits: Iterable[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run one container by `docker run`, outside of any job's network; return stdout and stderr as one text."""
    options = [*limits, *repeated("-v", (f"{path}:{target}" for path, target in (mounts or {}).items()))]
    options += repeated("-e", (f"{name}={value}" for name, value in (environment or {}).items()))
    return subprocess.run(
        [*DOCKER_RUN, "--network", network, *options, image, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=within,
    )
