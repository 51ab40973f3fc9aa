"""Test that no reader of records fails on lines that are well-formed but state something impossible.

Malformed lines are refused in one place, which tests/unit/record/test_record_lines.py tests.
"""

import contextlib
import json
from pathlib import Path

import pytest
from records import BEGAN, packed, trained

from entrypoint.observe.export.points import Points
from entrypoint.observe.live.view import View
from entrypoint.observe.monitor.distributed import Together
from entrypoint.observe.report.make import make
from entrypoint.record.lines import WRONG
from entrypoint.record.read import lines_of

AT = BEGAN + 20
ENDLESS = ["sample", AT, 1e17, {"cpu": [1, 1]}, {}, {}]  # in so many seconds, hosts should have exchanged something
ODD = [
    ENDLESS,
    ["sample", AT, 0, {"cpu": [1, 1]}, {}, {}],
    ["sample", AT, -5, {}, {}, {}],
    ["sample", AT, 1, {"gpus": [[1, 2, 0, 3], [1]]}, {}, {}],
    ["sample", AT, 1, {"fifos": {"train": [1, 0]}}, {}, {}],
    ["sample", AT, 1, {}, {}, {"algo-2": [1]}],
    ["metric", AT, "script", {"step": 1, "loss": float("inf")}],
    ["mark", AT, "script", {"what": "checkpoint", "seconds": -3}],
    ["mark", AT, "script", {"what": "checkpoint", "seconds": 1e12}],
    ["mark", AT, "script", {"what": "step", "seconds": 1, "times": 0}],
    ["model", AT, "script", {"weights": "many"}],
    ["model", AT, "script", {"weights": 10**400, "dense": float("nan"), "workers": [2], "strategy": ["x"]}],
    ["process", AT + 1, "", {}],
    ["process", AT + 1, "script", {}],
    ["ended", AT, "unknown", "exit code 0"],
    ["host", AT, {"rules": "nothing=1", "hosts": []}],
    ["unheard-of", AT, 1, 2, 3],
    ["said", AT, "x" * (1 << 19)],
    ["said", 1e19, "later"],
]


@pytest.mark.parametrize("line", ODD, ids=lambda line: str(line)[:60])
def test_readers_survive_well_formed_lines_with_odd_values(line, tmp_path):
    record = trained(seconds=30)
    good = len(record.lines)
    record.lines += [line] * 3
    data = record.data
    assert len([*lines_of(data)]) == good + 3, "it is well-formed"
    view, points, together = View(), Points("algo-1"), Together(["algo-1", "algo-2"])
    for each in lines_of(data):
        for host, note in (("algo-1", view.note), *((host, together.note) for host in ("algo-1", "algo-2", "algo-7"))):
            with contextlib.suppress(*WRONG):  # as the coordinator's monitor does
                note(host, each)
        assert together.look() is None or line is ENDLESS, "no verdict comes of it"
    state = json.loads(json.dumps(view.state(BEGAN + 40), allow_nan=False))
    assert state["outcome"]["kind"] == "succeeded" and state["hosts"][0]["cpu"] == 0.562
    assert next(each for each in state["hosts"][0]["processes"] if each["name"] == "script")["ended"] == "exit code 0"
    assert sum(point.name == "loss" for point in points.of(lines_of(data))) >= 29
    make({"algo-1": data}, tmp_path / "report.html")
    page = Path(tmp_path / "report.html").read_text("utf-8")
    (content,) = page.partition('id="data">')[2].partition("</script>")[:1]
    job = json.loads(content)["job"]
    assert job["outcome"]["kind"] == "succeeded" and job["seconds"] < 200


@pytest.mark.parametrize("text", [b"[" * 100_000, b'["still"', b"\xff"], ids=["nested", "cut", "no text"])
def test_malformed_line_is_skipped_and_others_are_read(text):
    good = b'["said",1800000000,"hello"]\n'
    assert [line.text for line in lines_of(packed(good + text + b"\n" + good))] == ["hello"] * 2
