"""Find the values that expressions of a script have in a job: by its variables, channels and hyperparameters."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from entrypoint.check.doctor.subject import Case
from entrypoint.launcher.job import params
from entrypoint.usercode.guards import sets
from entrypoint.usercode.known_values import UNKNOWN
from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.source import SourceFile, Use, given_to, text_of, value_of

FOLDERS = {
    "SM_MODEL_DIR": "/opt/ml/model",
    "SM_INPUT_DIR": "/opt/ml/input",
    "SM_INPUT_CONFIG_DIR": "/opt/ml/input/config",
    "SM_OUTPUT_DIR": "/opt/ml/output",
    "SM_OUTPUT_DATA_DIR": "/opt/ml/output/data",
    "SM_OUTPUT_INTERMEDIATE_DIR": "/opt/ml/output/intermediate",
}
_READS = ("os.environ.get", "os.getenv", "os.environ.pop")
_TYPES: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float}


@dataclass(frozen=True, kw_only=True)
class Option:
    """Describe an option of argparse or a flag of absl."""

    names: tuple[str, ...]  # as written: --epochs, -e
    required: bool
    use: Use
    default: ast.AST | None = None
    kind: str = ""  # the name of its type

    @property
    def keys(self) -> set[str]:
        return {name.lstrip("-") for name in self.names}

    @property
    def dest(self) -> str:
        """Return the attribute that has the value."""
        name = next((each for each in self.names if each.startswith("--")), self.names[0])
        return text_of(self.use.argument("dest")) or name.lstrip("-").replace("-", "_")

    def takes(self, key: str) -> bool:
        """Return whether argparse assigns a hyperparameter to it: by its name, or the beginning of a long name."""
        if len(key) == 1:  # sent as -x
            return f"-{key}" in self.names
        return key in self.keys or any(name.startswith(key) for name in self.keys)


def options_of(code: UserProgram) -> tuple[list[Option], bool]:
    """Return (options of argparse, whether these are all). If an option's name is computed, there may be others."""
    found, whole = [], True
    for use in code.calls(".add_argument"):
        assert isinstance(use.node, ast.Call)
        names = [name for name in map(use.source.constant, use.node.args) if isinstance(name, str)]
        if len(names) < len(use.node.args) or not use.node.args:
            whole = False
        if any(name.startswith("-") for name in names):
            required = value_of(use.argument("required")) is True
            kind = ast.unparse(each) if (each := use.argument("type")) else "str"
            default = use.argument("default")
            found.append(Option(names=tuple(names), required=required, use=use, default=default, kind=kind))
    return found, whole


def flags_of(code: UserProgram) -> list[Option]:
    """Return the flags of absl; those without a name that is known are left out."""
    calls = list(code.calls("absl.flags.DEFINE_*", ".flags.DEFINE_*"))
    marks = list(code.calls(".mark_flag_as_required", ".mark_flags_as_required"))
    needed = {each.value for use in marks for each in ast.walk(use.node) if isinstance(each, ast.Constant)}
    return [
        Option(
            names=(name,),
            required=name in needed or value_of(use.argument("required")) is True,
            use=use,
            default=use.argument("default", 1),
            kind={"string": "str", "integer": "int", "float": "float"}.get(use.name.rpartition("DEFINE_")[2], ""),
        )
        for use in calls
        if (name := use.source.constant(use.argument("name", 0)))
    ]


def values(case: Case, source: SourceFile, node: ast.AST | None) -> tuple[Any, ...]:
    """Return the values that an expression may have in a job; UNKNOWN among them if there may be others."""
    return case.code.values(source, node, partial(_given, case))


def is_parsed(source: SourceFile, node: ast.AST | None) -> bool:
    """Return whether an expression is sure to be the job's arguments as a parser of the script returns them."""
    return _leads(source, node, lambda end: _parses(source, end))


