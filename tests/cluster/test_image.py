"""Test the content of the image, forbidden content, and the output of build.sh before a push."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from containers import DOCKER_RUN, MARKED, inside, sh
from packaging.requirements import Requirement

from images import ARM64, DEFAULT_LINE, GPU, LINE

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "container/lines" / LINE / "requirements.txt"
OF_GPU = REQUIREMENTS.with_name("gpu.txt")
GIGABYTE = 10**9


def inspect(image: str) -> dict:
    return json.loads(sh("docker", "image", "inspect", image).stdout)[0]


def pins() -> dict[str, str]:
    """Return the pinned versions of installed packages by name. Part 4 of a file is only for the build."""
    files = [REQUIREMENTS, OF_GPU] if GPU else [REQUIREMENTS]
    installed = "\n".join(file.read_text().partition("# ==== part 4")[0] for file in files)
    requirements = (Requirement(line) for line in installed.splitlines() if line and line[0] not in "# ")
    machine = {"platform_machine": "aarch64" if ARM64 else "x86_64"}
    found = {
        each.name: str(each.specifier).removeprefix("==")
        for each in requirements
        if each.marker is None or each.marker.evaluate(machine)
    }
    if GPU:
        del found["tensorflow-cpu"]
    return found


# ---- what it does with its command


def test_image_runs_a_command_unchanged(image: str) -> None:
    """The command is process 1, its arguments are not split or expanded, and the container has its exit code."""
    program = "import os, sys; print(os.getpid(), sys.argv[1:]); sys.exit(42)"
    words = ["a b", "$HOME", "", "*"]
    done = inside(image, "python", "-c", program, *words, check=False)
    assert (done.returncode, done.stdout) == (42, f"1 {words}\n")


@pytest.mark.parametrize("command", [[], ["train"], ["train", "--option"], ["--option"]])
def test_image_runs_train_by_default(image: str, command: list[str], tmp_path: Path) -> None:
    train = tmp_path / "train"
    train.write_text('#!/bin/sh\necho train in pid $$: "$@"\n')
    train.chmod(0o755)
    result = sh(*DOCKER_RUN, "-v", f"{train}:/opt/venv/bin/train:ro", image, *command)
    options = [word for word in command if word != "train"]
    assert result.stdout.split() == ["train", "in", "pid", "1:", *options]


def job(folder: Path) -> list[str]:
    """Write a job of one host into a folder. Return docker's options for it."""
    (folder / "config").mkdir()
    resources = {"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo"}
    (folder / "config/resourceconfig.json").write_text(json.dumps(resources))
    (folder / "config/hyperparameters.json").write_text('{"sagemaker_program": "train.sh"}')
    (folder / "train.sh").write_text("#!/bin/sh\necho it trains\n")
    (folder / "train.sh").chmod(0o755)
    return ["-v", f"{folder}/config:/opt/ml/input/config:ro", "-v", f"{folder}:/opt/ml/code:ro"]


