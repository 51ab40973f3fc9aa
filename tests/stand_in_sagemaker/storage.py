"""Bring channels and checkpoints from S3 to hosts, and checkpoints, models and outputs from hosts to S3."""

import contextlib
import json
import random
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from entrypoint.launcher.job.channels import Distribution, Wrapper
from entrypoint.simulate.channels import Channel, Compression, Entry, InputMode


def split(uri: str) -> tuple[str, str]:
    """Return the bucket and the key or prefix of s3://BUCKET/KEY."""
    parts = urlsplit(uri)
    return parts.netloc, parts.path.removeprefix("/")


def below(s3: Any, uri: str) -> list[str]:
    """Return the keys of the objects under a prefix, in S3's order; none if there is no such bucket."""
    bucket, prefix = split(uri)
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    try:
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
    except s3.exceptions.NoSuchBucket:
        return []
    return [key for key in keys if not key.endswith("/")]  # what consoles make for a folder


# --- channels ---


@dataclass(frozen=True, kw_only=True)
class FromS3(Channel):
    """A channel whose objects have been downloaded. `uris`: where the object of each key came from."""

    objects: tuple[Entry, ...]
    uris: dict[str, str]
    prefix: str
    content_type: str = ""
    groups: tuple[str, ...] = ()  # the instance groups that get it; none: all

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Return all objects: S3 hides none."""
        return self.objects

    def described(self) -> dict[str, str]:
        more = {"ContentType": self.content_type} if self.content_type else {}
        return {**super().described(), **more}

    def manifest(self, rank: int, hosts: int) -> str:
        """Return the content of CHANNEL-manifest on a host."""
        return "\n".join([self.prefix, *(self.uris[entry.key] for entry in self.of_host(rank, hosts)), ""])


def download(s3: Any, wanted: dict[str, Any], default_mode: str, folder: Path) -> FromS3:
    """Download an item of InputDataConfig into the folder. ClientError if S3 refuses."""
    source = wanted["DataSource"]["S3DataSource"]
    mode = InputMode(wanted.get("InputMode", default_mode))
    seed = wanted.get("ShuffleConfig", {}).get("Seed")
    uris: dict[str, str] = {}

    def fetched(uri: str, name: str) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        s3.download_file(*split(uri), str(path))
        uris[name] = uri
        return path

    prefix, objects = source["S3Uri"], []
    bucket, start = split(prefix)
    if source["S3DataType"] == "S3Prefix":
        for key in below(s3, prefix):
            inside = not start or start.endswith("/") or key.startswith(f"{start}/")
            base = start.rstrip("/") if inside else start.rpartition("/")[0]
            name = key.removeprefix(base).removeprefix("/")
            objects.append(Entry(name, (fetched(f"s3://{bucket}/{key}", name),)))
    else:
        text = s3.get_object(Bucket=bucket, Key=start)["Body"].read().decode()
        if source["S3DataType"] == "ManifestFile":
            first, *names = json.loads(text)
            prefix = first["prefix"]
            objects = [Entry(name, (fetched(prefix + name, name),)) for name in names]
        else:
            for number, line in enumerate(filter(None, text.splitlines())):
                parts = _attributes(json.loads(line), source["AttributeNames"], number, fetched)
                objects.append(Entry(str(number), tuple(parts)))
    if seed is not None and mode is not InputMode.PIPE:  # in Pipe mode the channel shuffles anew in each pass
        random.Random(seed).shuffle(objects)
    return FromS3(
        name=wanted["ChannelName"],
        source=folder,
        mode=mode,
        distribution=Distribution(source.get("S3DataDistributionType", "FullyReplicated")),
        shuffle=seed if mode is InputMode.PIPE else None,
        compression=Compression(wanted.get("CompressionType", "None")),
        wrapper=Wrapper(wanted.get("RecordWrapperType", "None")),
        attributes=tuple(source.get("AttributeNames", ())),
        objects=tuple(objects),
        uris=uris,
        prefix=prefix,
        content_type=wanted.get("ContentType", ""),
        groups=tuple(source.get("InstanceGroupNames", ())),
    )


def _attributes(line: dict[str, Any], names: Iterable[str], number: int, fetched: Any) -> Iterator[Path | bytes]:
    for name in names:
        value = line[name]
        if name.endswith("-ref"):
            yield fetched(value, f"{number}/{name}")
        else:
            yield (value if isinstance(value, str) else json.dumps(value)).encode()


# --- checkpoints ---


def files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield (path in the folder, path) of the regular files below it."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield str(path.relative_to(folder)), path


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
            for key in below(self.s3, self._key("")):
                path = folder / key.removeprefix(prefix).removeprefix("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                self.s3.download_file(bucket, key, str(path))
                self._known[path] = _state(path)

    def upload(self) -> None:
        """Upload what has changed in the hosts' folders, and delete from S3 what a host has deleted."""
        bucket, _ = split(self.uri)
        found = {path: name for folder in self.folders for name, path in files(folder)}
        for path, name in found.items():
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile; the next round sees that
                state = _state(path)
                if self._known.get(path) != state:
                    self.s3.upload_file(str(path), bucket, split(self._key(name))[1])
                    self._known[path] = state
                    self.sent += 1
        for path in set(self._known) - set(found):
            del self._known[path]
            folder = next(each for each in self.folders if each in path.parents)
            self.s3.delete_object(Bucket=bucket, Key=split(self._key(str(path.relative_to(folder))))[1])

    def _key(self, name: str) -> str:
        return f"{self.uri.rstrip('/')}/{name}"


def _state(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


# --- results ---


def upload_results(s3: Any, folders: list[Path], uri: str, packed: bool) -> None:
    """Upload the content of these folders of all hosts: as one archive, or uncompressed below the URI."""
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")) if packed else (path for _, path in files(folder)):
            found.setdefault(str(path.relative_to(folder)), path)
    bucket, key = split(uri)
    if not packed:
        for name, path in found.items():
            s3.upload_file(str(path), bucket, f"{key.rstrip('/')}/{name}")
        return
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, path in found.items():
                archive.add(path, name, recursive=False)
        file.seek(0)
        s3.upload_fileobj(file, bucket, key)


def reason(error: ClientError) -> str:
    """Return what S3 said."""
    return error.response["Error"].get("Message") or error.response["Error"]["Code"]
