"""Collect the first lines of a record: the job, the host's resources, and the job's request."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from entrypoint.base.secrets import Secrets
from entrypoint.launcher.job.channels import InputMode
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.job.rules import in_words
from entrypoint.record.lines import ChannelFacts, DescribedLine, HostLine

KEPT = ("ENTRYPOINT_", "SAGEMAKER_", "SM_", "TRAINING_JOB_")  # prefixes of the variables that describe a job
LONGEST_CHARS = 4096  # characters of a value; of a longer one nothing is kept
MOST_FILES, MOST_SECONDS = 20_000, 2.0  # limits for counting the files of one channel


def about(job: Job, began: float) -> HostLine:
    """Return the record's first line: the host, the job and its limits."""
    from entrypoint.launcher.host.machine import this_machine

    machine, cluster = this_machine(), job.cluster
    return HostLine(
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


def described(job: Job, environment: Mapping[str, str]) -> DescribedLine:
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
    return DescribedLine(**Secrets(environment, job.hyperparameters).mask_all(found))


def _is_short(value: Any) -> bool:
    return len(value if isinstance(value, str) else json.dumps(value)) <= LONGEST_CHARS


def channels(job: Job) -> dict[str, ChannelFacts]:
    """Return {channel: its mode and distribution, files and bytes}; "more" if not all were counted."""
    found: dict[str, ChannelFacts] = {}
    for channel in job.channels.all:
        facts: ChannelFacts = {"mode": str(channel.mode), "distribution": str(channel.distribution)}
        if channel.mode is not InputMode.PIPE:
            facts.update(count_files(job.paths.input_data / channel.name))
        found[channel.name] = facts
    return found


def count_files(folder: Path) -> ChannelFacts:
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


def find_out(job: Job, found: list[HostLine]) -> None:
    """Add lines to `found` for facts that take longer to read: limits, and the channels with their files."""
    from entrypoint.observe.monitor.sampling import memory_limit

    with suppress(Exception):  # unknown facts are left out
        disk = os.statvfs(job.paths.base)  # where models go
        found.append(HostLine(memory_limit=memory_limit(), disk_size=disk.f_blocks * disk.f_frsize))
    with suppress(Exception):
        found.append(HostLine(channels=channels(job)))
