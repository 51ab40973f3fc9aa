"""Test `entrypoint local --fault`: the effect of faults on hosts, hosts in namespaces, and the clean-up.

The outcome table injects each kind of fault; unit/simulate/test_fault.py tests when and where a fault happens.
"""

import re
import shutil
import signal
from pathlib import Path

import pytest
from hosts import entrypoint
from processes import processes_with
from waiting import eventually

BEFORE = "step 3;"  # a line that says that all is well under way
STEPS = ("--hyperparameters", "steps=1200")  # longer than a fault takes to come, and not for ever where it is missed
# For hosts that are away for seconds: a busy machine may bring them back later than that.
PATIENT = {"ENTRYPOINT_PEER_TIMEOUT": "60"}


@pytest.fixture
def local(local, tmp_path):
    """Start `entrypoint local`, by default on three hosts whose scripts beat."""

    def start(engine: str, *words: str, program="beats.py", mode="mwms", count=3, **options):
        return local(program, *words, mode=mode, count=count, engine=engine, TEST_FOLDER=str(tmp_path), **options)

    return start


def test_faults_happen_in_their_order(local, engine):
    faults = ["late algo-3 for 1", f"pause algo-2 when '{BEFORE}' for 1", "kill algo-3:beats.py when 'step 20;'"]
    run = local(engine, *STEPS, faults=faults, **PATIENT)
    run.must_end(137, cause="algo-3 worker/2 (killed by SIGKILL)")
    assert [fault.split()[1] for fault in run.faults] == ["late", "pause", "kill"]
    assert re.fullmatch(rf"fault: {re.escape(faults[2])}, after \d+\.\d\d s", run.faults[2])
    assert re.search(rf"^fault after \d+\.\d\d s: {re.escape(faults[2])}$", run.terminal, re.MULTILINE)


def test_all_hosts_can_be_killed_at_once(local, engine):
    local(engine, *STEPS, count=2, faults=[f"kill all when '{BEFORE}'"]).must_end(137, "SIGKILL", "SIGKILL")


def test_sigterm_during_the_start_reaches_every_host(local, engine):
    """A host that cannot receive SIGTERM yet gets it as soon as it can."""
    local(engine, program="sleeps.py", faults=["stop all"]).must_end(143, 143, 143, 143)


def test_sigterm_of_a_follower_before_the_coordinator_starts_stops_the_job(local, engine):
    faults = ["late algo-1 for 1.2", "stop algo-2"]
    run = local(engine, program="sleeps.py", faults=faults, ENTRYPOINT_START_TIMEOUT="60")
    run.must_end(143, 143, 143, 143)
    assert "a host failed" not in run.terminal  # else `entrypoint local` has stopped them


def test_paused_process_stands_still_and_continues(local, engine, shared):
    faults = [f"pause algo-2:worker/1 when '{BEFORE}' for 2"]
    run = local(engine, "--hyperparameters", "steps=0", f"until={shared}/over", count=2, faults=faults)
    run.says("fault over")
    during = run.terminal.partition("fault after")[2].partition("fault over")[0]
    (shared / "over").touch()
    run.must_end(0)
    assert during.count("[algo-1 worker/0] step") > during.count("[algo-2 worker/1] step")


STALLS = """
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
"""


def test_output_of_a_host_arrives_after_a_pause_of_its_reader(local, engine, shared):
    """The output is larger than a pipe, and other hosts continue. A host that ends discards it after some seconds."""
    fault = "stall algo-2 when 'algo-2 worker/1] here' for 10"
    run = local(engine, program=STALLS, count=2, faults=[fault], env={"MEETING": str(shared)})
    run.says("fault after")
    (shared / "stalled").touch()
    run.says("fault over")
    (shared / "over").touch()
    run.must_end(0)
    lines = re.findall(r"^\[algo-2 worker/1\] (\d+) \.{100}$", run.terminal, re.MULTILINE)
    assert lines == [str(number) for number in range(1000)]
    before = run.terminal.partition("fault over")[0]
    assert "[algo-1 worker/0] 999 " in before and "[algo-2 worker/1] 999 " not in before


# --- what takes a network and a file system of one's own ---

TALKS = """
import os, socket, time
me, port = os.environ["SM_CURRENT_HOST"], 5000
def serve():
    with socket.create_server(("", port)) as server:
        print("serving", flush=True)
        connection = server.accept()[0]
        while data := connection.recv(100):
            connection.sendall(data)
def connect(**options):
    return socket.create_connection(("algo-1", port), **options)
def ask(connection):
    connection.sendall(b"are you there?")
    return connection.recv(100)
def talk():
    while True:
        try:
            connection = connect(timeout=30)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    print("heard", ask(connection), flush=True)
    while True:
        connection.settimeout(1.0)
        try:
            ask(connection)
            continue
        except TimeoutError:
            pass  # of the cut, or of a busy machine
        try:
            connect(timeout=4.0).close()  # longer than it takes to find out that nobody has an address
        except TimeoutError as error:
            print("silence:", error, flush=True)
            break
        connection.settimeout(60)
        connection.recv(100)
    connection.settimeout(60)
    print("again", connection.recv(100), flush=True)
serve() if me == "algo-1" else talk()
"""


