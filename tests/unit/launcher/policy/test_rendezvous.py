"""Test rendezvous.py: missing hosts, unreachable hosts, differences between hosts; and what may start then."""

import pytest
from plays import STOP, ended, heartbeats, informed, reported, running

from entrypoint.base.errors import ExitCode
from entrypoint.launcher.plan.plan import Flag
from entrypoint.launcher.policy import events


def test_scripts_start_when_every_host_is_prepared(play):
    p = play(3)
    p.at(1, ended("prepare"))
    p.at(2, reported(2))
    assert p.what == ["start prepare"]
    p.at(3, reported(3))
    assert p.since(3) == ["3.0 start worker/0"]
    assert p.last_told.ready == {("*", "prepare"), ("*", "preflight")}


def test_a_follower_starts_when_the_coordinator_says_so(play):
    p = play(3, 2)
    p.at(1, ended("prepare"))
    assert p.last_told.ready == {"prepare"}
    p.at(2, informed(ready=frozenset()))
    assert p.what == ["start prepare"]
    p.at(3, informed())
    assert p.what == ["start prepare", "start worker/1"]


def test_what_was_said_before_anybody_was_there_is_repeated(play):
    p = play(3, 2)
    assert [type(action) for action in p.policy.repeat()] == [events.TellCoordinator]


def test_worker_servers_wait_for_their_own_host_only_and_parameter_servers_for_all(play):
    p = play(2, 2, mode="ps", ps_workers="server")
    assert p.what == ["start prepare"]
    p.at(1, ended("prepare"))
    assert p.what == ["start prepare", "start worker/0"]
    p.at(2, informed())
    assert p.what == ["start prepare", "start worker/0", "start ps/1"]


CHIEF_FIRST = {
    # flags found in the code, chief heard to listen at (or never), setting: when the worker starts
    "TF2 code": (frozenset(), None, "auto", 2.0),
    "TF1 code, chief listens": ({Flag.TF1_SESSIONS}, 20.0, "auto", 20.0),
    "TF1 code, chief never listens": ({Flag.TF1_SESSIONS}, None, "auto", 62.0),
    "always": (frozenset(), 20.0, "always", 20.0),
    "always, chief never listens": (frozenset(), None, "always", 62.0),
    "never": ({Flag.TF1_SESSIONS}, None, "never", 2.0),
}


@pytest.mark.parametrize("flags, listens, setting, starts", CHIEF_FIRST.values(), ids=CHIEF_FIRST)
def test_workers_that_wait_for_the_chief(play, flags, listens, setting, starts):
    p = play(2, 2, mode="ps", ps_chief_first=setting)
    p.at(1, events.Prepared(flags=frozenset(flags)), ended("prepare"))
    p.at(2, informed())
    while p.now < 70:
        up = {("algo-1", "chief/0")} if listens and p.now + 1 >= listens else set()
        p.at(p.now + 1, informed(ready=frozenset({("*", "prepare"), ("*", "preflight")} | up)))
    assert [f"{starts} start worker/0"] == [line for line in p.since(0) if "worker" in line]


def test_the_chief_tells_that_it_listens(play):
    p = play(2, mode="ps")
    p.at(1, ended("prepare"), reported(2))
    p.at(2, events.Listening(name="chief/0"))
    assert ("algo-1", "chief/0") in p.last_told.ready


def test_public_keys_reach_those_who_need_them(play):
    p = play(2, mode="mpi")
    assert p.what == ["start prepare", "start host-key", "start client-key"]
    p.at(1, events.PublicKey(name="known_hosts", key="K"), ended("host-key"))
    p.at(1.1, events.PublicKey(name="authorized_keys", key="C"), ended("client-key"))
    assert p.since(1) == ["1.0 write known_hosts: algo-1", "1.1 write authorized_keys: algo-1", "1.1 start sshd"]
    assert dict(p.last_told.public_keys) == {"known_hosts": "K", "authorized_keys": "C"}
    p.at(1.2, ended("prepare"), events.Listening(name="sshd"))
    p.at(2, reported(2, ready=frozenset({"prepare", "preflight", "sshd"}), public_keys=(("known_hosts", "L"),)))
    assert p.since(2) == ["2.0 write known_hosts: algo-1, algo-2", "2.0 start mpirun"]


def test_public_keys_that_the_plan_asks_nobody_for_are_not_taken(play):
    """A follower's key would open the coordinator's own ssh; a name with a / would be a file somewhere else."""
    p = play(2, mode="mpi")
    p.at(1, reported(2, public_keys=(("authorized_keys", "E"), ("../../x", "E"), ("known_hosts", "L"))))
    assert [line for line in p.since(1) if "write" in line] == ["1.0 write known_hosts: algo-2"]


