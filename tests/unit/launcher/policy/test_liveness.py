"""Test liveness.py: which hosts are lost, and which cause is reported."""

import pytest
from plays import (
    PAUSED,
    RAISED,
    STOP,
    UP,
    Beats,
    Play,
    Shows,
    ended,
    following,
    informed,
    link_ended,
    matches,
    mpi,
    mpi_following,
    reported,
    running,
    stopped_job,
    unreached,
)

from entrypoint.base.errors import ExitCode
from entrypoint.launcher.policy import events

LOST = int(ExitCode.HOST_LOST)
SILENT = "(lost: no report for 5 s)"
GONE = "(lost: no report for 2 s, and it accepts no connection)"
CLOSED = "(lost: its connection closed, and it accepts no new one)"
MPIRUN_FAILS = ended("mpirun", 1), ended("rank 0", signal=15), ended("rank 1", signal=15)
HEARD = reported(2), reported(3)

VERDICTS = {
    # the job, what happens, and the verdict; "": there is none
    "a follower is silent": (running, [(20, Beats(3))], f"7.0 failed {LOST}: algo-2 {SILENT}"),
    "all followers are silent": (
        running, [(3, reported(3)), (3.9, reported(2)), (20,)],
        f"8.0 failed {LOST}: algo-3 {SILENT}: no other host reports either; algo-1 itself may be cut off"),
    "a failing job does not wait long for a host that takes no connection": (
        mpi, [(3, reported(2, ready=UP, ack=0)), (3.5, *MPIRUN_FAILS, unreached(2)), (6,)],
        f"5.0 failed {LOST}: algo-2 {GONE}"),
    "a host that takes connections may only be paused": (
        mpi, [(3, reported(2, ready=UP, ack=0)), (3.5, *MPIRUN_FAILS), (9,)], f"8.0 failed {LOST}: algo-2 {SILENT}"),
    "a network may fail for longer if nothing else is wrong": (
        running, [(4.5, unreached(2), reported(3)), (6.9, reported(3))], ""),
    # It is paused, has no thread left for a link, or other processes on its host take too much.
    "a host that closes its connection and takes new ones is not lost soon": (
        running, [(2.7, link_ended(2)), *((time, reported(3)) for time in (3.5, 4.5, 5.5, 6.5)), (8,)],
        f"7.0 failed {LOST}: algo-2 {SILENT}"),
    "a host that has lost its connection and reports is not lost": (
        running, [(2.7, link_ended(2)), (2.8, *HEARD), (6, reported(3)), (9,)], f"7.8 failed {LOST}: algo-2 {SILENT}"),
    "a host that is killed is lost soon": (
        running, [(2.7, link_ended(2)), (2.8, unreached(2)), (3.1, reported(3)), (4,)],
        f"3.2 failed {LOST}: algo-2 {CLOSED}"),
    "a process that failed before all other hosts fell silent is the cause": (
        running,
        [(3, reported(2, ack=0)), (3.3, reported(3, ack=0)), (3.5, ended("worker/0", signal=9)),
         (4.6, unreached(2), unreached(3)), (5.05,), (5.35,), (6,)],
        "* failed 137: algo-1 worker/0 (killed by SIGKILL)"),
    "the coordinator is silent": (following, [(7.1,)], f"7.0 failed {LOST}: algo-1 {SILENT}"),
    "a follower that fails does not wait long for a coordinator that takes no connection": (
        mpi_following, [(3.5, events.RankOrphaned(name="rank 2"), unreached(1)), (4.1,)],
        f"4.0 failed {LOST}: algo-1 {GONE}"),
    "a coordinator that closes its connection and takes new ones is not lost soon": (
        following, [(2.7, link_ended(1)), (8,)], f"7.0 failed {LOST}: algo-1 {SILENT}"),
    "a coordinator that is killed is lost soon": (
        following, [(2.7, link_ended(1)), (2.8, unreached(1)), (4,)], f"3.2 failed {LOST}: algo-1 {CLOSED}"),
    "an own failure before the coordinator was lost is the cause": (
        following, [(3, informed()), (3.5, ended("worker/1", 3, RAISED)), (4, informed()), (20,)],
        "* failed 3: algo-2 worker/1*"),
    "an own failure after the coordinator fell silent is a symptom": (
        following, [(4, ended("worker/1", 1, RAISED)), (20,)], f"* failed {LOST}: algo-1 *"),
}  # fmt: skip


@pytest.mark.parametrize("start, history, verdict", VERDICTS.values(), ids=VERDICTS)
def test_history_of_contacts_determines_the_lost_host(play, start, history, verdict):
    p = start(play).through(history)
    assert matches(p.verdict, verdict), p.verdict


NOT_SUCCEEDED = "* failed *: algo-2 (left before the end of the job)"


def not_started(play) -> Play:
    """Return a job whose second host has left before its script could start."""
    everybody = ended("prepare"), reported(2), reported(3, ready=frozenset())
    return play(3).through([(1, *everybody), (2, reported(2, gone=True))])