def test_connections_survive_a_cut_of_the_network(local, netns):
    """An open connection stays open. A new one is neither refused nor reported as "no such host"."""
    run = local(netns, program=TALKS, count=2, faults=["cut algo-1 when 'heard' for 12"], **PATIENT)
    run.must_end(0)
    assert "[algo-2 worker/1] silence: timed out" in run.terminal
    assert "[algo-2 worker/1] again b'are you there?" in run.terminal


FILLS = """
import os, time
folder = os.environ["SM_OUTPUT_DATA_DIR"]
open(folder + "/before", "w").write("before")
print("written", flush=True)
for number in range(600):
    with open(f"{folder}/{number}", "w") as file:
        file.write("x" * 5000)
    time.sleep(0.1)
"""


def test_disk_full_fault_keeps_earlier_files_and_is_cleaned_up(local, netns, tmp_path):
    run = local(netns, program=FILLS, count=2, faults=["fill algo-2:output when 'worker/1] written'"])
    run.must_end(1, 1, 1, cause="algo-2 worker/1 (exit code 1): OSError: [Errno 28] No space left on device")
    assert (run.ml(2) / "output/data/before").read_text() == "before"
    assert not list(run.ml(2).rglob(".full")), "what we needed to fill it"
    assert (run.ml(1) / "output" / "failure").read_text().startswith("algo-2 worker/1")
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


# --- hosts in namespaces ---

LOOKS_AROUND = """
import json, os, socket
from pathlib import Path
def refused(path):
    try:
        Path(path).write_text("")
    except OSError as error:
        return error.strerror
Path("/tmp/mine").write_text("")
told = {
    "env": dict(os.environ), "cwd": os.getcwd(), "hostname": socket.gethostname(),
    "parent": os.getppid(), "cards": [name for _, name in socket.if_nameindex()],
    "address": socket.gethostbyname(os.environ["SM_CURRENT_HOST"]),
    "own": socket.gethostbyname(socket.gethostname()),
    "tmp": os.listdir("/tmp"), "ml": sorted(os.listdir("/opt/ml")), "opt": sorted(os.listdir("/opt")),
    "rows": Path("/opt/ml/input/data/train/rows").read_text(),
    "channel": refused("/opt/ml/input/data/train/new"),
    "pids": len([name for name in os.listdir("/proc") if name.isdigit()]),
}
Path("/opt/ml/output/data/told.json").write_text(json.dumps(told))
Path("/opt/ml/model/weights").write_text("1")
"""


def test_host_in_namespaces_looks_like_a_host_of_sagemaker(local, netns, tmp_path):
    data = tmp_path / "my data"
    data.mkdir()
    (data / "rows").write_text("1")
    run = local(netns, "--channel", f"train={data}", program=LOOKS_AROUND, mode="single")
    run.must_end(0)
    for number, told in enumerate(run.json_of("told.json"), 1):
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


def test_plan_in_namespaces_equals_the_plan_on_sagemaker(local, netns):
    run = local(netns, "--plan", mode="ps" if shutil.which("tensorflow") else "mwms")
    run.must_end(0)
    assert "algo-2:8890" in run.terminal and "127." not in run.terminal
    assert "/opt/ml" in run.terminal or "cd " not in run.terminal


def test_two_runs_in_namespaces_do_not_reach_each_other(local, netns):
    fault = f"cut algo-1 when '{BEFORE}' for 1"
    runs = [local(netns, count=2, faults=[fault], **PATIENT) for _ in range(2)]
    assert [run.end() for run in runs] == [0] * 2


def test_killed_run_leaves_nothing_of_its_hosts_in_namespaces(local, netns, tmp_path):
    """The run is killed during its start, or later. A namespace ends with its last process."""
    for text in ("", "[algo-1]", BEFORE):
        run = local(netns, *STEPS, faults=["fill algo-1:output", f"cut algo-2 when '{BEFORE}'"])
        run.says(text)
        run.process.kill()
        run.process.wait()
    eventually(lambda: not processes_with(str(tmp_path)), within=60, what="no process of its hosts left")
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    assert not list(Path("/run/netns").glob("*") if Path("/run/netns").exists() else [])


def test_two_interrupts_kill_a_run_with_a_frozen_host(local, netns):
    faults = [f"pause algo-2 when '{BEFORE}'"]
    # Else the job may end before SIGINT.
    run = local(netns, *STEPS, count=2, faults=faults, ENTRYPOINT_PEER_TIMEOUT="600")
    run.says("fault after")
    run.process.send_signal(signal.SIGINT)
    run.says("SIGINT: stopping all hosts")
    run.process.send_signal(signal.SIGINT)
    assert run.end() in (137, 143)
    assert run.exits[1] == "SIGKILL"


def test_help_lists_each_fault():
    shown = entrypoint("help", "faults", COLUMNS="120").stdout
    assert "ACTION TARGET [at SECONDS | when TEXT] [for SECONDS]" in shown
    for word in ("kill", "stop", "pause", "cut", "late", "hide", "fill", "readonly"):
        assert re.search(rf"^  {word} ", shown, re.MULTILINE), word
