"""Say why requirements cannot be met: which line asks for what, what is here, and what to write instead."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pins import TENSORFLOWS, Installed, Pins, normalized
from wanted import Requirement, Wanted

LINES = Path(__file__).with_name("image_lines.json")  # line of our images -> name -> version
DEPENDS = re.compile(
    r"([A-Za-z0-9._-]+(?:\[[^]]*\])?(?:[<>=!~][^\s{]*)?) depends on ([A-Za-z0-9._-]+)(?:\{[^}]*\})?([<>=!~]\S*)"
)
LONGEST = 600  # characters of uv's own words
SHOWN = 3  # of several refusals


class Resolve(NamedTuple):
    """Hold a function that resolves requirements beside what is installed: name -> version to come, None if none."""

    versions: Callable[[Iterable[str]], dict[str, str] | None]


class Wish(NamedTuple):
    """Hold what a line asks of a distribution that stays as it is."""

    wanted: Wanted
    name: str  # of the distribution that stays
    specifier: str  # what is asked of it
    through: str = ""  # the dependency that asks, if it is not the line itself


def of_pins(wanted: Sequence[Wanted], pins: Pins, there: Mapping[str, Installed]) -> str:
    """Return why requirements cannot be met, by their own versions alone; "" if nothing speaks against them."""
    wishes = []
    for each in wanted:
        name = normalized(each.requirement.name) if each.requirement else ""
        if each.constraint or not name or (each.requirement.marker and not each.requirement.marker.evaluate()):
            continue
        if name in pins.barred:
            wishes.append(Wish(each, name, ""))
        elif name in pins.versions and not each.requirement.url and not _fits(each.requirement, pins.versions[name]):
            wishes.append(Wish(each, name, str(each.requirement.specifier)))
    texts = [_direct(wish, pins, there) for wish in wishes]
    more = f"; and {len(texts) - SHOWN} more lines" if len(texts) > SHOWN else ""
    return "; ".join(texts[:SHOWN]) + more


def _fits(requirement: Any, version: str) -> bool:
    return bool(requirement.specifier.contains(version, prereleases=True))


def _direct(wish: Wish, pins: Pins, there: Mapping[str, Installed]) -> str:
    asks = f"{wish.wanted.at} asks for {wish.wanted.text}"
    if wish.name in pins.barred:
        own = next(name for name in TENSORFLOWS if name in pins.versions)
        return f"{asks}, and {own} {pins.versions[own]} is here, whose files it would overwrite: leave it out"
    version = pins.versions[wish.name]
    return (
        f"{asks}, and {wish.name} is {version} here{_built_with(wish.name, pins)}: "
        f"write {wish.name}=={version} or leave it out{_elsewhere(wish, pins)}"
    )


def _built_with(name: str, pins: Pins) -> str:
    own = pins.versions.get("tensorflow")
    return f", which TensorFlow {own} and what is built with it need" if own and name not in TENSORFLOWS else ""


def _elsewhere(wish: Wish, pins: Pins) -> str:
    """Return where the wish can be met: in another of our images, by replacing what is here, or in one's own image."""
    own = ".".join(pins.versions.get("tensorflow", "").split(".")[:2])
    for line, versions in json.loads(LINES.read_text()).items():
        version = versions.get(wish.name) or (versions["tensorflow-cpu"] if wish.name == "tensorflow" else "")
        if not line.endswith("-gpu") and line != own and version and _fits(Requirement(f"x{wish.specifier}"), version):
            return f"; the image of ./build.sh --tensorflow {line} has {wish.name} {version}"
    return f"; or build on an image that has it (./build.sh --on IMAGE), or set ENTRYPOINT_REPLACE={wish.name}"


def of_uv(text: str, wanted: Sequence[Wanted], pins: Pins, there: Mapping[str, Installed], resolve: Resolve) -> str:
    """Return the cause that uv names, as one line."""
    if "No solution found" not in text:
        return _of_failure(text)
    cause = " ".join(text.partition("No solution found when resolving dependencies")[2].partition("\nhint:")[0].split())
    cause = cause.removeprefix(":").strip().removeprefix("cause:").strip()
    named = {normalized(name) for name in re.findall(r"you require ([A-Za-z0-9][A-Za-z0-9._-]*)", cause)}
    named |= {normalized(name) for name in re.findall(r"and ([A-Za-z0-9][A-Za-z0-9._-]*)(?=[=<>!~]| we can)", cause)}
    blamed = [
        each for each in wanted if each.requirement and normalized(each.requirement.name) in named - {*pins.versions}
    ]
    asked = [
        (package, normalized(name), specifier.rstrip(",."))
        for package, name, specifier in DEPENDS.findall(cause)
        if normalized(name) in pins.versions or normalized(name) in pins.barred
    ]
    if not blamed or not asked:
        return f"{', '.join(each.at for each in blamed[:SHOWN])}{': ' if blamed else ''}{cause[:LONGEST]}"
    first, (package, name, specifier) = blamed[0], asked[0]
    wish = Wish(first, name, specifier, package)
    asks = f"{first.at} asks for {first.text}"
    own = normalized(re.split(r"[\[<>=!~]", package)[0])
    needs = "which needs" if own == normalized(first.requirement.name) else f"for which {package} needs"
    version = pins.versions.get(name) or next(pins.versions[each] for each in TENSORFLOWS if each in pins.versions)
    state = f"{asks}, {needs} {name}{specifier}, and {name} is {version} here{_built_with(name, pins)}"
    return f"{state}: {_instead(first, there, resolve)}{_elsewhere(wish, pins)}"


def _instead(blamed: Wanted, there: Mapping[str, Installed], resolve: Resolve) -> str:
    """Return the version of a requirement that fits, by resolving it again without the version that was asked for."""
    requirement = blamed.requirement
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    name = normalized(requirement.name)
    found = resolve.versions([f"{requirement.name}{extras}"])
    version = (found or {}).get(name) or (there[name].version if found is not None and name in there else "")
    if version:
        return f"write {requirement.name}{extras}=={version}, which fits"
    return f"no version of {requirement.name} fits"


def _of_failure(text: str) -> str:
    """Return the line of uv's that says why something could not be built, fetched or read."""
    heads = re.findall(r"^\s*(?:error|cause): (.*)", text, re.MULTILINE)
    built = re.search(r"Failed to build `([^`]+)`", text)
    inner = text.rpartition("[stderr]")[2].partition("\nhint:")[0] if "[stderr]" in text else ""
    lines = [line.strip() for line in inner.splitlines() if line.strip()]
    own = next((line for line in lines if re.search(r": (fatal )?error: ", line)), lines[-1] if lines else "")
    if own:
        return f"ERROR: {built[1] + ': ' if built else ''}{own[:LONGEST]}"
    return f"ERROR: {': '.join(heads)[:LONGEST]}" if heads else f"ERROR: {text.strip()[-LONGEST:]}"
