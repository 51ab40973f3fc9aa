"""Test termination.py: which processes are terminated, when, and by which signal."""

import pytest
from plays import (
    STOP,
    UP,
    Beats,
    Play,
    Shows,
    cause,
    ended,
    following,
    heartbeats,
    informed,
    mpi,
    mpi_following,
    mpi_started,
    reported,
    running,
    stopped_job,
)

from entrypoint.launcher.outcome import outcome
from entrypoint.launcher.policy import events

SAVES = {"stopping": True, "done": True}
SAVED = [(6.5, *(reported(host, **SAVES) for host in (2, 3)))]
RANKS_END = ended("rank 0", signal=15), ended("rank 1", signal=15)


def ps(play, **settings):
    return play(2, mode="ps", **settings).at(1, ended("prepare"), reported(2))


ENDS = {
    # the job, what happens on the coordinator, and what it does about its processes
    "a process that ignores sigterm is killed after the grace": (
        lambda play: running(play, failure_grace=4),
        [(5, reported(2, done=True, clean=False, cause=cause(2))), (18, ended("worker/0", signal=9))],
        ["5.0 ask worker/0", "9.0 force worker/0", "18.0 finish failed 3"]),
    "mpirun is killed after the ranks when the job has failed": (
        mpi,
        [(5, reported(2, cause=cause(2, process="rank 3"), ready=UP)), (5.2, *RANKS_END, ended("sshd", signal=15)),
         (5.3, reported(2, gone=True)), (5.4, ended("mpirun", signal=9))],
        ["5.0 ask rank 0", "5.0 ask rank 1", "5.0 ask sshd", "5.3 force mpirun", "5.4 finish failed 3"]),
    # It waits for a daemon that is lost.
    "mpirun is not waited for where no other host is left": (
        mpi, [(7.1, *RANKS_END), (7.2, ended("mpirun", signal=9), ended("sshd"))],
        ["7.0 ask rank 0", "7.0 ask rank 1", "7.0 ask sshd", "7.1 force mpirun", "7.2 finish failed 69"]),
    "mpirun has its time and no more when all ranks have ended well": (
        mpi,
        [(5, reported(2, ready=UP | {"rank 2", "rank 3"})), (6, ended("rank 0"), ended("rank 1")), (30, Beats(2)),
         (45, Beats(2, done=True)), (46, ended("mpirun", signal=9))],
        ["41.0 force mpirun", "46.0 ask sshd"]),
    "a process that ignores the stop is killed after stop_grace": (
        lambda play: running(play, stop_grace=10), [(5, STOP), (16, Beats(2, 3, **SAVES))],
        ["5.0 ask worker/0", "15.0 force worker/0"]),
    "servers stay while scripts save": (
        ps,
        [(5, STOP, reported(2)), (6, ended("chief/0")), (30, Beats(2, stopping=True)), (31, reported(2, **SAVES))],
        ["5.0 ask chief/0", "31.0 ask ps/0"]),
    # A rank of another host may still save: mpirun would kill it, and turn a good end into a bad one.
    "mpirun is left to end with its ranks": (
        mpi,
        [(5, STOP), (6, ended("rank 0"), ended("rank 1")), (20, Beats(2, stopping=True)),
         (21, reported(2, **SAVES), ended("mpirun"))],
        ["5.0 ask rank 0", "5.0 ask rank 1", "21.0 ask sshd", "21.0 force mpirun"]),
    # Its daemons sleep as long as ranks have for saving, before they see that there is none left.
    "mpirun that aborts over ranks that were stopped is not waited for": (
        mpi,
        [(5, STOP), (6, reported(2, **SAVES, clean=False), ended("rank 0", 143), ended("rank 1", 143)), (8,),
         (8, ended("mpirun", 137))],
        ["5.0 ask rank 0", "5.0 ask rank 1", "6.0 force mpirun", "8.0 ask sshd"]),
    "mpirun without ranks is stopped": (mpi_started, [(5, STOP)], ["5.0 ask mpirun"]),
    "a follower's stop stops the coordinator's scripts": (
        running, [(5, reported(2, stopping=True))], ["5.0 ask worker/0"]),
    "the job is stopped before its maximum runtime is over": (
        lambda play: running(play, max_runtime=600, stop_grace=100), [(481, Beats(2, 3))], ["480.0 ask worker/0"]),
    "hosts that never appear do not hold up a stop": (
        lambda play: play(3).at(1, ended("prepare")), [(2, STOP), (60,)], ["3.5 finish stopped 143"]),
}  # fmt: skip


@pytest.mark.parametrize("start, history, actions", ENDS.values(), ids=ENDS)
def test_coordinator_terminates_processes_at_the_wanted_times(play, start, history, actions):
    p = start(play).through(history)
    assert sorted(p.since(3), key=lambda line: (float(line.split()[0]), line)) == actions


LEFT = [(7, *(reported(host, gone=True) for host in (2, 3)))]


def stopped_follower(play) -> Play:
    return stopped_job(play, me=2)


