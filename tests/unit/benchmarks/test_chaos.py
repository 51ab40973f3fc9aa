"""Test benchmarks/chaos: the oracle finds each lie that is planted in a history, and accepts honest histories."""

from dataclasses import replace
from itertools import chain
from math import inf

import pytest

from benchmarks.chaos.case import MODES, Case, Fault, Script
from benchmarks.chaos.draw import KINDS, draw
from benchmarks.chaos.observed import Deed, Injected, Observed, read_faults, read_journals
from benchmarks.chaos.oracle import rules_of, violations

BEGAN = 1000.0


def journal(host: str, process: str, *deeds: tuple[float, str, str], attempt: int = 0) -> list[Deed]:
    return [
        Deed(at=BEGAN + at, host=host, process=process, attempt=attempt, start=0, what=what, words=words)
        for at, what, words in deeds
    ]


def worker(number: int, *deeds: tuple[float, str, str], attempt: int = 0) -> list[Deed]:
    return journal(f"algo-{number + 1}", f"worker/{number}", *deeds, attempt=attempt)


def also(seen: Observed, *journals: list[Deed]) -> Observed:
    """Return the history with these deeds added, sorted by time."""
    return replace(seen, deeds=tuple(sorted(chain(seen.deeds, *journals), key=lambda deed: deed.at)))


def printed(host: str, process: str, count: int, attempt: int = 0) -> str:
    """Return the lines of a process as they stand in the host's log."""
    texts = (f"chaos {host} {process} {attempt} {n} step {n} ".ljust(199, ".") for n in range(count))
    return "".join(f"[{host} {process}] {text}\n" for text in texts)


def job(case: Case, *ends: tuple[float, str, str], end: float, exit: str, text: str | None = None, **more) -> Observed:
    """Return a job whose processes print five lines. Process n ends as `ends[n]`; all hosts end alike."""
    deeds, logs = [], dict.fromkeys(case.names, "")
    for (host, process), last in zip(case.processes, ends, strict=True):
        deeds += journal(host, process, (0.5, "starts", ""), (1.0, "lines", "5"), last)
        logs[host] += printed(host, process, 5)
    more = {"injected": (), **more}
    return Observed(
        case=case, began=BEGAN, ended=True, seconds=end, exits=dict.fromkeys(case.names, exit),
        gone=dict.fromkeys(case.names, BEGAN + end), told=dict.fromkeys(case.names, BEGAN + end - 0.2),
        failures=dict.fromkeys(case.names, text), logs=logs, deeds=tuple(sorted(deeds, key=lambda deed: deed.at)),
        **more,
    )  # fmt: skip


MIRRORED = Case(mode="mwms", hosts=3)
WELL = (2.0, "exits", "0")
NO_END = (1.5, "lines", "5")
SUCCEEDED = job(MIRRORED, WELL, WELL, WELL, end=2.3, exit="0")
RAISED = "algo-2 worker/1 (exit code 1): ValueError: the loss is not a number"
FAILED = job(MIRRORED, NO_END, (2.0, "raises", "ValueError"), NO_END, end=2.4, exit="1", text=RAISED)
KILL = Injected(fault=Fault(kind="kill", host="algo-3", at=2.0), at=BEGAN + 2.0)
GONE = "algo-3 (lost: its connection closed, and it accepts no new one)"
LOST = replace(
    job(MIRRORED, NO_END, NO_END, NO_END, end=4.0, exit="69", text=GONE, injected=(KILL,)),
    exits={"algo-1": "69", "algo-2": "69", "algo-3": "SIGKILL"},
)
STOP = Injected(fault=Fault(kind="stop", host="all", at=1.6), at=BEGAN + 1.6)
SAVES = Case(mode="mwms", hosts=2, scripts={f"algo-{n + 1} worker/{n}": Script(sigterm="saves") for n in range(2)})
SAVING = ((0.5, "starts", ""), (1.0, "lines", "5"), (1.6, "sigterm", ""), (1.9, "saved", ""), (1.95, "exits", "0"))
STOPPED = job(SAVES, WELL, WELL, end=2.4, exit="0", injected=(STOP,))
STOPPED = also(replace(STOPPED, deeds=()), *(worker(n, *SAVING) for n in range(2)))
RESTARTS = replace(MIRRORED, settings={"RESTARTS": 1.0})
KILLED = job(
    RESTARTS, NO_END, (2.0, "kills", "9"), NO_END, end=2.4, exit="137", text="algo-2 worker/1 (killed by SIGKILL)"
)


