"""Test when IdleWorkers, which watches scripts that may only serve, reports an event."""

from math import inf

from entrypoint.launcher.host.idle_workers import LOOK_SECONDS, IdleWorkers, Rest
from entrypoint.launcher.policy.events import Resting


def test_idle_workers_reports_changes_and_end_of_resting_script(monkeypatch):
    rests: dict[int, float | None] = {7: None}
    monkeypatch.setattr(Rest, "look", lambda self, now, patience: rests[self.pid])
    idle = IdleWorkers(patience=10.0)
    assert idle.look_at == inf
    idle.add("worker/1", pid=7, port=2222)
    assert idle.look(5.0) == [] and idle.look_at == 5.0 + LOOK_SECONDS
    rests[7] = 2.0
    assert idle.look(6.0) == [Resting(found=(("worker/1", 2.0),))]
    assert idle.look(7.0) == []
    idle.forget("worker/1")
    assert idle.look_at == 7.0 + LOOK_SECONDS
    assert idle.look(8.0) == [Resting(found=())]
    assert idle.look_at == inf