STORIES = {
    # the job; what happens, and what is seen then
    "a lost host is not waited for": (
        running,
        [(7, Beats(3)), (7.1, ended("worker/0", signal=15), reported(3, gone=True)),
         Shows(did=["7.0 ask worker/0", "7.1 finish failed 69"])]),
    "a follower ends its processes when the coordinator is lost": (
        following, [(7.1, ended("worker/1", signal=15)), Shows(did=["7.0 ask worker/1", "7.1 finish failed 69"])]),
    # The verdict comes with the first one; the other is silent soon after, and sends no emergency report.
    "a second lost follower is not waited for": (
        running,
        [(2.5, reported(3)), (7.1, ended("worker/0", signal=15)), (30,),
         Shows(f"7.0 failed {LOST}: algo-2 {SILENT}*", last="7.5 finish failed 69")]),
    "a host that reports again is not lost": (
        mpi, [(3.5, *MPIRUN_FAILS, unreached(2)), (3.6, reported(2, ready=UP)), (6,), Shows("")]),
    "a host that fails and is cut off for a moment must learn the outcome": (
        running,
        [(2, ended("worker/0", 3, RAISED), *HEARD), (3.3, unreached(2), reported(3, gone=True)),
         (5.6, reported(2, gone=True)), Shows(last="5.6 finish failed 3")]),
    "a host that is killed after a failure is not waited for": (
        running,
        [(2, ended("worker/0", 3, RAISED), *HEARD), (2.9, link_ended(2), unreached(2), reported(3, gone=True)), (5,),
         Shows(last="3.4 finish failed 3")]),
    "a host that closes its connection after its last report is not lost": (
        running,
        [(2, reported(2, done=True), reported(3, done=True), ended("worker/0", 0)),
         (2.5, reported(2, done=True, gone=True), link_ended(2)),
         (2.6, reported(3, done=True, gone=True), link_ended(3)), (9,), Shows(last="2.6 finish succeeded 0")]),
    "losing the coordinator does not shorten the time to save": (
        lambda play: stopped_job(play, me=2),
        [(40,), Shows(""), (41, ended("worker/1")), (42,), Shows(did=["41.0 finish stopped 143"])]),
    "a follower that knows what failed reports it to a coordinator that was cut off for a moment": (
        following,
        [(3, informed()), (3.5, ended("worker/1", 1, RAISED)), (4.6, unreached(1)), (5.5,), Shows(""),
         (5.8, informed()), Shows("", cause="algo-2 worker/1 (exit code 1): ValueError: x")]),
    # Our own pauses (SIGSTOP, a frozen machine): the others were not silent, we did not read.
    "the coordinator's own pause is no other host's silence": (
        running, [(5, *HEARD), (65, PAUSED), Shows(""), (80, Beats(2, 3)), Shows("")]),
    "a follower's own pause is no silence of the coordinator": (
        following, [(5, informed()), (65, PAUSED), Shows(""), (80, Beats()), Shows("")]),
    # The report of algo-2 is behind that of algo-3.
    "a host whose connection ended has its time though we were paused": (
        running,
        [(2.7, link_ended(2), reported(3)), (4.6, PAUSED, unreached(2), reported(3)), (4.7, reported(2)), (6, *HEARD),
         Shows("")]),
    # It took us for lost; its last report is: all ended, gone. The exit code is never 0.
    "a follower that left by itself while we were paused is no success": (
        running,
        [(5, ended("worker/0")), (30, PAUSED, reported(2, done=True, clean=False, gone=True)),
         (31, reported(3, done=True)), (40, reported(3, done=True, gone=True)),
         Shows("* algo-1 (was paused for 25 s): algo-2 left meanwhile", last="*finish failed 69")]),
    "a coordinator that was paused for too long blames itself for a host that is gone": (
        running,
        [(5, *HEARD), (12, PAUSED, link_ended(2), unreached(2)), (15, Beats(3)),
         Shows("* algo-1 (was paused for 7 s): algo-2 left meanwhile")]),
    "a host that goes later is lost though the coordinator was once paused": (
        running,
        [(5, *HEARD), (12, PAUSED), (20, Beats(2, 3)), (20.1, link_ended(2), unreached(2), reported(3)), (23, Beats(3)),
         Shows("* algo-2 (lost: *")]),
    "a follower that left before its script started ends the job": (
        not_started, [(22, Beats(3)), Shows(NOT_SUCCEEDED), (22.1, reported(3, gone=True)), Shows(last="*finish *")]),
    "a follower that left before its script started ends the job that is stopped": (
        not_started,
        [(2.1, STOP), (22, Beats(3, done=True)), Shows(NOT_SUCCEEDED), (22.1, reported(3, gone=True)),
         Shows(last="*finish *")]),
}  # fmt: skip


@pytest.mark.parametrize("start, history", STORIES.values(), ids=STORIES)
def test_policy_acts_on_lost_or_silent_hosts_as_the_story_states(play, start, history):
    start(play).through(history)


def test_host_that_still_accepts_connections_is_checked_again(play):
    p = running(play).at(2.7, link_ended(2))  # its kernel still takes the connection of the first check
    assert p.knocked == ["algo-2"]
    p.through([(3.5, reported(3)), (5.5, reported(3))])
    assert p.outcome is None and len(p.knocked) >= 3
    p.at(5.6, unreached(2))
    assert p.blamed == f"algo-2 {CLOSED}"
    asked = len(p.knocked)
    p.at(7, reported(3))
    assert len(p.knocked) == asked


def test_new_report_of_a_host_ends_its_check(play):
    p = running(play).through([(2.7, link_ended(2)), (2.8, *HEARD), (4.8, *HEARD)])
    assert p.knocked == ["algo-2"] and p.outcome is None
