"""Define input channels, and choose each host's objects of them.

They follow SageMaker: API reference, "Channel", "S3DataSource" and "ShuffleConfig"; Developer Guide, "Augmented
manifest files". A file below a folder stands for an object in S3, and its path there for the object's key.
"""

import json
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import EnumMeta
from functools import cached_property
from pathlib import Path
from typing import Any

from entrypoint.base.errors import ConfigError, did_you_mean, show
from entrypoint.base.python310 import StrEnum
from entrypoint.base.wording import listed
from entrypoint.launcher.job.channels import Distribution, Wrapper

MAX_CHANNELS = 20
MAX_ATTRIBUTES = 16
MAGIC = 0xCED7230A  # begin of a RecordIO record; the length follows, and the data are padded to a multiple of 4 bytes
LONGEST_RECORD = (1 << 29) - 1  # bytes in one part of such a record

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_AT_THE_END = re.compile(r"(,[a-z]+=[^,/]*)*$")
GZIP_MAGIC = b"\x1f\x8b"
_OF_PIPES = ("shuffle", "compression", "wrapper", "attributes")  # options for mode Pipe alone
_OF_WINDOWS = ("desktop.ini", "thumbs.db")
SHOWN_FILES = 3  # files that a message names


class ChannelMode(StrEnum):
    FILE = "File"
    FAST_FILE = "FastFile"
    PIPE = "Pipe"


class Compression(StrEnum):
    NONE = "None"
    GZIP = "Gzip"


@dataclass(frozen=True)
class Entry:
    """Describe a unit of distribution: an object, or one line of an augmented manifest with its attributes."""

    key: str
    parts: tuple[Path | bytes, ...]


