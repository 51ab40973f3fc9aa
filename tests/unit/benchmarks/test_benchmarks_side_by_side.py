"""Test the pure parts of benchmarks/side_by_side: figures from marks and logs, aims, complaints of --quick."""

import hashlib
import json
import os
import socket
import subprocess
import sys
import time
import zipfile

import pytest
from waiting import eventually

from benchmarks.docker import seconds
from benchmarks.side_by_side import by_hand, index, rounds
from benchmarks.side_by_side.aims import AIMS, INSTALL_AIMS, aim
from benchmarks.side_by_side.cases import BY_HAND, CASES, FAILURE, HANG, LOG, ON_REQUEST, RESTART, SIDES, STOP, Case
from benchmarks.side_by_side.drivers import call
from benchmarks.side_by_side.job import Ending, Mark
from benchmarks.side_by_side.lines import label, log_measures
from benchmarks.side_by_side.measures import ended_well, measures
from benchmarks.side_by_side.quick import ROUNDS, complaints, is_due, shortened
from benchmarks.side_by_side.scripts import Scripts
from benchmarks.side_by_side.usage import is_script

BY_NAME = {case.name: case for case in CASES}
TIME = "2026-11-21T10:00:00.500000000Z"


def ended(host: str, finished: float | None, code: int | None = 0, started: float = 100.0, log: str = "") -> Ending:
    return Ending(host=host, started=started, finished=finished, exit_code=code, log=log)


def marks(case: Case, **values: float) -> list[Mark]:
    """Return marks that are equal for all processes; those of the n-th host come n seconds later."""
    return [Mark(f"algo-{n + 1}", "marks-7", what, at + n) for what, at in values.items() for n in range(case.hosts)]


def figures(
    case: Case,
    said: list[Mark],
    endings: list[Ending],
    event_at: float | None = None,
    killed: str | None = None,
    left_at: float | None = None,
):
    return measures(case, said, endings, event_at, killed, 5.0, printing_cpu_s=2.0, peak_bytes=7, left_at=left_at)


def test_output_that_nobody_reads_is_counted_where_it_comes_late_and_where_it_is_lost():
    case, line = BY_NAME["unread-end-1"], f"{7:08d}{'.' * 91}\n"
    said = marks(case, first=101.0, trains=102.0, last=112.0)
    (ending,) = endings = [ended("algo-1", 113.0, log=f"[algo-1 script] {line}" * 15_000)]
    assert figures(case, said, endings) == {"held_s": 10.0, "gone_s": 11.0, "lost_share": 0.25}
    assert ended_well(case, said, endings, None) and not ended_well(case, said[:-1], endings, None)
    stop = BY_NAME["unread-stop-1"]
    said = marks(stop, first=101.0, trains=102.0, heard=105.0, saved=106.0)
    assert figures(stop, said, [ending], 104.0) == {"told_s": 1.0, "saved_s": 2.0, "gone_s": 9.0}
    assert ended_well(stop, said, [ending], None) and not ended_well(stop, said[:-1], [ending], None)


def test_a_job_whose_script_did_not_come_to_its_end_has_no_time_to_compare():
    case = BY_NAME["real-deepfm-2"]
    assert case.processes == 1, "the chief's alone"
    endings = [ended("algo-1", 112.0, 1), ended("algo-2", 111.5)]
    assert figures(case, [Mark("algo-1", "marks-7", "first", 102.0)], endings) == {"start_s": 2.0}


def test_the_sdk_has_drivers_for_scripts_and_mpi_alone():
    assert {case.mode for case in CASES if not case.cannot("drivers")} == {"single", "mpi"}
    assert not any(case.cannot("ours") for case in CASES)
    assert {case.group for case in CASES if case.cannot("toolkit")} == {RESTART}
    assert "'ppr:2:node'" in call(BY_NAME["start-mpi-2x2"]) and "count_per_node=4" in call(BY_NAME["start-mpi-2x2"])
    assert "MPI" not in call(BY_NAME["start-single-1"])