def test_modules_of_the_jobs_pythonpath_do_not_reach_the_launcher(image: str, tmp_path: Path) -> None:
    """A folder that PYTHONPATH names may hold a `socket.py` of the user's."""
    for name in ("enum", "socket", "waitress"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this is not the module that was meant')\n")
    result = sh(*DOCKER_RUN, *job(tmp_path), "-e", "PYTHONPATH=/opt/ml/code", image, "train", check=False)
    assert result.returncode == 0 and "script] it trains\n" in result.stdout, result.stdout + result.stderr


def test_job_writes_no_bytecode(image: str, tmp_path: Path) -> None:
    """`train` runs without docstrings, which needs separate bytecode. Root would write missing bytecode."""
    container = sh("docker", "create", *MARKED, *job(tmp_path), image, "train").stdout.strip()
    try:
        assert "script] it trains\n" in sh("docker", "start", "-a", container).stdout
        written = sh("docker", "diff", container).stdout.splitlines()
    finally:
        sh("docker", "rm", "-f", "-v", container)
    assert [line for line in written if line.endswith(".pyc")] == []


def test_commands_of_sagemakers_own_scripts_are_on_the_path(image: str) -> None:
    """SDK v3 starts bash instead of the entrypoint, and expects these on PATH."""
    names = ["python", "python3", "pip", "pip3", "bash", "/usr/sbin/sshd", "mpirun", "orted", "train", "entrypoint"]
    script = "for name; do command -v $name >/dev/null || echo $name; done"
    assert inside(image, "bash", "-c", script, "bash", *names).stdout == ""


# ---- what is in it


def test_installed_versions_equal_the_pins(image: str) -> None:
    listed = json.loads(inside(image, "pip", "list", "--format", "json").stdout)
    found = {each["name"].lower().replace("_", "-").replace(".", "-"): each["version"] for each in listed}
    assert found.pop("sagemaker-tf-entrypoint")
    real = next(name for name in ("tensorflow-cpu", "tensorflow-cpu-aws", "tensorflow") if name in pins())
    for alias in {"tensorflow", "tensorflow-cpu"} - {real}:  # known by these names, whichever it is installed by
        assert found.pop(alias) == found[real]
    assert found == pins()


def test_the_readme_names_the_versions_of_debian(image: str) -> None:
    readme = (ROOT / "README.md").read_text()
    python = inside(image, "python", "-V").stdout.split()[1].rpartition(".")[0]
    open_mpi = inside(image, "mpirun", "--version").stdout.split()[3].rpartition(".")[0]
    assert f"Python {python}" in readme and f"Open MPI {open_mpi}" in readme


def test_pins_in_the_image_equal_those_of_the_repository(image: str) -> None:
    there = inside(image, "cat", "/opt/sagemaker-tf-entrypoint/requirements.txt").stdout
    if GPU:
        lines = (REQUIREMENTS.read_text() + OF_GPU.read_text()).splitlines(keepends=True)
        assert there == "".join(line for line in lines if not re.search('^tensorflow-cpu==|"aarch64"', line))
    else:
        assert there == REQUIREMENTS.read_text()


def test_pip_check_finds_no_conflict(image: str) -> None:
    assert inside(image, "pip", "check").stdout == "No broken requirements found.\n"


def test_constraints_of_the_image_pin_packages_built_together(image: str) -> None:
    """Derived images install with these constraints."""
    lines = inside(image, "cat", "/opt/sagemaker-tf-entrypoint/constraints.txt").stdout.splitlines()
    kept = ("numpy", "keras", "protobuf", "horovod", "mpi4py", "ml-dtypes")
    assert {f"{name}=={pins()[name]}" for name in kept} <= set(lines)
    assert sum(line.startswith(("tensorflow==", "tensorflow-cpu==")) for line in lines) == 2


def test_cached_bytecode_matches_the_sources(image: str) -> None:
    """A cached module whose source looks newer would be compiled at each start of each container."""
    program = (
        "import pathlib, sys, importlib.util as u, struct\n"
        "for cached in (each for root in ('/opt/venv', '/usr/lib/python3.11')\n"
        "               for each in pathlib.Path(root).rglob('__pycache__/*.cpython-311*.pyc')):\n"
        "    source = pathlib.Path(u.source_from_cache(str(cached)))\n"
        "    wanted = (0, int(source.stat().st_mtime), source.stat().st_size)\n"
        "    if struct.unpack('<3I', cached.read_bytes()[4:16]) != wanted: print(cached)\n"
    )
    assert inside(image, "python", "-c", program).stdout == ""


def test_pip_uninstalls_the_launcher_completely(image: str) -> None:
    """A derived image may remove the package."""
    script = (
        "pip uninstall -q -y --root-user-action ignore sagemaker-tf-entrypoint && ls -d /opt/venv/lib/*/*/entrypoint"
    )
    result = inside(image, "bash", "-c", script, check=False)
    assert "No such file" in result.stderr, result.stdout + result.stderr


def test_the_image_is_no_larger_than_allowed(image: str) -> None:
    of_line = 1.5 if LINE == DEFAULT_LINE else 1.8
    assert inspect(image)["Size"] <= (7 if GPU else of_line + 0.5 * ARM64) * GIGABYTE


def test_launcher_is_the_small_last_layer(image: str) -> None:
    """A push after a change of the launcher sends only this layer."""
    sizes = sh("docker", "history", "--human=false", "--format", "{{.Size}}", image).stdout.split()
    assert 0 < next(size for size in map(int, sizes) if size) < 10_000_000


def test_image_has_the_configuration_that_sagemaker_needs(image: str) -> None:
    config = inspect(image)["Config"]
    assert config["Entrypoint"] == ["/usr/local/bin/docker-entrypoint"]
    assert config["Cmd"] == ["train"]
    assert config["StopSignal"] == "SIGTERM"
    assert config["WorkingDir"] == "/"
    assert not config.get("Healthcheck")
    labels = config["Labels"]
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0 AND MIT"
    assert labels["com.amazonaws.sagemaker.capabilities.accept-bind-to-port"] == "true"  # serve
    assert labels["org.opencontainers.image.version"] in (ROOT / "pyproject.toml").read_text()


# ---- what is not in it


def test_the_image_has_no_compiler_and_no_headers(image: str) -> None:
    names = "cc gcc g++ c++ clang cpp as ld make cmake gfortran"
    found = inside(image, "bash", "-c", f"for name in {names}; do command -v $name; done; true").stdout
    assert found == ""
    assert inside(image, "find", "/", "-xdev", "-name", "Python.h").stdout == ""
    assert inside(image, "find", "/usr/include", "-type", "f", check=False).stdout == ""


def test_image_has_no_file_of_the_build_machine(image: str) -> None:
    """Its hosts and resolv.conf are searched in the layers (test_image_layers.py): docker puts empty ones over them."""
    gone = "/etc/machine-id /etc/pip.conf /build /src /pins /wheels /root/.ssh /root/.cache"
    assert inside(image, "bash", "-c", f"ls -d {gone} 2>/dev/null; true").stdout == ""
    assert inside(image, "find", "/var/lib/apt/lists", "/var/cache/apt", "/tmp", "!", "-type", "d").stdout == ""
    assert inside(image, "stat", "-c", "%u %g", "/etc/shadow").stdout == "0 42\n", "the build lost ownership"


def test_the_image_has_no_ca_bundle_of_the_build(image: str) -> None:
    """The trust store equals the one that Debian's package makes from its own certificates, byte for byte."""
    script = r"""
        before=$(sha256sum < /etc/ssl/certs/ca-certificates.crt)
        find /usr/local/share/ca-certificates -type f
        dpkg --verify ca-certificates | grep -v -e /usr/share/doc -e /usr/share/man
        update-ca-certificates --fresh >/dev/null 2>&1
        [ "$before" = "$(sha256sum < /etc/ssl/certs/ca-certificates.crt)" ] || echo the bundle differs
    """
    assert inside(image, "bash", "-c", script).stdout == ""
    assert "CAInfo" not in inside(image, "apt-config", "dump").stdout

    # Bundles (files with more than a few certificates) elsewhere: those inside Python distributions.
    script = r"""
        grep -rIc -e '-----BEGIN CERTIFICATE-----' /etc /opt /root /run /srv /usr /var 2>/dev/null |
            awk -F: '$NF > 5 {sub(/:[0-9]+$/, ""); print}'
    """
    packages = "/opt/venv/lib/python3.11/site-packages/"
    assert set(inside(image, "bash", "-c", script).stdout.split()) == {
        "/etc/ssl/certs/ca-certificates.crt",
        packages + "botocore/cacert.pem",
        packages + "certifi/cacert.pem",
        packages + "grpc/_cython/_credentials/roots.pem",
        packages + "pip/_vendor/certifi/cacert.pem",
    }


def test_history_and_environment_reveal_nothing_of_the_build(image: str) -> None:
    history = sh("docker", "history", "--no-trunc", "--format", "{{.CreatedBy}}", image).stdout
    told = history + json.dumps(inspect(image)["Config"])
    words = ["ca-bundle", "CERT", "CA_BUNDLE", "_PROXY", "_proxy", "PIP_", "BASE_IMAGE", "DEBIAN_FRONTEND"]
    assert not [word for word in words if word in told]
    assert "RUN" not in history and "apt-get" not in history


# ---- build.sh

ECR = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"


def build_sh(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return sh(str(ROOT / "build.sh"), *arguments, check=False, env={**os.environ, **environment}, cwd="/")


def test_dry_run_of_a_push_only_prints_the_push(tmp_path: Path) -> None:
    called = tmp_path / "called"
    for name in ("aws", "docker", "debootstrap", "cp"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {called}\n')
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    result = build_sh("--dry-run", "--base", "some:base", "--push", f"{ECR}/team/tf:try-1", PATH=path)
    assert result.returncode == 0, result.stderr
    commands = [line[2:] for line in result.stdout.splitlines() if line.startswith("+ ")]
    where = "--region eu-west-1 --registry-id 123456789012"
    login = f"docker login --username AWS --password-stdin {ECR}"
    at = [
        next(number for number, command in enumerate(commands) if command.startswith(start))
        for start in (
            "docker build --force-rm --build-arg BASE_IMAGE=some:base ",
            f"aws ecr describe-repositories {where} --repository-names team/tf",
            f"aws ecr create-repository {where} --repository-name team/tf",
            f"aws ecr get-login-password --region eu-west-1 | {login}",
            "docker tag sagemaker-tf-entrypoint:",
            f"docker push {ECR}/team/tf:try-1",
        )
    ]
    assert at == sorted(at)
    # It may ask docker whether it is there.
    assert {line.split()[1] for line in called.read_text().splitlines()} == {"version"}


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("cpu", []),
        ("gpu", ["--gpu"]),
        ("cpu-221", ["--tensorflow", "2.21"]),
        ("gpu-221", ["--tensorflow", "2.21", "--gpu"]),
        ("gpu-jax-221", ["--tensorflow", "2.21", "--gpu", "--jax"]),
        ("cpu-arm64", ["--platform", "linux/arm64"]),
        ("cpu-221-arm64", ["--platform", "linux/arm64", "--tensorflow", "2.21"]),
    ],
)
def test_bake_and_build_sh_build_the_same_image(target: str, options: list[str]) -> None:
    """docker-bake.json is for `docker buildx bake`, which not every machine has."""
    bake = json.loads((ROOT / "docker-bake.json").read_text())
    defaults = {name: each["default"] for name, each in bake["variable"].items()}
    platform = options[options.index("--platform") + 1] if "--platform" in options else "linux/amd64"
    made, line = dict[str, Any](), [target]
    while base := bake["target"][line[0]].get("inherits"):
        line = [*base, *line]
    for name in line:
        found = bake["target"][name]
        made = {**made, **found, "args": made.get("args", {}) | found.get("args", {})}
    words = build_sh("--dry-run", "--base", "some:base", *options).stdout
    (command,) = re.findall(r"^\+ docker build (.*)$", words, re.M)
    args = dict(re.findall(r"--build-arg (\w+)=(\S+)", command))
    assert set(args) - {"BUILDARCH"} == set(made["args"])
    for name in ("TENSORFLOW", "DEVICE", "JAX", "VERSION"):
        wanted = re.sub(r"\$\{(\w+)\}", lambda met: defaults[met[1]], made["args"].get(name, ""))
        assert args.get(name, "") == wanted
    assert made["platforms"] == [platform]
    assert made["tags"][0].replace("${REPOSITORY}", defaults["REPOSITORY"]) in command


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (f"--push {ECR}/tf", r"\+ docker push .*/tf:2\.14\.\d+-cpu-py311-debian12-\d+\.\d+\.\d+$"),
        ("--gpu", r":2\.14\.1-gpu-py311-cu118-debian12-"),
        ("--tensorflow 2.21", r"entrypoint:2\.21 sagemaker-tf-entrypoint:2\.21\.0-cpu-py311-debian12-"),
        ("--tensorflow 2.21 --gpu", r"entrypoint:2\.21-gpu sagemaker-\S+:2\.21\.0-gpu-py311-cu129-debian12-"),
        ("--tensorflow 2.21 --gpu --jax", r":2\.21-gpu-jax sagemaker-\S+:2\.21\.0-gpu-jax-py311-cu129-debian12-"),
        ("--tensorflow 2.21 --jax", r"sagemaker-tf-entrypoint:2\.21 "),  # whose image has jax anyhow
        (
            "--tensorflow 2.21 --platform linux/arm64",
            r"entrypoint:2\.21-arm64 sagemaker-\S+:2\.21\.0-cpu-py311-debian12-\S+-arm64 ",
        ),
        (f"--platform linux/arm64 --push {ECR}/tf --push-arm64", r"\+ docker push .*/tf:2\.14\.\d+-cpu-\S+-arm64$"),
    ],
)
def test_an_image_is_built_under_its_own_name(options: str, words: str) -> None:
    done = build_sh("--dry-run", "--base", "some:base", *options.split())
    assert re.search(words, done.stdout, re.M)
    assert (":latest" in done.stdout) == ("--push" in options)
    assert "JAX=yes" not in done.stdout or "--gpu --jax" in options


