"""Check that the script accepts the job's hyperparameters, and that the job has the channels and variables it reads."""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from entrypoint.base.errors import did_you_mean, nearest
from entrypoint.check.doctor.rulebook import finding, rules
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.launcher.job import params
from entrypoint.usercode.guards import set_or_asked, tried
from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.shell import started, without_comments
from entrypoint.usercode.source import Place, Use, parameters, text_of, texts_of, value_of

# Variables of SDK v3's own drivers.
_OF_V3 = [key.partition("/")[2] for key in rules() if key.startswith("variable-missing/")]
_WORDS = (  # of variables that sagemaker-training sets, beside SM_HP_* and SM_CHANNEL_*
    "HOSTS CURRENT_HOST NETWORK_INTERFACE_NAME CURRENT_INSTANCE_TYPE CURRENT_INSTANCE_GROUP INSTANCE_GROUPS "
    "CURRENT_INSTANCE_GROUP_HOSTS INSTANCE_GROUPS_DICT DISTRIBUTION_INSTANCE_GROUPS IS_HETERO TOPOLOGY HPS "
    "FRAMEWORK_PARAMS CHANNELS RESOURCE_CONFIG INPUT_DATA_CONFIG INPUT_DIR INPUT_CONFIG_DIR OUTPUT_DIR OUTPUT_DATA_DIR "
    "OUTPUT_INTERMEDIATE_DIR MODEL_DIR USER_ENTRY_POINT MODULE_NAME MODULE_DIR FRAMEWORK_MODULE LOG_LEVEL NUM_CPUS "
    "NUM_GPUS NUM_NEURONS USER_ARGS TRAINING_ENV"
)
VARIABLES = {f"SM_{word}" for word in _WORDS.split()}
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
        by_shell = case.code.main.path.suffix == ".sh"
        if not by_shell or [each.arguments for each in started(case.code.main.text)] == [("$@",)]:
            yield from _of_parser(case, options, whole)
            yield from _of_absl(case)
            yield from _of_other_parsers(case)
        elif case.code.started:
            yield from _of_shell(case, options)
        yield from _of_channels(case)
    if case.job or case.code.imports("tensorflow*"):
        for name, place in _needed(case.code, f"^(?:{'|'.join(_OF_V3)})$"):
            yield finding(f"variable-missing/{name}", place, name=name)
    if case.job is not None:
        given = {f"SM_HP_{key.upper()}" for key in params.of_the_script(case.hyperparameters)}
        for name, place in _needed(case.code, r"^SM_(?!CHANNEL_)\w+$", of="os.environ"):
            is_set = name in {*given, *case.environment, *_OF_V3, *VARIABLES}
            if not is_set and not case.code.mentions("except .*KeyError"):
                near = did_you_mean(name, given if name.startswith("SM_HP_") else VARIABLES)
                yield finding("variable-unknown", place, name=name, near=near)


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
            taken = [option for option in options if _is_of(option, key)]
            if not taken:
                sent = " (SDK v2's TensorFlow adds it)" if key == "model_dir" else ""
                yield _unknown(strict.place, key, sent, options)
            elif len(taken) > 1 and not any(key in option.keys for option in taken):
                names = ", ".join(option.names[0] for option in taken)
                yield finding("argument-unknown/ambiguous", strict.place, key=key, names=names)
        own_words = strict.argument("args", 0) is not None or case.code.mentions(r"sys\.argv")
        for use in () if own_words else case.code.calls(".add_argument"):
            name, count = text_of(use.argument("", 0)), use.argument("nargs")
            needed = count is None or value_of(count) == "+" or type(value_of(count)) is int
            whole_call = isinstance(use.node, ast.Call) and all(each.arg for each in use.node.keywords)
            always = needed and whole_call and not _of_another_command(use)
            if name and not name.startswith("-") and always:
                yield finding("argument-missing/positional", use.place, name=name)
    elif options and whole:
        for key in sorted(given.keys() - {"model_dir"}):
            near = next((option for option in options if _plain(key) in map(_plain, option.keys)), None)
            if near and not any(_is_of(option, key) for option in options):
                name = near.names[0]
                yield finding("argument-near", near.use.place, key=key, option=name, name=name.lstrip("-"))
    yield from _of_values(case, options)
    for option in options:
        if option.required and not any(_is_of(option, key) for key in given) and not _of_another_command(option.use):
            name = next(iter(sorted(option.keys, key=len, reverse=True)))
            yield finding("argument-missing", option.use.place, option=option.names[0], name=name)


