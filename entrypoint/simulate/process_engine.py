"""Run hosts as processes: each is the launcher itself, with a folder, a loopback address and ports of its own.

TensorFlow's servers listen on all addresses, so every host needs ports of its own. A run adds one number, the base, to
all its ports, and a stride times the rank to each host's.
"""

import contextlib
import json
import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.base.values import replace
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.plan.plan import Plan, ProcessSpec
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.plan.render import render
from entrypoint.simulate import mounts
from entrypoint.simulate.engine import EngineName, HostCommand
from entrypoint.simulate.fault import Action
from entrypoint.simulate.local_channels import lies_in
from entrypoint.simulate.local_python import PACKAGE, PythonEngine, allow_files
from entrypoint.simulate.mounts import ML
from entrypoint.simulate.spec import LocalJob
from entrypoint.simulate.tree import HostFolder, read, read_below

LOWEST, HIGHEST = 10_000, 65_535  # lower ports are often in use by services
_ML = re.compile(r"/opt/ml(?![\w.-])[\w./-]*")
_ASKS = re.compile(r"environ|getenv|SM_[A-Z]")
_LONGEST_BYTES = 1 << 20  # of a file that is read for such names
_TRAIN = "from entrypoint.train import train; train()"
_STEP = 61  # distance between two bases that are tried


class ProcessEngine(PythonEngine):
    """Run each host as a process that is its launcher."""

    name = EngineName.PROCESS
    faults = frozenset({Action.KILL, Action.STOP, Action.PAUSE, Action.STALL, Action.LATE})  # others need namespaces
    where = "as processes"
    # The host gets SIGTERM when we end, even if we are killed (prctl PR_SET_PDEATHSIG).
    program = (
        f"import ctypes, sys; ctypes.CDLL(None).prctl(1, 15, 0, 0, 0); sys.path.insert(0, sys.argv.pop(1)); {_TRAIN}"
    )
    has_own_ml = False  # until `check` has found that it is possible

    def __init__(self, job: LocalJob, environment: Mapping[str, str], gpus: int) -> None:
        super().__init__(job, environment, gpus)
        self._run = Path("/tmp/entrypoint-XXXXXXXX")  # until `ready` makes a folder
        self._ports_and_addresses: dict[str, str] = {}  # the settings of a run that has reserved them

    def check(self) -> None:
        super().check()
        named = self._inherited.get("PYTHONPATH", "").split(os.pathsep)
        places = [str(PACKAGE), sys.prefix, sys.base_prefix, str(self.job.output), *filter(None, named)]
        hidden = any(lies_in(Path(place), ML) for place in places) or read_below(self.job, ML)
        if not hidden and mounts.possible():
            self.has_own_ml = True
            self.program = self.program.replace(
                _TRAIN, f"from entrypoint.simulate import mounts; mounts.become_host(); {_TRAIN}"
            )

    def notes(self) -> list[str]:
        """Return a warning to print before the start, if the script would use this machine's /opt/ml."""
        found = [] if self.has_own_ml else named_ml(self.job.source / self.job.program)
        if not found:
            return []
        return [
            f"warning: {', '.join(found[:4])}, which is this machine's own folder here, and the same for all hosts; "
            "wanted SM_MODEL_DIR, SM_CHANNEL_... instead, root (then each host has its own), or --engine docker"
        ]

    def plan(self, whole: bool) -> str:
        """Render the plan as the hosts make it, each with its own folders."""
        with self._ports():
            plan = plan_for(self.read())
        first = self.job.names[0]

        def at_home(spec: ProcessSpec) -> ProcessSpec:
            """Replace the first host's folders in a process of the plan by those of its own host."""

            def moved(text: str) -> str:
                text = text.replace(str(self.folders[first].base), str(self.folders[spec.host].base))
                return text.replace(f"{self._run / first}/", f"{self._run / spec.host}/")

            env = tuple((name, moved(value)) for name, value in spec.env)
            return spec.but(argv=tuple(map(moved, spec.argv)), env=env)

        return render(replace(plan, processes=tuple(map(at_home, plan.processes))), whole=whole)

    @contextlib.contextmanager
    def ready(self) -> Iterator[None]:
        # In /tmp regardless of TMPDIR: the folder holds sockets, whose paths have at most 107 bytes.
        run = tempfile.TemporaryDirectory(prefix="entrypoint-", dir="/tmp", ignore_cleanup_errors=True)
        with self._ports(), run as name:
            self._run = Path(name)
            yield

    def command(self, folder: HostFolder) -> HostCommand:
        for path, part, _ in self.mounts(folder):
            (folder.base / part).symlink_to(path)
        if self.job.checkpoints:
            (folder.config / "checkpointconfig.json").write_text(
                json.dumps({"LocalPath": f"{folder.base}/checkpoints"})
            )
        return self.started(self._own(folder))

    def launcher_of(self, pid: int) -> int:
        return pid

    def _own(self, folder: HostFolder) -> dict[str, str]:
        """Return the environment variables that the launcher on this host reads."""
        return {
            **self.settings,
            **self._ports_and_addresses,
            "SAGEMAKER_BASE_DIR": str(folder.base),
            "ENTRYPOINT_RUN_DIR": str(self._run / folder.host),
            "ENTRYPOINT_SUMMARY": str(folder.summary),
        }

    def read(self, host: str = "") -> Job:
        folder = self.folders[host or self.job.names[0]]
        return read(self.job, folder.host, folder.base, self._own(folder), self.gpus)

    @contextlib.contextmanager
    def _ports(self) -> Iterator[None]:
        job = self.read()
        unmoved = ports_by_host(job, plan_for(job))
        step = stride(unmoved)
        with reserved([port + rank * step for rank, own in enumerate(unmoved) for port in own]) as base:
            where = addresses(self.job.names, job.settings.control_port + base, step)
            self._ports_and_addresses = {
                "ENTRYPOINT_HOST_ADDRESSES": json.dumps(where),
                "ENTRYPOINT_PORT_STRIDE": str(step),
                "ENTRYPOINT_PORT_BASE": str(base),
            }
            yield


