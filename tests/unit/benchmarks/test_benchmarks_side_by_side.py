"""Test the pure parts of benchmarks/side_by_side: figures from marks and logs, cases of each side, --quick."""

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
from benchmarks.side_by_side import index, peers, quick, rounds
from benchmarks.side_by_side.aims import AIMS, aim
from benchmarks.side_by_side.cases import BY_HAND, CASES, DRIVERS, OURS, PLAIN, SIDES, UNWATCHED, Case
from benchmarks.side_by_side.job import Ending, Mark
from benchmarks.side_by_side.measures import ended_well, label, log_measures, measures
from benchmarks.side_by_side.run import Scripts
from benchmarks.side_by_side.usage import is_script

BY_NAME = {case.name: case for case in CASES}
TIME = "2026-11-21T10:00:00.500000000Z"
HOSTS = ["algo-1", "algo-2"]


def ended(host: str, finished: float | None, code: int | None = 0, started: float = 100.0, log: str = "") -> Ending:
    return Ending(host=host, started=started, finished=finished, exit_code=code, log=log)


def marks(case: Case, **values: float) -> list[Mark]:
    """Return the same marks for all processes; those of the n-th host come n seconds later."""
    return [Mark(f"algo-{n + 1}", "marks-7", what, at + n) for what, at in values.items() for n in range(case.hosts)]


def figures(case: Case, said: list[Mark], endings: list[Ending], event_at=None, killed=None, left_at=None):
    return measures(case, said, endings, event_at, killed, 5.0, printing_cpu_s=2.0, peak_bytes=7, left_at=left_at)


def test_start_and_tail_are_measured_at_the_last_process():
    case = BY_NAME["start-ps-2"]
    said = [*marks(case, first=102.0, last=110.0), Mark("algo-1", "marks-7", "cpu", 1.0)]
    endings = [ended("algo-1", 112.0), ended("algo-2", 111.5, started=101.0)]
    wanted = {"start_s": 2.0, "tail_s": 1.0, "wall_s": 12.0, "launcher_cpu_s": 4.0, "launcher_memory_bytes": 7}
    assert figures(case, said, endings) == wanted
    real = figures(BY_NAME["real-horovod-2"], said, endings, left_at=111.25)
    assert (real["tail_s"], real["launcher_tail_s"]) == (1.0, 0.75), "what the scripts take to leave counts apart"


def test_cut_or_early_ended_job_has_no_end_figures():
    case = BY_NAME["start-ps-2"]
    endings = [ended("algo-1", None, None), ended("algo-2", 111.5)]
    assert set(figures(case, marks(case, first=102.0), endings)) == {"start_s", "launcher_memory_bytes"}
    assert not ended_well(case, marks(case, last=110.0), endings, None)
    chief = [Mark("algo-1", "marks-7", "first", 102.0)]
    early = [ended("algo-1", 112.0, 1), ended("algo-2", 111.5)]
    assert figures(BY_NAME["real-deepfm-2"], chief, early) == {"start_s": 2.0}


FAILED = [ended("algo-1", 108.0, 1), ended("algo-2", 107.5, 1)]
LOST = [ended("algo-1", 112.0, 1), ended("algo-2", 105.0, 137)]
FAILS = [Mark("algo-2", f"marks-{n}", "fails", 107.0 + n) for n in (0, 1)]  # a build may be tried twice


@pytest.mark.parametrize(
    ("name", "said", "endings", "killed", "gone_s"),
    [
        ("raise-ps-2-worker", FAILS, FAILED, None, 1.0),
        ("kill-mpi-2-worker", [], LOST, "algo-2", 8.0),  # a killed host is not waited for
        ("install-mwms-2-worker-1", FAILS, FAILED, None, 1.0),
        ("packages-silent", [], [ended("algo-1", 108.0, 65)], None, 8.0),  # from its start
    ],
)
def test_time_to_end_counts_from_the_fault_and_every_host_must_fail(name, said, endings, killed, gone_s):
    case = BY_NAME[name]
    assert figures(case, said, endings, 104.0, killed)["gone_s"] == gone_s
    assert ended_well(case, said, endings, killed)
    assert not ended_well(case, said, [ended("algo-1", 112.0, 0), *endings[1:]], killed)


def test_stop_counts_as_correct_only_if_all_scripts_have_saved():
    case = BY_NAME["stop-ps-2"]
    said, endings = marks(case, first=102.0, heard=105.0, saved=106.0), [ended("algo-1", 108.0), ended("algo-2", 108.5)]
    assert figures(case, said, endings, 104.5) == {"told_s": 1.5, "gone_s": 4.0}
    assert ended_well(case, said, endings, None) and not ended_well(case, said[:-1], endings, None)