def _parses(source: SourceFile, node: ast.AST | None) -> bool:
    match node:
        case ast.Subscript(value=ast.Call(func=ast.Attribute(attr="parse_known_args")) as call, slice=ast.Constant(0)):
            pass
        case ast.Call(func=ast.Attribute(attr="parse_args")) as call:
            pass
        case _:
            return False
    return all(ast.unparse(each) == "sys.argv[1:]" for each in given_to(call)) and _leads(
        source, vars(call.func)["value"], lambda end: isinstance(end, ast.Call) and source.last(end) == "ArgumentParser"
    )


def _leads(source: SourceFile, node: ast.AST | None, to: Callable[[ast.AST | None], bool], deep: int = 0) -> bool:
    """Return whether each value that an expression may have meets the condition `to`.

    The values are found by following names and the results of the script's own functions.
    """
    scopes = source.values.scopes
    if deep > 5 or to(node):
        return deep <= 5
    match node:
        case ast.Name():
            return all(_leads(source, each, to, deep + 1) for each in scopes.origins(node))
        case ast.Call(func=ast.Name() as function):
            ends = [end for own in scopes.origins(function) if own for end in scopes.ends(own)]
            return bool(ends) and all(_leads(source, end.value, to, deep + 1) for end in ends)
    return False


def _given(case: Case, source: SourceFile, node: ast.AST) -> tuple[Any, ...] | None:
    match node:
        case ast.Subscript(value=of, slice=ast.Constant(str(name))) if source.dotted(of) == "os.environ":
            value = _variable(case, name)
            return (UNKNOWN if value is None else value,)
        case ast.Call(args=[ast.Constant(str(name)), *default]) if source.dotted(node.func) in _READS:
            value = _variable(case, name)
            if value is None:
                return values(case, source, default[0]) if default else (None,)
            return None if value == UNKNOWN else (value,)
        case ast.Attribute(value=ast.Name() as base, attr=name) if is_parsed(source, base):
            return _of_options(case, [each for each in options_of(case.code)[0] if each.dest == name])
        case ast.Attribute(attr=name) if source.dotted(node).endswith("flags.FLAGS." + name):
            return _of_options(case, [each for each in flags_of(case.code) if each.dest == name])
    return None


def _variable(case: Case, name: str) -> str | None:
    """Return the value of an environment variable in a job; None if it is not set."""
    if any(sets(case.code, name)):
        return UNKNOWN
    if name in case.environment or name in FOLDERS:
        return case.environment.get(name) or FOLDERS.get(name, "")
    if case.job and name.startswith("SM_CHANNEL_"):
        return next(
            (f"/opt/ml/input/data/{each}" for each in case.channels if f"SM_CHANNEL_{each.upper()}" == name), None
        )
    if case.job and name.startswith("SM_HP_"):
        given = params.of_the_script(case.hyperparameters)
        return next((params.arguments({key: given[key]})[-1] for key in given if f"SM_HP_{key.upper()}" == name), None)
    return UNKNOWN


def _of_options(case: Case, options: list[Option]) -> tuple[Any, ...]:
    """Return the values that a parser gives to an attribute."""
    changed = case.code.has(".set_defaults") or any(
        source.values.scopes.stores.get(option.dest) for source in case.code.sources for option in options
    )
    if len(options) != 1 or changed or any(options[0].use.argument(name) for name in ("action", "nargs")):
        return (UNKNOWN,)
    option = options[0]
    found = list(_written(case, option)) if case.job else [UNKNOWN]
    default = values(case, option.use.source, option.default) if option.default else (None,)
    return tuple(found) if case.job and found else (*found, *default)


def _written(case: Case, option: Option) -> Iterator[Any]:
    for key, value in params.of_the_script(case.hyperparameters).items():
        if option.takes(key):
            try:
                yield _TYPES[option.kind](params.arguments({key: value})[-1])
            except (KeyError, ValueError):
                yield UNKNOWN
