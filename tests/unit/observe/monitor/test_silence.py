"""Test when stacks are taken."""

import threading
from types import SimpleNamespace

from waiting import eventually

from entrypoint.observe.monitor import stacks
from entrypoint.observe.monitor.silence import Silence
from entrypoint.record.lines import Stacks


def test_stacks_are_taken_by_one_thread_at_a_time_and_only_the_newest_count(monkeypatch, tmp_path):
    """py-spy stops a process: another look at the same time takes it for one that a signal has stopped."""
    begun, go = [], threading.Event()

    def take(families, waiting):
        begun.append(len(begun) + 1)
        number = begun[-1]
        assert go.wait(60)
        return [Stacks(process=f"script {number}")]

    monkeypatch.setattr(stacks, "take", take)
    silence = Silence(SimpleNamespace(), after=2, ranks=False, stacks=tmp_path / "stacks.txt")
    silence.take_stacks(1, {})
    eventually(lambda: begun, within=60)
    silence.take_stacks(2, {})  # the job has shown progress, and is silent again
    assert begun == [1]
    go.set()

    def found():
        silence.take_stacks(2, {})
        return silence.stacks()

    assert [line.process for line in eventually(found, within=60)] == ["script 2"] and begun == [1, 2]
