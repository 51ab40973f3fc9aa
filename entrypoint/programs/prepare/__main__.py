"""Fetch the user's code, install its requirements and compute SM_*: once per host, before anything else starts.

It reads the task as JSON from stdin and writes the result as JSON to the file that the task names. On failure the last
line names the fault, and the exit code is 65 (78 if the image lacks a module). It runs by path, so that this folder
comes first in sys.path, and with -P; or in a fork of the launcher, where host/fork.py does the same.
"""

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

import efa
from code_files import digest, digest_of_code, read, texts
from gpus import has_gpus, unused, visible
from installing import install, is_package, module_of, modules_of
from pins import Installed, changed, installed, numbers, pins
from sources import check, fetch
from unusable import Unusable, reason
from variables import variables

NAMED = ("tensorflow", "tensorflow-cpu", "keras", "horovod", "mpi4py", "numpy", "protobuf", "sagemaker-tf-entrypoint")
OUR_PACKAGES = str(Path(__file__).parents[3])
# Code with one of these words is parsed, to warn of what does not train.
LOOKED_AT = ("tensorflow", "keras", "horovod", "smdistributed", "estimator", ".fit", "Strategy", "ClusterCoordinator")
CODE_ERROR = 65
CONFIG_ERROR = 78
STARTED_WITH = {
    "tensorflow": "parameter servers and worker servers are started with it",
    "mpi4py": "ranks are started with it (python -m mpi4py)",
    "jax": "mode jax is for programs that train with it",
}


def main() -> int:
    task = json.load(sys.stdin)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # names of files may be no UTF-8
    paths_of_others = [entry for entry in sys.path if entry not in ("", str(Path(__file__).parent))]
    if OUR_PACKAGES not in sys.path:  # they lie in a folder of their own, with boto3, which no script must see
        sys.path.insert(1, OUR_PACKAGES)
    from entrypoint.usercode.words import flags, without_comments

    code, program = Path(task["code"]), task["program"]
    if region := task["hyperparameters"].get("sagemaker_region"):  # as sagemaker-training does, but before the code
        os.environ.setdefault("SAGEMAKER_REGION", str(region))
    try:
        origin = fetch(task["source"], program, code, Path(task["channel"]))
        package = is_package(program, code)
        check(program, code, origin, package)
        if package:
            modules_of(program, code)  # raise before anything is installed
        several = len(task["resource_config"]["hosts"]) > 1
        files = [(name, without_comments(text)) for name, text in texts(code)]
        fingerprints, before = fingerprints_of(code) if several else {}, installed()
        install(program, code, replace=task["replace"], mode=task["mode"])
    except Unusable as wrong:
        print(wrong, flush=True)
        return CODE_ERROR
    except OSError as error:
        print(f"the code folder {code} cannot be prepared: {reason(error)}", flush=True)
        return CODE_ERROR
    path = [str(code), *(entry for entry in paths_of_others if entry != str(code)), *task["more_path"]]
    env = environment(task, path)
    if lacking := lacks(task["modules"], path):
        print(lacking, flush=True)
        return CONFIG_ERROR
    here, other_mode = installed(), ""
    fingerprints |= software(here, before) | (sets_of(here) if several else {})
    given = (task["resource_config"].get("current_instance_type"), task["of_frameworks"].get("sagemaker_instance_type"))
    instance_type = next((str(each) for each in given if each), "")
    gpus = int(env["SM_NUM_GPUS"])
    unused_gpus = unused(gpus, instance_type, path)
    found = list[str]()
    if any(word in text for _, text in files for word in LOOKED_AT):
        refused, found, other_mode = look_at(files, task, path, here, gpus=0 if unused_gpus else visible(gpus))
        if refused:
            print(refused, flush=True)
            return CODE_ERROR
    if several:
        adapters = efa.look(instance_type, task["mode"])
        env.update(adapters.variables)
        for line in adapters.describe(quiet=bool(unused_gpus) or not has_gpus(gpus, instance_type)):
            print(line, flush=True)
    for line in found:
        print(f"warning: {line}", flush=True)
    result = {
        "env": env,
        "module": module_of(program, code, path) if package else None,
        "flags": flags("\n".join(text for _, text in files)),
        "fingerprints": fingerprints,
        "unused_gpus": unused_gpus,
        "other_mode": other_mode,
    }
    try:
        target = Path(task["result"])  # the supervisor reads it after we have ended well
        target.touch(mode=0o600)  # it may hold secrets
        env.update(keep(task, here))
        target.write_text(json.dumps(result))
    except OSError as error:
        folder = target.parent
        print(f"nothing can be written to {folder}: {reason(error)}; ENTRYPOINT_RUN_DIR names another", flush=True)
        return CODE_ERROR
    return 0


