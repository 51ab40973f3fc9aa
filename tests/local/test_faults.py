"""Test `entrypoint local --fault`: what each fault does to hosts as processes and in namespaces; nothing is left."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hosts import LONG, PROGRAMS, ROOT, Run
from open_mpi import DAEMON
from outcomes.outside import HELD
from processes import processes_with
from variants import variants
from waiting import eventually

from entrypoint.cli import main

BEFORE = "step 3;"  # a line that says that all is well under way
STEPS = ("--hyperparameters", "steps=1200")  # longer than a fault takes to come, and not for ever where it is missed
# For hosts that are away for seconds: a busy machine may bring them back later than that.
PATIENT = {"ENTRYPOINT_PEER_TIMEOUT": "60"}

pytestmark = pytest.mark.usefixtures("no_leftovers")


# Signals are the same with each; the outcome table has many more faults of processes.
@pytest.fixture(params=[pytest.param("process", marks=[pytest.mark.more] if os.geteuid() == 0 else []), "netns"])
def engine(request) -> str:
    return request.getfixturevalue("netns") if request.param == "netns" else request.param


@pytest.fixture
def local(local, tmp_path):
    """Start `entrypoint local`, by default on three hosts."""

    def start(
        engine: str, *words: str, program=PROGRAMS / "beats.py", mode="mwms", count=3, faults=(), **env: str
    ) -> Run:
        words = ("--hosts", str(count), "--mode", mode, "--engine", engine, *words)
        words += tuple(word for fault in faults for word in ("--fault", fault))
        return local(program, *words, TEST_FOLDER=str(tmp_path), **env)

    return start


@pytest.fixture
def meeting():
    """Return a folder that all hosts see, even if each has its own /tmp."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield folder


@pytest.fixture
def until(local, meeting):
    """Start a job whose scripts last until a line was printed, such as the one on the end of a fault."""

    def start(engine: str, line: str, *words: str, **options) -> Run:
        over = Path(meeting, "over")
        run = local(engine, "--hyperparameters", "steps=0", f"until={over}", *words, **options)
        run.says(line)
        over.touch()
        return run

    return start


def code(tmp_path: Path, text: str) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text(text)
    return folder / "train.py"


# --- kill, stop, pause: every engine of this machine ---


@pytest.mark.more  # the outcome table has it
@pytest.mark.parametrize(
    ("victim", "exits"),
    [(2, ["69", "SIGKILL", "69"]), pytest.param(1, ["SIGKILL", "69", "69"], marks=pytest.mark.more)],
)
def test_kill_a_host(local, engine, victim, exits):
    fault = f"kill algo-{victim} when '{BEFORE}'"
    run = local(engine, *STEPS, faults=[fault])
    assert run.end() == {"69": 69, "SIGKILL": 137}[exits[0]]
    assert run.exits == exits
    assert f"algo-{victim} (lost" in run.cause
    assert re.fullmatch(rf"fault: {re.escape(fault)}, after \d+\.\d\d s", run.faults[0])
    assert re.search(rf"^fault after \d+\.\d\d s: {re.escape(fault)}$", run.terminal, re.MULTILINE)


@pytest.mark.more  # one after the other, below
@pytest.mark.parametrize(
    "process", [pytest.param("worker/1", marks=pytest.mark.more), "beats.py"]
)  # as the plan calls it, and by its program
def test_kill_a_process(local, engine, process):
    run = local(engine, *STEPS, faults=[f"kill algo-2:{process} when '{BEFORE}'"])
    assert run.end() == 137
    assert run.exits == ["137"] * 3
    assert run.cause == "algo-2 worker/1 (killed by SIGKILL)"


@pytest.mark.more  # the outcome table has it
def test_kill_a_process_of_the_start(local, engine, tmp_path):
    program = code(tmp_path, "print('started')\n")
    for name, text in HELD.items():  # else it might be over before it is found
        (program.parent / name).write_text(text)
    run = local(engine, program=program, faults=["kill algo-3:prepare"])
    assert run.end() == 137
    assert run.cause.startswith("algo-3 prepare (killed by SIGKILL")


