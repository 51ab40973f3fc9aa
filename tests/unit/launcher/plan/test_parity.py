"""Test that SM_* and the script's arguments equal sagemaker-training's, except what docs/differences.md lists.

The library, in the two versions that AWS's images have, runs in processes of its own and reads the config files by
itself. Our values are those that the prepare step writes.
"""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from parity.jobs import ABSENT, DEEP, DIFFERENT, JOBS, WORDS, Described

from entrypoint.base.errors import ConfigError
from entrypoint.launcher.job.choices import Mode
from entrypoint.launcher.job.config import read_job
from entrypoint.launcher.plan.plan import Role
from entrypoint.launcher.plan.planner import plan_for

ROOT = Path(__file__).resolve().parents[4]
LIBRARY = Path(__file__).resolve().parent / "parity" / "library.py"
PAGE = ROOT / "docs" / "differences.md"
WRAPT = "WRAPT_DISABLE_EXTENSIONS"
OF_INSTALLERS = {"PIP_CONSTRAINT", "UV_CONSTRAINT", "UV_PYTHON"}
OF_VERSIONS = {WRAPT}  # set for a TensorFlow that needs it
SETS = ("CURRENT_HOST", "SAGEMAKER_JOB_NAME", "SAGEMAKER_REGION")
EVERY = {**JOBS, **DIFFERENT}
# Where each is; nothing: beside pytest. tests/run.sh makes the other folder.
LIBRARIES = {"4.9.0": "", "5.1.4": str(Path(sys.prefix) / "sagemaker-training-5.1")}


class Seen:
    """The values that the library and the launcher compute for each job, in the same folder."""

    def __init__(self, bases: Mapping[str, Path], ours: Callable[[str], dict[str, Any]], version: str) -> None:
        self.version, self.path = version, {"PYTHONPATH": LIBRARIES[version]}
        self.bases, self.mine = bases, ours
        asked = [[str(self.bases[name]), container(described)] for name, described in EVERY.items()]
        out = subprocess.run(
            [sys.executable, LIBRARY],
            input=json.dumps(asked),
            env={**container(), **self.path},
            capture_output=True,
            text=True,
            check=True,
        )
        self.library = dict(zip(EVERY, map(json.loads, out.stdout.splitlines()), strict=True))

    def theirs(self, name: str) -> dict[str, Any]:
        """Return `env` and `args`, or `error` if the library refuses the job. Add `topology`, which only 5.x has."""
        found = self.library[name]
        if self.version.startswith("5") or "error" in found:
            return found
        topology = EVERY[name].resources.get("topology", [])
        whole = as_text({**json.loads(found["env"]["SM_TRAINING_ENV"]), "topology": topology})
        more = {"SM_TOPOLOGY": as_text(topology)} if topology else {}
        return {**found, "env": {**found["env"], "SM_TRAINING_ENV": whole, **more}}

    def env(self, whose: dict[str, Any], name: str) -> dict[str, str]:
        """Return `env` with any folder replaced."""
        return {k: v.replace(str(self.bases[name]), "BASE") for k, v in of_sagemaker(whose["env"]).items()}

    def changed(self, name: str) -> set[str]:
        mine, theirs = of_sagemaker(self.mine(name)["env"]), self.theirs(name)["env"]
        return {key for key in {*theirs, *mine} if theirs.get(key) != mine.get(key)}


def as_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def write(base: Path, described: Described) -> None:
    config = base / "input" / "config"
    config.mkdir(parents=True)
    (base / "code").mkdir()
    (base / "code" / "train.py").write_text("import json, sys; print(json.dumps(sys.argv[1:]))")
    for name, content in (
        ("resourceconfig", described.resources),
        ("hyperparameters", described.hyperparameters),
        ("inputdataconfig", described.channels),
    ):
        if content is not ABSENT:
            (config / f"{name}.json").write_text(json.dumps(content))


def container(described: Described | None = None) -> dict[str, str]:
    """Return the environment of the container. From this machine, it has only PATH."""
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **(described.environment if described else {})}


def of_sagemaker(env: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in env.items() if key.startswith("SM_") or key in SETS}


@pytest.fixture(scope="module")
def bases(tmp_path_factory) -> dict[str, Path]:
    """Return the folder of each job, with its config files."""
    folder = tmp_path_factory.mktemp("parity")
    bases = {name: folder / f"{number:02}" for number, name in enumerate(EVERY)}
    for name, described in EVERY.items():
        write(bases[name], described)
    return bases


