"""Take one sample of this host: what it, its processes and their connections have used since the last sample."""

import time
from collections import Counter
from collections.abc import Collection, Mapping

from entrypoint.launcher.job.channels import InputMode
from entrypoint.launcher.job.job import Job
from entrypoint.observe.monitor.host_usage import HostUsage
from entrypoint.observe.monitor.process_usage import ProcessUsage, fifos_filled
from entrypoint.observe.monitor.traffic import Exchange
from entrypoint.record.lines import Sample


class Sampling:
    """Sample the host for the monitor's loop. All figures cover the time between two looks."""

    def __init__(self, job: Job) -> None:
        self._host = HostUsage(job.paths.base)
        self.processes = ProcessUsage()
        self.exchange = Exchange(job.cluster, (job.settings.control_port, job.settings.ssh_port))
        self._pipes = {
            name: str(job.paths.base / "input/data" / name)
            for name, channel in job.input_data_config.items()
            if str(channel.get("TrainingInputMode", "")) == InputMode.PIPE
        }
        self._looked = time.monotonic()
        self._host.look()

    def look(self, running: Mapping[str, int], training: Collection[str], printed: Counter[str]) -> Sample:
        """Return what was used since the last look.

        `running`: {name: pid} of the plan's processes; `training`: the names of those that train; `printed`: bytes of
        output by process. The traffic of mpirun and its daemons, such as the ranks' output, is not training.
        """
        now = time.monotonic()
        seconds, self._looked = now - self._looked, now
        host, processes = self._host.look(), self.processes.look(running)
        families = self.processes.families
        pids = {pid for family in families.values() for pid in family}
        if filled := fifos_filled(self._pipes, pids):
            host["fifos"] = filled
        for name, count in printed.items():
            processes.setdefault(name, {})["output"] = count
        trainers = {pid for name in training for pid in families.get(name, ())}
        exchanged = self.exchange.look(trainers)
        if self.exchange.is_blind:
            host["unseen"] = True
        return Sample(seconds=round(seconds, 3), host=host, processes=processes, peers=exchanged)