NO_ECR = [  # names that are nearly right
    "tf",
    "docker.io/library/tf",
    "12345678901.dkr.ecr.eu-west-1.amazonaws.com/tf",
    ECR,
    f"{ECR}/",
    f"{ECR}/Tf",
    f"{ECR}/t",
    f"{ECR}/tf:",
    f"{ECR}/tf:a b",
    f"{ECR}/tf@sha256:00",
    f"{ECR}/../tf",
    f"{ECR}.example.org/tf",
    "123456789012.dkr.ecr.euwest1.amazonaws.com/tf",
    f"https://{ECR}/tf",
    f"{ECR}/tf;true",
    f"{ECR}/tf\n",
]
REFUSED = [
    (["--frobnicate"], "--frobnicate"),
    (["--base", "some:base", "--jax"], "wanted --tensorflow 2.21"),
    (["--tensorflow", "2.15"], "found '2.15'; wanted one of 2.14 2.21"),
    (["--push"], "lacks its value"),
    (["--builder", "kaniko"], "legacy, buildkit or auto"),
    (["--base", "some:base", "--ca-bundle", "/nowhere.pem"], "/nowhere.pem"),
    (["--platform", "linux/arm/v7"], "wanted linux/amd64 or linux/arm64"),
    (["--platform", "linux/arm64", "--gpu"], "is for CPUs"),
    (["--platform", "linux/arm64", "--push", f"{ECR}/tf"], "training instances are linux/amd64"),
    (["--on", "some:image", "--base", "x"], "--gpu and --jax are for our own image"),
    (["--on", "some:image", "--gpu"], "--gpu and --jax are for our own image"),
    (["--on", "some:image", "--jax"], "--gpu and --jax are for our own image"),
    (["--on", "some:image", "--push", "x"], "--push: found 'x'"),
    *((["--base", "some:base", "--push", name], "--push: found") for name in NO_ECR),
]


