"""Test verdict.py: which cause becomes the job's outcome."""

import pytest
from plays import (
    GRACE,
    RAISED,
    STOP,
    SYMPTOM,
    TRACEBACK,
    cause,
    ended,
    heartbeats,
    informed,
    link_ended,
    mpi,
    reported,
    running,
    stopped_job,
    unreached,
)

from entrypoint.base.errors import ExitCode
from entrypoint.launcher.job.open_mpi import ORTE, PRRTE
from entrypoint.launcher.outcome import outcome
from entrypoint.launcher.outcome.outcome import Confidence, Exit, Kind
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.events import News
from entrypoint.launcher.policy.known import BROKEN_SECONDS, PEER_SECONDS, SETTLE_SECONDS
from entrypoint.launcher.policy.termination import LEAVE_SECONDS
from entrypoint.launcher.policy.verdict import LINGER_SECONDS


def test_a_followers_failure_is_everybodys(play):
    p = running(play)
    p.at(5, reported(2, done=True, clean=False, cause=cause(2)))
    assert p.since(3) == ["5.0 ask worker/0"]
    assert p.last_told.outcome == outcome.failed(cause(2))
    p.at(5.1, ended("worker/0", signal=15))
    p.at(5.2, reported(2, gone=True), reported(3, gone=True))
    assert p.since(5.1) == ["5.2 finish failed 3"]


def test_a_follower_tells_its_failure_at_once_and_waits_for_the_verdict(play):
    p = running(play, me=2)
    p.at(5, ended("worker/1", 3, RAISED))
    assert p.last_told.cause.headline == "algo-2 worker/1 (exit code 3): ValueError: x"
    assert "finish failed 3" not in p.what
    first = cause(3, error="KeyError: y")  # another host was quicker: that is the verdict, here too
    p.at(5.1, informed(outcome=outcome.failed(first)))
    assert p.what[-1] == "finish failed 3"
    assert "algo-3" in p.blamed


def test_the_rest_of_a_failing_host_is_stopped_at_once(play):
    p = play(2, 2, processes_per_host=2)
    p.at(1, ended("prepare"))
    p.at(2, informed())
    p.at(5, ended("worker/2", 3, RAISED))
    assert p.since(3) == ["5.0 ask worker/3"]
    p.at(5.1, ended("worker/3", 1, RAISED))  # is our doing
    assert p.last_told.cause.process == "worker/2"


def test_the_first_of_two_failures_counts(play):
    p = running(play)
    p.at(5, reported(3, cause=cause(3)))
    p.at(5, reported(2, cause=cause(2)))
    assert "algo-3" in p.blamed


def test_a_symptom_waits_for_its_cause(play):
    p = running(play)
    p.at(5, ended("worker/0", 1, SYMPTOM))
    assert p.policy.facts.outcome is None
    p.at(5.1, reported(2, cause=cause(2)))
    assert "algo-2" in p.blamed


NO_DATABASE = "ConnectionRefusedError: [Errno 111] Connection refused"  # may be the first failure
BROKE_OFF = "UnavailableError: Socket closed"
SHUT_DOWN = "UnknownError: Horovod has been shut down. This was caused by"


@pytest.mark.parametrize(
    "error, seconds, marked",
    [
        (NO_DATABASE, SETTLE_SECONDS, False),
        (BROKE_OFF, BROKEN_SECONDS, True),
        ("BrokenPipeError: [Errno 32] Broken pipe", BROKEN_SECONDS, True),
        (SHUT_DOWN, PEER_SECONDS, True),
        ("UnavailableError: Collective ops is aborted by: Socket closed", PEER_SECONDS, True),
        ("UnavailableError: Task /job:worker/task:1 heartbeat timeout", PEER_SECONDS, True),
    ],
)
@pytest.mark.parametrize("host", [1, 2])
def test_a_lone_symptom_is_used_after_as_long_as_its_words_ask_for(play, error, seconds, marked, host):
    """While others run whose end may show the cause. The report and the summary say that it is a symptom."""
    p = running(play)
    if host == 1:
        p.at(5, ended("worker/0", 1, f"{TRACEBACK}{error}\n"), reported(2), reported(3))
    else:
        p.at(5, reported(2, done=True, cause=cause(2, Confidence.LOW, error=error)), reported(3))
    heartbeats(p, 5 + seconds * 0.95, 2, 3)
    p.at(5 + seconds * 0.95)
    assert p.policy.facts.outcome is None
    p.at(5 + seconds * 1.1)
    assert p.blamed.startswith(f"algo-{host} worker/{host - 1}") and error.partition(": ")[2].split(". ")[0] in p.blamed
    assert p.blamed.endswith(" (probably a symptom)") is marked


