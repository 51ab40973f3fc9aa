"""Write each host's folder: the tree that SageMaker mounts, its part of the channels, and beside it the host's log."""

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from entrypoint.base.errors import CodeError, ConfigError
from entrypoint.launcher.job.config import read_job
from entrypoint.launcher.job.job import Below, Job, Tree
from entrypoint.simulate.local_channels import ChannelMode, LocalChannel, lies_in
from entrypoint.simulate.spec import LocalJob

MARKER = ".entrypoint-local"  # marks an output folder as ours, and (by a lock) as used by a running job
MOST_CODE_BYTES = 1 << 30  # bytes
MOST_DEPTH = 100  # folders in one another, as on a host
_BUCKET = "s3://local"  # stands for the bucket in lists of objects
# Folders without code, by name and by contents: our output, virtual environments, those of conda, caches.
_NOT_CODE = ["__pycache__", ".git", ".hg", ".ipynb_checkpoints", ".nox", ".svn", ".tox", ".venv", "node_modules"]
_TELLS = (MARKER, "pyvenv.cfg", "conda-meta", "CACHEDIR.TAG")


class HostFolder(Tree):
    """Describe where one host's files lie on this machine; the host sees `base` as /opt/ml."""

    host: str
    root: Path

    log = Below("root", "log.txt")
    summary = Below("output", "summary.json")

    @property
    def parts(self) -> Path:
        """Return the folder with this host's part of channels that differ between hosts.

        Where no engine mounts them (`root` is `base`, in a container of compose.yaml), it is input/data itself.
        """
        return self.input_data if self.root == self.base else self.root / "channels"


def folders_of(job: LocalJob) -> list[HostFolder]:
    """Return the folder of each host, in rank order."""
    return [HostFolder(host=name, root=job.output / name, base=job.output / name / "ml") for name in job.names]


def write_config(job: LocalJob, host: str, config: Path) -> None:
    config.mkdir(parents=True, exist_ok=True)
    for name, content in job.config_files(host).items():
        (config / name).write_text(json.dumps(content))


def read(job: LocalJob, host: str, base: Path, environment: Mapping[str, str], gpus: int = 0) -> Job:
    """Return the job as a host's launcher reads it, by config files that are removed again."""
    with tempfile.TemporaryDirectory() as config:
        write_config(job, host, Path(config))
        return read_job(base, environment, Path("/run/entrypoint"), gpus, config=Path(config))


def write_tree(job: LocalJob, folder: HostFolder) -> None:
    """Write the files that a host finds at its start. The engine adds the folders of channels."""
    for path in (folder.model, folder.data, folder.input_data):
        path.mkdir(parents=True)
    write_config(job, folder.host, folder.config)
    deliver(job.channels, folder.input_data, folder.parts, job.names.index(folder.host), job.hosts)
    try:
        shutil.copytree(job.source, folder.code, ignore=partial(_not_code, channels_in(job)))
    except (OSError, shutil.Error) as error:
        raise CodeError(f"the code folder {job.source} cannot be copied: {error}") from None


def shown(channels: Sequence[LocalChannel], parts: Path) -> list[tuple[str, Path]]:
    """Return (channel, folder that the host must see as input/data/CHANNEL); a channel in Pipe mode has none."""
    files = [channel for channel in channels if channel.mode is not ChannelMode.PIPE]
    return [(channel.name, channel.source if channel.is_whole else parts / channel.name) for channel in files]


def deliver(channels: Sequence[LocalChannel], data: Path, parts: Path, rank: int, hosts: int) -> None:
    """Make the folders of `shown`, and the lists `CHANNEL-manifest` in `data`, the host's input/data."""
    for channel in channels:
        if not channel.attributes:
            # The prefix, then each object of this host.
            keys = [f"{_BUCKET}/{channel.name}/{entry.key}" for entry in channel.of_host(rank, hosts)]
            listed = "\n".join([channel.name, *keys, ""])
            (data / f"{channel.name}-manifest").write_text(listed, "utf-8", "surrogateescape")
        if channel.mode is not ChannelMode.PIPE and not channel.is_whole:
            _make_part(channel, parts / channel.name, rank, hosts)


def _make_part(channel: LocalChannel, folder: Path, rank: int, hosts: int) -> None:
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


def channels_in(job: LocalJob) -> frozenset[Path]:
    """Return the channels' folders inside the code folder. They are not copied as code."""
    return frozenset(channel.source for channel in job.channels if job.source in channel.source.parents)


