"""Unpack a .tar.gz completely and inside of one folder, or refuse it before anything is written.

tarfile's own filter `data` does much of that, but Debian's Python 3.11.2 has none.
"""

import os
import shutil
import tarfile
import zlib
from collections import Counter
from pathlib import Path, PurePosixPath

from code_files import MOST_DEPTH
from unusable import Unusable, reason

WANTED = "wanted a .tar.gz, as `tar -czf` and SageMaker's SDK make it"
BEGINNINGS = {
    # first bytes of a file: what it is
    b"PK": "a zip archive",
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ": "compressed with xz",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"<": "HTML or XML",
}


def unpack(archive: Path, folder: Path, shown: str) -> None:
    """Unpack `archive`, which the user knows as `shown`, into `folder`."""
    with archive.open("rb") as file:
        start = file.read(10)
    if not start.startswith(b"\x1f\x8b"):
        found = next(
            (what for first, what in BEGINNINGS.items() if start.startswith(first)), "not compressed with gzip"
        )
        raise Unusable(f"the code at {shown} is no .tar.gz: it is {found if start else 'an empty file'}; {WANTED}")
    try:
        with tarfile.open(archive, "r:gz") as tar:
            members = _members(tar)
            _check(members, shown)
            check_space(sum(member.size for member in members if member.isreg()), folder, shown)
            tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
            tar.extractall(folder, members)
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, OverflowError, LookupError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # errors of gzip itself have none
            raise
        raise Unusable(f"the code at {shown} is cut off or damaged: {reason(error)}; {WANTED}, whole") from None


def _members(tar: tarfile.TarFile) -> list[tarfile.TarInfo]:
    """Return all members, owned by the current user. Check the place that tarfile takes for the archive's end."""
    members = []
    for member in tar:
        if member.size < 0:  # tarfile would return to it for ever
            raise tarfile.ReadError(f"the size of {member.name!r} is negative")
        members.append(member)
    assert tar.fileobj is not None
    ended = tar.fileobj.tell() > tar.offset
    while rest := tar.fileobj.read(1 << 20):  # gzip compares its checksum at the very end
        ended = ended and not rest.strip(b"\0")
    if not ended:
        raise EOFError("it ends without tar's end mark")
    for member in members:
        member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
        member.mode = member.mode & 0o755 | (0o700 if member.isdir() else 0o600)
    return members


def _check(members: list[tarfile.TarInfo], shown: str) -> None:
    """Raise Unusable unless all names and links stay inside, and no path leads through a link."""
    names = Counter(os.path.normpath(member.name) for member in members)
    links = {os.path.normpath(member.name) for member in members if member.issym() or member.islnk()}
    before = set[str]()  # the names of files that a hard link may have as its target
    for member in members:
        target = str(PurePosixPath(member.name).parent / member.linkname)
        if member.islnk():
            target = f"{member.linkname}/."  # a hard link to a link would be a link from another place
        if wrong := _leads_out(member.name, links):
            found = f"{member.name!r}, which {wrong}"
        elif not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
            found = f"{member.name!r}, which is a device or a pipe"
        elif (member.issym() or member.islnk()) and (wrong := _leads_out(target, links)):
            found = f"{member.name!r}, a link to {member.linkname!r}, which {wrong}"
        elif member.islnk() and os.path.normpath(member.linkname) not in before:
            found = f"{member.name!r}, a hard link to {member.linkname!r}, of which there is no file before it"
        elif member.name.count("/") > MOST_DEPTH:
            found = f"{member.name[:60]!r}..., {member.name.count('/')} folders in one another, of {MOST_DEPTH} at most"
        elif os.path.normpath(member.name) in links and names[os.path.normpath(member.name)] > 1:
            found = f"{member.name!r} twice, once as a link"
        else:
            before |= {os.path.normpath(member.name)} if member.isreg() else set()
            continue
        raise Unusable(f"the code at {shown} is refused: it holds {found}; wanted files and folders below its root")


def _leads_out(path: str, links: set[str]) -> str:
    """Return what is wrong with a path in the archive; "" if nothing."""
    if path.startswith("/"):
        return "is absolute"
    place: list[str] = []
    for part in path.split("/"):
        if "/".join(place) in links:
            return f"leads through the link {'/'.join(place)!r}"
        if part == ".." and not place:
            return "leads out of the archive"
        if part == "..":
            place.pop()
        elif part not in ("", "."):
            place.append(part)
    return ""


def check_space(size: int, folder: Path, shown: str) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise Unusable(
            f"the code at {shown} does not fit: it has {size >> 20} MiB, and {folder} has {free >> 20} MiB "
            "free; wanted less code, data in channels, or a larger volume (VolumeSizeInGB)"
        )
