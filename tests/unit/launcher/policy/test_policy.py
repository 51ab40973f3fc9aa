"""Test policy.py by tables: a history of (time, event), and the actions that must follow. Other files test parts."""

import pytest
from plays import (
    GRACE,
    PAUSED,
    RAISED,
    STOP,
    SYMPTOM,
    Beats,
    Play,
    Shows,
    cause,
    ended,
    following,
    heartbeats,
    informed,
    matches,
    mpi_started,
    reported,
    running,
)

from entrypoint.base.errors import ExitCode
from entrypoint.launcher.job.open_mpi import DAEMONS
from entrypoint.launcher.outcome import outcome
from entrypoint.launcher.plan.plan import Duty, Flag
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.messages import status
from entrypoint.launcher.policy.termination import LEAVE_SECONDS

ALONE = {
    # history on one host whose script starts at second 1: the actions
    "success": ([(5, ended("script"))], ["5.0 finish succeeded 0"]),
    "script exits 3": ([(5, ended("script", 3))], ["5.0 finish failed 3"]),
    "script is killed": ([(5, ended("script", signal=9))], ["5.0 finish failed 137"]),
    "interpreter is absent": ([(1.1, events.NotStarted(name="script", why="python: gone"))],
                              ["1.1 finish failed 127"]),
    "stopped, saves": ([(5, STOP), (6, ended("script"))], ["5.0 ask script", "6.0 finish succeeded 0"]),
    "stopped, dies": ([(5, STOP), (6, ended("script", signal=15))], ["5.0 ask script", "6.0 finish stopped 143"]),
    "stopped, fails": ([(5, STOP), (6, ended("script", 1, RAISED))], ["5.0 ask script", "6.0 finish stopped 143"]),
    "stopped twice": ([(5, STOP), (6, STOP), (7, ended("script"))], ["5.0 ask script", "7.0 finish succeeded 0"]),
    "stopped, never ends": ([(5, STOP), (105.5, ended("script", signal=9))],
                            ["5.0 ask script", "105.0 force script", "105.5 finish stopped 143"]),
    "stopped after the end": ([(5, ended("script")), (6, STOP)], ["5.0 finish succeeded 0"]),
    "failed, then stopped": ([(5, ended("script", 3)), (5, STOP)], ["5.0 finish failed 3"]),
    "a symptom without another cause is the cause": ([(5, ended("script", 1, SYMPTOM)), (7,)], ["5.3 finish failed 1"]),
    "an end that is reported twice": ([(1, ended("prepare", 1)), (5, ended("script"))], ["5.0 finish succeeded 0"]),
    "the launcher itself breaks": ([(2, events.Broken(why="disk full", code=70)), (2.1, ended("script", signal=15))],
                                   ["2.0 ask script", "2.1 finish failed 70"]),
}  # fmt: skip
UNPREPARED = {
    # history on one host whose prepare step has not ended: the actions
    "code cannot be had": ([(1, ended("prepare", 65, "no such bucket\n"))], ["1.0 finish failed 65"]),
    "stopped before the script": ([(0.5, STOP), (0.6, ended("prepare", signal=15))],
                                  ["0.5 ask prepare", "0.6 finish stopped 143"]),
    "stopped, prepared just then": ([(0.5, STOP), (0.6, ended("prepare"))],
                                    ["0.5 ask prepare", "0.6 finish stopped 143"]),
}  # fmt: skip


@pytest.mark.parametrize("history, actions", ALONE.values(), ids=ALONE)
def test_policy_acts_on_the_end_of_a_lone_script_as_the_row_states(play, history, actions):
    p = play(1, mode="single").through([(1, ended("prepare")), *history])
    assert p.since(0) == ["0.0 start prepare", "1.0 start script", *actions]


@pytest.mark.parametrize("history, actions", UNPREPARED.values(), ids=UNPREPARED)
def test_script_never_starts_if_prepare_step_fails_or_is_stopped(play, history, actions):
    assert play(1, mode="single").through(history).since(0) == ["0.0 start prepare", *actions]


def ready(*ranks: str) -> frozenset[str]:
    return frozenset({"prepare", "preflight", "host-key", "sshd", *ranks})


