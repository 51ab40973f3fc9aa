"""Test policy.py by tables: a history of (time, event) in, the actions out. Other files here test its parts."""

import pytest
from plays import GRACE, RAISED, STOP, SYMPTOM, Play, cause, ended, heartbeats, informed, reported, running

from entrypoint.base.errors import ExitCode
from entrypoint.launcher.job.open_mpi import DAEMONS
from entrypoint.launcher.outcome import outcome
from entrypoint.launcher.plan.plan import Duty, Flag
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.messages import status
from entrypoint.launcher.policy.termination import LEAVE_SECONDS

# --- one host ---

ALONE = {
    # history on one host: the actions
    "success": ([(1, ended("prepare")), (5, ended("script"))],
                ["0.0 start prepare", "1.0 start script", "5.0 finish succeeded 0"]),
    "script exits 3": ([(1, ended("prepare")), (5, ended("script", 3))],
                       ["0.0 start prepare", "1.0 start script", "5.0 finish failed 3"]),
    "script is killed": ([(1, ended("prepare")), (5, ended("script", signal=9))],
                         ["0.0 start prepare", "1.0 start script", "5.0 finish failed 137"]),
    "code cannot be had": ([(1, ended("prepare", 65, "no such bucket\n"))],
                           ["0.0 start prepare", "1.0 finish failed 65"]),
    "interpreter is absent": ([(1, ended("prepare")), (1.1, events.NotStarted(name="script", why="python: gone"))],
                              ["0.0 start prepare", "1.0 start script", "1.1 finish failed 127"]),
    "stopped, saves": ([(1, ended("prepare")), (5, STOP), (6, ended("script"))],
                       ["0.0 start prepare", "1.0 start script", "5.0 ask script", "6.0 finish succeeded 0"]),
    "stopped, dies": ([(1, ended("prepare")), (5, STOP), (6, ended("script", signal=15))],
                      ["0.0 start prepare", "1.0 start script", "5.0 ask script", "6.0 finish stopped 143"]),
    "stopped, fails": ([(1, ended("prepare")), (5, STOP), (6, ended("script", 1, RAISED))],
                       ["0.0 start prepare", "1.0 start script", "5.0 ask script", "6.0 finish stopped 143"]),
    "stopped twice": ([(1, ended("prepare")), (5, STOP), (6, STOP), (7, ended("script"))],
                      ["0.0 start prepare", "1.0 start script", "5.0 ask script", "7.0 finish succeeded 0"]),
    "stopped before the script": ([(0.5, STOP), (0.6, ended("prepare", signal=15))],
                                  ["0.0 start prepare", "0.5 ask prepare", "0.6 finish stopped 143"]),
    "stopped, prepared just then": ([(0.5, STOP), (0.6, ended("prepare"))],
                                    ["0.0 start prepare", "0.5 ask prepare", "0.6 finish stopped 143"]),
    "stopped, never ends": ([(1, ended("prepare")), (5, STOP), (105.5, ended("script", signal=9))],
                            ["0.0 start prepare", "1.0 start script", "5.0 ask script", "105.0 force script",
                             "105.5 finish stopped 143"]),
    "stopped after the end": ([(1, ended("prepare")), (5, ended("script")), (6, STOP)],
                              ["0.0 start prepare", "1.0 start script", "5.0 finish succeeded 0"]),
    "failed, then stopped": ([(1, ended("prepare")), (5, ended("script", 3)), (5, STOP)],
                             ["0.0 start prepare", "1.0 start script", "5.0 finish failed 3"]),
    "a symptom has nobody else to blame": (
        [(1, ended("prepare")), (5, ended("script", 1, SYMPTOM)), (7, events.Due())],
        ["0.0 start prepare", "1.0 start script", "5.3 finish failed 1"]),
    "an end that is told twice": ([(1, ended("prepare")), (1, ended("prepare", 1)), (5, ended("script"))],
                                  ["0.0 start prepare", "1.0 start script", "5.0 finish succeeded 0"]),
    "the launcher itself breaks": (
        [(1, ended("prepare")), (2, events.Broken(why="disk full", code=70)), (2.1, ended("script", signal=15))],
        ["0.0 start prepare", "1.0 start script", "2.0 ask script", "2.1 finish failed 70"]),
}  # fmt: skip


@pytest.mark.parametrize("history, actions", ALONE.values(), ids=ALONE)
def test_one_host(play, history, actions):
    p = play(1, mode="single")
    for time, event in history:
        p.at(time, event)
    assert p.since(0) == actions


# --- success ---


def test_success_needs_every_host(play):
    p = running(play)
    p.at(5, ended("worker/0"))
    p.at(6, reported(2, done=True), reported(3))
    assert p.policy.facts.outcome is None
    p.at(7, reported(3, done=True))
    assert p.last_told.outcome == outcome.succeeded()
    assert "finish succeeded 0" not in p.what  # they still have to hear it
    p.at(7.2, reported(2, done=True, gone=True))
    p.at(7.3, reported(3, done=True, gone=True))
    assert p.since(3) == ["7.3 finish succeeded 0"]


