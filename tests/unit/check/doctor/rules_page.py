"""Write docs/rules.md: each rule of the doctor with what it finds, why, an example, and its remedy as a diff."""

import difflib
import json
from collections.abc import Iterator, Mapping, Set
from pathlib import PurePath
from typing import Any

from looking import REQUEST, change_of, fixed, joined, mended, script_of, without_none

from entrypoint.check.doctor.rulebook import rules

BEGIN = """# Rules of the doctor

`entrypoint doctor` names the rule of each finding in brackets; [its page](doctor.md) says how to run it. A test applies
each remedy to its example: the finding goes, and no other comes. The lower of several severities is for what is
uncertain.
"""
CONTEXT_LINES = 2
LANGUAGES = {".py": "python", ".sh": "sh", ".json": "json"}
REQUEST_FILE = "request.json"
Keys = tuple[str, ...]
"""The keys that lead to a value of a request."""


def page() -> str:
    lines, kind = [BEGIN], ""
    for name, rule in rules().items():
        if "/" not in name:
            lines += [f"## In the {rule.of}", ""] if rule.of != kind else []
            lines += [f"### `{name}`", "", f"*{rule.severity}*: {rule.finds} {rule.why}", ""]
            examples = sorted((each for of, each in fixed() if of == name), key=lambda each: "variant" in each)
            lines += [line for example in examples for line in _blocks(example)]
            kind = rule.of
    return "\n".join(lines).rstrip() + "\n"


def _blocks(example: dict[str, Any]) -> Iterator[str]:
    """Yield the bad example as blocks of code, then what its remedy changes as a diff."""
    cases = (example, mended(example))
    before, after = (_texts(each) for each in cases)
    asked, instead = (_values(each) for each in cases)
    special = {keys for keys, value in asked.items() if _values({}).get(keys) != value}
    mends = {keys for keys in {**asked, **instead} if asked.get(keys) != instead.get(keys)}
    script = next(iter(before))
    shown = mends if before[script] else mends | special
    if shown:
        before[REQUEST_FILE], after[REQUEST_FILE] = (_shown(each, shown) for each in (asked, instead))
    changed = [name for name in {**before, **after} if before.get(name, "") != after.get(name, "")]
    if "on" in example:
        yield from _block("sh", f"entrypoint doctor {REQUEST_FILE} --image {example['on']}")
    about = [f"# {'.'.join(keys)}: {value}\n" for keys, value in asked.items() if keys in special - shown]
    for name, text in before.items():
        if text not in ("", "{}"):
            language = LANGUAGES.get(PurePath(name).suffix, "text")
            yield from _block(f'{language} title="{name}"', "".join(about if name == script else ()) + text)
    yield from _block("diff", "\n".join(_diff(name, before.get(name, ""), after.get(name, "")) for name in changed))


def _texts(example: dict[str, Any]) -> dict[str, str]:
    """Return the files of an example, of which the first is the script."""
    given = {str(example.get("file", "train.py")): script_of(example), **example.get("files", {})}
    return given | {"requirements.txt": example.get("requirements", "")}


def _values(example: dict[str, Any]) -> dict[Keys, Any]:
    """Return the values of an example's request; a list counts as one."""

    def inside(value: Any, keys: Keys) -> Iterator[tuple[Keys, Any]]:
        if isinstance(value, Mapping):
            for key, each in value.items():
                yield from inside(each, (*keys, key))
        else:
            yield keys, value

    return dict(inside(without_none(joined(REQUEST, change_of(example) or {})), ()))


def _shown(values: Mapping[Keys, Any], shown: Set[Keys]) -> str:
    """Return the part of a request as JSON."""
    part: dict[str, Any] = {}
    for *outer, key in (keys for keys in values if keys in shown):
        place = part
        for each in outer:
            place = place.setdefault(each, {})
        place[key] = values[(*outer, key)]
    return json.dumps(part, indent=2)


def _diff(name: str, before: str, after: str) -> str:
    lines = [text.replace("\r", "^M").splitlines() for text in (before, after)]
    old, new, _, *rest = difflib.unified_diff(*lines, name, name, n=CONTEXT_LINES, lineterm="")
    return "\n".join([old, new, *("" if line.startswith("@@") else line for line in rest)])


def _block(language: str, text: str) -> list[str]:
    return [f"```{language}", text.replace("\r", "^M").replace("\ufeff", "").strip("\n"), "```", ""]
