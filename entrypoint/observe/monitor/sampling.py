"""Take one sample of this host: what it, its processes and their connections have used since the last sample."""

import time
from collections import Counter
from collections.abc import Collection, Mapping

from entrypoint.launcher.job.channels import InputMode
from entrypoint.launcher.job.job import Job, Mode
from entrypoint.observe.monitor.host_usage import HostUsage
from entrypoint.observe.monitor.process_usage import ProcessUsage, fifos_filled
from entrypoint.observe.monitor.threads import Threads, Work
from entrypoint.observe.monitor.traffic import Exchange, Moves
from entrypoint.record.lines import Sample


class Sampling:
    """Sample the host for the monitor's loop. All figures cover the time between two looks."""

    def __init__(self, job: Job) -> None:
        self._host = HostUsage(job.paths.base)
        self._processes = ProcessUsage()
        self._exchange = Exchange(job.cluster, (job.settings.control_port, job.settings.ssh_port))
        self._pipes = {
            name: str(job.paths.base / "input/data" / name)
            for name, channel in job.input_data_config.items()
            if str(channel.get("TrainingInputMode", "")) == InputMode.PIPE
        }
        self._threads: dict[str, Threads] = {}
        self._moves: Moves | None = None
        self._ranks = job.mode is Mode.MPI
        self._looked = time.monotonic()
        self._host.look()

    def look(self, running: Mapping[str, int], training: Collection[str], printed: Counter[str]) -> Sample:
        """Return what was used since the last look.

        `running`: {name: pid} of the plan's processes; `training`: the names of those that train; `printed`: bytes of
        output by process. The traffic of mpirun and its daemons, such as the ranks' output, is not training.
        """
        now = time.monotonic()
        seconds, self._looked = now - self._looked, now
        host, processes = self._host.look(), self._processes.look(running)
        families = self._processes.families
        pids = {pid for family in families.values() for pid in family}
        if filled := fifos_filled(self._pipes, pids):
            host["fifos"] = filled
        for name, count in printed.items():
            processes.setdefault(name, {})["output"] = count
        trainers = {pid for name in training for pid in families.get(name, ())}
        exchanged = self._exchange.look(trainers)
        if self._exchange.is_blind:
            host["unseen"] = True
        return Sample(seconds=round(seconds, 3), host=host, processes=processes, peers=exchanged)

    def look_closely(
        self, running: Mapping[str, int], used: Mapping[str, Mapping[str, float]]
    ) -> tuple[dict[str, Work], dict[str, float]]:
        """Return what the threads of these processes did since the last look, and the bytes that they moved.

        Call it after `look`: it reuses the process families found there, since finding them reads all of /proc.
        """
        families = {name: self._processes.families.get(name, []) for name in running}
        self._threads = {name: self._threads.get(name) or Threads() for name in running}
        work = {name: threads.look(families[name], self._ranks) for name, threads in self._threads.items()}
        self._moves = self._moves or Moves()
        return work, self._moves.look(families, used, self._exchange.addresses)

    def look_no_closer(self) -> None:
        """Reset all counters: what they hold does not count in the next silent period."""
        self._moves = None
        for threads in self._threads.values():
            threads.begin_anew()

    def waiting_threads(self, running: Mapping[str, int]) -> dict[str, int]:
        """Return {process: the thread recognised as Horovod's}."""
        return {name: self._threads[name].horovod for name in running if name in self._threads}