def test_a_follower_that_is_done_waits_for_the_job(play):
    p = running(play, me=2)
    p.at(5, ended("worker/1"))
    assert p.last_told.done and p.last_told.clean and not p.last_told.gone
    heartbeats(p, 600)
    assert "finish succeeded 0" not in p.what
    p.at(601, informed(outcome=outcome.succeeded()))
    assert p.since(3) == ["601.0 finish succeeded 0"]
    assert p.last_told.gone


def test_servers_stay_until_the_last_script_has_ended(play):
    p = play(2, 2, mode="ps")
    p.at(1, events.Prepared(flags=frozenset()), ended("prepare"))
    p.at(2, informed())
    p.at(3, ended("worker/0"))
    heartbeats(p, 60)
    assert not [line for line in p.what if line.startswith("ask")]
    p.at(61, informed(outcome=outcome.succeeded()))
    assert p.since(61) == ["61.0 ask ps/1"]
    p.at(61.5, ended("ps/1", signal=15))
    assert p.since(61.1) == ["61.5 finish succeeded 0"]


def test_a_server_that_does_not_go_is_forced(play):
    p = play(2, 2, mode="ps")
    p.at(1, events.Prepared(flags=frozenset()), ended("prepare"))
    p.at(2, informed(), ended("worker/0"), informed(outcome=outcome.succeeded()))
    p.at(5, ended("ps/1", signal=9))
    started = ["2.0 start ps/1", "2.0 start worker/0"]
    assert p.since(1.5) == [*started, "2.0 ask ps/1", f"{2 + GRACE} force ps/1", "5.0 finish succeeded 0"]


def test_a_follower_that_never_says_good_bye_does_not_hold_the_coordinator(play):
    p = running(play)
    p.at(5, ended("worker/0"), reported(2, done=True), reported(3, done=True))
    p.at(5.1, reported(2, done=True, gone=True))
    p.at(60)
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
    p = play(2, 2, mode="ps", ps_chief_first="always")
    p.at(1, ended("prepare"), events.Prepared(flags=frozenset()))
    p.at(2, informed())
    p.at(3, informed(stopping=True))
    heartbeats(p, 100, stopping=True)
    assert p.woken / 100 < 50


def test_status_says_what_is_going_on(play):
    p = running(play)
    told = status(p.policy.facts, 3.0)
    assert (told["host"], told["rank"], told["role"], told["phase"]) == ("algo-1", 0, "coordinator", "running")
    by_name = {process["name"]: process for process in told["processes"]}
    assert by_name["prepare"]["state"] == "ended" and by_name["prepare"]["exit"] == "exit code 0"
    assert by_name["worker/0"]["state"] == "running" and by_name["worker/0"]["seconds"] == 1.0
    assert set(told["peers"]) == {"algo-2", "algo-3"}
    assert status(play(1).policy.facts, 0.5)["phase"] == "starting"
    p.at(5, STOP)
    assert status(p.policy.facts, 5.0)["phase"] == "stopping"
    p.at(6, ended("worker/0"), reported(2, done=True, clean=False), reported(3, done=True))
    assert status(p.policy.facts, 7.0)["phase"] == "ending"
    assert status(p.policy.facts, 7.0)["outcome"]["exit_code"] == 143


def test_every_duty_is_in_some_plan(play):
    """Otherwise the tables above would not cover it."""
    plans = [play(2, mode="ps", evaluator="last").plan, play(2, mode="mpi").plan]
    duties = {spec.duty for plan in plans for spec in plan.processes}
    assert duties == set(Duty)


# --- found by a review ---


def test_a_worker_script_that_joins_its_server_does_not_hold_up_the_end(play):
    """TensorFlow 2's tutorial: the worker's branch of the script never returns."""
    p = play(2, 2, mode="ps")
    p.at(1, ended("prepare"))
    p.at(2, informed())
    assert not p.last_told.done and p.last_told.rests is None
    p.at(3, events.Resting(found=(("worker/0", 2.0),)))
    assert p.last_told.rests == 2.0
    p.at(4, informed(outcome=outcome.succeeded()))
    p.at(4.1, ended("worker/0", signal=15), ended("ps/1", signal=15))
    assert p.what[-1] == "finish succeeded 0"