def test_hang_is_timed_to_launchers_line_and_last_hosts_end():
    case, at = BY_NAME["hang-mpi-2"], seconds(TIME)
    said = [*marks(case, first=101.0, trains=103.0), Mark("algo-2", "marks-7", "hangs", at - 20)]
    horovod = "[algo-1 rank 0] W One or more tensors were submitted to be reduced, gathered or broadcasted by subset"
    ours = f"{TIME} {horovod}\n{TIME.replace('00:00', '00:02')} [algo-1] warning: no progress in any process for 10 s\n"
    endings = [ended("algo-1", at + 3, 72, log=ours), ended("algo-2", at + 4, 72)]
    assert figures(case, said, endings) == {"hang_told_s": 22.0, "gone_s": 24.0}
    others = [ended("algo-1", None, None, log=f"{TIME} {horovod}\n"), ended("algo-2", None, None)]
    assert figures(case, said, others) == {}, "what Horovod prints is no word of our launcher's"


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
def test_log_lines_are_counted_as_split_mislabelled_or_unlabelled(log, split, mislabelled, unlabelled):
    found = log_measures({"algo-2": log}, 1, seconds(TIME) - 0.5)
    shares = {name: value for name, value in found.items() if name.endswith("_share")}
    assert shares == {"split_share": split, "mislabelled_share": mislabelled, "unlabelled_share": unlabelled}
    assert found["lines_per_s"] == (2.0 if log else 0.0)
    assert (label("[algo-1 script] "), label("[algo-1] ")) == (("algo-1", "-"), None)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root: the kernel tells nobody else")
