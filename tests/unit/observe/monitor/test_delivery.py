"""Test the delivery of a follower's record when the coordinator's answer is malformed."""

import json
from types import SimpleNamespace

import pytest
from builders import read as job_of
from waiting import eventually

from entrypoint.observe.monitor.delivery import PIECE_BYTES, Delivery


@pytest.mark.parametrize(
    "answer",
    [b"", b"{", b"[]", b"7", b'{"have": "many", "wants": {}}', b'{"have": -5, "wants": {}}', b"[" * 5000,
     b'{"have": Infinity, "wants": {}}', b'{"have": 1, "wants": 7}', b'{"have": 0, "wants": {}}'],
    ids=lambda answer: answer[:30],
)  # fmt: skip
def test_malformed_answer_does_not_stop_record_delivery(tmp_path, answer):
    path = tmp_path / "algo-2.jsonl.gz"
    path.write_bytes(bytes(2 * PIECE_BYTES))
    delivery, answers, had = Delivery(job_of(tmp_path, 2, me="algo-2"), path), [answer], bytearray()

    def call(host: object, where: str, piece: bytes, patience: float) -> SimpleNamespace:
        if answers:
            return SimpleNamespace(body=answers.pop())
        if int(where.split("/")[3]) == len(had):
            had.extend(piece)
        return SimpleNamespace(body=json.dumps({"have": len(had), "wants": {"stacks": 1}}).encode())

    delivery._call = call
    delivery.bring()
    eventually(lambda: not answers, within=60)
    delivery.bring()
    eventually(lambda: delivery.wants == {"stacks": 1}, within=60)
    eventually(lambda: delivery.finish(0.5), within=60)
    assert bytes(had) == path.read_bytes()
