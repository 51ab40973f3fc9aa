"""Run slow jobs in threads and put their results into the loop's queue as events."""

import threading
from collections.abc import Callable, Sequence

from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.host.resource_limits import broken
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.events import Event


class Errands:
    """Start threads for slow jobs. It holds only what never changes, so that its threads may read it."""

    def __init__(self, job: Job, log: Log, put: Callable[[Event], None]) -> None:
        self._job, self._log, self._put = job, log, put

    def probe(self, hosts: Sequence[str]) -> None:
        try:
            threading.Thread(target=self._probe, args=(hosts,), name="probe", daemon=True).start()
        except RuntimeError as error:
            self._put(broken(error))

    def _probe(self, hosts: Sequence[str]) -> None:
        try:
            from entrypoint.launcher.control import probe

            found = probe.look_for(self._job.cluster, hosts, self._job.settings.control_port)
        except Exception as error:  # the policy waits for an answer, so every failure becomes one
            found = tuple(events.Reach(host=host, why=f"{type(error).__name__}: {error}") for host in hosts)
        self._put(events.Probed(found=found))

    def take_inventory(self) -> None:
        try:
            threading.Thread(target=self._take_inventory, name="inventory", daemon=True).start()
        except RuntimeError:  # no thread is left; the job does not fail because of that
            self._put(events.Inventoried(artifacts=None))

    def _take_inventory(self) -> None:
        from entrypoint.launcher.host import inventory

        found = None
        try:
            found = inventory.take(self._job.paths, len(self._job.cluster.hosts))
        except Exception as error:  # the job has succeeded; this failure must not change that
            self._log.print(f"cannot see what is in {self._job.paths.model}: {type(error).__name__}: {error}")
        self._put(events.Inventoried(artifacts=found))
