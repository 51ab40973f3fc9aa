"""Test phase.py: the phase that a history of events leads to."""

import pytest
from plays import RAISED, ended, reported

from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.facts import Phase

STOP = events.Signalled(number=15)
KILLED = ended("worker/0", signal=9)


@pytest.mark.parametrize(
    "happened, phase",
    [
        ([], Phase.STARTING),
        ([ended("prepare"), reported(2)], Phase.RUNNING),
        ([ended("prepare"), reported(2), STOP], Phase.STOPPING),
        ([ended("prepare"), reported(2), ended("worker/0", 3, RAISED)], Phase.ENDING),
        ([ended("prepare"), reported(2), ended("worker/0", 3, RAISED), STOP], Phase.ENDING),
        ([ended("prepare"), reported(2), ended("worker/0"), reported(2, done=True, gone=True)], Phase.ENDED),
    ],
)
def test_events_lead_to_the_phase(play, happened, phase):
    p = play(2)
    for time, event in enumerate(happened, 1):
        p.at(time, event)
    assert p.policy.facts.phase is phase
    assert phase.is_active is (phase in (Phase.STARTING, Phase.RUNNING))


def test_another_attempt_goes_through_restarting_to_running(play):
    p = play(1, restarts=1, restart_backoff=1.5, processes_per_host=2)
    phases = []
    for time, event in enumerate([ended("prepare"), KILLED, ended("worker/1", signal=15), events.Due()], 1):
        phases.append(p.at(time, event).policy.facts.phase)
    assert phases == [Phase.RUNNING, Phase.RESTARTING, Phase.STARTING, Phase.RUNNING]


def test_stopping_counts_before_restarting(play):
    p = play(2, restarts=1)
    p.at(1, ended("prepare"), reported(2), KILLED, STOP)
    assert p.policy.facts.phase is Phase.STOPPING