@dataclass(frozen=True, kw_only=True)
class LocalChannel:
    """Describe one channel of a job. `source`: a folder, a manifest, or with attributes an augmented manifest."""

    name: str
    source: Path
    mode: ChannelMode = ChannelMode.FILE
    distribution: Distribution = Distribution.REPLICATED
    shuffle: int | None = None  # the seed
    compression: Compression = Compression.NONE
    wrapper: Wrapper = Wrapper.NONE
    attributes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ConfigError if the values cannot describe a channel; files are not checked."""
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"--channel is called {self.name!r}; wanted 1 to 64 letters, digits, dots, - and _")
        if len(self.attributes) > MAX_ATTRIBUTES or not all(self.attributes):
            found = ":".join(self.attributes)
            raise self._wrong(f"has attributes={found}; wanted 1 to {MAX_ATTRIBUTES} names with : between them")
        given = [name for name in _OF_PIPES if getattr(self, name) != getattr(LocalChannel, name)]
        if given and self.mode is not ChannelMode.PIPE:
            raise self._wrong(f"has {given[0]}, and its mode is {self.mode}; wanted mode=Pipe, or no {given[0]}")

    def described(self) -> dict[str, str]:
        """Return the channel's value in inputdataconfig.json, where SageMaker shows FastFile as File."""
        return {
            "TrainingInputMode": "Pipe" if self.mode is ChannelMode.PIPE else "File",
            "S3DistributionType": self.distribution.value,
            "RecordWrapperType": self.wrapper.value,
        }

    @property
    def is_whole(self) -> bool:
        """Return whether every host gets all of a folder, so that it needs no copy."""
        return self.distribution is Distribution.REPLICATED and self.source.is_dir()

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Return the source's entries, by keys or by a manifest's lines. Raise ConfigError if it cannot be read."""
        try:
            if self.attributes:
                return tuple(self._lines())
            if self.source.is_dir():
                return tuple(Entry(key, (self.source / key,)) for key in self._keys if is_data(key))
            return tuple(self._listed())
        except (OSError, UnicodeDecodeError) as error:
            raise self._wrong(f"cannot be read: {error}") from None

    @property
    def _files(self) -> list[Path]:
        return [part for entry in self.entries for part in entry.parts if isinstance(part, Path)]

    @cached_property
    def _keys(self) -> list[str]:
        return keys_below(self.source)

    @property
    def summary(self) -> str:
        """Return a notice of files that are no data, or of examples that are several records; "" without either."""
        if len(self.attributes) > 1 and self.wrapper is Wrapper.RECORD_IO:
            names = list(self.attributes)
            whole = f"read it with attributes={names} of pipe_dataset, which keeps them together for shard"
            return f"channel {self.name}: each example is {len(names)} records; {whole}"
        if not self.source.is_dir() or self.attributes or not (others := [k for k in self._keys if not is_data(k)]):
            return ""
        if self.is_whole and self.mode is not ChannelMode.PIPE:
            what = "are in the folder, as on SageMaker: sagemaker_tf_data ignores them, other code may read them"
        else:
            what = "are ignored, as they are not data: SageMaker would deliver them, so keep them out of S3"
        return f"channel {self.name}: {listed(others, SHOWN_FILES)} {what}"

    def of_host(self, rank: int, hosts: int, number: int = 0) -> list[Entry]:
        """Return one host's entries in pass `number`.

        With a seed, all hosts have the same order, another in each pass.
        """
        order = list(self.entries)
        if self.shuffle is not None:
            random.Random(f"{self.shuffle} {number}").shuffle(order)
        return order[rank::hosts] if self.distribution is Distribution.SHARDED else order

    def check(self) -> None:
        """Raise ConfigError if the source is missing, or does not fit the options."""
        if self.attributes and not self.source.is_file():
            raise self._wrong("has attributes, and there is no such file; wanted an augmented manifest")
        if not self.source.exists():
            raise self._wrong("there is no such folder")
        if self.mode is ChannelMode.FAST_FILE and not self.source.is_dir():
            raise self._wrong("is a file, but its mode is FastFile; wanted a folder, or mode File or Pipe")
        if self.mode is ChannelMode.PIPE:
            if not self.entries:
                raise self._wrong("holds no file with data; wanted at least one to be streamed")
            for path in self._files:
                self._check_streamed(path)

    def reads(self, folder: Path) -> bool:
        """Return whether the source, or a file that a manifest names, is that folder or lies in it."""
        paths = [self.source, *(self._files if self.source.is_file() else [])]
        return any(lies_in(path, folder) for path in paths)

    def _check_streamed(self, path: Path) -> None:
        if self.compression is Compression.GZIP:
            with path.open("rb") as file:
                if file.read(2) not in (GZIP_MAGIC, b""):
                    raise self._wrong(f"has compression=Gzip, but {path} is not a gzip file; wanted gzip files only")
        elif self.wrapper is Wrapper.RECORD_IO and path.stat().st_size > LONGEST_RECORD:
            raise self._wrong(f"has wrapper=RecordIO, and {path} is larger than a record may be, 512 MB")

    def _listed(self) -> Iterator[Entry]:
        """Yield the objects that a manifest names: a JSON list of a prefix and of keys below it."""
        wanted = 'wanted a folder, or a manifest: a JSON list of {"prefix": ...} and of keys below that prefix'
        content = self._json(self.source.read_text("utf-8"), "is a file that is not JSON", wanted)
        match content:
            case [{"prefix": str(prefix)}, *keys] if all(isinstance(key, str) and key for key in keys):
                for key in keys:
                    yield Entry(key, (self._object(prefix + key, f"key {show(key)}"),))
            case _:
                raise self._wrong(f"is a file that holds {show(content)}; {wanted}")

    def _lines(self) -> Iterator[Entry]:
        """Yield the lines of an augmented manifest, each with its attributes in the given order."""
        wanted = "wanted a JSON object in each line"
        for number, line in enumerate(self.source.read_text("utf-8").splitlines(), 1):
            if not line.strip():
                continue
            found = self._json(line, f"has no JSON in line {number}", wanted)
            if not isinstance(found, dict):
                raise self._wrong(f"has {show(found)} in line {number}; {wanted}")
            yield Entry(str(number), tuple(self._attribute(found, name, number) for name in self.attributes))

    def _attribute(self, line: dict[str, Any], name: str, number: int) -> Path | bytes:
        if name not in line:
            names = ", ".join(map(show, line))
            raise self._wrong(f"has no attribute {name!r} in line {number}, only {names}; wanted it in each line")
        value = line[name]
        if name.endswith("-ref"):
            if not isinstance(value, str):
                raise self._wrong(f"has {name} = {show(value)} in line {number}; wanted the URI of an object")
            return self._object(value, f"line {number}")
        return (value if isinstance(value, str) else json.dumps(value)).encode()

    def _object(self, uri: str, where: str) -> Path:
        """Return the file that stands for an object: s3://BUCKET/KEY is BUCKET/KEY beside the manifest."""
        path = self.source.parent / uri.removeprefix("s3://").removeprefix("file://")
        if not path.is_file():
            raise self._wrong(
                f"names {show(uri)} ({where}), and there is no file {path}; wanted a path, relative to the manifest's "
                "folder or absolute, or s3://BUCKET/KEY with a copy in BUCKET/KEY beside the manifest"
            )
        return path

    def _json(self, text: str, otherwise: str, wanted: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._wrong(f"{otherwise} ({error}); {wanted}") from None

    def _wrong(self, problem: str) -> ConfigError:
        return ConfigError(f"--channel {self.name}={self.source}: {problem}")


def parse_channel(word: str, mode: ChannelMode = ChannelMode.FILE) -> LocalChannel:
    """Read `NAME=FOLDER[,OPTION=VALUE]...`; a word that ends with / is a folder alone.

    Raise ConfigError if malformed.
    """
    name, equals, rest = word.partition("=")
    if not (name and equals and rest):
        raise ConfigError(f"--channel has {word!r}; wanted name=value, the value a folder")
    options = _AT_THE_END.search(rest)
    assert options is not None  # the pattern matches an empty text, too
    source = rest[: options.start()]
    values: dict[str, Any] = {"mode": mode}
    for option in filter(None, options[0].split(",")):
        key, _, text = option.partition("=")
        if key not in _OPTIONS:
            raise ConfigError(
                f"--channel {name} has option {key!r}; wanted one of {', '.join(_OPTIONS)} (add a / to a folder whose "
                f"name ends like an option; see `entrypoint help channels`){did_you_mean(key, _OPTIONS)}"
            )
        read, wanted = _OPTIONS[key]
        try:
            values[key] = read(text)
        except ValueError:
            meant = did_you_mean(text, map(str, read)) if isinstance(read, EnumMeta) else ""
            raise ConfigError(f"--channel {name} has {key}={text!r}; wanted {wanted}{meant}") from None
    if not source:
        raise ConfigError(f"--channel has {word!r}; wanted name=value, the value a folder and then its options")
    return LocalChannel(name=name, source=Path(source).absolute(), **values)


def check_together(channels: Sequence[LocalChannel]) -> None:
    """Raise ConfigError if one job cannot have these channels."""
    names = [channel.name for channel in channels]
    if len(names) > MAX_CHANNELS:
        raise ConfigError(f"there are {len(names)} channels; wanted at most {MAX_CHANNELS}, as SageMaker allows")
    for channel in channels:
        if names.count(channel.name) > 1:
            raise ConfigError(f"--channel names {channel.name} twice; wanted each channel once")
        taken = re.escape(channel.name) + (r"(-manifest|_\d+)" if channel.mode is ChannelMode.PIPE else "-manifest")
        for other in channels:
            if re.fullmatch(taken, other.name) and other.mode is not ChannelMode.PIPE:
                raise ConfigError(
                    f"--channel {other.name}: channel {channel.name}, of mode {channel.mode}, has a file of that "
                    "name; wanted another name"
                )


def _seed(text: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", text):
        raise ValueError
    return int(text)


def _one_of(values: type[StrEnum]) -> tuple[Callable[[str], StrEnum], str]:
    return values, f"one of {', '.join(values)}"


_OPTIONS: dict[str, tuple[Callable[[str], Any], str]] = {  # how its text is read, and what is wanted
    "mode": _one_of(ChannelMode),
    "distribution": _one_of(Distribution),
    "shuffle": (_seed, "a seed, a whole number"),
    "compression": _one_of(Compression),
    "wrapper": _one_of(Wrapper),
    "attributes": (lambda text: tuple(text.split(":")), "names"),
}


def lies_in(path: Path, folder: Path) -> bool:
    """Return whether a path is that folder or lies in it, as it is written or through links."""
    real = Path(os.path.realpath(path))  # it takes links that lead to themselves, too
    return path.absolute().is_relative_to(folder) or real.is_relative_to(os.path.realpath(folder))


def keys_below(folder: Path) -> list[str]:
    """Return the files below a folder by their paths there, in the order of S3, which compares keys as bytes."""
    paths = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return sorted((str(path.relative_to(folder)) for path in paths if path.is_file()), key=os.fsencode)


def is_data(key: str) -> bool:
    """Return whether a file may be data, by the rule of sagemaker_tf_data/hidden.py.

    No part of its path begins with . or _, as with notebooks, Spark and macOS, and it is no file of Windows.
    """
    parts = key.split("/")
    return not any(part[:1] in (".", "_") for part in parts if part) and parts[-1].lower() not in _OF_WINDOWS
