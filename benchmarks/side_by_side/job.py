"""Run a job on one side: a container for each host, with SageMaker's mounts, on a separate network."""

import contextlib
import functools
import json
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.docker import MARK, docker, seconds
from benchmarks.machine import ROOT
from benchmarks.side_by_side import index, peers
from benchmarks.side_by_side.cases import BY_HAND, DEEPFM_JOB, DRIVERS, INSTALL, ISOLATED, OURS, SILENT, TOOLKIT, Case
from benchmarks.side_by_side.usage import Usage

HERE = Path(__file__).parent
SILENCE = ROOT / "entrypoint/simulate/arp_off.py"
DEEPFM = ROOT / "examples/deepfm"
POLL_S = 0.01
QUIET_S = 0.2
INDEX = "packages"  # its host
WARM_POOL = "/opt/ml/sagemaker/warmpoolcache"


@dataclass(frozen=True)
class Mark:
    """A line that a process of the script wrote: host, process, name, and time (or amount)."""

    host: str
    process: str
    what: str
    value: float


@dataclass(frozen=True)
class Ending:
    """The end of a host. `finished` and `exit_code` are None if it still ran when the job was cut."""

    host: str
    started: float
    finished: float | None
    exit_code: int | None
    log: str  # each line begins with the time at which the engine had it


