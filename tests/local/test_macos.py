"""Test what is promised on macOS, with a Python that lacks what macOS lacks: see tests/macos/sitecustomize.py."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hosts import LONG, ROOT, clean_environment, write

IMAGE = "sagemaker-tf-entrypoint:latest"
TRAINS = """
for step in range(20):
    print(f'step={step} loss={1 / (1 + step):.4f}', flush=True)
"""
REQUEST = {
    "TrainingJobName": "job",
    "RoleArn": "arn:aws:iam::123456789012:role/Training",
    "AlgorithmSpecification": {"TrainingImage": "image:2.14.1-cpu", "TrainingInputMode": "File"},
    "HyperParameters": {"sagemaker_program": "train.py"},
    "Environment": {"ENTRYPOINT_MODE": "single"},
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
}
# What the command tells of a daemon, and of the images in the variable IMAGES; what it shall run is printed.
DOCKER = """#!/bin/sh
for last; do :; done
case "$*" in
    *Server.Arch*) echo "linux/$ARCH" ;;
    *"image inspect"*) case " $IMAGES " in *" $last "*) echo linux/$ARCH ;; *) exit 1 ;; esac ;;
    run*) echo "$@" ;;
esac
"""


def on_macos(*words: object, cwd: Path, module: str = "entrypoint", **environment: str) -> subprocess.CompletedProcess:
    """Run a command of `entrypoint`, or another module or folder, to its end; stderr comes with stdout."""
    place = ["-m", module] if module == "entrypoint" else [module]
    seen = clean_environment(PYTHONPATH=os.pathsep.join(map(str, (ROOT / "tests/macos", ROOT))), **environment)
    return subprocess.run(
        [sys.executable, *place, *map(str, words)], cwd=cwd, env=seen, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=3 * LONG,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "train.py", TRAINS)
    write(tmp_path / "request.json", json.dumps(REQUEST))
    return tmp_path


@pytest.fixture
def docker(tmp_path: Path) -> str:
    """Return a PATH whose docker is a stand-in."""
    write(tmp_path / "bin/docker", DOCKER).chmod(0o755)
    return f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize(
    ("words", "code", "wanted"),
    [
        (["plan", "--hosts", "2", "--mode", "mwms"], 0, "worker/1"),
        (["settings"], 0, "ENTRYPOINT_MODE="),
        (["help", "engines"], 0, "on macOS"),
        (["local", "--help"], 0, "default: docker"),
        (["metrics"], 0, "val_loss"),
        (["new", "project"], 0, "test_train.py"),
        (["doctor"], 0, "--engine docker"),
        (["doctor", "train.py"], 0, "0 errors"),
        (["doctor", "request.json"], 0, "0 errors"),
        (
            ["local", "train.py", "--engine", "process"],
            78,
            "--engine process needs Linux, and this is macOS; wanted --engine docker",
        ),
        (["local", "train.py", "--engine", "netns"], 78, "--engine netns needs Linux"),
        (["host", "algo-1", "train.py"], 78, "wanted `entrypoint local`"),
        (["train"], 78, "wanted `entrypoint local`"),
        (["rehearse", "request.json", "--engine", "process"], 2, "--engine process needs Linux"),
    ],
)
def test_command_runs_on_macos_or_says_what_does(folder: Path, words: list[str], code: int, wanted: str) -> None:
    ran = on_macos(*words, cwd=folder)
    assert (ran.returncode, "Traceback" in ran.stdout) == (code, False), ran.stdout
    assert wanted in ran.stdout


def test_launch_script_is_examined_on_macos(folder: Path) -> None:
    launch = f"import boto3\nboto3.client('sagemaker', region_name='eu-west-1').create_training_job(**{REQUEST!r})\n"
    write(folder / "submit.py", launch)
    ran = on_macos("doctor", "submit.py", cwd=folder)
    assert ran.returncode == 0 and "0 errors" in ran.stdout, ran.stdout


def test_job_of_containers_is_examined_on_macos(local, tmp_path: Path) -> None:
    run = local(TRAINS, count=1, mode="single")
    run.end()
    for words, wanted in (
        (["report", run.output], "report   report.html"),
        (["replay", run.output], "as then, by the same"),
        (["top", run.output, "--once"], "exit code 0"),
    ):
        ran = on_macos(*words, cwd=tmp_path)
        assert ran.returncode == 0 and wanted in ran.stdout, ran.stdout


def test_acceptance_run_is_planned_on_macos(tmp_path: Path) -> None:
    image, role = (
        "123456789012.dkr.ecr.eu-west-1.amazonaws.com/my-training:1",
        "arn:aws:iam::123456789012:role/Training",
    )
    ran = on_macos("--image", image, "--role", role, "--dry-run", cwd=tmp_path, module=str(ROOT / "tests/accept"))
    assert ran.returncode == 0 and "nothing was submitted" in ran.stdout, ran.stdout


@pytest.mark.parametrize(
    ("arch", "images", "code", "wanted"),
    [
        ("arm64", f"{IMAGE} {IMAGE}-arm64", 0, f"{IMAGE}-arm64 entrypoint plan"),
        ("arm64", "", 78, f"no image {IMAGE}-arm64 here; ./build.sh --platform linux/arm64 builds it"),
        ("amd64", f"{IMAGE} {IMAGE}-arm64", 0, f"{IMAGE} entrypoint plan"),
        ("amd64", "", 78, f"no image {IMAGE} here; ./build.sh builds it"),
    ],
)
def test_hosts_are_containers_of_the_machines_image(
    folder: Path, docker: str, arch: str, images: str, code: int, wanted: str
) -> None:
    ran = on_macos("local", "train.py", "--plan", cwd=folder, PATH=docker, ARCH=arch, IMAGES=images)
    assert ran.returncode == code and wanted in ran.stdout, ran.stdout


def test_pipe_is_refused_on_macos(folder: Path, docker: str) -> None:
    write(folder / "rows/1", "1")
    words = ("local", "train.py", "--channel", "training=rows", "--input-mode", "Pipe", "--plan")
    ran = on_macos(*words, cwd=folder, PATH=docker, ARCH="arm64", IMAGES=f"{IMAGE}-arm64")
    assert ran.returncode == 78 and "wanted File or FastFile" in ran.stdout, ran.stdout


def test_rehearsal_takes_containers_on_macos(folder: Path, docker: str) -> None:
    ran = on_macos("rehearse", "request.json", cwd=folder, PATH=docker, ARCH="arm64", IMAGES="")
    assert ran.returncode == 2 and f"no image {IMAGE}-arm64 here" in ran.stdout, ran.stdout


# --- the shell scripts: bash 3.2, and no tool that only Linux has ---

# A Python 3.13, which makes environments whose commands print what they are asked to do.
PYTHON = f"""#!/bin/sh
case $1 in
    -c) exec {sys.executable} -c "import sys; sys.version_info = (3, 13, 1); $2" ;;
    -V) echo Python 3.13.1 ;;
    -m)
        /bin/mkdir -p "$3/bin"
        for name in python entrypoint; do
            printf '#!/bin/sh\\necho "%s $*"\\n' $name >"$3/bin/$name"
            /bin/chmod +x "$3/bin/$name"
        done
        ;;
