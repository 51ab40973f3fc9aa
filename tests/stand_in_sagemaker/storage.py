"""Bring channels and checkpoints from S3 to hosts, and checkpoints, models and outputs from hosts to S3."""

import contextlib
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from entrypoint.launcher.job.channels import Distribution
from entrypoint.simulate.local_channels import ChannelMode, LocalChannel


def split(uri: str) -> tuple[str, str]:
    """Return the bucket and the key or prefix of s3://BUCKET/KEY."""
    parts = urlsplit(uri)
    return parts.netloc, parts.path.removeprefix("/")


def below(s3: Any, uri: str) -> list[str]:
    """Return the keys of the objects under a prefix, in S3's order; none if there is no such bucket."""
    bucket, prefix = split(uri)
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    try:
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]
    except s3.exceptions.NoSuchBucket:
        return []


def download(s3: Any, wanted: dict[str, Any], default_mode: str, folder: Path) -> LocalChannel:
    """Download an item of InputDataConfig into the folder. ClientError if S3 refuses."""
    source = wanted["DataSource"]["S3DataSource"]
    bucket, prefix = split(source["S3Uri"])
    for key in below(s3, source["S3Uri"]):
        path = folder / key.removeprefix(prefix).lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        s3.download_file(bucket, key, str(path))
    return LocalChannel(
        name=wanted["ChannelName"],
        source=folder,
        mode=ChannelMode(wanted.get("ChannelMode", default_mode)),
        distribution=Distribution(source.get("S3DataDistributionType", "FullyReplicated")),
    )


@dataclass(kw_only=True)
class Checkpoints:
    """The checkpoint folders of all hosts, and the one prefix in S3 that they share."""

    s3: Any
    uri: str
    folders: list[Path]
    sent: int = 0  # uploads so far
    _known: dict[Path, tuple[int, int]] = field(default_factory=dict)  # time and size of each file that is in S3

    def restore(self) -> None:
        """Download what the prefix holds into each host's folder."""
        bucket, prefix = split(self.uri)
        for folder in self.folders:
            folder.mkdir(parents=True, exist_ok=True)
            for key in below(self.s3, f"{self.uri}/"):
                path = folder / key.removeprefix(f"{prefix}/")
                path.parent.mkdir(parents=True, exist_ok=True)
                self.s3.download_file(bucket, key, str(path))
                self._known[path] = _state(path)

    def upload(self) -> None:
        """Upload what has changed in the hosts' folders."""
        bucket, prefix = split(self.uri)
        for folder in self.folders:
            for name, path in files(folder):
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile; the next round sees that
                    state = _state(path)
                    if self._known.get(path) != state:
                        self.s3.upload_file(str(path), bucket, f"{prefix}/{name}")
                        self._known[path] = state
                        self.sent += 1


def files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield (path in the folder, path) of the regular files below it."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield str(path.relative_to(folder)), path


def _state(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


def upload_archive(s3: Any, folders: list[Path], uri: str) -> None:
    """Upload the content of these folders of all hosts as one archive."""
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, path in {name: path for folder in folders for name, path in files(folder)}.items():
                archive.add(path, name)
        file.seek(0)
        s3.upload_fileobj(file, *split(uri))
