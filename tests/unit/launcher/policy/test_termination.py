"""Test termination.py: which processes are terminated, when, and by which signal."""

import pytest
from plays import STOP, cause, ended, heartbeats, informed, mpi, reported, running, stopped_job

from entrypoint.launcher.outcome import outcome
from entrypoint.launcher.policy import events, messages


def test_what_ignores_sigterm_is_killed_after_the_grace(play):
    p = running(play, failure_grace=4)
    p.at(5, reported(2, done=True, clean=False, cause=cause(2)))
    p.at(20, ended("worker/0", signal=9))
    assert p.since(3)[:2] == ["5.0 ask worker/0", "9.0 force worker/0"]
    assert p.what[-1] == "finish failed 3"


def test_a_late_rank_of_a_failed_job_is_stopped(play):
    p = mpi(play, me=2)
    p.at(5, ended("rank 2", signal=15), informed(outcome=outcome.failed(cause(1))))
    assert sorted(p.since(4)) == ["5.0 ask rank 3", "5.0 ask sshd"]
    p = play(2, 2, mode="mpi", processes_per_host=2)
    p.at(1, ended("prepare"), informed(outcome=outcome.failed(cause(1))))
    p.at(2, events.RankStarted(name="rank 2", pid=5))
    assert p.since(2) == ["2.0 ask rank 2"]


def test_mpirun_goes_when_the_job_has_failed(play):
    p = mpi(play)
    p.at(5, reported(2, cause=cause(2, process="rank 3"), ready=frozenset({"prepare", "preflight", "sshd"})))
    p.at(5.2, ended("rank 0", signal=15), ended("rank 1", signal=15), ended("sshd", signal=15))
    p.at(5.3, reported(2, gone=True))
    assert p.what[-1] == "force mpirun"
    p.at(5.4, ended("mpirun", signal=9))
    assert p.what[-1] == "finish failed 3"


def test_mpirun_is_not_waited_for_where_no_other_host_is_left(play):
    """It waits for a daemon that is lost."""
    p = mpi(play)
    p.at(7.1, ended("rank 0", signal=15), ended("rank 1", signal=15))
    assert p.blamed == "algo-2 (lost: no report for 5 s)"
    assert p.what[-1] == "force mpirun"
    p.at(7.2, ended("mpirun", signal=9), ended("sshd"))
    assert p.what[-1] == "finish failed 69"


def test_stopped_and_all_scripts_save(play):
    p = stopped_job(play)
    p.at(6, ended("worker/0"), reported(2, stopping=True))
    assert p.policy.facts.outcome is None
    p.at(6.5, reported(2, stopping=True, done=True), reported(3, stopping=True, done=True))
    assert p.policy.facts.outcome == outcome.succeeded()
    p.at(6.6, reported(2, gone=True), reported(3, gone=True))
    assert p.what[-1] == "finish succeeded 0"


def test_stopped_and_one_script_does_not_save(play):
    p = stopped_job(play)
    p.at(6, ended("worker/0"))
    p.at(6.5, reported(2, stopping=True, done=True, clean=False), reported(3, stopping=True, done=True))
    assert p.policy.facts.outcome == outcome.stopped()


def test_a_process_that_survives_sigkill_is_given_up(play):
    p = running(play, stop_grace=10, kill_timeout=4)
    p.unkillable = ("pid 7 (python3), state D (uninterruptible sleep), waits in nfs_wait",)
    p.at(5, STOP)
    heartbeats(p, 20, 2, 3, stopping=True, done=True)
    assert p.since(6) == ["15.0 force worker/0", "19.0 inspect worker/0"]
    assert p.policy.facts.outcome == outcome.stopped()
    assert f"worker/0 survives SIGKILL for 4 s and is left behind: {p.unkillable[0]}" in p.said
    p.at(21, reported(2, gone=True), reported(3, gone=True))
    assert p.what[-1] == "finish stopped 143"