def test_kill_all(local, engine):
    run = local(engine, *STEPS, count=2, faults=[f"kill all when '{BEFORE}'"])
    assert run.end() == 137
    assert run.exits == ["SIGKILL"] * 2


@pytest.mark.parametrize(
    "whom", ["algo-3", *(pytest.param(whom, marks=pytest.mark.more) for whom in ("algo-1", "all"))]
)
def test_stop(local, engine, tmp_path, meeting, whom):
    """Every script saves and exits with 0."""
    program = code(
        tmp_path,
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        "def save(*_):\n"
        "    Path(os.environ['SM_MODEL_DIR'], 'saved').write_text('weights')\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "Path(os.environ['MEETING'], os.environ['SM_CURRENT_HOST']).touch()\n"
        "while len(os.listdir(os.environ['MEETING'])) < 3:\n"
        "    time.sleep(0.05)\n"
        "print('all are here', flush=True)\n"
        "time.sleep(600)\n",
    )
    run = local(engine, "--env", f"MEETING={meeting}", program=program, faults=[f"stop {whom} when 'all are here'"])
    assert run.end() == 0
    assert len(run.faults) == 1 and run.faults[0].startswith(f"fault: stop {whom} when 'all are here', after ")
    assert all((run.ml(number) / "model" / "saved").exists() for number in (1, 2, 3))


def test_stop_that_comes_with_the_start_is_heard(local, engine):
    """A host that cannot receive it yet gets it as soon as it can."""
    run = local(engine, program=PROGRAMS / "sleeps.py", faults=["stop all"])
    assert run.end() == 143
    assert run.exits == ["143"] * 3


def test_a_host_that_is_stopped_before_the_coordinator_is_there_stops_the_job(local, engine):
    faults = ["late algo-1 for 1.2", "stop algo-2"]
    run = local(engine, program=PROGRAMS / "sleeps.py", faults=faults, ENTRYPOINT_START_TIMEOUT="60")
    assert run.end() == 143
    assert run.exits == ["143", "143", "143"]
    assert "a host failed" not in run.terminal  # else `entrypoint local` has stopped them


@pytest.mark.more  # the outcome table has it
def test_stop_a_process(local, engine):
    run = local(engine, *STEPS, faults=[f"stop algo-2:worker/1 when '{BEFORE}'"])
    assert run.end() == 143
    assert "algo-2 worker/1" in run.cause


@pytest.mark.more  # one after the other, below
def test_pause_for_less_than_the_peer_timeout(until, engine):
    run = until(engine, "fault over", faults=[f"pause algo-2 when '{BEFORE}' for 2"], **PATIENT)
    assert run.end() == 0
    assert run.exits == ["0"] * 3
    begin, end = map(float, re.search(r", from (\S+) s to (\S+) s$", run.faults[0]).groups())
    assert end - begin > 1.98  # both figures are printed in hundredths
    # It stood still: what it said first afterwards, others had said long before.
    during = run.terminal.partition("fault after")[2].partition("fault over")[0]
    assert during.count("[algo-1 worker/0] step") > during.count("[algo-2 worker/1] step")


@pytest.mark.more  # the outcome table has it
@pytest.mark.parametrize("victim", [1, pytest.param(2, marks=pytest.mark.more)])
def test_pause_for_good(local, engine, victim):
    run = local(engine, *STEPS, faults=[f"pause algo-{victim} when '{BEFORE}'"])
    assert run.end() in (69, 137)
    assert run.exits == ["SIGKILL" if victim == number else "69" for number in (1, 2, 3)]
    assert f"algo-{victim} (lost" in run.cause
    assert f"only permanently paused hosts are left: killing algo-{victim}" in run.terminal


def test_pause_a_process(until, engine):
    run = until(engine, "fault over", count=2, faults=[f"pause algo-2:worker/1 when '{BEFORE}' for 2"])
    assert run.end() == 0
    assert "fault over" in run.terminal