def ps_follower(play) -> Play:
    """Return a follower of a job with parameter servers, all of whose processes run; it is 2 s old."""
    return play(2, 2, mode="ps").through([
        (1, events.Prepared(flags=frozenset()), ended("prepare")), (2, informed()),
    ])  # fmt: skip


def mpirun_started(play) -> Play:
    return mpi_started(play, start_timeout=30)


def with_evaluator(play, me: int = 1) -> Play:
    p = play(2, me, evaluator="last", evaluator_grace=60)
    return p.through([(1, ended("prepare")), (2, reported(2) if me == 1 else informed())])


def evaluators_host(play) -> Play:
    return with_evaluator(play, me=2)


SUCCEEDED = informed(outcome=outcome.succeeded())
START_TIMEOUT = int(ExitCode.START_TIMEOUT)
EVALUATES = {"done": True, "lingering": True}
EVALUATED = [(5, ended("worker/0"), reported(2, **EVALUATES)), (20, Beats(2, **EVALUATES))]
STORIES = {
    # the job; what happens, and what is seen then
    # The others must still learn of the success.
    "success needs every host": (
        running,
        [(5, ended("worker/0")), (6, reported(2, done=True), reported(3)), Shows(""),
         (7, reported(3, done=True)), Shows("7.0 succeeded 0", did=[], outcome=outcome.succeeded()),
         (7.2, reported(2, done=True, gone=True)), (7.3, reported(3, done=True, gone=True)),
         Shows(did=["7.3 finish succeeded 0"])]),
    "a follower that is done waits for the job": (
        following,
        [(5, ended("worker/1")), Shows(done=True, clean=True, gone=False), (600, Beats()), (601, SUCCEEDED),
         Shows(did=["601.0 finish succeeded 0"], gone=True)]),
    "a follower that never sends its last report does not hold the coordinator": (
        running,
        [(5, ended("worker/0"), reported(2, done=True), reported(3, done=True)),
         (5.1, reported(2, done=True, gone=True)), (60,),
         Shows(did=[f"{5 + GRACE + LEAVE_SECONDS} finish succeeded 0"])]),
    "a host that is to blame but answers is waited for": (
        lambda play: play(2, start_timeout=30),
        [(1, ended("prepare")), (31, Beats(2, ready=frozenset())),
         Shows("* failed 68: algo-2 (prepare did not end within 30 s)", did=[]),
         (31.5, reported(2, ready=frozenset(), gone=True)), Shows(last="31.5 finish failed 68")]),
    "servers stay until the last script has ended": (
        ps_follower,
        [(3, ended("worker/0")), (60, Beats()), (61, SUCCEEDED), (61.5, ended("ps/1", signal=15)),
         Shows(did=["61.0 ask ps/1", "61.5 finish succeeded 0"])]),
    "a server that ignores SIGTERM is killed": (
        ps_follower,
        [(3, ended("worker/0"), SUCCEEDED), (6, ended("ps/1", signal=9)),
         Shows(did=["3.0 ask ps/1", f"{3 + GRACE} force ps/1", "6.0 finish succeeded 0"])]),
    # TensorFlow 2's tutorial: the worker's branch of the script never returns.
    "a worker script that joins its server does not hold up the end": (
        ps_follower,
        [Shows(done=False, rests=None), (3, events.Resting(found=(("worker/0", 2.0),))), Shows(rests=2.0),
         (4, SUCCEEDED), (4.1, ended("worker/0", signal=15), ended("ps/1", signal=15)),
         Shows(last="4.1 finish succeeded 0")]),
    # It may have waited for the chief's end, and start its own work now; then it is waited for.
    "a script that only serves is watched for a while after the chief's end": (
        lambda play: play(2, mode="ps"),
        [(1, ended("prepare"), reported(2)), (9, Beats(2, rests=2.0)), (9.5, ended("chief/0")),
         (11, Beats(2, rests=2.0)), (30, Beats(2)), (31, Beats(2, rests=2.0)), Shows(""), (34, Beats(2, rests=2.0)),
         Shows("3*.* succeeded 0")]),
    # The next three follow mpirun's start at second 2.
    "mpirun starts no rank": (
        mpirun_started,
        [(3, ended("mpirun", 0, "mpirun (Open MPI) 4.1.4\n")), (6, Beats(2, done=True)),
         Shows("* failed 1: algo-1 mpirun (exit code 0): it started no rank*")]),
    "mpirun never gets a rank up": (
        mpirun_started,
        [(40, Beats(2, ready=ready(), done=True)),
         Shows(f"32.0 failed {START_TIMEOUT}: algo-1 mpirun (started no rank within 30 s)*")]),
    "mpirun never gets one of its ranks up": (
        mpirun_started,
        [(40, Beats(2, ready=ready("rank 1"))),
         Shows(f"32.0 failed {START_TIMEOUT}: algo-1 mpirun (did not start rank 0 of algo-1 within 30 s)*")]),
    "an evaluator has time after the others' success": (
        with_evaluator,
        [(5, ended("worker/0"), reported(2, **EVALUATES)), (30, Beats(2, **EVALUATES)), (31, reported(2, done=True)),
         Shows("31.0 succeeded 0")]),
    "an evaluator delays the end by bounded time": (
        with_evaluator,
        [(5, ended("worker/0"), reported(2, **EVALUATES)), (70, Beats(2, **EVALUATES)), Shows("65.0 succeeded 0")]),
    "an evaluator whose host is lost during a stop is no success": (
        with_evaluator,
        [(5, reported(2, **EVALUATES)), (6, STOP), (7, ended("worker/0")), (30,), Shows("* stopped 143")]),
    # Its time is over when we go on after a pause, and the first reports that we read are old.
    "an evaluator that fails while we are paused fails the job": (
        with_evaluator,
        [*EVALUATED, (70, PAUSED), Shows(""), (70.01, reported(2, **EVALUATES)),
         (70.02, reported(2, done=True, cause=cause(process="evaluator/0"), gone=True)),
         Shows("* algo-2 evaluator/0 (exit code 3)")]),
    "an evaluator whose host is lost while we are paused fails the job": (
        with_evaluator, [*EVALUATED, (70, PAUSED), Shows(""), (90,), Shows("* algo-2 (lost*")]),
    "the evaluator's host reports that it still evaluates": (
        lambda play: play(2, 2, evaluator="last"),
        [(1, ended("prepare")), (2, informed()), Shows(did=["2.0 start worker/1", "2.0 start evaluator/0"]),
         (5, ended("worker/1")), Shows(done=True, lingering=True), (9, ended("evaluator/0")), Shows(lingering=False)]),
    "an evaluator that saves has its time though the coordinator is lost meanwhile": (
        evaluators_host,
        [(5, ended("worker/1"), STOP), (60,), Shows("", did=["5.0 ask evaluator/0"]), (61, ended("evaluator/0")),
         Shows(last="61.0 finish stopped 143")]),
    "an evaluator that fails fails the job": (
        evaluators_host,
        [(5, ended("evaluator/0", 1, RAISED)), Shows(cause="algo-2 evaluator/0 (exit code 1): ValueError: x")]),
}  # fmt: skip


