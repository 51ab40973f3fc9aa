"""Test that launch scripts run without network access, and that dropped arguments are reported."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from builders import write_files
from looking import HOROVOD, REQUEST, SCRIPT, found, look
from processes import processes_with
from waiting import eventually

from entrypoint.check.doctor.doctor import examine
from entrypoint.check.doctor.launch_script import CAUGHT, Launched, launched, of_launch
from entrypoint.check.doctor.output import as_json, as_text
from entrypoint.check.doctor.request import Launch, Request
from entrypoint.cli.main import run
from entrypoint.launcher.job.job import Mode

SUBMITS = f"""
import boto3

client = boto3.client("sagemaker", region_name="eu-west-1")
request = {REQUEST!r}
request["ResourceConfig"]["InstanceCount"] = 2
request["Environment"] = {{"ENTRYPOINT_MODE": "mpi"}}
client.create_training_job(**request)
"""
SUBMITTING_LINE = SUBMITS.splitlines().index("client.create_training_job(**request)") + 1


def launch(folder: Path, text: str) -> Path:
    path = folder / "submit_job.py"
    path.write_text(text)
    return path


def test_launch_becomes_a_job_with_a_checked_program(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HOROVOD.replace("hvd.init()", ""))
    report = examine([str(launch(tmp_path, SUBMITS)), str(tmp_path / "train.py")])
    assert [each.check for each in report.findings] == ["hvd-no-init"]
    (job,) = report.jobs
    assert job.job is not None and job.job.mode is Mode.MPI
    assert job.plan is not None and job.plan.hosts == ("algo-1", "algo-2")
    assert job.request.line == SUBMITTING_LINE


ASKS = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--image", required=True)
parser.parse_args()
"""
FAILURES = {
    "no SDK": (f"\nimport sagemaker.estimator\n{SUBMITS}", "no-sdk", "error", 2, ""),
    "another module": (f"\nimport no_sdk_here\n{SUBMITS}", "launch-failed", "error", 2, "no_sdk_here"),
    "before its job": (f"raise ValueError('which?')\n{SUBMITS}", "launch-failed", "error", 1, "ValueError: which?"),
    "after its job": (f"{SUBMITS}raise KeyError('late')\n", "launch-failed", "note", SUBMITTING_LINE + 1, "late"),
    "with words after its job": (
        f"{SUBMITS}raise SystemExit('enough')\n",
        "launch-failed",
        "note",
        SUBMITTING_LINE + 1,
        "enough",
    ),
    "no argument": (f"{ASKS}{SUBMITS}", "launch-failed", "error", 4, "it exits with 2: "),
    "the API refuses": (SUBMITS.replace("'ml.c5.xlarge'", "3"), "launch-failed", "error", SUBMITTING_LINE, "Type"),
}


@pytest.mark.parametrize("text, check, severity, line, words", FAILURES.values(), ids=FAILURES)
def test_failure_of_a_launch_is_reported(text: str, check: str, severity: str, line: int, words: str, tmp_path) -> None:
    report = examine([str(launch(tmp_path, text))])
    told = [each for each in report.findings if each.check in ("no-sdk", "launch-failed")]
    assert [(each.check, str(each.severity), each.place.line) for each in told] == [(check, severity, line)]
    assert words in told[0].found and len(report.jobs) == (severity == "note")


@pytest.mark.parametrize(
    "has, imports, said",
    [
        (
            "core/__init__.py",
            "from sagemaker.tensorflow import TensorFlow",
            "has SageMaker's SDK v3, and the script is for v2",
        ),
        ("core/__init__.py", "import sagemaker.core; sagemaker.get_execution_role()", "the script is for v2"),
        (
            "estimator.py",
            "from sagemaker.train import ModelTrainer",
            "has SageMaker's SDK v2, and the script is for v3",
        ),
        ("core/__init__.py", "import sagemaker.train", "imports sagemaker.train, which"),
    ],
)
def test_script_for_the_other_sdk_is_reported_as_such(has: str, imports: str, said: str, tmp_path: Path) -> None:
    write_files(tmp_path, {f"sagemaker/{has}": "", "sagemaker/__init__.py": ""})
    report = examine([str(launch(tmp_path, f"{imports}\n{SUBMITS}"))])
    assert found(report, "no-sdk") == [("error", 1)]
    assert said in report.findings[0].found


