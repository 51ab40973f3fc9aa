"""Test verdict.py: which cause becomes the job's outcome."""

import pytest
from plays import (
    GRACE,
    RAISED,
    STOP,
    SYMPTOM,
    TRACEBACK,
    UP,
    Beats,
    Play,
    Shows,
    cause,
    ended,
    following,
    heartbeats,
    informed,
    link_ended,
    matches,
    mpi,
    mpi_following,
    mpi_started,
    reported,
    running,
    stopped_job,
    unreached,
)

from entrypoint.base.errors import ExitCode
from entrypoint.launcher.job.open_mpi import ORTE, PRRTE
from entrypoint.launcher.outcome import outcome
from entrypoint.launcher.outcome.outcome import Confidence, Exit
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.events import News
from entrypoint.launcher.policy.known import BROKEN_SECONDS, PEER_SECONDS, SETTLE_SECONDS
from entrypoint.launcher.policy.termination import LEAVE_SECONDS
from entrypoint.launcher.policy.verdict import LINGER_SECONDS

LOW = Confidence.LOW
LOST = int(ExitCode.HOST_LOST)
BROKE_OFF = "UnavailableError: Socket closed"
SHUT_DOWN = "UnknownError: Horovod has been shut down. This was caused by"
NO_DATABASE = "ConnectionRefusedError: [Errno 111] Connection refused"  # may be the first failure
NOT_ASKED = reported(2, ack=0), reported(3, ack=0)  # these hosts have not answered the poll after a failure
SHORT = "the kernel killed 1 process of this host for lack of memory (512 MiB limit)"


def failed(name: str, error: str = SHUT_DOWN) -> events.Ended:
    """Return the end of a process by an uncaught exception."""
    return ended(name, 1, f"{TRACEBACK}{error}\n")


def rank_3(error: str = "KeyError: 'x'", confidence: Confidence = Confidence.HIGH, **more) -> dict:
    """Return the fields of algo-2's report about the failure of its rank 3."""
    return {"cause": cause(2, confidence, process="rank 3", error=error, **more)}


def ps(play) -> Play:
    """Return the coordinator of a job with parameter servers, all of whose processes run."""
    p = play(2, mode="ps")
    p.at(1, ended("prepare"), reported(2))
    return p


def stopped_at_4_8(error: float) -> list[tuple]:
    """Return reports of algo-2's stop, timed by a clock with this error, and of the followers' ends."""
    stop = reported(2, ack=0, stopping=True, stopping_at=4.8, clock_error=error)
    return [(5.1, stop), (6, *(reported(host, stopping=True, done=True) for host in (2, 3)))]


def fails_at_5_05(error: float) -> list[tuple]:
    """Return a stop at second 5, and a failure of algo-2 just after, timed by a clock with this error."""
    raised = {"cause": cause(2), "cause_at": 5.05, "clock_error": error}
    return [
        (5, STOP),
        (5.1, reported(2, **raised)),
        (6, ended("worker/0"), reported(3, stopping=True, done=True)),
        (6.1, reported(2, **raised, done=True, clean=False, stopping=True)),
    ]


