"""Check a script against its request: metrics of the log, uploads, read-only channels, network isolation."""

import ast
import math
import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.check_folders import SUMMARIES, calls_of, folders_of, may_be_kept, opens_to_write
from entrypoint.check.doctor.check_request import no_number
from entrypoint.check.doctor.job_values import values
from entrypoint.check.doctor.request import mappings
from entrypoint.check.doctor.requirements import installed_by, needs_index
from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.usercode import api_names as api
from entrypoint.usercode.guards import tried
from entrypoint.usercode.known_values import UNKNOWN
from entrypoint.usercode.name_scopes import is_spread
from entrypoint.usercode.reached import reached
from entrypoint.usercode.source import Use, UseKind, matches, texts_of, value_of


def of_platform(case: Case) -> Iterator[Finding]:
    """Yield findings about a script and a request that do not fit each other."""
    if case.job is not None and case.code.main.tree.body:
        yield from _of_metrics(case)
        yield from _of_summaries(case)
        yield from _of_read_only(case)
        if case.request.body.get("EnableNetworkIsolation"):
            yield from _of_isolation(case)


# --- metrics ---

_NUMBER = "0.1234"
_KERAS_LINES = ("7/9 - 1s - {0} - 1s/epoch - 9ms/step", "9/9 [=====] - 1s 9ms/step - {0}")  # of `fit`
_BEFORE_THE_NUMBER = re.compile(r"([A-Za-z_]\w*)((?:\\s|\s|\\[:=]|[+:=*?'\"])*)$")
_VALIDATES = {"validation_data": 7, "validation_split": 6}  # arguments of Keras's fit, with their positions
_PRINTS_TOO = (*api.STARTS_PROGRAMS, *api.SESSIONS, ".ProgbarLogger", ".set_postfix", ".set_description")
# Modules that print nothing by themselves beside what Keras's fit prints, and words of Keras's metrics.
_SILENT = {*sys.stdlib_module_names, "", "tensorflow", "keras", "tf_keras", "horovod", "mpi4py", "sagemaker_tf_data"}
_SILENT |= {"numpy", "pandas", "scipy", "PIL", "h5py", "jax", "boto3", "botocore"}
_WORDS_OF_KERAS = (
    "epoch step accuracy loss categorical binary sparse top mean squared absolute percentage logarithmic error hinge "
    "cosine similarity proximity kullback leibler divergence poisson precision recall sensitivity specificity score "
    "false true positives negatives root crossentropy logcosh learning rate improved from saving model restoring "
    "weights best early stopping reducing plateau setting scheduler total params trainable name samples "
    "main info warning error debug critical",  # of logging
)
_OF_KERAS = {"epochs", "batch_size", "verbose", "callbacks", "steps_per_epoch", *_VALIDATES}


class _Log(NamedTuple):
    """Hold what the script prints."""

    own: list[str]  # lines of its own calls, with _NUMBER for each value
    fits: list[Use]  # calls of Keras's fit
    prints: bool  # whether Keras prints
    metrics: set[str]  # that Keras prints, those that are certain
    may_validate: bool

    def lines(self, *words: str) -> list[str]:
        """Return all lines; `words`: metrics that Keras may print besides."""
        possible = [word for word in words if self.may_validate or not word.startswith("val_")]
        return [*self.own, *(_keras_lines({*self.metrics, *possible}) if self.prints else [])]


