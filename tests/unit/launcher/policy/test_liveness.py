"""Test liveness.py: which hosts are lost, and the cause."""

import pytest
from plays import RAISED, STOP, ended, heartbeats, informed, link_ended, mpi, reported, running, stopped_job, unreached

from entrypoint.base.errors import ExitCode
from entrypoint.launcher.outcome.outcome import Kind
from entrypoint.launcher.policy import events


def test_a_lost_follower(play):
    p = running(play)
    heartbeats(p, 20, 3)
    assert p.blamed == "algo-2 (lost: no report for 5 s)"
    assert p.since(3)[0] == "7.0 ask worker/0"
    p.at(20.1, ended("worker/0", signal=15), reported(3, gone=True))
    assert p.what[-1] == "finish failed 69"


def test_a_second_lost_follower_is_not_waited_for(play):
    """The verdict comes with the first one; the other is silent soon after, and sends no emergency report."""
    p = running(play)
    p.at(2.5, reported(3))
    p.at(7.1, ended("worker/0", signal=15))
    p.at(30)
    assert p.blamed.startswith("algo-2 (lost: no report for 5 s)")
    assert p.what[-1] == "finish failed 69"
    assert p.did[-1][0] == pytest.approx(7.5, abs=0.1)


GONE = "(lost: no report for 2 s, and it accepts no connection)"


def test_a_failing_job_does_not_wait_long_for_a_host_that_takes_no_connection(play):
    p = mpi(play)
    p.at(3, reported(2, ready=frozenset({"prepare", "preflight", "sshd"}), ack=0))
    p.at(3.5, ended("mpirun", 1), ended("rank 0", signal=15), ended("rank 1", signal=15), unreached(2))
    p.at(4.9)
    assert p.policy.facts.outcome is None
    p.at(5.1)
    assert p.blamed == f"algo-2 {GONE}"


def test_one_that_takes_connections_may_only_be_paused(play):
    p = mpi(play)
    p.at(3, reported(2, ready=frozenset({"prepare", "preflight", "sshd"}), ack=0))
    p.at(3.5, ended("mpirun", 1), ended("rank 0", signal=15), ended("rank 1", signal=15))
    p.at(7.9)
    assert p.policy.facts.outcome is None
    p.at(8.1)
    assert p.blamed == "algo-2 (lost: no report for 5 s)"


def test_one_that_is_heard_again_is_not_lost(play):
    p = mpi(play)
    p.at(3.5, ended("mpirun", 1), ended("rank 0", signal=15), ended("rank 1", signal=15), unreached(2))
    p.at(3.6, reported(2, ready=frozenset({"prepare", "preflight", "sshd"})))
    p.at(6)
    assert "algo-2" not in p.policy.facts.lost()


def test_where_nothing_is_wrong_a_network_may_be_away_for_longer(play):
    p = running(play)
    p.at(4.5, unreached(2), reported(3))
    p.at(6.9, reported(3))
    assert p.policy.facts.outcome is None


def test_a_follower_that_fails_does_not_wait_long_for_a_coordinator_that_takes_no_connection(play):
    p = mpi(play, me=2)
    p.at(3.5, events.RankOrphaned(name="rank 2"), unreached(1))
    assert p.policy.facts.outcome is None
    p.at(4.1)
    assert p.blamed == f"algo-1 {GONE}"


CLOSED = "(lost: its connection closed, and it accepts no new one)"


@pytest.mark.parametrize("me, other", [(1, 2), (2, 1)])
def test_a_launcher_that_is_killed_is_lost_soon(play, me, other):
    p = running(play, me=me)
    p.at(2.7, link_ended(other))
    assert p.knocked == (["algo-2"] if me == 1 else [])
    p.at(2.8, unreached(other))
    p.at(3.1, *([reported(3)] if me == 1 else []))
    assert p.policy.facts.outcome is None
    p.at(3.3)
    assert p.blamed == f"algo-{other} {CLOSED}"


def test_a_host_that_takes_a_connection_while_it_is_killed_is_lost_soon(play):
    p = running(play)
    p.at(2.7, link_ended(2))  # its kernel still takes the connection of the first check
    p.at(3.5, reported(3))
    p.at(5.5, reported(3))
    assert p.policy.facts.outcome is None and len(p.knocked) >= 3
    p.at(5.6, unreached(2))
    assert p.blamed == f"algo-2 {CLOSED}"
    asked = len(p.knocked)
    p.at(7, reported(3))
    assert len(p.knocked) == asked


