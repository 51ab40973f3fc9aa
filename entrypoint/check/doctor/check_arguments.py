"""Check that the script accepts the job's hyperparameters, and that the job has the channels and variables it reads."""

import argparse
import ast
import json
import re
from collections.abc import Iterator

from entrypoint.base.errors import did_you_mean, nearest
from entrypoint.check.doctor.job_values import Option, flags_of, is_parsed, options_of, values
from entrypoint.check.doctor.rulebook import finding, rules
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.launcher.job import params
from entrypoint.usercode.guards import set_or_asked, tried
from entrypoint.usercode.known_values import is_known
from entrypoint.usercode.reached import reached
from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.shell import started, without_comments
from entrypoint.usercode.source import Place, SourceFile, Use, UseKind, parameters, text_of, texts_of, value_of

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
_NO_FOLDER = r"^/opt/ml/(input(?!/(?:data|config)\b)|inputs/data|inputs|data|input_data)/([\w.-]+)"
_CHANNEL = re.compile(r"/opt/ml/input/data/((?!\.\.\.)[\w.-]+)/")
_FALSE = ("false", "0", "no", "off", "none")
# Calls that refuse a number that comes as text, by the last word of their names.
_OPTIMIZERS = ("Adam", "SGD", "RMSprop", "AdamW", "Adagrad")
_FIRST_IS_NUMBER = (
    *("range", "batch", "repeat", "take", "skip", "shuffle", "prefetch", "Dropout", "Embedding", "LSTM", "GRU"),
    *_OPTIMIZERS,
)
_NUMBERS_OF = {
    "fit": ("epochs", "batch_size", "steps_per_epoch", "validation_split", "initial_epoch"),
    "EarlyStopping": ("patience",),
    **dict.fromkeys(_OPTIMIZERS, ("learning_rate",)),
}
_TAKES_PATH = ("os.path.join", "pathlib.Path", "open", "numpy.load", "pandas.read_csv", "tensorflow.io.read_file")
# How other code adds to parsed arguments, or takes a parser for its own options.
_CHANGES_ARGUMENTS = (
    r"setattr\(|__dict__|namespace=|parents=|vars\(\w+\)(\.update|\[)|[(,] *\w*parser *[,)]|Namespace\("
)


def of_arguments(case: Case) -> Iterator[Finding]:
    """Yield hyperparameters that the script refuses or misses, and channels and variables that the job lacks."""
    options, whole = options_of(case.code)
    for use in case.code.calls(".add_argument"):
        kind = use.argument("type")
        if isinstance(kind, ast.Name) and kind.id == "bool":
            yield finding("bool-argument", use.place, written=use.written)
    if case.job is not None:
        by_shell = case.code.main.path.suffix == ".sh"
        if not by_shell or [each.arguments for each in started(case.code.main.text)] == [("$@",)]:
            flags = flags_of(case.code)
            yield from _of_parser(case, options, whole)
            yield from _of_attributes(case, options, whole)
            yield from _of_absl(case, flags)
            yield from _of_other_parsers(case, flags)
        elif case.code.started:
            yield from _of_shell(case, options)
        yield from _of_numbers(case)
        yield from _of_channels(case)
    if case.job or case.code.imports("tensorflow*"):
        for name, place in _needed(case.code, f"^(?:{'|'.join(_OF_V3)})$"):
            yield finding(f"variable-missing/{name}", place, name=name)
    if case.job is not None:
        given = {f"SM_HP_{key.upper()}" for key in params.of_the_script(case.hyperparameters)}
        for name, place in _needed(case.code, r"^SM_(?!CHANNEL_)\w+$", of="os.environ"):
            is_set = name in {*given, *case.environment, *_OF_V3, *VARIABLES}
            if not is_set and not case.code.mentions("except .*KeyError"):
                known = given if name.startswith("SM_HP_") else VARIABLES
                near = nearest(name, known)
                instead = f'os.environ["{near}"]' if near else ""
                yield finding("variable-unknown", place, name=name, near=did_you_mean(name, known), instead=instead)


