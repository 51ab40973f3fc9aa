"""Run hosts as processes: each is the launcher itself, with a folder, a loopback address and ports of its own."""

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.base.python310 import SAFE_PATH
from entrypoint.base.values import replace
from entrypoint.launcher.job.config import read_job
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.plan.plan import ProcessSpec
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.plan.render import render
from entrypoint.simulate import ports
from entrypoint.simulate.delivery import shown
from entrypoint.simulate.engine import Command, EngineName
from entrypoint.simulate.fault import Action, Fault
from entrypoint.simulate.local_python import PACKAGE, inherited, inject, missing, resume
from entrypoint.simulate.spec import LocalJob, settings_in
from entrypoint.simulate.tree import HostFolder, folders_of, write_config

# The host gets SIGTERM when we end, even if we are killed (prctl PR_SET_PDEATHSIG). The path is an argument, since the
# user's script would inherit PYTHONPATH.
_HOST = (
    "import ctypes, sys; ctypes.CDLL(None).prctl(1, 15, 0, 0, 0); sys.path.insert(0, sys.argv.pop(1)); "
    "from entrypoint.train import train; train()"
)


class ProcessEngine:
    """Run the hosts of a job with this Python, in the given environment."""

    name = EngineName.PROCESS
    faults = frozenset({Action.KILL, Action.STOP, Action.PAUSE, Action.STALL, Action.LATE})  # others need namespaces
    look_again = 0.05

    def __init__(self, job: LocalJob, environment: Mapping[str, str], gpus: int) -> None:
        self.job, self.gpus = job, gpus
        self._folders = folders_of(job)
        self._settings = {**settings_in(environment), **dict(job.environment)}
        self._inherited = inherited(environment)
        self._run = Path("/tmp/entrypoint-XXXXXXXX")  # until `ready` makes a folder
        self._base, self._stride, self._control_port = 0, 0, 0

    def check(self) -> None:
        job = self._read(self._folders[0])
        if lacks := missing(plan_for(job)):
            raise ConfigError(f"mode {job.mode} as processes lacks {', '.join(lacks)}; or use --engine docker")

    def plan(self, whole: bool) -> str:
        """Render the plan as the hosts make it, each with its own folders."""
        with self._ports():
            plan = plan_for(self._read(self._folders[0]))
        folders = {folder.host: self._folders_in_plan(folder) for folder in self._folders}
        ours = folders[self._folders[0].host]

        def at_home(spec: ProcessSpec) -> ProcessSpec:
            """Replace the first host's folders in a process of the plan by its own host's; nothing else differs."""

            def moved(text: str) -> str:
                for here, there in zip(ours, folders[spec.host], strict=True):
                    text = text.replace(here, there)
                return text

            env = tuple((name, moved(value)) for name, value in spec.env)
            return spec.but(argv=tuple(map(moved, spec.argv)), env=env)

        return render(replace(plan, processes=tuple(map(at_home, plan.processes))), whole=whole)

    def _folders_in_plan(self, folder: HostFolder) -> tuple[str, str]:
        return str(folder.base), f"{self._run / folder.host}/"

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
        return Command(
            argv=(sys.executable, *SAFE_PATH, "-c", _HOST, str(PACKAGE)),
            environment={
                **self._inherited,
                "PYTHONUNBUFFERED": "1",  # as in the image
                "TRAINING_JOB_NAME": self.job.name,
                **self._own(folder),
            },
        )

    def signal(self, running: Mapping[str, int], number: int) -> None:
        for pid in running.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def inject(self, fault: Fault, host: str, pid: int) -> bool:
        return inject(fault, pid)

    def heal(self, fault: Fault, host: str, pid: int | None) -> None:
        if pid is not None:
            resume(fault, pid)

    def _own(self, folder: HostFolder) -> dict[str, str]:
        """Return the environment variables that the launcher on this host reads."""
        where = ports.addresses(self.job.names, self._control_port + self._base, self._stride)
        return {
            **self._settings,
            "SAGEMAKER_BASE_DIR": str(folder.base),
            "ENTRYPOINT_RUN_DIR": str(self._run / folder.host),
            "ENTRYPOINT_SUMMARY": str(folder.summary),
            "ENTRYPOINT_HOST_ADDRESSES": json.dumps(where),
            "ENTRYPOINT_PORT_STRIDE": str(self._stride),
            "ENTRYPOINT_PORT_BASE": str(self._base),
        }

    def _read(self, folder: HostFolder) -> Job:
        """Return the job as that host will read it, from files that are removed again."""
        with tempfile.TemporaryDirectory() as config:
            write_config(self.job, folder.host, Path(config))
            own = self._own(folder)
            return read_job(folder.base, own, Path(), self.gpus, config=Path(config))

    @contextlib.contextmanager
    def _ports(self) -> Iterator[None]:
        self._base = self._stride = 0
        job = self._read(self._folders[0])
        self._control_port = job.settings.control_port
        unmoved = ports.ports_by_host(job, plan_for(job))
        self._stride = ports.stride(unmoved)
        wanted = [port + rank * self._stride for rank, own in enumerate(unmoved) for port in own]
        with ports.reserved(wanted) as self._base:
            yield
