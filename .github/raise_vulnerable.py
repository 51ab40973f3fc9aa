#!/usr/bin/env python3
"""Raise the pins of a line that have known vulnerabilities to the lowest versions without them.

    .github/raise_vulnerable.py 2.14 >told.md

It asks pip-audit, leaves alone what SECURITY.md accepts, writes requirements.txt, gpu.txt and gpu-jax.txt of the line
and the line's rows in SECURITY.md anew, and prints what it has done as Markdown. container/lines/lock.sh then makes the
hashes anew; the tests decide.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
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


def security(text: str, line: str, audit: Mapping[str, Any], versions: Mapping[str, str], today: str) -> str:
    """Return the text of SECURITY.md with the line's rows anew.

    A row stays while its package has that version. A vulnerability without a fix gets a row whose reason a person has
    to write before the request is merged.
    """
    old = re.findall(rf"(?m)^\| {re.escape(line)} \|.*\n", text)
    packages = [each for each in audit["dependencies"] if "version" in each]
    pinned = {f"{each['name']} {versions.get(each['name'], each['version'])}": each for each in packages}
    kept = [row for row in old if row.split("|")[2].strip().lower() in map(str.lower, pinned)]
    new = [
        f"| {line} | {package} | [{each['id']}](https://osv.dev/vulnerability/{each['id']}) | | to be decided |\n"
        for package, found in pinned.items()
        if found["name"] not in versions
        for each in found.get("vulns", ())
        if not any(name in row for row in kept for name in (each["id"], *each["aliases"]))
    ]
    rows = "".join([*kept, *new]) or f"| {line} | none known | | | |\n"
    text = text.replace("".join(old), rows)
    return re.sub(r"(?m)^The table is of [-0-9]+", f"The table is of {today}", text)


def main() -> None:
    line = sys.argv[1]
    folder = ROOT / "container" / "lines" / line
    command = ["pip-audit", "--disable-pip", "--require-hashes", "--format", "json"]
    for locked in sorted(folder.glob("*locked.txt")):
        command += ["-r", str(locked)]
    asked = subprocess.run(command, capture_output=True, text=True)
    if not asked.stdout.startswith("{"):  # it ends with 1 if it finds some
        sys.exit(f"pip-audit ended with {asked.returncode}: {asked.stderr}")
    audit, page = json.loads(asked.stdout), ROOT / "SECURITY.md"
    accepted = re.findall(rf"(?m)^\| {re.escape(line)} \|.*?(CVE-\d+-\d+)", page.read_text())
    versions, words = table(audit, accepted)
    page.write_text(security(page.read_text(), line, audit, versions, f"{datetime.now(timezone.utc):%Y-%m-%d}"))
    for name in ("requirements.txt", "gpu.txt", "gpu-jax.txt"):
        pins = folder / name
        if pins.exists():
            pins.write_text(raised(pins.read_text(), versions))
    print(words)


if __name__ == "__main__":
    main()