esac
"""
TOOLS = ("cat", "cut", "dirname", "grep")
SHASUM = f"""#!/bin/sh
[ "$*" = "-a 256" ] && exec {shutil.which("sha256sum")}
"""
# Of later versions of bash, and options that BSD's tools lack.
NOT_THERE = re.compile(
    r"declare -[gAn]|local -n|mapfile|readarray|coproc|&>>|\|&|\[\[ -v|wait -n|\$\{\w+(,|\^|@[A-Z])|\$\{\w+: -\d|\[-1\]"
    r"|readlink -f|realpath|sed -i|stat -c|date -d|grep -P|sort -V|xargs -r|cp --parents|-printf|setsid|tac |nproc"
)


def sh(script: Path, *words: str, tools: Path) -> subprocess.CompletedProcess:
    shell = os.environ.get("TEST_BASH") or shutil.which("bash")
    command = [shell, script, *words]
    return subprocess.run(command, env={"PATH": str(tools)}, capture_output=True, text=True, timeout=LONG)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """Return a folder with the tools that macOS has, too, and uname of a Mac."""
    folder = tmp_path / "tools"
    write(folder / "uname", "#!/bin/sh\necho Darwin\n").chmod(0o755)
    write(folder / "python3", PYTHON).chmod(0o755)
    write(folder / "shasum", SHASUM).chmod(0o755)
    for name in TOOLS:
        (folder / name).symlink_to(str(shutil.which(name)))
    return folder


def test_run_sh_makes_an_environment_on_macos(tmp_path: Path, tools: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("examples/run.sh", "pyproject.toml", "container/lines/2.14/requirements.txt"):
        write(tree / name, (ROOT / name).read_text())
    ran = sh(tree / "examples/run.sh", "--plan", tools=tools)
    made, pip, says, job = ran.stdout.splitlines()
    assert made == "making .venv with Python 3.13.1, without TensorFlow, which the image has", ran.stderr
    assert f"-c {tree}/container/lines/2.14/requirements.txt -e {tree}[tensorflow,monitor,tools]" in pip
    assert says.startswith("on macOS these work: doctor, plan")
    assert job == f"entrypoint local {tree}/examples/digits/train.py --hosts 2 --mode mwms --plan"
    assert "making" not in sh(tree / "examples/run.sh", tools=tools).stdout, "it is made once"


def test_tests_say_that_they_need_linux(tools: Path) -> None:
    ran = sh(ROOT / "tests/run.sh", tools=tools)
    assert ran.returncode == 2 and "the tests need Linux" in ran.stderr and not ran.stdout


@pytest.mark.parametrize("script", ["examples/run.sh", "build.sh"])
def test_script_uses_nothing_that_macos_lacks(script: str) -> None:
    lines = (ROOT / script).read_text().splitlines()
    assert not [line for line in lines if NOT_THERE.search(line) and not line.lstrip().startswith("#")]