@pytest.fixture(scope="module")
def ours(bases) -> Callable[[str], dict[str, Any]]:
    """Return a function that gives the launcher's values for a job, computed once for both versions of the library."""

    @cache
    def make(name: str) -> dict[str, Any]:
        described, base = EVERY[name], bases[name]
        run = base / "run"
        run.mkdir(exist_ok=True)
        job = read_job(base, described.environment, run)
        plan = plan_for(job)
        prepare = next(spec for spec in plan.on(job.cluster.me.name) if spec.role is Role.PREPARE)
        env = {**container(described), **dict(prepare.env)}
        out = subprocess.run(prepare.argv, input=prepare.stdin, env=env, capture_output=True, text=True)
        assert out.returncode == 0, out.stdout + out.stderr
        env = json.loads(job.paths.prepared.read_text())["env"]
        return {"env": env, "args": list(job.program.arguments), "mode": job.mode, "plan": plan, "said": out.stdout}

    return make


@pytest.fixture(scope="module", params=LIBRARIES)
def seen(request, bases, ours):
    return Seen(bases, ours, request.param)


@pytest.mark.parametrize("name", JOBS)
def test_environment_and_arguments_equal_those_of_sagemaker_training(name, seen):
    theirs, mine = seen.theirs(name), seen.mine(name)
    assert of_sagemaker(mine["env"]) == theirs["env"]
    assert mine["args"] == theirs["args"]
    assert json.loads(mine["env"]["SM_USER_ARGS"]) == theirs["args"]


# --- the differences ---


def null_in_resources(seen):
    assert seen.theirs("null resources") == {"error": "TypeError"}
    mine, theirs = seen.mine("null resources"), seen.theirs("absent resources")
    assert seen.env(mine, "null resources") == seen.env(theirs, "absent resources")
    assert seen.changed("absent resources") == set()


def null_in_hyperparameters(seen):
    for name, told in (("null job name", ""), ("a number for a job name", "2025"), ("null groups", "job-2025-11-21")):
        assert seen.theirs(name) == {"error": "TypeError"}
        assert seen.mine(name)["env"]["SAGEMAKER_JOB_NAME"] == told


def absent_files(seen):
    usual = seen.env(seen.theirs("empty files"), "empty files")
    assert seen.changed("empty files") == set()
    for content, error in (("absent", {"FileNotFoundError"}), ("null", {"AttributeError", "TypeError"})):
        for file in ("hyperparameters", "channels"):
            name = f"{content} {file}"
            assert seen.theirs(name).get("error") in error
            assert seen.env(seen.mine(name), name) == usual


def too_long(seen):
    theirs, mine = seen.theirs("long"), seen.mine("long")
    gone = {key for key, value in theirs["env"].items() if len(f"{key}={value}") >= 1 << 17}
    assert gone == {"SM_HPS", "SM_TRAINING_ENV", "SM_USER_ARGS"} == seen.changed("long")
    assert gone <= set(re.findall(r"SM_\w+", mine["said"]))
    assert mine["args"] == theirs["args"]
    with pytest.raises(OSError, match="too long"):
        subprocess.run(["true"], env=theirs["env"], check=True)
    subprocess.run(["true", *mine["args"]], env=mine["env"], check=True)


def nested_too_deep(seen):
    mine = seen.mine("deep")
    assert seen.changed("deep") == {"SM_HPS", "SM_TRAINING_ENV"}
    assert json.loads(mine["env"]["SM_HPS"]) == {"x": DEEP}
    assert mine["args"] == seen.theirs("deep")["args"] == ["-x", DEEP]


def false_as_text(seen):
    assert seen.theirs("False")["mpi"] is True
    assert seen.mine("False")["mode"] is Mode.SINGLE
    assert seen.changed("False") == set()


def tuning(seen):
    assert seen.changed("tuning") == {"SM_HPS", "SM_HP_MODEL_DIR", "SM_TRAINING_ENV", "SM_USER_ARGS"}
    assert seen.theirs("tuning")["args"] == ["--model_dir", "s3://bucket/tuning"]
    assert seen.mine("tuning")["args"] == ["--model_dir", "s3://bucket/tuning/trial-1/model"]


def topology(seen):
    assert seen.changed("UltraServer") == set()
    theirs, mine = (env["env"] for env in (seen.library["before 2022"], seen.mine("before 2022")))
    assert ("topology" in json.loads(theirs["SM_TRAINING_ENV"])) == seen.version.startswith("5")
    assert json.loads(mine["SM_TRAINING_ENV"])["topology"] == []
    assert json.loads(seen.mine("UltraServer")["env"]["SM_TOPOLOGY"]) == DIFFERENT["UltraServer"].resources["topology"]


