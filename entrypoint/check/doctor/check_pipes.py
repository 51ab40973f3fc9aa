"""Check how a script reads its channels: as files or as pipes, in which format, and with a manifest's attributes."""

import ast
from collections.abc import Iterator

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.planned_job import s3_source
from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.launcher.job.channels import sources
from entrypoint.usercode.api_names import READS_ROWS
from entrypoint.usercode.datasets import OURS, OWN_SHARDS, PIPES, Followed, is_endless
from entrypoint.usercode.guards import tried
from entrypoint.usercode.name_scopes import is_spread
from entrypoint.usercode.source import SourceFile, Use, UseKind, given_to, matches, texts_of, value_of

_FORMATS = ("TFRecord", "RecordIO", "TextLine")
_FILES = tuple(f"{OURS}{name}" for name in ("files", "file_names", "even_steps", "sharding.files"))
_LISTS = ("glob.glob", "glob.iglob", "os.listdir", "os.walk", "os.scandir", ".gfile.glob", ".rglob", ".iterdir")
_READS_PIPES = (
    r"PipeMode|pipe_dataset|image_records|protobuf_records|(?i:fifo)|_0\b|_\{|_%[ds]|'_'|tf_data\.channels|mlio"
    r"|InputMode|INPUT_MODE|inputdataconfig|INPUT_DATA_CONFIG"
)
_GATHERS = (".batch", ".padded_batch", ".ragged_batch", ".window")  # may join an example's records in the script itself


def of_pipes(case: Case) -> Iterator[Finding]:
    """Yield reads of channels that do not fit the channels' modes and records."""
    yield from _of_channels(case)
    for data in case.pipelines:
        yield from _of_endless_pipes(data)
    yield from _of_attributes(case)


def _of_channels(case: Case) -> Iterator[Finding]:
    """Yield reads of a channel that is in the other mode, has records of another format, or has another reader."""
    code = case.code
    for use in code.calls(*PIPES, ".PipeModeDataset"):
        form, name = use.source.constant(use.argument("record_format", 1)), _channel(case, use)
        if isinstance(form, str) and form not in _FORMATS:
            yield finding("pipe-format", use.place, form=repr(form), reader=use.last)
        given = case.channels.get(name)
        if given is None or not case.is_sure(use.source, use.node):
            continue
        if given["TrainingInputMode"] != "Pipe":
            yield finding("pipe-mode", use.place, channel=name, reader=use.last)
        elif use.argument("attributes") and form in ("TFRecord", "TextLine"):
            yield finding("pipe-format/attributes", use.place, form=form)
        elif given["RecordWrapperType"] == "RecordIO" and form in ("TFRecord", "TextLine"):
            yield finding("pipe-format/wrapped", use.place, channel=name, form=form)
        elif given["RecordWrapperType"] == "None" and form == "RecordIO" and use.last == "pipe_dataset":
            yield finding("pipe-format/not-wrapped", use.place, severity=Severity.WARNING, channel=name)
        elif name in _shared_pipes(case):
            yield finding("pipe-shared", use.place, channel=name)
    for use in code.calls(*_FILES):
        name = _channel(case, use)
        if (case.channels.get(name) or {}).get("TrainingInputMode") == "Pipe" and case.is_sure(use.source, use.node):
            yield finding("pipe-mode/files", use.place, channel=name, written=use.written)
    if not code.mentions(_READS_PIPES):
        for source, node, found in code.strings(r"^SM_CHANNEL_(\w+)$|^/opt/ml/input/data/([\w-]+)"):
            name = next((each for each in case.channels if each.upper() == (found[1] or found[2] or "").upper()), "")
            piped = name and case.channels[name]["TrainingInputMode"] == "Pipe"
            if piped and code.has(*READS_ROWS, *_LISTS) and not tried(source, node):
                yield finding("pipe-mode/files", source.at(node), channel=name, written=found[0])


def _channel(case: Case, use: Use) -> str:
    """Return the name of the channel that a call reads; "" if that is not sure."""
    given, data = use.argument("channel", 0), [name for name in case.channels if name != "code"]
    if value_of(given) is None and (given is None or isinstance(given, ast.Constant)) and len(data) == 1:
        return data[0]
    return str(use.source.constant(given) or "")


def _shared_pipes(case: Case) -> set[str]:
    """Return the channels in Pipe mode that several processes of a host would read."""
    plan = case.described.plan
    most = max((spec.reader.most for spec in plan.processes if spec.reader), default=1) if plan else 1
    alone = [each.channels[0] for each in sources(plan.channels, most) if len(each.channels) == 1] if plan else []
    return {each.name for each in alone if most > 1 and each.mode == "Pipe"}


