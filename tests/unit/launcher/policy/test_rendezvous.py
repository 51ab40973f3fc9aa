"""Test rendezvous.py: missing, unreachable and differing hosts, and which processes may start."""

import pytest
from plays import STOP, UP, Beats, Play, Shows, ended, heartbeats, informed, matches, reported, running

from entrypoint.base.errors import ExitCode
from entrypoint.launcher.plan.plan import Flag
from entrypoint.launcher.policy import events

CONFIG, START_TIMEOUT = int(ExitCode.CONFIG), int(ExitCode.START_TIMEOUT)
NO_ROUTE = "port 7979: No route to host"
REFUSED = "port 7979: Connection refused"


def test_follower_repeats_its_report_to_the_coordinator(play):
    assert [type(action) for action in play(3, 2).policy.repeat()] == [events.TellCoordinator]


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
def test_worker_waits_for_the_chief_if_required(play, flags, listens, setting, starts):
    p = play(2, 2, mode="ps", ps_chief_first=setting)
    p.through([(1, events.Prepared(flags=frozenset(flags)), ended("prepare")), (2, informed())])
    heartbeats(p, (listens or 1) - 1)
    up = {("algo-1", "chief/0")} if listens else set()
    heartbeats(p, 70, ready=frozenset({("*", "prepare"), ("*", "preflight")} | up))
    assert [f"{starts} start worker/0"] == [line for line in p.since(0) if "worker" in line]


# --- hosts that are missing, or reach one another not ---


def job(hosts: int, me: int = 1, reachable: dict[str, str] | None = {}, **settings):  # noqa: B006
    """Return a function that makes a job in which `reachable` says which hosts cannot be reached, and why."""

    def made(play) -> Play:
        p = play(hosts, me, **settings)
        p.reachable = reachable
        return p.at(1, ended("prepare"))

    return made


def every_second(until: int, *happened: events.Event) -> list[tuple]:
    return [(second, *happened) for second in range(2, until)]


REJECTED = "wrong or missing token"
ANSWERED = events.Answered(host="algo-1")
VERDICTS = {
    # the job, prepared at second 1; what happens; the verdict, "" if there is none
    "a follower never appears": (
        job(3, reachable={"algo-3": REFUSED}, start_timeout=60), [(70, Beats(2))],
        f"60.0 failed {START_TIMEOUT}: algo-3 (did not appear within 60 s): it is at 10.0.0.1, {REFUSED}"),
    "the coordinator never appears": (
        job(3, 2, reachable=None, start_timeout=60), [(70,)],
        f"60.0 failed {START_TIMEOUT}: algo-1 (did not appear within 60 s)"),
    # A pip that hangs: `start_timeout` promises hosts that appear *and are ready*.
    "a host appears and never gets ready": (
        job(3, start_timeout=60), every_second(70, reported(2), reported(3, ready=frozenset())),
        f"60.0 failed {START_TIMEOUT}: algo-3 (*"),
    "a long training is no late start": (
        lambda play: running(play, start_timeout=60), [(200, Beats(2, 3))], ""),
    "two hosts do not reach one another": (
        job(2, reachable={"algo-2": NO_ROUTE}, start_timeout=60),
        [(130, Beats(2, ready=frozenset({"prepare"})))], "* failed 68: algo-1 (cannot reach algo-2)*"),
    "two hosts do not reach one another, and one came late": (
        job(2, reachable={"algo-2": NO_ROUTE}, start_timeout=1200),
        [(1100,), (1230, Beats(2, ready=frozenset({"prepare"})))], "* failed 68: algo-1 (cannot reach algo-2)*"),
    # A wrong token, or another version: waiting would not change it.
    "a follower is refused": (
        job(2), every_second(8, events.Rejected(host="algo-2", why=REJECTED)),
        f"* failed {CONFIG}: algo-2 (was refused): {REJECTED}"),
    "the coordinator refuses us": (
        job(2, 2), every_second(8, events.Rejected(host="algo-1", why=REJECTED)),
        f"* failed {CONFIG}: algo-2 (is refused by the coordinator algo-1): {REJECTED}"),
    "a refusal that passed is no reason": (job(2), [(1, events.Rejected(host="algo-2", why="404")), (20,)], ""),
    "a refused caller with the address of a host that reports ends nothing": (
        running, [(3, events.Rejected(host="algo-2", why=REJECTED)), (20, Beats(2, 3))], ""),
    # It has sent us something already, by the address that it found before.
    "a coordinator that does not find our name yet is waited for": (
        job(2, 2), [(1, informed()), *every_second(20, ANSWERED), (25,)],
        "24.0 failed *: algo-1 (lost: no report for 5 s)"),
    # It sent us something before our report reached it: until it has that report, it cannot go on without us.
    "a coordinator that has not answered yet may stand still for as long as hosts may be late": (
        job(2, 2, start_timeout=20), [(1, events.Informed(news=events.News())), (21,)],
        "20.0 failed *: algo-1 (did not appear within 20 s)*"),
    "a coordinator that only refuses has not appeared": (
        job(2, 2, start_timeout=10), every_second(12, ANSWERED),
        "10.0 failed *: algo-1 (did not appear within 10 s)*"),
}  # fmt: skip