def _of_shell(case: Case, options: list[Option]) -> Iterator[Finding]:
    """Yield hyperparameters that a shell script gets and does not pass on to the Python program that takes them."""
    main = case.code.main
    reads = re.search(r"\$\{?[@*#\d]|\bshift\b|\bgetopts\b|SM_|hyperparameters\.json", without_comments(main.text))
    if reads or case.code.mentions("SM_HP|SM_USER_ARGS|hyperparameters"):
        return
    given = params.of_the_script(case.hyperparameters).keys() - {"model_dir"}
    lost = sorted(key for key in given if any(key in each.keys for each in options) and f"--{key}" not in main.text)
    if lost:
        shell, program = main.path.name, case.code.started[-1].path.name
        place, keys = Place(file=main.shown, line=started(main.text)[-1].line), ", ".join(lost)
        yield finding("arguments-dropped", place, keys=keys, shell=shell, program=program, passed='"$@"')


def _plain(name: str) -> str:
    return name.replace("-", "_").lower()


def _unknown(place: Place, key: str, sent: str, options: list[Option]) -> Finding:
    near = nearest(key, [name for option in options for name in option.keys])
    instead = f'hyperparameters={{"{near}": ...}}, which the script has' if near else ""
    return finding("argument-unknown", place, key=key, option=_sent(key), sent=sent, instead=instead)


def _sent(key: str) -> str:
    """Return the command-line option by which SageMaker passes a hyperparameter."""
    return params.arguments({key: ""})[0]


def _is_of(option: Option, key: str) -> bool:
    """Return whether argparse assigns a hyperparameter to an option: by its name, or the beginning of a long name."""
    if len(key) == 1:  # sent as -x
        return f"-{key}" in option.names
    return key in option.keys or any(name.startswith(key) for name in option.keys)


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
            value = params.arguments({key: case.hyperparameters[key]})[-1]
            wanted = _wanted(option.use, value)
            if takes_none and strict:
                wanted = "no value, and a hyperparameter always has one"
            if wanted:
                rule, name = f"argument-refused{'/flag' * takes_none}", option.names[0]
                yield finding(rule, option.use.place, key=key, value=repr(value), option=name, wanted=wanted)


def _wanted(use: Use, value: str) -> str:
    """Describe the values that an option accepts, if it refuses this value; "" if it may accept this value."""
    kind, choices = use.argument("type"), use.argument("choices")
    if value.startswith("-") and len(value) > 1 and " " not in value and not re.fullmatch(r"-\d+|-\d*\.\d+", value):
        return "a value, and takes what begins with - for an option"
    if kind is not None and ast.unparse(kind) == "json.loads":
        try:
            json.loads(value)
        except ValueError:
            return "JSON"
    number = kind.id if isinstance(kind, ast.Name) and kind.id in _NUMBERS else ""
    if number and use.argument("nargs") and value.startswith("["):
        return f"several words of type={number}, and a list comes as one"
    if use.argument("nargs") or use.argument("action"):
        return ""
    if number:
        try:
            _NUMBERS[number](value)
        except ValueError:
            return f"type={number}"
    plain = isinstance(choices, ast.List | ast.Tuple) and all(isinstance(each, ast.Constant) for each in choices.elts)
    if plain and (kind is None or ast.unparse(kind) in ("str", "int")):
        taken = [str(each.value) for each in choices.elts]  # type: ignore[union-attr]
        return "" if value in taken else f"one of {', '.join(taken)}"
    return ""