ALSO = rank_3(SHUT_DOWN, LOW)
# Both ranks of algo-2.
BOTH = {
    "done": True,
    "ready": frozenset({"rank 2", "rank 3"}),
    "exits": (("rank 2", "exit code 0", 4.0), ("rank 3", "exit code 0", 4.1)),
}
UNEVEN = "while rank 0 still trained): different numbers of batches? *Horovod has been shut down. This was caused by"
VERDICTS = {
    # the job, what happens on the coordinator, and the verdict
    "the first of two failures counts": (
        running, [(5, reported(3, cause=cause(3))), (5, reported(2, cause=cause(2)))],
        "5.0 failed 3: algo-3 worker/2 (exit code 3)"),
    "a symptom waits for its cause": (
        running, [(5, ended("worker/0", 1, SYMPTOM)), (5.1, reported(2, cause=cause(2)), reported(3))],
        "5.1 failed 3: algo-2 worker/1 (exit code 3)"),
    "a symptom is used at once if all processes have ended": (
        running,
        [(5, failed("worker/0")),
         (5.1, *(reported(host, done=True, cause=cause(host, LOW, error=BROKE_OFF)) for host in (2, 3))), (6,)],
        "5.3 failed 1: algo-1 worker/0 *"),
    # Horovod shuts down while Python still unwinds on the rank that raised; that can take seconds.
    "the rank that raised is named however late it ends": (
        mpi,
        [(5, failed("rank 0")), (5.1, failed("rank 1")), (5.2, reported(2, **ALSO)), (14, Beats(2, **ALSO)),
         (14.5, reported(2, done=True, **rank_3("ValueError: oops")))],
        "14.5 failed 3: algo-2 rank 3 (exit code 3): ValueError: oops"),
    # It may have been handled: a checkpoint that was not there, for example.
    "an earlier exception of a victim is not named if another host reports a cause": (
        mpi,
        [(5, failed("rank 0", f"ValueError: x\ngoes on\n{TRACEBACK}{SHUT_DOWN}"), reported(2)),
         (5.2, reported(2, done=True, **rank_3())), (6,)],
        "5.2 failed 3: algo-2 rank 3 (exit code 3): KeyError: 'x'"),
    "an earlier exception of a victim is named if no host reports a cause": (
        mpi,
        [(5, reported(2, done=True, **ALSO)),
         (5.1, failed("rank 0", f"ValueError: x\ngoes on\n{TRACEBACK}{SHUT_DOWN}"), failed("rank 1")), (6,)],
        "5.3 failed 1: algo-1 rank 0 (exit code 1): ValueError: x (then *"),
    # A victim's MPI_Abort has mpirun terminate the others, one of which had printed its exception before.
    "the rank that raised is named though mpirun terminated it": (
        mpi,
        [(5, failed("rank 0")),
         (5.1, ended("rank 1", signal=15, output=RAISED.replace("line 1", "line 1, in <module>")), reported(2))],
        "5.1 failed 1: algo-1 rank 1 (raised an exception and was terminated): ValueError: x"),
    # Its host's report may be late on a busy machine.
    "ranks that mpirun terminated wait for the rank that failed": (
        mpi,
        [(5, ended("rank 0", signal=15), ended("rank 1", signal=15), ended("mpirun", 1, "MPI_ABORT was invoked\n")),
         (5.2, reported(2)), (7.4, Beats(2)), (7.5, reported(2, done=True, **rank_3()))],
        "7.5 failed 3: algo-2 rank 3 *"),
    "a symptom waits for hosts that have not reported since": (
        running, [(2.1, *NOT_ASKED), (5, ended("worker/0", 1, SYMPTOM)), (5.9, reported(3)), (12,)],
        f"7.1 failed {LOST}: algo-2 (lost*"),
    "a cause that the host of a symptom reports later counts": (
        running,
        [(5, reported(2, cause=cause(2, LOW, error="Socket closed"))),
         (5.1, reported(2, cause=cause(2, process="worker/2", error="ValueError: x")), reported(3)), (7,)],
        "5.1 failed 3: algo-2 worker/2 (exit code 3): ValueError: x"),
    "a symptom waits for a process that has printed an exception": (
        running,
        [(5, ended("worker/0", 1, SYMPTOM)), (5.1, reported(2, dying=True), reported(3)),
         (6, reported(2, dying=True), reported(3)), (6.5, reported(2, cause=cause(2)))],
        "6.5 failed 3: algo-2 worker/1 (exit code 3)"),
    "a symptom waits a bounded time for a process that has printed an exception": (
        running,
        [(5, ended("worker/0", 1, SYMPTOM)), (5.1, reported(2, dying=True), reported(3)),
         (8, Beats(2, 3, dying=True)), (9,)],
        "8.0 failed 1: *Socket closed*"),
    "mpirun fails because a rank did": (
        mpi,
        [(5, ended("mpirun", 1, "Primary job terminated normally, but 1 process returned\nmore text\n")),
         (5.1, reported(2, **rank_3("ValueError: x"))), (6,)],
        "5.1 failed 3: algo-2 rank 3 (exit code 3): ValueError: x"),
    "mpirun fails by itself": (
        mpi,
        [(4, ended("rank 0"), ended("rank 1")), (5, ended("mpirun", 213, "There are not enough slots\n\nlong story\n")),
         (5.2, reported(2, done=True)), (6,)],
        "5.3 failed 213: algo-1 mpirun (exit code 213): There are not enough slots"),
    "mpirun that is killed is the cause": (
        mpi_started,
        [(3, events.RankStarted(name="rank 0", pid=1)), (5, ended("rank 0", signal=9), ended("mpirun", signal=9))],
        "5.0 failed 137: algo-1 mpirun (killed by SIGKILL)"),
    "ranks that mpirun kills are not to blame": (
        mpi, [(5, ended("rank 0", signal=9)), (5.05, ended("rank 1", 1, RAISED))],
        "5.0 failed 1: algo-1 rank 1 (exit code 1): ValueError: x"),
    "a rank that the kernel kills is the cause if there is no other": (
        mpi, [(5, ended("rank 1", signal=9)), (5.1, ended("mpirun", 137)), (5.5, reported(2))],
        "5.3 failed 137: algo-1 rank 1 (killed by SIGKILL)"),
    "a rank that the kernel kills is the cause in any order of reports": (
        mpi,
        [(5, ended("rank 0", signal=15), ended("mpirun", 137)),
         (5.1, reported(2, **rank_3("", LOW, what="killed by SIGKILL", code=137))), (7,)],
        "* failed 137: algo-2 rank 3 (killed by SIGKILL)"),
    # From Open MPI 5 on it ends with 14 and prints nothing; mpirun reports it.
    "a rank that lost its connection to another is not the cause": (
        lambda play: mpi(play, open_mpi=PRRTE),
        [(5, ended("rank 0", 14, "sum 4\n")),
         (5.1, reported(2, ready=UP, cause=cause(2, process="rank 2", what="killed by SIGKILL"))), (6,)],
        "5.1 failed 3: algo-2 rank 2 (killed by SIGKILL)"),
    "a daemon that dies is named and not mpirun that fails of it": (
        mpi_started,
        [(3, events.RankStarted(name="rank 0", pid=1)),
         (5, ended("mpirun", 1, "ORTE has lost communication with a remote daemon.\n")),
         (5.1, reported(2, ready=UP, cause=cause(2, LOW, process="orted", what="ended too early", code=1))), (9,)],
        "* failed 1: algo-2 orted (ended too early)*"),
    "workers out of step are the cause at once": (
        lambda play: running(play, 2),
        [(5, failed("worker/0", "InternalError: Collective ops is aborted by: Collective instance 132 expected type 0 "
                    "and data_type 9 but got type 0"), reported(2))],
        "5.0 failed 1: algo-1 worker/0 (exit code 1): different numbers of batches? *InternalError: Collective ops is "
        "aborted by: Collective instance 132 expected type 0 and data_type 9 but got type 0"),
    # None waits for another's step.
    "a worker of parameter servers may end before others": (
        ps,
        [(2, events.Listening(name="ps/0"), reported(2, ready=frozenset({"prepare", "preflight", "ps/1"}))),
         (5, reported(2, done=True, exits=(("worker/0", "exit code 0", 4.0),))),
         (6, failed("chief/0", "UnavailableError: Collective ops is aborted by: x")),
         (6.1, reported(2, done=True, exits=(("worker/0", "exit code 0", 4.0),))), (6.5,)],
        "6.3 failed 1: algo-1 chief/0 (exit code 1)*"),
    "a child's lack of memory comes before its parent's error": (
        running,
        [(5, events.Ended(name="worker/0", exit=Exit(code=1), output="lost the loader: exit code -9\n", memory=SHORT)),
         (6, reported(2), reported(3))],
        f"* failed 1: algo-1 worker/0 (exit code 1, out of memory): {SHORT}: lost the loader: exit code -9"),
    "the failure file of a script is the explanation": (
        running,
        [(5, events.Ended(name="worker/0", exit=Exit(code=4), output=RAISED, wrote="the data is bad\nrow 7\n"),
          reported(2), reported(3))],
        "5.0 failed 4: algo-1 worker/0 (exit code 4): the data is bad"),
    # A host whose own failure came first may not have been heard from yet.
    "a failure is settled when all have answered": (
        running,
        [(2.1, *NOT_ASKED), (5, ended("worker/0", 3, RAISED)), (5.1, reported(2, ack=1)), (5.2, reported(3, ack=1))],
        "5.2 failed 3: algo-1 worker/0 *"),
    # Clocks differ: followers report times by the coordinator's clock.
    "the earlier failure counts though it is reported later": (
        running,
        [(2.1, *NOT_ASKED), (5, ended("worker/0", 3, RAISED)), (5.01, reported(2, ack=0, cause=cause(2), cause_at=4.9)),
         (5.02, reported(2, ack=2, cause=cause(2), cause_at=4.9), reported(3, ack=2))],
        "5.0 failed 3: algo-2 worker/1 *"),
    "a host that does not answer may be the cause of other failures": (
        running, [(2.1, *NOT_ASKED), (4, *NOT_ASKED), (5.5, ended("worker/0", 3, RAISED)), (12, Beats(3))],
        f"* failed {LOST}: algo-2 (lost: no report for 5 s)"),
    # Programs do not notice so soon that the network is cut: no connection ends by that.
    "a failure before the next report of a cut-off host has another cause": (
        running, [(4, *NOT_ASKED), (4.2, ended("worker/0", 3, RAISED)), (12, Beats(3))],
        "* failed 3: algo-1 worker/0 (exit code 3): ValueError: x"),
    "a host whose connections end may be the cause of failures at once": (
        running, [(4, *NOT_ASKED), (4.1, link_ended(2)), (4.2, ended("worker/0", 3, RAISED)), (12, Beats(3))],
        f"* failed {LOST}: algo-2 (lost*"),
    "a lost host is not lost for the strategy in the code": (
        ps, [(2, events.Prepared(flags=frozenset(), other_mode="train.py:3 makes")), (12,)],
        f"* failed {LOST}: algo-2 (lost: no report for 5 s)"),
    "ranks do not decide success": (
        mpi, [(5, ended("rank 0"), ended("rank 1"), reported(2, done=True)), (6, ended("mpirun"))], "6.0 succeeded 0"),
    "a failure before the stop is no success": (
        stopped_job,
        [(5.1, reported(2, cause=cause(2, process="sidecar")), reported(3)), (6, ended("worker/0")),
         (6.5, *(reported(host, stopping=True, done=True) for host in (2, 3)))],
        "6.5 stopped 143"),
    "a stop that reached another host first comes before later failures": (
        running,
        [(5, reported(3, ack=0, cause=cause(3), cause_at=4.9)), (5.1, reported(2, stopping=True, stopping_at=4.8)),
         (6, ended("worker/0"), reported(2, stopping=True, stopping_at=4.8, done=True)),
         (6.1, reported(3, cause=cause(3), cause_at=4.9, stopping=True, done=True, clean=False))],
        "6.1 stopped 143"),
    # A host that is silent now had reported before that all was well.
    "a success that was complete before the stop stays one": (
        running,
        [(4, Beats(2, done=True)), (4, reported(3, done=True)), (5, STOP, reported(2, done=True)),
         (6, ended("worker/0"), reported(2, done=True, stopping=True)), (15, Beats(2, done=True, stopping=True))],
        "* succeeded 0"),
    "a follower's failure before the stop counts without a coordinator": (
        following, [(4.9, ended("worker/1", 1, RAISED)), (5, STOP), (30,)],
        "* failed 1: algo-2 worker/1 (exit code 1): ValueError: x"),
    # Its kernel had closed its connections, though that did not count yet.
    "a coordinator that was killed before the stop is the cause": (
        following,
        [(4.5, link_ended(1), unreached(1)), (5, STOP), (6, ended("worker/1", signal=15), unreached(1)), (30,)],
        f"* failed {LOST}: algo-1 (lost: its connection closed*"),
    "a rank that ended well is the cause of a symptom that came before its report": (
        mpi, [(5, failed("rank 0"), failed("rank 1")), (8, Beats(2)), (8.5, reported(2, **BOTH))],
        f"8.5 failed 1: algo-2 rank 2 (ended with 0, as did 1 more, {UNEVEN}"),
    "a rank that ended well is the cause of a symptom that came after its report": (
        mpi, [(5, ended("rank 1"), reported(2, **BOTH)), (6, failed("rank 0"), reported(2, **BOTH)), (6.5,)],
        f"6.3 failed 1: algo-1 rank 1 (ended with 0, as did 2 more, {UNEVEN}"),
    "a rank that ended well is not the cause if there is a better one": (
        mpi,
        [(4, reported(2, **BOTH)), (5, failed("rank 0"), reported(2, **BOTH)), (5.1, ended("rank 1", 1, RAISED)), (6,)],
        "5.1 failed 1: algo-1 rank 1 (exit code 1): ValueError: x"),
    # Clocks do not show that the stop came first: under load an exchange takes long, and they are known less well.
    "a failure counts if a stop on another host may have come later": (
        running, [(2.1, *NOT_ASKED), (4.9, ended("worker/0", 1, RAISED)), *stopped_at_4_8(error=0.2)],
        "* failed 1: algo-1 worker/0 *"),
    "a failure does not count if a stop on another host came first": (
        running, [(2.1, *NOT_ASKED), (4.9, ended("worker/0", 1, RAISED)), *stopped_at_4_8(error=0.05)],
        "* stopped 143"),
    "a failure counts if it may have come before the stop": (running, fails_at_5_05(error=0.1), "* failed 3: algo-2 *"),
    "a failure does not count if the stop came first": (running, fails_at_5_05(error=0.01), "* stopped 143"),
}  # fmt: skip