def test_mpirun_has_its_time_and_no_more_when_all_ranks_have_ended_well(play):
    p = mpi(play)
    p.at(5, reported(2, ready=frozenset({"prepare", "preflight", "sshd", "rank 2", "rank 3"}), done=False))
    p.at(6, ended("rank 0"), ended("rank 1"))
    heartbeats(p, 30, 2, done=False)
    assert p.since(6) == []
    heartbeats(p, 45, 2, done=True)
    assert [what.split(maxsplit=1)[1] for what in p.since(6)][:1] == ["force mpirun"]
    p.at(46, ended("mpirun", signal=9))
    assert p.policy.facts.outcome == outcome.succeeded()


def test_the_coordinators_stop_is_everybodys(play):
    p = running(play, me=2)
    p.at(5, informed(stopping=True))
    assert p.since(4) == ["5.0 ask worker/1"]
    p.at(6, ended("worker/1"))
    assert p.last_told.done and p.last_told.stopping
    p.at(7, informed(stopping=True, outcome=outcome.stopped()))
    assert p.what[-1] == "finish stopped 143"


def test_a_followers_stop_is_everybodys(play):
    p = running(play)
    p.at(5, reported(2, stopping=True))
    assert p.since(4) == ["5.0 ask worker/0"]
    assert p.last_told.stopping


def test_what_ignores_the_stop_is_killed_after_stop_grace(play):
    p = stopped_job(play, stop_grace=10)
    heartbeats(p, 16, 2, 3, stopping=True, done=True)
    assert p.since(6) == ["15.0 force worker/0"]
    p.at(16.5, ended("worker/0", signal=9))
    assert p.policy.facts.outcome == outcome.stopped()


def test_servers_stay_while_scripts_save(play):
    p = play(2, mode="ps")
    p.at(1, ended("prepare"), reported(2))
    p.at(5, STOP, reported(2))
    assert p.since(5) == ["5.0 ask chief/0"]
    p.at(6, ended("chief/0"))
    heartbeats(p, 30, 2, stopping=True)
    assert p.since(6) == []
    p.at(31, reported(2, stopping=True, done=True))
    assert p.since(6) == ["31.0 ask ps/0"]


def test_a_follower_is_lost_while_the_job_stops(play):
    p = stopped_job(play)
    p.at(6, ended("worker/0"))
    heartbeats(p, 15, 3, stopping=True, done=True)
    assert p.policy.facts.outcome == outcome.stopped()
    p.at(16, reported(3, gone=True))
    p.at(30)
    assert p.what[-1] == "finish stopped 143"


def test_the_coordinator_is_lost_while_the_job_stops(play):
    p = stopped_job(play, me=2)
    p.at(6, ended("worker/1"))
    p.at(30)
    assert p.what[-1] == "finish stopped 143"


def test_a_follower_that_is_stopped_before_the_coordinator_appears_tells_it(play):
    p = play(3, me=2)
    p.at(0.5, STOP)
    p.at(0.6, ended("prepare", signal=15))
    p.at(1.5)
    assert p.policy.facts.outcome is None and p.last_told.stopping
    p.at(1.8, informed(stopping=True))
    p.at(5)
    assert p.policy.facts.outcome is None  # it is the coordinator's now
    p.at(6, informed(stopping=True, outcome=outcome.stopped()))
    assert p.what[-1] == "finish stopped 143"


@pytest.mark.parametrize("at_once", [True, False])
def test_a_follower_that_has_stopped_and_left_before_the_coordinator_appears_stops_the_job(play, at_once):
    p = play(3)
    last_words = {"stopping": True, "done": True, "gone": True}
    p.at(1, reported(3))
    p.at(3.6, *([] if at_once else [reported(2, stopping=True, done=True)]), reported(2, **last_words))
    p.at(4, ended("prepare", signal=15))
    heartbeats(p, 6, 3, stopping=True, done=True)
    assert p.policy.facts.outcome == outcome.stopped()
    p.at(7, reported(3, gone=True))
    p.at(30)
    assert p.what[-1] == "finish stopped 143"


