"""Test that lines of records survive parsing and writing, and that record/README.md lists all of them.

`python tests/unit/record/test_record_lines.py --refresh` writes that table.
"""

import ast
import inspect
import json
import math
import re
import sys
import time
from pathlib import Path

import pytest

from entrypoint.record import lines
from entrypoint.record.lines import KINDS, WRONG, Line, line_of
from entrypoint.record.read import texts_of

HERE = Path(__file__).resolve()
PAGE = HERE.parents[3] / "entrypoint/record/README.md"
RECORDS = sorted((HERE.parents[1] / "observe/report/records").glob("*.jsonl.gz"))
HUGE = "1" + "0" * 400
BETWEEN = re.compile(r"(<!-- lines:begin -->\n).*(<!-- lines:end -->)", re.DOTALL)


def table() -> str:
    """Return the table of types in lines.py, in their order: fields and comments."""
    source = inspect.getsource(lines)
    rows = ["| line | what it holds | its fields |", "|---|---|---|"]
    for node in ast.parse(source).body:
        kind = getattr(lines, node.name) if isinstance(node, ast.ClassDef) else Line
        if kind is not Line:
            is_line = issubclass(kind, Line)
            name = f"`{kind.KIND}`" if is_line else f"part {node.name}"
            fields = [_of_field(each, source) for each in node.body if isinstance(each, ast.AnnAssign)]
            if is_line and kind.named:
                first = len(kind.positional) - 1  # every line has its time, which is no field of its own type
                fields[first] = f"in one object: {fields[first]}"
            rows.append(f"| {name} | {_comment(node.lineno, source)} | {'; '.join(fields)} |")
    return "\n".join(rows)


def _of_field(field: ast.AnnAssign, source: str) -> str:
    comment = _comment(field.end_lineno or field.lineno, source)
    return f"`{ast.unparse(field.target)}`{': ' * bool(comment)}{comment}"


def _comment(number: int, source: str) -> str:
    """Return the comment at the end of a line, or else the comments above it."""
    rows = source.splitlines()
    above = []
    while rows[number - 2 - len(above)].strip().startswith("# ") and not rows[number - 2].startswith("#"):
        above.insert(0, rows[number - 2 - len(above)].strip().removeprefix("# "))
    return rows[number - 1].partition("  # ")[2] or " ".join(above)


def written() -> str:
    return BETWEEN.sub(lambda ends: f"{ends[1]}{table()}\n{ends[2]}", PAGE.read_text())


def test_record_page_lists_every_line_type() -> None:
    assert PAGE.read_text() == written(), "wanted: python tests/unit/record/test_record_lines.py --refresh"


def test_recorded_lines_serialize_to_the_same_bytes() -> None:
    seen = set()
    for record in RECORDS:
        for text in texts_of(record.read_bytes(), []):
            line = line_of(json.loads(text))
            seen.add(line.KIND)
            if line.KIND != "stalled":  # these records have an older, shorter form of it
                assert line.to_json() == text
    assert seen >= {"host", "process", "ended", "phase", "sample", "metric", "still", "stalled", "said", "outcome"}


@pytest.mark.parametrize(
    "text",
    [
        '["described",1.5,{"base":"/opt/ml","resourceconfig":{"hosts":["a"]},"inputdataconfig":{},"hyperparameters":{},'
        '"environment":{},"open_mpi":4}]',
        '["decided",1.5,{"number":1,"began":0.5,"at":1.25,"events":[["Due",{}]],"actions":[],"quiet":[],"dropped":0}]',
        '["lines",1.5,"rank 0",["a","b"]]',
        '["mark",1.5,"script",{"what":"step","seconds":2.5,"times":7}]',
        '["weights",1.5,"rank 0",12,NaN,0.5]',
        '["model",1.5,"rank 0",{"weights":12.0,"strategy":""}]',
        '["still",1.5,{"rank 0":[11.0,0.03,0.1,0.0,0.5,2.0]}]',
        '["still",1.5,{}]',
        '["stalled",1.5,[1,2],"1: [loss]"]',
        '["stacks",1.5,"rank 0",{"by":"py-spy","place":"f","inside":"","doing":"works","text":"x"}]',
        '["metric",1.5,"script",{"step":3,"loss":NaN}]',
        '["outcome",1.5,{"kind":"succeeded","exit_code":0,"cause":null,"there":["algo-2"]}]',
    ],
)
def test_line_of_each_kind_serializes_to_the_same_bytes(text: str) -> None:
    assert line_of(json.loads(text)).to_json().decode() == text