@pytest.mark.parametrize("start, history, verdict", VERDICTS.values(), ids=VERDICTS)
def test_history_of_failures_determines_the_verdict(play, start, history, verdict):
    p = start(play).through(history)
    assert matches(p.verdict, verdict), p.verdict


def two_workers(play) -> Play:
    """Return a follower with two workers that run."""
    return play(2, 2, processes_per_host=2).through([(1, ended("prepare")), (2, informed())])


def dies(process: str) -> events.Looked:
    """Return the event of an inspection of outputs, if this process has raised an exception."""
    return events.Looked(found=((process, "ValueError: x", "Traceback"),))


DYING, NOBODY_DIES = dies("worker/1"), events.Looked(found=())
ASKED = informed(poll=1, ready=frozenset({("*", "prepare"), ("algo-1", "client-key"), ("algo-1", "mpirun")}))
FAILURE = outcome.failed(cause(2))
STORIES = {
    # the job; what happens, and what is seen then
    "a follower's failure ends the job everywhere": (
        running,
        [(5, reported(2, done=True, clean=False, cause=cause(2))), Shows(did=["5.0 ask worker/0"], outcome=FAILURE),
         (5.1, ended("worker/0", signal=15)), (5.2, reported(2, gone=True), reported(3, gone=True)),
         Shows(did=["5.2 finish failed 3"])]),
    # Another host was quicker: that is the verdict, here too.
    "a follower reports its failure at once and waits for the verdict": (
        following,
        [(5, ended("worker/1", 3, RAISED)), Shows("", cause="algo-2 worker/1 (exit code 3): ValueError: x"),
         (5.1, informed(outcome=outcome.failed(cause(3, error="KeyError: y")))),
         Shows("* failed 3: algo-3 *", last="5.1 finish failed 3")]),
    # The second end is our doing.
    "the rest of a failing host is stopped at once": (
        two_workers,
        [(5, ended("worker/2", 3, RAISED)), Shows(did=["5.0 ask worker/3"]), (5.1, ended("worker/3", 1, RAISED)),
         Shows(cause="algo-2 worker/2 *")]),
    # Two processes end together; the one that only suffered is examined first.
    "a symptom does not hide its cause on the same host": (
        two_workers,
        [(5, ended("worker/2", 1, SYMPTOM), ended("worker/3", 3, RAISED)),
         Shows(cause="algo-2 worker/3 (exit code 3): ValueError: x")]),
    "a symptom ends nothing": (
        mpi,
        [(5, failed("rank 0")), (5.1, failed("rank 1")), (5.2, reported(2, **ALSO)), (14, Beats(2, **ALSO)),
         Shows("", did=[])]),
    "a follower reports times by the coordinator's clock and answers a poll at once": (
        following,
        [(3, events.Informed(news=News(ready=frozenset({("*", "prepare")}), assembled=True), offset=1000.0)),
         (5, ended("worker/1", 3, RAISED)), Shows(cause_at=1005.0, ack=0), (6, informed(poll=4)), Shows(ack=4)]),
    "many causes are one poll": (
        running,
        [(2.1, *NOT_ASKED),
         *((5 + n / 1000, reported(2, ack=0, cause=cause(2, LOW, error=f"Socket closed {n}"))) for n in range(20)),
         Shows(poll=1)]),
    "a process that raised and whose end takes long is reported as dying": (
        following,
        [(5, informed(poll=1)), (5.6, DYING), Shows(dying=True), (6, ended("worker/1", 1, RAISED)),
         Shows(dying=False, cause="algo-2 worker/1 (exit code 1): ValueError: x")]),
    # MPI_Abort can wait for ever.
    "a process that raised and hangs is named": (
        following,
        [(5, informed(poll=1), DYING), (6, DYING), (7.1, DYING),
         Shows(cause="algo-2 worker/1 (raised an exception and did not end): ValueError: x")]),
    "a rank that raised and hangs is named beside its victim on the same host": (
        mpi_following,
        [(5, failed("rank 2")), Shows(cause="algo-2 rank 2 *"), (5.1, ASKED, dies("rank 3")), Shows(dying=True),
         (6, ASKED, dies("rank 3")), (7, ASKED, dies("rank 3")), Shows(dying=True), (7.2, ASKED, dies("rank 3")),
         Shows(dying=False, cause="algo-2 rank 3 (raised an exception and did not end): ValueError: x")]),
    "a process that handled its exception is not blamed": (
        following,
        [(5, informed(poll=1), DYING), (6, NOBODY_DIES), Shows(dying=False), (8, NOBODY_DIES), Shows(cause="")]),
}  # fmt: skip


