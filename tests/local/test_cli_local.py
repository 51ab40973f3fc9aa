"""Test `entrypoint local` from its command line: processes as hosts, signals, logs, tables and exit codes."""

import contextlib
import fcntl
import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from hosts import LONG, PROGRAMS, ROOT, Run, entrypoint
from waiting import eventually

from entrypoint.cli import main
from entrypoint.simulate.mounts import possible

pytestmark = pytest.mark.usefixtures("no_leftovers")


@pytest.fixture
def code(tmp_path):
    """Make a code folder with train.py."""
    folder = tmp_path / "code"
    folder.mkdir()

    def write(text: str) -> Path:
        (folder / "train.py").write_text(text)
        return folder / "train.py"

    return write


def host_pid(run: Run, number: int) -> int:
    """Return the pid of a simulated host's launcher, by SAGEMAKER_BASE_DIR in its environment; 0 if there is none."""
    mark = f"SAGEMAKER_BASE_DIR={run.ml(number)}\0".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
            if mark in (entry / "environ").read_bytes() and b"import train" in command:
                return int(entry.name)
        except OSError:
            continue
    return 0


# --- a job that ends well ---


WORKS = """
import json, os
where = json.loads(os.environ['TF_CONFIG'])['cluster']['worker']
print('I am', os.environ['SM_CURRENT_HOST'], 'of', len(where), len({a.split(':')[1] for a in where}))
open(os.environ['SM_MODEL_DIR'] + '/weights', 'w').write('1')
"""


def test_table_shows_that_every_host_ran_the_script(local):
    run = local(WORKS, count=2, mode="mwms")
    run.must_end(0, 0, 0)
    for rank, name in enumerate(("algo-1", "algo-2")):
        line = f"[{name} worker/{rank}] I am {name} of 2 2\n"  # ports differ, since hosts share the machine
        assert line in run.terminal
        assert line in run.log(rank + 1)
        assert [float(seconds) >= 0 for seconds in run.row(name)[2:]] == [True] * 3
        assert (run.ml(rank + 1) / "model" / "weights").exists()
        assert json.loads((run.ml(rank + 1) / "output" / "summary.json").read_text())["succeeded"]
    assert "model " in run.terminal and "failed" not in run.terminal


def test_script_gets_variables_and_folders_of_a_training_job(local, tmp_path):
    data = tmp_path / "my data"
    data.mkdir()
    (data / "rows").write_text("1")
    shell = {"TF_CONFIG": "of the shell", "SM_HP_LEFTOVER": "1", "SAGEMAKER_PROGRAM": "other.py"}
    run = local("tells.py", "--channel", f"train={data}", count=2, env={"GREETING": "a=b c"}, **shell)
    run.must_end(0)
    _, told = run.json_of("told.json")
    env = told["env"]
    assert env["SM_CURRENT_HOST"] == "algo-2" and json.loads(env["SM_HOSTS"]) == ["algo-1", "algo-2"]
    assert (Path(env["SM_CHANNEL_TRAIN"]) / "rows").read_text() == "1"
    assert Path(env["SM_MODEL_DIR"]) == run.ml(2) / "model"
    assert env["GREETING"] == "a=b c" and env["TRAINING_JOB_NAME"]
    assert "TF_CONFIG" not in env and "SM_HP_LEFTOVER" not in env  # of our shell, not of the job
    assert Path(told["cwd"]) == run.ml(2) / "code"


def test_code_is_copied_without_caches_environments_channels_and_output(local, code):
    program = code("import helper, os\nopen('new', 'w')\nprint(sorted(os.listdir()))")
    (program.parent / "helper.py").touch()
    (program.parent / "__pycache__").mkdir()
    for folder in (".git", "venv", ".venv", ".tox", "conda/conda-meta", ".cache", "data", "rows"):
        (program.parent / folder).mkdir(parents=True)
    for file in ("venv/pyvenv.cfg", ".cache/CACHEDIR.TAG", "rows/a.csv", "rows/_SUCCESS"):
        (program.parent / file).touch()
    (program.parent / "dangling").symlink_to("nowhere")
    # The output inside of the code folder, as with out/; no bytecode, so that __pycache__ could only be a copy.
    words = ("--output", str(program.parent / "out"), "--channel", f"train={program.parent / 'rows'}")
    run = local(program, *words, PYTHONDONTWRITEBYTECODE="1")
    assert run.end() == 0
    assert "['data', 'helper.py', 'new', 'train.py']" in run.terminal
    assert not (program.parent / "new").exists()
    assert run.terminal.count("channel train: _SUCCESS are in the folder, as on SageMaker") == 1