def _of_endless_pipes(data: Followed) -> Iterator[Finding]:
    pipe, repeat = data.step("pipe_dataset"), data.step("repeat")
    behind = [each.last for each in data.behind("repeat")]
    if pipe and repeat and is_endless(repeat) and "prefetch" in behind and "take" not in behind:
        yield finding("pipe-endless", repeat.place)


def _of_attributes(case: Case) -> Iterator[Finding]:
    """Yield reads of a manifest with wrong or missing `attributes=`. Each attribute of a line is a record."""
    attributes = _attributes(case)
    for use in case.code.calls(*PIPES):
        channel = use.source.constant(use.argument("channel", 0))
        read = [channel] if channel else list(attributes)  # an unknown channel may be any in Pipe mode
        wanted = [attributes.get(name, []) for name in read]
        names = wanted[0] if wanted else []
        if is_spread(use.call) or len(names) < 2 or any(each != names for each in wanted):
            continue
        given, shown = use.argument("attributes"), ", ".join(names)
        items = given.elts if isinstance(given, ast.List | ast.Tuple) else []
        if not items and (given is None or isinstance(given, ast.List | ast.Tuple)):
            record_format = use.source.constant(use.argument("record_format", 1))
            if record_format in ("RecordIO", None) and not _gathered(case, use, len(names)):
                channels = ", ".join(map(str, read))
                yield finding("attributes-missing", use.place, channels=channels, names=shown, wanted=repr(names))
        elif (others := texts_of(items)) and len(others) == len(items) and others != names:
            named = ", ".join(others)
            yield finding("attributes-missing/other-names", use.place, given=named, names=shown, wanted=repr(names))


def _attributes(case: Case) -> dict[str, list[str]]:
    """Return the AttributeNames of each channel in Pipe mode."""
    found: dict[str, list[str]] = {}
    for name, each in case.request.channels.items():
        if (case.channels.get(name) or {}).get("TrainingInputMode") == "Pipe":
            found[name] = [str(attribute) for attribute in s3_source(each).get("AttributeNames") or []]
    return found


def _gathered(case: Case, use: Use, number: int) -> bool:
    """Return whether a script keeps each example's records together itself.

    It does if its first step makes batches of `number` records. If the dataset cannot be followed through the code, any
    such batch in the program counts. Without a shuffle, a shard, several processes and batches, records stay in order.
    """
    apart = case.code.has(".shuffle", ".shard", kind=UseKind.CALL) or case.processes > 1
    if not apart and not case.code.call(*_GATHERS):
        return True
    first = _first_step(use.source, use.node, number)
    if first is None:
        first = any(_has_number(each.node, number) for each in case.code.calls(*_GATHERS))
    return first


def _first_step(source: SourceFile, node: ast.AST, number: int) -> bool | None:
    """Return whether a dataset's first transformation makes batches of `number` records.

    Return False if it makes other batches, shards or shuffles; None if the dataset cannot be followed through the code.
    """
    outer = source.parents.get(node)
    while isinstance(outer, ast.Attribute):
        call = source.parents.get(outer)
        if not isinstance(call, ast.Call) or call.func is not outer:
            return None
        if f".{outer.attr}" in _GATHERS:
            return _has_number(call, number)
        if outer.attr in ("shard", "shuffle"):
            return False
        node, outer = call, source.parents.get(call)
    if isinstance(outer, ast.Call) and matches(source.dotted(outer.func), OWN_SHARDS):
        return False
    if isinstance(outer, ast.Assign) and len(outer.targets) == 1 and isinstance(outer.targets[0], ast.Name):
        scope = next((each for each in source.around(outer) if isinstance(each, ast.FunctionDef)), source.tree)
        named = [each for each in ast.walk(scope) if isinstance(each, ast.Name) and each.id == outer.targets[0].id]
        if sum(isinstance(each.ctx, ast.Store) for each in named) == 1:
            steps = [_first_step(source, each, number) for each in named if isinstance(each.ctx, ast.Load)]
            return next((step for step in steps if step is not None), None)
    return None


def _has_number(call: ast.AST, number: int) -> bool:
    """Return whether an argument of a call is this number, or is computed with it."""
    given = given_to(call) if isinstance(call, ast.Call) else []
    return any(value_of(each) == number for node in given for each in ast.walk(node))
