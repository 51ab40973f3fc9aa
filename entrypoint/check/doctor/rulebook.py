"""Read the doctor's rules from rules.toml and base/remedies.py, and make findings with the words of the rules."""

import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from entrypoint.base.remedies import REMEDIES
from entrypoint.base.severity import Severity
from entrypoint.check.finding import Finding
from entrypoint.usercode.source import Place

if sys.version_info >= (3, 11):
    import tomllib  # novm
else:
    import tomli as tomllib


@dataclass(frozen=True, kw_only=True)
class CheckRule:
    """Describe one rule of the doctor, as in docs/rules.md, with the words of its findings."""

    of: str  # the kind of file
    severity: str  # the usual one first
    finds: str
    found: str = ""  # ${NAME} stands for a word of the case
    instead: str = ""
    why: str = ""  # the harm that it does


@functools.cache
def read_table(name: str) -> dict[str, Any]:
    """Return one of the doctor's tables: the content of a .toml file beside this one."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8"))


@functools.cache
def rules() -> dict[str, CheckRule]:
    """Return all rules by name, then NAME/VARIANT for rules with several wordings."""
    shared = {key: {"instead": words} for key, words in REMEDIES.items()}
    read = {key: {**values, **shared.get(key, {})} for key, values in read_table("rules").items()}
    return {key: CheckRule(**{**read[key.partition("/")[0]], **values}) for key, values in read.items()}


def variant(name: str, of: str) -> str:
    """Return the key of a rule's variant for a case; the key of the rule itself if it has no such variant."""
    return f"{name}/{of}" if f"{name}/{of}" in rules() else name


def remedy(name: str) -> str:
    """Return what a rule says to put, for a rehearsal that finds the same fault. It must name nothing of a case."""
    return Template(rules()[name].instead).substitute()


def finding(
    key: str, place: Place, /, *, severity: Severity | None = None, found: str = "", instead: str = "", **words: object
) -> Finding:
    """Return a finding of a rule. `found`, `instead` and `severity` replace the rule's own."""
    rule = rules()[key]
    return Finding(
        severity or Severity[rule.severity.split()[0].strip(",;").upper()],
        key.partition("/")[0],
        found or Template(rule.found).substitute(words),
        instead or Template(rule.instead).substitute(words),
        place,
    )
