"""Find the data of a request's channels, in folders of this machine or in S3."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entrypoint.base.errors import ConfigError, imported
from entrypoint.check.doctor.planned_job import channel_config, s3_source
from entrypoint.check.doctor.request import Request
from entrypoint.launcher.job.channels import Distribution, Wrapper
from entrypoint.simulate.local_channels import ChannelMode, Compression, LocalChannel, is_data, keys_below

OF_CODE = ("code", "sm_drivers", "sm_code")  # channels with programs instead of data
MOST_KEYS = 100_000  # keys of a prefix that are listed


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """Describe a file, or an object in S3."""

    key: str  # path below the channel
    size: int
    open: Callable[[], AbstractContextManager[Any]]  # yields an object with `read`


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Describe the data of one channel, and the channel that the request wants."""

    asked: LocalChannel  # its source is the folder for the sample, which does not exist yet
    where: str
    files: tuple[DataFile, ...]  # in order of their keys
    whole: bool = True  # whether all files are listed
    no_data: tuple[str, ...] = ()  # keys left out: files that notebooks, Spark, macOS and Windows leave there


def origins(request: Request, given: Mapping[str, Path], samples: Path) -> list[Origin]:
    """Return the origin of each channel with data. `given`: {channel: folder of this machine to use instead}.

    Raise ConfigError if a channel cannot be read. The error explains how to name a local copy.
    """
    asked = request.channels
    if unknown := sorted(given.keys() - asked.keys()):
        raise ConfigError(
            f"--channel names {', '.join(unknown)}, and the request has {', '.join(asked) or 'no channel'}"
        )
    found = []
    for name, channel in asked.items():
        if name not in OF_CODE:
            source = given.get(name)
            where = str(source) if source else _uri(channel)
            wanted = _channel(name, channel, request, samples / name)
            if source or where.startswith("file://"):
                files, whole = _local(name, source or Path(where.removeprefix("file://"))), True
            elif where.startswith("s3://"):
                kind = s3_source(channel).get("S3DataType") or "S3Prefix"
                if kind != "S3Prefix":
                    raise _unread(name, f"a {kind}", "only prefixes are sampled")
                files, whole = _of_s3(name, where)
            else:
                raise _unread(name, where or "of an unknown kind", "it is not an S3 path")
            data = tuple(file for file in files if is_data(file.key))
            if not any(file.size for file in data):
                raise _unread(name, where, "no file in it holds data")
            no_data = tuple(file.key for file in files if not is_data(file.key))
            found.append(Origin(asked=wanted, where=where, files=data, whole=whole, no_data=no_data))
    return found


def _uri(channel: Mapping[str, Any]) -> str:
    source = channel.get("DataSource") or {}
    uri = s3_source(channel).get("S3Uri") or (source.get("FileDataSource") or {}).get("FileUri") or ""
    if uri.startswith(("/", "./", "../")):
        return f"file://{uri}"
    return str(uri) or ", ".join(source)


def _channel(name: str, channel: Mapping[str, Any], request: Request, folder: Path) -> LocalChannel:
    """Return the channel for `entrypoint local`. FastFile becomes File, which looks the same to scripts."""
    config = channel_config(channel, request)
    pipe = config["TrainingInputMode"] == "Pipe"
    seed = (channel.get("ShuffleConfig") or {}).get("Seed")
    return LocalChannel(
        name=name,
        source=folder,
        mode=ChannelMode.PIPE if pipe else ChannelMode.FILE,
        distribution=Distribution(config["S3DistributionType"]),
        shuffle=int(seed) if pipe and seed is not None else None,
        compression=Compression(channel.get("CompressionType") or "None") if pipe else Compression.NONE,
        wrapper=Wrapper(config["RecordWrapperType"]) if pipe else Wrapper.NONE,
    )


def _unread(name: str, where: str, why: str) -> ConfigError:
    return ConfigError(
        f"channel {name} is {where}, and cannot be sampled: {why}; pass a local copy of some of it: "
        f"--channel {name}=FOLDER"
    )


def _local(name: str, folder: Path) -> list[DataFile]:
    if not folder.exists():
        raise _unread(name, str(folder), "there is no such folder")
    if folder.is_file():
        return [_of_path(folder, folder.name)]
    if not (keys := keys_below(folder)):
        raise _unread(name, str(folder), "there is no file in it")
    return [_of_path(folder / key, key) for key in keys]


def _of_path(path: Path, key: str) -> DataFile:
    return DataFile(key=key, size=path.stat().st_size, open=lambda: path.open("rb"))


def _of_s3(name: str, uri: str) -> tuple[list[DataFile], bool]:
    """Return the objects of a prefix, and whether all were listed."""
    errors, boto3 = (imported(each, "aws", "a sample of data in S3") for each in ("botocore.exceptions", "boto3"))
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    found: list[DataFile] = []
    try:
        client = boto3.client("s3")
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        for each in (each for page in pages for each in page.get("Contents", ())):
            key = str(each["Key"])
            if not key.endswith("/"):
                below = key.removeprefix(prefix).lstrip("/") if key != prefix else key.rpartition("/")[2]
                found.append(DataFile(key=below, size=int(each["Size"]), open=_opener(client, bucket, key)))
            if len(found) == MOST_KEYS:
                break
    except (errors.BotoCoreError, errors.ClientError) as problem:
        raise _unread(name, uri, " ".join(str(problem).split())) from None
    if not found:
        raise _unread(name, uri, "there is no object below it")
    return found, len(found) < MOST_KEYS


def _opener(client: Any, bucket: str, key: str) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: closing(client.get_object(Bucket=bucket, Key=key)["Body"])