def test_stall(local, engine, tmp_path, meeting):
    """More output than a pipe holds, while it is not read: all of it comes when it is read, and other hosts go on."""
    # A host that ends gives up its output after seconds: this one's script lasts until the stall is over.
    program = code(
        tmp_path,
        """
import os, time
def wait_for(name):
    while not os.path.exists(os.environ["MEETING"] + name):
        time.sleep(0.05)
print("here", flush=True)
wait_for("/stalled")
for number in range(1000):
    print(number, '.' * 100, flush=True)
if os.environ["SM_CURRENT_HOST"] == "algo-2":
    wait_for("/over")
""",
    )
    fault = "stall algo-2 when 'algo-2 worker/1] here' for 10"
    run = local(engine, "--env", f"MEETING={meeting}", program=program, count=2, faults=[fault])
    run.says("fault after")
    Path(meeting, "stalled").touch()
    run.says("fault over")
    Path(meeting, "over").touch()
    assert run.end() == 0
    lines = re.findall(r"^\[algo-2 worker/1\] (\d+) \.{100}$", run.terminal, re.MULTILINE)
    assert lines == [str(number) for number in range(1000)]
    before = run.terminal.partition("fault over")[0]
    assert "[algo-1 worker/0] 999 " in before and "[algo-2 worker/1] 999 " not in before


@pytest.mark.more  # the outcome table has it
def test_late(local, engine):
    run = local(engine, faults=["late algo-2 for 3", "late algo-1 for 1"])
    assert run.end() == 0
    before = re.split(r"fault over after \S+ s: late algo-2", run.terminal)[0]
    assert "[algo-2]" not in before
    assert "started, pid" not in before  # nobody trains before all are there


def test_faults_one_after_the_other(local, engine):
    run = local(
        engine,
        *STEPS,
        faults=["late algo-3 for 1", f"pause algo-2 when '{BEFORE}' for 1", "kill algo-3:beats.py when 'step 20;'"],
        **PATIENT,
    )
    assert run.end() == 137
    assert run.cause == "algo-3 worker/2 (killed by SIGKILL)"
    assert [fault.split()[1] for fault in run.faults] == ["late", "pause", "kill"]


def test_what_never_happens_is_said(local, engine):
    faults = ["kill algo-2:nobody", "kill algo-1 when 'a text that nobody writes'", "stop algo-3 at 900"]
    run = local(engine, "--hyperparameters", "steps=3", faults=faults)
    assert run.end() == 0
    assert run.faults == [
        "fault never happened: kill algo-2:nobody",
        "fault never happened: kill algo-1 when 'a text that nobody writes'",
        "fault never happened: stop algo-3 at 900",
    ]


# --- with MPI ---


@pytest.fixture
def mpi() -> None:
    pytest.importorskip("mpi4py")
    if not (shutil.which("mpirun") and Path("/usr/sbin/sshd").exists()):
        pytest.skip("Open MPI and sshd are not here")


@pytest.mark.parametrize(
    ("whom", "cause"),
    [
        pytest.param("'algo-2:rank 1'", "algo-2 rank 1 (killed by SIGKILL)", marks=pytest.mark.more),
        pytest.param("algo-1:mpirun", "algo-1 mpirun (killed by SIGKILL)", marks=pytest.mark.more),
        pytest.param("algo-3:sshd", "algo-3 sshd (ended too early, killed by SIGKILL)", marks=pytest.mark.more),
        (f"algo-3:{DAEMON}", "algo-3"),
    ],
)
def test_kill_a_process_of_mpi(local, engine, mpi, whom, cause):
    run = local(engine, "--hyperparameters", "steps=600", mode="mpi", faults=[f"kill {whom} when '{BEFORE}'"])
    assert run.end() not in (0, 143)
    assert run.cause.startswith(cause)
    assert run.faults[0].startswith("fault: kill ")