def test_line_of_unknown_kind_keeps_its_time() -> None:
    assert line_of(["later", 3.5, {"x": 1}]) == Line(at=3.5)
    assert set(KINDS) == {
        kind.KIND for kind in vars(lines).values() if inspect.isclass(kind) and issubclass(kind, Line)
    } - {""}


@pytest.mark.parametrize(
    "text",
    [
        "[]", "{}", "7", '["ended",1]', '["ended",1,"a"]', '["ended",1,"a",2]', '["ended","soon","a","b"]',
        '["ended",NaN,"a","b"]', '["sample",1,1.0,{"cpu":[NaN,1]},{},{}]', '["sample",1,1.0,{},{"a":{"cpu":"x"}},{}]',
        '["sample",1,1.0,{},{},{"b":[1,-1e300]}]', '["sample",1,1.0,{"gpus":[[1e300]]},{},{}]',
        '["sample",1,true,{},{},{}]', '["sample",1,1.0,{},{}]', '["lines",1,"a","text"]',
        '["metric",1,"a",{"step":NaN}]', '["metric",1,"a",{"loss":true}]', '["outcome",1,{}]',
        '["host",1,{"cpus":"8"}]', '["host",1,{"limits":{"stop":null}}]', '["weights",1,"a",1,"x",2]',
        '[["ended"],1,"a","b"]', '["host",1,{"hosts":{"a":1}}]', '["lines",1,"a",{"b":"c"}]',
        '["host",1,{"channels":{"a":{"mode":5}}}]', '["host",1,{"channels":{"a":{"files":NaN}}}]',
        '["decided",1,{"events":{"Due":{}}}]', '["sample",1,1,{"cpu":["x"]},{},{}]',
        '["sample",1,1,{"net":[null,1]},{},{}]',
        '["sample",1,1,[],[],[]]', '["sample",1,1.0,{"gpus":[5]},{},{}]', '["sample",1,1.0,{"fifos":[1]},{},{}]',
        '["sample",1,1,{},{"a":7},{}]', '["sample",1e300,1,{},{},{}]', f'["sample",1,1,{{"cpu":[{HUGE}]}},{{}},{{}}]',
        f'["metric",1,"a",{{"step":{HUGE}}}]', '["metric",1,"a",{"step":"7"}]', '["metric",1,{},{"loss":1}]',
        '["metric",1,"a","loss"]', '["metric",1,"a",{"steps_per_second":Infinity}]', '["process",1,null,{}]',
        '["still",1,{"a":"long"}]', '["still",1,{"a":["x"]}]', '["still",1,{"a":[NaN,1]}]',
        '["stacks",1,"a",{"text":7}]',
        '["outcome",1,{"kind":["x"]}]', '["outcome",1,{"kind":"failed","exit_code":1,"cause":"because"}]',
        '["host",1,{"rank":"first"}]', '["host",1,{"hosts":7}]', '["host",1,{"job":[1]}]', '["phase","x","running"]',
        '["host",1,{"memory_limit":true}]', '["host",1,{"channels":[1]}]', '["model",[],{}]', '["said"]',
    ],
)  # fmt: skip
def test_malformed_record_line_is_refused(text: str) -> None:
    with pytest.raises(WRONG):
        line_of(json.loads(text))


@pytest.mark.parametrize("by", [60.0, -60.0, 3600.0])
def test_wall_clock_change_does_not_shift_record_lines(by: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """NTP does so. Once, a step forward made the host a straggler, and a step back lost lines such as the outcome."""
    real, before = time.time, lines.now()
    monkeypatch.setattr(time, "time", lambda: real() + by)
    assert before <= lines.now() < before + 30 and before <= lines.Said(text="").at < before + 30


def test_later_facts_replace_earlier_ones() -> None:
    first = lines.HostLine(at=1.0, host="algo-1", cpus=8)
    both = first.updated(lines.HostLine(at=2.0, memory_limit=16, cpus=4))
    assert (both.host, both.cpus, both.memory_limit, both.disk_size) == ("algo-1", 4, 16, None)
    assert math.isclose(both.at, 1.0)


if __name__ == "__main__" and sys.argv[1:] == ["--refresh"]:
    PAGE.write_text(written())
