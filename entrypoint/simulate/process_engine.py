"""Run hosts as processes: each is the launcher itself, with a folder, a loopback address and ports of its own."""

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from entrypoint.base.values import replace
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.plan.plan import ProcessSpec
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.plan.render import render
from entrypoint.simulate import ports
from entrypoint.simulate.delivery import shown
from entrypoint.simulate.engine import Command, EngineName
from entrypoint.simulate.fault import Action
from entrypoint.simulate.local_python import PythonEngine
from entrypoint.simulate.spec import LocalJob
from entrypoint.simulate.tree import HostFolder, read


class ProcessEngine(PythonEngine):
    """Run each host as a process that is its launcher."""

    name = EngineName.PROCESS
    faults = frozenset({Action.KILL, Action.STOP, Action.PAUSE, Action.STALL, Action.LATE})  # others need namespaces
    where = "as processes"
    # The host gets SIGTERM when we end, even if we are killed (prctl PR_SET_PDEATHSIG).
    program = (
        "import ctypes, sys; ctypes.CDLL(None).prctl(1, 15, 0, 0, 0); sys.path.insert(0, sys.argv.pop(1)); "
        "from entrypoint.train import train; train()"
    )

    def __init__(self, job: LocalJob, environment: Mapping[str, str], gpus: int) -> None:
        super().__init__(job, environment, gpus)
        self._run = Path("/tmp/entrypoint-XXXXXXXX")  # until `ready` makes a folder
        self._base, self._stride, self._control_port = 0, 0, 0

    def plan(self, whole: bool) -> str:
        """Render the plan as the hosts make it, each with its own folders."""
        with self._ports():
            plan = plan_for(self.read())
        folders = {host: (str(folder.base), f"{self._run / host}/") for host, folder in self.folders.items()}
        ours = folders[self.job.names[0]]

        def at_home(spec: ProcessSpec) -> ProcessSpec:
            """Replace the first host's folders in a process of the plan by its own host's; nothing else differs."""

            def moved(text: str) -> str:
                for here, there in zip(ours, folders[spec.host], strict=True):
                    text = text.replace(here, there)
                return text

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

    def command(self, folder: HostFolder) -> Command:
        for name, path in shown(self.job.channels, folder.parts):
            (folder.input_data / name).symlink_to(path)
        if self.job.checkpoints:
            (folder.base / "checkpoints").symlink_to(self.job.checkpoints)
            (folder.config / "checkpointconfig.json").write_text(
                json.dumps({"LocalPath": f"{folder.base}/checkpoints"})
            )
        return self.started(self._own(folder))

    def launcher_of(self, pid: int) -> int:
        return pid

    def _own(self, folder: HostFolder) -> dict[str, str]:
        """Return the environment variables that the launcher on this host reads."""
        where = ports.addresses(self.job.names, self._control_port + self._base, self._stride)
        return {
            **self.settings,
            "SAGEMAKER_BASE_DIR": str(folder.base),
            "ENTRYPOINT_RUN_DIR": str(self._run / folder.host),
            "ENTRYPOINT_SUMMARY": str(folder.summary),
            "ENTRYPOINT_HOST_ADDRESSES": json.dumps(where),
            "ENTRYPOINT_PORT_STRIDE": str(self._stride),
            "ENTRYPOINT_PORT_BASE": str(self._base),
        }

    def read(self, host: str = "") -> Job:
        folder = self.folders[host or self.job.names[0]]
        return read(self.job, folder.host, folder.base, self._own(folder), self.gpus)

    @contextlib.contextmanager
    def _ports(self) -> Iterator[None]:
        self._base = self._stride = 0
        job = self.read()
        self._control_port = job.settings.control_port
        unmoved = ports.ports_by_host(job, plan_for(job))
        self._stride = ports.stride(unmoved)
        wanted = [port + rank * self._stride for rank, own in enumerate(unmoved) for port in own]
        with ports.reserved(wanted) as self._base:
            yield