@pytest.mark.parametrize("start, history", STORIES.values(), ids=STORIES)
def test_policy_acts_on_several_hosts_as_the_story_states(play, start, history):
    start(play).through(history)


# --- the loop sleeps ---


@pytest.mark.parametrize("me", [1, 2])
@pytest.mark.parametrize("stop", [False, True])
def test_policy_sleeps_between_events(play, me, stop):
    """An overdue action must not wake the loop a thousand times a second."""
    p = running(play, me=me, start_timeout=10)
    if stop:
        p.at(3, STOP)
    before, began = p.woken, p.now
    heartbeats(p, 60, 3)  # algo-2 is lost on the way, where it matters
    assert (p.woken - before) / (p.now - began) < 50


def test_held_process_does_not_wake_the_loop(play):
    p = play(2, 2, mode="ps", ps_chief_first="always").through([
        (1, ended("prepare"), events.Prepared(flags=frozenset())), (2, informed()), (3, informed(stopping=True)),
        (100, Beats(stopping=True)),
    ])  # fmt: skip
    assert p.woken / 100 < 50


def test_status_shows_host_processes_peers_and_outcome(play):
    p = running(play)
    told = status(p.policy.facts, 3.0)
    assert (told["host"], told["rank"], told["role"], told["phase"]) == ("algo-1", 0, "coordinator", "running")
    by_name = {process["name"]: process for process in told["processes"]}
    assert by_name["prepare"]["state"] == "ended" and by_name["prepare"]["exit"] == "exit code 0"
    assert by_name["worker/0"]["state"] == "running" and by_name["worker/0"]["seconds"] == 1.0
    assert set(told["peers"]) == {"algo-2", "algo-3"}
    p.through([(5, STOP), (6, ended("worker/0"), reported(2, done=True, clean=False), reported(3, done=True))])
    assert status(p.policy.facts, 7.0)["phase"] == "ending"
    assert status(p.policy.facts, 7.0)["outcome"]["exit_code"] == 143