def test_a_symptom_waits_for_nobody_if_all_have_ended(play):
    p = running(play)
    p.at(5, ended("worker/0", 1, f"{TRACEBACK}{SHUT_DOWN}\n"))
    p.at(5.1, *(reported(host, done=True, cause=cause(host, Confidence.LOW, error=BROKE_OFF)) for host in (2, 3)))
    assert p.policy.facts.outcome is None
    p.at(5 + SETTLE_SECONDS * 1.1)
    assert p.blamed.startswith("algo-1 worker/0")


def test_the_rank_that_raised_is_named_however_late_it_ends(play):
    """Horovod shuts down while Python still unwinds on the rank that raised; that can take seconds."""
    p = mpi(play)
    p.at(5, ended("rank 0", 1, f"{TRACEBACK}{SHUT_DOWN}\n"))
    p.at(5.1, ended("rank 1", 1, f"{TRACEBACK}{SHUT_DOWN}\n"))
    also = cause(2, Confidence.LOW, process="rank 2", error=SHUT_DOWN)
    p.at(5.2, reported(2, cause=also))
    heartbeats(p, 14, 2, cause=also)
    assert p.policy.facts.outcome is None and "ask" not in " ".join(p.since(5)), "nobody is ended by a symptom"
    p.at(14.5, reported(2, done=True, cause=cause(2, process="rank 3", what="exit code 1", error="ValueError: oops")))
    assert p.blamed == "algo-2 rank 3 (exit code 1): ValueError: oops"


def test_what_a_victim_printed_before_is_named_only_if_nobody_knows_better(play):
    """It may have been handled: a checkpoint that was not there, for example."""
    printed = f"{RAISED}goes on\n{TRACEBACK}{SHUT_DOWN}\n"
    p = mpi(play)
    p.at(5, ended("rank 0", 1, printed), reported(2))
    better = cause(2, process="rank 3", what="exit code 1", error="KeyError: 'x'")
    p.at(5.2, reported(2, done=True, cause=better))
    assert p.blamed == "algo-2 rank 3 (exit code 1): KeyError: 'x'"

    p = mpi(play)
    p.at(5, reported(2, done=True, cause=cause(2, Confidence.LOW, process="rank 3", error=SHUT_DOWN)))
    p.at(5.1, ended("rank 0", 1, printed), ended("rank 1", 1, f"{TRACEBACK}{SHUT_DOWN}\n"))
    p.at(5.1 + SETTLE_SECONDS * 1.1)
    assert p.blamed.startswith("algo-1 rank 0 (exit code 1): ValueError: x (then ")


def test_the_rank_that_raised_is_named_though_mpirun_terminated_it(play):
    """A victim's MPI_Abort has mpirun terminate the others, one of which had printed its exception before."""
    p = mpi(play)
    p.at(5, ended("rank 0", 1, f"{TRACEBACK}{SHUT_DOWN}\n"))
    output = 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\nValueError: x\n'
    p.at(5.1, ended("rank 1", signal=15, output=output), reported(2))
    assert p.blamed == "algo-1 rank 1 (raised an exception and was terminated): ValueError: x"
    assert p.policy.facts.outcome.exit_code == 1


@pytest.mark.parametrize("output", ["", "loss 0.3\n", f"{TRACEBACK}{SHUT_DOWN}\n", RAISED + "goes on\n"])
def test_a_rank_that_mpirun_terminated_and_that_raised_nothing_of_its_own_is_not_named(play, output):
    p = mpi(play)
    p.at(5, ended("rank 1", signal=15, output=output), ended("mpirun", 1, "MPI_ABORT was invoked on rank 3\n"))
    p.at(6.5, reported(2, done=True, cause=cause(2, process="rank 3", error="KeyError: 'x'")))
    assert p.blamed == "algo-2 rank 3 (exit code 3): KeyError: 'x'"


def test_what_mpirun_ended_waits_for_the_rank_that_it_ended_for(play):
    """Its host's report may be late on a busy machine."""
    p = mpi(play)
    p.at(5, ended("rank 0", signal=15), ended("rank 1", signal=15), ended("mpirun", 1, "MPI_ABORT was invoked\n"))
    p.at(5.2, reported(2))
    heartbeats(p, 7.4, 2)
    assert p.policy.facts.outcome is None
    p.at(7.5, reported(2, done=True, cause=cause(2, process="rank 3", error="KeyError: 'x'")))
    assert p.blamed.startswith("algo-2 rank 3")