@pytest.mark.parametrize(
    "words, near", [("'trian.py', 'src'", "train.py in place of trian.py"), ("'train.py', 'scr'", "src in")]
)
def test_misspelt_path_of_a_launch_script_is_named(words: str, near: str, tmp_path: Path) -> None:
    """Both SDKs refuse a program or folder that is not there, before a request is made."""
    write_files(tmp_path, {"src/train.py": ""})
    text = f"program, folder = {words}\nraise ValueError(f'No file named {{program}} in {{folder}}')\n{SUBMITS}"
    report = examine([str(launch(tmp_path, text))])
    assert near in report.findings[0].instead


@pytest.mark.parametrize("sealed", [True, False], ids=["in namespaces", "without"])
@pytest.mark.parametrize("ends", [True, False], ids=["that ends", "that never ends"])
def test_processes_forked_by_a_launch_script_are_killed(tmp_path: Path, ends: bool, sealed: bool, monkeypatch) -> None:
    """The forked process has its own session, as a daemon has."""
    if not sealed:
        monkeypatch.setattr("entrypoint.check.doctor.launch_script.CAUGHT", without_namespaces(tmp_path))
    forked = tmp_path / "forked"
    forks = f"""
import os, pathlib, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        pathlib.Path({str(forked)!r}).touch()
        signal.pause()
    os._exit(0)
while not os.path.exists({str(forked)!r}):
    time.sleep(0)
"""
    path = launch(tmp_path, f"{forks}{'' if ends else 'signal.pause()'}\n{SUBMITS}")
    did = launched(path, str(path), (), environment={}, longest=60 if ends else 5)
    assert did.problem == ("" if ends else "it did not end within 5 s")
    assert forked.exists()
    eventually(lambda: not processes_with(str(path)), within=60, what="the fork is gone")


def without_namespaces(folder: Path) -> Path:
    """Return a caught.py for which the kernel refuses namespaces, as in most containers."""
    changed = folder / "caught.py"
    changed.write_text(
        CAUGHT.read_text().replace("def seal() -> str:", 'def seal() -> str:\n    return "not permitted"\n')
    )
    return changed