@pytest.mark.parametrize("start, history, verdict", VERDICTS.values(), ids=VERDICTS)
def test_failed_start_names_the_host_at_fault(play, start, history, verdict):
    p = start(play).through(history)
    assert matches(p.verdict, verdict), p.verdict


READY = {("*", "prepare"), ("*", "preflight")}
STORIES = {
    # the job; what happens, and what is seen then
    "scripts start when every host is prepared": (
        lambda play: play(3),
        [(1, ended("prepare")), (2, reported(2)), (3, reported(3)), Shows(did=["3.0 start worker/0"], ready=READY)]),
    "a follower starts when the coordinator reports that all are ready": (
        lambda play: play(3, 2),
        [(1, ended("prepare")), Shows(ready={"prepare"}), (2, informed(ready=frozenset())), (3, informed()),
         Shows(did=["3.0 start worker/1"])]),
    "no program starts before all hosts reach one another": (
        lambda play: play(2),
        [(1, ended("prepare"), reported(2, ready=frozenset({"prepare"}))), (2, reported(2)),
         Shows(did=["2.0 start worker/0"])]),
    "hosts that share nothing need not reach one another": (
        job(2, mode="single", reachable={"algo-2": NO_ROUTE}), [(1, reported(2)), Shows(did=["1.0 start script"])]),
    "worker servers wait for their own host only and parameter servers for all": (
        lambda play: play(2, 2, mode="ps", ps_workers="server"),
        [(1, ended("prepare")), (2, informed()), Shows(did=["1.0 start worker/0", "2.0 start ps/1"])]),
    "the chief reports that it listens": (
        lambda play: play(2, mode="ps"),
        [(1, ended("prepare"), reported(2)), (2, events.Listening(name="chief/0")),
         Shows(ready=READY | {("algo-1", "chief/0")})]),
    "public keys reach the hosts that need them": (
        lambda play: play(2, mode="mpi"),
        [(1, events.PublicKey(name="known_hosts", key="K"), ended("host-key")),
         Shows(did=["1.0 write known_hosts: algo-1"]),
         (1.1, events.PublicKey(name="authorized_keys", key="C"), ended("client-key")),
         Shows(did=["1.1 write authorized_keys: algo-1", "1.1 start sshd"],
               public_keys=(("known_hosts", "K"), ("authorized_keys", "C"))),
         (1.2, ended("prepare"), events.Listening(name="sshd")),
         (2, reported(2, ready=UP, public_keys=(("known_hosts", "L"),))),
         Shows(did=["2.0 write known_hosts: algo-1, algo-2", "2.0 start mpirun"])]),
    # A follower's key would open the coordinator's own ssh; a name with a / would be a file somewhere else.
    "public keys that the plan does not name are ignored": (
        lambda play: play(2, mode="mpi"),
        [(1, reported(2, public_keys=(("authorized_keys", "E"), ("../../x", "E"), ("known_hosts", "L")))),
         Shows(did=["1.0 write known_hosts: algo-2"])]),
    "a follower that finds no coordinator ends": (
        job(2, 2, reachable=None, start_timeout=60), [*every_second(70), Shows(last="*finish failed 68")]),
    "a follower that the coordinator refuses ends": (
        job(2, 2, reachable=None, start_timeout=60),
        [*every_second(70, events.Rejected(host="algo-1", why=REJECTED)), Shows(last="*finish failed 78")]),
    "a follower reports a host that it cannot reach": (
        job(3, 2, reachable={"algo-3": NO_ROUTE}),
        [(1, informed(ready=frozenset())), (130, Beats(ready=frozenset())),
         Shows(cause=f"algo-2 (cannot reach algo-3): it is at 10.0.0.1, {NO_ROUTE}")]),
    "a stop before the hosts have met is not held up by those that never came": (
        lambda play: play(3),
        [(0.5, STOP), (0.6, ended("prepare", signal=15)), (10,), Shows(last="2.0 finish stopped 143")]),
}  # fmt: skip