# Both ranks of algo-2.
BOTH = {
    "done": True,
    "ready": frozenset({"rank 2", "rank 3"}),
    "exits": (("rank 2", "exit code 0", 4.0), ("rank 3", "exit code 0", 4.1)),
}
UNEVEN = "while rank 0 still trained): different numbers of batches? "


@pytest.mark.parametrize("first", ["the end with 0", "the symptom"])
def test_a_rank_that_ended_well_before_the_others_is_the_cause_if_there_is_no_better_one(play, first):
    """It is seen to end before or after what its end does to the others, whose processes may be quicker."""
    p = mpi(play)
    if first == "the symptom":
        p.at(5, ended("rank 0", 1, f"{TRACEBACK}{SHUT_DOWN}\n"), ended("rank 1", 1, f"{TRACEBACK}{SHUT_DOWN}\n"))
        heartbeats(p, 8, 2)
        p.at(8.5, reported(2, **BOTH))
        assert p.blamed.startswith(f"algo-2 rank 2 (ended with 0, as did 1 more, {UNEVEN}")
    else:
        p.at(5, ended("rank 1"), reported(2, **BOTH))
        p.at(6, ended("rank 0", 1, f"{TRACEBACK}{SHUT_DOWN}\n"), reported(2, **BOTH))
        p.at(6 + SETTLE_SECONDS * 1.1)
        assert p.blamed.startswith(f"algo-1 rank 1 (ended with 0, as did 2 more, {UNEVEN}")
    assert "Horovod has been shut down" in p.blamed and "symptom" not in p.blamed
    assert p.policy.facts.outcome.exit_code == 1


def test_a_rank_that_ended_well_is_no_cause_beside_a_better_one(play):
    p = mpi(play)
    p.at(4, reported(2, **BOTH))
    p.at(5, ended("rank 0", 1, f"{TRACEBACK}{SHUT_DOWN}\n"), reported(2, **BOTH))
    p.at(5.1, ended("rank 1", 1, RAISED))
    assert p.blamed == "algo-1 rank 1 (exit code 1): ValueError: x"


@pytest.mark.parametrize(
    "mode, error, uneven",
    [
        ("mwms", "UnavailableError: Collective ops is aborted by: Connection reset by peer", True),
        ("mwms", "UnavailableError: heartbeat timeout", True),
        ("jax", "XlaRuntimeError: UNAVAILABLE: The following tasks are unhealthy: coordination service", True),
        ("mwms", NO_DATABASE, False),  # has nothing to do with the other worker
        ("mwms", BROKE_OFF, False),  # may be a connection to something else
    ],
)
def test_a_worker_that_ended_well_while_the_chief_trains_or_saves(play, mode, error, uneven):
    p = running(play, 2, mode=mode)
    exits = (("worker/1", "exit code 0", 4.0),)
    p.at(5, reported(2, done=True, exits=exits))
    p.at(6, ended("worker/0", 1, f"{TRACEBACK}{error}\n"), reported(2, done=True, exits=exits))
    p.at(6.5)
    begin = "algo-2 worker/1 (ended with 0 while worker/0 still trained): different" if uneven else "algo-1 worker/0 ("
    assert p.blamed.startswith(begin)


def test_workers_out_of_step_are_the_cause_at_once(play):
    p = running(play, 2)
    error = "Collective ops is aborted by: Collective instance 132 expected type 0 and data_type 9 but got type 0"
    p.at(5, ended("worker/0", 1, f"{TRACEBACK}InternalError: {error}\n"), reported(2))
    assert p.blamed.startswith("algo-1 worker/0 (exit code 1): different numbers of batches? ")
    assert p.blamed.endswith(f"InternalError: {error}")


def test_a_worker_of_parameter_servers_may_end_before_others(play):
    """None waits for another's step."""
    p = play(2, mode="ps")
    p.at(1, ended("prepare"), reported(2))
    p.at(2, events.Listening(name="ps/0"), reported(2, ready=frozenset({"prepare", "preflight", "ps/1"})))
    exits = (("worker/0", "exit code 0", 4.0),)
    p.at(5, reported(2, done=True, exits=exits))
    p.at(6, ended("chief/0", 1, f"{TRACEBACK}UnavailableError: Collective ops is aborted by: x\n"))
    p.at(6.1, reported(2, done=True, exits=exits))
    p.at(6.5)
    assert p.blamed.startswith("algo-1 chief/0 (exit code 1)")