def check_size(source: Path, channels: frozenset[Path] = frozenset()) -> None:
    """Raise CodeError if the code folder is too large, for example if the script lies in /tmp or a home folder."""
    size = 0
    for path, folders, files in os.walk(source):
        if len(Path(path).parts) > len(source.parts) + MOST_DEPTH:
            raise CodeError(f"the code folder {source} has more than {MOST_DEPTH} folders in one another; wanted fewer")
        left_out = _not_code(channels, path, [*folders, *files])
        folders[:] = [name for name in folders if name not in left_out]
        size += sum((Path(path) / name).stat().st_size for name in files if name not in left_out)
        if size > MOST_CODE_BYTES:
            raise CodeError(
                f"the code folder {source} holds more than {MOST_CODE_BYTES >> 20} MB, to be copied for each host; "
                "wanted the program in a folder of its own, or --source FOLDER with its code alone"
            )


def _not_code(channels: frozenset[Path], folder: str, names: list[str]) -> set[str]:
    """Return the names not to copy: channels, version control, caches, our output, sockets, pipes, circular links."""
    left_out = set()
    for name in names:
        path = Path(folder) / name
        if path.is_dir():
            skip = name in _NOT_CODE or path in channels or any((path / tell).exists() for tell in _TELLS)
            # With compose.yaml, other hosts write their trees here while we copy.
            skip = skip or (name.startswith("algo-") and (path / "ml").is_dir())
            skip = skip or (path.is_symlink() and path.parent.resolve().is_relative_to(path.resolve()))  # a circle
        else:
            skip = not path.is_file()
        if skip:
            left_out.add(name)
    return left_out


@dataclass
class Taken:
    """Hold an output folder by an open file. Its holder sets `has_run` when hosts start: their logs and models stay."""

    file: int
    has_run: bool = False


@contextlib.contextmanager
def taken(
    path: Path, what: str, reads: Sequence[Path] = (), spared: Sequence[Path] = (), replaces: bool = False
) -> Iterator[Taken]:
    """Make a folder, empty and marked as ours, and hold it until the end. If the job is refused, empty it again.

    Raise ConfigError, which begins with `what`, if another run holds it, or if it has files,
    among them `reads`: what the job reads. With `replaces`, an earlier run's files are removed, but for `spared`:
    mounts below the folder, which are not ours to remove.
    """
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{what} is not a folder")
    if _left(path) and not (path / MARKER).exists() and not spared:
        raise ConfigError(f"{what} is not empty (it has {_left(path)[0].name}); wanted a new or an empty folder")
    if reads:
        raise ConfigError(f"{what} holds {reads[0]}, which the job reads; wanted another folder")
    try:
        path.mkdir(parents=True, exist_ok=True)
        marker = (path / MARKER).open("w")
    except OSError as error:
        raise ConfigError(f"{what} cannot be written: {error}") from None
    with marker:
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{what} is in use by another run; wanted a folder of its own") from None
        if not replaces and (left := _left(path)):
            raise ConfigError(f"{what} has {left[0].name} of an earlier job; wanted a new or an empty folder")
        try:
            _empty(path, spared)
        except OSError as error:  # for example, files that containers wrote as root
            raise ConfigError(f"{what} cannot be replaced: {error}; remove it, or name another") from None
        try:
            yield (held := Taken(marker.fileno()))
        except (CodeError, ConfigError):
            if not held.has_run:  # the next attempt may have this folder
                with contextlib.suppress(OSError):
                    _empty(path, spared)
            raise


def _left(path: Path) -> list[Path]:
    """Return the files in a folder, without our mark."""
    return sorted(entry for entry in path.iterdir() if entry.name != MARKER) if path.exists() else []


def _empty(path: Path, spared: Sequence[Path]) -> None:
    for entry in _left(path):
        _remove(entry, spared)


def _remove(path: Path, spared: Sequence[Path]) -> None:
    if path in spared:
        return
    if any(path in mount.parents for mount in spared):
        for entry in path.iterdir():
            _remove(entry, spared)
    elif path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def read_below(job: LocalJob, path: Path) -> list[Path]:
    """Return the paths that a job reads and that are this folder, or lie in it."""
    folders = [job.source, *([job.checkpoints] if job.checkpoints else [])]
    found = [folder for folder in folders if lies_in(folder, path)]
    return found + [channel.source for channel in job.channels if channel.reads(path)]