def look_at(
    files: list[tuple[str, str]], task: dict, path: list[str], here: Mapping[str, Installed], *, gpus: int
) -> tuple[str, list[str], str]:
    """Return why TensorFlow 1's names cannot be provided ("" if they can), and the coordinator's warnings.

    The last item is the place where the code makes the strategy of another mode. It is part of the reason if the job
    fails.
    """
    # Scripts without a framework need no parser, whose import takes as long as all the rest.
    from entrypoint.usercode import tf1
    from entrypoint.usercode.reader import UserProgram
    from entrypoint.usercode.unsupported import OTHER_MODE, doubts

    shim, of_python = task["tf1"] == "shim", [*path, *sys.path]
    keras_2 = tf1.has_keras_2(os.environ, of_python, shim=shim)
    if keras_2:  # the shim uses it, and `doubts` reads the variable
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
    code = UserProgram.of(files, task["program"])
    refused = tf1.refused(code, of_python, keras_2=keras_2) if shim else ""
    if refused or not task["is_coordinator"]:
        return refused, [], ""
    versions = [here[name].version for name in ("tensorflow", "tensorflow-cpu") if name in here]
    found = doubts(
        code,
        task["mode"] if len(task["resource_config"]["hosts"]) > 1 else "",
        task["ps_workers"],
        versions[0] if versions else "",
        os.environ,
        gpus=gpus,
        servers=task["servers"],
        ranks=task["ranks"],
    )
    other_mode = next((f"{each.place} {each.found}" for each in found if each.check == OTHER_MODE), "")
    return "", [*map(str, found), *tf1.describe(code, of_python, shim=shim, keras_2=keras_2)], other_mode


def fingerprints_of(code: Path) -> dict[str, str]:
    """Return the facts that must be equal on all hosts, before anything is installed."""
    requirements = code / "requirements.txt"
    return {
        "the code": digest_of_code(code),
        "requirements.txt": digest(read(requirements)) if requirements.is_file() else "",
    }


def software(here: Mapping[str, Installed], before: Mapping[str, Installed]) -> dict[str, str]:
    """Return versions of what a job consists of: the image, Python, and the packages that matter most.

    Lines name what the requirements have installed; `before` is what was installed before.
    """
    there = {name: each.version for name, each in here.items()}
    # A plain `docker build` is told neither version nor commit.
    image = [each for each in os.environ.get("SAGEMAKER_TF_ENTRYPOINT_IMAGE", "").split() if each != "unknown"]
    found = {"image": " ".join(image), "Python": sys.version.split()[0]}
    found |= {name: there.get(name, "") for name in NAMED}
    found["installed by requirements"] = "\n".join(sorted(f"{name} {there[name]}" for name in changed(before, here)))
    return found


def sets_of(here: Mapping[str, Installed]) -> dict[str, str]:
    """Return digests of all packages, which must be the same on all hosts."""
    versions = sorted((name, each.version) for name, each in here.items())
    found = {"the set of Python packages": digest(json.dumps(versions))}
    with contextlib.suppress(OSError):
        found["the set of Debian packages"] = digest(Path("/var/lib/dpkg/status").read_bytes())
    return found


def environment(task: dict, path: list[str]) -> dict[str, str]:
    """Return SM_* as sagemaker-training computes them, PYTHONPATH, and what SageMaker's TensorFlow images add.

    Those images ask AWS for the region of model_dir's bucket; here it is the job's own region. They also set
    TF_CPP_MIN_LOG_LEVEL, which is left to the script: TensorFlow reads it when it is imported.
    """
    found = variables(task)
    of_images = {"S3_REGION": found["SAGEMAKER_REGION"] or os.environ.get("AWS_REGION", ""), "S3_USE_HTTPS": "1"}
    unset = {key: value for key, value in of_images.items() if value and key not in os.environ}
    return {**found, **unset, "PYTHONPATH": os.pathsep.join(path)}


def keep(task: dict, here: Mapping[str, Installed]) -> dict[str, str]:
    """Return the variables by which the user's programs, their pip and their uv keep the installed versions.

    TensorFlow before 2.16 cannot use a dict of a tf.Module beside typing_extensions 4.6 or later on Python 3.11, unless
    wrapt runs without its C extension.
    """
    file = Path(task["result"]).with_name("constraints.txt")
    kept = pins(here, task["replace"])
    file.touch(mode=0o600)  # as every file of this folder
    file.write_text(kept.constraints)
    names = ("PIP_CONSTRAINT", "UV_CONSTRAINT")
    own = {name: " ".join(filter(None, [os.environ.get(name), str(file)])) for name in names}
    own["UV_PYTHON"] = os.environ.get("UV_PYTHON") or sys.executable
    version = kept.versions.get("tensorflow", "")
    if version and numbers(version) < (2, 16) and "WRAPT_DISABLE_EXTENSIONS" not in os.environ:
        own["WRAPT_DISABLE_EXTENSIONS"] = "1"
    return own


def lacks(modules: list[str], path: list[str]) -> str:
    """Return which modules the user's Python does not find now that the requirements are installed; "" if none."""
    importlib.invalidate_caches()
    names = [name for name in modules if not (find_spec(name) or PathFinder.find_spec(name, path))]
    why = "; ".join(f"{name} is not installed, and {STARTED_WITH[name]}" for name in names)
    return why and f"{why}. Wanted it in the image, for {sys.executable}, or in requirements.txt"


if __name__ == "__main__":
    sys.exit(main())
