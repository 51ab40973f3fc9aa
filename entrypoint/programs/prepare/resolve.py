"""Report to `entrypoint doctor` how requirements would resolve on an image, before there is a job, installing nothing.

Standard input: {"files": requirements files, "lines": [[file, line, requirement], ...] of pip's calls in scripts,
"image": a line of image_lines.json, "" for an image that is not ours, "replace": of ENTRYPOINT_REPLACE, "environment":
of the job, as far as pip reads it, "index": whether one may be asked}. Standard output: {"wanted": [[file, line,
requirement, name of the distribution or ""], ...], "elsewhere": likewise, of those whose marker leaves the image out,
"refused": [[file, line, why], ...], "coming": how many packages would be installed, None if that is unknown,
"unresolved": why it is unknown}.

uv sees the image as a folder of metadata, and does what it does on a host, without installing. It builds metadata of
source distributions that have none, as pip does.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from installer import NO_CONNECTION, Installation, find_uv, resolved
from pins import Installed, Pins, add_aliases, installed, pins
from pip_options import configured, for_uv, variable_of
from refusals import LINES, of_pins, of_uv
from unusable import masked
from wanted import Files, Requirement, Wanted, as_wanted, read

REQUIRES = LINES.with_name("image_requires.json")  # distribution==version -> what it asks of others
TARGET = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_36")  # of the images
MARKERS = {
    "python_version": "3.11", "python_full_version": "3.11.2", "implementation_name": "cpython", "os_name": "posix",
    "platform_python_implementation": "CPython", "platform_machine": "x86_64", "platform_system": "Linux",
    "sys_platform": "linux",
}  # fmt: skip
# Of this machine's own configuration of pip: what leads to an index. The rest is the job's.
LEADS = ("index-url", "extra-index-url", "find-links", "cert", "proxy", "trusted-host", "timeout", "default-timeout")
SECONDS = 30.0  # for uv
UNREACHED = re.compile(f"{NO_CONNECTION.pattern}|authentication credentials", re.IGNORECASE)


def main() -> None:
    asked = json.load(sys.stdin)
    os.environ.update(asked["environment"])
    files = Files([], [], [])
    for file in asked["files"]:
        for every, more in zip(files, read(Path(file)), strict=True):
            every.extend(more)
    answer: dict[str, Any] = {"coming": None, "unresolved": ""}
    here = [each for each, _ in _on_image(files.wanted)] if asked["image"] else files.wanted
    for key, listed in {"wanted": here, "elsewhere": [each for each in files.wanted if each not in here]}.items():
        answer[key] = [
            (str(each.file), each.line, masked(each.text), each.requirement.name if each.requirement else "")
            for each in listed
            if not each.constraint
        ]
    answer["refused"] = list(_absent(asked["files"], files))
    answer["wanted"] += [(file, line, "", "") for file, line, _ in answer["refused"]]
    if asked["image"]:
        with tempfile.TemporaryDirectory() as scratch:
            there = image(asked["image"], Path(scratch, "image"))
            kept = pins(there, asked["replace"])
            in_scripts = [as_wanted(Path(file), line, text, constraint=False) for file, line, text in asked["lines"]]
            alone = (
                (each, of_pins([on_image], kept, there)) for each, on_image in _on_image(files.wanted + in_scripts)
            )
            answer["refused"] += [(str(each.file), each.line, masked(why)) for each, why in alone if why]
            if asked["index"] and asked["files"] and not answer["refused"]:
                planned = _Planned(Path(asked["files"][0]).parent, files, there, kept)
                answer |= planned.resolved(asked["files"], asked["environment"], Path(scratch))
    json.dump(answer, sys.stdout)


def _absent(paths: Sequence[str], files: Files) -> Iterator[tuple[str, int, str]]:
    """Yield (file, line, why) of lines that name a file or a folder that the code does not have."""
    named = [(each.file, each.line, each.text.partition("[")[0]) for each in files.wanted if not each.requirement]
    named = [each for each in named if re.match(r"(?!/)\.{0,2}[\w-]*/[^$;]*$", each[2])]  # ; begins a marker
    absent = [each for each in named if not any((Path(path).parent / each[2]).exists() for path in (*paths, each[0]))]
    for path in map(Path, paths):
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1):
            found = re.match(r"\s*(?:-r|-c|--requirement|--constraint)[\s=]*([^\s#$]+)(?:\s|$)", line)
            absent += [(path, number, found[1])] if found and str(path.parent / found[1]) in files.missing else []
    for file, number, name in absent:
        put = f"leave it out, or put {name} into the code"
        yield str(file), number, f"line {number} names {name}, and the code has no such file: {put}"


def image(line: str, folder: Path) -> dict[str, Installed]:
    """Write the metadata of all distributions of a line's image, with the aliases, into a folder. Return them."""
    requires = json.loads(REQUIRES.read_text())
    for name, version in json.loads(LINES.read_text())[line].items():
        place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        place.mkdir(parents=True)
        asks = [f"Requires-Dist: {each}" for each in requires.get(f"{name}=={version}", [])]
        text = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *asks, ""]
        (place / "METADATA").write_text("\n".join(text))
    there = installed([str(folder)])
    add_aliases(there)
    return there