def test_a_symptom_waits_for_hosts_that_were_not_heard_since(play):
    """The culprit may be a host whose report is still on its way, or that is dead."""
    p = running(play)
    p.at(2.1, reported(2, ack=0), reported(3, ack=0))
    p.at(5, ended("worker/0", 1, SYMPTOM))
    p.at(5.9, reported(3))
    assert p.policy.facts.outcome is None
    p.at(12)
    assert p.blamed.startswith("algo-2 (lost")
    assert p.policy.facts.outcome.exit_code == ExitCode.HOST_LOST


def test_a_symptom_and_then_the_cause_from_the_same_host(play):
    p = running(play)
    p.at(5, reported(2, cause=cause(2, Confidence.LOW, process="worker/1", error="Socket closed")))
    p.at(5.1, reported(2, cause=cause(2, process="worker/2", error="ValueError: x")), reported(3))
    p.at(7)
    assert p.blamed == "algo-2 worker/2 (exit code 3): ValueError: x"


def test_a_symptom_does_not_silence_its_cause_on_the_same_host(play):
    """Two processes end together; the one that only suffered is examined first."""
    p = play(2, 2, processes_per_host=2)
    p.at(1, ended("prepare"))
    p.at(2, informed())
    p.at(5, ended("worker/2", 1, SYMPTOM), ended("worker/3", 3, RAISED))
    assert p.last_told.cause.headline == "algo-2 worker/3 (exit code 3): ValueError: x"


def test_a_parameter_server_that_dies_fails_the_job(play):
    for end in (ended("ps/0", signal=11), ended("ps/0", 0), ended("ps/0", 1, RAISED)):
        p = play(2, mode="ps")
        p.at(1, ended("prepare"), reported(2))
        p.at(5, end)
        assert "algo-1 ps/0 (ended too early" in p.blamed
        assert p.policy.facts.outcome.exit_code == (end.exit.code or 1)
        assert p.since(3) == ["5.0 ask chief/0"]


def test_mpirun_fails_because_a_rank_did(play):
    p = mpi(play)
    p.at(5, ended("mpirun", 1, "Primary job terminated normally, but 1 process returned\nmore text\n"))
    assert p.policy.facts.outcome is None
    p.at(5.1, reported(2, cause=cause(2, process="rank 3", error="ValueError: x")))
    assert p.blamed == "algo-2 rank 3 (exit code 3): ValueError: x"


def test_mpirun_fails_by_itself(play):
    p = mpi(play)
    p.at(4, ended("rank 0"), ended("rank 1"))
    p.at(5, ended("mpirun", 213, "There are not enough slots\n\nlong story\n"))
    p.at(5.2, reported(2, done=True))
    p.at(6)
    assert p.blamed == "algo-1 mpirun (exit code 213): There are not enough slots"


def test_ranks_that_mpirun_kills_are_not_to_blame(play):
    p = mpi(play)
    p.at(5, ended("rank 0", signal=9))
    p.at(5.05, ended("rank 1", 1, RAISED))
    assert p.blamed == "algo-1 rank 1 (exit code 1): ValueError: x"


def test_a_rank_that_the_kernel_kills_is_to_blame_if_nobody_else_is(play):
    p = mpi(play)
    p.at(5, ended("rank 1", signal=9))
    p.at(5.1, ended("mpirun", 137))
    p.at(5.5, reported(2))
    assert p.blamed == "algo-1 rank 1 (killed by SIGKILL)"
    assert p.policy.facts.outcome.exit_code == 137


def test_a_rank_that_the_kernel_kills_is_to_blame_whoever_is_heard_first(play):
    p = mpi(play)
    p.at(5, ended("rank 0", signal=15), ended("mpirun", 137))
    killed = cause(2, Confidence.LOW, process="rank 3", what="killed by SIGKILL", code=137)
    p.at(5.1, reported(2, cause=killed))
    p.at(7)
    assert p.blamed == "algo-2 rank 3 (killed by SIGKILL)"


def test_ranks_do_not_decide_success(play):
    p = mpi(play)
    p.at(5, ended("rank 0"), ended("rank 1"), reported(2, done=True))
    assert p.policy.facts.outcome is None
    p.at(6, ended("mpirun"))
    assert p.policy.facts.outcome == outcome.succeeded()


