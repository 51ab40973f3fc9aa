"""Test how the coordinator reads a growing record."""

import random

import pytest

from entrypoint.record.lines import EndedLine, Metric, Still, WeightsLine, line_of
from entrypoint.record.read import RecordTail
from entrypoint.record.write import Record


def test_tail_reads_lines_as_they_arrive(tmp_path):
    tail = RecordTail(tmp_path / "record/algo-2.jsonl.gz")
    assert list(tail.lines((Still,))) == [], "there is none yet"
    record = Record(tmp_path / "record/algo-2.jsonl.gz", pytest.fail)
    record.add(line_of(["still", 1.0, {}]))
    record.add(line_of(["said", 2.0, "hello"]))
    record.flush()
    assert list(tail.lines((Still,))) == [Still(at=1.0, figures={})]
    assert list(tail.lines((Still,))) == []
    record.add(line_of(["ended", 3.0, "worker", "exit code 0"]))
    record.close()
    assert list(tail.lines((Still, EndedLine))) == [EndedLine(at=3.0, process="worker", how="exit code 0")]


def test_tail_reads_pieces_cut_anywhere(tmp_path):
    record = Record(tmp_path / "whole/algo-2.jsonl.gz", pytest.fail)
    for number in range(100):
        record.add(line_of(["still", float(number), {"worker": [number, 0.1]}]))
    record.close()
    whole = record.path.read_bytes()
    tail, found = RecordTail(tmp_path / "part.gz"), []
    for end in range(0, len(whole) + 50, 50):
        (tmp_path / "part.gz").write_bytes(whole[:end])
        found += tail.lines((Still,))
    assert [line.at for line in found] == list(range(100))


def test_tail_skips_only_the_unreadable_line(tmp_path):
    record = Record(tmp_path / "algo-2.jsonl.gz", pytest.fail)
    nested, unknown = b'["still",1,' + b"[" * 5000, b'["metric",1,"script",{"step":NaN}]'
    malformed = [b'["still"', nested, b'["still",1,"\xff"]', unknown]
    for line in malformed:
        record.add(line)
        record.add(line_of(["still", 1.0, {"script": [1.0, 0.5]}]))
    record.add(b'["metric",1,"script",{"step":1,"loss":NaN}]')
    record.close()
    found = list(RecordTail(record.path).lines((Still, Metric, WeightsLine)))
    assert found[:-1] == [Still(at=1.0, figures={"script": [1.0, 0.5]})] * len(malformed)
    assert found[-1].values["step"] == 1, "a loss may be no number, which is to be seen"


def test_tail_skips_only_the_broken_part_of_a_record(tmp_path):
    """The bytes that replace the part do not matter."""
    for seed in range(20):
        record = Record(tmp_path / f"{seed}.gz", pytest.fail)
        for number in range(50):
            record.add(line_of(["still", float(number), {}]))
        record.flush()
        middle = record.size
        for number in range(50, 100):
            record.add(line_of(["still", float(number), {}]))
        record.flush()
        record._file.close()  # as it is killed
        whole = bytearray(record.path.read_bytes())
        at, dice = middle + (seed * 7) % (len(whole) - middle), random.Random(seed)
        whole[at : at + 9] = dice.randbytes(9)
        record.path.write_bytes(whole)
        second = Record(record.path, pytest.fail, again=True)
        second.add(line_of(["still", 100.0, {}]))
        second.close()
        found = [line.at for line in RecordTail(record.path).lines((Still,))]
        assert found[:50] == [float(number) for number in range(50)] and found[-1] == 100.0


def test_tail_reads_the_lines_of_two_monitors(tmp_path):
    tail, path = RecordTail(tmp_path / "algo-2.jsonl.gz"), tmp_path / "algo-2.jsonl.gz"
    for again in (False, True, True):
        record = Record(path, pytest.fail, again=again)
        record.add(line_of(["still", 1.0, {"again": [int(again)]}]))
        record.flush()
        record._file.close()  # as it is killed
        assert list(tail.lines((Still,))) == [Still(at=1.0, figures={"again": [int(again)]})]
    assert list(tail.lines((Still,))) == []