def _of_parser(case: Case, options: list[Option], whole: bool) -> Iterator[Finding]:
    parsers = case.code.calls(".parse_args", ".parse_known_args")
    if any(isinstance(use.argument("args", 0), ast.List | ast.Tuple) for use in parsers):
        return  # a list written in the script, such as `parse_args([])` of a notebook
    given = params.of_the_script(case.hyperparameters)
    strict = case.code.call(".parse_args")
    if strict and options and whole and not case.code.has(".parse_known_args"):
        for key in sorted(given):
            taken = [option for option in options if option.takes(key)]
            if not taken and (longer := _of_one_letter(key, options)):
                yield finding("argument-unknown/letter", longer.use.place, key=key)
            elif not taken:
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
            if longer := _of_one_letter(key, options):
                yield finding("argument-near/letter", longer.use.place, key=key)
            elif near and not any(option.takes(key) for option in options):
                name = near.names[0]
                yield finding("argument-near", near.use.place, key=key, option=name, name=name.lstrip("-"))
    yield from _of_values(case, options)
    for option in options:
        if option.required and not any(option.takes(key) for key in given) and not _of_another_command(option.use):
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


def _of_one_letter(key: str, options: list[Option]) -> Option | None:
    """Return the option --x of a hyperparameter that comes as -x, if no option takes it."""
    taken = len(key) != 1 or any(option.takes(key) for option in options)
    return None if taken else next((option for option in options if f"--{key}" in option.names), None)


def _of_attributes(case: Case, options: list[Option], whole: bool) -> Iterator[Finding]:
    """Yield attributes that the parsed arguments do not have. What other code may add to them is unknown."""
    names = {option.dest for option in options}
    for use in case.code.calls(".add_argument", ".add_subparsers", ".set_defaults"):
        names |= {text_of(use.argument("dest")), text_of(use.argument("", 0))}
        names |= {each.arg or "" for each in use.call.keywords} if use.name.endswith("defaults") else set()
    if not (options and whole) or case.code.mentions(_CHANGES_ARGUMENTS):
        return
    for source, node in case.code.nodes(ast.Attribute):
        lacks = node.attr not in names and not hasattr(argparse.Namespace(), node.attr)
        stored = any(each.values.scopes.stores.get(node.attr) for each in case.code.sources)
        if lacks and not stored and not tried(source, node) and is_parsed(source, node.value):
            near = nearest(node.attr, names)
            instead = f"{ast.unparse(node.value)}.{near}" if near else ""
            yield finding(
                "attribute-missing", source.at(node), written=ast.unparse(node), name=node.attr, instead=instead
            )


def _of_numbers(case: Case) -> Iterator[Finding]:
    """Yield texts that come from a variable or an option without `type=`, where a call takes a number."""
    for use in case.code.calls("*"):
        call = use.node
        assert isinstance(call, ast.Call)
        taker = use.last
        given = [word.value for word in call.keywords if word.arg in _NUMBERS_OF.get(taker, ())]
        given += call.args[:1] if taker in _FIRST_IS_NUMBER and (use.name == "range") == (taker == "range") else []
        for node in given:
            origins = use.source.values.scopes.origins(node) if isinstance(node, ast.Name) else [node]
            for origin in origins if len(origins) == 1 and not tried(use.source, node) else ():
                if how := _text_of_job(case, use.source, origin):
                    name = ast.unparse(node)
                    yield finding("text-as-number", use.source.at(node), name=name, taker=taker, instead=how)


def _text_of_job(case: Case, source: SourceFile, node: ast.AST | None) -> str:
    """Return how to write an expression as a number, if the job gives it as text; else ""."""
    seen = values(case, source, node)
    if (
        len(seen) != 1
        or not isinstance(seen[0], str)
        or not is_known(seen[0])
        or not re.fullmatch(r"-?[\d.]+(e-?\d+)?", seen[0])
    ):
        return ""
    kind = "int" if seen[0].lstrip("-").isdigit() else "float"
    if isinstance(node, ast.Attribute) and is_parsed(source, node.value):
        return f"type={kind} of its option"
    written = ast.get_source_segment(source.text, node) or "" if node else ""
    return f"{kind}({written})" if "environ" in written or "getenv" in written else ""


def _plain(name: str) -> str:
    return name.replace("-", "_").lower()


def _unknown(place: Place, key: str, sent: str, options: list[Option]) -> Finding:
    near = nearest(key, [name for option in options for name in option.keys])
    instead = f'hyperparameters={{"{near}": ...}}, which the script has' if near else ""
    return finding("argument-unknown", place, key=key, option=_sent(key), sent=sent, instead=instead)