@pytest.mark.parametrize("side", ["mpirun", "horovodrun", "horovodrun-gloo"])
def test_by_hand_the_first_host_starts_all_ranks_and_ends_the_others(side):
    hosts, case = ["algo-1", "algo-2"], BY_NAME["start-mpi-2x2"]
    *shell, script, name, python, program, option, value = by_hand.command(case, side, hosts, "algo-1")
    assert [*shell, name, python, program, option, value] == ["bash", "-c", side, "python", "acts.py", "--seconds", "4"]
    assert script.count("for host in algo-2; do") == 2, "waits for its sshd, and ends it"
    assert " -np 4 " in script and " algo-1:2,algo-2:2" in script and ("--gloo" in script) == ("gloo" in side)
    subprocess.run(["bash", "-n", "-c", script], check=True)
    *shell, sshd = by_hand.command(case, side, hosts, "algo-2")
    assert shell == ["bash", "-c"] and sshd.startswith("/usr/sbin/sshd -D;")


def test_by_hand_a_plain_script_is_started_alone_on_each_host():
    for host in ("algo-1", "algo-2"):
        words = by_hand.command(BY_NAME["start-plain-2"], "plain", ["algo-1", "algo-2"], host)
        assert words == ["python", "/opt/ml/code/acts.py", "--seconds", "4"]


def test_by_hand_each_worker_of_multi_worker_mirrored_has_its_tf_config():
    for number, host in enumerate(hosts := ["algo-1", "algo-2"]):
        env, tf_config, *words = by_hand.command(BY_NAME["start-mwms-2"], "plain", hosts, host)
        assert [env, *words] == ["env", "python", "/opt/ml/code/acts.py", "--seconds", "4"]
        name, _, value = tf_config.partition("=")
        assert name == "TF_CONFIG" and json.loads(value) == {
            "cluster": {"worker": ["algo-1:2222", "algo-2:2222"]},
            "task": {"type": "worker", "index": number},
        }


def test_what_cannot_be_started_by_hand_has_a_reason():
    assert not set(ON_REQUEST) & set(SIDES), "they are off unless asked for"
    assert all("torch" in case.cannot("torchrun") for case in CASES)
    assert {case.mode for case in CASES if not case.cannot("plain")} == {"single", "mwms"}
    for side in ("mpirun", "horovodrun", "horovodrun-gloo"):
        can = [case for case in CASES if not case.cannot(side)]
        assert {case.mode for case in can} == {"mpi"} and STOP not in {case.group for case in can}
        assert {FAILURE, LOG, HANG} < {case.group for case in can}
    for side in (*SIDES[1:], *ON_REQUEST):
        assert all(case.cannot(side) for case in CASES if case.group == RESTART), "our launcher alone restarts a job"
    assert "elastic" in BY_NAME["restart-mpi-2"].cannot("horovodrun")
    assert BY_NAME["restart-mpi-2"].cannot("mpirun") == "nothing that restarts a job"
    assert BY_NAME["start-ps-2"].cannot("mpirun") == "nothing for parameter servers"
    assert BY_NAME["stop-mpi-2"].cannot("horovodrun") == "nothing for a stop"
    assert BY_NAME["real-maskrcnn-2"].cannot("horovodrun-gloo") and not BY_NAME["real-maskrcnn-2"].cannot("horovodrun")


def test_our_launcher_alone_gets_settings_and_is_unwatched_in_plain_jobs():
    assert BY_NAME["restart-mpi-2"].settings("ours") == {
        "ENTRYPOINT_RESTARTS": "1",
        "ENTRYPOINT_RESTART_BACKOFF": "0",
    }
    assert not any(case.settings(side) for case in CASES for side in (*SIDES[1:], *BY_HAND))
    start = BY_NAME["start-plain-2"]
    assert start.settings("ours") == {} and start.settings("ours-unwatched") == {"ENTRYPOINT_MONITOR": "false"}
    unwatched = {case.name for case in CASES if not case.cannot("ours-unwatched")}
    assert unwatched == {"start-single-1", "start-plain-2", "raise-single-1", "install-single-1"}