def stuck(play) -> Play:
    """Return a job with a process that survives SIGKILL."""
    p = running(play, stop_grace=10, kill_timeout=4)
    p.unkillable = ("pid 7 (python3), state D (uninterruptible sleep), waits in nfs_wait",)
    return p


STOPPED = informed(stopping=True, outcome=outcome.stopped())
FAILED = informed(outcome=outcome.failed(cause(1)))
STORIES = {
    # the job; what happens, and what is seen then
    "all scripts save": (
        stopped_job,
        [(6, ended("worker/0"), reported(2, stopping=True)), *SAVED, Shows("6.5 succeeded 0"), *LEFT,
         Shows(last="7.0 finish succeeded 0")]),
    "one script does not save": (
        stopped_job,
        [(6, ended("worker/0")), (6.5, reported(2, **SAVES, clean=False), reported(3, **SAVES)),
         Shows("6.5 stopped 143"), *LEFT, Shows(last="7.0 finish stopped 143")]),
    "a lost follower does not hold up a stopped job": (
        stopped_job,
        [(6, ended("worker/0")), (15, Beats(3, **SAVES)), Shows("* stopped 143"), (16, reported(3, gone=True)), (30,),
         Shows(last="*finish stopped 143")]),
    "a late rank of a failed job is stopped": (
        lambda play: play(2, 2, mode="mpi", processes_per_host=2).at(1, ended("prepare"), FAILED),
        [(2, events.RankStarted(name="rank 2", pid=5)), Shows(did=["2.0 ask rank 2"])]),
    "the ranks of a follower are stopped when the job has failed": (
        mpi_following, [(5, ended("rank 2", signal=15), FAILED), Shows(did=["5.0 ask sshd", "5.0 ask rank 3"])]),
    "a process that survives SIGKILL is given up": (
        stuck,
        [(5, STOP), (20, Beats(2, 3, **SAVES)), (21, reported(2, gone=True), reported(3, gone=True)),
         Shows(did=["5.0 ask worker/0", "15.0 force worker/0", "19.0 inspect worker/0", "21.0 finish stopped 143"])]),
    "the coordinator's stop stops a follower": (
        following,
        [(5, informed(stopping=True)), (6, ended("worker/1")), Shows(done=True, stopping=True), (7, STOPPED),
         Shows(last="7.0 finish stopped 143")]),
    "the coordinator is lost while the job stops": (
        stopped_follower, [(6, ended("worker/1")), (30,), Shows(last="*finish stopped 143")]),
    # The outcome is the coordinator's, as soon as it is there.
    "a follower that is stopped before the coordinator appears reports it": (
        lambda play: play(3, me=2),
        [(0.5, STOP), (0.6, ended("prepare", signal=15)), (1.5,), Shows("", stopping=True),
         (1.8, informed(stopping=True)), (5,), Shows(""), (6, STOPPED), Shows(last="6.0 finish stopped 143")]),
    "a follower that is stopped before the coordinator appears ends in bounded time": (
        lambda play: play(3, 2), [(1, ended("prepare")), (2, STOP), (60,), Shows(last="*finish stopped 143")]),
    "a host is not done while a rank still saves": (
        mpi_following,
        [(5, informed(stopping=True)), (6, ended("rank 2")), Shows(done=False), (7, ended("rank 3")),
         Shows(done=True, clean=True)]),
    "a follower whose daemon goes after the stop reports nothing": (
        lambda play: mpi_started(play, me=2),
        [(3, events.RankStarted(name="rank 1", pid=1), STOP), (5, events.RankOrphaned(name="rank 1")),
         Shows(cause="")]),
}  # fmt: skip


@pytest.mark.parametrize("start, history", STORIES.values(), ids=STORIES)
def test_policy_stops_a_job_as_the_story_states(play, start, history):
    start(play).through(history)


def test_process_that_survives_sigkill_is_logged_with_its_state(play):
    p = stuck(play).through([(5, STOP), (20, Beats(2, 3, **SAVES))])
    assert f"worker/0 survives SIGKILL for 4 s and is left behind: {p.unkillable[0]}" in p.said


@pytest.mark.parametrize("at_once", [True, False])
def test_early_stop_of_a_follower_stops_the_job(play, at_once):
    p = play(3).at(1, reported(3))
    p.at(3.6, *([] if at_once else [reported(2, **SAVES)]), reported(2, **SAVES, gone=True))
    p.at(4, ended("prepare", signal=15))
    heartbeats(p, 6, 3, **SAVES)
    assert p.outcome == outcome.stopped()
    p.through([(7, reported(3, gone=True)), (30,)])
    assert p.what[-1] == "finish stopped 143"


def test_terminated_script_that_only_serves_has_full_grace(play):
    p = ps(play, processes_per_host=2, stop_grace=10).at(2, events.Resting(found=(("worker/0", 2.0),)))
    p.through([(3, ended("chief/0"), reported(2, done=True)), (30, Beats(2, done=True))])
    whens = {what: float(when) for when, what in (each.split(maxsplit=1) for each in p.since(3))}
    assert 5.0 <= whens["ask worker/0"] < 6.0
    assert whens["force worker/0"] - whens["ask worker/0"] == pytest.approx(10, abs=0.2)
