"""Test .github/raise_vulnerable.py on output of pip-audit."""

import importlib.util
import re
from pathlib import Path

import pytest

pytest.importorskip("packaging")
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / ".github" / "raise_vulnerable.py"
spec = importlib.util.spec_from_file_location("raise_vulnerable", PROGRAM)
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)


def vulnerability(name, *fixes, aliases=()):
    return {"id": name, "fix_versions": list(fixes), "aliases": list(aliases), "description": ""}


AUDIT = {
    "dependencies": [
        {"name": "keras", "version": "2.14.0", "vulns": [vulnerability("GHSA-1", "3.13.2", aliases=["CVE-2026-1462"])]},
        {
            "name": "requests",
            "version": "2.31.0",
            "vulns": [vulnerability("GHSA-2", "2.32.0", "1.0"), vulnerability("GHSA-3", "2.32.4", aliases=["CVE-9-9"])],
        },
        {"name": "old", "version": "1.0", "vulns": [vulnerability("GHSA-4")]},
        {"name": "numpy", "version": "1.26.4", "vulns": []},
        {"name": "skipped", "skip_reason": "not on the index"},
    ]
}


def test_fixable_vulnerable_pins_are_raised_and_others_reported():
    versions, words = program.table(AUDIT, ["CVE-2026-1462"])
    assert versions == {"requests": "2.32.4"}
    assert words.splitlines()[2:] == [
        "| requests | 2.31.0 | 2.32.4 | CVE-9-9, GHSA-2 |",
        "| old | 1.0 | no fix: decide in SECURITY.md | GHSA-4 |",
    ]


def test_accepted_vulnerabilities_raise_no_pin():
    versions, words = program.table({"dependencies": AUDIT["dependencies"][:1]}, ["CVE-2026-1462"])
    assert (versions, words) == ({}, "No vulnerabilities beside those that SECURITY.md accepts.")


def test_security_page_keeps_pinned_rows_and_requests_reasons():
    page = (
        "| Line | Package |\n|---|---|\n| 2.14 | keras 2.14.0 | CVE-2026-1462 | 3.13.2 | TensorFlow 2.14 wants it |\n"
        "| 2.14 | requests 2.31.0 | CVE-9-9 | 2.32.4 | for a while |\n| 2.21 | none known | | | |\n\n"
        "The table is of 2026-11-23. More.\n"
    )
    assert program.security(page, "2.14", AUDIT, {"requests": "2.32.4"}, "2027-01-01") == (
        "| Line | Package |\n|---|---|\n| 2.14 | keras 2.14.0 | CVE-2026-1462 | 3.13.2 | TensorFlow 2.14 wants it |\n"
        "| 2.14 | old 1.0 | [GHSA-4](https://osv.dev/vulnerability/GHSA-4) | | to be decided |\n"
        "| 2.21 | none known | | | |\n\nThe table is of 2027-01-01. More.\n"
    )
    clean = {"dependencies": [{"name": "keras", "version": "3.15.1", "vulns": []}]}
    assert "| 2.14 | none known | | | |\n| 2.21 | none known | | | |\n" in program.security(
        page, "2.14", clean, {}, "2027-01-01"
    )


def test_only_the_pin_of_the_vulnerable_package_changes():
    pins = "# ==== part 3\nrequests==2.31.0\nrequests-toolbelt==1.0.0\nnumpy==1.26.4 ; python_version > '3'\n"
    assert program.raised(pins, {"requests": "2.32.4", "numpy": "2.0"}) == (
        "# ==== part 3\nrequests==2.32.4\nrequests-toolbelt==1.0.0\nnumpy==2.0 ; python_version > '3'\n"
    )


def test_workflows_call_files_that_exist():
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        for path in re.findall(
            r"(?m)(?:^|[ ;&])((?:\.github|container|tests|examples|docs)/[\w./-]+\.(?:py|sh))", workflow.read_text()
        ):
            assert (ROOT / path).exists(), f"{workflow.name}: {path}"