def with_(seen: Observed, field: str, **hosts: object) -> Observed:
    """Return the history with one field changed for the named hosts, such as `algo_2=...`."""
    new = {host.replace("_", "-"): value for host, value in hosts.items()}
    return replace(seen, **{field: {**getattr(seen, field), **new}})


def without(seen: Observed, what: str, host: str) -> Observed:
    return replace(seen, deeds=tuple(deed for deed in seen.deeds if (deed.what, deed.host) != (what, host)))


def of_all(seen: Observed, **fields: object) -> Observed:
    """Return the history with these fields set to the same value for every host."""
    return replace(seen, **{name: dict.fromkeys(seen.case.names, value) for name, value in fields.items()})


AGAIN = job(RESTARTS, WELL, (2.0, "kills", "9"), WELL, end=5.3, exit="0")  # it fails once, and then succeeds
AGAIN = also(AGAIN, *(worker(n, (3.0, "starts", ""), (5.0, "exits", "0"), attempt=1) for n in range(3)))
UNEVEN_CASE = replace(MIRRORED, scripts={f"algo-{n} worker/{n - 1}": Script(needs="algo-2 worker/1") for n in (1, 3)})
UNEVEN_TEXT = "algo-2 worker/1 (ended with 0 while worker/0 still trained): different numbers of batches? "
MISSES = (3.0, "raises", "RuntimeError")
UNEVEN = job(UNEVEN_CASE, MISSES, WELL, MISSES, end=3.5, exit="1", text=UNEVEN_TEXT)
UNEVEN = also(UNEVEN, *(worker(n, (2.9, "misses", "")) for n in (0, 2)))  # two miss the third, which has ended with 0


HONEST = {"succeeded": SUCCEEDED, "failed": FAILED, "lost": LOST, "stopped": STOPPED, "tried again": AGAIN,
          "uneven": UNEVEN}  # fmt: skip


@pytest.mark.parametrize("honest", HONEST)
def test_honest_history_violates_no_rule(honest):
    assert violations(HONEST[honest]) == []


LOG = FAILED.logs["algo-1"]
BROKEN = """[algo-1] Traceback (most recent call last):
[algo-1]   File "/x/entrypoint/train.py", line 48, in _train
"""


def logged(log: str) -> Observed:
    """Return the history with this text as the first host's log."""
    return with_(FAILED, "logs", algo_1=log)


