"""Test text and exit codes of `entrypoint plan` and other commands, and the values of `entrypoint local`."""

import contextlib
import importlib.util
import json
import os
import re
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from builders import PROGRAM, names, resources, write_config
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.base.errors import CodeError, ConfigError
from entrypoint.cli import main
from entrypoint.launcher.job.config import read_job
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.plan.render import render
from entrypoint.simulate.local_channels import LocalChannel
from entrypoint.simulate.local_python import allow_files
from entrypoint.simulate.netns_engine import NetnsEngine
from entrypoint.simulate.process_engine import (
    HIGHEST,
    LOWEST,
    ProcessEngine,
    addresses,
    ports_by_host,
    reserved,
    stride,
)
from entrypoint.simulate.spec import LocalJob, encode
from entrypoint.simulate.tree import HostFolder, check_size, write_tree
from entrypoint.simulate.tree import write_config as write_local_config

ROOT = Path(__file__).resolve().parents[2]
PS = {"sagemaker_parameter_server_enabled": "true"}


@pytest.fixture
def command(capsys):
    """Return a function that runs the command line, checks that it ends with 0, and returns its output."""

    def run(*words: object, **environment: str) -> str:
        assert main.run([str(word) for word in words], environment) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return run


def local_job(**what) -> LocalJob:
    return LocalJob(**{"program": "train.py", "source": Path("/code"), "output": Path("/out/x"), **what})


# --- plan ---


def test_plan_of_config_folder_equals_the_launchers_plan(command, tmp_path):
    base = write_config(tmp_path, resources(names(3)), {**PROGRAM, **PS}, "{}")
    out = command("plan", "--config", base)
    assert out == render(plan_for(read_job(base, {}, Path("/run/entrypoint")))) + "\n"
    assert "parameter servers: 3 ps, 1 chief, 2 workers" in out


def test_plan_of_bare_config_folder_equals_real_jobs_plan(command, tmp_path):
    base = write_config(tmp_path, {**resources(names(2)), "network_interface_name": "eth9"}, {**PROGRAM, **PS})
    out = command("plan", "--config", base / "input" / "config")
    assert "SAGEMAKER_BASE_DIR=/opt/ml" in out
    assert "eth9" not in out  # it is no concern of another machine that this one has no such interface


def test_plan_shows_command_ports_and_waits_of_a_process(command):
    out = command("plan", "--hosts", 2, "--mode", "ps", "--program", "go.py", "--hyperparameters", "lr=0.1")
    worker = out.partition("host algo-2, rank 1")[2].partition("worker/0")[2]
    assert "worker 0 of 1" in worker
    assert re.search(r"command .*python go\.py --lr 0\.1\n", worker.replace("python3.11 ", "python "))
    assert 'TF_CONFIG=\'{"cluster": {"chief": ["algo-1:2222"]' in worker
    assert "ports     2222\n" in worker
    assert "waits for prepare of every host" in worker and "waits for chief/0 of algo-1 if" in worker


def test_plan_shows_one_chosen_host(command):
    out = command("plan", "--hosts", 12, "--mode", "mwms", "--host", "algo-10")
    assert re.findall(r"^host .*", out, re.MULTILINE) == ["host algo-10, rank 1"]


def test_plan_as_json_has_processes_and_their_needs(command):
    plan = json.loads(command("plan", "--hosts", 2, "--mode", "mpi", "--processes-per-host", 2, "--json"))
    ranks = [(row["host"], row["rank"], row["name"]) for row in plan["processes"] if row["role"] == "rank"]
    assert ranks == [("algo-1", 0, "rank 0"), ("algo-1", 0, "rank 1"), ("algo-2", 1, "rank 2"), ("algo-2", 1, "rank 3")]
    assert [row["needs"] for row in plan["processes"] if row["name"] == "mpirun"] == [
        ["prepare of every host", "preflight of every host", "sshd of every host"]
    ]
    one = json.loads(command("plan", "--hosts", 2, "--mode", "mpi", "--json", "--host", "algo-2"))
    assert {row["host"] for row in one["processes"]} == {"algo-2"}


