"""Check that the script accepts the job's hyperparameters, and that the job has the channels and variables it reads."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from entrypoint.check.doctor.rulebook import finding, rules
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.launcher.job import params
from entrypoint.usercode.guards import set_or_asked, tried
from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.source import Place, Use, text_of, texts_of, value_of

# Variables of SDK v3's own drivers.
_OF_V3 = [key.partition("/")[2] for key in rules() if key.startswith("variable-missing/")]
_BY_CHANNEL = ("channel", "part", "files", "file_names", "pipe_dataset", "shard")  # functions of our library
_FLAGS = ("store_true", "store_false", "store_const", "count")
_NUMBERS = {"int": int, "float": float}


@dataclass(frozen=True, kw_only=True)
class Option:
    """Describe an option of argparse."""

    names: tuple[str, ...]  # as written: --epochs, -e
    required: bool
    use: Use

    @property
    def keys(self) -> set[str]:
        return {name.lstrip("-") for name in self.names}


def of_arguments(case: Case) -> Iterator[Finding]:
    """Yield hyperparameters that the script refuses or misses, and channels and variables that the job lacks."""
    options, whole = _options(case.code)
    for use in case.code.calls(".add_argument"):
        kind = use.argument("type")
        if isinstance(kind, ast.Name) and kind.id == "bool":
            yield finding("bool-argument", use.place, written=use.written)
    if case.job is not None:
        yield from _of_parser(case, options, whole)
        yield from _of_absl(case)
        yield from _of_channels(case)
    if case.job or case.code.imports("tensorflow*"):
        for name, place in _needed(case.code, f"^(?:{'|'.join(_OF_V3)})$"):
            yield finding(f"variable-missing/{name}", place, name=name)


def _options(code: UserProgram) -> tuple[list[Option], bool]:
    """Return (options, whether these are all). If an option's name is computed, there may be others."""
    found, whole = [], True
    for use in code.calls(".add_argument"):
        assert isinstance(use.node, ast.Call)
        names = texts_of(use.node.args)
        if len(names) < len(use.node.args) or not use.node.args:
            whole = False
        if any(name.startswith("-") for name in names):
            required = value_of(use.argument("required")) is True
            found.append(Option(names=tuple(names), required=required, use=use))
    return found, whole


def _of_parser(case: Case, options: list[Option], whole: bool) -> Iterator[Finding]:
    parsers = case.code.calls(".parse_args", ".parse_known_args")
    if any(isinstance(use.argument("args", 0), ast.List | ast.Tuple) for use in parsers):
        return  # a list written in the script, such as `parse_args([])` of a notebook
    given = params.of_the_script(case.hyperparameters)
    strict = case.code.call(".parse_args")
    if strict and options and whole and not case.code.has(".parse_known_args"):
        for key in sorted(given):
            if not any(_is_of(option, key) for option in options):
                sent = " (SDK v2's TensorFlow adds it)" if key == "model_dir" else ""
                yield finding("argument-unknown", strict.place, key=key, sent=sent)
    yield from _of_values(case, options)
    for option in options:
        if option.required and not any(_is_of(option, key) for key in given) and not _of_another_command(option.use):
            name = next(iter(sorted(option.keys, key=len, reverse=True)))
            yield finding("argument-missing", option.use.place, option=option.names[0], name=name)


def _is_of(option: Option, key: str) -> bool:
    """Return whether argparse assigns a hyperparameter to an option: by its name, or the beginning of a long name."""
    return key in option.keys or any(name.startswith(key) for name in option.keys if len(key) > 1)


def _of_another_command(use: Use) -> bool:
    """Return whether only some runs have an option: it is added in a condition, or to a subcommand's parser."""
    if tried(use.source, use.node):
        return True
    node = use.node.func if isinstance(use.node, ast.Call) else None
    parser = ast.unparse(node.value) if isinstance(node, ast.Attribute) else ""
    makers = (each.value for each in use.source.assignments.get(parser, ()))
    return any(isinstance(each, ast.Call) and use.source.last(each) == "add_parser" for each in makers)