LIES = {
    "a job that does not end": ("bound", replace(SUCCEEDED, ended=False)),
    "a success that is reported as the failure before it": (
        "retried",
        of_all(AGAIN, exits="137", failures="algo-2 worker/1 (killed by SIGKILL)"),
    ),
    "a victim in place of the one that ended unevenly": (
        "cause",
        of_all(UNEVEN, failures="algo-1 worker/0 (exit code 1): RuntimeError: Collective ops is aborted by"),
    ),
    "a process that is blamed though it had not ended": (
        "cause",
        of_all(without(UNEVEN, "exits", "algo-2"), failures=UNEVEN_TEXT),
    ),
    "a forged report that is believed": (
        "failure",
        of_all(SUCCEEDED, exits="42", failures="algo-3 (exit code 42): forged"),
    ),
    "a host that leaves late": ("bound", with_(FAILED, "gone", algo_1=BEGAN + 90)),
    "a host that leaves late after a stop": ("bound", with_(STOPPED, "gone", algo_1=BEGAN + 90)),
    "a host that was never seen to leave": ("bound", replace(FAILED, gone={"algo-1": BEGAN + 2})),
    "a script that works on after the verdict": ("goes_on", also(FAILED, worker(0, (12.0, "lines", "5")))),
    "a script that hears SIGTERM late": (
        "hears",
        replace(
            with_(STOPPED, "gone", algo_1=BEGAN + 12, algo_2=BEGAN + 12),
            deeds=tuple(
                replace(d, at=d.at + 9) if d.at > BEGAN + 1.5 and d.host == "algo-2" else d for d in STOPPED.deeds
            ),
        ),
    ),
    "a script that nobody tells of SIGTERM, and that is blocked": (
        "hears",
        replace(
            with_(STOPPED, "gone", algo_1=BEGAN + 12, algo_2=BEGAN + 12),
            deeds=tuple(d for d in STOPPED.deeds if d.at < BEGAN + 1.5 or d.host != "algo-2"),
        ),
    ),
    "failure told as success": ("success", of_all(FAILED, exits="0", failures=None)),
    "a script that never ended, told as success": ("success", without(SUCCEEDED, "exits", "algo-3")),
    "a success with a failure text": ("success", of_all(SUCCEEDED, failures=RAISED)),
    "success told as failure": ("failure", of_all(SUCCEEDED, exits="1", failures="algo-1 worker/0 (exit code 1)")),
    "success told as a lost host": ("failure", of_all(SUCCEEDED, exits="69", failures=GONE)),
    "a stop in which all saved, told as stopped": ("stop", of_all(STOPPED, exits="143")),
    "a stop told as a failure": ("stop", of_all(STOPPED, exits="1", failures=RAISED)),
    "a cause that was known, lost by a stop": (
        "stop",
        replace(of_all(FAILED, exits="143", failures=None), injected=(Injected(fault=STOP.fault, at=BEGAN + 3.5),)),
    ),
    "two exit codes": ("agreement", with_(FAILED, "exits", algo_3="69")),
    "two texts": ("agreement", with_(FAILED, "failures", algo_3=RAISED + "!")),
    "one host without a text": ("agreement", with_(FAILED, "failures", algo_3=None)),
    "a cause that never happened": ("cause", of_all(FAILED, failures="algo-3 worker/2 (exit code 1): ValueError")),
    "a script's end told as a lost host": ("cause", of_all(FAILED, exits="69", failures=GONE)),
    "a lost host told as a script's end": (
        "cause",
        of_all(LOST, failures="algo-2 worker/1 (exit code 1): OSError: lost algo-3"),
    ),
    "a cause with another code": (
        "cause",
        of_all(FAILED, exits="3", failures="algo-2 worker/1 (exit code 3): no data"),
    ),
    "a code that is not the cause's": ("cause", of_all(FAILED, exits="2")),
    "a failure without a cause": ("cause", of_all(FAILED, failures=None)),
    "a text that names nothing": ("cause", of_all(FAILED, failures="something went wrong")),
    "a consequence told as the cause": (
        "cause",
        of_all(
            also(FAILED, worker(2, (2.2, "sigterm", ""), (2.3, "raises", "ValueError"))),
            failures="algo-3 worker/2 (exit code 1): ValueError: told to stop",
        ),
    ),
    "a later failure told as the cause": (
        "cause",
        of_all(also(FAILED, worker(2, (4.0, "exits", "3"))), exits="3", failures="algo-3 worker/2 (exit code 3)"),
    ),
    "an attempt that was not made": ("retried", KILLED),
    "a script that heard SIGTERM and was not let save": (
        "saved",
        of_all(without(without(STOPPED, "saved", "algo-2"), "exits", "algo-2"), exits="143"),
    ),
    "a script that never heard SIGTERM": (
        "saved",
        of_all(
            without(without(without(STOPPED, "saved", "algo-2"), "exits", "algo-2"), "sigterm", "algo-2"), exits="143"
        ),
    ),
    "a process that stays": ("left", replace(FAILED, left=("sleep 300",))),
    "a lost line": ("lines", logged(LOG.replace(LOG.split("\n")[2] + "\n", ""))),
    "a lost last line": ("lines", logged(LOG[: LOG.rindex("[")])),
    "a line that came twice": ("lines", logged(LOG.replace("\n", "\n" + LOG.split("\n")[0] + "\n", 1))),
    "lines out of order": ("lines", logged("\n".join(reversed(LOG.split("\n"))))),
    "two lines in one": ("lines", logged(LOG.replace(".\n[algo-1 worker/0] chaos", ".chaos", 1))),
    "a line given to another": ("lines", logged(LOG.replace("[algo-1 worker/0]", "[algo-1 worker/1]", 1))),
    "a fault of the launcher": ("own_fault", logged(LOG + BROKEN)),
}


@pytest.mark.parametrize("lie", LIES)
def test_false_observation_violates_the_expected_rule(lie):
    rule, told = LIES[lie]
    found = violations(told)
    assert rule in rules_of(found), found