# --- what takes a network and a file system of one's own ---


@pytest.mark.more  # the outcome table has it
def test_cut_for_less_than_the_peer_timeout(until, netns):
    run = until(netns, "fault over", faults=[f"cut algo-2 when '{BEFORE}' for 3"], **PATIENT)
    assert run.end() == 0
    assert run.exits == ["0"] * 3
    assert "fault over" in run.terminal


@pytest.mark.more  # the outcome table has it
@pytest.mark.parametrize("victim", [1, 3])
def test_cut_for_good(local, netns, victim):
    run = local(netns, *STEPS, faults=[f"cut algo-{victim} when '{BEFORE}'"])
    assert run.end() == 69
    assert run.exits == ["69"] * 3


def test_a_cut_is_silent_and_heals(local, netns, tmp_path):
    """A connection stays open through it; a new one is neither refused nor gets "no such host"."""
    program = code(
        tmp_path,
        "import os, socket, time\n"
        "me, port = os.environ['SM_CURRENT_HOST'], 5000\n"
        "def serve():\n"
        "    with socket.create_server(('', port)) as server:\n"
        "        print('serving', flush=True)\n"
        "        connection = server.accept()[0]\n"
        "        while data := connection.recv(100):\n"
        "            connection.sendall(data)\n"
        "def connect(**options):\n"
        "    return socket.create_connection(('algo-1', port), **options)\n"
        "def ask(connection):\n"
        "    connection.sendall(b'are you there?')\n"
        "    return connection.recv(100)\n"
        "def talk():\n"
        "    while True:\n"
        "        try:\n"
        "            connection = connect(timeout=30)\n"
        "            break\n"
        "        except ConnectionRefusedError:\n"
        "            time.sleep(0.1)\n"
        "    print('heard', ask(connection), flush=True)\n"
        "    while True:\n"
        "        connection.settimeout(1.0)\n"
        "        try:\n"
        "            ask(connection)\n"
        "            continue\n"
        "        except TimeoutError:\n"
        "            pass\n"  # of the cut, or of a busy machine
        "        try:\n"
        "            connect(timeout=4.0).close()\n"  # longer than it takes to find out that nobody has an address
        "        except TimeoutError as error:\n"
        "            print('silence:', error, flush=True)\n"
        "            break\n"
        "        connection.settimeout(60)\n"
        "        connection.recv(100)\n"
        "    connection.settimeout(60)\n"
        "    print('again', connection.recv(100), flush=True)\n"
        "serve() if me == 'algo-1' else talk() if me == 'algo-2' else None\n",
    )
    fault = "cut algo-1 when 'heard' for 12"
    run = local(netns, program=program, count=2, faults=[fault], **PATIENT)
    assert run.end() == 0
    assert "[algo-2 worker/1] silence: timed out" in run.terminal
    assert "[algo-2 worker/1] again b'are you there?" in run.terminal


def test_hide(local, netns):
    run = local(netns, "--hyperparameters", "steps=3", count=2, faults=["hide algo-2 for 8"])
    others, own = (run.folder / "out" / host / "hosts" for host in ("algo-1", "algo-2"))
    eventually(lambda: own.exists() and "algo-2 " in own.read_text(), within=LONG)
    run.says("fault after 0.00 s: hide algo-2 for 8")
    eventually(others.exists, within=LONG)
    seen = others.read_text()
    assert "\n10.0.1.2 algo-2" not in seen or "fault over" in run.terminal  # on a busy machine this looks too late
    assert "\n10.0.1.2 algo-2 " in own.read_text()
    assert run.end() == 0
    assert "started, pid" not in run.terminal.partition("fault over")[0]
    assert "\n10.0.1.2 algo-2\n" in others.read_text()


