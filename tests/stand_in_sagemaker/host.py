"""Run one host of a job: its tree of /opt/ml and its container."""

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from containers import LABEL, PATIENCE, SESSION, repeated, sh

from entrypoint.simulate.channels import InputMode
from entrypoint.simulate.pipe_writer import Stream
from stand_in_sagemaker.storage import FromS3

CACHE = "/opt/ml/sagemaker/warmpoolcache"
# The members of CreateTrainingJob that lie in /opt/ml/input/config as they are.
COPIED = {
    "debughookconfig": "DebugHookConfig",
    "profilerconfig": "ProfilerConfig",
    "tensorboardoutputconfig": "TensorBoardOutputConfig",
}


@dataclass(kw_only=True)
class Host:
    """One host. `base` is what its container sees as /opt/ml."""

    name: str
    group: str
    instance_type: str
    base: Path
    container: str
    channels: list[FromS3] = field(default_factory=list)  # those that its instance group gets
    peers: dict[str, list[str]] = field(default_factory=dict)  # the hosts that share each of them
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
    def failure(self) -> str:
        path = self.output / "failure"
        return path.read_text(errors="replace") if path.is_file() else ""

    # --- its tree ---

    def write_tree(self, request: Mapping[str, Any], hosts: Sequence["Host"]) -> None:
        """Write what the container finds at its start, all but the checkpoints."""
        for path in (self.data, self.model, self.output / "data", self.output / "metrics/sagemaker"):
            path.mkdir(parents=True)
        (self.output / "profiler").mkdir()
        config = {
            "resourceconfig": self._resources(hosts),
            "hyperparameters": request.get("HyperParameters", {}),
            "inputdataconfig": {channel.name: channel.described() for channel in self.channels},
            **{file: request[member] for file, member in COPIED.items() if member in request},
        }
        if "CheckpointConfig" in request:
            config["checkpointconfig"] = {"LocalPath": checkpoint_path(request)}
            (self.data / "checkpoints-manifest").write_text(request["CheckpointConfig"]["S3Uri"] + "\n")
        (self.base / "input/config").mkdir()
        for name, content in config.items():
            (self.base / f"input/config/{name}.json").write_text(json.dumps(content))
        for channel in self.channels:
            self._lay_out(channel)

    def _resources(self, hosts: Sequence["Host"]) -> dict[str, Any]:
        groups: dict[str, dict[str, Any]] = {}
        for host in reversed(hosts):  # SageMaker does not sort the hosts of a group
            group = {"instance_group_name": host.group, "instance_type": host.instance_type, "hosts": []}
            groups.setdefault(host.group, group)["hosts"].append(host.name)
        return {
            "current_host": self.name,
            "current_instance_type": self.instance_type,
            "current_group_name": self.group,
            "hosts": sorted(host.name for host in hosts),
            "instance_groups": list(groups.values()),
            "network_interface_name": "eth0",
            "topology": None,
        }

    def _share(self, channel: FromS3) -> tuple[int, int]:
        """Return this host's rank among those that share the channel, and how many they are."""
        peers = self.peers[channel.name]
        return peers.index(self.name), len(peers)

    def _lay_out(self, channel: FromS3) -> None:
        if not channel.attributes:
            (self.data / f"{channel.name}-manifest").write_text(channel.manifest(*self._share(channel)))
        if channel.mode is InputMode.PIPE:
            return
        folder = self._folder(channel)
        folder.mkdir(parents=True)
        put = os.link if channel.mode is InputMode.FAST_FILE else shutil.copy2  # the first is mounted read-only
        for entry in channel.of_host(*self._share(channel)):
            target = folder / entry.key
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                put(entry.parts[0], target)

    def _folder(self, channel: FromS3) -> Path:
        fast = channel.mode is InputMode.FAST_FILE
        return self.base.parent / "fast" / channel.name if fast else self.data / channel.name

    def streams(self) -> list[Stream]:
        """Return what must be fed into the host's FIFOs."""
        shares = {channel.name: self._share(channel) for channel in self.channels}
        return [
            Stream(channel=channel, folder=self.data, rank=shares[channel.name][0], hosts=shares[channel.name][1])
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
        checkpoints: Path | None,
        cache: Path | None,
        line: Callable[[str], None],
    ) -> None:
        """Start the container. `line` gets what it prints, in another thread."""
        mounts = [f"{self.base / part}:/opt/ml/{part}" for part in ("input", "model", "output")]
        for channel in self.channels:
            if channel.mode is InputMode.FAST_FILE:
                mounts.append(f"{self._folder(channel)}:/opt/ml/input/data/{channel.name}:ro")
                (self.data / channel.name).mkdir()
        mounts += [f"{checkpoints}:{checkpoint_path(request)}"] if checkpoints else []
        mounts += [f"{cache}:{CACHE}"] if cache else []
        algorithm = request["AlgorithmSpecification"]
        entrypoint, words = algorithm.get("ContainerEntrypoint", []), algorithm.get("ContainerArguments", [])
        sh(
            *("docker", "create", "--name", self.container, "--label", f"{LABEL}={SESSION}"),
            *("--network", network, "--network-alias", self.name, "--hostname", hostname),
            *repeated("-v", mounts),
            *repeated("-e", (f"{name}={value}" for name, value in environment.items())),
            *(["--entrypoint", entrypoint[0]] if entrypoint else []),
            *(image, *entrypoint[1:], *(words or ([] if entrypoint else ["train"]))),
            within=PATIENCE,
        )
        started = sh("docker", "start", self.container, within=PATIENCE, check=False)
        if started.returncode:  # the image has no such program
            line(started.stderr.strip())
            self.ended, self.exit_code = time.time(), 127
            return
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