@pytest.mark.parametrize("start, history", STORIES.values(), ids=STORIES)
def test_policy_acts_on_news_of_a_failure_as_the_story_states(play, start, history):
    start(play).through(history)


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
def test_text_of_a_lone_symptom_sets_how_long_a_better_cause_is_awaited(play, error, seconds, marked, host):
    """Meanwhile, other processes run, whose end may show the cause. Report and summary mark the error as a symptom."""
    p = running(play)
    if host == 1:
        p.at(5, failed("worker/0", error), reported(2), reported(3))
    else:
        p.at(5, reported(2, done=True, cause=cause(2, LOW, error=error)), reported(3))
    heartbeats(p, 5 + seconds * 0.95, 2, 3)
    p.at(5 + seconds * 1.1)
    assert p.policy.facts.outcome_at == pytest.approx(5 + seconds, abs=0.1)
    assert (
        p.blamed.startswith(f"algo-{host} worker/{host - 1}")
        and error.partition(": ")[2].split(". ")[0].removesuffix(" heartbeat timeout") in p.blamed
    )
    assert p.blamed.endswith(" (probably a symptom)") is marked


@pytest.mark.parametrize(
    ("mode", "said", "named"),
    [
        (
            "mwms",
            "Error reported from /job:worker/task:1: Task /job:worker/replica:0/task:1 heartbeat timeout. This",
            "from /job:worker/task:1: Task /job:worker/replica:0/task:1 (algo-2) heartbeat timeout. This",
        ),
        ("jax", "unhealthy (stopped sending heartbeats): /job:jax_worker/replica:0/task:2", "task:2 (algo-3)"),
        ("mwms", "Socket closed, of /job:worker/replica:0/task:1", "of /job:worker/replica:0/task:1"),
    ],
)
def test_heartbeat_timeout_of_a_task_names_its_host(play, mode, said, named):
    p = running(play, mode=mode)
    p.at(5, failed("worker/0", f"UnavailableError: {said}"), reported(2), reported(3))
    heartbeats(p, 5 + PEER_SECONDS * 0.95, 2, 3)
    p.at(5 + PEER_SECONDS * 1.1)
    assert p.blamed.removesuffix(" (probably a symptom)").endswith(named)