def test_bad_news_wait_for_hosts_that_have_not_appeared(play):
    """Otherwise these would look for the coordinator until the start timeout."""
    p = play(2)
    p.at(1, ended("prepare", 65, "no such bucket\n"))
    p.at(20, reported(2))
    p.at(20.5)
    assert "finish failed 65" not in p.what  # the answer may be on its way, or lost
    p.at(21, reported(2, gone=True))
    assert p.what[-1] == "finish failed 65"


def test_who_appears_late_and_never_says_good_bye_does_not_hold_bad_news_up(play):
    p = play(2)
    p.at(1, ended("prepare", 65, "no such bucket\n"))
    p.at(20, reported(2))
    p.at(40)
    assert p.since(2) == [f"{20 + GRACE + LEAVE_SECONDS} finish failed 65"]


def test_bad_news_do_not_wait_for_ever(play):
    p = play(2)
    p.at(1, ended("prepare", 65, "no such bucket\n"))
    p.at(LINGER_SECONDS + 10)
    assert p.what[-1] == "finish failed 65"


def test_a_follower_with_bad_news_and_no_coordinator(play):
    p = play(2, 2)
    p.at(1, ended("prepare", 65, "no such bucket\n"))
    p.at(LINGER_SECONDS + 10)
    assert p.what[-1] == "finish failed 65"


def test_what_failed_before_the_stop_is_no_success(play):
    p = stopped_job(play)
    p.at(5.1, reported(2, cause=cause(2, process="sidecar")), reported(3))
    p.at(6, ended("worker/0"))
    p.at(6.5, reported(2, stopping=True, done=True), reported(3, stopping=True, done=True))
    assert p.policy.facts.outcome == outcome.stopped()


@pytest.mark.parametrize(
    "heard, at, confidence, fails",
    [
        (4.9, None, Confidence.HIGH, True),
        (5.1, 4.9, Confidence.HIGH, True),  # it was on its way
        (5.1, None, Confidence.HIGH, False),  # nobody knows which was first
        (5.1, 5.05, Confidence.HIGH, False),
        (4.5, None, Confidence.LOW, True),
        (4.9, None, Confidence.LOW, False),  # the stop may have reached a program before it reached us
    ],
)
def test_what_was_known_before_the_stop_counts(play, heard, at, confidence, fails):
    """Though algo-3 stands still, so that nothing was decided when the stop came."""
    p = running(play)
    raised = cause(2, process="worker/1", confidence=confidence)
    known = reported(2, ack=0, cause=raised, cause_at=at)
    for time, event in sorted([(heard, known), (5, STOP)], key=lambda pair: pair[0]):
        p.at(time, event)
    p.at(6, ended("worker/0"), reported(2, cause=raised, cause_at=at, done=True, clean=False, stopping=True))
    heartbeats(p, 15, 2, cause=raised, cause_at=at, done=True, clean=False, stopping=True)
    assert p.policy.facts.outcome == (outcome.failed(raised) if fails else outcome.stopped())


def test_a_stop_that_reached_another_host_first_comes_before_what_follows_of_it(play):
    p = running(play)
    p.at(5, reported(3, ack=0, cause=cause(3, process="worker/2"), cause_at=4.9))
    p.at(5.1, reported(2, stopping=True, stopping_at=4.8))
    p.at(6, ended("worker/0"), reported(2, stopping=True, stopping_at=4.8, done=True))
    p.at(6.1, reported(3, cause=cause(3, process="worker/2"), cause_at=4.9, stopping=True, done=True, clean=False))
    assert p.policy.facts.outcome == outcome.stopped()


@pytest.mark.parametrize("error, fails", [(0.1, True), (0.01, False)])
def test_a_failure_counts_if_the_clocks_do_not_show_that_the_stop_came_first(play, error, fails):
    """Under load an exchange between hosts takes long, and the difference of their clocks is known less well."""
    p = running(play)
    raised = {"cause": cause(2), "cause_at": 5.05, "clock_error": error}
    p.at(5, STOP)
    p.at(5.1, reported(2, **raised))
    p.at(6, ended("worker/0"), reported(3, stopping=True, done=True))
    p.at(6.1, reported(2, **raised, done=True, clean=False, stopping=True))
    assert p.policy.facts.outcome == (outcome.failed(cause(2)) if fails else outcome.stopped())