@pytest.mark.parametrize("start, history", STORIES.values(), ids=STORIES)
def test_policy_acts_in_a_rendezvous_as_the_story_states(play, start, history):
    start(play).through(history)


def test_host_probes_others_once_all_have_appeared(play):
    p = play(3, 2)
    p.reachable = {"algo-3": NO_ROUTE}
    p.at(1, ended("prepare"), informed(ready=frozenset(), assembled=False))
    assert not p.probed
    p.at(2, informed(ready=frozenset(), assembled=True))
    assert p.probed == [("algo-1", "algo-3")] and "preflight" not in p.last_told.ready
    assert [reach.host for reach in p.last_told.unreached] == ["algo-3"]
    p.reachable = {}
    p.at(4, informed(ready=frozenset()))
    assert p.probed[-1] == ("algo-3",) and "preflight" in p.last_told.ready


def test_missing_host_is_in_the_table_and_delays_no_end(play):
    p = job(3, reachable={"algo-3": REFUSED}, start_timeout=60)(play).through([(70, Beats(2))])
    assert p.outcome.cause.details.splitlines() == [
        "host    name resolves  port answers                   last report",
        "algo-3  10.0.0.1       port 7979: Connection refused  never",
    ]
    p.at(71, reported(2, gone=True))
    assert p.what[-1] == "finish failed 68"


def test_missing_hosts_are_logged_every_ten_seconds(play):
    p = job(4, reachable={"algo-3": REFUSED}, start_timeout=100)(play).through([(25, Beats(2, 4))])
    waits = [line for line in p.said if line.startswith("waiting")]
    assert waits == ["waiting for algo-3 (10 s)", "waiting for algo-3 (20 s)"]
    assert "algo-3  10.0.0.1       port 7979: Connection refused  never" in p.said


def test_unprepared_and_unreachable_hosts_are_logged(play):
    unreached = (events.Reach(host="algo-3", why="Name or service not known"),)
    told = reported(2, ready=frozenset({"prepare"}), unreached=unreached), reported(3, ready=frozenset())
    p = job(3)(play).through(every_second(12, *told))
    assert [line for line in p.said if "(10 s)" in line] == [
        "algo-2 cannot reach algo-3 (10 s): its name does not resolve: Name or service not known",
        "waiting for prepare of algo-3 (10 s)",
    ]


# --- hosts that differ ---


def prepared(**fingerprints: str) -> events.Prepared:
    return events.Prepared(flags=frozenset(), fingerprints=tuple(fingerprints.items()))


DIFFERENT = "(differs from the other hosts)"
DIFFERENCES = {
    # the version on each host, "": absent, "*": this is not about the host; the verdict
    "a follower differs": (["1.26.4", "1.26.3", "1.26.4"], f"algo-2 {DIFFERENT}: x is 1.26.3; on algo-1 it is 1.26.4"),
    "the coordinator differs": (["", "1", "1"], f"algo-1 {DIFFERENT}: x is absent; on algo-2 it is 1"),
    # The channels of a host outside the distribution, say.
    "a host that it is not about does not differ": (["a", "*", "a"], ""),
    "the coordinator that it is not about does not differ": (
        ["*", "a", "b"], f"algo-3 {DIFFERENT}: x is b; on algo-2 it is a"),
}  # fmt: skip


@pytest.mark.parametrize("versions, blamed", DIFFERENCES.values(), ids=DIFFERENCES)
def test_failure_names_the_host_that_differs(play, versions, blamed):
    mine, *others = versions
    p = play(3).at(1, prepared(x=mine), ended("prepare"))
    for host, version in enumerate(others, 2):
        assert p.outcome is None  # of two hosts, nobody knows which is the odd one
        p.at(host, reported(host, fingerprints=(("x", version),)))
    assert p.verdict == (f"3.0 failed {CONFIG}: {blamed}" if blamed else "")
    assert ("start worker/0" in p.what) is not bool(blamed)


def test_setting_turns_a_difference_into_a_warning(play):
    p = play(2, differences="warn").at(1, prepared(numpy="1"), ended("prepare"))
    p.at(2, reported(2, fingerprints=(("numpy", "2"),)))
    assert "warning: algo-2 differs: numpy is 2; on algo-1 it is 1" in p.said
    assert p.what[-1] == "start worker/0"
