"""Check a script against its request: metrics of the log, uploads, read-only channels, network isolation."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from entrypoint.check.doctor.request import mappings
from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.usercode.api_names import LOGS, SESSIONS
from entrypoint.usercode.source import SourceFile, Use, text_of, texts_of, value_of


def of_platform(case: Case) -> Iterator[Finding]:
    """Yield what the script does, and what its request does not give it."""
    if case.job is not None and case.code.main.tree.body:
        yield from _of_metrics(case)


# --- metrics ---

_NUMBER = "0.1234"
_KERAS_LINES = ("7/9 - 1s - {0} - 1s/epoch - 9ms/step", "9/9 [=====] - 1s 9ms/step - {0}")  # of `fit`
_BEFORE_THE_NUMBER = re.compile(r"([A-Za-z_]\w*)((?:\\s|\s|\\[:=]|[:=*+?'\"])*)$")
_VALIDATES = {"validation_data": 7, "validation_split": 6}  # arguments of Keras's fit, with their positions
_OF_KERAS = {"epochs", "batch_size", "verbose", "callbacks", "steps_per_epoch", *_VALIDATES}


class _Log(NamedTuple):
    """Hold what the script prints."""

    lines: list[str]  # by its own calls, with _NUMBER for each value
    fits: list[Use]  # calls of Keras's fit
    prints: bool  # whether Keras prints
    metrics: set[str]  # that Keras certainly prints, as far as it prints
    may_validate: bool

    @property
    def shown(self) -> list[str]:
        return [*self.lines, *(_keras_lines(self.metrics) if self.prints else [])]

    def possible(self, word: str) -> list[str]:
        """Return lines of Keras with a metric that it may print."""
        return (
            _keras_lines({*self.metrics, word}) if self.prints and self.may_validate >= word.startswith("val_") else []
        )


def _of_metrics(case: Case) -> Iterator[Finding]:
    """Yield metrics of which nothing is printed, or only in another form than their expression wants."""
    definitions = mappings(case.request.algorithm.get("MetricDefinitions"))
    log = _log_of(case) if definitions else None
    for each in definitions if log else ():
        regex, name = str(each.get("Regex") or ""), str(each.get("Name"))
        before = _BEFORE_THE_NUMBER.search(re.split(r"(?<!\\)\(", regex, maxsplit=1)[0])
        if log and before and not regex.startswith("^") and _has_group(regex):
            label = _other_label(log, before, regex)
            better, lack = (
                f"{regex[: before.start()]}{label}{regex[before.end() :]}",
                _lack(case, log, before[1], regex),
            )
            if label and _matches(better, log.shown):
                place = case.request.at("MetricDefinitions", name)
                shown = {"label": repr(label), "better": repr(better)}
                yield finding("metric-unprinted", place, severity=None, name=name, regex=repr(regex), **shown)
            elif lack:
                yield finding(
                    f"metric-unprinted/{lack}", log.fits[0].place, severity=None, name=name, regex=repr(regex)
                )


def _other_label(log: _Log, before: re.Match[str], regex: str) -> str:
    """Return what the script prints before the number, if the metric's expression wants something else there."""
    return "" if _matches(regex, [*log.shown, *log.possible(before[1])]) else _label(before[1], log.shown)


def _lack(case: Case, log: _Log, word: str, regex: str) -> str:
    """Return why Keras does not print a metric: `silent`, `no-validation`; "" if it may, or another call does."""
    if not log.fits or _matches(regex, log.lines) or not _matches(regex, _keras_lines({*log.metrics, word})):
        return ""
    unvalidated = word.startswith("val_") and not log.may_validate and not case.code.mentions(rf"\b{word}\b")
    return "no-validation" if log.prints and unvalidated else "" if log.prints else "silent"


def _log_of(case: Case) -> _Log | None:
    """Return what the script prints; None if that is not certain."""
    code, lines = case.code, list[str]()
    others = [use for use in code.calls("*Callback") if not re.match("tensorflow|keras|horovod", use.name)]
    if others or code.has("subprocess.*", "os.system", *SESSIONS):
        return None
    for use in code.calls("*"):
        text = _printed(use)
        if text is None:
            return None
        lines += [text] if text else []
    calls = [use for use in code.calls(".fit", ".fit_generator", ".evaluate") if _may_be_keras(case, use)]
    fits = [use for use in calls if not use.name.endswith(".evaluate")]
    metrics = {text for use in code.calls(".compile") for text in _texts(use.argument("metrics", 2))} | {"loss"}
    validates = [use for use in fits if any(use.argument(*each) for each in _VALIDATES.items())]
    return _Log(
        lines,
        fits,
        any(value_of(use.argument("verbose")) != 0 for use in calls),
        (metrics | {f"val_{each}" for each in metrics} if validates else metrics) if fits else set(),
        bool(validates) or any(_is_open(use) for use in fits),
    )


def _texts(node: ast.AST | None) -> list[str]:
    return texts_of(ast.walk(node)) if node else []


def _may_be_keras(case: Case, use: Use) -> bool:
    """Return whether a call is probably Keras's: by its arguments, or since no other library has such a method."""
    assert isinstance(use.node, ast.Call)
    named = {word.arg for word in use.node.keywords}
    return bool(named & _OF_KERAS) or _is_open(use) or not case.code.imports("sklearn*", "xgboost*", "lightgbm*")


def _is_open(use: Use) -> bool:
    """Return whether a call passes `*a` or `**b`."""
    assert isinstance(use.node, ast.Call)
    given = [*use.node.args, *(word.arg for word in use.node.keywords)]
    return any(each is None or isinstance(each, ast.Starred) for each in given)


def _has_group(regex: str) -> bool:
    try:
        return bool(re.compile(regex).groups)
    except re.error:  # for which there is another rule
        return False


def _matches(regex: str, lines: list[str]) -> bool:
    return any(re.search(regex, line) for line in lines)


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
    writes = use.name in ("sys.stdout.write", "sys.stderr.write")
    assert isinstance(use.node, ast.Call)
    if not use.node.args or not (last == "print" or writes or (last in LOGS and "log" in owner.lower())):
        return ""
    first, *others = (_text(use.source, each) for each in use.node.args)
    if first is not None and last not in ("print", "write") and "%" in first:
        return _filled(re.sub(r"%[\d.]*[a-z]", "{}", first))
    return None if first is None else " ".join([first, *(_NUMBER if each is None else each for each in others)])


def _text(source: SourceFile, node: ast.AST) -> str | None:
    """Return the text of an expression, with _NUMBER for each value in it; None if it may be any text."""
    match node:
        case ast.Constant(value=value):
            return str(value)
        case ast.JoinedStr(values=values):
            return _filled("".join("{}" if isinstance(each, ast.FormattedValue) else text_of(each) for each in values))
        case ast.BinOp(left=left, op=ast.Mod()) if text_of(left):
            return _filled(re.sub(r"%[\d.]*[a-z]", "{}", text_of(left)))
        case ast.Call(func=ast.Attribute(value=text, attr="format")) if text_of(text):
            return _filled(re.sub(r"\{[^}]*\}", "{}", text_of(text)))
        case ast.Name():
            value = source.constant(node)
            return value if isinstance(value, str) else None
    return None


def _filled(text: str) -> str | None:
    """Return a text with _NUMBER for each `{}`; None if one of these may be a metric's name."""
    return None if re.search(r"\{\}['\"\]]*\s*[:=]?\s*\{\}", text) else text.replace("{}", _NUMBER)