def test_who_only_serves_is_watched_for_a_while_after_the_chiefs_end(play):
    """It may have waited for that end, and start its own work now; then it is waited for."""
    p = play(2, mode="ps")
    p.at(1, ended("prepare"), reported(2))
    heartbeats(p, 9, 2, rests=2.0)
    p.at(9.5, ended("chief/0"))
    heartbeats(p, 11, 2, rests=2.0)
    assert p.policy.facts.outcome is None
    heartbeats(p, 30, 2)
    assert p.policy.facts.outcome is None
    heartbeats(p, 31, 2, rests=2.0)
    assert p.policy.facts.outcome is None
    heartbeats(p, 34, 2, rests=2.0)
    assert p.policy.facts.outcome == outcome.succeeded()


def test_who_is_waited_for_after_the_chiefs_end_is_said_once(play):
    p = play(2, mode="ps")
    p.at(1, ended("prepare"), reported(2))
    p.at(3, ended("chief/0"), reported(2))
    heartbeats(p, 30, 2)
    assert not [line for line in p.said if "waiting for" in line]
    heartbeats(p, 90, 2)
    assert [line for line in p.said if "waiting for" in line] == [
        "waiting for worker/0 on algo-2: other scripts have ended (ENTRYPOINT_PS_WORKER_END)"
    ]


def test_a_script_that_runs_on_in_mode_single_is_named_once(play):
    """As one that serves data to the others, for which nobody ends it."""
    p = play(3, mode="single")
    p.at(1, ended("prepare"), reported(2), reported(3))
    p.at(3, ended("script"))
    for now in range(4, 90):
        p.at(now, reported(2), reported(3, done=True))
        assert now > 30 or not [line for line in p.said if "waiting for" in line]
    assert [line for line in p.said if "waiting for" in line] == [
        "waiting for script on algo-2: other scripts have ended; without a mode of distribution the job ends with the "
        "last script"
    ]


@pytest.mark.parametrize("flags, listens, fails", [
    ({Flag.TF1_SESSIONS, Flag.TF1_TRAIN}, False, True),
    ({Flag.TF1_SESSIONS, Flag.TF1_TRAIN}, True, False),
    ({Flag.TF1_SESSIONS}, False, False),
])  # fmt: skip
def test_a_chief_whose_session_waits_for_a_server_that_nobody_starts(play, flags, listens, fails):
    p = play(2, mode="ps")
    p.at(1, events.Prepared(flags=frozenset(flags)), ended("prepare"), reported(2))
    if listens:
        p.at(2, events.Listening(name="chief/0"))
    heartbeats(p, 60, 2)
    assert p.policy.facts.outcome is None
    heartbeats(p, 70, 2)
    if fails:
        assert p.blamed.startswith("algo-1 chief/0 (listens on no port after 60 s): Estimator.train connects to")
    else:
        assert p.policy.facts.outcome is None


def test_mpirun_that_starts_no_rank_is_no_success(play):
    p = play(2, mode="mpi")
    p.at(1, ended("prepare"), ended("host-key"), ended("client-key"), events.Listening(name="sshd"))
    p.at(2, reported(2, ready=frozenset({"prepare", "preflight", "sshd"}), done=True))
    p.at(3, ended("mpirun", 0, "mpirun (Open MPI) 4.1.4\n"))
    heartbeats(p, 6, 2, done=True)
    assert p.blamed.startswith("algo-1 mpirun (exit code 0): it started no rank")
    assert p.policy.facts.outcome.exit_code == 1


def test_mpirun_that_never_gets_a_rank_up_is_not_waited_for_for_ever(play):
    p = play(2, mode="mpi", start_timeout=30)
    p.at(1, ended("prepare"), ended("host-key"), ended("client-key"), events.Listening(name="sshd"))
    up = frozenset({"prepare", "preflight", "host-key", "sshd"})
    p.at(2, reported(2, ready=up, done=True))
    heartbeats(p, 40, 2, ready=up, done=True)
    assert p.blamed.startswith("algo-1 mpirun (started no rank within 30 s)")
    assert p.policy.facts.outcome.exit_code == ExitCode.START_TIMEOUT


def test_mpirun_that_never_gets_one_of_its_ranks_up_is_not_waited_for_for_ever(play):
    p = play(2, mode="mpi", start_timeout=30)
    p.at(1, ended("prepare"), ended("host-key"), ended("client-key"), events.Listening(name="sshd"))
    up = frozenset({"prepare", "preflight", "host-key", "sshd", "rank 1"})
    p.at(2, reported(2, ready=up))
    heartbeats(p, 25, 2, ready=up)
    assert p.policy.facts.outcome is None
    heartbeats(p, 40, 2, ready=up)
    assert p.blamed.startswith("algo-1 mpirun (did not start rank 0 of algo-1 within 30 s)")
    assert p.policy.facts.outcome.exit_code == ExitCode.START_TIMEOUT


def test_a_host_that_is_to_blame_but_answers_is_waited_for(play):
    p = play(2, start_timeout=30)
    p.at(1, ended("prepare"))
    heartbeats(p, 31, 2, ready=frozenset())
    assert p.blamed == "algo-2 (prepare did not end within 30 s)"
    assert p.what[-1] != "finish failed 68"
    p.at(p.now + 0.5, reported(2, ready=frozenset(), gone=True))
    assert p.what[-1] == "finish failed 68"


