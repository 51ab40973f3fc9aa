"""Test which bytes count as progress while a job shows no other sign of it. The kernel's figures are made up."""

import pytest

from entrypoint.observe.monitor import traffic
from entrypoint.observe.monitor.silence import LastSigns
from entrypoint.observe.monitor.sockets import Connection
from entrypoint.observe.monitor.traffic import Moves
from entrypoint.record.lines import SampleLine

HERE, PEER, STORE = ("10.0.0.1", 40_000), ("10.0.0.2", 2222), ("52.1.1.1", 443)
CHILD = ("10.0.0.1", 50_000)  # another process of the same family


def look(monkeypatch, used: dict[str, float], passed: list[tuple], *, listed: bool = True) -> tuple[dict, bool]:
    """Let a script use this in each of 30 seconds; return its bytes per second and whether it counts as silent."""
    moves, progress, found = Moves(), LastSigns(), {}
    monkeypatch.setattr(traffic, "inodes_of", lambda pids: dict.fromkeys(range(len(passed)), 7))
    for second in range(1, 31):

        def connections(second=second):
            if not listed:
                raise OSError("refused")
            return [
                Connection(inode=at, local=local, remote=remote, received=second * received, sent=second * sent)
                for at, (local, remote, received, sent) in enumerate(passed)
            ]

        monkeypatch.setattr(traffic, "connections", connections)
        found = moves.look({"script": [7]}, {"script": used}, {PEER[0]})
        assert second > 1 or found == {}, "the first look knows no differences"
        progress.look(second, ["script"], SampleLine(seconds=1.0, host={}, processes={}, peers={}), moved=found)
    return found, bool(progress.still(30, least=25))


BYTES = {
    "nothing": ({}, [], 0, False),
    "a file that is read slowly": ({"read": 17_000}, [], 17_000, True),
    "a tracker's heartbeats": ({"read": 300, "written": 700}, [], 1000, False),
    "a checkpoint, whose bytes the disk counts, too": ({"written": 90_000, "stored": 90_000}, [], 90_000, True),
    "a mapped file": ({"stored": 40_000}, [], 40_000, True),
    "received by read()": ({"read": 90_000}, [(HERE, STORE, 90_000, 0)], 90_000, True),
    "received by recv()": ({}, [(HERE, STORE, 90_000, 0)], 90_000, True),
    "received, and written to a file": ({"written": 90_000}, [(HERE, STORE, 90_000, 0)], 180_000, True),
    "sent by send()": ({}, [(HERE, STORE, 0, 90_000)], 90_000, True),
    "sent by write()": ({"written": 90_000}, [(HERE, STORE, 0, 90_000)], 90_000, True),
    "the polling of a rank by read() and write()": (
        {"read": 90_000, "written": 90_000}, [(HERE, PEER, 90_000, 90_000)], 0, False,
    ),
    "the polling of a rank, beside a file": ({"read": 110_000}, [(HERE, PEER, 90_000, 90_000)], 20_000, True),
    "a process and its child": ({}, [(HERE, CHILD, 90_000, 0), (CHILD, HERE, 0, 90_000)], 0, False),
}  # fmt: skip


@pytest.mark.parametrize(("used", "passed", "bytes_", "is_progress"), BYTES.values(), ids=BYTES)
def test_file_and_external_network_bytes_are_progress(monkeypatch, used, passed, bytes_, is_progress):
    assert look(monkeypatch, used, passed) == ({"script": bytes_}, not is_progress)


def test_network_bytes_count_as_file_bytes_without_kernel_list(monkeypatch):
    found = look(monkeypatch, {"read": 90_000}, [(HERE, PEER, 90_000, 0)], listed=False)
    assert found == ({"script": 90_000}, False)
