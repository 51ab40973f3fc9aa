"""Collect the record's `host` lines: what the job is, and what the host has."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from entrypoint.launcher.job.channels import InputMode
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.job.rules import in_words
from entrypoint.record.lines import Host

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


def limits(job: Job) -> Host:
    """Return the bytes of memory that this host may use, and the size of the disk where models go."""
    import psutil

    from entrypoint.observe.monitor.host_usage import memory_limit

    return Host(memory_limit=memory_limit(), disk_size=psutil.disk_usage(str(job.paths.base)).total)


def channels(job: Job) -> dict[str, dict[str, Any]]:
    """Return {channel: its mode and distribution, files and bytes}; "more" if not all were counted."""
    found: dict[str, dict[str, Any]] = {}
    for name, told in job.input_data_config.items():
        mode = str(told.get("TrainingInputMode", ""))
        found[name] = {"mode": mode, "distribution": str(told.get("S3DistributionType", ""))}
        if mode != InputMode.PIPE:
            found[name] |= count_files(job.paths.base / "input/data" / name)
    return found


def count_files(folder: Path) -> dict[str, Any]:
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
