"""container/lines: what is locked is what is pinned."""

import re
from pathlib import Path

import pytest

LINES = Path(__file__).resolve().parents[2] / "container/lines"
NAMES = [path.name for path in sorted(LINES.iterdir()) if path.is_dir()]


def parts(file: Path) -> list[list[str]]:
    """The pins of each part, in order."""
    found: list[list[str]] = []
    for line in file.read_text().splitlines():
        if line.startswith("# ==== "):
            found.append([])
        elif match := re.match(r"[a-z][\w.-]*==\S+", line):
            found[-1].append(match[0])
    return [sorted(part) for part in found]


@pytest.mark.parametrize("name", NAMES)
def test_a_line_is_locked_as_it_is_pinned(name: str) -> None:
    pinned, locked = parts(LINES / name / "requirements.txt"), parts(LINES / name / "locked.txt")
    assert pinned == locked, f"wanted: container/lines/lock.sh {name}"
    assert len(pinned) == 4


@pytest.mark.parametrize("name", NAMES)
def test_every_locked_version_has_a_hash(name: str) -> None:
    text = (LINES / name / "locked.txt").read_text()
    for pin in re.split(r"\n(?=[a-z])", text)[1:]:
        assert re.match(r"[a-z][\w.-]*==\S+ \\\n    --hash=sha256:[0-9a-f]{64}", pin), pin[:200]


@pytest.mark.parametrize("patch", sorted(LINES.glob("*/patches/*")), ids=lambda path: path.name)
def test_a_patch_says_why(patch: Path) -> None:
    why = patch.read_text().partition("\n--- ")[0]
    assert patch.suffix == ".patch" and why.startswith("Horovod ") and "\n- " in why