@pytest.mark.parametrize("error, fails", [(0.2, True), (0.05, False)])
def test_a_failure_counts_if_a_stop_on_another_host_may_have_come_later(play, error, fails):
    p = running(play)
    p.at(2.1, reported(2, ack=0), reported(3, ack=0))
    p.at(4.9, ended("worker/0", 1, RAISED))
    p.at(5.1, reported(2, ack=0, stopping=True, stopping_at=4.8, clock_error=error))
    p.at(6, *(reported(host, stopping=True, done=True) for host in (2, 3)))
    assert p.policy.facts.outcome.kind is (Kind.FAILED if fails else Kind.STOPPED)


def test_a_better_measurement_of_the_clock_changes_no_order_of_what_happened_on_one_host(play):
    p = running(play, me=2)
    p.at(3, events.Informed(news=p.policy.facts.hosts.news, offset=1000.2, error=0.3))
    p.at(5, ended("worker/1", 1, RAISED))
    told = p.last_told
    p.at(5.05, events.Informed(news=p.policy.facts.hosts.news, offset=1000.0, error=0.01))
    p.at(5.1, STOP)
    assert p.last_told.stopping_at - told.cause_at == pytest.approx(0.1, abs=0.002)
    assert p.last_told.clock_error >= 0.3


def test_a_follower_that_failed_before_the_stop_says_so_without_a_coordinator(play):
    p = running(play, me=2)
    p.at(4.9, ended("worker/1", 1, RAISED))
    p.at(5, STOP)
    p.at(30)
    assert p.policy.facts.outcome.kind is Kind.FAILED
    assert p.blamed == "algo-2 worker/1 (exit code 1): ValueError: x"


def test_a_coordinator_that_was_killed_before_the_stop_is_the_cause(play):
    """Its kernel had closed its connections, though that did not count yet."""
    p = running(play, me=2)
    p.at(4.5, link_ended(1), unreached(1))
    p.at(5, STOP)
    p.at(6, ended("worker/1", signal=15), unreached(1))
    p.at(30)
    assert p.blamed.startswith("algo-1 (lost: its connection closed")


def test_a_success_that_was_complete_before_the_stop_stays_one(play):
    """A host that is silent now had reported before that all was well."""
    p = running(play)
    heartbeats(p, 4, 2, done=True)
    p.at(4, reported(3, done=True))
    p.at(5, STOP, reported(2, done=True))
    p.at(6, ended("worker/0"), reported(2, done=True, stopping=True))
    heartbeats(p, 15, 2, done=True, stopping=True)
    assert p.policy.facts.outcome == outcome.succeeded()


def test_a_failure_is_settled_when_all_have_answered(play):
    """A host whose own failure came first may not have been heard from yet."""
    p = running(play)
    p.at(2.1, reported(2, ack=0), reported(3, ack=0))
    p.at(5, ended("worker/0", 3, RAISED))
    assert p.last_told.poll == 1
    p.at(5.01, reported(2, ack=1))
    assert p.policy.facts.outcome is None
    p.at(5.02, reported(3, ack=1))
    assert p.blamed.startswith("algo-1 worker/0")


def test_the_earlier_failure_counts_though_it_is_heard_later(play):
    """Clocks differ: followers report times by the coordinator's clock."""
    p = running(play)
    p.at(2.1, reported(2, ack=0), reported(3, ack=0))
    p.at(5, ended("worker/0", 3, RAISED))
    p.at(5.01, reported(2, ack=0, cause=cause(2), cause_at=4.9))
    p.at(5.02, reported(2, ack=2, cause=cause(2), cause_at=4.9), reported(3, ack=2))
    assert p.blamed.startswith("algo-2 worker/1")


def test_a_host_that_does_not_answer_may_be_what_the_others_failed_of(play):
    p = running(play)
    p.at(2.1, reported(2, ack=0), reported(3, ack=0))
    p.at(4, reported(2, ack=0), reported(3, ack=0))
    p.at(5.5, ended("worker/0", 3, RAISED))
    heartbeats(p, 12, 3)
    assert p.blamed == "algo-2 (lost: no report for 5 s)"


def test_what_fails_before_a_cut_off_host_was_to_be_heard_again_fails_of_something_else(play):
    """Programs do not notice so soon that the network is cut: no connection ends by that."""
    p = running(play)
    p.at(4, reported(2, ack=0), reported(3, ack=0))
    p.at(4.2, ended("worker/0", 3, RAISED))
    heartbeats(p, 12, 3)
    assert p.policy.facts.lost() == {"algo-2"}
    assert p.blamed == "algo-1 worker/0 (exit code 3): ValueError: x"