def _sent(key: str) -> str:
    """Return the command-line option by which SageMaker passes a hyperparameter."""
    return params.arguments({key: ""})[0]


def _of_another_command(use: Use) -> bool:
    """Return whether only some runs have an option: it is added in a condition, or to a subcommand's parser."""
    if tried(use.source, use.node):
        return True
    parser = ast.unparse(use.of) if use.of else ""
    makers = (each.value for each in use.source.assignments.get(parser, ()))
    return any(isinstance(each, ast.Call) and use.source.last(each) == "add_parser" for each in makers)


def _of_values(case: Case, options: list[Option]) -> Iterator[Finding]:
    """Yield values that argparse refuses: by `type=`, by `choices=`, or because an option takes none."""
    strict = not case.code.has(".parse_known_args")
    for option in options:
        action = option.use.argument("action")
        takes_none = value_of(action) in _FLAGS
        switched_on = value_of(action) == "store_true" and not strict
        takes_none = takes_none or (action is not None and ast.unparse(action).endswith("BooleanOptionalAction"))
        for key in sorted(option.keys & case.hyperparameters.keys()):
            value = params.arguments({key: case.hyperparameters[key]})[-1]
            wanted, put = _wanted(option.use, key, value)
            if switched_on and value.lower() in _FALSE:
                name = option.names[0]
                yield finding(
                    "bool-flag/argparse", option.use.place, key=key, value=repr(value), option=name, text=value
                )
            if takes_none and strict:
                wanted = "no value, and a hyperparameter always has one"
            if wanted:
                rule, name = f"argument-refused{'/flag' * takes_none}", option.names[0]
                place = option.use.place
                yield finding(rule, place, key=key, value=repr(value), option=name, wanted=wanted, put=put)


def _wanted(use: Use, key: str, value: str) -> tuple[str, str]:
    """Describe what an option accepts, if it refuses this value, and what to write; "", "" if it may accept it."""
    kind, choices = use.argument("type"), use.argument("choices")
    if value.startswith("-") and len(value) > 1 and " " not in value and not re.fullmatch(r"-\d+|-\d*\.\d+", value):
        return "a value, and takes what begins with - for an option", f"a value of {key} that does not begin with -"
    if kind is not None and ast.unparse(kind) == "json.loads":
        try:
            json.loads(value)
        except ValueError:
            return "JSON", f"hyperparameters={{{key!r}: json.dumps(...)}}, or type=str"
    number = kind.id if isinstance(kind, ast.Name) and kind.id in _NUMBERS else ""
    if number and use.argument("nargs") and value.startswith("["):
        return (
            f"several words of type={number}, and a list comes as one",
            "type=json.loads in place of type= and nargs=",
        )
    if use.argument("nargs") or use.argument("action"):
        return "", ""
    if number:
        try:
            _NUMBERS[number](value)
        except ValueError:
            return f"type={number}", _number_for(key, value)
    if isinstance(choices, ast.Name) and len(origins := use.source.values.scopes.origins(choices)) == 1:
        choices = origins[0]
    plain = isinstance(choices, ast.List | ast.Tuple) and all(isinstance(each, ast.Constant) for each in choices.elts)
    if plain and (kind is None or ast.unparse(kind) in ("str", "int")):
        taken = [str(each.value) for each in choices.elts]  # type: ignore[union-attr]
        near = nearest(value, taken) or taken[0] if taken else ""
        instead = f"hyperparameters={{{key!r}: {near!r}}}, or {value!r} among the choices="
        return ("", "") if value in taken else (f"one of {', '.join(taken)}", instead)
    return "", ""


def _number_for(key: str, value: str) -> str:
    """Return what to write for a value that `type=int` or `type=float` refuses."""
    try:
        number = float(value)
    except ValueError:
        return f"a number as hyperparameters={{{key!r}: ...}}, or type=str"
    return f"hyperparameters={{{key!r}: {int(number)}}}, or type=float" if number.is_integer() else "type=float"