def test_either_of_two_near_simultaneous_failures_may_be_named():
    both = also(FAILED, worker(2, (2.4, "exits", "3")))
    assert violations(both) == []
    other = of_all(both, exits="3", failures="algo-3 worker/2 (exit code 3)")
    assert violations(other) == []


def test_briefly_isolated_host_may_be_named_only_during_a_failure():
    cut = Injected(fault=Fault(kind="cut", host="algo-3", at=1.7, lasts=2.5), at=BEGAN + 1.7, over=BEGAN + 4.2)
    text = "algo-3 (lost: no report for 2 s, and it accepts no connection)"
    named = of_all(replace(FAILED, injected=(cut,)), failures=text, exits="69")
    assert "cause" not in rules_of(violations(named))
    alone = of_all(replace(SUCCEEDED, injected=(cut,)), failures=text, exits="69")
    assert {"cause", "failure"} <= rules_of(violations(alone))


def test_hosts_may_disagree_if_coordinator_is_killed_before_meeting():
    kill = Injected(fault=Fault(kind="kill", host="algo-1", at=0.3), at=BEGAN + 0.3)
    codes = {"algo-1": "SIGKILL", "algo-2": "68", "algo-3": "69"}
    texts = {"algo-1": None, "algo-2": "algo-1 (did not appear within 13 s)", "algo-3": "algo-1 (lost: no report)"}
    running = replace(LOST, injected=(kill,), exits=codes, failures=texts)
    begun = replace(running, deeds=(), logs=dict.fromkeys(codes, ""))
    assert violations(begun) == []
    assert "agreement" in rules_of(violations(running))
    assert "cause" in rules_of(violations(with_(begun, "failures", algo_2="algo-3 (did not appear within 13 s)")))


def test_silent_host_is_lost_sooner_after_a_process_was_stopped():
    cut = Injected(fault=Fault(kind="cut", host="algo-3", at=1.0), at=BEGAN + 1.0, over=BEGAN + 2.7)
    stop = Injected(fault=Fault(kind="stop", host="algo-2", process="worker/1", at=1.2), at=BEGAN + 1.2)
    text = "algo-3 (lost: no report for 2 s, and it accepts no connection)"
    case = replace(MIRRORED, settings={"PEER_TIMEOUT": 4.0})
    seen = job(case, NO_END, NO_END, NO_END, end=2.4, exit="69", text=text, injected=(cut, stop))
    assert "cause" not in rules_of(violations(seen))
    assert "cause" in rules_of(violations(replace(seen, injected=(cut,))))


def test_mpirun_may_fail_only_if_a_name_vanished_for_long():
    hide = Injected(fault=Fault(kind="hide", host="algo-2", at=1.6), at=BEGAN + 1.6)
    case = Case(mode="mpi", hosts=2, settings={"RESTARTS": 1.0})
    text = "algo-1 mpirun (exit code 255): ssh: Could not resolve hostname algo-2: Name or service not known"
    seen = job(case, (2.0, "kills", "9"), NO_END, end=3.0, exit="255", text=text, injected=(hide,))
    assert "cause" not in rules_of(violations(seen))
    brief = replace(hide, over=BEGAN + 2.3)
    assert "cause" in rules_of(violations(replace(seen, injected=(brief,))))
    assert "cause" in rules_of(violations(replace(seen, injected=())))


def test_time_limits_grow_by_delays_of_a_busy_machine():
    late = with_(FAILED, "gone", algo_1=BEGAN + 35)
    assert rules_of(violations(late)) == {"bound"}
    still = replace(late, gaps=((BEGAN + 30, 20.0),))
    assert violations(still) == []
    waited = replace(late, waits=tuple((BEGAN + 10 + n, 0.9) for n in range(24)))
    assert violations(waited) == []
    before = replace(late, gaps=((BEGAN - 5, 20.0),), waits=((BEGAN, 20.0),))
    assert rules_of(violations(before)) == {"bound"}


def test_time_limits_grow_on_a_slow_machine():
    """Each CPU of the machine is free, but takes four times as long for the same work."""
    late = with_(FAILED, "gone", algo_1=BEGAN + 13)
    assert rules_of(violations(late)) == {"bound"}
    assert violations(replace(late, slowness=4.0)) == []
    assert rules_of(violations(replace(late, slowness=1.5))) == {"bound"}