def test_a_host_that_reports_again_is_not_checked_any_more(play):
    p = running(play)
    p.at(2.7, link_ended(2))
    p.at(2.8, reported(2), reported(3))
    p.at(4.8, reported(2), reported(3))
    assert p.knocked == ["algo-2"] and p.policy.facts.outcome is None


def test_whose_connection_ended_has_its_time_though_we_stood_still(play):
    p = running(play)
    p.at(2.7, link_ended(2), reported(3))
    p.now = 4.6  # nothing woke us
    p._on(reported(3))  # the report of the other is behind this one
    p.at(4.7, reported(2))
    p.at(6, reported(2), reported(3))
    assert p.policy.facts.outcome is None


def test_a_failed_job_waits_for_one_that_is_cut_off_for_a_moment(play):
    """It comes back, and must learn what became of the job."""
    p = running(play)
    p.at(2, ended("worker/0", 3, RAISED), reported(2), reported(3))
    p.at(3.3, unreached(2), reported(3, gone=True))
    p.at(5.5)
    assert not p.what[-1].startswith("finish")
    p.at(5.6, reported(2, gone=True))
    assert p.what[-1] == "finish failed 3"


@pytest.mark.parametrize("me, other", [(1, 2), (2, 1)])
def test_who_hangs_up_and_takes_connections_is_not_lost_soon(play, me, other):
    """It is paused, has no thread left for a link, or other processes on its host take too much."""
    p = running(play, me=me)
    p.at(2.7, link_ended(other))
    for time in (3.5, 4.5, 5.5, 6.5) if me == 1 else ():
        p.at(time, reported(3))
    p.at(6.9)
    assert p.policy.facts.outcome is None
    p.at(7.1)
    assert p.blamed == f"algo-{other} (lost: no report for 5 s)"


def test_a_connection_that_is_lost_is_no_host_that_is_lost(play):
    p = running(play)
    p.at(2.7, link_ended(2))
    p.at(2.8, reported(2), reported(3))
    p.at(6, reported(3))
    assert p.policy.facts.outcome is None
    p.at(8)
    assert p.blamed == "algo-2 (lost: no report for 5 s)"


def test_who_hangs_up_after_its_last_words_is_not_lost(play):
    p = running(play)
    p.at(2, reported(2, done=True), reported(3, done=True), ended("worker/0", 0))
    p.at(2.5, reported(2, done=True, gone=True), link_ended(2))
    p.at(2.6, reported(3, done=True, gone=True), link_ended(3))
    p.at(9)
    assert p.what[-1] == "finish succeeded 0"


def test_a_host_that_is_killed_while_the_job_ends_is_not_waited_for(play):
    p = running(play)
    p.at(2, ended("worker/0", 3, RAISED), reported(2), reported(3))
    p.at(2.9, link_ended(2), unreached(2), reported(3, gone=True))
    p.at(3.3)
    assert not p.what[-1].startswith("finish")
    p.at(3.5)
    assert p.what[-1] == "finish failed 3"


def test_a_lost_coordinator(play):
    p = running(play, me=3)
    p.at(7.1, ended("worker/2", signal=15))
    assert p.since(3) == ["7.0 ask worker/2", "7.1 finish failed 69"]
    assert p.blamed == "algo-1 (lost: no report for 5 s)"


def test_what_failed_here_before_the_coordinator_was_lost_is_the_cause(play):
    p = running(play, me=3)
    p.at(3, informed())
    p.at(3.5, ended("worker/2", 3, RAISED))
    p.at(4, informed())
    p.at(20)
    assert p.what[-1] == "finish failed 3"
    assert "algo-3 worker/2" in p.blamed


def test_what_failed_here_after_the_coordinator_fell_silent_is_a_symptom(play):
    p = running(play, me=3)
    p.at(4, ended("worker/2", 1, RAISED))
    p.at(20)
    assert p.what[-1] == "finish failed 69"


