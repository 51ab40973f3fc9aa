"""Read the job's channels, and compute which part of them this process reads."""

import difflib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sagemaker_tf_data import places
from sagemaker_tf_data.errors import DataError

SHARDS = "ENTRYPOINT_SHARDS"  # environment variable: what the launcher has each process read
USUAL = ("training", "train")
OF_SDKS = ("code", "sm_drivers")  # channels with the script's code and that of SageMaker's SDKs


@dataclass(frozen=True, kw_only=True)
class Channel:
    """One channel of the job, as this host sees it.

    `mode` is "File" or "Pipe"; FastFile is "File" on a read-only folder. `distribution` is "FullyReplicated" (every
    host has all of it) or "ShardedByS3Key". `record_wrapper` is "None" or "RecordIO".
    """

    name: str
    mode: str = "File"
    distribution: str = "FullyReplicated"
    record_wrapper: str = "None"
    content_type: str = ""
    folder: Path  # where its files are in File mode

    def fifo(self, number: int) -> Path:
        """Return the path of the named pipe of pass `number` (from 0), which SageMaker creates when the pass begins."""
        return self.folder.with_name(f"{self.name}_{number}")

    def need(self, mode: str) -> None:
        """Raise DataError if the channel has another mode."""
        if self.mode != mode:
            instead = "read its files" if self.mode == "File" else "read it with pipe_dataset"
            raise DataError(
                f"channel '{self.name}' is in {self.mode} mode; wanted {mode} mode: {instead}, or submit the job with "
                f"input_mode='{mode}' for it"
            )


@dataclass(frozen=True, kw_only=True)
class Part:
    """The part of a channel that this process reads: the records whose number modulo `count` is `index`."""

    channel: str
    mode: str = "File"
    count: int = 1
    index: int = 0


def all_channels(environ: Mapping[str, str] = os.environ) -> dict[str, Channel]:
    """Return all channels by name, sorted as in SM_CHANNELS, whatever the order in which the job was submitted.

    They come from SageMaker's inputdataconfig.json; SM_CHANNEL_<NAME> adds those that it does not list, in File mode.

    Raises:
        DataError: The file is not what SageMaker writes.
    """
    given = _input_data_config(environ)
    data = input_folder(environ) / "data"
    for name in _json(environ.get("SM_CHANNELS") or "[]", list, "SM_CHANNELS"):
        given.setdefault(str(name), {})
    if not given and data.is_dir():  # neither a file nor variables: a folder laid out by hand
        given = {path.name: {} for path in data.iterdir() if path.is_dir() and path.name[0] != "."}
    for variable in environ:
        name = variable.removeprefix("SM_CHANNEL_")
        if name != variable and name and name not in {known.upper() for known in given}:
            given[name.lower()] = {}
    return {
        name: Channel(
            name=name,
            mode=given[name].get("TrainingInputMode") or "File",
            distribution=given[name].get("S3DistributionType") or "FullyReplicated",
            record_wrapper=given[name].get("RecordWrapperType") or "None",
            content_type=given[name].get("ContentType") or "",
            folder=Path(environ.get(f"SM_CHANNEL_{name.upper()}") or data / name),
        )
        for name in sorted(given)
    }


def channel(name: str | None = None, environ: Mapping[str, str] = os.environ) -> Channel:
    """Return this process's channel.

    `name` is a channel, or a group with one channel for each local rank ("training" for training, training-2), of which
    this rank's is returned. Without a name it is the job's only channel, or else `training` or `train`.

    Raises:
        DataError: There is no such channel; the text lists those that exist.
    """
    found, shares = all_channels(environ), parts(environ)
    if name in found and name not in shares:  # a member of a group, by its own name
        return found[name]
    own = part(name, environ).channel
    if own not in found:
        raise _missing(own, found)
    return found[own]


def part(name: str | None = None, environ: Mapping[str, str] = os.environ) -> Part:
    """Return this process's part of a channel, or of a group with one channel for each local rank.

    Raises:
        DataError: There is no such channel, or it belongs to another rank of this host.
    """
    return parts(environ)[key(name, environ)]