@pytest.mark.parametrize(("arguments", "says"), REFUSED, ids=[" ".join(arguments) for arguments, _ in REFUSED])
def test_wrong_arguments_are_refused_before_anything_is_built(arguments: list[str], says: str) -> None:
    result = build_sh("--dry-run", *arguments)
    assert result.returncode == 1
    assert says in result.stderr.splitlines()[0]
    assert "docker build" not in result.stdout


def test_build_without_a_docker_daemon_prints_what_to_do() -> None:
    result = build_sh("--base", "some:base", DOCKER_HOST="unix:///nowhere/docker.sock")
    assert result.returncode == 1
    assert "/nowhere/docker.sock" in result.stderr
    assert "Start it" in result.stderr


# ---- serving


KERAS = """
import sys
from pathlib import Path
import numpy as np
import tensorflow as tf
from entrypoint.serving.serving_config import find_model
from entrypoint.serving.served_model import load
folder = Path("/tmp/model")
folder.mkdir()
model = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1, kernel_initializer="ones")])
model.save(folder / sys.argv[1])
loaded = load(find_model(folder))
(signature,) = [each for name, each in loaded.signatures.items() if name == "serving_default"]
(answer,) = loaded.predict("serving_default", {signature.inputs[0].name: np.array([[1, 2]], "float32")}).values()
print("answer", answer.tolist())
"""


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_keras_file_can_be_served(image: str, name: str) -> None:
    assert "answer [[3.0]]" in inside(image, "python", "-W", "ignore", "-c", KERAS, name).stdout


