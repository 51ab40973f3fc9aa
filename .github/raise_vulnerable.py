#!/usr/bin/env python3
"""Raise the pins of a line that have known vulnerabilities to the lowest versions without them.

    .github/raise_vulnerable.py 2.14 >told.md

It asks pip-audit, leaves alone what SECURITY.md accepts, writes requirements.txt, gpu.txt and gpu-jax.txt of the line
anew, and prints what it has done as Markdown. container/lines/lock.sh then makes the hashes anew; the tests decide.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
HEAD = "| package | from | to | vulnerability |\n|---|---|---|---|"


def lowest(vulnerabilities: Iterable[Mapping[str, Any]], current: str) -> str:
    """Return the lowest version that fixes all of these, "" if one of them is fixed in none."""
    needed = []
    for each in vulnerabilities:
        fixes = [Version(fix) for fix in each["fix_versions"] if Version(fix) > Version(current)]
        if not fixes:
            return ""
        needed.append(min(fixes))
    return str(max(needed))


def raised(pins: str, found: Mapping[str, str]) -> str:
    """Return the text of a requirements file with new versions, by name."""
    for name, version in found.items():
        pins = re.sub(rf"(?mi)^({re.escape(name)}==)[^\s;]+", rf"\g<1>{version}", pins)
    return pins


def table(audit: Mapping[str, Any], accepted: Iterable[str]) -> tuple[dict[str, str], str]:
    """Return new versions by name, and what was found as Markdown, from pip-audit's JSON."""
    known, versions, rows = set(accepted), {}, []
    for package in audit["dependencies"]:
        names = {each["id"]: {each["id"], *each["aliases"]} for each in package.get("vulns", ())}
        open_ = [each for each in package.get("vulns", ()) if not names[each["id"]] & known]
        if not open_:
            continue
        to = lowest(open_, package["version"])
        if to:
            versions[package["name"]] = to
        ids = ", ".join(sorted({min(names[each["id"]]) for each in open_}))
        rows.append(f"| {package['name']} | {package['version']} | {to or 'no fix: decide in SECURITY.md'} | {ids} |")
    return versions, "\n".join([HEAD, *rows]) if rows else "No vulnerabilities beside those that SECURITY.md accepts."


def main() -> None:
    line = sys.argv[1]
    folder = ROOT / "container" / "lines" / line
    command = ["pip-audit", "--disable-pip", "--require-hashes", "--format", "json"]
    for locked in sorted(folder.glob("*locked.txt")):
        command += ["-r", str(locked)]
    asked = subprocess.run(command, capture_output=True, text=True)
    if not asked.stdout.startswith("{"):  # it ends with 1 if it finds some
        sys.exit(f"pip-audit ended with {asked.returncode}: {asked.stderr}")
    accepted = re.findall(rf"(?m)^\| {re.escape(line)} \|.*?(CVE-\d+-\d+)", (ROOT / "SECURITY.md").read_text())
    versions, words = table(json.loads(asked.stdout), accepted)
    for name in ("requirements.txt", "gpu.txt", "gpu-jax.txt"):
        pins = folder / name
        if pins.exists():
            pins.write_text(raised(pins.read_text(), versions))
    print(words)


if __name__ == "__main__":
    main()