def test_stopped_before_the_others_appear(play):
    for me in (1, 2):
        p = play(3, me)
        p.at(1, ended("prepare"))
        p.at(2, STOP)
        p.at(60)
        assert p.what[-1] == "finish stopped 143"


def test_mpirun_is_left_to_end_with_its_ranks(play):
    """A rank of another host may still save: mpirun would kill it, and turn a good end into a bad one."""
    p = mpi(play)
    p.at(5, STOP)
    assert sorted(p.since(5)) == ["5.0 ask rank 0", "5.0 ask rank 1"]
    p.at(6, ended("rank 0"), ended("rank 1"))
    heartbeats(p, 20, 2, stopping=True, done=False)
    assert p.since(6) == []
    p.at(21, reported(2, stopping=True, done=True, clean=True), ended("mpirun"))
    assert p.policy.facts.outcome == outcome.succeeded()


def test_mpirun_that_aborts_over_ranks_that_were_stopped_is_not_waited_for(play):
    """Its daemons sleep as long as ranks have for saving, before they see that there is none left."""
    p = mpi(play)
    p.at(5, STOP)
    p.at(6, reported(2, stopping=True, done=True, clean=False), ended("rank 0", 143), ended("rank 1", 143))
    p.at(8)
    assert [what.split(maxsplit=1)[1] for what in p.since(6)] == ["force mpirun"]
    p.at(8, ended("mpirun", 137))
    assert p.policy.facts.outcome == outcome.stopped()


def test_a_rank_that_still_saves_is_no_end_of_its_host(play):
    p = mpi(play, me=2)
    p.at(5, informed(stopping=True))
    p.at(6, ended("rank 2"))
    assert not messages.report(p.policy.facts).done
    p.at(7, ended("rank 3"))
    assert messages.report(p.policy.facts).done
    assert messages.report(p.policy.facts).clean


def test_mpirun_without_ranks_is_stopped(play):
    p = play(2, mode="mpi")
    p.at(1, ended("prepare"), ended("host-key"), ended("client-key"), events.Listening(name="sshd"))
    p.at(2, reported(2, ready=frozenset({"prepare", "preflight", "sshd"})))
    p.at(5, STOP)
    assert p.since(5) == ["5.0 ask mpirun"]


def test_a_script_that_serves_has_the_whole_grace_when_it_is_told_to_end(play):
    p = play(2, mode="ps", processes_per_host=2, stop_grace=10)
    p.at(1, events.Prepared(flags=frozenset()), ended("prepare"), reported(2))
    p.at(2, events.Resting(found=(("worker/0", 2.0),)))
    p.at(3, ended("chief/0"), reported(2, done=True))
    heartbeats(p, 30, 2, done=True)
    whens = {what: float(when) for when, what in (each.split(maxsplit=1) for each in p.since(3))}
    assert 5.0 <= whens["ask worker/0"] < 6.0
    assert whens["force worker/0"] - whens["ask worker/0"] == pytest.approx(10, abs=0.2)


def test_the_job_is_stopped_before_its_maximum_runtime_is_over(play):
    p = running(play, max_runtime=600, stop_grace=100)
    heartbeats(p, 479, 2, 3)
    assert p.since(3) == []
    heartbeats(p, 481, 2, 3)
    assert p.since(3) == ["480.0 ask worker/0"]
    assert p.last_told.stopping


def test_a_follower_whose_daemon_goes_after_the_stop_reports_nothing(play):
    p = play(2, 2, mode="mpi")
    p.at(1, ended("prepare"), ended("host-key"), events.Listening(name="sshd"), informed())
    p.at(2, events.RankStarted(name="rank 1", pid=1), STOP)
    p.at(5, events.RankOrphaned(name="rank 1"))
    assert p.last_told.cause is None