def named_ml(program: Path) -> list[str]:
    """Return the places where a program and its neighbours name /opt/ml, except lines that read the environment."""
    found = []
    for path in sorted({program, *program.parent.glob("*.py")}):
        if path.is_file() and path.stat().st_size <= _LONGEST_BYTES:
            for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
                named = _ML.search(line)
                if named and not line.lstrip().startswith("#") and not _ASKS.search(line):
                    found.append(f"{path.name}:{number} names {named[0]}")
    return found


def ports_by_host(job: Job, plan: Plan) -> list[list[int]]:
    """Return the ports that each host of the plan listens on, hosts in rank order."""
    control = job.settings.control_port
    return [
        [host.port(control), *(port for spec in plan.on(host.name) for port in spec.ports)]
        for host in job.cluster.hosts
    ]


def stride(ports: Sequence[Sequence[int]]) -> int:
    """Return the least stride that keeps the ports of all hosts apart."""
    for wanted in range(1, 5001):
        moved = [port + rank * wanted for rank, own in enumerate(ports) for port in own]
        if len(set(moved)) == len(moved):
            return wanted
    raise ConfigError("too few free ports for so many processes on so many simulated hosts; wanted fewer")


@contextlib.contextmanager
def reserved(ports: Sequence[int]) -> Iterator[int]:
    """Yield a base with which all `ports` are free, and reserve them against other runs until the end.

    Low bases come first: by default, the kernel may give any port of the upper half to an outgoing connection.
    """
    allow_files(len(ports))
    for base in range(max(0, LOWEST - min(ports)), HIGHEST + 1 - max(ports), _STEP):
        with contextlib.ExitStack() as held:
            if all(_take(port + base, held) for port in ports):
                yield base
                return
    raise ConfigError(f"no {len(ports)} free ports between {LOWEST} and {HIGHEST}; are other local jobs running?")


def _take(port: int, held: contextlib.ExitStack) -> bool:
    """Reserve a port against other runs by an abstract socket, which ends with us; return whether the port is free."""
    name = held.enter_context(socket.socket(socket.AF_UNIX))
    probe = socket.socket()
    with probe, contextlib.suppress(OSError):
        name.bind(f"\0sagemaker-tf-entrypoint port {port}")
        probe.bind(("0.0.0.0", port))
        return True
    return False


def addresses(names: Sequence[str], control_port: int, stride: int) -> Mapping[str, str]:
    """Make each host's loopback address from its control port, since no other run on this machine has that port."""
    moved = {name: control_port + rank * stride for rank, name in enumerate(names)}
    return {name: f"127.{port >> 8}.{port & 255}.1" for name, port in moved.items()}
