"""A record that grows, as the coordinator reads it."""

from entrypoint.monitor.others import Tail
from entrypoint.monitor.record import Record


def test_lines_as_they_come(tmp_path):
    tail = Tail(tmp_path / "record/algo-2.jsonl.gz")
    assert list(tail.lines(("still",))) == [], "there is none yet"
    record = Record(tmp_path / "record/algo-2.jsonl.gz")
    record.add("still", 1.0, {})
    record.add("said", 2.0, "hello")
    record.flush()
    assert list(tail.lines(("still",))) == [["still", 1.0, {}]]
    assert list(tail.lines(("still",))) == []
    record.add("ended", 3.0, "worker", "exit code 0")
    record.close()
    assert list(tail.lines(("still", "ended"))) == [["ended", 3.0, "worker", "exit code 0"]]


def test_a_piece_that_ends_anywhere(tmp_path):
    record = Record(tmp_path / "whole/algo-2.jsonl.gz")
    for number in range(100):
        record.add("still", float(number), {"worker": [number, 0.1]})
    record.close()
    whole = record.path.read_bytes()
    tail, found = Tail(tmp_path / "part.gz"), []
    for end in range(0, len(whole) + 50, 50):
        (tmp_path / "part.gz").write_bytes(whole[:end])
        found += tail.lines(("still",))
    assert [line[1] for line in found] == list(range(100))


def test_what_is_no_record(tmp_path):
    (tmp_path / "algo-2.jsonl.gz").write_bytes(b"no gzip")
    assert list(Tail(tmp_path / "algo-2.jsonl.gz").lines(("still",))) == []