FULL = (
    "import os, sys, time\n"
    "folder = os.environ['SM_MODEL_DIR' if sys.argv[1:] == ['--where', 'model'] else 'SM_OUTPUT_DATA_DIR']\n"
    "open_one = open(folder + '/open', 'w')\n"
    "open(folder + '/before', 'w').write('before')\n"
    "print('written', flush=True)\n"
    "for number in range(600):\n"
    "    try:\n"
    "        with open(f'{folder}/{number}', 'w') as file:\n"
    "            file.write('x' * 5000)\n"
    "    except OSError:\n"
    "        open_one.write('x' * 5000)\n"
    "        open_one.flush()\n"
    "        print('the open one takes more', flush=True)\n"
    "        raise\n"
    "    time.sleep(0.1)\n"
)


FULLY = {
    "fill output": ("fill", "No space left on device", "output"),
    "readonly model": ("readonly", "Read-only file system", "model"),
    "fill model": ("fill", "No space left on device", "model"),
    "readonly output": ("readonly", "Read-only file system", "output"),
}


@pytest.mark.parametrize("action, error, folder", variants(FULLY, "fill output"))
def test_a_folder_that_takes_no_more(local, netns, tmp_path, action, error, folder):
    fault = f"{action} algo-2:{folder} when 'worker/1] written'"
    run = local(netns, "--hyperparameters", f"where={folder}", program=code(tmp_path, FULL), count=2, faults=[fault])
    assert run.end() == 1
    assert run.exits == ["1"] * 2
    assert run.cause.startswith("algo-2 worker/1 (exit code 1): OSError: ") and error in run.cause
    assert ("the open one takes more" in run.terminal) == (action == "readonly")
    # What was there before is in the host's folder, and nothing that we needed is.
    left = run.ml(2) / ("model" if folder == "model" else "output/data")
    assert (left / "before").read_text() == "before"
    assert not list(run.ml(2).rglob(".full"))
    assert (run.ml(1) / "output" / "failure").read_text().startswith("algo-2 worker/1")
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


# --- hosts in namespaces ---


def test_a_host_in_namespaces_is_like_one_of_sagemaker(local, netns, tmp_path):
    data = tmp_path / "my data"
    data.mkdir()
    (data / "rows").write_text("1")
    program = code(
        tmp_path,
        "import json, os, socket\n"
        "from pathlib import Path\n"
        "def refused(path):\n"
        "    try:\n"
        "        Path(path).write_text('')\n"
        "    except OSError as error:\n"
        "        return error.strerror\n"
        "Path('/tmp/mine').write_text('')\n"
        "told = {\n"
        "    'env': dict(os.environ), 'cwd': os.getcwd(), 'hostname': socket.gethostname(),\n"
        "    'parent': os.getppid(), 'cards': [name for _, name in socket.if_nameindex()],\n"
        "    'address': socket.gethostbyname(os.environ['SM_CURRENT_HOST']),\n"
        "    'own': socket.gethostbyname(socket.gethostname()),\n"
        "    'tmp': os.listdir('/tmp'), 'ml': sorted(os.listdir('/opt/ml')), 'opt': sorted(os.listdir('/opt')),\n"
        "    'rows': Path('/opt/ml/input/data/train/rows').read_text(),\n"
        "    'channel': refused('/opt/ml/input/data/train/new'),\n"
        "    'pids': len([name for name in os.listdir('/proc') if name.isdigit()]),\n"
        "}\n"
        "Path('/opt/ml/output/data/told.json').write_text(json.dumps(told))\n"
        "Path('/opt/ml/model/weights').write_text('1')\n",
    )
    run = local(netns, "--channel", f"train={data}", program=program, mode="single")
    assert run.end() == 0
    for number in (1, 2, 3):
        told = json.loads((run.ml(number) / "output" / "data" / "told.json").read_text())
        assert told["parent"] == 1
        assert told["cards"] == ["lo", "eth0"]
        assert told["address"] == told["own"] == f"10.0.1.{number}"
        assert told["hostname"] == told["env"]["HOSTNAME"] == f"ip-10-0-1-{number}.ec2.internal"
        assert told["cwd"] == "/opt/ml/code" and told["env"]["SM_MODEL_DIR"] == "/opt/ml/model"
        assert told["env"]["SM_NETWORK_INTERFACE_NAME"] == "eth0"
        assert "mine" in told["tmp"] and tmp_path.parts[2] not in told["tmp"]  # its own /tmp, not ours
        assert told["ml"] == ["code", "input", "model", "output"]
        assert set(told["opt"]) == {path.name for path in Path("/opt").iterdir()} | {"ml"}
        assert told["rows"] == "1" and told["channel"] == "Read-only file system"
        assert told["pids"] < 10
        assert not [name for name in told["env"] if name.startswith("ENTRYPOINT_NETNS")]
        assert (run.ml(number) / "model" / "weights").exists()
    assert not Path("/tmp/mine").exists()
    assert not (data / "new").exists()