@pytest.mark.parametrize("output", ["", "loss 0.3\n", f"{TRACEBACK}{SHUT_DOWN}\n", RAISED + "goes on\n"])
def test_terminated_rank_without_exception_is_not_blamed(play, output):
    p = mpi(play)
    p.at(5, ended("rank 1", signal=15, output=output), ended("mpirun", 1, "MPI_ABORT was invoked on rank 3\n"))
    p.at(6.5, reported(2, done=True, **rank_3()))
    assert p.blamed == "algo-2 rank 3 (exit code 3): KeyError: 'x'"


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
def test_early_success_of_a_worker_explains_the_chiefs_symptom(play, mode, error, uneven):
    p = running(play, 2, mode=mode)
    exits = (("worker/1", "exit code 0", 4.0),)
    p.at(5, reported(2, done=True, exits=exits))
    p.at(6, failed("worker/0", error), reported(2, done=True, exits=exits))
    p.at(6.5)
    begin = "algo-2 worker/1 (ended with 0 while worker/0 still trained): different" if uneven else "algo-1 worker/0 ("
    assert p.blamed.startswith(begin)


@pytest.mark.parametrize("end", [ended("ps/0", signal=11), ended("ps/0", 0), ended("ps/0", 1, RAISED)], ids=str)
def test_end_of_a_parameter_server_fails_the_job(play, end):
    p = ps(play)
    p.at(5, end, reported(2))
    assert matches(p.verdict, f"5.0 failed {end.exit.code or 1}: algo-1 ps/0 (ended too early*")
    assert p.since(3) == ["5.0 ask chief/0"]


