"""Test policy.py by tables: a history of (time, event) in, the actions out. Other files here test its parts."""

import pytest
from plays import (
    GRACE,
    RAISED,
    STOP,
    SYMPTOM,
    Beats,
    Play,
    cause,
    ended,
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
    "a symptom has nobody else to blame": ([(5, ended("script", 1, SYMPTOM)), (7,)], ["5.3 finish failed 1"]),
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
def test_one_host_whose_script_runs(play, history, actions):
    p = play(1, mode="single").through([(1, ended("prepare")), *history])
    assert p.since(0) == ["0.0 start prepare", "1.0 start script", *actions]


@pytest.mark.parametrize("history, actions", UNPREPARED.values(), ids=UNPREPARED)
def test_one_host_that_is_not_prepared(play, history, actions):
    assert play(1, mode="single").through(history).since(0) == ["0.0 start prepare", *actions]


# --- success ---


def test_success_needs_every_host(play):
    p = running(play).through([(5, ended("worker/0")), (6, reported(2, done=True), reported(3))])
    assert p.outcome is None
    p.at(7, reported(3, done=True))
    assert p.last_told.outcome == outcome.succeeded()
    assert "finish succeeded 0" not in p.what  # the others must still learn it
    p.through([(7.2, reported(2, done=True, gone=True)), (7.3, reported(3, done=True, gone=True))])
    assert p.since(3) == ["7.3 finish succeeded 0"]


def test_a_follower_that_is_done_waits_for_the_job(play):
    p = running(play, me=2)
    p.at(5, ended("worker/1"))
    assert p.last_told.done and p.last_told.clean and not p.last_told.gone
    p.through([(600, Beats()), (601, informed(outcome=outcome.succeeded()))])
    assert p.since(3) == ["601.0 finish succeeded 0"] and p.last_told.gone


def ps_follower(play) -> Play:
    """Return a follower of a job with parameter servers, all of whose processes run; it is 2 s old."""
    return play(2, 2, mode="ps").through([
        (1, events.Prepared(flags=frozenset()), ended("prepare")), (2, informed()),
    ])  # fmt: skip


def test_servers_stay_until_the_last_script_has_ended(play):
    p = ps_follower(play).through([(3, ended("worker/0")), (60, Beats()), (61, informed(outcome=outcome.succeeded()))])
    p.at(61.5, ended("ps/1", signal=15))
    assert p.since(3) == ["61.0 ask ps/1", "61.5 finish succeeded 0"]


def test_a_server_that_ignores_sigterm_is_killed(play):
    p = ps_follower(play)
    p.through([(3, ended("worker/0"), informed(outcome=outcome.succeeded())), (6, ended("ps/1", signal=9))])
    assert p.since(3) == ["3.0 ask ps/1", f"{3 + GRACE} force ps/1", "6.0 finish succeeded 0"]


def test_a_follower_that_never_sends_its_last_report_does_not_hold_the_coordinator(play):
    p = running(play).through([
        (5, ended("worker/0"), reported(2, done=True), reported(3, done=True)),
        (5.1, reported(2, done=True, gone=True)), (60,),
    ])  # fmt: skip
    assert p.since(3) == [f"{5 + GRACE + LEAVE_SECONDS} finish succeeded 0"]


# --- the loop sleeps ---


@pytest.mark.parametrize("me", [1, 2])
@pytest.mark.parametrize("stop", [False, True])
def test_the_policy_sleeps_between_events(play, me, stop):
    """What is overdue must not wake the loop a thousand times a second."""
    p = running(play, me=me, start_timeout=10)
    if stop:
        p.at(3, STOP)
    before, began = p.woken, p.now
    heartbeats(p, 60, 3)  # algo-2 is lost on the way, where it matters
    assert (p.woken - before) / (p.now - began) < 50


def test_a_held_process_does_not_wake_the_loop(play):
    p = play(2, 2, mode="ps", ps_chief_first="always").through([
        (1, ended("prepare"), events.Prepared(flags=frozenset())), (2, informed()), (3, informed(stopping=True)),
        (100, Beats(stopping=True)),
    ])  # fmt: skip
    assert p.woken / 100 < 50


def test_the_status_shows_host_processes_peers_and_outcome(play):
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


def test_every_duty_is_in_some_plan(play):
    """Otherwise the tables above would not cover it."""
    plans = [play(2, mode="ps", evaluator="last").plan, play(2, mode="mpi").plan]
    assert {spec.duty for plan in plans for spec in plan.processes} == set(Duty)


# --- scripts that only serve, and what is waited for ---


def test_a_worker_script_that_joins_its_server_does_not_hold_up_the_end(play):
    """TensorFlow 2's tutorial: the worker's branch of the script never returns."""
    p = ps_follower(play)
    assert not p.last_told.done and p.last_told.rests is None
    p.at(3, events.Resting(found=(("worker/0", 2.0),)))
    assert p.last_told.rests == 2.0
    p.through([(4, informed(outcome=outcome.succeeded())), (4.1, ended("worker/0", signal=15))])
    p.at(4.1, ended("ps/1", signal=15))
    assert p.what[-1] == "finish succeeded 0"


def test_a_script_that_only_serves_is_watched_for_a_while_after_the_chiefs_end(play):
    """It may have waited for that end, and start its own work now; then it is waited for."""
    p = play(2, mode="ps").through([
        (1, ended("prepare"), reported(2)), (9, Beats(2, rests=2.0)), (9.5, ended("chief/0")),
        (11, Beats(2, rests=2.0)), (30, Beats(2)), (34, Beats(2, rests=2.0)),
    ])  # fmt: skip
    assert matches(p.verdict, "3*.* succeeded 0") and p.policy.facts.outcome_at > 31


MARK = " (ENTRYPOINT_PS_WORKER_END)"
LAST = "; without a mode of distribution the job ends with the last script"
WAITED_FOR = {
    # mode, script of algo-1 that has ended, what is said; the second as one that serves data to the others
    "ps": ("ps", "chief/0", f"waiting for worker/0 on algo-2: other scripts have ended{MARK}"),
    "single": ("single", "script", f"waiting for script on algo-2: other scripts have ended{LAST}"),
}


@pytest.mark.parametrize("mode, script, said", WAITED_FOR.values(), ids=WAITED_FOR)
def test_a_script_that_runs_on_after_the_others_is_logged_once(play, mode, script, said):
    p = play(2, mode=mode).through([(1, ended("prepare"), reported(2)), (3, ended(script), reported(2))])
    for until, lines in ((30, []), (90, [said])):
        heartbeats(p, until, 2)
        assert [line for line in p.said if "waiting for" in line] == lines


@pytest.mark.parametrize("flags, listens, fails", [
    ({Flag.TF1_SESSIONS, Flag.TF1_TRAIN}, False, True),
    ({Flag.TF1_SESSIONS, Flag.TF1_TRAIN}, True, False),
    ({Flag.TF1_SESSIONS}, False, False),
])  # fmt: skip
def test_a_chief_whose_session_waits_for_a_server_that_nobody_starts_fails(play, flags, listens, fails):
    p = play(2, mode="ps").at(1, events.Prepared(flags=frozenset(flags)), ended("prepare"), reported(2))
    if listens:
        p.at(2, events.Listening(name="chief/0"))
    heartbeats(p, 70, 2)
    wanted = (
        "61.0 failed 1: algo-1 chief/0 (listens on no port after 60 s): Estimator.train connects to*train_and_evaluate*"
    )
    assert matches(p.verdict, wanted if fails else "")


# --- mpirun ---


def ready(*ranks: str) -> frozenset[str]:
    return frozenset({"prepare", "preflight", "host-key", "sshd", *ranks})


START_TIMEOUT = int(ExitCode.START_TIMEOUT)
MPIRUN = {
    # what follows after mpirun's start at second 2, with a start timeout of 30 s: the verdict
    "starts no rank": (
        [(3, ended("mpirun", 0, "mpirun (Open MPI) 4.1.4\n")), (6, Beats(2, done=True))],
        "* failed 1: algo-1 mpirun (exit code 0): it started no rank*"),
    "never gets a rank up": (
        [(40, Beats(2, ready=ready(), done=True))],
        f"32.0 failed {START_TIMEOUT}: algo-1 mpirun (started no rank within 30 s)*"),
    "never gets one of its ranks up": (
        [(40, Beats(2, ready=ready("rank 1")))],
        f"32.0 failed {START_TIMEOUT}: algo-1 mpirun (did not start rank 0 of algo-1 within 30 s)*"),
}  # fmt: skip


@pytest.mark.parametrize("history, verdict", MPIRUN.values(), ids=MPIRUN)
def test_mpirun_that_does_not_start_its_ranks_fails_the_job(play, history, verdict):
    p = mpi_started(play, start_timeout=30).through(history)
    assert matches(p.verdict, verdict), p.verdict


@pytest.mark.parametrize("open_mpi, daemon", DAEMONS.items())
def test_a_follower_reports_that_its_daemon_is_gone(play, open_mpi, daemon):
    p = mpi_started(play, me=2, open_mpi=open_mpi)
    p.through([(3, events.RankStarted(name="rank 1", pid=1)), (5, events.RankOrphaned(name="rank 1"))])
    assert p.last_told.cause.headline.startswith(f"algo-2 {daemon} (ended too early): Open MPI's daemon")


def test_a_host_that_is_to_blame_but_answers_is_waited_for(play):
    p = play(2, start_timeout=30).through([(1, ended("prepare")), (31, Beats(2, ready=frozenset()))])
    assert p.blamed == "algo-2 (prepare did not end within 30 s)"
    assert p.what[-1] != "finish failed 68"
    p.at(p.now + 0.5, reported(2, ready=frozenset(), gone=True))
    assert p.what[-1] == "finish failed 68"


# --- the evaluator ---

EVALUATES = {"done": True, "lingering": True}


def with_evaluator(play, me: int = 1) -> Play:
    p = play(2, me, evaluator="last", evaluator_grace=60)
    return p.through([(1, ended("prepare")), (2, reported(2) if me == 1 else informed())])


EVALUATOR = {
    # what happens on the coordinator: the verdict
    "has time after the others' success": (
        [(5, ended("worker/0"), reported(2, **EVALUATES)), (30, Beats(2, **EVALUATES)), (31, reported(2, done=True))],
        "31.0 succeeded 0"),
    "does not hold the job for ever": (
        [(5, ended("worker/0"), reported(2, **EVALUATES)), (70, Beats(2, **EVALUATES))], "65.0 succeeded 0"),
    "is no success when its host is lost during a stop": (
        [(5, reported(2, **EVALUATES)), (6, STOP), (7, ended("worker/0")), (30,)], "* stopped 143"),
}  # fmt: skip


@pytest.mark.parametrize("history, verdict", EVALUATOR.values(), ids=EVALUATOR)
def test_an_evaluator_on_another_host(play, history, verdict):
    p = with_evaluator(play).through(history)
    assert matches(p.verdict, verdict), p.verdict


def test_an_evaluator_that_works_on_after_the_others_is_logged(play):
    p = with_evaluator(play).through([
        (7, reported(2, **EVALUATES)), (9, reported(2, **EVALUATES), ended("worker/0")), (15, Beats(2, **EVALUATES)),
    ])  # fmt: skip
    assert [line for line in p.said if "waiting for" in line] == [
        "waiting for evaluator/0 on algo-2, 60 s at most: all other scripts have ended"
    ]


@pytest.mark.parametrize("silent", [False, True])
def test_what_happens_to_the_evaluator_while_we_stand_still_counts(play, silent):
    """Its time is over when we go on, and the first reports that we read are old."""
    p = with_evaluator(play)
    p.through([(5, ended("worker/0"), reported(2, **EVALUATES)), (20, Beats(2, **EVALUATES))])
    p.stand_still(70)
    assert p.outcome is None
    if not silent:
        p.at(70.01, reported(2, **EVALUATES))
        p.at(70.02, reported(2, done=True, cause=cause(process="evaluator/0"), gone=True))
    p.at(90)
    assert p.blamed.startswith("algo-2 (lost" if silent else "algo-2 evaluator/0 (exit code 3)")


def test_the_evaluators_host_reports_that_it_still_evaluates(play):
    p = with_evaluator(play, me=2)
    assert p.since(2) == ["2.0 start worker/1", "2.0 start evaluator/0"]
    p.at(5, ended("worker/1"))
    assert p.last_told.done and p.last_told.lingering
    p.at(9, ended("evaluator/0"))
    assert not p.last_told.lingering


def test_an_evaluator_that_saves_has_its_time_though_the_coordinator_is_lost_meanwhile(play):
    p = with_evaluator(play, me=2).through([(5, ended("worker/1"), STOP), (60,)])
    assert p.policy.facts.lost()
    p.at(61, ended("evaluator/0"))
    assert p.since(5) == ["5.0 ask evaluator/0", "61.0 finish stopped 143"]


def test_an_evaluator_that_fails_fails_the_job(play):
    p = with_evaluator(play, me=2).at(5, ended("evaluator/0", 1, RAISED))
    assert p.last_told.cause.headline == "algo-2 evaluator/0 (exit code 1): ValueError: x"