def test_a_restart_is_parted_into_the_scripts_time_and_the_launchers():
    case = BY_NAME["restart-mpi-2"]
    said = [*marks(case, first=101.0, trains=103.0), Mark("algo-2", "marks-7", "crashes", 105.0)]
    again = [Mark(f"algo-{n + 1}", "marks-9", "first", 106.0 + n) for n in (0, 1)]
    steps = [Mark(f"algo-{n + 1}", "marks-9", "trains", 109.0) for n in (0, 1)]
    endings = [ended("algo-1", 112.0), ended("algo-2", 112.0)]
    parts = {"again_s": 4.0, "own_s": 2.0, "resumed_s": 2.0}
    assert figures(case, said + again + steps, endings) == parts
    assert figures(case, said + again + steps, endings, left_at=105.5) == {**parts, "left_s": 0.5}
    assert figures(case, said + again + steps[:1], endings) == {}, "not all processes made a step"
    assert figures(case, said[:-1], endings) == {}, "nothing crashed"
    last = marks(case, last=111.0)
    assert ended_well(case, last, endings, None) and not ended_well(case, last[:1], endings, None)


def test_a_hang_counts_until_the_launchers_own_line_and_until_all_hosts_are_gone():
    case, at = BY_NAME["hang-mpi-2"], seconds(TIME)
    said = [*marks(case, first=101.0, trains=103.0), Mark("algo-2", "marks-7", "hangs", at - 20)]
    horovod = "[algo-1 rank 0] W One or more tensors were submitted to be reduced, gathered or broadcasted by subset"
    ours = f"{TIME} {horovod}\n{TIME.replace('00:00', '00:02')} [algo-1] warning: no progress in any process for 10 s\n"
    endings = [ended("algo-1", at + 3, 72, log=ours), ended("algo-2", at + 4, 72)]
    assert figures(case, said, endings) == {"hang_told_s": 22.0, "gone_s": 24.0}
    assert ended_well(case, said, endings, None)
    assert not ended_well(case, said, [endings[0], ended("algo-2", at, 0)], None)
    others = [ended("algo-1", None, None, log=f"{TIME} {horovod}\n"), ended("algo-2", None, None)]
    assert figures(case, said, others) == {}, "what Horovod prints is no word of our launcher's"
    assert figures(case, said[:-1], endings) == {}, "nothing hangs"


def test_times_are_utc_to_the_microsecond():
    assert seconds("1970-01-02T00:00:01.250000000Z") == 86401.25
    assert seconds("1970-01-01T00:00:01Z") == 1.0


def test_start_and_tail_count_from_the_last_to_the_last():
    case = BY_NAME["start-ps-2"]
    said = [*marks(case, first=102.0, last=110.0), Mark("algo-1", "marks-7", "cpu", 1.0)]
    found = figures(case, said, [ended("algo-1", 112.0), ended("algo-2", 111.5, started=101.0)])
    assert found == {
        "start_s": 103 - 101.0,
        "tail_s": 112.0 - 111,
        "wall_s": 12.0,
        "launcher_cpu_s": 4.0,
        "launcher_memory_bytes": 7,
    }


def test_what_scripts_take_to_leave_counts_apart():
    case = BY_NAME["real-horovod-2"]
    said = [*marks(case, first=102.0, last=110.0), Mark("algo-1", "marks-7", "cpu", 1.0)]
    found = figures(case, said, [ended("algo-1", 114.5), ended("algo-2", 114.0)], left_at=114.25)
    assert (found["tail_s"], found["leaving_s"], found["launcher_tail_s"]) == (3.5, 3.25, 0.25)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root: the kernel tells nobody else")