def test_end_of_scripts_is_read_from_the_kernel(tmp_path):
    program = tmp_path / f"leaves-{os.getpid()}.py"
    program.write_text("import sys\nprint('last', flush=True)\nsys.stdin.read()\n")
    with (
        Scripts(program.name) as scripts,
        subprocess.Popen([sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
    ):
        assert process.stdout.readline() == b"last\n"
        assert scripts.ended_at() is None
        before = time.time()
        process.stdin.close()
        process.wait()
        assert before <= eventually(scripts.ended_at, within=60) <= time.time()


def test_only_python_running_the_script_counts_as_the_script():
    assert is_script([b"/opt/venv/bin/python", b"-m", b"mpi4py", b"acts.py", b""], b"acts.py")
    horovodrun = [b"/opt/venv/bin/python", b"/opt/venv/bin/horovodrun", b"-np", b"2", b"python", b"acts.py", b""]
    for words in (horovodrun, [b"mpirun", b"-np", b"2", b"python", b"acts.py"], [b"/bin/sh", b"-c", b"acts.py"], [b""]):
        assert not is_script(words, b"acts.py")


def test_package_index_lists_each_wheel_with_hash_and_metadata(tmp_path):
    wheel = tmp_path / "files" / "Needed_it-1-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("needed_it-1.dist-info/METADATA", "Name: needed-it\n")
    index.publish(wheel, tmp_path / "simple")
    page = (tmp_path / "simple/needed-it/index.html").read_text()
    for file in (wheel, wheel.with_name(f"{wheel.name}.metadata")):
        assert f"sha256={hashlib.sha256(file.read_bytes()).hexdigest()}" in page
    assert len(index.NEEDS) == max(index.NAMED) == 110


def test_silent_package_index_accepts_no_connection():
    server = index.silent()[0]
    with socket.socket() as client:
        client.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.connect(("127.0.0.1", server.getsockname()[1]))


def test_each_side_runs_the_cases_that_it_supports():
    assert all(case.runs_on(OURS) for case in CASES) and len(BY_NAME) == len(CASES)
    modes = {side: {case.mode for case in CASES if case.runs_on(side)} for side in (*SIDES[1:], PLAIN, "mpirun")}
    assert modes.pop("toolkit") == {"single", "mwms", "ps", "mpi"}
    assert modes == {DRIVERS: {"single", "mpi"}, PLAIN: {"single", "mwms"}, "mpirun": {"mpi"}}
    unwatched = {case.name for case in CASES if case.runs_on(UNWATCHED)}
    assert unwatched == {"start-single-1", "start-plain-2", "raise-single-1", "install-single-1"}
    assert not any(case.settings(side) for case in CASES for side in (*SIDES[1:], *BY_HAND))
    for each in AIMS:
        assert any(aim(name, each.measure) is each for name in BY_NAME), f"no case has the aim: {each.words}"


def test_first_host_starts_all_ranks_when_run_by_hand():
    case = BY_NAME["start-mpi-2x2"]
    *shell, script, side, python, program, option, value = peers.by_hand(case, "horovodrun-gloo", HOSTS, "algo-1")
    assert [*shell, python, program, option, value] == ["bash", "-c", "python", "acts.py", "--seconds", "4"]
    assert script.count("for host in algo-2; do") == 2, "waits for its sshd, and ends it"
    assert "horovodrun --gloo -np 4 -H algo-1:2,algo-2:2" in script
    subprocess.run(["bash", "-n", "-c", script], check=True)
    assert peers.by_hand(case, side, HOSTS, "algo-2")[-1].startswith("/usr/sbin/sshd -D;")


def test_multi_worker_mirrored_workers_run_by_hand_have_tf_config():
    env, tf_config, *words = peers.by_hand(BY_NAME["start-mwms-2"], PLAIN, HOSTS, "algo-2")
    assert [env, *words] == ["env", "python", "/opt/ml/code/acts.py", "--seconds", "4"]
    wanted = {"cluster": {"worker": ["algo-1:2222", "algo-2:2222"]}, "task": {"type": "worker", "index": 1}}
    assert json.loads(tf_config.removeprefix("TF_CONFIG=")) == wanted
    assert peers.by_hand(BY_NAME["start-plain-2"], PLAIN, HOSTS, "algo-2")[0] == "python"


@pytest.mark.parametrize(
    ("names", "sides", "waits", "alone", "together"),
    [
        (
            ["start-ps-2", "raise-mpi-2-rank-1", "raise-single-1"], ["ours", "toolkit"], rounds.waits,
            ["start-ps-2 ours", "start-ps-2 toolkit", "raise-single-1 ours", "raise-single-1 toolkit",
             "raise-mpi-2-rank-1 ours"], ["raise-mpi-2-rank-1 toolkit"],
        ),
        (
            ["raise-mpi-2-rank-1", "hang-mpi-2"], list(SIDES), rounds.waits,
            ["raise-mpi-2-rank-1 ours", "hang-mpi-2 ours"],
            ["raise-mpi-2-rank-1 toolkit", "raise-mpi-2-rank-1 drivers", "hang-mpi-2 toolkit", "hang-mpi-2 drivers"],
        ),
        (
            ["raise-mpi-2-rank-1", "start-mpi-2x1"], ["ours", "toolkit"], rounds.waits_in_its_tail,
            ["raise-mpi-2-rank-1 ours", "start-mpi-2x1 ours"], ["start-mpi-2x1 toolkit", "raise-mpi-2-rank-1 toolkit"],
        ),
    ],
)  # fmt: skip
def test_sides_alternate_and_only_waiting_cases_run_in_parallel(names, sides, waits, alone, together):
    log = []

    def do(case, side, at_work):
        log.append((f"{case.name} {side}", at_work is not None))
        return {"case": case.name, "side": side}

    due = [(BY_NAME[name], side) for name in names for side in sides]
    assert len(list(rounds.one_round(due, do, waits))) == len(due)
    assert [name for name, beside in log if not beside] == alone
    assert [name for name, beside in log if beside] == together


def run_of(case: str, side: str, cut: float | None = None, right: bool = True, **values: float):
    return {"case": case, "side": side, "measures": values, "cut_at_s": cut, "right": right, "exit_codes": [0]}


def test_quick_mode_repeats_slow_cases_and_reports_only_confirmed_ones():
    case = BY_NAME["start-ps-2"]
    slow, well = (run_of(case.name, "ours", start_s=seconds) for seconds in (3.35, 0.8))
    toolkit = run_of(case.name, "toolkit", start_s=4.8)
    assert quick.is_due(case, 1, []) and quick.is_due(case, 2, [slow, toolkit])
    assert not quick.is_due(case, 3, [slow, toolkit, well, toolkit])
    assert not quick.complaints([slow, toolkit, well, toolkit])
    assert "start_s is 3.35" in "".join(quick.complaints([slow, toolkit]))
    hangs, wrong = run_of("stop-single-1", "ours", cut=25.0), run_of("stop-single-1", "ours", right=False)
    assert "not ended after 25 s" in quick.complaints([hangs])[0] and "wrongly" in quick.complaints([wrong])[0]
    assert not quick.complaints([{**hangs, "side": "toolkit"}, {**wrong, "side": "toolkit"}])


def test_quick_cuts_slow_peer_and_counts_the_cut_as_duration():
    ours, toolkit = (quick.shortened(BY_NAME["raise-mpi-2-rank-1"], side) for side in ("ours", "toolkit"))
    assert (ours.after_s, toolkit.limit_s, toolkit.after_s) == (90.0, 90.0, 10.0)
    cut = run_of("raise-mpi-2-rank-1", "toolkit", cut=25.0, right=False)
    assert not quick.complaints([run_of("raise-mpi-2-rank-1", "ours", gone_s=12.0), cut])
    assert quick.complaints([run_of("raise-mpi-2-rank-1", "ours", gone_s=13.0), cut])
    assert {BY_NAME[name].mode for name in quick.CASES} == {"single", "ps", "mpi"}