def test_option_source_names_the_code_folder(local, code):
    program = code("print('top')")
    (program.parent / "deep").mkdir()
    (program.parent / "deep" / "train.sh").write_text("#!/bin/sh\nls; pwd\n")
    run = local("deep/train.sh", "--source", str(program.parent))
    run.must_end(0)
    assert "[algo-1 script] train.py\n" in run.terminal and "/ml/code\n" in run.terminal


def test_output_of_an_earlier_job_is_kept(local, code):
    program = code("print('ok')")
    first = local(program)
    first.must_end(0)
    second = local(program, "--output", str(first.output))
    second.must_end(78)
    assert f"--output {first.output} has algo-1 of an earlier job; wanted a new or an empty folder" in second.terminal
    assert "ok" in first.log(1)


@pytest.mark.skipif(not possible(), reason="takes root, and mounts")
def test_script_that_writes_to_opt_ml_reaches_its_own_host_folder(local):
    in_opt = [path.name for path in Path("/opt").iterdir()]
    train = """
import os, pathlib
folder, me = pathlib.Path("/opt/ml/checkpoints"), os.environ["SM_CURRENT_HOST"]
folder.mkdir()
(folder / me).write_text(str(sorted(os.listdir("/opt"))))
pathlib.Path("/opt/ml/model/weights").touch()
assert os.listdir(os.environ["SM_MODEL_DIR"]) == ["weights"]
"""
    run = local(train, count=2)
    run.must_end(0)
    assert "names /opt/ml" not in run.terminal
    for number in (1, 2):
        (kept,) = (run.ml(number) / "checkpoints").iterdir()
        assert (kept.name, kept.read_text()) == (f"algo-{number}", str(sorted({*in_opt, "ml"})))
    assert [path.name for path in Path("/opt").iterdir()] == in_opt
    assert str(run.folder) not in Path("/proc/self/mounts").read_text()


LISTENS = """
import json, os, socket, time
tf = json.loads(os.environ['TF_CONFIG'])
ports = [int(a.split(':')[1]) for a in tf['cluster']['worker']]
server = socket.create_server(('0.0.0.0', ports[tf['task']['index']]))
print('ports', ports, flush=True)
deadline = time.time() + 600
while not os.path.exists(os.environ['GO']) and time.time() < deadline: time.sleep(0.02)
"""


def test_two_parallel_runs_share_no_ports_or_folders(local, tmp_path):
    """Each worker listens on its port, on all addresses, until the test ends it. No run uses the folder of another."""
    go = tmp_path / "go"
    runs = [local(LISTENS, count=2, mode="mwms", env={"GO": str(go)}) for _ in range(2)]
    for run in runs:
        run.says("[algo-1 worker/0] ports")
        run.says("[algo-2 worker/1] ports")
    busy = local(LISTENS, "--output", str(runs[0].output))
    busy.must_end(78)
    assert "is in use by another run" in busy.terminal
    go.touch()
    assert [run.end() for run in runs] == [0, 0]
    assert "ports" in runs[0].log(1)
    used = [re.findall(r"ports (\[.*\])", run.terminal)[0] for run in runs]
    assert used[0] != used[1]


# --- a job that does not end well ---


def test_script_ends_with_its_killed_host(local):
    run = local("sleeps.py", count=2, mode="mwms")
    run.says("[algo-1 worker/0] asleep")
    run.says("[algo-2 worker/1] asleep")
    script = int(re.search(r"worker/1 started, pid (\d+)", run.terminal)[1])
    os.kill(host_pid(run, 2), signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{script}/exe").exists(), within=LONG)  # nor of a zombie
    run.must_end(69, 69, "SIGKILL", cause="algo-2 (lost")
    assert run.row("algo-2")[1:] == ["SIGKILL", "-", "-", "-"]
    assert re.search(r"^failure +\S*/algo-1/ml/output/failure", run.terminal, re.MULTILINE)


def test_other_hosts_end_if_a_host_never_appears(local):
    """The host ends before it connects. Without a report, the others would wait for their start timeout of 1,200 s."""
    run = local("sleeps.py", count=2, mode="mwms")
    eventually(lambda: host_pid(run, 2), within=LONG)
    os.kill(host_pid(run, 2), signal.SIGKILL)
    assert run.end() in (69, 143)  # lost, if it was heard at all
    assert run.row("algo-2")[1] == "SIGKILL"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_stops_all_hosts_after_they_have_saved(local, number):
    run = local("saves.py", count=2, mode="mwms")
    run.says("[algo-1 worker/0] asleep")
    run.says("[algo-2 worker/1] asleep")
    run.process.send_signal(number)
    run.must_end(0)  # every script ended well
    assert (run.ml(2) / "model" / "saved-algo-2").exists()


def test_a_second_interrupt_kills_the_hosts(local):
    run = local("ignores_sigterm.py", count=2, mode="mwms")
    run.says("[algo-1 worker/0] asleep")
    run.says("[algo-2 worker/1] asleep")
    run.process.send_signal(signal.SIGINT)
    run.says("send it again to kill them")
    run.process.send_signal(signal.SIGINT)
    run.must_end(137, "SIGKILL", "SIGKILL")


def test_hosts_end_when_entrypoint_local_is_killed(local):
    run = local("sleeps.py", count=2)
    run.says("[algo-2 script] asleep")
    run.process.kill()
    run.process.wait()  # and the fixture no_leftovers sees that all hosts and scripts go, too


def test_job_ends_well_though_its_output_is_not_read(code, tmp_path):
    """The reader ends early, as in `entrypoint local ... | head -1`."""
    program = code("import time\nfor n in range(20): print(n, flush=True); time.sleep(0.05)")
    command = [sys.executable, "-m", "entrypoint", "local", str(program), "--output", str(tmp_path / "out")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)})
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(LONG) == 0
    assert "script] 19\n" in (tmp_path / "out" / "algo-1" / "log.txt").read_text()


