"""Test `./build.sh --on IMAGE`: our entrypoint on other people's images.

The images are stand-ins, since AWS's cannot be pulled here.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from containers import DOCKER_RUN, Cluster, run_alone, sh
from pip._internal.models.index import PyPI  # where pip itself looks

from images import Images

HERE = Path(__file__).parent
PACKAGES = "/opt/sagemaker-tf-entrypoint/packages"
StartCluster = Callable[..., Cluster]


@pytest.fixture(scope="module")
def images(image: str) -> Iterator[Images]:
    with Images() as made:
        yield made


@pytest.fixture(scope="module")
def like_aws(image: str, images: Images) -> str:
    return images.build((HERE / "like_aws.Dockerfile").read_text(), IMAGE=image)


@pytest.fixture(scope="module")
def onto(like_aws: str, images: Images) -> tuple[str, str]:
    """Return the image with our entrypoint on it, and the output of the build."""
    return images.on(like_aws)


def debian() -> str:
    """Return the image that the image under test was built on."""
    names = "debian:bookworm-slim", "sagemaker-tf-entrypoint-base:bookworm"
    return next(name for name in names if sh("docker", "image", "inspect", name, check=False).returncode == 0)


def config(image: str) -> dict:
    return json.loads(sh("docker", "image", "inspect", "--format", "{{json .Config}}", image).stdout)


def frozen(image: str) -> str:
    """Return the packages and versions in an image's Python."""
    words = ["find", "/opt/venv", "-type", "f", "-not", "-name", "*.pyc", "-printf", "%p %s\n"]
    return sh(*DOCKER_RUN, "--entrypoint", "", image, *words).stdout


def test_build_prints_the_modes_that_will_run(onto: tuple[str, str]) -> None:
    said = onto[1]
    assert re.search(r"^Python 3\.\d+\.\d+: /opt/venv/bin/python$", said, re.MULTILINE)
    for mode in ("single", "ps", "mwms", "mpi"):
        assert f"\nmode {mode}: ready\n" in said
    assert 'our entrypoint takes the place of its own (["bash","-m","/usr/local/bin/entrypoint.sh"])' in said


def test_build_leaves_the_base_image_unchanged(like_aws: str, onto: tuple[str, str]) -> None:
    before, after = config(like_aws), config(onto[0])
    assert frozen(onto[0]) == frozen(like_aws)
    environment = {line.partition("=")[0]: line.partition("=")[2] for line in after["Env"]}
    old = {line.partition("=")[0]: line.partition("=")[2] for line in before["Env"]}
    ours = {"PYTHONUNBUFFERED": "1", "PIP_BREAK_SYSTEM_PACKAGES": "1"}
    assert environment == {**old, **ours, "PATH": f"/opt/sagemaker-tf-entrypoint/bin:{old['PATH']}"}
    assert (after["WorkingDir"], after.get("User")) == (before["WorkingDir"], before.get("User"))
    assert after["Cmd"] == ["train"] and "docker-entrypoint" in after["Entrypoint"][0]


def test_built_image_has_no_trace_of_the_build(onto: tuple[str, str]) -> None:
    told = json.dumps(config(onto[0])) + sh("docker", "history", "--no-trunc", onto[0]).stdout
    assert not [word for word in ("ca-bundle", "_PROXY", "_proxy", "PIP_INDEX_URL") if word in told]
    found = run_alone(
        onto[0], "sh", "-c", "ls -d /build /etc/pip.conf /root/.cache 2>/dev/null; find / -xdev -name ca-bundle.pem"
    )
    assert found.stdout == ""


def test_launcher_programs_come_first_on_path_with_their_own_packages(onto: tuple[str, str]) -> None:
    found = run_alone(
        onto[0], "sh", "-c", "command -v train serve entrypoint; python -c 'import flask; print(flask.__version__)'"
    )
    *programs, flask = found.stdout.split()
    assert {str(Path(program).parent) for program in programs} == {"/opt/sagemaker-tf-entrypoint/bin"}
    assert flask == "2.0.0", "a script imports the image's own"
    assert "/opt/ml/input/config/resourceconfig.json is missing" in run_alone(onto[0], "train").stdout
    served = run_alone(onto[0], "serve").stdout
    assert "/opt/ml/model" in served and "Traceback" not in served


def test_ranks_on_two_hosts_need_no_ssh(onto: tuple[str, str], tmp_path: Path) -> None:
    """The image has Open MPI and no ssh."""
    with Cluster(onto[0], tmp_path, program="tells.py", hosts=2, mode="mpi") as job:
        endings = job.all_end()
        assert "running mpirun.real " in endings[0].log
        for rank, ending in enumerate(endings):
            facts = ending.told[f"rank-{rank}"]
            assert (facts["size"], facts["env"]["SM_CURRENT_HOST"]) == (2, ending.host)
            path = facts["env"]["PYTHONPATH"].split(":")
            assert PACKAGES not in path and path[-1] == "/opt/sagemaker-tf-entrypoint/library"


