"""Bring channels and checkpoints from S3 to hosts, and checkpoints, models and outputs from hosts to S3."""

import contextlib
import tarfile
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


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


def download(s3: Any, uri: str, folder: Path) -> None:
    """Download all objects under a prefix into a folder."""
    bucket, prefix = split(uri)
    for key in below(s3, uri):
        path = folder / key.removeprefix(prefix).lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        s3.download_file(bucket, key, str(path))


def files(folder: Path) -> dict[str, Path]:
    """Return the regular files below a folder by their paths there."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path for path in paths}


def upload(s3: Any, folder: Path, uri: str) -> None:
    """Upload the files of a folder below a prefix."""
    bucket, prefix = split(uri)
    for name, path in files(folder).items():
        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
            s3.upload_file(str(path), bucket, f"{prefix.rstrip('/')}/{name}")


def upload_archive(s3: Any, folders: list[Path], uri: str) -> None:
    """Upload the content of these folders of all hosts as one archive."""
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, path in {name: path for folder in folders for name, path in files(folder).items()}.items():
                archive.add(path, name)
        file.seek(0)
        s3.upload_fileobj(file, *split(uri))