NO_BUCKET = (1, ended("prepare", 65, "no such bucket\n"))
BAD_NEWS = {
    # which host it is, what happens, and when it ends; others would look for the coordinator until the start timeout
    "until a late host has left": (1, [(20, reported(2)), (21, reported(2, gone=True))], 21),
    "a late host has some time to leave": (1, [(20, reported(2)), (40,)], 20 + GRACE + LEAVE_SECONDS),
    "a job without a late host ends in bounded time": (1, [(LINGER_SECONDS + 10,)], 1 + LINGER_SECONDS),
    "a follower has no coordinator": (2, [(LINGER_SECONDS + 10,)], 1 + LINGER_SECONDS),
}


@pytest.mark.parametrize("me, history, ends", BAD_NEWS.values(), ids=BAD_NEWS)
def test_failed_host_waits_for_hosts_that_have_not_appeared(play, me, history, ends):
    p = play(2, me).through([NO_BUCKET, *history])
    assert p.since(2) == [f"{ends:.1f} finish failed 65"]


@pytest.mark.parametrize(
    "heard, at, confidence, fails",
    [
        (4.9, None, Confidence.HIGH, True),
        (5.1, 4.9, Confidence.HIGH, True),  # it was on its way
        (5.1, None, Confidence.HIGH, False),  # nobody knows which was first
        (5.1, 5.05, Confidence.HIGH, False),
        (4.5, None, LOW, True),
        (4.9, None, LOW, False),  # the stop may have reached a program before it reached us
    ],
)
def test_failure_known_before_the_stop_counts(play, heard, at, confidence, fails):
    """algo-3 does not answer, so the outcome is not yet decided when the stop comes."""
    p = running(play)
    raised = {"cause": cause(2, confidence), "cause_at": at}
    p.through(sorted([(heard, reported(2, ack=0, **raised)), (5, STOP)], key=lambda pair: pair[0]))
    ends = {**raised, "done": True, "clean": False, "stopping": True}
    p.through([(6, ended("worker/0"), reported(2, **ends)), (15, Beats(2, **ends))])
    assert p.outcome == (outcome.failed(raised["cause"]) if fails else outcome.stopped())


