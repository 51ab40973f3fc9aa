"""Find records in a record folder, in a folder above it, in an archive of SageMaker's, or in S3."""

import io
import zlib
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO

from entrypoint.base.errors import ConfigError, imported
from entrypoint.record.write import RECORD_BYTES

ENDING = ".jsonl.gz"
MOST_ALL, MOST_HOSTS = 2 << 30, 2000


def records_in(folder: Path) -> dict[str, bytes]:
    """Return {host: record} of a folder of records; b"" for a record that cannot be read."""
    found = {}
    for path in sorted(folder.glob(f"*{ENDING}"))[:MOST_HOSTS]:
        if path.is_file():
            found[host := path.name.removesuffix(ENDING)] = b""
            with suppress(OSError), path.open("rb") as file:
                found[host] = file.read(RECORD_BYTES)
    return found


def find(place: str) -> dict[str, bytes]:
    """Return {host: record} of a path or s3:// address; raise ConfigError if it has none or cannot be read."""
    path = Path(place)
    if place.startswith("s3://"):
        found = _of_archive(_from_s3(place), place)
    elif path.is_file():
        with path.open("rb") as file:
            found = _of_archive(file, place)
    elif path.exists():
        below = ("", "record", "data/record", "output/data/record", "ml/output/data/record")
        found = next(filter(None, (records_in(path / each) for each in below)), {})
        # Each host has its own in the output of `entrypoint local`, and after a follower lost the coordinator.
        deeper = [*path.glob("*/ml/output/data/record"), *path.glob("*/output/data/record")]
        found = found or {host: data for folder in sorted(deeper) for host, data in records_in(folder).items()}
    else:
        raise ConfigError(
            f"there is no {place}; wanted a job's output folder, its record folder, output.tar.gz or s3://"
        )
    if not found:
        where = "HOST" if path.is_dir() else "record/HOST"
        how = "a job writes them to output/data/record if ENTRYPOINT_MONITOR is true"
        raise ConfigError(f"there are no records ({where}{ENDING}) in {place}; {how}")
    return found


def _of_archive(file: IO[bytes], place: str) -> dict[str, bytes]:
    """Return the records of an archive. No file is extracted, so no path in the archive can escape a folder."""
    import tarfile  # not for a monitor, which has this module loaded for the job's end

    found: dict[str, bytes] = {}
    size = 0
    try:
        with tarfile.open(fileobj=file, mode="r:*") as archive:
            for member in archive:
                path = PurePosixPath(member.name)
                if not (member.isreg() and path.name.endswith(ENDING) and path.parent.name == "record"):
                    continue
                content = archive.extractfile(member)
                size += min(member.size, RECORD_BYTES)
                if size > MOST_ALL or len(found) >= MOST_HOSTS:
                    raise ConfigError(
                        f"{place} holds more records than the limit of {MOST_ALL >> 30} GB, {MOST_HOSTS} hosts"
                    )
                found[path.name.removesuffix(ENDING)] = content.read(RECORD_BYTES) if content else b""
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        if not found:
            why = "it is not one" if isinstance(error, tarfile.ReadError) else str(error)
            raise ConfigError(f"{place} cannot be read as an archive (.tar.gz): {why}") from None
    return found


def _from_s3(uri: str) -> IO[bytes]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if not (bucket and key):
        raise ConfigError(f"{uri!r} is not an object in S3; wanted s3://BUCKET/.../output.tar.gz")
    boto3, errors = (imported(name, "aws", f"{uri}: reading from S3") for name in ("boto3", "botocore.exceptions"))
    if not key.endswith(".gz"):
        key = f"{key.rstrip('/')}/output.tar.gz"
    content = io.BytesIO()
    try:
        boto3.client("s3").download_fileobj(bucket, key, content)
    except (errors.BotoCoreError, errors.ClientError, OSError) as error:
        raise ConfigError(f"s3://{bucket}/{key} cannot be read: {error}") from None
    content.seek(0)
    return content