def test_a_host_whose_connections_end_may_be_what_others_fail_of_at_once(play):
    p = running(play)
    p.at(4, reported(2, ack=0), reported(3, ack=0))
    p.at(4.1, events.LinkEnded(host="algo-2"))
    p.at(4.2, ended("worker/0", 3, RAISED))
    heartbeats(p, 12, 3)
    assert p.blamed.startswith("algo-2 (lost")


def test_a_follower_answers_at_once_and_tells_its_time_by_the_coordinators_clock(play):
    p = running(play, me=2)
    p.at(3, events.Informed(news=News(ready=frozenset({("*", "prepare")}), assembled=True), offset=1000.0))
    p.at(5, ended("worker/1", 3, RAISED))
    assert (p.last_told.cause_at, p.last_told.ack) == (1005.0, 0)
    p.at(6, informed(poll=4))
    assert p.last_told.ack == 4


def test_a_daemon_that_dies_is_named_and_not_mpirun_that_fails_of_it(play):
    p = play(2, 1, mode="mpi")
    p.at(1, ended("prepare"), ended("host-key"), ended("client-key"), events.Listening(name="sshd"))
    up = frozenset({"prepare", "preflight", "sshd"})
    p.at(2, reported(2, ready=up), events.RankStarted(name="rank 0", pid=1))
    p.at(5, ended("mpirun", 1, "ORTE has lost communication with a remote daemon.\n"))
    p.at(5.1, reported(2, ready=up, cause=cause(2, Confidence.LOW, process="orted", what="ended too early", code=1)))
    p.at(6)
    assert p.blamed.startswith("algo-2 orted (ended too early)")


@pytest.mark.parametrize("open_mpi, expected", [(ORTE, Confidence.LOW), (PRRTE, Confidence.HIGH)])
def test_whether_mpirun_may_have_killed_a_rank(play, open_mpi, expected):
    """PRRTE does not reach it, since it is in its own session."""
    p = mpi(play, me=2, open_mpi=open_mpi)
    p.at(5, ended("rank 2", output="sum 4\n", signal=9))
    assert p.last_told.cause.confidence is expected


def test_a_rank_that_lost_its_connection_to_another_is_not_the_cause(play):
    """From Open MPI 5 on it ends with 14 and prints nothing; mpirun reports it."""
    p = mpi(play, open_mpi=PRRTE)
    p.at(5, ended("rank 0", 14, "sum 4\n"))
    up = frozenset({"prepare", "preflight", "sshd"})
    p.at(5.1, reported(2, ready=up, cause=cause(2, process="rank 2", what="killed by SIGKILL")))
    p.at(6)
    assert p.blamed.startswith("algo-2 rank 2 (killed by SIGKILL)")


def test_mpirun_that_is_killed_is_the_cause(play):
    p = play(2, 1, mode="mpi")
    p.at(1, ended("prepare"), ended("host-key"), ended("client-key"), events.Listening(name="sshd"))
    up = frozenset({"prepare", "preflight", "sshd"})
    p.at(2, reported(2, ready=up), events.RankStarted(name="rank 0", pid=1))
    p.at(5, ended("rank 0", signal=9), ended("mpirun", signal=9))
    assert p.blamed == "algo-1 mpirun (killed by SIGKILL)"


def test_a_lack_of_memory_is_said_where_the_kernel_says_so_and_is_no_chance(play):
    p = play(2, 2, mode="mpi", restarts=3)
    p.at(1, ended("prepare"), ended("host-key"), events.Listening(name="sshd"), informed())
    p.at(2, events.RankStarted(name="rank 1", pid=1))
    p.at(5, events.Ended(name="rank 1", exit=Exit(code=137, signal=9), memory="the kernel killed 1 process"))
    told = p.last_told.cause
    assert told.headline == "algo-2 rank 1 (killed by SIGKILL, out of memory): the kernel killed 1 process"
    assert (told.confidence, told.restartable) == (Confidence.HIGH, False)


def test_a_lack_of_memory_of_a_child_stands_before_what_its_parent_says(play):
    p = running(play)
    short = "the kernel killed 1 process of this host for lack of memory (512 MiB limit)"
    p.at(5, events.Ended(name="worker/0", exit=Exit(code=1), output="lost the loader: exit code -9\n", memory=short))
    p.at(6, reported(2), reported(3))
    assert p.blamed == f"algo-1 worker/0 (exit code 1, out of memory): {short}: lost the loader: exit code -9"


