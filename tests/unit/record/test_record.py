"""Test that the record's file is readable at any moment."""

import contextlib
import gzip
import json
import os
import resource
import shutil
import zlib

import pytest

from entrypoint.launcher.control.records import Records
from entrypoint.launcher.control.wire import Refused
from entrypoint.record.lines import HostLine, Said
from entrypoint.record.read import lines_of
from entrypoint.record.write import RECORD_BYTES, Record


@contextlib.contextmanager
def no_room_beyond(size: int):
    """Limit a file's size, as on a full disk: the kernel writes the start of a longer piece, then nothing."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def add(record: Record, *numbers: int) -> None:
    for number in numbers:
        record.add(Said(at=number, text=os.urandom(200).hex()))


def numbers(record: Record) -> list[int]:
    return [line.at for line in lines_of(record.path.read_bytes())]


def lines(content: bytes) -> list:
    return [json.loads(line) for line in zlib.decompressobj(31).decompress(content).splitlines()]


def test_flushed_lines_are_readable_before_the_end(tmp_path):
    record = Record(tmp_path / "record/algo-1.jsonl.gz", pytest.fail)
    record.add(HostLine(at=1.23456, host="algo-1"))
    record.add(b'["said",2,"hello"]')
    record.flush()
    seen = record.path.read_bytes()
    assert lines(seen) == [["host", 1.235, {"host": "algo-1"}], ["said", 2, "hello"]]
    record.flush()
    assert record.path.read_bytes() == seen, "nothing new, nothing written"
    record.add(Said(at=3.0, text="bye"))
    record.close()
    whole = record.path.read_bytes()
    assert whole.startswith(seen) and lines(whole)[-1] == ["said", 3.0, "bye"]


@pytest.mark.parametrize("waiting, missing", [(1 << 20, False), (20_000, True)])
def test_full_disk_loses_only_lines_beyond_the_buffer(tmp_path, monkeypatch, waiting, missing):
    """For example, a checkpoint fills the disk for some time."""
    monkeypatch.setattr("entrypoint.record.write.WAITING_BYTES", waiting)
    said = []
    record = Record(tmp_path / "algo-1.jsonl.gz", said.append)
    add(record, 1)
    record.flush()
    with no_room_beyond(1000):
        for number in range(2, 200):
            add(record, number)
            record.flush()
        assert numbers(record) == list(range(1, 1 + len(numbers(record)))), "so far it can be read"
        assert len(said) == 1 and "the record of this host cannot be written" in said[0]
        assert ": File too large;" in said[0]
    record.flush()
    add(record, 200, 201)
    record.close()
    found = [line[1] for line in map(json.loads, gzip.decompress(record.path.read_bytes()).splitlines())]
    assert found == [*range(1, len(found) - 1), 200, 201] and (20 < len(found) < 201) is missing
    lost = f"{201 - len(found)} lines are missing" if missing else "and nothing is missing"
    assert len(said) == 2 and "the record of this host can be written again" in said[1] and lost in said[1]


def test_record_removed_while_growing_is_created_again(tmp_path):
    record = Record(tmp_path / "record/algo-1.jsonl.gz", pytest.fail)
    add(record, 1, 2)
    record.flush()
    shutil.rmtree(tmp_path / "record")
    add(record, 3)
    record.close()
    assert numbers(record) == [1, 2, 3]


def test_unwritable_record_is_logged_and_retried(tmp_path):
    said = []
    (tmp_path / "record").touch()
    record = Record(tmp_path / "record/algo-1.jsonl.gz", said.append)
    add(record, 1)
    record.flush()
    assert len(said) == 1 and "cannot be written" in said[0]
    (tmp_path / "record").unlink()
    add(record, 2)
    record.close()
    assert numbers(record) == [1, 2]


@pytest.mark.parametrize("cut", [0, 30, 150])
def test_restarted_monitor_continues_the_record(tmp_path, cut):
    first = Record(tmp_path / "algo-1.jsonl.gz", pytest.fail)
    add(first, 1, 2)
    first.flush()
    add(first, 3)
    first.flush()
    first._file.close()
    os.truncate(first.path, first.size - cut)  # killed as it wrote
    second = Record(first.path, pytest.fail, again=True)
    add(second, 4)
    second.flush()
    add(second, 5)
    second.close()
    assert [number for number in numbers(second) if number != 3] == [1, 2, 4, 5]
    assert (3 in numbers(second)) == (cut == 0)


def have(answer: bytes) -> int:
    """Return how many bytes of a record the coordinator reports to have."""
    return json.loads(answer)["have"]


class TestRecords:
    @pytest.fixture
    def said(self):
        return []

    @pytest.fixture
    def records(self, tmp_path, said):
        return Records(tmp_path / "record", tmp_path / "wants.json", {"algo-2", "algo-3"}, said.append)

    def test_pieces_are_appended_in_order(self, records, tmp_path):
        assert json.loads(records.take("/record/algo-2/0", {"algo-2"}, b"abc")) == {"have": 3, "wants": {}}
        assert have(records.take("/record/algo-2/3/end", {"algo-2"}, b"de")) == 5
        assert (tmp_path / "record/algo-2.jsonl.gz").read_bytes() == b"abcde"
        assert (tmp_path / "record/algo-2.whole").exists()

    def test_repeated_or_gapped_piece_is_not_appended(self, records, tmp_path):
        records.take("/record/algo-2/0", {"algo-2"}, b"abc")
        assert have(records.take("/record/algo-2/0", {"algo-2"}, b"abc")) == 3
        assert have(records.take("/record/algo-2/9/end", {"algo-2"}, b"xyz")) == 3
        assert (tmp_path / "record/algo-2.jsonl.gz").read_bytes() == b"abc"
        assert not (tmp_path / "record/algo-2.whole").exists()

    def test_answer_has_the_coordinators_requests(self, records, tmp_path):
        (tmp_path / "wants.json").write_text('{"stacks": 1}')
        assert json.loads(records.take("/record/algo-3/0", {"algo-3"}, b""))["wants"] == {"stacks": 1}

    @pytest.mark.parametrize(
        "path", ["/record/algo-1/0", "/record/../0", "/record/algo-2/-1", "/record/algo-2/", "/record/algo-2%2f/0"]
    )
    def test_record_path_of_no_follower_is_refused(self, records, path, tmp_path):
        with pytest.raises(Refused) as refused:
            records.take(path, {"algo-2"}, b"abc")
        assert refused.value.status == 404 and not (tmp_path / "record").exists()

    def test_host_cannot_send_another_hosts_record(self, records):
        with pytest.raises(Refused, match="not the address of algo-2"):
            records.take("/record/algo-2/0", {"algo-3"}, b"abc")

    def test_record_size_is_limited(self, records, tmp_path):
        (tmp_path / "record").mkdir()
        (tmp_path / "record/algo-2.jsonl.gz").write_bytes(bytes(RECORD_BYTES - 1))
        most = RECORD_BYTES - 1
        assert have(records.take(f"/record/algo-2/{most}", {"algo-2"}, b"ab")) == most

    def test_copied_record_is_complete_after_temporarily_full_disk(self, records, tmp_path, said):
        """The follower sends the refused bytes again once there is room."""
        record = Record(tmp_path / "algo-2.jsonl.gz", pytest.fail)
        copy, at = tmp_path / "record/algo-2.jsonl.gz", 0

        def bring(end: str = "") -> int:
            piece = record.path.read_bytes()[at:]
            return have(records.take(f"/record/algo-2/{at}{end}", {"algo-2"}, piece))

        add(record, 1)
        record.flush()
        at = bring()
        add(record, *range(2, 100))
        record.flush()
        with no_room_beyond(1000):
            at = bring()
            assert at == 1000 and not said
            for _ in range(2):
                with pytest.raises(Refused, match="File too large") as refused:
                    bring()
                assert refused.value.status == 507
        assert next(line.at for line in lines_of(copy.read_bytes())) == 1, "so far it can be read"
        at = bring()
        add(record, 100)
        record.close()
        assert bring("/end") == record.size
        assert copy.read_bytes() == record.path.read_bytes() and copy.with_name("algo-2.whole").exists()
        kept, again = said
        assert "the record of algo-2 cannot be kept" in kept and "File too large" in kept
        assert again == "the record of algo-2 can be kept again"