@pytest.mark.parametrize("hosts, form", [(2, []), (2, ["--json"]), (9, [])])  # of many hosts it is a summary
def test_plan_prints_no_secrets(command, tmp_path, hosts, form):
    secrets = {
        "sagemaker_entrypoint_token": "hush-1",
        "api_key": "hush-2",
        "db-password": "hush-3",
        "sagemaker_mpi_custom_mpi_options": "-x AWS_SECRET_ACCESS_KEY=hush-4",
        "max_tokens": "512",
    }
    hyperparameters = {**PROGRAM, "sagemaker_mpi_enabled": "true", **secrets}
    base = write_config(tmp_path, resources(names(hosts)), hyperparameters)
    out = command("plan", "--config", base, *form, ENTRYPOINT_TOKEN="hush-5", AWS_SESSION_TOKEN="hush-6")
    assert "hush" not in out
    assert "512" in out  # no secret


def test_plan_of_instance_groups_counts_hosts_outside(command):
    words = ["--group", "data=2:ml.c5.large", "--group", "gpus=1:ml.p3.2xlarge", "--mode", "mwms"]
    only = ["--hyperparameters", "sagemaker_distribution_instance_groups=gpus"]
    out = command("plan", *words, *only)
    assert re.findall(r"^host .*", out, re.MULTILINE) == [
        "host algo-3, rank 0 (coordinator)",
        "host algo-1, rank 1",
        "host algo-2, rank 2",
    ]
    assert out.startswith("MultiWorkerMirrored: 1 worker on 1 host; 2 hosts outside\n")
    assert "3 hosts" in command("plan", *words)


def test_plan_of_many_hosts_has_a_block_for_each_role(command):
    words = ["plan", "--hosts", 200, "--mode", "ps", "--hyperparameters", "lr=0.1"]
    out = command(*words)
    assert len(out.splitlines()) < 50 and max(map(len, out.splitlines())) < 250
    assert out.startswith("parameter servers: 200 ps, 1 chief, 199 workers (scripts) on 200 hosts\n")
    assert "\n200 hosts in rank order, algo-1 to algo-99; algo-1 is the coordinator\n" in out
    assert re.findall(r"^.*: .*, on .*$", out, re.MULTILINE) == [
        "200 x prepare: prepare, on all 200 hosts",
        "200 x ps: ps/0 to ps/199, on all 200 hosts",
        "chief: chief/0, on algo-1   its end decides",
        "199 x worker: worker/0 to worker/198, on all hosts but algo-1   its end decides",
    ]
    workers = out.partition("199 x worker")[2]
    assert re.search(r"command .* train\.py --lr 0\.1\n", workers)
    assert re.search(r"env       TF_CONFIG=.*\(the first of 199 that differ\)\n", workers)
    assert "waits for prepare of every host\n" in workers
    assert out.endswith("\n--all prints every process\n")

    whole = command(*words, "--all")
    assert len(re.findall("^host algo-", whole, re.MULTILINE)) == 200
    assert len(re.findall("^  worker/", whole, re.MULTILINE)) == 199
    assert len(json.loads(command(*words, "--json"))["processes"]) == 600
    assert "\nhost algo-4, rank 3\n" in command("plan", "--hosts", 4, "--mode", "ps")  # few hosts


def test_plan_of_many_hosts_lists_hosts_by_role(command):
    groups = ["--group", "data=4", "--group", "gpus=3", "--mode", "horovod", "--processes-per-host", 2]
    out = command("plan", *groups, "--hyperparameters", "sagemaker_distribution_instance_groups=gpus")
    assert "6 x rank: rank 0 to rank 5, on 3 hosts, algo-5 to algo-7, 2 on each   started by mpirun\n" in out
    assert "4 x script: script, on 4 hosts, algo-1 to algo-4\n" in out
    assert "\nmpirun: mpirun, on algo-5   its end decides\n" in out


NAMES_OF_MODES = {
    "ps": ["ps", "PS", "parameter_server", "parameter-server", "ParameterServer", "ParameterServerStrategy"],
    "mwms": ["MWMS", "multi_worker_mirrored", "Multi-Worker-Mirrored", "multi_worker_mirrored_strategy"],
    "mpi": ["mpi", "Horovod", "HOROVOD"],
    "jax": ["jax", "JAX"],
    "single": ["single"],
    "auto": ["auto"],
}


@pytest.mark.parametrize("mode, name", [(mode, name) for mode, names in NAMES_OF_MODES.items() for name in names])
def test_mode_is_accepted_by_each_of_its_names(command, mode, name):
    wanted = command("plan", "--hosts", 2, "--mode", mode)
    assert command("plan", "--hosts", 2, "--mode", name) == wanted
    if mode not in ("auto", "single"):
        assert command("plan", "--hosts", 2, ENTRYPOINT_MODE=name) == wanted
        assert command("plan", "--hosts", 2, "--hyperparameters", f"sagemaker_entrypoint_mode={name}") == wanted


