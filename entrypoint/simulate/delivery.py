"""Lay out channels for one host: the folder of each, and beside it the list of its objects."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.simulate.channels import Channel, InputMode

_BUCKET = "s3://local"  # stands for the bucket in lists of objects


def shown(channels: Sequence[Channel], parts: Path) -> list[tuple[str, Path]]:
    """Return (channel, folder that the host must see as input/data/CHANNEL); a channel in Pipe mode has none."""
    files = [channel for channel in channels if channel.mode is not InputMode.PIPE]
    return [(channel.name, channel.source if channel.is_whole else parts / channel.name) for channel in files]


def deliver(channels: Sequence[Channel], data: Path, parts: Path, rank: int, hosts: int) -> None:
    """Make the folders of `shown`, and the lists `CHANNEL-manifest` in `data`, the host's input/data."""
    for channel in channels:
        if not channel.attributes:
            # The prefix, then each object of this host.
            keys = [f"{_BUCKET}/{channel.name}/{entry.key}" for entry in channel.of_host(rank, hosts)]
            listed = "\n".join([channel.name, *keys, ""])
            (data / f"{channel.name}-manifest").write_text(listed, "utf-8", "surrogateescape")
        if channel.mode is not InputMode.PIPE and not channel.is_whole:
            _make_part(channel, parts / channel.name, rank, hosts)


def _make_part(channel: Channel, folder: Path, rank: int, hosts: int) -> None:
    """Make a folder with the objects of one host: as hard links if possible, else as copies."""
    folder.mkdir(parents=True)
    for entry in channel.of_host(rank, hosts):
        target = folder / entry.key
        if ".." in target.parts or folder not in target.parents:
            raise ConfigError(f"--channel {channel.name}: key {entry.key!r} leads out of the channel's folder")
        if target.exists():  # a manifest may name an object twice; SageMaker copies it once
            continue
        for source in (part for part in entry.parts if isinstance(part, Path)):
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(os.path.realpath(source), target)
                except OSError:  # another file system, or another user's file
                    shutil.copy2(source, target)
            except OSError as error:
                raise ConfigError(f"--channel {channel.name}: {source} cannot be copied: {error}") from None