# --- what the terminal shows ---


def test_entrypoint_local_prints_its_plan_first(local, code):
    run = local(
        code("print('ok')"), "--hyperparameters", "sagemaker_multi_worker_mirrored_strategy_enabled=true", count=2
    )
    run.must_end(0)
    lines = run.terminal.split("\n")
    assert re.fullmatch(r"runs     \S*code/train\.py: 2 hosts, mode mwms, engine process", lines[0])
    assert re.fullmatch(r"logs     \S*/algo-1/log\.txt \(and 1 more, one for each host\)", lines[1])


def test_the_summary_begins_with_the_cause_and_ends_with_the_paths_of_report_and_logs(local, code):
    run = local(code("raise ValueError('no such column')"), count=2, mode="mwms", FORCE_COLOR="1")
    run.must_end(1)
    end = run.terminal[run.terminal.index("\n\x1b[31mfailed\x1b[0m: ") :]
    assert "ValueError: no such column\n\nhost " in end
    assert re.findall(r"^\w+ +(?=\S*out/)", end, re.MULTILINE) == ["failure  ", "report   ", "logs     "]
    assert ["no such column" in log and "\x1b" not in log for log in (run.log(1), run.log(2))] == [
        True
    ] * 2  # no colour


def test_option_quiet_prints_only_states_and_messages(local, code):
    late = "late algo-2 for 1"
    run = local(code("print('step', 'one')"), "--quiet", count=2, faults=[late], env={"ENTRYPOINT_RESTART": "1"})
    run.must_end(0)
    lines = run.terminal.split("\n")
    assert lines[2] == (
        "warning: environment variable ENTRYPOINT_RESTART is not a setting of the launcher; ignored; did you mean "
        "ENTRYPOINT_RESTARTS? `entrypoint settings` lists all"
    )
    states = [line for line in lines if re.match(r"algo-\d: ", line)]
    assert sorted(states) == [f"algo-{n}: {state}" for n in (1, 2) for state in ("exit code 0", "runs")]
    assert states[0] == "algo-1: runs"
    assert "step one" not in run.terminal and f"fault after 0.00 s: {late}" in lines
    assert ["step one" in run.log(number) for number in (1, 2)] == [True] * 2


ESCAPE = re.compile(r"\x1b\[[?\d]*\w")


def on_a_terminal(command: list[str], rows: int, columns: int) -> str:
    """Run a command on a terminal of that size; return what it wrote."""
    pid, fd = pty.fork()
    if not pid:
        left_out = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
        environment = {name: value for name, value in os.environ.items() if name not in left_out}
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.execvpe(command[0], command, {**environment, "PYTHONPATH": str(ROOT), "TERM": "xterm"})
    written = b""
    with contextlib.suppress(OSError):  # EIO, as the terminal closes
        while block := os.read(fd, 1 << 16):
            written += block
    os.close(fd)
    os.waitpid(pid, 0)
    return written.decode("utf-8", "replace").replace("\r", "")


def screen(written: str, rows: int) -> list[str]:
    """Interpret the few terminal commands that are sent; return the lines on the screen and above it."""
    lines = [""]
    for part in re.findall(rf"{ESCAPE.pattern}|\n|[^\x1b\n]+", written):
        if found := re.fullmatch(r"\x1b\[(\d+)A", part):
            assert int(found[1]) < rows  # it reaches no line that has left the screen
            lines[-1 - int(found[1]) :] = [""]
        elif part == "\n":
            lines.append("")
        elif not part.startswith("\x1b"):
            lines[-1] += part
    return lines


