"""Test compose.yaml at the top of the repository, as users call it, with each generation of docker compose."""

import json
import os
import re
import shutil
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from containers import PATIENCE, SESSION, sh

from images import ROOT

PROGRAMS = "tests/cluster/programs"
HOST_LOST, CONFIG = 69, 78
DOCS = ROOT / "docs/compose.md"
OURS = ROOT / ".venv-sdk-compose"  # made by tests/get_compose.sh where the machine's own docker has no compose


EXIT_CODE = ("--exit-code-from", "algo-1")


def with_ours(variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment without variables of compose, plus the given ones."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith("COMPOSE_")}, **variables}


@cache
def generations() -> dict[str, tuple[tuple[str, ...], dict[str, str]]]:
    """Return the generations of compose that this machine has: name -> (command, its variables)."""
    known = {
        "v2": (("docker", "compose"), {"DOCKER_CONFIG": str(OURS)} if OURS.is_dir() else {}),
        # It gives a busy daemon a minute else, which those who call it give longer.
        "1.29": (("docker-compose",), {"COMPOSE_HTTP_TIMEOUT": "240"}),
    }
    return {
        name: (command, variables)
        for name, (command, variables) in known.items()
        if shutil.which(command[0])
        and name.lstrip("v") in sh(*command, "version", env=with_ours(variables), check=False).stdout
    }


class Project:
    """A compose project in a folder: a job, from `up` to `down`."""

    def __init__(self, generation: str, folder: Path, variables: dict[str, str]) -> None:
        self.command, own = generations()[generation]
        self.folder, self.name = folder, f"tfe{uuid.uuid4().hex[:8]}"
        self.variables = {**own, "COMPOSE_PROJECT_NAME": self.name, **variables}
        self.lines: list[str] = []
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *options: str, **variables: str) -> subprocess.Popen[str]:
        self.lines = []
        running = subprocess.Popen(
            [*self.command, "up", *(options or EXIT_CODE)],
            env=with_ours({**self.variables, **variables}), cwd=self.folder, text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._started.append(running)
        return running

    def read(self, running: subprocess.Popen[str], until: str = "", times: int = 1) -> str:
        """Return the output up to its end, or up to the given number of lines that end with this text."""
        give_up = threading.Timer(PATIENCE, running.kill)
        give_up.start()
        for line in running.stdout:
            self.lines.append(re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line))
            times -= bool(until) and self.lines[-1].rstrip().endswith(until)
            if times == 0:
                break
        give_up.cancel()
        assert not until or times == 0, f"{until!r} never came:\n{self.log}"
        return self.log

    @property
    def log(self) -> str:
        return "".join(self.lines)

    def up(self, *options: str, **variables: str) -> int:
        """Return the exit code of `docker compose up` with these options, by default `--exit-code-from algo-1`."""
        running = self.start(*options, **variables)
        self.read(running)
        return running.wait(PATIENCE)

    def call(self, *words: str) -> None:
        sh(*self.command, *words, env=with_ours(self.variables), cwd=self.folder, within=PATIENCE)

    def containers(self, form: str) -> list[str]:
        ids = self._things("ps", "-aq")
        return sorted(sh("docker", "inspect", "-f", form, *ids).stdout.splitlines()) if ids else []

    def _things(self, *words: str) -> list[str]:
        return sh("docker", *words, "--filter", f"label=com.docker.compose.project={self.name}").stdout.split()

    def down(self) -> None:
        # Hosts 3 to 8 are profiles, whose containers go only with them.
        self.variables["COMPOSE_PROFILES"] = "8"
        self.call("down", "--timeout", "0")
        for running in self._started:  # its hosts are gone
            running.communicate(timeout=PATIENCE)
        assert self._things("ps", "-aq") + self._things("network", "ls", "-q") == []


StartProject = Callable[..., Project]


@pytest.fixture
def project(image: str, tmp_path: Path) -> Iterator[StartProject]:
    """Return `project("v2")`: the repository's own compose.yaml, with outputs in a folder of the test."""
    made: list[Project] = []

    def make(generation: str, folder: Path = ROOT, **variables: str) -> Project:
        if generation not in generations():
            missing = f"no docker compose {generation} (tests/run.sh gets it)"
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
        common = {"IMAGE": image, "OUTPUT": str(tmp_path / "out")}
        made.append(Project(generation, folder, {**common, **variables}))
        return made[-1]

    yield make
    for each in made:
        print(f"---- {each.name}\n{each.log}")
        each.down()


def failures(folder: Path) -> dict[str, str]:
    """Return the first line of each host's failure file."""
    return {path.parts[-4]: path.read_text().splitlines()[0] for path in folder.glob("out/algo-*/ml/output/failure")}


both = pytest.mark.parametrize("generation", ["v2", "1.29"])
# Of these, 1.29 shows nothing that shorter ones, or a stop, do not show.
newer = pytest.mark.parametrize("generation", ["v2", pytest.param("1.29", marks=pytest.mark.more)])