def test_a_symptom_waits_for_a_process_that_has_said_why_it_ends(play):
    """Horovod disconnects while Python unwinds: the other ranks' processes end before the one that raised."""
    p = running(play)
    p.at(5, ended("worker/0", 1, SYMPTOM))
    p.at(5.1, reported(2, dying=True), reported(3))
    p.at(6, reported(2, dying=True), reported(3))
    assert p.policy.facts.outcome is None
    p.at(6.5, reported(2, cause=cause(2)))
    assert p.blamed.startswith("algo-2 worker/1 (exit code 3)")


def test_a_symptom_does_not_wait_for_ever(play):
    p = running(play)
    p.at(5, ended("worker/0", 1, SYMPTOM))
    p.at(5.1, reported(2, dying=True), reported(3))
    heartbeats(p, 7.5, 2, 3, dying=True)
    assert p.policy.facts.outcome is None
    p.at(8.1)
    assert "Socket closed" in p.blamed


DYING = events.Looked(found=(("worker/1", "ValueError: x", "Traceback"),))


def test_a_host_that_is_asked_looks_at_what_its_processes_print(play):
    p = running(play, me=2)
    assert not p.looked
    p.at(5, informed(poll=1))
    p.at(5.5)
    assert p.looked[0] == ("worker/1",) and len(p.looked) in (4, 5), "after 0, 0.1, 0.2 and 0.4 s, about"
    p.at(5.6, DYING)
    assert p.last_told.dying
    p.at(6, ended("worker/1", 1, RAISED))
    assert not p.last_told.dying and p.last_told.cause.headline == "algo-2 worker/1 (exit code 1): ValueError: x"


def test_a_process_that_raised_and_hangs_is_named(play):
    """MPI_Abort can wait for ever."""
    p = running(play, me=2)
    p.at(5, informed(poll=1), DYING)
    p.at(6, DYING)
    p.at(7.1, DYING)
    assert p.last_told.cause.headline == "algo-2 worker/1 (raised an exception and did not end): ValueError: x"


def test_a_rank_that_raised_and_hangs_is_named_beside_its_victim_on_the_same_host(play):
    p = mpi(play, me=2)
    p.at(5, ended("rank 2", 1, f"{TRACEBACK}{SHUT_DOWN}\n"))
    assert p.last_told.cause.process == "rank 2"
    up = frozenset({("*", "prepare"), ("algo-1", "client-key"), ("algo-1", "mpirun")})
    raised = events.Looked(found=(("rank 3", "ValueError: x", "Traceback"),))
    for at in (5.1, 6, 7, 7.2):
        p.at(at, informed(poll=1, ready=up), raised)
        assert p.last_told.dying is (at < 7.2)
    assert p.last_told.cause.headline == "algo-2 rank 3 (raised an exception and did not end): ValueError: x"


def test_a_process_that_got_over_what_it_printed_is_left_alone(play):
    p = running(play, me=2)
    p.at(5, informed(poll=1), DYING)
    p.at(6, events.Looked(found=()))
    assert not p.last_told.dying
    p.at(8, events.Looked(found=()))
    assert p.last_told.cause is None


def test_nobody_looks_when_nothing_is_wrong(play):
    p = running(play)
    heartbeats(p, 20, 2, 3)
    assert not p.looked


def test_a_thousand_causes_are_not_a_thousand_polls(play):
    p = running(play)
    p.at(2.1, reported(2, ack=0), reported(3, ack=0))
    for number in range(20):
        error = f"Socket closed {number}"
        p.at(5 + number / 1000, reported(2, ack=0, cause=cause(2, Confidence.LOW, error=error)))
    assert p.last_told.poll == 1


@pytest.mark.parametrize("error", ["", "ValueError: x"])
def test_the_strategy_of_another_mode_is_part_of_the_reason(play, error):
    p = play(2, mode="ps")
    why = "train.py:3 makes MultiWorkerMirroredStrategy, and the mode is ps"
    p.at(1, events.Prepared(flags=frozenset(), other_mode=why), ended("prepare"), reported(2))
    p.at(5, reported(2, cause=cause(2, process="worker/0", what="killed by SIGSEGV", code=139, error=error)))
    assert p.blamed == f"algo-2 worker/0 (killed by SIGSEGV): {error + '; ' if error else ''}{why}"


def test_a_lost_host_is_not_lost_for_a_strategy(play):
    p = play(2, mode="ps")
    p.at(1, events.Prepared(flags=frozenset(), other_mode="train.py:3 makes"), ended("prepare"), reported(2))
    p.at(12)
    assert p.blamed == "algo-2 (lost: no report for 5 s)"