def test_every_duty_occurs_in_a_plan(play):
    """The tables above would not cover a duty that is in no plan."""
    plans = [play(2, mode="ps", evaluator="last").plan, play(2, mode="mpi").plan]
    assert {spec.duty for plan in plans for spec in plan.processes} == set(Duty)


# --- what is waited for ---

MARK = " (ENTRYPOINT_PS_WORKER_END)"
LAST = "; without a mode of distribution the job ends with the last script"
WAITED_FOR = {
    # mode, script of algo-1 that has ended, what is said; the second as one that serves data to the others
    "ps": ("ps", "chief/0", f"waiting for worker/0 on algo-2: other scripts have ended{MARK}"),
    "single": ("single", "script", f"waiting for script on algo-2: other scripts have ended{LAST}"),
}


@pytest.mark.parametrize("mode, script, said", WAITED_FOR.values(), ids=WAITED_FOR)
def test_wait_for_the_last_script_is_logged_once(play, mode, script, said):
    p = play(2, mode=mode).through([(1, ended("prepare"), reported(2)), (3, ended(script), reported(2))])
    for until, lines in ((30, []), (90, [said])):
        heartbeats(p, until, 2)
        assert [line for line in p.said if "waiting for" in line] == lines


@pytest.mark.parametrize("flags, listens, fails", [
    ({Flag.TF1_SESSIONS, Flag.TF1_TRAIN}, False, True),
    ({Flag.TF1_SESSIONS, Flag.TF1_TRAIN}, True, False),
    ({Flag.TF1_SESSIONS}, False, False),
])  # fmt: skip
def test_chief_that_waits_for_an_unstarted_server_fails(play, flags, listens, fails):
    p = play(2, mode="ps").at(1, events.Prepared(flags=frozenset(flags)), ended("prepare"), reported(2))
    if listens:
        p.at(2, events.Listening(name="chief/0"))
    heartbeats(p, 70, 2)
    wanted = (
        "61.0 failed 1: algo-1 chief/0 (listens on no port after 60 s): Estimator.train connects to*train_and_evaluate*"
    )
    assert matches(p.verdict, wanted if fails else "")


@pytest.mark.parametrize("open_mpi, daemon", DAEMONS.items())
def test_follower_reports_the_loss_of_its_open_mpi_daemon(play, open_mpi, daemon):
    p = mpi_started(play, me=2, open_mpi=open_mpi)
    p.through([(3, events.RankStarted(name="rank 1", pid=1)), (5, events.RankOrphaned(name="rank 1"))])
    assert p.last_told.cause.headline.startswith(f"algo-2 {daemon} (ended too early): Open MPI's daemon")


def test_wait_for_the_evaluator_is_logged(play):
    p = with_evaluator(play).through([
        (7, reported(2, **EVALUATES)), (9, reported(2, **EVALUATES), ended("worker/0")), (15, Beats(2, **EVALUATES)),
    ])  # fmt: skip
    assert [line for line in p.said if "waiting for" in line] == [
        "waiting for evaluator/0 on algo-2, 60 s at most: all other scripts have ended"
    ]


@pytest.mark.parametrize("code", [0, 1])
def test_ranks_have_ended_well_if_the_last_one_exits_with_0(play, code):
    p = mpi_started(play, hosts=1).at(3, events.RankStarted(name="rank 0", pid=1)).at(4, ended("rank 0", code=code))
    assert p.policy.facts.all_ranks_ended_well() == (code == 0)
