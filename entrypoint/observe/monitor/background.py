"""Do slow work in a thread: count the channels' files, and import the modules that make the report."""

import threading
from contextlib import suppress

from entrypoint.launcher.job.job import Job
from entrypoint.record.lines import Host

SETTLED_SECONDS = 0.5  # seconds until the coordinator imports what makes the report


class Aside:
    """Run the thread. `found`: facts on this host for its record; the caller removes what it has recorded."""

    def __init__(self, job: Job) -> None:
        self.found: list[Host] = []
        self._job = job
        self._over, self._prepares = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="aside", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait for a running import: in a forked process, its lock would never be released."""
        self._over.set()
        if self._prepares.is_set():
            self._thread.join()

    def _run(self) -> None:
        from entrypoint.observe.monitor.record_header import channels, limits

        with suppress(Exception):  # unknown facts are left out
            self.found.append(limits(self._job))
        with suppress(Exception):
            self.found.append(Host(channels=channels(self._job)))
        if self._job.cluster.is_coordinator and not self._over.wait(SETTLED_SECONDS):
            self._prepares.set()
            if not self._over.is_set():  # importing them takes as long as the report of a small job
                import entrypoint.observe.report.make
                import entrypoint.record.find  # noqa: F401
