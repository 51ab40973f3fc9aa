"""Explain why requirements cannot be met: which line asks for what, what is here, and what to write instead."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.version import Version
from pins import TENSORFLOWS, Installed, Pins, Range, normalized
from unusable import masked
from wanted import Wanted

LINES = Path(__file__).with_name("image_lines.json")  # line of our images -> name -> version
DEPENDS = re.compile(
    r"([A-Za-z0-9._-]+(?:\[[^]]*\])?(?:[<>=!~][^\s{]*)?) depends? on ([A-Za-z0-9._-]+)(?:\{[^}]*\})?([<>=!~]\S*)"
)
UNSTATED = re.compile(r" needs ([\w-]+)((?:>=|<)[\d.]+), and")  # in Range.why
LONGEST = 600  # characters of uv's own words
# What a build printed, as pip and uv pass it on; of uv, stderr.
_OUTPUTS = re.compile(r"lines? of output\]\n(.*?)\[end of output\]|\[stderr\]\n(.*?)(?=\nhint:|\Z)", re.DOTALL)
# Which of its lines is the reason, the surest first: a pattern, and which of several.
_REASONS = (
    (r": fatal error: |: error: (?!ld returned)|/ld: cannot find|undefined reference to", 0),  # compilers
    # of setuptools without a compiler, too
    (r"^CMake Error|^configuration error: |^error(\[E\d+\])?: (?![Cc]ommand )", 0),
    (r"^[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|NotFound|Invalid\w*|Failed)(: |$)", -1),  # Python
    (r"^error: ", -1),
)
_MEANINGS = {".egg-info": "it calls no setup()"}  # of setuptools, which finds nothing that was made
# What was built: of uv, of pip while it asks for metadata, and of pip while it builds.
_BUILT = (
    r"Failed to build `([^`]+)`",
    r"^ERROR: Failed to build (\S+) when",
    r"^\S+> from (\S+)$",
    r"Failed building wheel for (\S+)",
)
SHOWN = 3  # of several refusals


# Resolves requirements beside what is installed: name -> version to come, None if there is no solution.
Resolve = Callable[[Iterable[str]], dict[str, str] | None]


class Wish(NamedTuple):
    """Hold what a line of the requirements asks of a pinned distribution, or of a dependency of one."""

    wanted: Wanted
    name: str
    specifier: str
    through: str = ""  # the dependency that asks, if it is not the line itself


def of_pins(wanted: Sequence[Wanted], pins: Pins, there: Mapping[str, Installed]) -> str:
    """Return why requirements cannot be met, judged by their versions alone; "" if no version conflicts."""
    wishes = []
    for each in wanted:
        requirement = each.requirement
        if each.constraint or not requirement or requirement.url or not _counts(requirement.marker):
            continue
        name = normalized(requirement.name)
        if name in pins.barred:
            wishes.append(Wish(each, name, ""))
        elif name in pins.versions:
            if not _fits(str(requirement.specifier), pins.versions[name]):
                wishes.append(Wish(each, name, str(requirement.specifier)))
        elif _against(requirement, pins):
            wishes.append(Wish(each, name, str(requirement.specifier)))
    texts = [
        f"{wish.wanted.at} asks for {wish.wanted.text}, and {_state(wish, pins, there)}: "
        f"{_what_is_here(wish, pins, there)}{_elsewhere(wish, pins)}"
        for wish in wishes
    ]
    more = f"; and {len(texts) - SHOWN} more lines" if len(texts) > SHOWN else ""
    return "; ".join(texts[:SHOWN]) + more


def _counts(marker: Any) -> bool:
    return marker is None or bool(marker.evaluate({"extra": ""}))


def _fits(specifier: str, version: str) -> bool:
    return bool(Requirement(f"x{specifier}").specifier.contains(version, prereleases=True))


def _is_met(name: str, specifier: str, pins: Pins) -> bool:
    return name in pins.versions and _fits(specifier, pins.versions[name])


def _against(requirement: Any, pins: Pins) -> list[Range]:
    """Return the wishes of pinned distributions that no version of the required one can meet."""
    return [
        each
        for each in pins.ranges
        if each.name == normalized(requirement.name)
        and (not each.marker or _counts(Requirement(f"x; {each.marker}").marker))
        and _exclude(_bounds(requirement.specifier), _bounds(Requirement(f"x{each.specifier}").specifier))
    ]


def _bounds(specifiers: Iterable[Any]) -> tuple[list[tuple[Any, bool]], list[tuple[Any, bool]]]:
    """Return the bounds of specifiers from below and from above, each as (version, whether it is excluded itself)."""
    lower, upper = [(Version("0"), False)], []
    for each in specifiers:
        if each.version.endswith("*"):
            continue
        if each.operator in (">=", ">", "~=", "=="):
            lower.append((Version(each.version), each.operator == ">"))
        if each.operator in ("<=", "<", "=="):
            upper.append((Version(each.version), each.operator == "<"))
    return lower, upper


def _exclude(first: Any, second: Any) -> bool:
    return any(
        low > high or (low == high and (above or below))
        for lowers, uppers in ((first[0], second[1]), (second[0], first[1]))
        for low, above in lowers
        for high, below in uppers
    )


def _state(wish: Wish, pins: Pins, there: Mapping[str, Installed]) -> str:
    """Return why a wish cannot be met."""
    own = next((name for name in TENSORFLOWS if name in pins.versions), "")
    if wish.name in pins.barred:
        return f"{own} {pins.versions[own]} is here, whose files it would overwrite"
    if wish.name in pins.versions:
        why = (
            f", which {_tensorflow(pins)} and what is built with it need"
            if own and wish.name not in TENSORFLOWS
            else ""
        )
        return f"{wish.name} is {pins.versions[wish.name]} here{why}"
    ranges = [each for each in pins.ranges if each.name == wish.name]
    against = ranges if wish.through else _against(wish.wanted.requirement, pins)
    return against[0].why


def _tensorflow(pins: Pins) -> str:
    return f"TensorFlow {pins.versions['tensorflow']}"


def _what_is_here(wish: Wish, pins: Pins, there: Mapping[str, Installed]) -> str:
    version = pins.versions.get(wish.name) or (there[wish.name].version if wish.name in there else "")
    if version:
        return f"write {wish.name}=={version} or leave it out"
    fits = (
        "" if wish.name in pins.barred else ",".join(each.specifier for each in _against(wish.wanted.requirement, pins))
    )
    return f"write {wish.name}{fits}" if fits and "<0" not in fits.split(",") else "leave it out"


def _elsewhere(wish: Wish, pins: Pins) -> str:
    """Return where a wish can be met: in another of our images, by replacing what is here, or in one's own image."""
    against = [] if wish.name in (*pins.versions, *pins.barred) else _against(wish.wanted.requirement, pins)
    unstated = next((found for each in against if (found := UNSTATED.search(each.why))), None)
    if unstated:  # what another image must have for it
        wish = Wish(wish.wanted, unstated[1], unstated[2], "")
    elif wish.name not in pins.versions:
        return ""
    own = ".".join(pins.versions.get("tensorflow", "").split(".")[:2])
    for line, versions in json.loads(LINES.read_text()).items():
        version = versions.get(wish.name) or (versions.get("tensorflow-cpu", "") if wish.name == "tensorflow" else "")
        if not line.endswith("-gpu") and line != own and version and _fits(wish.specifier, version):
            return f"; the image of ./build.sh --tensorflow {line} has {wish.name} {version}"
    if unstated:
        return ""
    return f"; or build on an image that has it (./build.sh --on IMAGE), or set ENTRYPOINT_REPLACE={wish.name}"


