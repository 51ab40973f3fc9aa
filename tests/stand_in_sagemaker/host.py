"""Run one host of a job: its tree of /opt/ml and its container."""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from containers import LABEL, PATIENCE, SESSION, repeated, sh

from entrypoint.simulate.local_channels import ChannelMode, LocalChannel
from entrypoint.simulate.pipe_writer import Stream
from entrypoint.simulate.tree import deliver, shown

CACHE = "/opt/ml/sagemaker/warmpoolcache"
GROUP = "homogeneousCluster"  # SageMaker's name of the one instance group of an ordinary job


@dataclass(kw_only=True)
class Host:
    """One host. `base` is what its container sees as /opt/ml."""

    name: str
    rank: int
    names: Sequence[str]  # of all hosts
    base: Path
    container: str
    channels: Sequence[LocalChannel]
    exit_code: int | None = None
    ended: float = 0.0
    _thread: threading.Thread | None = None

    @property
    def model(self) -> Path:
        return self.base / "model"

    @property
    def output(self) -> Path:
        return self.base / "output"

    @property
    def data(self) -> Path:
        return self.base / "input/data"

    @property
    def parts(self) -> Path:
        """Return the folder with this host's part of the channels that differ between hosts."""
        return self.base.parent / "channels"

    @property
    def failure(self) -> str:
        path = self.output / "failure"
        return path.read_text(errors="replace") if path.is_file() else ""

    # --- its tree ---

    def write_tree(self, request: Mapping[str, Any]) -> None:
        """Write what the container finds at its start, all but the checkpoints."""
        for path in (self.data, self.base / "input/config", self.model, self.output / "data"):
            path.mkdir(parents=True)
        config = {
            "resourceconfig": self._resources(request["ResourceConfig"]["InstanceType"]),
            "hyperparameters": request.get("HyperParameters", {}),
            "inputdataconfig": {channel.name: channel.described() for channel in self.channels},
        }
        if "CheckpointConfig" in request:
            config["checkpointconfig"] = {"LocalPath": checkpoint_path(request)}
        for name, content in config.items():
            (self.base / f"input/config/{name}.json").write_text(json.dumps(content))
        deliver(self.channels, self.data, self.parts, self.rank, len(self.names))

    def _resources(self, instance_type: str) -> dict[str, Any]:
        hosts = list(reversed(self.names))  # SageMaker does not sort the hosts of a group
        return {
            "current_host": self.name,
            "current_instance_type": instance_type,
            "current_group_name": GROUP,
            "hosts": list(self.names),
            "instance_groups": [{"instance_group_name": GROUP, "instance_type": instance_type, "hosts": hosts}],
            "network_interface_name": "eth0",
            "topology": None,
        }

    def streams(self) -> list[Stream]:
        """Return what must be fed into the host's FIFOs."""
        return [
            Stream(channel=channel, folder=self.data, rank=self.rank, hosts=len(self.names))
            for channel in self.channels
        ]

    # --- its container ---

    def start(
        self,
        image: str,
        request: Mapping[str, Any],
        *,
        network: str,
        hostname: str,
        environment: Mapping[str, str],
        cache: Path | None,
        line: Callable[[str], None],
    ) -> None:
        """Start the container. `line` gets what it prints, in another thread."""
        mounts = [f"{self.base / part}:/opt/ml/{part}" for part in ("input", "model", "output")]
        fast = {channel.name for channel in self.channels if channel.mode is ChannelMode.FAST_FILE}
        for name, folder in shown(self.channels, self.parts):
            (self.data / name).mkdir()
            mounts.append(f"{folder}:/opt/ml/input/data/{name}" + ":ro" * (name in fast))
        if "CheckpointConfig" in request:
            mounts.append(f"{self.base / 'checkpoints'}:{checkpoint_path(request)}")
        mounts += [f"{cache}:{CACHE}"] if cache else []
        entrypoint = request["AlgorithmSpecification"].get("ContainerEntrypoint", [])
        sh(
            *("docker", "create", "--name", self.container, "--label", f"{LABEL}={SESSION}"),
            *("--network", network, "--network-alias", self.name, "--hostname", hostname),
            *repeated("-v", mounts),
            *repeated("-e", (f"{name}={value}" for name, value in environment.items())),
            *(["--entrypoint", entrypoint[0]] if entrypoint else []),
            *(image, *(entrypoint[1:] or ["train"])),
            within=PATIENCE,
        )
        sh("docker", "start", self.container, within=PATIENCE)
        log = subprocess.Popen(
            ["docker", "logs", "--follow", self.container],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for the test, not for the job
        )
        self._thread = threading.Thread(target=self._follow, args=(log, line), name=self.container)
        self._thread.start()

    def _follow(self, log: subprocess.Popen[str], line: Callable[[str], None]) -> None:
        assert log.stdout
        with log.stdout as lines:
            for text in lines:
                line(text.rstrip("\r\n"))
        log.wait()
        code = sh("docker", "wait", self.container, within=PATIENCE, check=False).stdout.strip()
        self.ended = time.time()
        self.exit_code = int(code or 137)  # none: it has been removed

    def signal(self, name: str) -> None:
        """Send a signal to process 1."""
        sh("docker", "kill", "--signal", name, self.container, within=PATIENCE, check=False)

    def remove(self) -> None:
        """Remove the container, whatever it does."""
        sh("docker", "rm", "-f", "-v", self.container, within=PATIENCE, check=False)
        if self._thread:
            self._thread.join()


def checkpoint_path(request: Mapping[str, Any]) -> str:
    return request["CheckpointConfig"].get("LocalPath", "/opt/ml/checkpoints")