@pytest.mark.more
def test_ranks_run_as_a_user_other_than_root(like_aws: str, images: Images, tmp_path: Path) -> None:
    """The user has no home, where Open MPI looks for one, and sh for a shell, so that mpirun needs more than orted."""
    name, said = images.on(
        images.build("ARG IMAGE\nFROM ${IMAGE}\nRUN useradd --no-create-home trainer\nUSER trainer\n", IMAGE=like_aws)
    )
    assert "runs as user trainer" in said
    with Cluster(name, tmp_path, program="tells.py", hosts=2, mode="mpi", open_to_all=True) as job:
        job.all_end()


# ---- an image that is no framework's


@pytest.fixture(scope="module")
def bare(images: Images) -> tuple[str, str]:
    """Return an image with Debian's Python without pip and a user other than root, and the build's output."""
    image = images.build((HERE / "bare.Dockerfile").read_text(), IMAGE=debian())
    environment = dict(os.environ)
    index = environment.pop("PIP_INDEX_URL", "") or PyPI.simple_url
    refused = images.try_on(image, env=environment)
    assert refused.returncode != 0 and "has no pip, and PIP_INDEX_URL does not say" in refused.stdout + refused.stderr
    return images.on(image, env={**environment, "PIP_INDEX_URL": index})


@pytest.mark.more
def test_sigterm_ends_hosts_whose_python_has_no_pip(bare: tuple[str, str], tmp_path: Path) -> None:
    name, said = bare
    assert "this Python has no pip: taking one from" in said and "runs as user trainer" in said
    assert config(name)["User"] == "trainer"
    assert "mode single: ready" in said and "mode ps: ready on one host; refused, lacks TensorFlow" in said
    assert sh(*DOCKER_RUN, name, "sh", "-c", "python3 -m pip --version || true").stdout == ""
    with Cluster(name, tmp_path, program="waits.py", hosts=2, mode="mwms", open_to_all=True) as job:
        job.sees("] waiting")
        job.stop()
        job.all_end(143)


@pytest.mark.more
@pytest.mark.parametrize(
    "mode, hosts, names",
    [
        ("mpi", 1, ["mpirun (apt-get install openmpi-bin)"]),
        ("mpi", 2, ["mpirun", "sshd", "ssh-keygen"]),
        ("ps", 2, ["tensorflow"]),
    ],
)
def test_missing_packages_of_a_mode_are_reported_at_the_start(
    bare: tuple[str, str], tmp_path: Path, mode: str, hosts: int, names: list[str]
) -> None:
    with Cluster(bare[0], tmp_path, program="tells.py", hosts=hosts, mode=mode, open_to_all=True) as job:
        for ending in job.all_end(78):
            assert all(name in str(ending.failure) for name in names)
            assert "told" not in ending.log


# ---- what build.sh refuses


def test_a_dry_run_builds_nothing(like_aws: str, images: Images) -> None:
    done = images.try_on(like_aws, "--dry-run", "--python", "/opt/venv/bin/python", "--tag", "tfe-never-built")
    assert done.returncode == 0, done.stderr
    (command,) = [line for line in done.stdout.splitlines() if line.startswith("+ docker build ")]
    for words in (
        "--file container/onto.Dockerfile",
        f"IMAGE={like_aws}",
        "PYTHON=/opt/venv/bin/python",
        "tfe-never-built",
    ):
        assert words in command
    assert ":latest" not in command
    assert "entrypoint doctor" in done.stdout
    assert sh("docker", "image", "inspect", "tfe-never-built", check=False).returncode != 0


def test_failed_build_leaves_no_container(like_aws: str, images: Images) -> None:
    """Docker's older builder keeps the container of the failed step, unless an option forbids that.

    The image's own ENTRYPOINT, which takes no commands, does not keep build.sh from coming so far.
    """
    image = images.build('ARG IMAGE\nFROM ${IMAGE}\nENTRYPOINT ["python3"]\n', IMAGE=like_aws)
    done = images.try_on(image, "--python", "/no/such/python")
    assert done.returncode != 0 and "/no/such/python" in done.stdout + done.stderr
    assert sh("docker", "ps", "--all", "--quiet", "--filter", f"ancestor={image}").stdout == ""


def test_a_missing_image_is_refused(images: Images) -> None:
    done = images.try_on("localhost:9/team/no-such-image:1")
    assert done.returncode == 1
    assert "--on: found no image 'localhost:9/team/no-such-image:1' on this machine" in done.stderr


def test_an_image_for_other_machines_is_refused(like_aws: str, images: Images, tmp_path: Path) -> None:
    """docker's description of the image is that of an image for ARM."""
    real = shutil.which("docker")
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\ncase "$*" in *Architecture*) echo linux/arm64 ;; *) exec {real} "$@" ;; esac\n')
    docker.chmod(0o755)
    done = images.try_on(like_aws, env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert done.returncode == 1
    assert "to be for linux/arm64; wanted linux/amd64" in done.stderr


@pytest.mark.more
def test_image_with_an_old_python_is_refused(like_aws: str, images: Images) -> None:
    old = images.build(
        """
        ARG IMAGE
        FROM ${IMAGE}
        RUN rm /opt/venv/bin/python* /usr/bin/python3* && printf '#!/bin/sh\\necho 3.9 -\\n' > /usr/bin/python3 && \\
            chmod 755 /usr/bin/python3
        """,
        IMAGE=like_aws,
    )
    done = images.try_on(old)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "found: /usr/bin/python3 (3.9 -)" in said and "wanted: Python 3.10 or later" in said
    assert "--python PATH" in said