def of_uv(text: str, wanted: Sequence[Wanted], pins: Pins, there: Mapping[str, Installed], resolve: Resolve) -> str:
    """Return the cause that uv names, as one line."""
    if "No solution found" not in text:
        return _of_failure(text)
    cause = " ".join(text.partition("No solution found when resolving dependencies")[2].partition("\nhint:")[0].split())
    cause = cause.removeprefix(":").strip().removeprefix("cause:").strip()
    named = {normalized(name) for name in re.findall(r"(?:you require|\band) (?!you )([A-Za-z0-9][\w.-]*)", cause)}
    theirs = {*pins.versions, *(each.name for each in pins.ranges)}
    blamed = [each for each in wanted if each.requirement and normalized(each.requirement.name) in named]
    blamed = [each for each in blamed if normalized(each.requirement.name) not in pins.versions] or blamed
    asked = [
        (package, normalized(name), specifier.rstrip(",."))
        for package, name, specifier in DEPENDS.findall(cause)
        if normalized(name) in theirs and not _is_met(normalized(name), specifier.rstrip(",."), pins)
    ]
    if not blamed or not asked:
        denied = re.search(r"hint: .*((?:lack of|invalid|denied)[^.]*\(40[13][^)]*\))", text)
        return _in_its_own_words(cause, blamed) + (f" (an index answered: {denied[1]})" if denied else "")
    first, (package, name, specifier) = blamed[0], asked[0]
    wish = Wish(first, name, specifier, package)
    own = normalized(re.split(r"[\[<>=!~]", package)[0])
    needs = "which needs" if own == normalized(first.requirement.name) else f"for which {package} needs"
    return (
        f"{first.at} asks for {first.text}, {needs} {name}{specifier}, and {_state(wish, pins, there)}: "
        f"{_instead(first, there, resolve)}{_elsewhere(wish, pins)}"
    )