def test_the_plan_in_namespaces_is_sagemakers(local, netns):
    run = local(netns, "--plan", mode="ps" if shutil.which("tensorflow") else "mwms")
    assert run.end() == 0
    assert "algo-2:8890" in run.terminal and "127." not in run.terminal
    assert "/opt/ml" in run.terminal or "cd " not in run.terminal


def test_runs_side_by_side(local, netns):
    fault = f"cut algo-1 when '{BEFORE}' for 1"
    runs = [local(netns, count=2, faults=[fault], **PATIENT) for _ in range(2)]
    assert [run.end() for run in runs] == [0] * 2


def test_nothing_is_left_of_hosts_in_namespaces_whose_run_is_killed(local, netns, tmp_path):
    """At the start, which takes several steps, and in the middle. A namespace goes with the last process in it."""
    for text in ("", "[algo-1]", BEFORE):
        run = local(netns, *STEPS, faults=["fill algo-1:output", f"cut algo-2 when '{BEFORE}'"])
        run.says(text)
        run.process.kill()
        run.process.wait()
    eventually(lambda: not processes_with(str(tmp_path)), within=60, what="no process of its hosts left")
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    assert not list(Path("/run/netns").glob("*") if Path("/run/netns").exists() else [])


def test_two_interrupts_kill_a_frozen_run(local, netns):
    faults = [f"pause algo-2 when '{BEFORE}'"]
    # Else the job may end before SIGINT.
    run = local(netns, *STEPS, count=2, faults=faults, ENTRYPOINT_PEER_TIMEOUT="600")
    run.says("fault after")
    run.process.send_signal(signal.SIGINT)
    run.says("SIGINT: stopping all hosts")
    run.process.send_signal(signal.SIGINT)
    assert run.end() in (137, 143)
    assert run.exits[1] == "SIGKILL"


# --- what is refused ---


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("cut algo-2", "engine process cannot cut; wanted --engine netns or --engine docker"),
        ("fill algo-2:model", "engine process cannot fill; wanted --engine netns or --engine docker"),
        ("kill algo-4", "found 'algo-4' as the host; wanted all or algo-1, algo-2, algo-3"),
        ("explode algo-2", "found 'explode'; wanted one of kill, stop, pause"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_starts(tmp_path, capfd, fault, message):
    words = ["local", str(PROGRAMS / "beats.py"), "--hosts", "3", "--engine", "process", "--fault", fault]
    assert main.run([*words, "--output", str(tmp_path / "out")], {}) == 78
    terminal = "".join(capfd.readouterr())
    assert terminal.count("\n") == 1 and message in terminal
    assert not (tmp_path / "out").exists()


def test_help_shows_the_faults():
    answer = subprocess.run(
        [sys.executable, "-m", "entrypoint", "help", "faults"],
        capture_output=True,
        text=True,
        timeout=LONG,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"},
    )
    assert "ACTION TARGET [at SECONDS | when TEXT] [for SECONDS]" in answer.stdout
    for word in ("kill", "stop", "pause", "cut", "late", "hide", "fill", "readonly"):
        assert re.search(rf"^  {word} ", answer.stdout, re.MULTILINE), word