def test_a_host_that_never_appears(play):
    p = play(3, start_timeout=60)
    p.reachable = {"algo-3": "port 7979: Connection refused"}
    p.at(1, ended("prepare"))
    heartbeats(p, 70, 2)
    assert p.blamed == ("algo-3 (did not appear within 60 s): it is at 10.0.0.1, port 7979: Connection refused")
    assert p.policy.facts.outcome.cause.details.splitlines() == [
        "host    name resolves  port answers                   last report",
        "algo-3  10.0.0.1       port 7979: Connection refused  never",
    ]
    assert p.policy.facts.outcome.exit_code == ExitCode.START_TIMEOUT
    assert [text for text in p.said if "waiting for algo-3" in text]
    p.at(71, reported(2, gone=True))
    assert p.what[-1] == "finish failed 68"


def test_a_coordinator_that_never_appears(play):
    p = play(3, 2, start_timeout=60)
    p.reachable = None
    p.at(1, ended("prepare"))
    p.at(70)
    assert p.what[-1] == "finish failed 68"
    assert p.blamed == "algo-1 (did not appear within 60 s)"


def test_a_host_that_appears_but_never_gets_ready(play):
    """A pip that hangs: `start_timeout` promises hosts that appear *and are ready*."""
    p = play(3, start_timeout=60)
    p.at(1, ended("prepare"))
    while p.now < 70:
        p.at(p.now + 1, reported(2), reported(3, ready=frozenset()))
    assert p.blamed.startswith("algo-3 (")
    assert p.policy.facts.outcome.exit_code == ExitCode.START_TIMEOUT


def test_a_long_training_is_not_a_late_start(play):
    p = running(play, start_timeout=60)
    heartbeats(p, 200, 2, 3)
    assert p.policy.facts.outcome is None


def test_every_host_looks_for_every_other_when_all_are_there(play):
    p = play(3, 2)
    p.reachable = {"algo-3": "port 7979: No route to host"}
    p.at(1, ended("prepare"), informed(ready=frozenset(), assembled=False))
    assert not p.probed
    p.at(2, informed(ready=frozenset(), assembled=True))
    assert p.probed == [("algo-1", "algo-3")]
    assert "preflight" not in p.last_told.ready
    assert [reach.host for reach in p.last_told.unreached] == ["algo-3"]
    p.reachable = {}
    p.at(4, informed(ready=frozenset()))
    assert p.probed[-1] == ("algo-3",)
    assert "preflight" in p.last_told.ready


def test_a_host_that_one_other_cannot_reach_fails_the_job(play):
    p = play(3, 2)
    p.reachable = {"algo-3": "port 7979: No route to host"}
    p.at(1, ended("prepare"), informed(ready=frozenset()))
    heartbeats(p, 130, 1, ready=frozenset())
    assert p.last_told.cause.headline == (
        "algo-2 (cannot reach algo-3): it is at 10.0.0.1, port 7979: No route to host"
    )
    assert p.last_told.cause.code == ExitCode.START_TIMEOUT


def test_no_program_starts_before_all_hosts_reach_one_another(play):
    p = play(2)
    p.at(1, ended("prepare"), reported(2, ready=frozenset({"prepare"})))
    assert p.what == ["start prepare"]
    p.at(2, reported(2))
    assert p.what == ["start prepare", "start worker/0"]


def test_hosts_that_share_nothing_need_not_reach_one_another(play):
    p = play(2, mode="single")
    p.reachable = {"algo-2": "port 7979: No route to host"}
    p.at(1, ended("prepare"), reported(2))
    assert p.what == ["start prepare", "start script"]


def test_who_is_missing_is_said_every_ten_seconds(play):
    p = play(4, start_timeout=100)
    p.reachable = {"algo-3": "port 7979: Connection refused"}
    p.at(1, ended("prepare"))
    heartbeats(p, 25, 2, 4)
    assert [line for line in p.said if line.startswith("waiting")] == [
        "waiting for algo-3 (10 s)",
        "waiting for algo-3 (20 s)",
    ]
    assert "algo-3  10.0.0.1       port 7979: Connection refused  never" in p.said


def test_who_is_not_prepared_and_who_reaches_whom_not_is_said_too(play):
    p = play(3)
    p.at(1, ended("prepare"))
    unreached = (events.Reach(host="algo-3", why="Name or service not known"),)
    while p.now < 11:
        p.at(p.now + 1, reported(2, ready=frozenset({"prepare"}), unreached=unreached), reported(3, ready=frozenset()))
    assert [line for line in p.said if "(10 s)" in line] == [
        "algo-2 cannot reach algo-3 (10 s): its name does not resolve: Name or service not known",
        "waiting for prepare of algo-3 (10 s)",
    ]


def prepared(**fingerprints: str) -> events.Prepared:
    return events.Prepared(flags=frozenset(), fingerprints=tuple(fingerprints.items()))


def test_a_host_that_differs_is_named(play):
    p = play(3)
    p.at(1, prepared(numpy="1.26.4"), ended("prepare"))
    p.at(2, reported(2, fingerprints=(("numpy", "1.26.3"),)))
    assert p.policy.facts.outcome is None  # two hosts: who is the odd one?
    p.at(3, reported(3, fingerprints=(("numpy", "1.26.4"),)))
    assert p.blamed == "algo-2 (differs from the other hosts): numpy is 1.26.3; on algo-1 it is 1.26.4"
    assert p.policy.facts.outcome.exit_code == ExitCode.CONFIG
    assert "start worker/0" not in p.what


