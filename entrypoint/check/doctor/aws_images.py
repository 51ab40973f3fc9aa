"""Read packages.toml: the modules of our images, modules that only AWS's images have, and the modules of packages."""

import json
from pathlib import Path

from entrypoint.check.doctor.rulebook import read_table

_TABLES = read_table("packages")
_IMAGE_LINES = json.loads((Path(__file__).parents[2] / "programs/prepare/image_lines.json").read_text())
_LINES = {line: " ".join(versions) for line, versions in _IMAGE_LINES.items() if not line.endswith("-gpu")}
# Modules of the image that come from none of the pins.
_OWN = {"entrypoint", "sagemaker_tf_data", "smdistributed", "tensorflow_core"}
_NAMED, _BRING = _TABLES["named"], {**dict.fromkeys(_TABLES["alone"].split(), ""), **_TABLES["bring"]}
AWS_COMMANDS = frozenset(_TABLES["commands"]["aws"].split())
AWS_COMMANDS_ON_GPUS = frozenset(_TABLES["commands"]["aws-on-gpus"].split())
COMMANDS_LACKING = AWS_COMMANDS | AWS_COMMANDS_ON_GPUS | {*_TABLES["commands"]["nowhere"].split()}
LACKING: dict[str, str] = _TABLES["lacking"]
REMEDIES: dict[str, str] = {**LACKING, **_TABLES["remedies"]}
NEEDS_SYSTEM: dict[str, list[str]] = _TABLES["system"]
COMMANDS_OF: dict[str, str] = _TABLES["commands"]["of"]


def _of_line(table: dict[str, str], line: tuple[int, int]) -> list[str]:
    """Return the table's words for a line of the image: of that line, else of the one before it, else of the first."""
    lines = {tuple(map(int, name.split("."))): words for name, words in table.items() if name[0].isdigit()}
    return lines[max((each for each in lines if each <= line), default=min(lines))].split()


def own_modules(distribution: str) -> frozenset[str]:
    """Return a package's own modules. The package's name is as pip normalizes it."""
    if distribution.startswith("google-cloud-"):
        return frozenset(("google", "google.cloud"))
    return frozenset(_NAMED.get(distribution, distribution.replace("-", "_")).split())


def modules_of(distribution: str) -> frozenset[str]:
    """Return the modules that a package and its dependencies bring."""
    return own_modules(distribution) | {*_BRING.get(distribution, "").split()}


def is_known(distribution: str) -> bool:
    """Return whether these tables list a package's modules."""
    return distribution in {**_BRING, **_NAMED} or any(distribution in packages.split() for packages in _LINES.values())


def ours(line: tuple[int, int]) -> frozenset[str]:
    """Return the modules that our image of a line has, without Python's own."""
    return frozenset(_OWN).union(*map(own_modules, _of_line(_LINES, line)))


def remedy(distribution: str, line: tuple[int, int]) -> str:
    """Return advice for a module that the image of a line lacks.

    `distribution`: the module's package, "" if unknown.
    """
    known = _TABLES["instead"].get(".".join(map(str, line)), {})
    name = distribution or "the package that brings it"
    return str(known.get(distribution) or f"{name} in requirements.txt beside the script")


def on_aws(line: tuple[int, int]) -> frozenset[str]:
    """Return the modules that AWS's image of a line has and ours may lack."""
    packages = [*_TABLES["aws"]["both"].split(), *_of_line(_TABLES["aws"], line)]
    return frozenset[str]().union(*map(modules_of, packages))


def package_of(module: str) -> str:
    """Return the package that brings a module; "" if it is unknown."""
    found = [each for each in (*_BRING, *_NAMED) if module in own_modules(each)]
    # Of OpenCV the one that needs no libraries for windows, which our image lacks.
    return min(found, key=lambda each: ("contrib" in each, "headless" not in each), default="")
