"""Test phase.py: the phase that a history of events leads to."""

import pytest
from plays import RAISED, STOP, ended, reported

from entrypoint.launcher.policy.facts import Phase

KILLED, FAILED = ended("worker/0", signal=9), ended("worker/0", 3, RAISED)
STARTED = [(ended("prepare"), "starting"), (reported(2), "running")]
PHASES = {
    # what happens, and the phase after it
    "a success": [
        *STARTED, (ended("worker/0"), "running"), (ended("worker/1"), "running"),
        (reported(2, done=True, gone=True), "ended"),
    ],
    "a stop": [*STARTED, (STOP, "stopping")],
    "a failure and a stop": [*STARTED, (FAILED, "ending"), (STOP, "ending")],
    "another attempt": [
        *STARTED, (KILLED, "restarting"), (ended("worker/1", signal=15), "starting"),
        (reported(2, attempt=1), "running"),
    ],
    "a stop before another attempt": [*STARTED, (KILLED, "restarting"), (STOP, "stopping")],
}  # fmt: skip


@pytest.mark.parametrize("history", PHASES.values(), ids=PHASES)
def test_events_determine_the_phase(play, history):
    p, phases = play(2, restarts=1, restart_backoff=1.5, processes_per_host=2), []
    for time, (event, _) in enumerate(history, 1):
        phases.append(p.at(time, event).policy.facts.phase)
    assert phases == [phase for _, phase in history]
    assert {phase for phase in Phase if phase.is_active} == {Phase.STARTING, Phase.RUNNING}