def _of_absl(case: Case) -> Iterator[Finding]:
    """Yield absl's booleans with a value. absl would set such a flag to true and stop reading flags at the value."""
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


def _of_other_parsers(case: Case) -> Iterator[Finding]:
    """Yield hyperparameters that Hydra, click, absl or Fire refuse."""
    code, given = case.code, sorted(params.of_the_script(case.hyperparameters))
    if given and (use := code.first("hydra.main")) and not code.mentions("SM_HPS|sys.argv|compose"):
        yield finding("argument-unknown/hydra", use.place, keys=", ".join(given))
    lenient = code.mentions("ignore_unknown_options|known_only|argparse_flags|undefok")
    for parser, calls in {"click": ("click.option",), "absl": ("absl.flags.DEFINE_*", ".flags.DEFINE_*")}.items():
        uses = [use for use in code.calls(*calls) if isinstance(use.node, ast.Call)]
        words = [texts_of(vars(use.node)["args"]) for use in uses]
        names = {name.lstrip("-") for texts in words for text in texts for name in text.split("/")}
        for key in given:
            if uses and all(words) and key not in names and not lenient:
                yield finding("argument-unknown/other", uses[0].place, option=_sent(key), key=key, parser=parser)
    fire = code.call("fire.Fire")
    component = fire.argument("component", 0) if fire else None
    target = component.id if isinstance(component, ast.Name) else ""
    own = next((node for source, node in code.nodes(ast.FunctionDef) if node.name == target), None)
    if fire and own and not own.args.kwarg:
        for key in given:
            if key.replace("-", "_") not in parameters(own):
                yield finding("argument-unknown/other", fire.place, option=_sent(key), key=key, parser="Fire")


def _of_channels(case: Case) -> Iterator[Finding]:
    """Yield channels that the script reads by name and the job lacks, unless the script handles their absence."""
    there = set(case.channels)
    for variable, place in _needed(case.code, r"^SM_CHANNEL_\w+$"):
        name = variable.removeprefix("SM_CHANNEL_").lower()
        if name not in {each.lower() for each in there}:
            yield _absent(place, name, there)
    for use in case.code.calls(*(f"sagemaker_tf_data.*{name}" for name in _BY_CHANNEL)):
        named = use.argument("channel", 1 if use.name.endswith(".shard") else 0)
        in_group = any(re.fullmatch(rf"{re.escape(text_of(named))}-\d+", each) for each in there)
        if named and text_of(named) not in ("", *there) and not in_group and not tried(use.source, named):
            yield _absent(use.place, text_of(named), there)
    for source, node, found in case.code.strings(r"^/opt/ml/input/data/([\w.-]+)"):
        name = re.sub(r"_\d+$", "", found[1])
        missing = not {found[1], name, name.removesuffix("-manifest")} & there
        if missing and not tried(source, node) and not case.never_takes(source, node):
            yield _absent(source.at(node), found[1], there)


def _needed(code: UserProgram, names: str, of: str = "") -> Iterator[tuple[str, Place]]:
    """Yield the variables that match `names` and that the script reads without handling their absence.

    `of`: a mapping; its items count, but not the items of other mappings.
    """
    for source, node, found in code.strings(names):
        outer = source.parents.get(node)
        read = isinstance(outer, ast.Subscript) and isinstance(outer.ctx, ast.Load)
        if of and isinstance(outer, ast.Subscript) and source.dotted(outer.value) != of:
            continue
        by_shell = code.main.path.suffix == ".sh" and found[0] in code.main.text
        if read and not tried(source, node) and not set_or_asked(code, found[0]) and not by_shell:
            yield found[0], source.at(node)


def _absent(place: Place, name: str, there: set[str]) -> Finding:
    near = nearest(name, there)
    instead = f'fit({{"{name}": ...}}) in place of {near}, or SM_CHANNEL_{near.upper()}' if near else ""
    return finding("channel-missing", place, name=name, there=", ".join(sorted(there)) or "none", instead=instead)
