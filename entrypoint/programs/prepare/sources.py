"""Bring the user's code into its folder, unless it is there: from a folder, an archive, S3 or channel `code`."""

import shutil
from pathlib import Path
from typing import Any

from code_files import below, refuse_special
from unusable import Unusable, missing, reason, shown

UNFINISHED = ".entrypoint-unfinished"  # in the code folder while it is being filled
AS_FAR_AS_THERE: dict[str, Any] = {"dirs_exist_ok": True, "ignore_dangling_symlinks": True}
WANTED = "wanted a folder, a .tar.gz or an s3:// URI of one in hyperparameter sagemaker_submit_directory"


def fetch(source: str, program: str, code: Path, channel: Path) -> str:
    """Fill the code folder if it is empty. Return in a few words where the code is from.

    `source` is the code folder itself if the job names no other; then channel `code` is used, if there is one.
    """
    code.mkdir(parents=True, exist_ok=True)
    mark = code / UNFINISHED
    if mark.exists():  # an earlier start of this container was cut off
        _empty(code)
    if any(code.iterdir()):
        return "was there before the job"
    origin = channel if source == str(code) and channel.is_dir() else source
    if origin == source == str(code):
        return "was named nowhere else"
    mark.touch()
    try:
        if origin is channel:
            _from_channel(channel, program, code)
        else:
            _from(source, program, code)
    except BaseException as error:
        _empty(code)
        if isinstance(error, OSError):
            raise Unusable(f"the code at {shown(str(origin))} cannot be put into {code}: {reason(error)}") from None
        raise
    mark.unlink()
    return f"is from {shown(str(origin))}"


def check(program: str, code: Path, origin: str, is_package: bool) -> None:
    """Check that the program is there. In a package it may be a module, which only Python can look for."""
    if (code / program).is_file() or (is_package and not program.endswith(".py")):
        return
    there = sorted(path.name for path in code.iterdir())
    raise Unusable(
        f"program {program} is not in {code}, which holds {', '.join(there[:20]) or 'nothing'} and {origin}; "
        "wanted the file that hyperparameter sagemaker_program or variable SAGEMAKER_PROGRAM names"
    )


def _from(source: str, program: str, code: Path) -> None:
    place = Path(source)
    if source.startswith("s3://"):
        import tempfile

        try:
            from s3 import download  # imports boto3, which takes as long as all the rest
        except ImportError as error:
            raise missing(error.name, f"the code at {shown(source)}") from None
        with tempfile.TemporaryDirectory() as scratch:
            archive = Path(scratch) / "sourcedir.tar.gz"
            download(source, archive)
            _unpack(archive, code, shown(source))
    elif "://" in source:
        raise Unusable(f"the code is at {shown(source)}; {WANTED}")
    elif place.is_dir():
        _copy(place, code)
    elif not place.exists():
        raise Unusable(f"the code at {source} cannot be fetched: no such file or folder; {WANTED}")
    elif not place.is_file():
        raise Unusable(f"the code at {source} is neither a file nor a folder; {WANTED}")
    elif place.name == Path(program).name:
        shutil.copy2(place, code)
    else:
        _unpack(place, code, source)


def _from_channel(channel: Path, program: str, code: Path) -> None:
    """Copy channel `code`: SDK v3 sends a folder's files, v2 under network isolation an archive."""
    _copy(channel, code)
    if not any((code / name).is_file() for name in (program, "setup.py", "pyproject.toml")):
        for archive in sorted(code.glob("*.tar.gz")):
            _unpack(archive, code, str(channel / archive.name))


def _copy(folder: Path, code: Path) -> None:
    """Copy a folder and the targets of its links. Raise Unusable, before anything is written, if that had no end."""
    from archives import check_space  # imports tarfile, and most jobs have their code in its folder

    size = 0
    for entry in below(folder, follows=True):
        path = Path(entry.path)
        refuse_special(path)
        size += path.stat().st_size if path.is_file() else 0
    check_space(size, code, str(folder))
    shutil.copytree(folder, code, **AS_FAR_AS_THERE)


def _unpack(archive: Path, code: Path, shown: str) -> None:
    from archives import unpack

    unpack(archive, code, shown)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