def _of_metrics(case: Case) -> Iterator[Finding]:
    """Yield metrics that the script never prints, or not in the form that their expression wants."""
    definitions = mappings(case.request.algorithm.get("MetricDefinitions"))
    log = _log_of(case) if definitions else None
    for each in definitions if log else ():
        regex, name = str(each.get("Regex") or ""), str(each.get("Name"))
        before = _BEFORE_THE_NUMBER.search(re.split(r"(?<!\\)\(", regex, maxsplit=1)[0])
        if not log or not before or regex.startswith("^") or no_number(regex):
            continue
        if _matches(regex, log.lines(before[1])):
            captured = [found for line in log.lines(before[1]) for found in re.findall(regex, line)[:1]]
            if not any(_is_number(each) for each in captured):
                wrong = f"captures {captured[0]!r}, which is no number"
                place = case.request.at("MetricDefinitions", name)
                yield finding("metric-unread", place, name=name, regex=repr(regex), wrong=wrong)
            continue
        label = _label(before[1], log.lines())
        better = f"{regex[: before.start()]}{label}{regex[before.end() :]}"
        if label and _matches(better, log.lines()):
            place, shown = case.request.at("MetricDefinitions", name), repr(better)
            yield finding("metric-unprinted", place, name=name, regex=repr(regex), label=repr(label), better=shown)
        elif lack := _lack(case, log, before[1], regex):
            yield finding(f"metric-unprinted/{lack}", log.fits[0].place, name=name, regex=repr(regex))
        elif word := _never_printed(case, regex, log):
            line = re.sub(r"\(.*\)", "{value}", re.sub(r"\\s[+*]?", " ", regex))
            better = f'print(f"{line}"), or no such metric'
            if not _matches(regex, [line.replace("{value}", _NUMBER)]):
                better = "a print in that form, or no such metric"
            place = case.request.at("MetricDefinitions", name)
            yield finding("metric-unprinted/never", place, name=name, regex=repr(regex), word=repr(word), better=better)


def _lack(case: Case, log: _Log, word: str, regex: str) -> str:
    """Return why Keras does not print a metric: `silent`, `no-validation`; "" if it may, or another call does."""
    if not log.fits or not _matches(regex, _keras_lines({*log.metrics, word})):
        return ""
    is_named = log.may_validate or not word.startswith("val_") or case.code.mentions(rf"\b{word}\b")
    return "silent" if not log.prints else "" if is_named else "no-validation"


def _never_printed(case: Case, regex: str, log: _Log) -> str:
    """Return a word of an expression that no line can have: the program does not name it, and no library prints it.

    Return "" if there may be such a line, by a value that is printed in the word's place. The program is known to print
    only texts that can be read.
    """
    before = re.sub(r"(\\s|\s)[+*]", " ", re.split(r"(?<!\\)\(", regex, maxsplit=1)[0])
    own = {part for source in case.code.sources for part in (source.path.stem, source.path.parent.name)}
    imported = {use.name.partition(".")[0] for use in case.code.uses("*", kind=UseKind.IMPORT)}
    if re.search(r"[|+*?\[\]{}]", before) or "|" in regex or imported - own - _SILENT or case.code.has(".summary"):
        return ""
    known = " ".join(map(str, (case.environment, case.hyperparameters, *_WORDS_OF_KERAS))).lower()
    for match in re.finditer(r"[A-Za-z]{4,}", re.sub(r"\\.", " ", before)):
        word, after = match[0], match.string[match.end() :]
        if any(f"{_NUMBER}{after}" in line for line in log.own):
            return ""
        if word.lower() not in known and not case.code.mentions(f"(?i){word}"):
            return word
    return ""


def _log_of(case: Case) -> _Log | None:
    """Return what the script prints; None if that is not certain."""
    code = case.code
    others = [use for use in code.calls("*Callback") if not re.match("tensorflow|keras|horovod", use.name)]
    own = [_printed(use) for use in code.calls("*")]
    if others or None in own or code.has(*_PRINTS_TOO):
        return None
    calls = [use for use in code.calls(".fit", ".fit_generator", ".evaluate") if _may_be_keras(case, use)]
    fits = [use for use in calls if not use.name.endswith(".evaluate")]
    named = [use.argument("metrics", 2) for use in code.calls(".compile")]
    metrics = {"loss", *texts_of(each for node in named if node for each in ast.walk(node))} if fits else set()
    validates = any(use.argument(*each) for use in fits for each in _VALIDATES.items())
    return _Log(
        [line for line in own if line],
        fits,
        any(value_of(use.argument("verbose")) != 0 for use in calls),
        metrics | {f"val_{each}" for each in metrics if validates},
        validates or any(is_spread(use.call) for use in fits),
    )