def test_kernel_blocks_other_connections_or_report_warns(tmp_path: Path, monkeypatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        connects = f"""
import ctypes, struct
libc = ctypes.CDLL(None)
address = struct.pack("=HH4s8x", 2, {socket.htons(server.getsockname()[1])}, bytes([127, 0, 0, 1]))
libc.connect(libc.socket(2, 1, 0), address, 16)
"""
        path = launch(tmp_path, f"{connects}\n{SUBMITS}")
        report = examine([str(path)])
        assert len(report.jobs) == 1
        if not report.unsealed:
            with pytest.raises(BlockingIOError):
                server.accept()
        monkeypatch.setattr("entrypoint.check.doctor.launch_script.CAUGHT", without_namespaces(tmp_path))
        assert "gave the launch script no network of its own" in as_text(examine([str(path)]))


@pytest.mark.parametrize(
    "way_out",
    [
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:{port}/')",
        "import socket; socket.create_connection(('127.0.0.1', {port}))",
        "import socket; socket.getaddrinfo('localhost', {port})",
        "import subprocess; subprocess.run(['touch', '{folder}/out'])",
        "import os; os.system('touch {folder}/out')",
        "import os; os.posix_spawnp('touch', ['touch', '{folder}/out'], os.environ)",
        "import os; os.execvp('touch', ['touch', '{folder}/out'])",
    ],
)
def test_launch_script_sends_nothing_off_the_machine(way_out: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        port = server.getsockname()[1]
        report = examine([str(launch(tmp_path, f"{way_out.format(port=port, folder=tmp_path)}\n{SUBMITS}"))])
        with pytest.raises(BlockingIOError):
            server.accept()
    assert found(report, "launch-failed") == [("error", 1)]
    assert "neither connect nor start programs" in report.findings[0].found
    assert not (tmp_path / "out").exists()


def test_launch_sees_no_real_credentials(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text("[profile work]\nregion = eu-north-1\ncredential_process = /bin/false\n")
    text = f"""
import boto3, os
seen = boto3.Session(profile_name="work")
key = seen.get_credentials()
assert (seen.region_name, key.access_key, key.secret_key) == ("eu-north-1", "nobody", "nothing"), seen.region_name
assert "AWS_SESSION_TOKEN" not in os.environ
{SUBMITS}"""
    environment = {"HOME": str(tmp_path), "AWS_SECRET_ACCESS_KEY": "real", "AWS_SESSION_TOKEN": "real", "PATH": "/bin"}
    did = launched(launch(tmp_path, text), "submit.py", (), environment=environment)
    assert (did.problem, len(did.requests)) == ("", 1)


TUNES = f"""
import boto3
request = {REQUEST!r}
names = ("AlgorithmSpecification", "RoleArn", "InputDataConfig", "OutputDataConfig", "StoppingCondition")
definition = {{**{{key: request[key] for key in names}}, "StaticHyperParameters": request["HyperParameters"], **MORE}}
boto3.client("sagemaker", region_name="eu-west-1").create_hyper_parameter_tuning_job(
    HyperParameterTuningJobName="t", TrainingJobDefinition=definition, HyperParameterTuningJobConfig={{
    "Strategy": "Random", "ResourceLimits": {{"MaxParallelTrainingJobs": 1}}, "ParameterRanges": RANGES}})
"""


@pytest.mark.parametrize(
    ("name", "put"),
    [
        ("max_runtime", 'max_run=3600; or hyperparameters={"max_runtime": 3600}, if it is for the script'),
        ("colour", 'hyperparameters={"colour": 3600}, if it is for the script'),
    ],
)
def test_remedy_for_a_dropped_argument_says_what_to_write(name: str, put: str) -> None:
    launch = Launch(sdk="v2", maker="Estimator", line=3, dropped={name: "3600"})
    (told,) = of_launch(Launched(requests=(Request(body={}, file=""),), launches=(launch,)), "submit.py", "python")
    assert told.check == "argument-dropped" and told.instead.startswith(put)


@pytest.mark.parametrize("place", ["ResourceConfig", "HyperParameterTuningResourceConfig"])
def test_tuning_trial_has_hosts_and_tuned_hyperparameters(place: str, tmp_path: Path) -> None:
    """SDK v2 puts the host's name second. Each trial also has the tuned hyperparameters."""
    required = 'parser.add_argument("--rate", type=float, required=True)\nargs ='
    (tmp_path / "train.py").write_text(SCRIPT.replace("args =", required))
    hosts = {"InstanceType": "ml.c5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 1}
    ranges = {"ContinuousParameterRanges": [{"Name": "rate", "MinValue": "0.1", "MaxValue": "1"}]}
    text = f"MORE, RANGES = {{{place!r}: {hosts!r}}}, {ranges!r}\n{TUNES}"
    report = examine([str(launch(tmp_path, text)), str(tmp_path / "train.py")])
    assert [each.check for each in report.findings] == ["nothing-shared"]
    assert "2 hosts" in report.findings[0].found


def test_launch_script_may_query_spot_savings(tmp_path: Path) -> None:
    """`fit` of SDK v2 asks for them at the end of each job. Later jobs of the script must be found as well."""
    asks = "told = client.describe_training_job(TrainingJobName='job')\n"
    text = f"{SUBMITS}{asks}print(1 - told['BillableTimeInSeconds'] / told['TrainingTimeInSeconds'])\n"
    did = launched(launch(tmp_path, f"{text}client.create_training_job(**request)\n"), "submit.py", ())
    assert (did.problem, len(did.requests)) == ("", 2)


# --- the command ---


def test_doctor_exits_with_1_for_errors_and_2_for_unreadable_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text("parser.add_argument('--flag', type=bool)\n")
    assert run(["doctor", str(script)]) == 0
    assert run(["doctor", str(script), "--strict"]) == 1
    script.write_text("print 'x'\n")
    assert run(["doctor", str(script)]) == 1
    write_files(tmp_path, {"some.json": "{}", "data.csv": "", "submit.ipynb": ""})
    for name, words in (
        ("none.py", "there is no file"),
        ("some.json", "wanted a CreateTrainingJob request"),
        ("data.csv", "data.csv"),
        ("submit.ipynb", "nbconvert"),
    ):
        assert run(["doctor", str(tmp_path / name)]) == 2
        assert words in capsys.readouterr().err


def test_doctor_without_a_file_checks_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    assert "mode single: ready" in capsys.readouterr().out


def test_json_has_counts_and_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text("\nparser.add_argument('--flag', type=bool)\n")
    assert run(["doctor", "--json", str(script)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["errors"], told["warnings"], told["notes"]) == (0, 1, 0)
    (finding,) = told["findings"]
    seen = [finding[key] for key in ("check", "severity", "file", "line")]
    assert seen == ["bool-argument", "warning", str(script), 2]


NOTED = """
import signal
import tensorflow as tf
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.fit(rows)
model.save("/opt/ml/model/1")
home = open("/home/me/labels.txt")
"""


def test_notes_of_more_than_three_kinds_are_only_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = {**REQUEST, "HyperParameters": {**REQUEST["HyperParameters"], "words": "two words", "more": "a b"}}
    request["DebugHookConfig"] = {"S3OutputPath": "s3://bucket/tensors"}
    write_files(tmp_path, {"request.json": json.dumps(request), "train.py": NOTED})
    command = ["doctor", str(tmp_path / "request.json"), str(tmp_path / "train.py")]
    texts = []
    for options in ([], ["--notes"], ["--json"]):
        assert run([*command, *options]) == 0
        texts.append(capsys.readouterr().out)
    few, whole, found = texts[0], texts[1], json.loads(texts[2])
    kinds = {each["check"] for each in found["findings"] if each["severity"] == "note"}
    assert {"hyperparameter-as-argv", "debugger", "no-checkpoint", "no-sigterm"} <= kinds
    assert len(re.findall(r"note \[[\w-]+\]", whole)) == found["notes"]
    shown = set(re.findall(r"note \[([\w-]+)\]", few))
    assert len(shown) == 3 and "no-sigterm" not in shown
    (named,) = re.findall("more notes, which --notes prints: (.*)", few)
    assert {each.partition(" ")[0] for each in named.split(", ")} == kinds - shown
    assert f"{found['notes']} notes" in few


def test_findings_of_several_jobs_are_grouped_by_job(tmp_path: Path) -> None:
    """Each finding stands once: those that both jobs have, as of the one script, are named as of both."""
    noted = {**REQUEST, "DebugHookConfig": {"S3OutputPath": "s3://bucket/tensors"}}
    worse = {**REQUEST, "Environment": {"ENTRYPOINT_MOD": "mpi"}}
    files = {
        "a.json": json.dumps(noted),
        "b.json": json.dumps(worse),
        "train.py": SCRIPT.replace("saver.restore()", ""),
    }
    write_files(tmp_path, files)
    one, two = (str(tmp_path / name) for name in ("a.json", "b.json"))
    report = examine([one, two, str(tmp_path / "train.py")])
    assert [(of, [each.check for each in findings]) for of, findings in report.groups] == [
        (f"{one}:1, {two}:1", ["no-resume"]), (f"{one}:1", ["debugger"]), (f"{two}:1", ["job-warning"]),
    ]  # fmt: skip
    text = as_text(report)
    assert text.index(f"in {one}:1:") < text.index("[debugger]") < text.index(f"in {two}:1:")
    assert text.index(f"in {two}:1:") < text.index("[job-warning]")
    assert "in " + one not in as_text(examine([one, str(tmp_path / "train.py")])), "there is one job"


def test_json_shows_whether_the_program_was_examined(tmp_path: Path) -> None:
    """Without this, a CI run would take missing findings for a healthy script."""
    (tmp_path / "request.json").write_text(json.dumps(REQUEST))
    (tmp_path / "train.py").write_text(SCRIPT)
    for names, seen in ((["request.json"], False), (["request.json", "train.py"], True)):
        (job,) = as_json(examine([str(tmp_path / name) for name in names]))["jobs"]
        assert job["program_seen"] is seen


def test_report_begins_with_the_job_that_runs(tmp_path: Path) -> None:
    path = launch(tmp_path, f"{ASKS}{SUBMITS}")
    command = [sys.executable, "-m", "entrypoint", "doctor", str(path), "--args", "--image", "x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[0].endswith("MPI: 2 ranks on 2 hosts, 1 on each"), done.stdout + done.stderr


def test_secrets_are_masked(tmp_path: Path) -> None:
    environment = dict.fromkeys(("ENTRYPOINT_MODE", "DB_PASSWORD"), "hunter2hunter2")
    report = look(tmp_path, change={"Environment": environment})
    assert report.findings
    assert as_text(report).count("docs/rules.md") == 1
    assert "hunter2" not in as_text(report) + json.dumps(as_json(report))


@pytest.mark.parametrize("spelling", ["camel", "snake"])
def test_request_keys_may_be_camel_or_snake_case(spelling: str, tmp_path: Path) -> None:
    def other(name: str) -> str:
        if spelling == "camel":
            return name[0].lower() + name[1:]
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()

    def change(value: object) -> object:
        if isinstance(value, list):
            return [change(each) for each in value]
        users = ("HyperParameters", "Environment")
        if isinstance(value, dict):
            return {other(key): inside if key in users else change(inside) for key, inside in value.items()}
        return value

    path = tmp_path / "request.json"
    path.write_text(json.dumps(change(REQUEST), indent=1))
    report = examine([str(path)])
    assert report.findings == ()
    assert report.jobs[0].request.body == REQUEST