# --- the evaluator ---


def with_evaluator(play, me: int = 1) -> Play:
    p = play(2, me, evaluator="last", evaluator_grace=60)
    p.at(1, ended("prepare"))
    p.at(2, reported(2) if me == 1 else informed())
    return p


def test_the_evaluator_has_time_after_the_others_success(play):
    p = with_evaluator(play)
    p.at(5, ended("worker/0"), reported(2, done=True, lingering=True))
    heartbeats(p, 30, 2, done=True, lingering=True)
    assert p.policy.facts.outcome is None
    p.at(31, reported(2, done=True))
    assert p.policy.facts.outcome == outcome.succeeded()


def test_who_has_time_after_the_others_success_is_named(play):
    p = with_evaluator(play)
    p.at(7, reported(2, done=True, lingering=True))
    p.at(9, reported(2, done=True, lingering=True), ended("worker/0"))
    heartbeats(p, 15, 2, done=True, lingering=True)
    assert [line for line in p.said if "waiting for" in line] == [
        "waiting for evaluator/0 on algo-2, 60 s at most: all other scripts have ended"
    ]


def test_the_evaluator_does_not_hold_the_job_for_ever(play):
    p = with_evaluator(play)
    p.at(5, ended("worker/0"), reported(2, done=True, lingering=True))
    heartbeats(p, 70, 2, done=True, lingering=True)
    assert p.policy.facts.outcome == outcome.succeeded()
    assert p.policy.facts.outcome_at == pytest.approx(65, abs=1)


@pytest.mark.parametrize("silent", [False, True])
def test_what_happens_to_the_evaluator_while_we_stand_still_counts(play, silent):
    """Its time is over when we go on, and the first reports that we read are old."""
    p = with_evaluator(play)
    p.at(5, ended("worker/0"), reported(2, done=True, lingering=True))
    heartbeats(p, 20, 2, done=True, lingering=True)
    p.now = 70  # nothing woke us
    p._on(events.Due())
    assert p.policy.facts.outcome is None
    if not silent:
        p.at(70.01, reported(2, done=True, lingering=True))
        p.at(70.02, reported(2, done=True, cause=cause(process="evaluator/0"), gone=True))
    p.at(90)
    assert p.blamed.startswith("algo-2 (lost" if silent else "algo-2 evaluator/0 (exit code 3)")


def test_the_evaluators_host_says_that_it_still_evaluates(play):
    p = with_evaluator(play, me=2)
    assert p.since(2) == ["2.0 start worker/1", "2.0 start evaluator/0"]
    p.at(5, ended("worker/1"))
    assert p.last_told.done and p.last_told.lingering
    p.at(9, ended("evaluator/0"))
    assert not p.last_told.lingering


def test_an_evaluator_that_saves_has_its_time_though_the_coordinator_is_lost_meanwhile(play):
    p = with_evaluator(play, me=2)
    p.at(5, ended("worker/1"), STOP)
    assert p.since(5) == ["5.0 ask evaluator/0"]
    p.at(60)  # nobody is heard
    assert p.policy.facts.lost() and "force evaluator/0" not in p.what
    p.at(61, ended("evaluator/0"))
    assert p.what[-1] == "finish stopped 143"


def test_a_stop_is_no_success_where_a_host_is_lost_whose_evaluator_still_worked(play):
    p = with_evaluator(play)
    p.at(5, reported(2, done=True, lingering=True))
    p.at(6, STOP)
    p.at(7, ended("worker/0"))
    p.at(30)  # the evaluator's host is not heard any more
    assert p.policy.facts.lost() == {"algo-2"}
    assert p.policy.facts.outcome.exit_code == 143


def test_an_evaluator_that_fails_fails_the_job(play):
    p = with_evaluator(play, me=2)
    p.at(5, ended("evaluator/0", 1, RAISED))
    assert p.last_told.cause.headline == "algo-2 evaluator/0 (exit code 1): ValueError: x"


# --- mpirun's daemons, and a coordinator that hears nobody ---


@pytest.mark.parametrize("open_mpi, daemon", DAEMONS.items())
def test_a_follower_reports_that_its_daemon_is_gone(play, open_mpi, daemon):
    p = play(2, 2, mode="mpi", open_mpi=open_mpi)
    p.at(1, ended("prepare"), ended("host-key"), events.Listening(name="sshd"), informed())
    p.at(2, events.RankStarted(name="rank 1", pid=1))
    p.at(5, events.RankOrphaned(name="rank 1"))
    assert p.last_told.cause.headline.startswith(f"algo-2 {daemon} (ended too early): Open MPI's daemon")
