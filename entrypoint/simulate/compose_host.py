"""Become one host of a job in a container of compose.yaml: write its /opt/ml, then exec `train`."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import psutil

from entrypoint.base.errors import ConfigError
from entrypoint.simulate.local_channels import ChannelMode
from entrypoint.simulate.spec import LocalJob
from entrypoint.simulate.tree import HostFolder, channels_in, check_size, shown, taken, write_tree


def count_hosts(text: str, most: int | None) -> int:
    """Return the number of hosts in `text`. Raise ConfigError if it is malformed, or larger than `most`."""
    wanted = f"a whole number from 1 to {most}, the number of hosts in compose.yaml" if most else "a whole number"
    if not re.fullmatch("[0-9]{1,4}", text) or not 1 <= int(text) <= (most or int(text)):
        raise ConfigError(f"the number of hosts (COMPOSE_PROFILES) is {text!r}; wanted {wanted}")
    return int(text)


def become_host(job: LocalJob, host: str, base: Path, environment: Mapping[str, str]) -> NoReturn:
    """Write the host's tree into `base`, in place of an earlier run's, and exec `train`.

    Raise ConfigError or CodeError if the job cannot be run; `base` is then unchanged.
    """
    if host not in job.names:
        raise ConfigError(
            f"this is {host}, and the job has {job.hosts} host(s), the last of which is {job.names[-1]}; "
            "wanted as many services as hosts (for a job on one host: docker compose up algo-1)"
        )
    for channel in job.channels:
        if channel.mode is ChannelMode.PIPE:
            raise ConfigError(
                f"--channel {channel.name} has mode Pipe, which docker compose does not support; "
                "wanted File or FastFile, or `entrypoint local --engine docker`"
            )
    job.check_files()
    check_size(job.source, channels_in(job))
    folder = HostFolder(host=host, root=base, base=base)
    mounts = [Path(each.mountpoint) for each in psutil.disk_partitions(all=True)]
    mounts = [mount for mount in mounts if base in mount.parents]  # not ours to remove
    with taken(base, f"{base} (OUTPUT in compose.yaml)", spared=mounts, replaces=True) as held:
        os.set_inheritable(held.file, True)  # until `train` ends
        write_tree(job, folder)
        for name, source in shown(job.channels, folder.parts):
            if source != folder.input_data / name:
                (folder.input_data / name).symlink_to(source, target_is_directory=True)
        variables = {**environment, "TRAINING_JOB_NAME": job.name, **dict(job.environment)}
        os.execvpe("train", ["train"], variables)