def test_plan_uses_settings_of_the_environment(command):
    assert "TensorFlow servers" in command("plan", "--hosts", 2, "--mode", "ps", ENTRYPOINT_PS_WORKERS="server")


# --- what is loaded ---


def test_help_loads_only_shared_modules_and_plan_no_matcher():
    """Help loads only shared modules. Only a wrong word loads the search for the nearest word."""
    code = (
        "import sys; from entrypoint.cli import main\n"
        "for name in main.COMMANDS:\n"
        "    try: main.run([name, '--help'])\n"
        "    except SystemExit: pass\n"
        "print(*sorted(name for name in sys.modules if name.startswith('entrypoint.')), file=sys.stderr)\n"
        "main.run(['plan', '--hosts', '2'])\n"
        "print(*sorted({'difflib', 'argcomplete', 'rich'} & {*sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240)
    loaded, searching = done.stderr.split("\n")[:2]
    commands = {f"entrypoint.cli.{name}" for name in ("arguments", "main", *main.MODULES.values())}
    base = {f"entrypoint.base{name}" for name in ("", ".errors", ".terminal")}
    assert set(loaded.split()) == {"entrypoint.cli", *base, *commands}
    assert searching == ""


# --- a reader that goes away ---


def ended(words: list[str], stdout, folder: Path, **environment: str) -> tuple[int, str]:
    """Run the command line as a process with this stdout; return its exit code and stderr."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ENTRYPOINT_MONITOR": "false", **environment}
    command = [sys.executable, "-m", "entrypoint", *words]
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment)
    return done.returncode, done.stderr


NOT_READ = [
    ["plan", "--hosts", "9", "--mode", "ps", "--all"],
    ["plan", "--hosts", "300", "--json"],
    ["settings"],
    ["--help"],
    ["--version"],
    ["local", "--help"],
    ["local", "train.py", "--hosts", "9", "--plan", "--all"],
]


@pytest.mark.parametrize("words", NOT_READ, ids=" ".join)
def test_command_ends_quietly_when_its_pipe_closes(words, tmp_path):
    (tmp_path / "train.py").touch()
    read, write = os.pipe()
    os.close(read)  # before anything is written, so that it cannot be in time
    with open(write, "wb") as closed:
        # Unbuffered, argparse prints to nobody and says that all is well, which is quiet enough.
        found = ended(words, closed, tmp_path, PYTHONUNBUFFERED="")
    assert found == (128 + 13, "")  # what a shell says of a program that SIGPIPE ended


@pytest.mark.parametrize("words", [["settings"], ["plan", "--hosts", "300", "--json"], ["local", "t.py"]], ids=" ".join)
def test_full_disk_at_stdout_is_reported_in_one_line(words, tmp_path):
    """There is no traceback, and the results of a job stay in its folders."""
    (tmp_path / "t.py").write_text("print('trained to its end')")
    with open("/dev/full", "wb") as full:
        said = "error: stdout cannot be written: No space left on device\n"
        assert ended(words, full, tmp_path, PYTHONUNBUFFERED="") == (1, said)
    logs = [path.read_text() for path in tmp_path.glob("out/*/algo-1/log.txt")]
    wanted = [True] if "local" in words else []
    assert ["script] trained to its end\n" in log and "] job succeeded\n" in log for log in logs] == wanted


@pytest.mark.parametrize("home", ["/nowhere", ""], ids=["wrong", "none"])
def test_image_reports_wrong_pythonhome_without_python(home, tmp_path):
    """The shell that starts the image reports the error."""
    (tmp_path / "train").write_text(f"#!{sys.executable}\nprint('it trains')\n")
    (tmp_path / "train").chmod(0o755)
    script = (ROOT / "container/usr/local/bin/docker-entrypoint").read_text().replace("/opt/venv/bin", str(tmp_path))
    environment = {"PATH": os.environ["PATH"], "PYTHONHOME": home, "SAGEMAKER_BASE_DIR": str(tmp_path)}
    done = subprocess.run(["sh", "-c", script, "train"], env=environment, capture_output=True, text=True, check=False)
    if not home:
        assert (done.returncode, done.stdout) == (0, "it trains\n")
        return
    failure = (tmp_path / "output/failure").read_text()
    assert done.returncode == 78 and failure.startswith(f"configuration: PYTHONHOME is {home}, where {sys.executable} ")
    assert done.stderr == failure.replace("configuration", "error")


# --- what `entrypoint local` makes of its arguments ---


@given(st.one_of(st.text(), st.integers().map(str), st.floats().map(repr), st.from_regex(r"[-+0-9eE.\[\]{}\" ]+")))
def test_hyperparameter_reaches_the_script_as_typed(tmp_path_factory, text):
    if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
        return  # no argument of a program, ours included, can hold these
    config = tmp_path_factory.mktemp("config")
    job = local_job(hyperparameters=(("value", text),))
    write_local_config(job, "algo-1", config)
    assert read_job(Path("/opt/ml"), {}, config, config=config).program.arguments == ("--value", text)
    assert all(isinstance(v, str) for v in job.config_files("algo-1")["hyperparameters.json"].values())


@pytest.mark.parametrize("text, written", [("3", "3"), ("0.5", "0.5"), ("adam", '"adam"'), ("true", '"true"')])
def test_hyperparameters_are_written_as_by_sagemakers_sdk(text, written):
    assert encode(text) == written


def test_hosts_are_named_and_sorted_as_by_sagemaker(tmp_path):
    written = local_job(hosts=11).config_files("algo-2")["resourceconfig.json"]
    assert written["hosts"][:4] == ["algo-1", "algo-10", "algo-11", "algo-2"]
    assert written["current_host"] == "algo-2"


def test_local_job_name_is_valid_for_sagemaker():
    assert re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", local_job(output=Path("/out/größe_2 " + "x" * 90)).name)


@pytest.mark.parametrize(
    "bad",
    [
        {"hosts": 1001},
        {"timeout": 0.0},
        {"channels": tuple(LocalChannel(name=f"c{number}", source=Path("/")) for number in range(21))},
        {"environment": (("a b", "1"),)},
    ],
)
def test_values_describing_no_job_are_refused(bad):
    with pytest.raises(ConfigError, match="wanted"):
        local_job(**bad)


# --- ports of hosts that share a machine ---


@pytest.mark.parametrize(
    "mode, hosts, processes",
    [
        # Mode ps has the most ports for each host.
        pytest.param(mode, *size, marks=[pytest.mark.more] * (size[0] == 1000 and mode != "ps"))
        for size in [(1, 1), (2, 4), (12, 8), (100, 2), (1000, 1)]
        for mode in ["single", "ps", "mwms", "mpi", "jax"]
    ],
)
def test_processes_of_a_local_job_have_distinct_ports(tmp_path, mode, hosts, processes):
    job = local_job(hosts=hosts, mode=mode, processes_per_host=None if mode == "single" else processes)
    write_local_config(job, "algo-1", tmp_path)

    def listening(**environment: str) -> list[int]:
        described = read_job(Path("/opt/ml"), environment, tmp_path, config=tmp_path)
        return [port for own in ports_by_host(described, plan_for(described)) for port in own]

    described = read_job(Path("/opt/ml"), {}, tmp_path, config=tmp_path)
    step = stride(ports_by_host(described, plan_for(described)))
    moved = listening(ENTRYPOINT_PORT_STRIDE=str(step), ENTRYPOINT_PORT_BASE="9000")
    assert len(set(moved)) == len(moved) >= hosts
    assert min(moved) > LOWEST and max(moved) < HIGHEST
    if hosts <= 100:
        assert max(moved) < 32768  # below the ports of outgoing connections


def test_ports_stay_reserved_until_the_end():
    with reserved([2222, 2223]) as first, reserved([2222, 2223]) as second:
        assert first != second
    with reserved([2222, 2223]) as third:
        assert third == first  # so that a plan shows what the run will have
    with socket.create_server(("0.0.0.0", 2222 + first)), reserved([2222, 2223]) as other:
        assert other != first  # somebody else listens there
    # As with ENTRYPOINT_CONTROL_PORT=50000, or where the kernel gives nearly all ports to connections.
    with reserved([50_000, 50_050]) as base:
        assert base >= 0


def test_simulated_hosts_have_distinct_addresses():
    """An address follows from the control port, which no two hosts on this machine share at a time."""
    found = [*addresses(names(1000), 10_001, 2).values(), *addresses(names(1000), 10_002, 2).values()]
    assert len(set(found)) == 2000
    assert all(re.fullmatch(r"127(\.\d{1,3}){3}", address) for address in found)
    assert all(int(part) < 256 for address in found for part in address.split("."))


def test_thousand_namespaces_have_distinct_addresses():
    engine = NetnsEngine(local_job(hosts=1000), {}, 0, "both")
    own = [[engine._mac(name), engine._hostname(name), *engine._addresses(name)] for name in sorted(names(1000))]
    assert len({value for each in own for value in each}) == 4000
    assert [*own[0], *own[-1]] == [
        "02:00:0a:00:01:01", "ip-10-0-1-1.ec2.internal", "fd00:0:0:1::1", "10.0.1.1",
        "02:00:0a:00:04:e8", "ip-10-0-4-232.ec2.internal", "fd00:0:0:1::3e8", "10.0.4.232",
    ]  # fmt: skip


@pytest.mark.parametrize("mode", ["ps", "mpi"])
def test_plan_of_a_local_run_has_folders_of_each_host(tmp_path, mode, monkeypatch):
    engine = ProcessEngine(local_job(hosts=12, mode=mode, output=tmp_path / "out"), {}, 0)
    with engine._ports():
        plans = [plan_for(engine.read(host)) for host in engine.folders]
        monkeypatch.setattr(engine, "_ports", contextlib.nullcontext)  # it is to plan with the same
        text = engine.plan(whole=True)
    shown = [block for block in text.split("\n\n") if block.startswith("host ")]
    wanted = [render(plan, host).partition("\n\n")[2] for host, plan in zip(engine.folders, plans, strict=True)]
    assert shown == wanted


@pytest.mark.parametrize(
    ("script", "first"),
    [("import os\nimport horovod.keras as hvd\n", "horovod, which the script imports, mpi4py "), ("", "mpi4py ")],
)
def test_missing_software_begins_with_what_the_script_imports(tmp_path, monkeypatch, script, first):
    (tmp_path / "train.py").write_text(script)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    engine = ProcessEngine(local_job(source=tmp_path, hosts=2, mode="mpi", output=tmp_path / "out"), {}, 0)
    with pytest.raises(ConfigError, match=f"lacks {first}.*; or use --engine docker"), engine._ports():
        engine.check()


def test_many_hosts_on_few_cpus_get_a_longer_peer_timeout(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})

    def patience(hosts: int, **given: str) -> float:
        job = local_job(hosts=hosts, hyperparameters=tuple(given.items()))
        write_local_config(job, "algo-1", tmp_path)
        return read_job(Path("/opt/ml"), {}, tmp_path, config=tmp_path).settings.peer_timeout

    assert patience(20) == 5.0
    assert patience(200) == 100.0
    assert patience(200, sagemaker_entrypoint_peer_timeout="7") == 7.0


def test_limit_of_open_files_is_raised_as_needed():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        few = len([*Path("/proc/self/fd").iterdir()]) + 100  # other tests of this process may have left some open
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
        allow_files(400)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 400
        with pytest.raises(ConfigError, match=rf"this machine allows {hard} .*wanted fewer hosts, or a higher limit"):
            allow_files(hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_script_with_opt_ml_path_gives_warning_if_hosts_share_it(tmp_path):
    (tmp_path / "train.py").write_text(
        "model = os.environ.get('SM_MODEL_DIR', '/opt/ml/model')\n# not in /opt/ml/code\nlogs = '/opt/mlflow'\n"
        "keep('/opt/ml/checkpoints')\n"
    )
    (tmp_path / "helper.py").write_text("ML = '/opt/ml'\n")
    os.mkfifo(tmp_path / "pipe.py")
    engine = ProcessEngine(local_job(source=tmp_path), {}, 0)
    (told,) = engine.notes()
    assert told.startswith(
        "warning: helper.py:1 names /opt/ml, train.py:4 names /opt/ml/checkpoints, which is this machine's"
    )
    engine.has_own_ml = True
    assert engine.notes() == []


def test_circularly_linked_code_is_copied_once_and_deep_code_refused(tmp_path):
    """A copy follows links, so two links to a parent folder would be copied endlessly."""
    source = tmp_path / "code"
    (source / "deep").mkdir(parents=True)
    (source / "train.py").touch()
    for name in ("a", "deep/b"):
        (source / name).symlink_to(source)
    check_size(source)
    write_tree(local_job(source=source), HostFolder(host="algo-1", root=tmp_path / "h", base=tmp_path / "h"))
    assert sorted(path.name for path in (tmp_path / "h/code").rglob("*")) == ["deep", "train.py"]
    (source / ("x/" * 110)).mkdir(parents=True)
    with pytest.raises(CodeError, match="more than 100 folders in one another"):
        check_size(source)
