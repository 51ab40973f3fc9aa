"""Test starting.py between two attempts: which failures allow a restart, and which processes start again."""

import pytest
from plays import (
    GRACE,
    RAISED,
    STOP,
    UP,
    Beats,
    Play,
    Shows,
    cause,
    ended,
    informed,
    mpi_started,
    reported,
    running,
)

from entrypoint.launcher.policy import events

AGAIN = reported(2, attempt=1), reported(3, attempt=1)


def test_process_that_survives_sigkill_prevents_another_attempt(play):
    p = running(play, me=2, restarts=2, kill_timeout=4)
    p.unkillable = ("pid 7 (python3), state D (uninterruptible sleep)",)
    p.through([(5, informed(attempt=1, go=False)), (12, Beats(attempt=1, go=False))])
    assert p.since(5) == ["5.0 ask worker/1", "7.0 force worker/1", "11.0 inspect worker/1", "11.0 sweep, keep nothing"]
    told = p.last_told
    assert (told.attempt, told.cause.host, told.cause.process, told.cause.code) == (1, "algo-2", "worker/1", 71)
    assert told.cause.error == f"still running 4 s after SIGKILL: {p.unkillable[0]}"


def tried_again(play) -> Play:
    """Return a job whose first attempt has just been given up; it is 5 s old."""
    return running(play, restarts=2, restart_backoff=3).at(5, ended("worker/0", signal=9))


ENDS = {"attempt": 1, "done": True, "clean": False, "stopping": True}
STORIES = {
    # the job; what happens, and what is seen then
    # At first algo-3 is not clear, and reports a symptom of the old attempt.
    "a killed script is tried again everywhere": (
        lambda play: running(play, restarts=2, restart_backoff=3),
        [(5, ended("worker/0", signal=9)), Shows(did=["5.0 sweep, keep nothing"], attempt=1, go=False),
         (5.5, reported(2, attempt=1), reported(3, attempt=0, cause=cause(3))),
         (8.5, reported(2, attempt=1), reported(3, attempt=0)), Shows(go=False),
         (9, reported(3, attempt=1)), Shows(did=["9.0 start worker/0"], attempt=1, go=True),
         (12, ended("worker/0"), *(reported(host, attempt=1, done=True) for host in (2, 3))),
         Shows("12.0 succeeded 0")]),
    "the back-off is kept and doubles, and there is no third restart": (
        tried_again,
        [(5.5, *AGAIN), (9, *AGAIN), Shows(did=["8.0 start worker/0"]), (10, ended("worker/0", signal=11)),
         (10.5, reported(2, attempt=2), reported(3, attempt=2)), (17, Beats(2, 3, attempt=2)),
         Shows(did=["10.0 sweep, keep nothing", "16.0 start worker/0"]),
         (18, ended("worker/0", signal=11)), Shows("* algo-1 worker/0 (killed by SIGSEGV)")]),
    "a follower clears and waits for go": (
        lambda play: running(play, me=2, restarts=2),
        [(5, informed(attempt=1, go=False, ready=frozenset())), (5.1, ended("worker/1", signal=15)),
         Shows(did=["5.0 ask worker/1", "5.1 sweep, keep nothing"], attempt=1, done=False, cause=""),
         (8, informed(attempt=1, go=False)), (9, informed(attempt=1)), Shows(did=["9.0 start worker/1"])]),
    "a follower that is not clear reports nothing of the new attempt": (
        lambda play: running(play, me=2, restarts=1),
        [(5, informed(attempt=1, go=False, ready=frozenset())), Shows(attempt=0), (5 + GRACE,),
         Shows(last="7.0 force worker/1")]),
    "a lost host is not tried again": (
        lambda play: running(play, restarts=5), [(12, Beats(3)), Shows("* algo-2 (lost*")]),
    "a stop between two attempts ends the job": (
        tried_again,
        [(6, STOP, reported(2, **ENDS)), (6.1, reported(3, **ENDS)),
         (6.2, reported(2, gone=True), reported(3, gone=True)), Shows(last="6.2 finish stopped 143")]),
    "ssh daemons stay over a restart": (
        lambda play: mpi_started(play, restarts=1).at(3, events.RankStarted(name="rank 0", pid=1)),
        [(5, ended("rank 0", signal=9)), (5.6, ended("mpirun", 1)), (10, Beats(2, ready=UP, attempt=1)),
         Shows(did=["5.3 force mpirun", "5.6 sweep, keep sshd", "8.3 start mpirun"])]),
    "a worker server is started again alone": (
        lambda play: play(2, 2, mode="ps", ps_workers="server", restarts=2).at(1, ended("prepare"), informed()),
        [(5, ended("worker/0", signal=9)), Shows(cause=""), (10, Beats()), Shows(did=["8.0 start worker/0"]),
         (11, ended("worker/0", signal=9)), (18, Beats()), (19, ended("worker/0", signal=9)),
         Shows(cause="algo-2 worker/0 (ended too early, killed by SIGKILL)")]),
    "a host that leaves during an old attempt ends the job": (
        tried_again,
        [(6, reported(2, attempt=0, cause=cause(2), gone=True), reported(3, attempt=1)), (7,),
         Shows("* algo-2 (left before the end of the job)")]),
    # worker/1 took longer to die than SIGKILL has time.
    "a process that ends late neither prevents another attempt nor counts in it": (
        lambda play: play(restarts=1, restart_backoff=1, kill_timeout=4, processes_per_host=2),
        [(1, ended("prepare")), (5, ended("worker/0", signal=9)), (12,), Shows(last="* start worker/1"),
         (21, ended("worker/0")), (25,), Shows(""), (26, ended("worker/1")), Shows("26.0 succeeded 0")]),
    "a rank of an old attempt is none of the new one": (
        lambda play: play(2, 2, mode="mpi", restarts=2),
        [(1, ended("prepare"), ended("host-key"), events.Listening(name="sshd"), informed()),
         (5, informed(attempt=1, go=False, ready=frozenset())),
         (6, events.RankStarted(name="rank 1", pid=1, attempt=0)), (6.1, ended("rank 1", signal=9)), Shows(cause=""),
         (7, informed(attempt=1), events.RankStarted(name="rank 1", pid=1, attempt=1)),
         (8, ended("rank 1", 1, RAISED)), Shows(cause="algo-2 rank 1 *")]),
}  # fmt: skip


