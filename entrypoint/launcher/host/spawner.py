"""Start the processes of one host, each with its command, its environment and its part of the machine."""

import contextlib
import json
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from entrypoint.base.errors import ExitCode
from entrypoint.launcher.host import descendants, process, proxies
from entrypoint.launcher.host.fork import fork
from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.host.machine import this_machine
from entrypoint.launcher.job.channels import SHARDS
from entrypoint.launcher.job.job import MARKS, Job
from entrypoint.launcher.job.settings import of_programs
from entrypoint.launcher.plan.plan import ATTEMPT, PREPARE, Duty, Plan, ProcessSpec, Role
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.events import Event

# On the PYTHONPATH behind the user's code and before Debian's own sitecustomize. It reports to the monitor what is
# trained, keeps the action on SIGTERM, and then runs the sitecustomize that it hides.
LOOKS_ON = Path(__file__).resolve().parents[2] / "programs" / "on_path"


class Spawner:
    """Start processes; for the loop only."""

    def __init__(self, job: Job, plan: Plan, environment: Mapping[str, str], log: Log) -> None:
        self._job, self._plan, self._log, self._environment = job, plan, log, of_programs(environment)
        self._machine = this_machine()
        self._prepared: Mapping[str, Any] | None = None  # the result of the prepare step
        self._flags: Collection[str] = ()  # of it
        self.attempt: int | None = None  # the one whose ranks may start now, if any

    def start(self, spec: ProcessSpec, restarted: int) -> process.Process:
        """Start a process. Raise OSError or ValueError if it cannot be started."""
        env = self._environment_of(spec, restarted)
        if spec.name == PREPARE:
            with contextlib.suppress(OSError, ValueError):  # it is tried again below, which may report the error
                return fork(spec, env, self._log)
        return process.spawn(spec, self._command(spec), env, self._log)

    def note_prepared(self, found: Mapping[str, Any]) -> None:
        self._prepared, self._flags = found, found["flags"]

    def note_addresses(self, found: Iterable[str]) -> None:
        """Note the addresses at which other hosts were reached. Programs that start later use no proxy for them."""
        if self._job.settings.no_proxy == "hosts" and proxies.proxies_in(self._environment):
            self._environment.update(proxies.spared(self._environment, proxies.addresses_with(found)))

    def order(self, rank: int, attempt: int, cpus: int | None, place: tuple[int, ...]) -> dict[str, Any]:
        """Return the order for a rank that mpirun has started on this host: its command, environment and folder."""
        if attempt != self.attempt:
            return {"refused": f"attempt {attempt} is over"}
        if self._prepared is None:
            return {"refused": f"{self._job.cluster.me.name} has not prepared the user's code"}
        ranks = {spec.name: spec for spec in self._plan.processes if spec.duty is Duty.RANK}
        spec = ranks.get(f"rank {rank}") or next(iter(ranks.values()))
        if place:  # the ranks that are here divide the host
            *_, among, index = place
            gpu_share = spec.gpu_share and (index, among)
            spec = spec.but(name=f"rank {rank}", cpu_share=spec.cpu_share and among, gpu_share=gpu_share)
        env = self._environment_of(spec, attempt, cpus, place)
        return {"argv": self._command(spec), "env": env, "cwd": str(spec.cwd)}

    def log_parts(self) -> None:
        """Log the numbers of threads and the GPUs of our processes; log nothing if none are set."""
        parts: dict[str, list[str]] = {}
        for spec in self._plan.on(self._job.cluster.me.name):
            if part := self._machine.part_of(spec, self._environment):
                parts.setdefault(" ".join(f"{key}={value}" for key, value in part.items()), []).append(spec.name)
        for variables, names in parts.items():
            who = names[0] if len(names) == 1 else f"each of {len(names)} processes"
            self._log.print(f"{self._machine}; {who}: {variables}")

    def taken_port(self) -> Event | None:
        """Return an event if a port of this host's processes is taken by another program."""
        for spec in self._plan.on(self._job.cluster.me.name):
            for port in filter(process.listening, spec.ports):
                why = f"{spec.name} needs it, but another program of this host listens there; stop that program"
                return events.Broken(what=f"port {port} is taken", why=why, code=ExitCode.CONFIG)
        return None

    def _command(self, spec: ProcessSpec) -> tuple[str, ...]:
        """Return the plan's command. If the user's code is a package, put its module in place of the file."""
        module = self._prepared and self._prepared["module"]
        return spec.program.argv(module) if spec.program and module else spec.argv

    def _environment_of(
        self, spec: ProcessSpec, restarted: int, cpus: int | None = None, place: tuple[int, ...] = ()
    ) -> dict[str, str]:
        count = {ATTEMPT: str(restarted), descendants.MARK: spec.name}
        if self._job.settings.monitor:
            count[MARKS] = str(self._job.paths.marks)
        stalls = _stall_settings(self._job.settings.hang_after) if spec.duty is Duty.RANK else {}
        defaults = {**stalls, **dict(spec.env_defaults)}
        given = {**defaults, **self._environment, **(self._prepared["env"] if spec.program and self._prepared else {})}
        in_cluster = len(self._job.cluster.training) > 1 or spec.role in (Role.RANK, Role.WORKER)
        if spec.program and in_cluster:
            code, *rest = given.get("PYTHONPATH", "").split(os.pathsep)
            count["PYTHONPATH"] = os.pathsep.join([*filter(None, [code]), str(LOOKS_ON), *rest])
        part = self._machine.part_of(spec, given, cpus)
        return {**given, **part, **count, **self._shards(spec, place), **spec.environment(self._flags)}

    def _shards(self, spec: ProcessSpec, place: tuple[int, ...]) -> dict[str, str]:
        """Return ENTRYPOINT_SHARDS. The user's options for mpirun may have moved a rank, so its true place counts."""
        reader = spec.reader_with(self._flags)
        if reader and place:
            reader = reader.at(self._job.cluster.me.rank, *place)
        return {SHARDS: json.dumps(self._plan.channels.shards(reader))} if spec.reads else {}


def _stall_settings(hang_after: float) -> dict[str, str]:
    """Return Horovod's variable for reporting stalls before we call the job hung; its own default is 60 s.

    Horovod checks as often as tensors must wait to count as stalled, so it reports after twice that time at the latest.
    """
    before = int(hang_after / 3)
    return {"HOROVOD_STALL_CHECK_TIME_SECONDS": str(max(1, before))} if hang_after and before < 60 else {}