def _of_values(case: Case, options: list[Option]) -> Iterator[Finding]:
    """Yield values that argparse refuses: by `type=`, by `choices=`, or because an option takes none."""
    strict = not case.code.has(".parse_known_args")
    for option in options:
        action = option.use.argument("action")
        takes_none = value_of(action) in _FLAGS
        takes_none = takes_none or (action is not None and ast.unparse(action).endswith("BooleanOptionalAction"))
        for key in sorted(option.keys & case.hyperparameters.keys()):
            value = str(case.hyperparameters[key])
            wanted = _wanted(option.use, value)
            if takes_none and strict:
                wanted = "no value, and a hyperparameter always has one"
            if wanted:
                rule, name = f"argument-refused{'/flag' * takes_none}", option.names[0]
                yield finding(rule, option.use.place, key=key, value=repr(value), option=name, wanted=wanted)


def _wanted(use: Use, value: str) -> str:
    """Return what an option accepts, if it refuses this value; "" if it may accept it."""
    kind, choices = use.argument("type"), use.argument("choices")
    if use.argument("nargs") or use.argument("action"):
        return ""
    if isinstance(kind, ast.Name) and kind.id in _NUMBERS:
        try:
            _NUMBERS[kind.id](value)
        except ValueError:
            return f"type={kind.id}"
    plain = isinstance(choices, ast.List | ast.Tuple) and all(isinstance(each, ast.Constant) for each in choices.elts)
    if plain and (kind is None or ast.unparse(kind) in ("str", "int")):
        taken = [str(each.value) for each in choices.elts]  # type: ignore[union-attr]
        return "" if value in taken else f"one of {', '.join(taken)}"
    return ""


def _of_absl(case: Case) -> Iterator[Finding]:
    """Yield booleans of absl that get a value: absl sets the flag to true and stops reading flags at the value."""
    given = params.of_the_script(case.hyperparameters)
    for use in case.code.calls(".DEFINE_boolean", ".DEFINE_bool"):
        key = text_of(use.argument("name", 0))
        if key in given:
            value = str(given[key])
            false = value.lower() in ("false", "0", "no")
            behind = sorted(other for other in given if other > key)
            if false or behind:
                what = "sets it to true" if false else "sets it"
                more = f", and absl does not read {', '.join(behind)} behind it" if behind else ""
                yield finding("bool-flag", use.place, key=key, value=repr(value), text=value, sets=what, more=more)


def _of_channels(case: Case) -> Iterator[Finding]:
    """Yield channels that the script reads by name and the job lacks, unless the script handles their absence."""
    there = set(case.channels)
    for variable, place in _needed(case.code, r"^SM_CHANNEL_\w+$"):
        name = variable.removeprefix("SM_CHANNEL_").lower()
        if name not in {each.lower() for each in there}:
            yield _absent(place, name, there)
    for use in case.code.calls(*(f"sagemaker_tf_data.*{name}" for name in _BY_CHANNEL)):
        named = use.argument("channel", 1 if use.name.endswith(".shard") else 0)
        if named and value_of(named) and value_of(named) not in there and not tried(use.source, named):
            yield _absent(use.place, str(value_of(named)), there)
    for source, node, found in case.code.strings(r"^/opt/ml/input/data/([\w.-]+)"):
        name = re.sub(r"_\d+$", "", found[1])
        missing = not {found[1], name, name.removesuffix("-manifest")} & there
        if missing and not tried(source, node) and not case.never_takes(source, node):
            yield _absent(source.at(node), found[1], there)


def _needed(code: UserProgram, names: str) -> Iterator[tuple[str, Place]]:
    """Yield the environment variables with such names that the script reads, unless it handles their absence."""
    for source, node, found in code.strings(names):
        outer = source.parents.get(node)
        read = isinstance(outer, ast.Subscript) and isinstance(outer.ctx, ast.Load)
        if read and not tried(source, node) and not set_or_asked(code, found[0]):
            yield found[0], source.at(node)


def _absent(place: Place, name: str, there: set[str]) -> Finding:
    return finding("channel-missing", place, name=name, there=", ".join(sorted(there)) or "none")