def _of_absl(case: Case, flags: list[Option]) -> Iterator[Finding]:
    """Yield flags that must be given, and booleans with a value, behind which absl reads no flag."""
    given = params.of_the_script(case.hyperparameters)
    for flag in flags:
        use, key = flag.use, flag.names[0]
        if flag.required and key not in given and not tried(use.source, use.node):
            yield finding("argument-missing/absl", use.place, option=f"--{key}", name=key)
        if key in given and use.name.endswith((".DEFINE_boolean", ".DEFINE_bool")):
            value = str(given[key])
            false = value.lower() in _FALSE
            behind = sorted(other for other in given if other > key)
            if false or behind:
                what = "sets it to true" if false else "sets it"
                more = f", and absl does not read {', '.join(behind)} behind it" if behind else ""
                yield finding("bool-flag", use.place, key=key, value=repr(value), text=value, sets=what, more=more)


def _of_other_parsers(case: Case, flags: list[Option]) -> Iterator[Finding]:
    """Yield hyperparameters that Hydra, click, absl, docopt or Fire refuse, and a folder that Hydra misses."""
    code, given = case.code, sorted(params.of_the_script(case.hyperparameters))
    if given and (use := code.first("hydra.main")) and not code.mentions("SM_HPS|sys.argv|compose"):
        yield finding("argument-unknown/hydra", use.place, keys=", ".join(given))
    lenient = code.mentions(r"ignore_unknown_options|known_only|argparse_flags|undefok|define_\w*flags")
    clicks = list(code.calls("click.option"))
    words = [texts_of(use.call.args) for use in clicks]
    defined = list(code.calls("absl.flags.DEFINE_*", ".flags.DEFINE_*"))
    docopts = list(code.calls("docopt.docopt"))
    usage = _usage(docopts[0]) if docopts else ""
    names_of: dict[str, tuple[list[Use], bool, set[str]]] = {
        "click": (
            clicks,
            all(words),
            {name.lstrip("-") for texts in words for text in texts for name in text.split("/")},
        ),
        "absl": (defined, len(defined) == len(flags), {name for flag in flags for name in flag.names}),
        "docopt": (
            docopts,
            bool(usage) and docopts[0].argument("argv", 1) is None,
            set(re.findall(r"(?<![\w-])--?([\w-]+)", usage)),
        ),
    }
    for parser, (uses, whole, names) in names_of.items():
        for key in given if uses and whole and not lenient else ():
            if key not in names and not (parser == "docopt" and any(name.startswith(key) for name in names)):
                yield finding("argument-unknown/other", uses[0].place, option=_sent(key), key=key, parser=parser)
    yield from _of_config(case)
    fire = code.call("fire.Fire")
    component = fire.argument("component", 0) if fire else None
    target = component.id if isinstance(component, ast.Name) else ""
    own = next((node for source, node in code.nodes(ast.FunctionDef) if node.name == target), None)
    if fire and own and not own.args.kwarg:
        for key in given:
            if key.replace("-", "_") not in parameters(own):
                yield finding("argument-unknown/other", fire.place, option=_sent(key), key=key, parser="Fire")


def _usage(use: Use) -> str:
    """Return the text from which docopt reads its options; "" if it is not known."""
    node = use.argument("doc", 0)
    if isinstance(node, ast.Name) and node.id == "__doc__":
        return ast.get_docstring(use.source.tree) or ""
    return str(use.source.constant(node) or "")


def _of_config(case: Case) -> Iterator[Finding]:
    """Yield a folder of Hydra's configs that is not beside the program, or lacks the config."""
    for use in case.code.calls("hydra.main"):
        folder, name = (use.source.constant(use.argument(key)) for key in ("config_path", "config_name"))
        if not isinstance(folder, str) or "://" in folder or not use.source.path.is_file():
            continue
        path = use.source.path.parent / folder
        file = f"{str(name).removesuffix('.yaml')}.yaml" if name else ""
        if not path.is_dir():
            yield finding("config-missing", use.place, name=folder)
        elif file and not (path / file).is_file() and not case.code.has("*.ConfigStore"):
            yield finding("config-missing", use.place, name=f"{folder}/{file}")


