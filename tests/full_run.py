"""Record when all tests of each ring last ran, and on which sources: tests/full_run.json.

A default run leaves out variants (`pytest.mark.more`), rows of the outcome table among them, and the lines of the image
that are not the default. The record says when they last ran, and on which sources; it does not decide what runs.

    python tests/full_run.py check RING      # says so if there is none, and exits with 1
    python tests/full_run.py left COUNTS     # says what was left out
    python tests/full_run.py write COUNTS    # puts on record what passed; COUNTS: what conftest.py wrote, a line a ring
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
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def sources(ring: str) -> tuple[str, ...]:
    """Return what the ring is about; of a line of the image, what is not the same in all lines; `line-2.21-gpu`."""
    if ring == "table":  # its jobs run on this machine, their scripts import nothing of ours
        return ("entrypoint",)
    line = ring.removeprefix("line-")
    if line == ring:
        return SOURCES
    of_line = ("Dockerfile", f"container/lines/{line.removesuffix('-gpu')}")
    return (*of_line, "container/gpu") if line.endswith("-gpu") else of_line


def digest(root: Path = ROOT, names: tuple[str, ...] = SOURCES) -> str:
    """Return a digest of the sources: names and contents, but not layout, comments or docstrings of Python."""
    found = hashlib.sha256()
    for path in files(root, names):
        content = path.read_bytes()
        if path.suffix == ".py":
            content = ast.dump(without_docstrings(ast.parse(content))).encode()
        for part in (path.relative_to(root).as_posix().encode(), content):
            found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()[:16]


def without_docstrings(module: ast.Module) -> ast.Module:
    for node in ast.walk(module):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return module


def files(root: Path, names: tuple[str, ...] = SOURCES) -> Iterator[Path]:
    for name in names:
        for path in sorted([root / name, *(root / name).rglob("*")]):
            if path.is_file() and path.suffix not in (".md", ".pyc"):
                yield path


def why_needed(ring: str, record: Path = RECORD, root: Path = ROOT) -> str:
    """Return why all tests of the ring have to run again; "" if they have passed on these sources."""
    try:
        last = json.loads(record.read_text())[ring]
        before, when = last["digest"], f"{last['date']} ({last['commit']})"
    except (OSError, ValueError, KeyError, TypeError):
        return f"no full run of it is on record in {record.relative_to(root)}"
    return (
        "" if before == digest(root, sources(ring)) else f"the sources have changed since its last full run, of {when}"
    )


def write(counts: Path, record: Path = RECORD, root: Path = ROOT) -> None:
    """Put on record the rings of `counts` that left nothing out, beside those that ran before."""
    head: dict[str, Any] = machine.head("full test run")
    fields = {name: head[name] for name in ("date", "commit", "machine")}
    rings = json.loads(record.read_text()) if record.exists() else {}
    for ring in map(json.loads, counts.read_text().splitlines()):
        if ring.get("left_out") == 0:  # costs.py writes lines, too, of what is no ring of tests
            said = {name: ring[name] for name in ("tests", "skipped", "left_out", "seconds") if name in ring}
            rings[ring["ring"]] = fields | {"digest": digest(root, sources(ring["ring"]))} | said
    machine.keep(record, dict(sorted(rings.items())))


def left(counts: Path, record: Path = RECORD, root: Path = ROOT) -> str:
    """Return what a run left out, with when it last ran and the command for it; "" if nothing."""
    found = [
        f"{ring['left_out']} of {ring['ring']} ({why_needed(ring['ring'], record, root) or 'passed on these sources'})"
        for ring in map(json.loads, counts.read_text().splitlines())
        if ring.get("left_out")
    ]
    return f"left out, as variants of others: {'; '.join(found)}. `tests/run.sh --all` runs them, too" if found else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check").add_argument("ring")
    commands.add_parser("left").add_argument("counts", type=Path)
    commands.add_parser("write").add_argument("counts", type=Path)
    arguments = parser.parse_args()
    match arguments.command:
        case "write":
            write(arguments.counts)
        case "left":
            print(left(arguments.counts))
        case "check" if why := why_needed(arguments.ring):
            print(why)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