def test_the_kernel_says_when_scripts_are_gone(tmp_path):
    program = tmp_path / f"leaves-{os.getpid()}.py"
    program.write_text("import sys\nprint('last', flush=True)\nsys.stdin.read()\n")
    with (
        Scripts(program.name) as scripts,
        subprocess.Popen([sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
    ):
        assert process.stdout and process.stdout.readline() == b"last\n"
        assert scripts.ended_at() is None
        before = time.time()
        assert process.stdin
        process.stdin.close()
        process.wait()
        assert before <= eventually(scripts.ended_at, within=60) <= time.time()
        assert scripts.ended_at(1) == pytest.approx(scripts.ended_at(), abs=0.01)


def test_a_job_that_was_cut_has_no_end():
    case = BY_NAME["start-ps-2"]
    endings = [ended("algo-1", None, None), ended("algo-2", 111.5)]
    assert set(figures(case, marks(case, first=102.0), endings)) == {"start_s", "launcher_memory_bytes"}
    assert not ended_well(case, marks(case, last=110.0), endings, None)


def test_a_killed_host_is_not_waited_for():
    case = BY_NAME["kill-mpi-2-worker"]
    endings = [ended("algo-1", 112.0, 1), ended("algo-2", 105.0, 137)]
    assert figures(case, marks(case, first=102.0), endings, 104.0, "algo-2")["gone_s"] == 8.0
    assert ended_well(case, [], endings, "algo-2")
    assert not ended_well(case, [], [ended("algo-1", 112.0, 0), endings[1]], "algo-2")


def test_a_failure_counts_from_the_scripts_own_word():
    case = BY_NAME["raise-ps-2-worker"]
    said = [*marks(case, first=102.0), Mark("algo-2", "marks-7", "fails", 107.0)]
    assert figures(case, said, [ended("algo-1", 108.0, 1), ended("algo-2", 107.5, 1)])["gone_s"] == 1.0


def test_a_failed_install_counts_from_its_own_mark_and_no_script_runs():
    case = BY_NAME["install-mwms-2-worker-1"]
    endings = [ended("algo-1", 108.0, 1), ended("algo-2", 107.5, 1)]
    assert figures(case, [Mark("algo-2", "marks-7", "fails", 107.0)], endings) == {"gone_s": 1.0}
    assert ended_well(case, [], endings, None) and not ended_well(case, [], [ended("algo-1", 108.0, 0)], None)
    assert case.cannot("plain") and not case.cannot("toolkit")
    assert "requirements='requirements.txt'" in call(BY_NAME["install-mpi-2"])
    assert "requirements" not in call(BY_NAME["raise-mpi-2-rank-1"])


def test_a_build_that_is_tried_twice_has_failed_at_the_first():
    case = BY_NAME["install-single-1"]
    said = [Mark("algo-1", f"marks-{n}", "fails", 107.0 + n) for n in (0, 1)]
    assert figures(case, said, [ended("algo-1", 110.0, 65)]) == {"gone_s": 3.0}


def test_without_an_index_the_time_counts_from_the_start_and_the_job_has_to_fail():
    case = BY_NAME["packages-silent"]
    assert figures(case, [], [ended("algo-1", 108.0, 65)]) == {"gone_s": 8.0}
    assert ended_well(case, [], [ended("algo-1", 108.0, 65)], None)
    assert not ended_well(case, [], [ended("algo-1", 108.0, 0)], None)


def test_an_index_has_each_wheel_with_its_hash_and_its_metadata(tmp_path):
    wheel = tmp_path / "files" / "Needed_it-1-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("needed_it-1.dist-info/METADATA", "Name: needed-it\n")
    index.publish(wheel, tmp_path / "simple")
    page = (tmp_path / "simple/needed-it/index.html").read_text()
    for file in (wheel, wheel.with_name(f"{wheel.name}.metadata")):
        assert f"sha256={hashlib.sha256(file.read_bytes()).hexdigest()}" in page
    assert len(index.NEEDS) == max(index.NAMED) == 110 and index.requirements(10).startswith("tqdm==")


def test_an_index_that_does_not_answer_takes_no_connection():
    server = index.silent()[0]
    with socket.socket() as client:
        client.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.connect(("127.0.0.1", server.getsockname()[1]))


def test_a_stop_is_right_if_all_scripts_have_saved():
    case = BY_NAME["stop-ps-2"]
    said, endings = marks(case, first=102.0, heard=105.0, saved=106.0), [ended("algo-1", 108.0), ended("algo-2", 108.5)]
    assert figures(case, said, endings, 104.5) == {"told_s": 1.5, "gone_s": 4.0}
    assert ended_well(case, said, endings, None)
    assert not ended_well(case, said[:-1], endings, None)


LINE = "<algo-2 1 000017>   of a line loss=0.5 </000017>"


@pytest.mark.parametrize(
    ("log", "split", "mislabelled", "unlabelled"),
    [
        (f"{TIME} [algo-2 rank 1] {LINE}\n", 0, 0, 0),
        (f"{TIME} [1,mpirank:1,algo-2]<stdout>:{LINE}\n", 0, 0, 0),
        (f"{TIME} [1,1]<stdout>:{LINE}\n", 0, 0, 0),  # names the rank alone
        (f"{TIME} [1,2]<stdout>:{LINE}\n", 0, 1, 0),
        (f"{TIME} [1]<stdout>:{LINE}\n", 0, 0, 0),  # horovodrun's with Gloo
        (f"{TIME} [0]<stdout>:{LINE}\n", 0, 1, 0),
        (f"{TIME} [1,mpirank:1,algo-10]<stdout>:{LINE}\n", 0, 1, 0),
        (f"{TIME} [algo-2 rank 3] {LINE}\n", 0, 1, 0),
        (f"{TIME} {LINE}\n", 0, 0, 1),
        (f"{TIME} [1,mpirank:1,algo-2]<stdout>:{LINE[:30]}\n{TIME} {LINE[30:]}\n", 1, 0, 0),
        (f"{TIME} [algo-2 rank 1] {LINE[:18]}{LINE[19:]}\n", 1, 0, 0),  # its indentation is gone
        (f"{TIME} [algo-2 rank 1] {LINE}{LINE}\n", 1, 0, 0),
        ("", 1, 0, 0),
    ],
)
def test_what_became_of_a_line(log, split, mislabelled, unlabelled):
    found = log_measures({"algo-2": log}, 1, seconds(TIME) - 0.5)
    shares = {name: value for name, value in found.items() if name.endswith("_share")}
    assert shares == {"split_share": split, "mislabelled_share": mislabelled, "unlabelled_share": unlabelled}
    assert found["lines_per_s"] == (2.0 if log else 0.0)


def test_a_script_that_is_no_rank_is_labelled_by_its_host():
    assert label("[algo-1 script] ") == ("algo-1", "-")
    assert label("[algo-1] ") is None


def test_only_python_with_the_script_is_the_script():
    assert is_script([b"/opt/venv/bin/python", b"-m", b"mpi4py", b"acts.py", b""], b"acts.py")
    assert is_script([b"python3.11", b"/opt/ml/code/acts.py"], b"acts.py")
    horovodrun = [b"/opt/venv/bin/python", b"/opt/venv/bin/horovodrun", b"-np", b"2", b"python", b"acts.py", b""]
    assert not is_script(horovodrun, b"acts.py")
    for words in ([b"mpirun", b"-np", b"2", b"python", b"acts.py"], [b"/bin/sh", b"-c", b"python acts.py"], [b""]):
        assert not is_script(words, b"acts.py")


def test_names_of_cases_are_unique_and_aims_are_met_by_some():
    assert len(BY_NAME) == len(CASES)
    for each in (*AIMS, *INSTALL_AIMS):
        assert any(aim(name, each.measure) is each for name in BY_NAME), each.words
    assert aim("start-mpi-2x1", "start_s").ratio == 0.3 and aim("start-ps-2", "start_s").ratio == 0.25
    assert aim("start-ps-2", "start_s").limit == pytest.approx(0.625)


def run_of(case: str, side: str, cut: float | None = None, right: bool = True, **values: float):
    return {"case": case, "side": side, "measures": values, "cut_at_s": cut, "right": right, "exit_codes": [0]}


def test_quick_complains_of_what_is_no_noise():
    slow = [run_of("start-ps-2", "ours", start_s=0.7), run_of("start-ps-2", "toolkit", start_s=1.0)]
    assert len(complaints(slow)) == 1 and "start_s is 0.7" in complaints(slow)[0]
    assert not complaints([{**slow[0], "measures": {"start_s": 0.6}}, slow[1]])
    hangs, wrong = run_of("stop-single-1", "ours", cut=25.0), run_of("stop-single-1", "ours", right=False)
    assert "not ended after 25 s" in complaints([hangs])[0] and "wrongly" in complaints([wrong])[0]
    assert not complaints([{**hangs, "side": "toolkit"}, {**wrong, "side": "toolkit"}])


def test_a_quick_run_repeats_what_a_busy_machine_made_slow():
    case, other = BY_NAME["start-ps-2"], BY_NAME["stop-single-1"]
    toolkit = run_of(case.name, "toolkit", start_s=4.8)
    slow, well = (run_of(case.name, "ours", start_s=seconds) for seconds in (3.35, 0.8))
    assert ROUNDS == 3 and is_due(case, 1, []) and is_due(case, 2, [slow, toolkit])
    assert not is_due(other, 2, [slow, toolkit]) and not is_due(case, 3, [slow, toolkit, well, toolkit])
    assert not complaints([slow, toolkit, well, toolkit])
    assert len(complaints([slow, toolkit] * ROUNDS)) == 1


def test_quick_counts_a_cut_of_the_toolkits_as_the_limit():
    cut = run_of("raise-mpi-2-rank-1", "toolkit", cut=25.0, right=False)
    assert not complaints([run_of("raise-mpi-2-rank-1", "ours", gone_s=12.0), cut])
    assert complaints([run_of("raise-mpi-2-rank-1", "ours", gone_s=13.0), cut])
    assert not complaints([run_of("raise-mpi-2-rank-1", "ours", gone_s=13.0), {**cut, "side": "drivers"}])


def test_sides_take_turns_and_only_the_toolkits_long_waits_run_together():
    log, cases = [], [BY_NAME[name] for name in ("start-ps-2", "raise-mpi-2-rank-1", "raise-single-1", "stop-single-1")]

    def do(case, side, at_work):
        log.append((case.name, side, at_work is not None))
        return {"case": case.name, "side": side}

    assert len(list(rounds.one_round([(case, side) for case in cases for side in ("ours", "toolkit")], do))) == 8
    assert log == [
        ("start-ps-2", "ours", False),
        ("start-ps-2", "toolkit", False),
        ("raise-single-1", "ours", False),
        ("raise-single-1", "toolkit", False),
        ("raise-mpi-2-rank-1", "ours", False),
        ("stop-single-1", "ours", False),
        ("raise-mpi-2-rank-1", "toolkit", True),
        ("stop-single-1", "toolkit", True),
    ]


def test_both_peers_wait_together_at_the_end_of_a_round():
    log, case = [], BY_NAME["raise-mpi-2-rank-1"]

    def do(case, side, at_work):
        log.append((side, at_work is not None))
        return {"case": case.name, "side": side}

    assert len(list(rounds.one_round([(case, side) for side in SIDES], do))) == 3
    assert log == [("ours", False), ("toolkit", True), ("drivers", True)]


def test_peers_that_hang_are_cut_together_at_the_end_of_a_round():
    log, cases = [], [BY_NAME[name] for name in ("hang-single-1", "hang-mpi-2", "start-single-1")]

    def do(case, side, at_work):
        log.append((case.name, side, at_work is not None))
        return {"case": case.name, "side": side}

    sides = ("ours", "ours-unwatched", "toolkit")
    due = [(case, side) for case in cases for side in sides if not case.cannot(side)]
    assert len(list(rounds.one_round(due, do))) == 7
    assert [(name, side) for name, side, together in log if together] == [
        ("hang-single-1", "toolkit"),
        ("hang-mpi-2", "toolkit"),
    ]


def test_in_a_quick_run_the_toolkit_sleeps_side_by_side_behind_mpirun_too():
    log, cases = [], [BY_NAME[name] for name in ("raise-mpi-2-rank-1", "start-mpi-2x1", "start-ps-2")]

    def do(case, side, at_work):
        log.append((case.name, side, at_work is not None))
        return {"case": case.name, "side": side}

    due = [(case, side) for case in cases for side in ("ours", "toolkit")]
    assert len(list(rounds.one_round(due, do, rounds.waits_in_its_tail))) == 6
    assert log == [
        ("start-ps-2", "ours", False),
        ("start-ps-2", "toolkit", False),
        ("raise-mpi-2-rank-1", "ours", False),
        ("start-mpi-2x1", "ours", False),
        ("start-mpi-2x1", "toolkit", True),
        ("raise-mpi-2-rank-1", "toolkit", True),
    ]


def test_a_quick_run_gives_the_toolkit_as_long_to_start_and_less_to_end():
    ours, toolkit = (shortened(BY_NAME["raise-mpi-2-rank-1"], side) for side in ("ours", "toolkit"))
    assert ours.limit_s == toolkit.limit_s == ours.after_s == 90.0
    assert toolkit.after_s == 10.0


def test_a_quick_run_has_failures_stops_and_every_way_to_start():
    quick = [case for case in CASES if case.quick]
    assert {case.mode for case in quick} >= {"single", "ps", "mpi"} and {case.group for case in quick} >= {
        FAILURE,
        STOP,
    }