# ---- parameter servers


OPS = """
import json, os, sys
import entrypoint
sys.path.insert(0, os.path.join(os.path.dirname(entrypoint.__file__), "programs"))
import tf_server
tf_server._import_all(reads=False) if sys.argv[1] == "whole" else tf_server._import_what_serves()
from tensorflow.core.framework import kernel_def_pb2, op_def_pb2
from tensorflow.python.client import pywrap_tf_session as session
ops = op_def_pb2.OpList.FromString(session.TF_GetBuffer(session.TF_GetAllOpList()))
kernels = kernel_def_pb2.KernelList.FromString(session.TF_GetBuffer(session.TF_GetAllRegisteredKernels()))
found = {each.name for each in ops.op} | {f"{each.op} on {each.device_type}" for each in kernels.kernel}
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
print(json.dumps({"found": sorted(found), "memory": int(status["RssAnon"].split()[0])}))
"""
OF_OTHERS = {"AudioMicrofrontend", "AudioMicrofrontend on CPU", "SobolSample on CPU"}  # as tf_server.py has it


def test_ps_has_every_tensorflow_op_in_half_the_memory(image: str) -> None:
    whole, alone = (
        json.loads(inside(image, "python", "-c", OPS, what).stdout.splitlines()[-1]) for what in ("whole", "alone")
    )
    assert len(alone["found"]) > 2000
    assert set(whole["found"]) - set(alone["found"]) <= OF_OTHERS
    assert alone["memory"] < whole["memory"] / (1.5 if ARM64 else 2), "an emulator's own memory counts, too"
