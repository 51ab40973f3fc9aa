"""When all tests last ran, and of which sources: tests/full_run.json.

A default run leaves variants out (`pytest.mark.more`). It may leave out rows of the outcome table, which cover the
launcher, only if a full run of the same sources is on record.

    python tests/full_run.py check                     # says so if there is none, and exits with 1
    python tests/full_run.py left COUNTS               # says what was left out
    python tests/full_run.py write COUNTS [STEP...]    # COUNTS: lines of JSON that conftest.py wrote, one for each ring
"""

import argparse
import ast
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import machine  # noqa: E402  (after the path is set)

RECORD = ROOT / "tests" / "full_run.json"
SOURCES = ("Dockerfile", "container", "entrypoint", "sagemaker_tf_data")  # the pins are in `container`


def digest(root: Path = ROOT) -> str:
    """Return what changes with the sources of the image: names and contents, but not layout or comments of Python."""
    found = hashlib.sha256()
    for path in files(root):
        content = path.read_bytes()
        if path.suffix == ".py":
            content = ast.dump(ast.parse(content)).encode()
        for part in (path.relative_to(root).as_posix().encode(), content):
            found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()[:16]


def files(root: Path) -> Iterator[Path]:
    for name in SOURCES:
        for path in sorted([root / name, *(root / name).rglob("*")]):
            if path.is_file() and path.suffix not in (".md", ".pyc"):
                yield path


def why_needed(record: Path = RECORD, root: Path = ROOT) -> str:
    """Return why a default run has to cover all of the outcome table; "" if it need not."""
    try:
        last = json.loads(record.read_text())
        before, when = last["digest"], f"{last['date']} ({last['commit']})"
    except (OSError, ValueError, KeyError, TypeError):
        return f"no full run is on record in {record.relative_to(root)}"
    return "" if before == digest(root) else f"the sources have changed since the last full run, of {when}"


def write(counts: Path, steps: list[str], record: Path = RECORD, root: Path = ROOT) -> None:
    head: dict[str, Any] = machine.head("full test run")
    fields = {name: head[name] for name in ("what", "date", "commit", "machine")}
    rings = [json.loads(line) for line in counts.read_text().splitlines()]
    machine.write(record, {**fields, "digest": digest(root), "steps": steps, "runs": rings})


def left(counts: Path, record: Path = RECORD, root: Path = ROOT) -> str:
    """Return what a run left out, with the command for it and when they last ran; "" if nothing."""
    rings = [json.loads(line) for line in counts.read_text().splitlines()]
    found = [f"{ring['left_out']} of {ring['ring']}" for ring in rings if ring["left_out"]]
    if not found:
        return ""
    ran = why_needed(record, root) or "they have passed on these sources"
    return f"left out, as variants of others: {', '.join(found)}; {ran}; `tests/run.sh --all` runs them, too"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check")
    commands.add_parser("left").add_argument("counts", type=Path)
    writes = commands.add_parser("write")
    writes.add_argument("counts", type=Path)
    writes.add_argument("steps", nargs="*")
    arguments = parser.parse_args()
    match arguments.command:
        case "write":
            write(arguments.counts, arguments.steps)
        case "left":
            print(left(arguments.counts))
        case "check" if why := why_needed():
            print(f"{why}: all rows of the outcome table run")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