def _may_be_keras(case: Case, use: Use) -> bool:
    """Return whether a call is probably Keras's: by its arguments, or since no other library has such a method."""
    named = {word.arg for word in use.call.keywords}
    return bool(named & {*_OF_KERAS, None}) or not case.code.imports("sklearn*", "xgboost*", "lightgbm*")


def _matches(regex: str, lines: list[str]) -> bool:
    return any(re.search(regex, line) for line in lines)


def _is_number(captured: str | tuple[str, ...]) -> bool:
    """Return whether the first group of an expression has captured a number, by what `re.findall` returns."""
    try:
        return math.isfinite(float(captured if isinstance(captured, str) else captured[0]))
    except ValueError:
        return False


def _label(word: str, lines: list[str]) -> str:
    """Return what stands before a metric's number in one of the lines, in whatever case and with whatever sign."""
    pattern = rf"(?i)(?<!\w)({re.escape(word)}['\"]?\]?\s*[:=]?\s*){re.escape(_NUMBER)}"
    return next((found[1] for found in (re.search(pattern, line) for line in lines) if found), "")


def _keras_lines(metrics: set[str]) -> list[str]:
    """Return lines of Keras with these metrics, in both of the orders that it has had."""
    last = sorted(metrics, key=lambda each: (each.startswith("val_"), each != "loss", each))
    orders = [" - ".join(f"{each}: {_NUMBER}" for each in order) for order in (last, sorted(metrics))]
    return [line.format(order) for line in _KERAS_LINES for order in orders]


def _printed(use: Use) -> str | None:
    """Return what a call prints, with _NUMBER for each value; "" if it prints nothing, None if it may be any text."""
    owner, _, last = use.name.rpartition(".")
    logs = last in api.LOGS and "log" in owner.lower()
    if not use.call.args or not (logs or last == "print" or use.name in ("sys.stdout.write", "sys.stderr.write")):
        return ""
    known = [use.source.values.of(each) for each in use.call.args]
    first, *others = (str(values[0]) if len(values) == 1 else UNKNOWN for values in known)
    text = " ".join([re.sub(r"%[\d.]*[a-z]", UNKNOWN, first) if logs else first, *others])
    # What is not known may be a metric's name.
    may_be_name = (
        first == UNKNOWN
        or is_spread(use.call)
        or use.argument("sep")
        or re.search(rf"{re.escape(UNKNOWN)}['\"\]]*\s*[:=]\s*{re.escape(UNKNOWN)}", text)
    )
    return None if may_be_name else text.replace(UNKNOWN, _NUMBER)


# --- folders of the request ---


def _of_summaries(case: Case) -> Iterator[Finding]:
    """Yield a finding if the script writes all summaries outside the folder that SageMaker uploads."""
    config = case.request.part("TensorBoardOutputConfig")
    local = str(config.get("LocalPath") or "/opt/ml/output/tensorboard").rstrip("/")
    if not config or case.gives(local) or case.code.mentions(re.escape(local)) or case.code.has(*api.MOVES_FILES):
        return
    writing = list(calls_of(case, SUMMARIES))
    folders = [_folders(case, use) for use in writing]
    if writing and not any(may_be_kept(path, (local,)) for each in folders for path in each):
        folder = " or ".join(map(str, folders[0]))
        yield finding("summaries-elsewhere", writing[0].place, written=writing[0].written, folder=folder, local=local)


def _folders(case: Case, use: Use) -> tuple[Any, ...]:
    by_default = use.last == "TensorBoard" and use.argument("log_dir", 0) is None and not is_spread(use.call)
    return ("logs",) if by_default else folders_of(case, use, SUMMARIES)