def test_output_may_vanish_silently_only_if_loss_cannot_be_reported():
    stall = Injected(fault=Fault(kind="stall", host="algo-1", lasts=25.0), at=BEGAN + 1, over=BEGAN + 26)
    full = Injected(fault=Fault(kind="readonly", host="algo-1", process="output"), at=BEGAN + 1)
    cut = logged(LOG[: LOG.rindex("[")])
    assert "lines" in rules_of(violations(replace(cut, injected=(stall,))))
    assert "lines" in rules_of(violations(replace(cut, injected=(full,))))
    assert "lines" not in rules_of(violations(replace(cut, injected=(stall, full))))


def test_killed_host_may_lack_its_last_lines():
    log = LOST.logs["algo-3"]
    assert violations(with_(LOST, "logs", algo_3=log[: len(log) // 2])) == []


@pytest.mark.parametrize("process", ["worker/0", "rank 3"])
@pytest.mark.parametrize("rest", ["", "Traceback (most recent call last):"])
def test_process_may_end_in_the_middle_of_a_line(process, rest):
    case = replace(MIRRORED, hosts=1, mode="mpi" if process == "rank 3" else "mwms")
    log = printed("algo-1", process, 12)
    seen = replace(SUCCEEDED, case=case, deeds=(), exits={}, gone={"algo-1": BEGAN}, logs={"algo-1": log[:-40] + rest})
    assert "lines" not in rules_of(violations(seen))
    other = replace(seen, logs={"algo-1": log[:-40] + "x" + rest})
    assert "lines" in rules_of(violations(other))


def test_same_seed_draws_the_same_cases():
    cases = [draw(7, number, netns=True) for number in range(300)]
    assert cases == [draw(7, number, netns=True) for number in range(300)]
    assert cases != [draw(8, number, netns=True) for number in range(300)]
    drawn = {fault.kind for case in cases for fault in case.faults}
    assert drawn == {kind.split()[0] for kind in KINDS}
    assert {case.mode for case in cases} == set(MODES)
    of_jax = [draw(7, number, netns=True, only="jax") for number in range(50)]
    assert {case.mode for case in of_jax} == {"jax"}
    assert {process for case in of_jax for _, process in case.processes} <= {f"worker/{number}" for number in range(12)}
    assert {case.hosts for case in cases} == set(range(1, 7))
    assert {len(case.faults) for case in cases} == set(range(5))
    assert all(len(draw(7, number, netns=True, least=2).faults) >= 2 for number in range(100))
    assert all(Case.from_json(case.to_json()) == case for case in cases)


def test_only_rootless_faults_are_drawn_without_root():
    kinds = {fault.kind for number in range(300) for fault in draw(7, number, netns=False).faults}
    assert kinds == {"kill", "stop", "pause", "late", "stall"}


def test_faults_are_read_from_terminal_and_script_actions_from_journals(tmp_path):
    pause = Fault(kind="pause", host="algo-1", at=1.0, lasts=2.0)
    case = replace(MIRRORED, faults=(pause, KILL.fault, STOP.fault))
    lines = [
        f"fault: {pause.text}, from 1.10 s to 3.20 s",
        f"fault: {KILL.fault.text}, after 2.00 s",
        "fault: stop all at 1.6, after 1.70 s; the others ended before it reached them",
        "fault never happened: kill algo-1 at 3",
    ]
    first, second, third = read_faults(case, "\n".join(lines), BEGAN)
    assert (first.fault, first.at, first.over) == (pause, pytest.approx(BEGAN + 1.1), pytest.approx(BEGAN + 3.2))
    assert (second.fault, second.at, second.over) == (KILL.fault, pytest.approx(BEGAN + 2.0), None)
    assert (third.fault, third.at, third.over) == (STOP.fault, pytest.approx(BEGAN + 1.7), None)
    (tmp_path / "algo-1,worker=0,1,55.journal").write_text("1000.5 starts\n1002.0 exits 0\n")
    (tmp_path / "algo-1,worker=0,1,77.journal").write_text("1003.5 starts\n")
    deeds = read_journals(tmp_path)
    assert [(deed.process, deed.attempt, deed.start, deed.what, deed.words) for deed in deeds] == [
        ("worker/0", 1, 0, "starts", ""),
        ("worker/0", 1, 0, "exits", "0"),
        ("worker/0", 1, 1, "starts", ""),
    ]
    assert inf > deeds[-1].at == 1003.5
