"""Read the code; make digests of it and of the software around it, to compare between hosts."""

import contextlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import code_files as files
from pins import Installed, changed, installed

LEFT_BEHIND = re.compile(r"(^|/)(__pycache__|[^/]*\.egg-info)(/|$)")
LARGE_BYTES = 16 << 20  # bytes
NAMED = ("tensorflow", "tensorflow-cpu", "keras", "horovod", "mpi4py", "numpy", "protobuf", "sagemaker-tf-entrypoint")


def texts(code: Path) -> Iterator[tuple[str, str]]:
    """Yield each Python file, at most 2,000 of them: its name below `code`, and its text."""
    for path in files.ending(code, ".py"):
        with contextlib.suppress(OSError):
            if path.stat().st_size <= files.READ_BYTES:
                yield str(path.relative_to(code)), path.read_text("utf-8", errors="replace")


def digest_of_code(code: Path) -> str:
    """Return 12 characters for the user's code as it was fetched: names and contents, not what running it leaves."""
    import hashlib

    whole = hashlib.sha256()
    for path in sorted(Path(entry.path) for entry in files.below(code)):
        inside = path.relative_to(code)
        if not path.is_file() or inside.parts[0] in (".git", "build") or LEFT_BEHIND.search(str(inside)):
            continue
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            whole.update(f"{inside}\0{size}\0".encode("utf-8", "surrogateescape"))
            with path.open("rb") as file:  # of large files, most likely data, the size and the beginning
                whole.update(file.read(LARGE_BYTES))
    return whole.hexdigest()[:12]


def digest(text: str | bytes) -> str:
    import hashlib

    return hashlib.sha256(text if isinstance(text, bytes) else text.encode()).hexdigest()[:12]


def software(before: Mapping[str, Installed] | None = None) -> dict[str, str]:
    """Return versions of what a job consists of: Python, the packages that matter most, and the rest as one digest.

    What requirements have installed is named in lines; `before` is what was there.
    """
    after = installed()
    there = {name: each.version for name, each in after.items()}
    found = {"Python": sys.version.split()[0]}
    found |= {name: there.get(name, "") for name in NAMED}
    if before is not None:
        found["installed by requirements"] = "\n".join(
            sorted(f"{name} {there[name]}" for name in changed(before, after))
        )
    found["the set of Python packages"] = digest(json.dumps(sorted(there.items())))
    with contextlib.suppress(OSError):
        found["the set of Debian packages"] = digest(Path("/var/lib/dpkg/status").read_bytes())
    return found