@newer
def test_containers_of_a_failed_job_start_again(project: StartProject, tmp_path: Path, generation: str) -> None:
    job = project(generation, MODE="mpi", PROGRAM=f"{PROGRAMS}/raises.py", COMPOSE_PROFILES="3")
    assert job.up(HYPERPARAMETERS="on=algo-2") == 1
    cause = "algo-2 rank 1 (exit code 1): ValueError: row 17 of algo-2 has no label"
    hosts = ["algo-1", "algo-2", "algo-3"]
    assert failures(tmp_path) == dict.fromkeys(hosts, cause)
    assert job.containers("{{.Config.Hostname}}") == [f"ip-10-0-0-{number}.ec2.internal" for number in (1, 2, 3)]
    resources = json.loads((tmp_path / "out/algo-2/ml/input/config/resourceconfig.json").read_text())
    assert (resources["current_host"], resources["hosts"]) == ("algo-2", hosts)
    for _ in range(2):  # the second time nothing has changed, and compose starts the very containers again
        (tmp_path / "out/algo-2/ml/model/left").write_text("by somebody")
        assert job.up(PROGRAM=f"{PROGRAMS}/tells.py") == 0
        assert failures(tmp_path) == {}
        assert not (tmp_path / "out/algo-2/ml/model/left").exists()


@newer
def test_a_killed_host_ends_the_job(project: StartProject, tmp_path: Path, generation: str) -> None:
    """Compose sends SIGTERM to the other hosts as soon as one ends. They have noticed the loss before that."""
    job = project(generation, MODE="mwms", PROGRAM=f"{PROGRAMS}/waits.py")
    running = job.start()
    job.read(running, "] waiting", times=2)
    job.call("kill", "algo-2")
    job.read(running)
    assert running.wait(PATIENCE) == HOST_LOST
    assert failures(tmp_path)["algo-1"].startswith("algo-2 (lost: ")


@both
def test_compose_stop_gives_scripts_time_to_save(project: StartProject, tmp_path: Path, generation: str) -> None:
    job = project(generation, MODE="mwms", PROGRAM="tests/programs/saves.py")
    running = job.start()
    job.read(running, "] asleep", times=2)
    job.call("stop")
    job.read(running)
    assert running.wait(PATIENCE) == 0
    assert failures(tmp_path) == {}
    assert all((tmp_path / f"out/{host}/ml/model/saved-{host}").exists() for host in ("algo-1", "algo-2"))


@newer
def test_too_many_hosts_are_refused(project: StartProject, generation: str) -> None:
    """More cases: tests/local/test_compose_host.py."""
    job = project(generation)
    assert job.up(COMPOSE_PROFILES="9") == CONFIG
    assert re.search(r"error: .*\(COMPOSE_PROFILES\) is '9'; wanted a whole number from 1 to 8", job.log)
    assert "Traceback" not in job.log


@both
def test_missing_image_is_reported(project: StartProject, generation: str) -> None:
    job = project(generation, IMAGE=f"sagemaker-tf-entrypoint:missing-{SESSION}")
    assert job.up() != 0
    assert "THE IMAGE IS NOT ON THIS MACHINE: run build.sh" in job.log


@newer
def test_commands_of_the_page_run_a_users_project(
    project: StartProject, image: str, tmp_path: Path, generation: str
) -> None:
    """Run the page's commands as written, but replace `docker compose` by the command of this generation."""
    (block,) = re.findall(r"```sh\n(.*?)```", DOCS.read_text(), re.DOTALL)
    making, typed, after = block.partition("docker compose up")
    assert typed and after.splitlines()[0].strip() == "--build --exit-code-from algo-1"
    home = tmp_path / "home"
    home.mkdir()
    sh("bash", "-euc", making, cwd=ROOT, env={**os.environ, "HOME": str(home)})
    mine = home / "my-project"
    dockerfile = mine / "Dockerfile"
    text = dockerfile.read_text()
    assert text.count("FROM sagemaker-tf-entrypoint\n") == 1
    dockerfile.write_text(text.replace("FROM sagemaker-tf-entrypoint\n", f"FROM {image}\n"))
    own = f"wt-own-{uuid.uuid4().hex[:8]}"
    job = project(generation, mine, IMAGE=own, OUTPUT="./out/compose")
    try:
        assert job.up(*after.splitlines()[0].split()) == 0
        assert "[algo-1] parameter servers: 2 ps, 1 chief, 1 worker" in job.log, "MODE of .env"
        assert "read 200 rows from 2 files" in job.log, "the channel of .env"
        assert "learned y = 3.0" in job.log
        assert (mine / "out/compose/algo-1/ml/model/1/saved_model.pb").exists()
    finally:
        job.down()
        sh("docker", "rmi", "--force", own, check=False)