def _of_read_only(case: Case) -> Iterator[Finding]:
    """Yield findings about files that the script writes to a channel that is mounted read-only."""
    channels = {f"/opt/ml/input/data/{name}/": why for name in case.request.channels if (why := _read_only(case, name))}
    for at, names in api.WRITES_FILES.items() if channels else ():
        for use in case.code.calls(*names):
            if (matches(use.name, api.OPENS_FILES) and not opens_to_write(use)) or tried(use.source, use.node):
                continue
            node = use.argument("", at) or use.argument("filename") or use.argument("path")
            paths = values(case, use.source, node)
            inside = [{each for each in channels if f"{path}/".startswith(each)} for path in paths]
            if all(inside):
                folder = min(inside[0])
                name, why = folder.split("/")[-2], channels[folder]
                yield finding("channel-read-only", use.place, written=use.written, channel=name, why=why)


def _read_only(case: Case, name: str) -> str:
    """Return why a channel is read-only; "" if the script may write to it, as far as is known."""
    channel, usual = case.request.channels[name], case.request.algorithm.get("TrainingInputMode")
    for files in mappings([(channel.get("DataSource") or {}).get("FileSystemDataSource")]):
        return "FileSystemAccessMode is ro" if files.get("FileSystemAccessMode") == "ro" else ""
    return "it is in FastFile mode" if (channel.get("InputMode") or usual) == "FastFile" else ""


# --- network isolation ---


def _of_isolation(case: Case) -> Iterator[Finding]:
    """Yield what a script is sure to fetch from a network that it does not have."""
    for use in case.code.calls("*"):
        if not case.is_sure(use.source, use.node):
            continue
        if _fetches(case, use) or _asks_aws(case, use):
            yield finding("isolated-network", use.place, written=use.written)
        elif _is_of_keras(case, use):  # an image may have it in ~/.keras
            yield finding("isolated-network/keras", use.place, severity=Severity.WARNING, written=use.written)


def _asks_aws(case: Case, use: Use) -> bool:
    """Return whether a client of AWS is made, and a method of it is sure to be called."""
    if not matches(use.name, ("boto3.client", "boto3.resource")) or case.code.mentions("endpoint_url"):
        return False
    outer = use.source.parents.get(use.node)
    names = [ast.unparse(each) for each in getattr(outer, "targets", ())]
    calls = (each for each in reached(case.code)[use.source] if isinstance(each, ast.Call))
    called = (each.func.value for each in calls if isinstance(each.func, ast.Attribute))
    return isinstance(outer, ast.Attribute) or any(ast.unparse(each) in names for each in called)


def _is_of_keras(case: Case, use: Use) -> bool:
    """Return whether a call fetches data or weights of Keras, which are in no folder of the job's."""
    if _has_cache(case) or is_spread(use.call):
        return False
    if matches(use.name, ("*keras.datasets.*.load_data",)):
        return not use.call.args and use.argument("path") is None
    weights = use.argument("weights")
    is_model = re.search(r"keras\.applications\.(\w+\.)?[A-Z]\w+$", use.name) and len(use.call.args) < 2
    return bool(is_model) and (weights is None or use.source.constant(weights) == "imagenet")


def _has_cache(case: Case) -> bool:
    """Return whether the job says where files lie that were fetched before."""
    return case.code.mentions(r"/\.keras\b|KERAS_HOME|(?i:cache_dir)") or any(
        name in case.environment for name in ("KERAS_HOME", "TFHUB_CACHE_DIR")
    )


def _fetches(case: Case, use: Use) -> bool:
    """Return whether a call asks a web address, or an index of packages."""
    for name, at in api.FETCHES.items():
        if matches(use.name, (name,)):
            addresses = values(case, use.source, use.argument("origin" if at else "url", at))
            return not _has_cache(case) and all(
                re.match(r"(https?|ftp)://(?!localhost|127\.|\[|\.\.\.)", str(each)) for each in addresses
            )
    return matches(use.name, api.STARTS_PROGRAMS) and any(needs_index(case, word) for word in installed_by(use))
