"""Collect the first lines of a record: what the job is, what the host has, and the job's request."""

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from entrypoint.base.secrets import Secrets
from entrypoint.launcher.job.channels import InputMode
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.job.rules import in_words
from entrypoint.record.lines import Channel, Described, Host

SETTLED_SECONDS = 2.0  # seconds until the coordinator imports what makes the report
KEPT = ("ENTRYPOINT_", "SAGEMAKER_", "SM_", "TRAINING_JOB_")  # prefixes of the variables that describe a job
LONGEST_CHARS = 4096  # characters of a value; of a longer one nothing is kept
MOST_FILES, MOST_SECONDS = 20_000, 2.0  # limits for counting the files of one channel


def about(job: Job, began: float) -> Host:
    """Return the record's first line: the host, the job and its limits."""
    from entrypoint.launcher.host.machine import this_machine

    machine, cluster = this_machine(), job.cluster
    return Host(
        at=began,
        version=1,
        host=cluster.me.name,
        rank=cluster.me.rank,
        hosts=[host.name for host in cluster.hosts],
        coordinator=cluster.coordinator.name,
        job=job.name,
        mode=str(job.mode),
        instance_type=str(job.resource_config.get("current_instance_type", "")),
        cpus=machine.cpus,
        gpus=machine.gpus,
        interval=job.settings.monitor_interval,
        limits={"stop": job.settings.stop_grace},
        price=job.settings.price or None,
        rules=in_words(job.settings.rules) or None,
    )


def described(job: Job, environment: Mapping[str, str]) -> Described:
    """Return the values of SageMaker's three files and of the environment, secrets masked; long ones are left out."""
    given = {name: value for name, value in environment.items() if name.startswith(KEPT)}
    found = {
        "base": str(job.paths.base),
        "resourceconfig": job.resource_config,
        "inputdataconfig": job.input_data_config,
        "hyperparameters": {name: value for name, value in job.hyperparameters.items() if _is_short(value)},
        "environment": {name: value for name, value in given.items() if _is_short(value)},
        "open_mpi": job.open_mpi,
    }
    return Described(**Secrets(environment, job.hyperparameters).mask_all(found))


def _is_short(value: Any) -> bool:
    return len(value if isinstance(value, str) else json.dumps(value)) <= LONGEST_CHARS


def limits(job: Job) -> Host:
    """Return the bytes of memory that this host may use, and the size of the disk where models go."""
    import psutil

    from entrypoint.observe.monitor.host_usage import memory_limit

    return Host(memory_limit=memory_limit(), disk_size=psutil.disk_usage(str(job.paths.base)).total)


def channels(job: Job) -> dict[str, Channel]:
    """Return {channel: its mode and distribution, files and bytes}; "more" if not all were counted."""
    found: dict[str, Channel] = {}
    for name, told in job.input_data_config.items():
        mode = str(told.get("TrainingInputMode", ""))
        found[name] = {"mode": mode, "distribution": str(told.get("S3DistributionType", ""))}
        if mode != InputMode.PIPE:
            found[name].update(count_files(job.paths.base / "input/data" / name))
    return found


def count_files(folder: Path) -> Channel:
    """Return {"files", "bytes"} below a folder, with {"more": true} if counting stopped at a limit."""
    until, files, size = time.monotonic() + MOST_SECONDS, 0, 0
    for each in _sizes(folder):
        files += 1
        size += each
        if files >= MOST_FILES or time.monotonic() > until:
            return {"files": files, "bytes": size, "more": True}
    return {"files": files, "bytes": size}


def _sizes(folder: Path | str) -> Iterator[int]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file():
                    yield entry.stat().st_size
                elif entry.is_dir(follow_symlinks=False):
                    yield from _sizes(entry.path)
    except OSError:
        return


class Aside:
    """Do slow work in a thread: count the channels' files, and import the modules that make the report.

    `found`: facts on this host for its record; the caller removes what it has recorded.
    """

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
        with suppress(Exception):  # unknown facts are left out
            self.found.append(limits(self._job))
        with suppress(Exception):
            self.found.append(Host(channels=channels(self._job)))
        if self._job.cluster.is_coordinator and not self._over.wait(SETTLED_SECONDS):
            self._prepares.set()
            if not self._over.is_set():  # importing them takes as long as the report of a small job
                import entrypoint.observe.report.make
                import entrypoint.record.find  # noqa: F401
