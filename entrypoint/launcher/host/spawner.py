"""Starts the processes of one host: each with its command, its environment and its part of the machine."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from entrypoint.base.errors import ExitCode
from entrypoint.launcher.host import descendants, process, proxies
from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.host.machine import this_machine
from entrypoint.launcher.job.channels import SHARDS
from entrypoint.launcher.job.job import MARKS, Job
from entrypoint.launcher.plan.plan import ATTEMPT, Duty, ProcessSpec
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.events import Event
from entrypoint.launcher.policy.facts import Facts

# After the user's code, and before a sitecustomize of Debian's, a Python of the training finds what looks on: it tells
# the monitor what is trained, and runs the sitecustomize that would have come without it.
LOOKS_ON = Path(__file__).resolve().parents[2] / "programs" / "on_path"


class Spawner:
    """Belongs to the loop, like the facts that it reads."""

    def __init__(
        self, job: Job, facts: Facts, environment: Mapping[str, str], log: Log, begun: Mapping[str, process.Process]
    ) -> None:
        self._job, self._facts, self._log = job, facts, log
        self._environment, self._begun = dict(environment), dict(begun)  # begun: started already, and not watched yet
        self._machine = this_machine()
        self._prepared: Mapping[str, Any] | None = None  # what the prepare step left

    def start(self, spec: ProcessSpec) -> process.Process:
        """Start it, or take over what was begun; OSError or ValueError if it cannot be started."""
        begun = self._begun.pop(spec.name, None)
        return begun or process.spawn(spec, self._command(spec), self._environment_of(spec), self._log)

    def note_prepared(self, found: Mapping[str, Any]) -> None:
        self._prepared = found

    def note_addresses(self, found: Iterable[str]) -> None:
        """Note where the other hosts were reached: what starts from now on asks no proxy for these addresses."""
        if self._job.settings.no_proxy == "hosts" and proxies.proxies_in(self._environment):
            self._environment.update(proxies.spared(self._environment, proxies.addresses_with(found)))

    def order(self, rank: int, attempt: int, cpus: int | None, place: tuple[int, ...]) -> dict[str, Any]:
        """Return what a rank that mpirun has started on this host is to run, as `ranks.Order` says."""
        facts = self._facts
        if attempt != facts.attempt.number or facts.attempt.clearing:
            return {"refused": f"attempt {attempt} is over"}
        if self._prepared is None:
            return {"refused": f"{facts.host} has not prepared the user's code"}
        ranks = {spec.name: spec for spec in facts.plan.processes if spec.duty is Duty.RANK}
        spec = ranks.get(f"rank {rank}") or next(iter(ranks.values()))
        if place:  # what it divides the host with are the ranks that are here
            *_, among, index = place
            gpu_share = spec.gpu_share and (index, among)
            spec = spec.but(name=f"rank {rank}", cpu_share=spec.cpu_share and among, gpu_share=gpu_share)
        return {"argv": self._command(spec), "env": self._environment_of(spec, cpus, place), "cwd": str(spec.cwd)}

    def say_parts(self) -> None:
        """Say which threads and GPUs our processes are told to use; nothing, where they are told nothing."""
        parts: dict[str, list[str]] = {}
        for name, spec in self._facts.own.specs.items():
            if part := self._machine.part_of(spec, self._environment):
                parts.setdefault(" ".join(f"{key}={value}" for key, value in part.items()), []).append(name)
        for variables, names in parts.items():
            who = names[0] if len(names) == 1 else f"each of {len(names)} processes"
            self._log.say(f"{self._machine}; {who}: {variables}")

    def ports_taken(self) -> list[Event]:
        """Return the first port that a process of this host is to listen on, and something else does."""
        for spec in self._facts.own.specs.values():
            for port in filter(process.listening, spec.ports):
                why = f"{spec.name} is to listen there, and something else on this host does already; end that"
                return [events.Broken(what=f"port {port} is taken", why=why, code=ExitCode.CONFIG)]
        return []

    def _command(self, spec: ProcessSpec) -> tuple[str, ...]:
        """Return the plan's; where the user's code turned out to be a package, its module in place of its file."""
        module = self._prepared and self._prepared["module"]
        return spec.program.argv(module) if spec.program and module else spec.argv

    def _environment_of(
        self, spec: ProcessSpec, cpus: int | None = None, place: tuple[int, ...] = ()
    ) -> dict[str, str]:
        flags = self._facts.flags or ()
        count = {ATTEMPT: str(self._facts.times_restarted(spec.name)), descendants.MARK: spec.name}
        if self._job.settings.monitor:
            count[MARKS] = str(self._job.paths.marks)
        stalls = _stall_settings(self._job.settings.hang_after) if spec.duty is Duty.RANK else {}
        given = {**stalls, **self._environment, **(self._prepared["env"] if spec.program and self._prepared else {})}
        several = len(self._job.cluster.training) > 1 or spec.duty is Duty.RANK
        if spec.program and self._job.settings.monitor and several:
            code, *rest = given.get("PYTHONPATH", "").split(os.pathsep)
            count["PYTHONPATH"] = os.pathsep.join([*filter(None, [code]), str(LOOKS_ON), *rest])
        part = self._machine.part_of(spec, given, cpus)
        return {**given, **part, **count, **self._shards(spec, place), **spec.environment(flags)}

    def _shards(self, spec: ProcessSpec, place: tuple[int, ...]) -> dict[str, str]:
        """Return what it is to read; a rank in its true place, which the user's options for mpirun may have moved."""
        reader = spec.reader_with(self._facts.flags or ())
        if reader and place:
            reader = reader.at(self._job.cluster.me.rank, *place)
        return {SHARDS: json.dumps(self._facts.plan.channels.shards(reader))} if spec.reads else {}


def _stall_settings(hang_after: float) -> dict[str, str]:
    """Return Horovod's variable by which it has said whom it misses when we call the job hung; else its own 60 s do.

    Horovod looks so often for tensors that have waited so long, and so says it after twice that time at the latest.
    """
    before = int(hang_after / 3)
    return {"HOROVOD_STALL_CHECK_TIME_SECONDS": str(max(1, before))} if hang_after and before < 60 else {}