def of_tensorflow(seen):
    theirs, mine = seen.theirs("region")["env"], seen.mine("region")["env"]
    more = set(mine) - set(theirs) - OF_INSTALLERS - OF_VERSIONS
    assert more == {"PYTHONPATH", "S3_REGION", "S3_USE_HTTPS"}  # the first is the library's, too
    assert (mine["S3_REGION"], mine["S3_USE_HTTPS"]) == ("eu-west-1", "1")
    assert seen.changed("region") == set()


def shell(seen):
    wanted = [word for name, value in WORDS.items() for word in (f"-{name}", value)]
    code = (
        "import sys; from sagemaker_training import environment, process\n"
        "command = [sys.executable, 'train.py', *environment.Environment().to_cmd_args()]\n"
        "process.check_error(command, [], 1, capture_error=True)"
    )
    env = {**container(), **seen.path, "SAGEMAKER_BASE_DIR": str(seen.bases["words"])}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    (theirs,) = [line for line in out.stdout.splitlines() if line.startswith("[")]
    if seen.version.startswith("4"):
        assert json.loads(theirs) != wanted
        assert "substituted" in theirs and "and more" in out.stdout.splitlines()
    else:
        assert json.loads(theirs) == wanted
    mine = seen.mine("words")
    (script,) = [spec for spec in mine["plan"].processes if spec.role is Role.SCRIPT]
    out = subprocess.run(script.argv, cwd=seen.bases["words"] / "code", capture_output=True, text=True, check=True)
    assert json.loads(out.stdout) == mine["args"] == wanted


def of_the_ranks_own_host(seen):
    first, hosts = seen.theirs("mpi, algo-1"), ["algo-1", "algo-2"]
    words = ("train.py", first["args"], first["env"], 1, "algo-1", hosts, "", "eth0")
    code = (
        f"import json; from sagemaker_training import mpi; print(json.dumps(mpi.MasterRunner{words}._create_command()))"
    )
    env = {
        **container(),
        **seen.path,
        "SAGEMAKER_BASE_DIR": str(seen.bases["mpi, algo-1"]),
    }  # it reads the config once more
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    command = json.loads(out.stdout.splitlines()[-1])
    assert command[command.index("SM_CURRENT_HOST") - 1] == "-x"
    mine = seen.mine("mpi, algo-2")
    (mpirun,) = [spec for spec in mine["plan"].processes if spec.role is Role.LAUNCHER]
    assert not [word for word in mpirun.argv if word.startswith("SM_")]
    assert mine["env"]["SM_CURRENT_HOST"] == "algo-2"
    assert seen.changed("mpi, algo-2") == set()


def of_installers(seen):
    theirs, mine = seen.theirs("region")["env"], seen.mine("region")["env"]
    assert not OF_INSTALLERS & set(theirs)
    assert mine["PIP_CONSTRAINT"] == mine["UV_CONSTRAINT"]
    assert re.search(r"^numpy==\d", Path(mine["PIP_CONSTRAINT"]).read_text(), re.MULTILINE)
    assert mine["UV_PYTHON"] == sys.executable


def of_versions(seen):
    assert WRAPT not in seen.theirs("region")["env"]
    version = importlib.metadata.version("tensorflow-cpu")
    assert seen.mine("region")["env"].get(WRAPT) == ("1" if version < "2.16" else None)


def refused(seen):
    for name in ("= in a name", "NUL", "half a pair"):
        theirs = seen.theirs(name)
        with pytest.raises(ValueError):  # UnicodeEncodeError is one
            subprocess.run(["true", *theirs["args"]], env=theirs["env"], check=True)
        with pytest.raises(ConfigError, match="wanted"):
            seen.mine(name)


DIFFERENCES = {
    "null in `resourceconfig.json`": null_in_resources,
    "null in `sagemaker_*`": null_in_hyperparameters,
    "absent or null files": absent_files,
    "variables beyond 128 KiB": too_long,
    "values nested more than 100 deep": nested_too_deep,
    "switches with the text `False`": false_as_text,
    "`model_dir` of a tuning job": tuning,
    "`SM_TOPOLOGY`": topology,
    "`S3_REGION`, `S3_USE_HTTPS`": of_tensorflow,
    "arguments and the shell": shell,
    "variables of MPI ranks": of_the_ranks_own_host,
    "`PIP_CONSTRAINT`, `UV_CONSTRAINT`, `UV_PYTHON`": of_installers,
    "`WRAPT_DISABLE_EXTENSIONS`": of_versions,
    "what no program can be given": refused,
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_documented_difference_exists(name, seen):
    DIFFERENCES[name](seen)


def test_page_lists_exactly_the_tested_differences():
    of_jobs = PAGE.read_text().partition("\n## What AWS's images have")[0]
    rows = re.findall(r"^\| ([^|]+?) \|", of_jobs, re.MULTILINE)[1:]
    assert [row for row in rows if not row.startswith("--")] == list(DIFFERENCES)
