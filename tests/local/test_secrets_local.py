"""Test that no log, failure file, status, command line or file of the launcher contains secrets of a running job."""

import json
import stat
import urllib.request
from pathlib import Path

from open_mpi import DAEMON, MPIRUN
from processes import processes_with

KEY = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLE"
HYPER = "hp-\"quoted\"-'secret'-42"
TOKEN = "token-0f-this-j0b"
NOT_TOLD = "glpat-Zx81kkQ2mm77"  # nothing of the job's has it but the script's text, which prints it in a URL
SECRETS = (KEY, TOKEN, HYPER, json.dumps(HYPER)[1:-1], "hp-%22quoted%22", NOT_TOLD)
ENVIRONMENT = {"AWS_SECRET_ACCESS_KEY": KEY, "ENTRYPOINT_TOKEN": TOKEN, "PLAIN": "to be seen"}
HYPERPARAMETERS = {"api_key": json.dumps(HYPER), "learning_rate": "0.25", "sagemaker_entrypoint_token": f'"{TOKEN}"'}
TELLS_ALL = """
import json, os, subprocess, sys, time, urllib.parse
key, value = os.environ["AWS_SECRET_ACCESS_KEY"], sys.argv[sys.argv.index("--api_key") + 1]
with open(os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], "mine.json"), "w") as file:
    json.dump([key, value, [name for name, text in os.environ.items() if "token-0f-" in text]], file)
print(os.environ)
print(json.dumps(dict(os.environ)), file=sys.stderr)
print(sys.argv, urllib.parse.quote(value), flush=True)
subprocess.run(["env"])
print("no end of line:", key, end="", flush=True)
print(" https://oauth2:glpat-Zx81kkQ2mm77@git.invalid/x", end="", flush=True)
print(flush=True)
here = os.environ["SM_CURRENT_HOST"], os.environ["TEST_FOLDER"]
open(here[1] + "/told-" + here[0], "w").close()
while here[0] == "algo-1" or not os.path.exists(here[1] + "/told-algo-1"):
    time.sleep(0.05)
raise ValueError(f"cannot log in with {key} and {value} at https://git.invalid/x?private_token=glpat-Zx81kkQ2mm77")
"""
WAITS = """
import os, pathlib, time
from mpi4py import MPI
print("at work", flush=True)
while not pathlib.Path(os.environ["TEST_FOLDER"], "enough").exists():
    time.sleep(0.05)
"""


def found_in(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


def test_printed_secrets_are_masked(hosts):
    job = hosts(2, code=TELLS_ALL, hyperparameters=HYPERPARAMETERS, environment=ENVIRONMENT)
    first = job.must_end(1)
    for host in job.hosts.values():
        assert found_in(host.log) == []
        assert found_in(host.failure) == []
        assert "to be seen" in host.log and "0.25" in host.log
        assert "AWS_SECRET_ACCESS_KEY=***" in host.log
        assert "no end of line: *** https://oauth2:***@git.invalid/x" in host.log
    said = "ValueError: cannot log in with *** and *** at https://git.invalid/x?private_token=***"
    assert first.startswith(f"algo-2 script (exit code 1): {said}")
    # The script itself has them as they are, but for the token: with it, a script could speak for a launcher.
    assert job.json_of("mine.json") == [[KEY, HYPER, []]] * 2
    ours = [path for path in job.folder.rglob("*") if path.is_file() and "code" not in path.parts]
    kept = {"hyperparameters.json", "mine.json"}  # SageMaker's and the script's own
    assert [str(path) for path in ours if path.name not in kept and found_in(path.read_text(errors="replace"))] == []


WRITES = """
import os, pathlib, sys, time
here = os.environ["SM_CURRENT_HOST"], os.environ["TEST_FOLDER"]
text = "cannot log in with\\n" + "." * 3960 + os.environ.get("OWN_PASSWORD", "")
if here[0] == "algo-2":
    pathlib.Path(os.environ["SM_OUTPUT_DIR"], "failure").write_text(text)
    sys.exit(3)
time.sleep(600)
"""


def test_a_failure_text_of_the_script_is_masked_on_every_host(hosts):
    """Other hosts do not know the secrets of this host, and no host recognises half a secret after a cut."""
    job = hosts(2, code=WRITES, absent=("algo-2",))
    job.environment["OWN_PASSWORD"] = KEY
    job.start("algo-2")
    assert job.end() == [3, 3]
    assert "cannot log in with" in job[1].failure
    evidence = [path.read_text() for path in job.folder.rglob("output/data/entrypoint-*.txt")]
    assert len(evidence) == 2
    for text in (job[1].failure, job[1].log, job[2].log, *evidence):
        assert KEY[:8] not in text


def test_secrets_in_the_summary_are_masked(hosts, tmp_path):
    summary = tmp_path / "summary.json"
    code = TELLS_ALL.replace('here[0] == "algo-1"', "False")
    job = hosts(1, code=code, hyperparameters=HYPERPARAMETERS, environment=ENVIRONMENT, SUMMARY=summary)
    job.must_end(1)
    assert "cannot log in with ***" in summary.read_text()
    assert found_in(summary.read_text()) == []


def test_address_of_unreachable_code_is_shown_without_its_password(hosts):
    """The failure text contains the address without its password."""
    url = "s3://user:Zq7-Lw0Xk9@no/such/code.tar.gz"
    job = hosts(1, code={}, hyperparameters={"sagemaker_submit_directory": json.dumps(url)})
    assert "no/such/code.tar.gz" in job.must_end(65)
    assert "Zq7-Lw0Xk9" not in job.failures[0] + job[1].log


def test_command_lines_and_files_of_a_job_under_mpirun_have_no_secret(hosts):
    job = hosts(2, code=WAITS, mode="mpi", hyperparameters=HYPERPARAMETERS, environment=ENVIRONMENT)
    job.all_say("at work")
    lines = {}
    for pid in processes_with(str(job.folder)):
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        lines[pid] = line
    for program in (f"{MPIRUN} ", "sshd", "ssh ", f"{DAEMON} ", "rank.py", "train.py"):
        assert any(program in line for line in lines.values()), program
    # The script's own arguments are what SageMaker promises it; no other command line has a secret in it.
    assert [line for line in lines.values() if found_in(line) and "train.py" not in line] == []
    knows = {pid for pid in lines if TOKEN.encode() in Path(f"/proc/{pid}/environ").read_bytes()}
    assert {lines[pid] for pid in knows} == {lines[host.process.pid] for host in job.hosts.values()}

    run = job[1].base / "run"
    assert stat.S_IMODE(run.stat().st_mode) == 0o700
    for path in run.rglob("*"):
        if path.is_file() or path.is_socket():
            if "prte" in str(path.relative_to(run)):
                continue  # Open MPI 5's own, which nobody else reaches in this folder
            open_to_others = stat.S_IMODE(path.stat().st_mode) & 0o077
            assert not open_to_others or path.suffix == ".pub", path
        elif path.name in ("ssh", "public_keys"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
    held = {path.name for path in run.rglob("*") if path.is_file() and found_in(path.read_text(errors="replace"))}
    assert held == {"prepared.json"}

    address = f"http://{job.addresses['algo-1']}:{job.control_port}/status"
    asked = urllib.request.Request(address, headers={"X-Entrypoint-Token": TOKEN})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        assert found_in(answer.read().decode()) == []
    (job.folder / "enough").touch()
    job.must_end(0)