def _on_image(wanted: Iterable[Wanted]) -> Iterable[tuple[Wanted, Wanted]]:
    """Yield each requirement whose marker holds on the image: as it is, and without the marker."""
    for each in wanted:
        marker = each.requirement and each.requirement.marker
        if not marker:
            yield each, each
        elif marker.evaluate(MARKERS):
            plain = Requirement(str(each.requirement))
            plain.marker = None
            yield each, each._replace(requirement=plain)


class _Planned(Installation):
    """Resolve what would be installed, on top of what the image has."""

    def __init__(self, code: Path, files: Files, there: Mapping[str, Installed], kept: Pins) -> None:
        super().__init__(code, False, True, files, (), "")
        self.before, self.pins = dict(there), kept

    def resolved(self, paths: Sequence[str], of_job: Mapping[str, str], scratch: Path) -> dict[str, Any]:
        """Return the part of the answer for which a package index is asked."""
        if "CA_REPOSITORY_ARN" in of_job:
            return {"unresolved": "their index is CodeArtifact's (CA_REPOSITORY_ARN), which takes the job's role"}
        mine = configured(self.environment)
        options = {name: value for name, value in mine.items() if name in LEADS or variable_of(name) in of_job}
        uv, how = find_uv(), for_uv(options, self.files.options)
        if not uv or isinstance(how, str):
            return {
                "unresolved": f"pip resolves them on a host, because of {how}" if uv else "uv is not installed here"
            }
        constraints = scratch / "constraints.txt"
        constraints.write_text(self.pins.constraints)
        command, environment = self._uv(uv, how, scratch, constraints)
        folder = next(iter(self.before.values())).folder.parent
        command += [*TARGET, "--target", str(folder)]
        in_files = scratch / "in_files.txt"
        in_files.write_text("\n".join(" ".join(words) for words in self.files.options))

        try:
            words = [word for path in paths for word in ("-r", path)]
            done = self._planned(command, words, environment, SECONDS)
            text = done.stderr.decode("utf-8", "replace")
            if (coming := resolved(done)) is not None:
                return {"coming": len(coming)}
            if UNREACHED.search(text) or (os.environ.get("UV_OFFLINE") and ["--no-index"] not in self.files.options):
                return {"unresolved": "no package index was reached"}

            def versions(requirements: Iterable[str]) -> dict[str, str] | None:
                return resolved(self._planned(command, ["-r", str(in_files), *requirements], environment, SECONDS))

            why = masked(of_uv(text, self.files.wanted, self.pins, self.before, versions))
        except subprocess.TimeoutExpired:
            return {"unresolved": f"that took more than {SECONDS:.0f} s"}
        if "No solution found" not in text or "pre-release" in text:  # pip may find one, or a host build what we do not
            return {"unresolved": why}
        at = next((each for each in self.files.wanted if why.startswith(each.at)), None)
        return {"refused": [(str(at.file), at.line, why) if at else (paths[0], 0, why)]}


if __name__ == "__main__":
    main()