def test_new_clock_measurement_keeps_order_of_one_hosts_events(play):
    p = running(play, me=2)
    p.at(3, events.Informed(news=p.policy.facts.hosts.news, offset=1000.2, error=0.3))
    p.at(5, ended("worker/1", 1, RAISED))
    told = p.last_told
    p.at(5.05, events.Informed(news=p.policy.facts.hosts.news, offset=1000.0, error=0.01))
    p.at(5.1, STOP)
    assert p.last_told.stopping_at - told.cause_at == pytest.approx(0.1, abs=0.002)
    assert p.last_told.clock_error >= 0.3


@pytest.mark.parametrize("open_mpi, expected", [(ORTE, LOW), (PRRTE, Confidence.HIGH)])
def test_only_mpirun_of_open_mpi_4_may_have_killed_a_rank(play, open_mpi, expected):
    """PRRTE does not reach the rank, which is in its own session."""
    p = mpi(play, me=2, open_mpi=open_mpi)
    p.at(5, ended("rank 2", output="sum 4\n", signal=9))
    assert p.last_told.cause.confidence is expected


def test_poll_makes_follower_inspect_output_of_its_processes(play):
    p = following(play)
    assert not p.looked
    p.through([(5, informed(poll=1)), (5.5,)])
    assert p.looked[0] == ("worker/1",) and len(p.looked) in (4, 5), "after 0, 0.1, 0.2 and 0.4 s, about"