def test_our_own_pause_is_nobodys_fault(play):
    """We are suspended for a minute (SIGSTOP, a frozen machine): the others were not silent, we did not read."""
    for me in (1, 2):
        p = running(play, me=me)
        p.at(5, *([reported(2), reported(3)] if me == 1 else [informed()]))
        p.now = 65  # nothing woke us
        p._on(events.Due())
        assert p.policy.facts.outcome is None
        heartbeats(p, 80, 2, 3)
        assert p.policy.facts.outcome is None


def test_a_follower_that_left_by_itself_is_no_success(play):
    """It took us for lost while we stood still; its last report is: all ended, gone. The exit code is never 0."""
    p = running(play)
    p.at(5, ended("worker/0"))
    p.now = 30
    p._on(reported(2, done=True, clean=False, gone=True))
    p.at(31, reported(3, done=True))
    p.at(40, reported(3, done=True, gone=True))
    assert p.policy.facts.outcome and p.policy.facts.outcome.kind is Kind.FAILED
    assert p.what[-1] == "finish failed 69"
    assert p.blamed == "algo-1 (was paused for 25 s): algo-2 left meanwhile"


def test_a_coordinator_that_stood_still_too_long_blames_itself_for_whom_it_misses(play):
    p = running(play)
    p.at(5, reported(2), reported(3))
    p.now = 12  # nothing woke us
    p._on(link_ended(2))
    p._on(unreached(2))
    heartbeats(p, 15, 3)
    assert p.blamed == "algo-1 (was paused for 7 s): algo-2 left meanwhile"


def test_a_host_that_goes_later_is_lost_though_the_coordinator_once_stood_still(play):
    p = running(play)
    p.at(5, reported(2), reported(3))
    p.now = 12
    p._on(events.Due())
    heartbeats(p, 20, 2, 3)
    p.at(20.1, link_ended(2), unreached(2), reported(3))
    heartbeats(p, 23, 3)
    assert p.blamed.startswith("algo-2 (lost: ")


@pytest.mark.parametrize("stopping", [False, True])
def test_a_follower_that_left_before_its_script_started_is_no_dead_end(play, stopping):
    p = play(3)
    p.at(1, ended("prepare"), reported(2), reported(3, ready=frozenset()))
    p.at(2, reported(2, gone=True))
    if stopping:
        p.at(2.1, STOP)
    for _ in range(20):
        p.at(p.now + 1, reported(3, done=stopping))
    assert p.policy.facts.outcome and p.policy.facts.outcome.kind is not Kind.SUCCEEDED
    p.at(p.now + 0.1, reported(3, gone=True))
    assert p.what[-1].startswith("finish ")


def test_losing_the_coordinator_does_not_shorten_the_time_to_save(play):
    p = stopped_job(play, me=2)
    p.at(40)
    assert p.policy.facts.outcome is None
    assert "force worker/1" not in p.what
    p.at(41, ended("worker/1"))
    p.at(42)
    assert p.what[-1] == "finish stopped 143"


def test_who_is_cut_off_from_all_blames_its_own_process_that_ended_before_it_missed_them(play):
    p = running(play)
    p.at(3, reported(2, ack=0))
    p.at(3.3, reported(3, ack=0))
    p.at(3.5, ended("worker/0", signal=9))
    p.at(4.6, unreached(2), unreached(3))
    for now in (5.05, 5.35, 6):
        p.at(now)
    assert p.policy.facts.lost() == {"algo-2", "algo-3"}
    assert p.blamed == "algo-1 worker/0 (killed by SIGKILL)"


def test_a_follower_that_knows_what_failed_tells_it_to_a_coordinator_that_was_cut_off_for_a_moment(play):
    p = running(play, me=2)
    p.at(3, informed())
    p.at(3.5, ended("worker/1", 1, RAISED))
    p.at(4.6, unreached(1))
    p.at(5.5)
    assert p.policy.facts.outcome is None
    p.at(5.8, informed())
    assert p.last_told.cause.headline == "algo-2 worker/1 (exit code 1): ValueError: x"
    assert p.policy.facts.lost() == set()


def test_a_coordinator_that_hears_nobody_says_so(play):
    p = running(play)
    p.at(3, reported(3))
    p.at(3.9, reported(2))
    p.at(20)
    assert p.blamed == ("algo-3 (lost: no report for 5 s): no other host reports either; algo-1 itself may be cut off")
    assert p.policy.facts.outcome.exit_code == ExitCode.HOST_LOST