def _in_its_own_words(cause: str, blamed: Sequence[Wanted]) -> str:
    """Return uv's own text about requirements that contradict one another, or that no index has."""
    cause = cause.removesuffix(".").removesuffix(", we can conclude that your requirements are unsatisfiable")
    lines = " and ".join(each.at for each in blamed[:SHOWN])
    if len(blamed) == 1 and (found := re.fullmatch(r"Because (.*) and you require \S+", cause)):
        return f"{lines} asks for {blamed[0].text}, but {found[1][:LONGEST]}"
    if len(blamed) > 1 and (found := re.fullmatch(r"Because you require (.*)", cause)):
        return f"{lines} contradict one another: {found[1][:LONGEST]}"
    return f"{lines}{': ' if lines else ''}{cause[:LONGEST]}"


def _instead(blamed: Wanted, there: Mapping[str, Installed], resolve: Resolve) -> str:
    """Return the version of a requirement that fits, by resolving it again without the version that was asked for."""
    requirement = blamed.requirement
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    name = normalized(requirement.name)
    found = resolve([f"{requirement.name}{extras}"])
    version = (found or {}).get(name) or (there[name].version if found is not None and name in there else "")
    if version:
        return f"write {requirement.name}{extras}=={version}, which fits"
    return f"no version of {requirement.name} fits"


def _of_failure(text: str) -> str:
    """Return uv's line about why something could not be built, fetched or read."""
    heads = re.findall(r"^\s*(?:error|cause): (.*)", text, re.MULTILINE)
    if why := of_build(text):
        through = re.search(r"was included because `([^`]+)`", text)  # uv's hint: by what, at the end of a chain
        asked = f", which {through[1]} asks for," if through else ""
        return f"ERROR: {built(text)[0] or 'a package'}{asked} could not be built from its sources: {why}"
    return f"ERROR: {': '.join(heads)[:LONGEST]}" if heads else f"ERROR: {text.strip()[-LONGEST:]}"


def of_build(text: str) -> str:
    """Return the line of a build's output that has the reason, as uv or pip prints it; "" if nothing was built."""
    found = _OUTPUTS.findall(text)
    lines = [line.strip() for line in max(found[-1], key=len).splitlines() if line.strip()] if found else []
    for pattern, which in _REASONS:
        if numbers := [number for number, line in enumerate(lines) if re.search(pattern, line)]:
            line = " ".join(lines[numbers[which] :][: 2 if lines[numbers[which]].endswith((":", "):")) else 1])
            return next((words for mark, words in _MEANINGS.items() if mark in line), line[:LONGEST])
    return lines[-1][:LONGEST] if lines else ""


def built(text: str) -> tuple[str, str]:
    """Return the name and the URL of what could not be built; each is "" if the tool does not print it."""
    named = [found.strip("'") for pattern in _BUILT for found in re.findall(pattern, text, re.MULTILINE)]
    name, _, url = (named[-1] if named else "").partition(" @ ")
    return ("", name) if "://" in name else (name, url)


def of_own_build(text: str, code: Path, wanted: Sequence[Wanted]) -> str:
    """Return why the code's own setup.py or pyproject.toml could not be built; "" if another build failed.

    The tools do not know the code's name while they ask for its metadata. While pip builds, it prints the name alone.
    """
    (name, url), why = built(text), of_build(text)
    files = [each for each in ("setup.py", "setup.cfg", "pyproject.toml") if (code / each).is_file()]
    if url:
        is_own = url == code.as_uri()
    elif name:
        words = re.findall(r"[\w.-]+", " ".join((code / each).read_text(errors="replace") for each in files))
        is_own = normalized(name) in map(normalized, words)
    else:
        is_own = all(each.requirement and not each.requirement.url for each in wanted)
    if not (why and is_own):
        return ""
    file = next(iter(files), "the package")
    is_empty = file == "setup.py" and not (code / file).read_bytes().strip()
    said = f"is empty: {why}; wanted one that calls it, or none" if is_empty else f"cannot be installed: {why}"
    return f"{file} in {code} {masked(said)}"