class Job:
    """The hosts of one job; a `with` block creates and removes them."""

    def __init__(self, case: Case, side: str, images: Mapping[str, str]) -> None:
        self.case, self._side, self._image, self._ours = case, side, images[side], images[OURS]
        self._asked = peers.asked()[case.name] if side == DRIVERS else None
        self._id = f"side-{uuid.uuid4().hex[:8]}"
        self.usage = Usage(self._id, case.program)
        self.hosts = sorted(f"algo-{number + 1}" for number in range(case.hosts))
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Job":
        with self._stack:
            self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix=self._id)))
            self._stack.enter_context(self.usage)
            internal = ["--internal"] if self.case.event == ISOLATED else []
            docker("network", "create", "--label", MARK, *internal, self._id)
            self._stack.callback(docker, "network", "rm", self._id, check=False)
            self._stack.callback(docker, "rm", "-f", "-v", *map(self._name, self.hosts), check=False)
            for number, host in enumerate(self.hosts):
                self._create(number, host)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _name(self, host: str) -> str:
        return f"{self._id}-{host}"

    def _bench(self, host: str) -> Path:
        return self._folder / host / "bench"

    def _create(self, number: int, host: str) -> None:
        base = self._folder / host
        config = base / "input/config"
        for part in ("input/config", "input/data", "code", "model", "output/data", "bench"):
            (base / part).mkdir(parents=True)
        (self._folder / "shared").mkdir(exist_ok=True)
        code = base / ("input/data/code" if self._asked else "code")
        code.mkdir(exist_ok=True)
        for file in (self.case.program, "marks.py"):  # no more: our launcher reads what the code uses
            shutil.copy(HERE / "programs" / file, code)
        if self.case.event == INSTALL:
            shutil.copytree(HERE / "programs/needed", base / "bench/needed")
            shutil.copy(HERE / "programs/marks.py", base / "bench/needed")
            (code / "requirements.txt").write_text("/bench/needed\n")
            if number == self.case.host:
                (base / "bench/no-install").touch()
        if self.case.packages:
            (code / "requirements.txt").write_text(index.requirements(self.case.packages))
        channels = ["code", "sm_drivers"] if self._asked else []
        hyperparameters = self.case.hyperparameters
        if self._asked:
            self._asked.write(base / "input/data/sm_drivers")
            hyperparameters = self._asked.hyperparameters
        if self.case.program == DEEPFM_JOB:
            put_deepfm(code, base / "input/data/training")
            channels.append("training")
        resources = {
            "current_host": host,
            "current_instance_type": "ml.c5.xlarge",
            "current_group_name": "homogeneousCluster",
            "hosts": self.hosts,
            "instance_groups": [
                {"instance_group_name": "homogeneousCluster", "instance_type": "ml.c5.xlarge", "hosts": self.hosts}
            ],
            "network_interface_name": "eth0",
        }
        (config / "resourceconfig.json").write_text(json.dumps(resources))
        (config / "hyperparameters.json").write_text(json.dumps(hyperparameters))
        how = {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
        (config / "inputdataconfig.json").write_text(json.dumps(dict.fromkeys(channels, how)))
        (base / "bench/host").write_text(host)
        mounts = [f"{base / part}:/opt/ml/{part}" for part in ("input", "model", "output", "code")]
        mounts += [f"{base}/bench:/bench", f"{self._folder}/shared:/shared"]
        if self.case.cached:
            mounts.append(f"{index.cache(self.case.name, self._side).name}/{host}:{WARM_POOL}")
        command = self._command(host)
        docker(
            "create", "--name", self._name(host), "--hostname", f"ip-10-0-0-{number + 1}.ec2.internal", "--label", MARK,
            "--network", self._id, "--network-alias", host, "--cgroup-parent", self.usage.parent,
            "--env", f"TRAINING_JOB_NAME={self._id}", *self._settings(),
            *[word for mount in mounts for word in ("-v", mount)],
            "--entrypoint", command[0], self._image, *command[1:],
        )  # fmt: skip

    def _settings(self) -> list[str]:
        reached = self.case.packages and self.case.event != ISOLATED
        settings = self.case.settings(self._side) | (self._of_index() if reached else {})
        here = docker("network", "inspect", "-f", "{{(index .IPAM.Config 0).Gateway}}", self._id)
        # Caches know an index by its address, which is another one in each job's network: so it has a name.
        host = ["--add-host", f"{INDEX}:{here}"] if reached else []
        return [*host, *(word for pair in settings.items() for word in ("--env", "=".join(pair)))]

    def _of_index(self) -> dict[str, str]:
        """Return the settings of SageMaker and the user for the install."""
        port = index.silent()[0].getsockname()[1] if self.case.event == SILENT else index.port()
        found = {"PIP_INDEX_URL": f"http://{INDEX}:{port}/simple/", "PIP_TRUSTED_HOST": INDEX}
        if self.case.cached:
            found["SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY"] = WARM_POOL
            if self._side == TOOLKIT:  # it does not look there: this is what a user can do
                found["PIP_CACHE_DIR"] = f"{WARM_POOL}/pip"
        return found

    def _command(self, host: str) -> list[str]:
        """Return the command that SageMaker starts, or that a user starts by hand."""
        if self._side in BY_HAND:
            return peers.by_hand(self.case, self._side, self.hosts, host)
        if self._asked:
            return self._asked.command
        entrypoint = json.loads(docker("image", "inspect", "-f", "{{json .Config.Entrypoint}}", self._image)) or []
        return [*entrypoint, "train"]

    # --- what happens to it ---

    def start(self) -> None:
        docker("start", *map(self._name, self.hosts))

    def tell(self, word: str, *hosts: str) -> None:
        """Create a file of this name on the hosts, for which their programs wait."""
        for host in hosts or self.hosts:
            (self._bench(host) / word).touch()

    def kill(self, host: str) -> float:
        """Kill the host at once; return the time."""
        at = time.time()
        docker("kill", self._name(host))
        return at

    def cut(self, host: str) -> float:
        """Stop all traffic of the host's network interface, without closing a connection; return when."""
        docker(
            "run", "--rm", "--label", MARK, "--network", f"container:{self._name(host)}", "--cap-add", "NET_ADMIN",
            "-v", f"{SILENCE}:/silence.py:ro", "--entrypoint", "python", self._ours, "/silence.py", "on",
        )  # fmt: skip
        return time.time()

    def terminate(self) -> float:
        """Send SIGTERM to every host; return the time."""
        at = time.time()
        docker("kill", "--signal", "TERM", *map(self._name, self.hosts))
        return at

    # --- what is seen of it ---

    def marks(self) -> list[Mark]:
        return list(self._read_marks())

    def _read_marks(self) -> Iterator[Mark]:
        for host in self.hosts:
            for file in sorted(self._bench(host).glob("marks-*")):
                for line in file.read_text().splitlines():
                    what, _, value = line.partition(" ")
                    yield Mark(host, file.name, what, float(value))

    def see(self, what: str, within: float, processes: int | None = None) -> bool:
        """Wait until `processes` processes (default: all) have written that mark; return False if a host is gone."""
        processes = processes or self.case.processes
        deadline = time.monotonic() + within
        look_at_hosts = time.monotonic() + 5
        while sum(mark.what == what for mark in self._read_marks()) < processes:
            if time.monotonic() > deadline:
                return False
            if time.monotonic() > look_at_hosts:
                look_at_hosts += 5
                if len(self._running()) < len(self.hosts):
                    return False
            time.sleep(POLL_S)
        return True

    def pids(self) -> list[int]:
        """Return the process of each running container."""
        return [int(pid) for pid in docker("inspect", "-f", "{{.State.Pid}}", *map(self._name, self.hosts)).split()]

    def _running(self) -> list[str]:
        shown = docker("inspect", "-f", "{{.State.Running}}", *map(self._name, self.hosts)).split()
        return [host for host, running in zip(self.hosts, shown, strict=True) if running == "true"]

    def drain(self, within: float) -> None:
        """Wait until the engine's log no longer grows."""
        paths = docker("inspect", "-f", "{{.LogPath}}", *map(self._name, self.hosts)).split()
        sizes: list[int] = []
        deadline, since = time.monotonic() + within, time.monotonic()
        while time.monotonic() < deadline and time.monotonic() < since + QUIET_S:
            now = [Path(path).stat().st_size for path in paths]
            if now != sizes:
                sizes, since = now, time.monotonic()
            time.sleep(POLL_S)

    def wait(self, within: float) -> bool:
        """Wait until all hosts are gone; return False after the time limit."""
        waiting = subprocess.Popen(
            ["docker", "wait", *map(self._name, self.hosts)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        try:
            waiting.wait(max(0.0, within))
        except subprocess.TimeoutExpired:
            return False
        finally:
            waiting.kill()
            waiting.wait()
        return True

    def endings(self) -> list[Ending]:
        return [self._ending(host) for host in self.hosts]

    def _ending(self, host: str) -> Ending:
        state = json.loads(docker("inspect", "-f", "{{json .State}}", self._name(host)))
        log = subprocess.run(
            ["docker", "logs", "--timestamps", self._name(host)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
        )
        gone = not state["Running"]
        return Ending(
            host=host,
            started=seconds(state["StartedAt"]),
            finished=seconds(state["FinishedAt"]) if gone else None,
            exit_code=state["ExitCode"] if gone else None,
            log=log.stdout.decode("utf-8", "replace"),
        )


@functools.cache
def _clicks() -> "tempfile.TemporaryDirectory[str]":
    """Return a folder with invented rows for DeepFM, made once for all jobs."""
    folder = tempfile.TemporaryDirectory(prefix="side-material-")
    command = [sys.executable, f"{DEEPFM}/make_rows.py", "--rows", "4000", "--shards", "2", "--output", folder.name]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return folder


def put_deepfm(code: Path, data: Path) -> None:
    """Fill the folders of code and rows. The code includes its imports, so that no side has to install packages."""
    for module in DEEPFM.glob("*.py"):
        shutil.copy(module, code)
    shutil.copytree(ROOT / "sagemaker_tf_data", code / "sagemaker_tf_data", ignore=shutil.ignore_patterns("__py*"))
    shutil.copytree(_clicks().name, data, dirs_exist_ok=True)