def test_the_coordinator_may_be_the_one_that_differs(play):
    p = play(3)
    p.at(1, prepared(numpy=""), ended("prepare"))
    p.at(2, reported(2, fingerprints=(("numpy", "1"),)), reported(3, fingerprints=(("numpy", "1"),)))
    assert p.blamed == "algo-1 (differs from the other hosts): numpy is absent; on algo-2 it is 1"


def test_a_host_that_a_thing_is_not_about_does_not_differ(play):
    """The channels of a host outside the distribution, say."""
    p = play(3)
    p.at(1, prepared(channels="a"), ended("prepare"))
    p.at(2, reported(2, fingerprints=(("channels", "*"),)), reported(3, fingerprints=(("channels", "a"),)))
    assert p.policy.facts.outcome is None
    p = play(3)
    p.at(1, prepared(channels="*"), ended("prepare"))
    p.at(2, reported(2, fingerprints=(("channels", "a"),)), reported(3, fingerprints=(("channels", "b"),)))
    assert p.blamed == "algo-3 (differs from the other hosts): channels is b; on algo-2 it is a"


def test_a_difference_may_be_only_warned_of(play):
    p = play(2, differences="warn")
    p.at(1, prepared(numpy="1"), ended("prepare"))
    p.at(2, reported(2, fingerprints=(("numpy", "2"),)))
    assert "warning: algo-2 differs: numpy is 2; on algo-1 it is 1" in p.said
    assert p.what[-1] == "start worker/0"


def test_a_host_that_is_refused_ends_the_job(play):
    """A wrong token, or another version: waiting would not change it."""
    p = play(2)
    p.at(1, ended("prepare"))
    while p.now < 7:
        p.at(p.now + 1, events.Rejected(host="algo-2", why="wrong or missing token"))
    assert p.blamed == "algo-2 (was refused): wrong or missing token"
    assert p.policy.facts.outcome.exit_code == ExitCode.CONFIG


def test_a_refused_follower_does_not_wait_for_the_coordinator(play):
    p = play(2, 2)
    p.at(1, ended("prepare"))
    while p.now < 7:
        p.at(p.now + 1, events.Rejected(host="algo-1", why="wrong or missing token"))
    assert p.what[-1] == "finish failed 78"
    assert p.blamed == "algo-2 (is refused by the coordinator algo-1): wrong or missing token"


def test_a_coordinator_that_does_not_find_our_name_yet_is_waited_for(play):
    """It has sent us something already, by the address that it found before."""
    p = play(2, 2)
    p.at(1, ended("prepare"), informed())
    while p.now < 19:
        p.at(p.now + 0.5, events.Answered(host="algo-1"))
    assert p.policy.facts.outcome is None
    p.at(25)
    assert p.blamed == "algo-1 (lost: no report for 5 s)"


def test_a_coordinator_that_has_not_answered_yet_may_stand_still_for_as_long_as_hosts_may_be_late(play):
    """It sent us something before our report reached it: until it has that report, it cannot go on without us."""
    p = play(2, 2, start_timeout=20)
    p.at(1, ended("prepare"), events.Informed(news=events.News()))
    p.at(15)
    assert p.policy.facts.outcome is None
    p.at(20.1)
    assert p.blamed.startswith("algo-1 (did not appear within 20 s)")


def test_a_coordinator_that_only_refuses_has_not_appeared(play):
    p = play(2, 2, start_timeout=10)
    p.at(1, ended("prepare"))
    while p.now < 11:
        p.at(p.now + 0.5, events.Answered(host="algo-1"))
    assert p.blamed.startswith("algo-1 (did not appear within 10 s)")


def test_a_refused_stranger_with_a_hosts_address_is_nothing_where_the_host_is_heard(play):
    p = running(play)
    p.at(3, events.Rejected(host="algo-2", why="wrong or missing token"))
    heartbeats(p, 20, 2, 3)
    assert p.policy.facts.outcome is None


def test_a_stop_before_the_hosts_have_met_is_not_held_up_by_those_that_never_came(play):
    p = play(3)
    p.at(0.5, STOP)
    p.at(0.6, ended("prepare", signal=15))
    p.at(10)
    assert p.did[-1] == (pytest.approx(2.1, abs=0.1), "finish stopped 143")


@pytest.mark.parametrize("start_timeout, appears", [(60, 1), (1200, 1100)])
def test_a_preflight_that_never_ends_is_somebodys_fault(play, start_timeout, appears):
    p = play(2, start_timeout=start_timeout)
    p.reachable = {"algo-2": "port 7979: No route to host"}
    p.at(1, ended("prepare"))
    heartbeats(p, appears - 1)
    while p.now < appears + 130:
        p.at(p.now + 1, reported(2, ready=frozenset({"prepare"})))
    assert p.blamed.startswith("algo-1 (cannot reach algo-2)")


def test_one_refusal_that_passed_is_no_reason(play):
    p = play(2)
    p.at(1, ended("prepare"), events.Rejected(host="algo-2", why="404"))
    p.at(20)
    assert p.policy.facts.outcome is None