@pytest.mark.parametrize("start, history", STORIES.values(), ids=STORIES)
def test_policy_begins_attempts_as_the_story_states(play, start, history):
    start(play).through(history)


KILLED = cause(2, code=137, what="killed by SIGKILL", restartable=True)
ATTEMPTS = {
    # settings, what happens at second 5: the number of the attempt afterwards
    "after an exception": ({}, [ended("worker/0", 1, RAISED)], 0),
    "after another exit code": ({}, [ended("worker/0", 3)], 0),
    "after a fault of the launcher": ({}, [events.Broken(why="x", code=70)], 0),
    "after an exit code that the user names": ({"restart_codes": "3,99"}, [ended("worker/0", 3)], 1),
    "without a host that has left": ({}, [reported(2, cause=KILLED, done=True, gone=True), reported(3)], 0),
}


@pytest.mark.parametrize("settings, happened, attempt", ATTEMPTS.values(), ids=ATTEMPTS)
def test_only_restartable_failures_cause_another_attempt(play, settings, happened, attempt):
    p = running(play, restarts=5, **settings).at(5, *happened)
    assert p.policy.facts.attempt.number == attempt and (p.outcome is None) == bool(attempt)


def test_worker_server_that_restarts_alone_counts_its_restarts(play):
    """Its program reads the number from ENTRYPOINT_RESTART_COUNT."""
    p = play(2, 2, mode="ps", ps_workers="server", restarts=2).at(1, ended("prepare"), informed())
    p.through([(5, ended("worker/0", signal=9)), (10, Beats())])
    assert p.policy.facts.times_restarted("worker/0") == 1
