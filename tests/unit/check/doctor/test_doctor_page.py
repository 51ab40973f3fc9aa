"""Test docs/doctor.md's table of checks; `python tests/unit/check/doctor/test_doctor_page.py --refresh` writes it."""

import re
import sys
from pathlib import Path

from entrypoint.check.doctor.catalogue import table

PAGE = Path(__file__).resolve().parents[4] / "docs/doctor.md"
BETWEEN = re.compile(r"(<!-- checks:begin -->\n).*(<!-- checks:end -->)", re.S)


def written() -> str:
    return BETWEEN.sub(lambda ends: f"{ends[1]}\n{table()}\n\n{ends[2]}", PAGE.read_text())


def test_the_page_has_every_check() -> None:
    assert PAGE.read_text() == written(), "wanted: python tests/unit/check/doctor/test_doctor_page.py --refresh"


if __name__ == "__main__" and sys.argv[1:] == ["--refresh"]:
    PAGE.write_text(written())