def test_option_quiet_shows_a_line_per_host_until_the_summary(code, tmp_path):
    steps = "for n in range(3): print('step', n, 'x' * 200, flush=True); time.sleep(0.3)"
    text = f"import time\n{steps}\nraise ValueError('a ' * 90)"
    program = code(text)
    words = [str(program), "--hosts", "2", "--mode", "mwms", "--quiet", "--output", str(tmp_path / "out")]
    written = on_a_terminal([sys.executable, "-m", "entrypoint", "local", *words], rows=24, columns=80)
    drawn = re.findall(r"^algo-\d  .*$", ESCAPE.sub("", written), re.MULTILINE)
    assert any(re.fullmatch(r"algo-1  runs +\d s  \[worker/0\] step \d x+", row) for row in drawn)
    assert max(map(len, drawn)) <= 80
    assert any("exit code 1" in row for row in drawn)
    shown = screen(written, rows=24)
    assert not [line for line in shown if "step" in line]
    assert re.match(
        r"failed: algo-\d worker/\d \(exit code 1\): ValueError: a a ", "\n".join(shown).partition("\n\n")[2]
    )
    assert [line for line in shown if len(line) > 80 and str(tmp_path) not in line] == []  # a path is not broken


def test_hosts_beyond_the_lines_of_the_terminal_are_counted(tmp_path):
    program = (
        "from entrypoint.simulate.host_output import Quiet\n"
        "terminal = Quiet({}, [f'algo-{n + 1}' for n in range(40)])\n"
        "for n in range(40): terminal.state(f'algo-{n + 1}', 'runs')\n"
        "terminal.print('the end'); terminal.tick()"
    )
    written = on_a_terminal([sys.executable, "-c", program], rows=24, columns=80)
    shown = screen(written, rows=24)
    assert len(shown) == 24 and shown[0] == "the end"
    assert shown[1].startswith("algo-1 ") and shown[22] == "and 19 more hosts" and shown[23] == ""


# --- what cannot be run is said before anything starts ---


REFUSED = {
    "no program": (["missing.py"], 65, "there is no program"),
    "no channel folder": (["sleeps.py", "--channel", "train=nowhere"], 78, "no such folder"),
    "channel without folder": (["sleeps.py", "--channel", "train"], 78, "wanted name=value"),
    "no docker": (["sleeps.py", "--engine", "docker"], 78, "use --engine process"),
    "no fault of this engine": (
        ["sleeps.py", "--fault", "cut algo-1"], 78, "engine process cannot cut; wanted --engine netns or"
    ),
    "no mpirun": (["sleeps.py", "--hosts", "2", "--mode", "mpi"], 78, "mpirun (apt-get install openmpi-bin)"),
}  # fmt: skip


@pytest.mark.parametrize("words, code, said", REFUSED.values(), ids=REFUSED)
def test_a_job_that_cannot_run_is_refused_before_anything_starts(tmp_path, monkeypatch, capfd, words, code, said):
    program, *rest = words
    monkeypatch.setenv("PATH", str(tmp_path))  # where neither docker nor mpirun is
    monkeypatch.chdir(tmp_path)
    assert main.run(["local", str(PROGRAMS / program), *rest, "--output", "out"], {"PATH": str(tmp_path)}) == code
    terminal = "".join(capfd.readouterr())
    assert terminal.startswith("error: ") and terminal.count("\n") == 1
    assert said in terminal
    assert not (tmp_path / "out").exists()


def without_base(text: str) -> str:
    """Return addresses (control ports) and ports counted from their base, which differs between runs."""
    moved = r"127\.(\d+)\.(\d+)\.1:(\d+)"
    base = min(256 * int(high) + int(low) for high, low, _ in re.findall(moved, text))

    def unmoved(found: re.Match[str]) -> str:
        return f"{256 * int(found[1]) + int(found[2]) - base}:{int(found[3]) - base}"

    return re.sub(moved, unmoved, text)


def test_first_example_in_the_help_works(code):
    """The command runs unchanged, in a folder with a train.py."""
    example = re.search(r"^  entrypoint (local .*)", entrypoint("local", "--help").stdout, re.MULTILINE)[1]
    program = code("import os; print('I am', os.environ['SM_CURRENT_HOST'])")
    done = entrypoint(*shlex.split(example), cwd=program.parent)
    assert done.returncode == 0
    assert "script] I am algo-1\n" in done.stdout


def test_option_plan_prints_the_plan_of_the_run_and_runs_nothing(local):
    planned = local("tells.py", "--plan", count=2, mode="mwms")
    planned.must_end(0)
    assert not planned.output.exists()
    run = local("tells.py", count=2, mode="mwms")
    run.must_end(0)
    for told in run.json_of("told.json"):
        assert f"TF_CONFIG='{without_base(told['env']['TF_CONFIG'])}'" in without_base(planned.terminal)
