"""Test what the policy does with the files that hosts leave."""

import pytest
from plays import RAISED, STOP, Play, ended, informed, reported, running

from entrypoint.launcher.outcome import outcome
from entrypoint.launcher.outcome.outcome import Exit
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.artifacts import Artifacts, File
from entrypoint.launcher.policy.termination import INVENTORY_SECONDS

NOTHING = Artifacts(model=False)


def warned(p: Play) -> list[str]:
    return [line.removeprefix("warning: ") for line in p.said if line.startswith("warning: ")]


def done(host: int, **facts) -> list[events.Reported]:
    """Return a host's reports: its script ended well, and then it has left, knowing the outcome."""
    return [reported(host, done=True), reported(host, done=True, gone=True, **facts)]


def test_the_coordinator_says_what_all_hosts_left_before_it_leaves(play):
    p = running(play)
    p.leaves = NOTHING
    p.at(5, ended("worker/0"), reported(2, done=True), *done(3, artifacts=NOTHING))
    assert not any(what.startswith("finish") for what in p.what)
    p.at(6, *done(2, artifacts=NOTHING))
    assert p.what[-1] == "finish succeeded 0"
    (warning,) = warned(p)
    assert warning.startswith("/opt/ml/model is empty")


@pytest.mark.parametrize("mine, others, said", [
    (Artifacts(model=True, saved="model/1"), NOTHING, 0),
    (NOTHING, Artifacts(model=True, saved="model/1"), 0),
    (NOTHING, None, 0),  # a host that could not see what it leaves
    (None, NOTHING, 0),
    (NOTHING, Artifacts(model=True), 1),
    (Artifacts(model=True, saved="model/1", files=(File(path="model/1/x", size=1),)),
     Artifacts(model=True, saved="model/1", files=(File(path="model/1/x", size=2),)), 1),
])  # fmt: skip
def test_what_hosts_left_is_compared(play, mine, others, said):
    p = running(play, 2)
    p.leaves = mine
    p.at(5, ended("worker/0"), *done(2, artifacts=others))
    assert p.what[-1] == "finish succeeded 0"
    assert len(warned(p)) == said


def test_a_follower_tells_what_it_leaves_with_its_last_words(play):
    p = running(play, 2, me=2)
    p.at(5, ended("worker/1"))
    assert p.last_told.done and not p.last_told.gone and p.last_told.artifacts is None
    p.at(6, informed(outcome=outcome.succeeded()))
    assert p.last_told.gone and p.last_told.artifacts == p.leaves
    assert p.what[-1] == "finish succeeded 0"
    assert warned(p) == []  # one host says it for all


@pytest.mark.parametrize("me", [1, 2])
def test_a_disk_that_does_not_answer_holds_nobody_up(play, me):
    p = running(play, 2, me=me)
    p.sees = False
    p.at(5, ended(f"worker/{me - 1}"))
    p.at(6, *(done(2, artifacts=NOTHING) if me == 1 else [informed(outcome=outcome.succeeded())]))
    assert not any(what.startswith("finish") for what in p.what)
    p.at(30)
    assert p.since(6) == [f"{6 + INVENTORY_SECONDS:.1f} finish succeeded 0"]
    assert me == 1 or (p.last_told.gone and p.last_told.artifacts is None)
    assert warned(p) == []


def test_nobody_looks_while_something_runs(play):
    """A parameter server may still be writing what the script saved."""
    p = play(2, 1, "ps", ps_workers="script")
    p.sees = False
    p.at(1, ended("prepare"))
    p.at(2, reported(2, ready=frozenset({"prepare", "preflight", "ps/1"})), events.Listening(name="ps/0"))
    p.at(5, ended("chief/0"), reported(2, done=True))
    assert p.what[-1] == "ask ps/0" and p.policy.termination._inventory_since is None
    p.at(6, ended("ps/0", signal=15))
    assert p.policy.termination._inventory_since == 6


@pytest.mark.parametrize("happened", [[ended("worker/0", 3, RAISED)], [STOP, ended("worker/0", 143)]])
def test_after_another_end_nobody_looks(play, happened):
    p = running(play, 2)
    p.sees, p.leaves = False, NOTHING
    p.at(5, *happened, *done(2, artifacts=NOTHING))
    p.at(30)
    assert p.what[-1].startswith(("finish failed", "finish stopped"))
    assert p.policy.termination._inventory_since is None and warned(p) == []


def test_what_a_script_wrote_to_the_failure_file_is_the_jobs_explanation(play):
    p = running(play, 2)
    wrote = events.Ended(name="worker/0", exit=Exit(code=4), output=RAISED, wrote="the data is bad\nrow 7\n")
    p.at(5, wrote, reported(2, gone=True))
    assert p.blamed == "algo-1 worker/0 (exit code 4): the data is bad"
    assert p.policy.facts.outcome.failure_text().splitlines()[1:] == ["row 7"]
