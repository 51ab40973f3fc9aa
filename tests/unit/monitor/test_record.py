"""The file of a record: what is in it at any moment can be read."""

import json
import zlib

import pytest

from entrypoint.control.records import MOST, Records
from entrypoint.control.wire import Refused
from entrypoint.monitor.record import Record


def lines(content: bytes) -> list:
    return [json.loads(line) for line in zlib.decompressobj(31).decompress(content).splitlines()]


def test_what_was_flushed_can_be_read_before_the_end(tmp_path):
    record = Record(tmp_path / "record/algo-1.jsonl.gz")
    record.add("host", 1.23456, {"host": "algo-1"})
    record.add_line(b'["said",2,"hello"]')
    record.flush()
    seen = record.path.read_bytes()
    assert lines(seen) == [["host", 1.235, {"host": "algo-1"}], ["said", 2, "hello"]]
    record.flush()
    assert record.path.read_bytes() == seen, "nothing new, nothing written"
    record.add("said", 3.0, "bye")
    record.close()
    whole = record.path.read_bytes()
    assert whole.startswith(seen) and lines(whole)[-1] == ["said", 3.0, "bye"]


class TestRecords:
    @pytest.fixture
    def records(self, tmp_path):
        return Records(tmp_path / "record", tmp_path / "wants.json", {"algo-2", "algo-3"})

    def test_pieces_in_order(self, records, tmp_path):
        assert json.loads(records.take("/record/algo-2/0", {"algo-2"}, b"abc")) == {"have": 3, "wants": {}}
        assert json.loads(records.take("/record/algo-2/3/end", {"algo-2"}, b"de"))["have"] == 5
        assert (tmp_path / "record/algo-2.jsonl.gz").read_bytes() == b"abcde"
        assert (tmp_path / "record/algo-2.whole").exists()

    def test_a_piece_that_came_before_or_is_missing(self, records, tmp_path):
        records.take("/record/algo-2/0", {"algo-2"}, b"abc")
        assert json.loads(records.take("/record/algo-2/0", {"algo-2"}, b"abc"))["have"] == 3
        assert json.loads(records.take("/record/algo-2/9/end", {"algo-2"}, b"xyz"))["have"] == 3
        assert (tmp_path / "record/algo-2.jsonl.gz").read_bytes() == b"abc"
        assert not (tmp_path / "record/algo-2.whole").exists()

    def test_what_the_coordinator_wants(self, records, tmp_path):
        (tmp_path / "wants.json").write_text('{"stacks": 1}')
        assert json.loads(records.take("/record/algo-3/0", {"algo-3"}, b""))["wants"] == {"stacks": 1}

    @pytest.mark.parametrize(
        "path", ["/record/algo-1/0", "/record/../0", "/record/algo-2/-1", "/record/algo-2/", "/record/algo-2%2f/0"]
    )
    def test_paths_of_nobody(self, records, path, tmp_path):
        with pytest.raises(Refused) as refused:
            records.take(path, {"algo-2"}, b"abc")
        assert refused.value.status == 404 and not (tmp_path / "record").exists()

    def test_another_hosts_record(self, records):
        with pytest.raises(Refused, match="not the address of algo-2"):
            records.take("/record/algo-2/0", {"algo-3"}, b"abc")

    def test_a_record_has_its_limit(self, records, tmp_path):
        (tmp_path / "record").mkdir()
        (tmp_path / "record/algo-2.jsonl.gz").write_bytes(bytes(MOST - 1))
        assert json.loads(records.take(f"/record/algo-2/{MOST - 1}", {"algo-2"}, b"ab"))["have"] == MOST - 1
