"""Test that SECURITY.md's rows are about what is pinned."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| ([\d.]+) \| ([\w-]+ [\w.]+) \| \[CVE-\d+-\d+\]", re.M)


def test_a_vulnerability_is_of_a_version_that_its_line_pins() -> None:
    rows = ROW.findall((ROOT / "SECURITY.md").read_text())
    assert rows
    for line, package in rows:
        pins = (ROOT / "container/lines" / line / "locked.txt").read_text().splitlines()
        assert any(pin.startswith(package.replace(" ", "==") + " ") for pin in pins), (line, package)