def test_out_of_memory_kill_is_the_cause_without_restart(play):
    p = mpi_started(play, me=2, restarts=3)
    p.at(3, events.RankStarted(name="rank 1", pid=1))
    p.at(5, events.Ended(name="rank 1", exit=Exit(code=137, signal=9), memory="the kernel killed 1 process"))
    told = p.last_told.cause
    assert told.headline == "algo-2 rank 1 (killed by SIGKILL, out of memory): the kernel killed 1 process"
    assert (told.confidence, told.restartable) == (Confidence.HIGH, False)


def test_output_is_not_inspected_without_a_failure(play):
    assert not running(play).through([(20, Beats(2, 3))]).looked


@pytest.mark.parametrize("error", ["", "ValueError: x"])
def test_cause_mentions_a_strategy_of_another_mode(play, error):
    why = "train.py:3 makes MultiWorkerMirroredStrategy, and the mode is ps"
    p = ps(play)
    p.at(2, events.Prepared(flags=frozenset(), other_mode=why))
    p.at(5, reported(2, cause=cause(2, process="worker/0", what="killed by SIGSEGV", code=139, error=error)))
    assert p.blamed == f"algo-2 worker/0 (killed by SIGSEGV): {error + '; ' if error else ''}{why}"


def test_package_index_that_cannot_be_reached_is_the_cause_and_no_symptom(play):
    """No other program runs yet of which a failed preparation could be a symptom."""
    p = play(2, 1)
    p.at(1, ended("prepare", 65, "ERROR: Failed to fetch: http://index/simple/: Connection refused (os error 111)\n"))
    assert [noted.cause.confidence for noted in p.policy.facts.attempt.causes] == [Confidence.HIGH]