def _of_channels(case: Case) -> Iterator[Finding]:
    """Yield channels that the script reads by name and the job lacks, unless the script handles their absence."""
    there = set(case.channels)
    for variable, place in _needed(case.code, r"^SM_CHANNEL_\w+$"):
        name = variable.removeprefix("SM_CHANNEL_").lower()
        if name not in {each.lower() for each in there}:
            yield _absent(place, name, there)
    for use in case.code.calls(*(f"sagemaker_tf_data.*{name}" for name in _BY_CHANNEL)):
        named = use.argument("channel", 1 if use.name.endswith(".shard") else 0)
        name = str(use.source.constant(named) or "")
        in_group = any(re.fullmatch(rf"{re.escape(name)}-\d+", each) for each in there)
        if named and name not in ("", *there) and not in_group and not tried(use.source, named):
            yield _absent(use.place, name, there)
    yield from _of_none(case)
    makes = case.code.has(".makedirs", ".mkdir", ".symlink", ".symlink_to", ".copytree", kind=UseKind.CALL)
    for source, node, found in case.code.strings(_NO_FOLDER):
        is_one = found[1] == "input" or found[2] in there
        if is_one and not (makes or tried(source, node) or case.never_takes(source, node)):
            yield finding("channel-missing/folder", source.at(node), folder=found[0], name=found[2])
    written = set()
    for source, node, found in case.code.strings(r"^/opt/ml/input/data/([\w.-]+)"):
        written.add(found[1])
        if _lacks(there, found[1]) and not tried(source, node) and not case.never_takes(source, node):
            yield _absent(source.at(node), found[1], there)
    joined = [(use.source, use.node) for use in case.code.calls("os.path.join", "pathlib.Path")]
    for source, made in (*joined, *case.code.nodes(ast.BinOp), *case.code.nodes(ast.JoinedStr)):
        names = {_CHANNEL.match(f"{path}/") for path in values(case, source, made)}
        lacking = [each[1] for each in names if each and _lacks(there, each[1])]
        if len(lacking) == len(names) and not {*lacking} & written and not tried(source, made):
            yield _absent(source.at(made), lacking[0], there)
            written |= {*lacking}


def _lacks(there: set[str], folder: str) -> bool:
    """Return whether a folder below /opt/ml/input/data is none of a channel's, as its pipes and manifest are."""
    name = re.sub(r"_(\d+|\.\.\.)?$", "", folder)  # of a pipe, also with a number that is not known
    return not {folder, name, name.removesuffix("-manifest")} & there


def _of_none(case: Case) -> Iterator[Finding]:
    """Yield paths that the script is sure to make of a channel's variable, where the job has no such channel."""
    sure = reached(case.code)
    uses = [(use.source, node) for use in case.code.calls(*_TAKES_PATH) if (node := use.argument("", 0))]
    uses += [(source, node.left) for source, node in case.code.nodes(ast.BinOp) if isinstance(node.op, ast.Add)]
    for source, node in uses:
        variable = _variable_of(case, source, node) if node in sure.get(source, ()) else ""
        if variable.startswith("SM_CHANNEL_") and values(case, source, node) == (None,):
            name = variable.removeprefix("SM_CHANNEL_").lower()
            there = ", ".join(sorted(case.channels)) or "none"
            written = ast.unparse(node)
            yield finding("channel-missing/none", source.at(node), name=name, there=there, written=written)


def _variable_of(case: Case, source: SourceFile, node: ast.AST | None, deep: int = 0) -> str:
    """Return the environment variable that an expression reads with `get`, also through a name or an option."""
    match node:
        case ast.Call(args=[ast.Constant(str(name))]) if source.dotted(node.func) in ("os.environ.get", "os.getenv"):
            return name
        case ast.Name() if deep < 5 and len(origins := source.values.scopes.origins(node)) == 1:
            return _variable_of(case, source, origins[0], deep + 1)
        case ast.Attribute(attr=name) if is_parsed(source, node.value):
            options = [each for each in options_of(case.code)[0] if each.dest == name]
            return _variable_of(case, options[0].use.source, options[0].default) if options else ""
    return ""


def _needed(code: UserProgram, names: str, of: str = "") -> Iterator[tuple[str, Place]]:
    """Yield the variables that match `names` and that the script reads without handling their absence.

    `of`: a mapping; its items count, but not the items of other mappings.
    """
    by_name = [
        (source, node.slice, found)
        for source, node in code.nodes(ast.Subscript)
        if source.dotted(node.value) == "os.environ" and not isinstance(node.slice, ast.Constant)
        if (found := re.search(names, str(source.constant(node.slice))))
    ]
    for source, node, found in (*code.strings(names), *by_name):
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