def key(name: str | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the group or shared channel that `name` refers to; errors as for `part`."""
    shares = parts(environ)
    if name is None:
        data = [each for each in shares if each not in OF_SDKS]
        usual = data if len(data) == 1 else [each for each in USUAL if each in data]
        if not usual:
            raise DataError(f"no channel given; the job has {_listed(shares)}: pass one")
        return usual[0]
    if name in shares:
        return name
    mine = [each for each, share in shares.items() if share.channel == name]
    if mine:
        return mine[0]
    if name in all_channels(environ):
        group = next((each for each in shares if name.startswith(each)), None)
        raise DataError(
            f"channel '{name}' belongs to another process; this one may read {_listed(shares)}"
            + (f": ask for '{group}'" if group else "")
        )
    raise _missing(name, shares)


def first_of(*names: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the first of these names that is a channel or a group of the job, or None.

    On the chief of parameter servers, which has no groups, a name may also be the stem of its workers' group.
    """
    known = set(parts(environ))
    if places.reads_elsewhere(environ):
        known |= {_stem_of(name)[0] for name in known}
    return next((name for name in names if name in known), None)


def key_of_readers(name: str | None = None) -> str:
    """Return the `key` for the processes that read a dataset.

    A chief's datasets are read by its workers, which may have groups of channels that the chief lacks.
    """
    return (first_of(name) if name is not None else None) or key(name)


def parts(environ: Mapping[str, str] = os.environ) -> dict[str, Part]:
    """Return this process's parts by group or shared channel: from ENTRYPOINT_SHARDS, else from ranks or TF_CONFIG.

    Raises:
        DataError: ENTRYPOINT_SHARDS or SageMaker's file has another form.
    """
    text = environ.get(SHARDS)
    if not text:
        return shares(all_channels(environ).values(), places.here(environ))
    try:
        return {
            str(name): Part(
                channel=str(one["channel"]), mode=str(one["mode"]), count=int(one["count"]), index=int(one["index"])
            )
            for name, one in _json(text, dict, SHARDS).items()
        }
    except (KeyError, TypeError, ValueError):
        raise DataError(
            f"{SHARDS} is {text[:200]!r}; wanted an object of "
            '{"channel": NAME, "mode": "File" or "Pipe", "count": N, "index": I} by name'
        ) from None


def shares(found: Iterable[Channel], place: places.Place) -> dict[str, Part]:
    """Compute the parts of the process at `place`: of grouped or shared channels, replicated or sharded by host."""
    found = list(found)
    result = {}
    grouped: set[str] = set()
    for stem, members in groups(found, place.local_size).items():
        grouped |= {each.name for each in members}
        mine = members[place.local_rank]
        numbers = (1, 0) if mine.distribution == "ShardedByS3Key" else (place.hosts, place.host)
        result[stem] = Part(channel=mine.name, mode=mine.mode, count=numbers[0], index=numbers[1])
    for each in found:
        if each.name not in grouped:
            sharded = each.distribution == "ShardedByS3Key"
            numbers = (place.local_size, place.local_rank) if sharded else (place.size, place.rank)
            result[each.name] = Part(channel=each.name, mode=each.mode, count=numbers[0], index=numbers[1])
    return result


def groups(found: Iterable[Channel], local_size: int) -> dict[str, list[Channel]]:
    """Return stem -> its channels, one for each of a host's ranks, in natural order.

    The names of a group are train, train-1 ... or train, train-2 ... or train-1, train-2 ... or train-0, train-1 ...
    (also with `_`, or nothing before the number). Its channels are alike in all but their data, and as many as a host
    has ranks, which is more than one.
    """
    families: dict[str, list[tuple[int, Channel]]] = {}
    for each in found:
        stem, number = _stem_of(each.name)
        families.setdefault(stem, []).append((number, each))
    result = {}
    for stem, family in families.items():
        family.sort(key=lambda member: member[0])
        numbers = [number for number, _ in family]
        numbered = numbers[1:] if numbers[0] == -1 else numbers
        without_gaps = bool(numbered) and numbered == [*range(numbered[0], numbered[0] + len(numbered))]
        alike = len({(each.mode, each.distribution, each.record_wrapper) for _, each in family}) == 1
        if len(family) == local_size > 1 and alike and without_gaps and numbered[0] <= (2 if numbers[0] == -1 else 1):
            result[stem] = [each for _, each in family]
    return result


def _stem_of(name: str) -> tuple[str, int]:
    """Split a name: `train-2`, `train_2` and `train2` are (train, 2); `train` is (train, -1)."""
    match = re.fullmatch(r"(.*[^-_0-9])[-_]?([0-9]{1,3})", name)
    return (match[1], int(match[2])) if match else (name, -1)


def input_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return SageMaker's input folder: SM_INPUT_DIR, or `input` below SAGEMAKER_BASE_DIR, by default /opt/ml."""
    base = environ.get("SAGEMAKER_BASE_DIR") or "/opt/ml"
    return Path(environ.get("SM_INPUT_DIR") or f"{base}/input")


def _input_data_config(environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    text, source = environ.get("SM_INPUT_DATA_CONFIG"), "SM_INPUT_DATA_CONFIG"
    if not text:
        path = input_folder(environ) / "config" / "inputdataconfig.json"
        source, text = str(path), path.read_text() if path.is_file() else "{}"
    given = _json(text, dict, source)
    return {str(name): one if isinstance(one, dict) else {} for name, one in given.items()}


def _json(text: str, kind: type, source: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise DataError(f"{source} is {text[:200]!r}; wanted a JSON {'object' if kind is dict else 'list'}")
    return value


def _missing(name: str, known: Iterable[str]) -> DataError:
    close = difflib.get_close_matches(name, known, n=1)
    meant = f" Did you mean '{close[0]}'?" if close else ""
    return DataError(f"there is no channel '{name}'; the job has {_listed(known)}.{meant}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names)) or "no channels"
