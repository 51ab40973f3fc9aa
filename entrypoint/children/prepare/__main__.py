"""Fetches the user's code, installs its requirements, and computes SM_*: once per host, before anything starts.

Reads the task as JSON from stdin and writes the result as JSON to the file named there. On failure the last line
printed says what is wrong, and the code is 65. Run by path, so that this folder comes first in sys.path, and with -P.
"""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

from findings import digest, digest_of_code, flags, software
from gpus import unused
from installing import install, is_package
from sources import check, fetch
from unusable import Unusable, reason

CODE_ERROR = 65
LONGEST_ENTRY = 32 * 4096  # bytes of one argument or environment entry (MAX_ARG_STRLEN of execve(2))


def main() -> int:
    task = json.load(sys.stdin)
    code, program = Path(task["code"]), task["program"]
    if region := task["hyperparameters"].get("sagemaker_region"):  # as sagemaker-training takes it, but before the code
        os.environ.setdefault("SAGEMAKER_REGION", str(region))
    try:
        origin = fetch(task["source"], program, code, Path(task["channel"]))
        package = is_package(program, code)
        check(program, code, origin, package)
        several = len(task["resource_config"]["hosts"]) > 1
        fingerprints = fingerprints_of(code) if several else {}
        do_without_boto3()
        install(program, code)
    except Unusable as wrong:
        print(wrong, flush=True)
        return CODE_ERROR
    except OSError as error:
        print(f"the code folder {code} cannot be prepared: {reason(error)}", flush=True)
        return CODE_ERROR
    env = environment(task, code)
    instance_type = str(task["resource_config"].get("current_instance_type") or "")
    result = {
        "env": env,
        "module": program.removesuffix(".py") if package else None,
        "flags": flags(code),
        "fingerprints": {**fingerprints, **software()} if several else {},
        "unused_gpus": unused(int(env["SM_NUM_GPUS"]), instance_type, env["PYTHONPATH"].split(os.pathsep)),
    }
    try:
        write(Path(task["result"]), json.dumps(result))
    except OSError as error:
        folder = Path(task["result"]).parent
        print(f"nothing can be written to {folder}: {reason(error)}; ENTRYPOINT_RUN_DIR names another", flush=True)
        return CODE_ERROR
    return 0


def fingerprints_of(code: Path) -> dict[str, str]:
    """Return what should be the same on all hosts, as it was before anything was installed."""
    requirements = code / "requirements.txt"
    return {
        "the code": digest_of_code(code),
        "requirements.txt": digest(requirements.read_bytes()) if requirements.is_file() else "",
    }


def do_without_boto3() -> None:
    """Keep sagemaker-training from importing boto3, half a second's work, for a default region; or for CodeArtifact."""
    file = Path(os.environ.get("AWS_CONFIG_FILE", "~/.aws/config")).expanduser()
    if "boto3" not in sys.modules and not file.exists() and not os.environ.get("CA_REPOSITORY_ARN"):
        session = SimpleNamespace(region_name=os.environ.get("AWS_DEFAULT_REGION"))
        sys.modules["boto3"] = SimpleNamespace(session=SimpleNamespace(Session=lambda: session))  # type: ignore[assignment]


def environment(task: dict, code: Path) -> dict[str, str]:
    """Return SM_* as sagemaker-training computes them, and PYTHONPATH."""
    from sagemaker_training import environment as library

    # Given {}, it would read the files again, and those may be absent or null.
    library.read_input_data_config = library.read_hyperparameters = dict
    sagemaker = library.Environment(
        resource_config=task["resource_config"],
        input_data_config=task["input_data_config"],
        hyperparameters=taken_by_the_library(task["hyperparameters"]),
    )
    own = str(Path(__file__).parent)
    path = [str(code), *(entry for entry in sys.path if entry not in ("", own, str(code))), *task["stand_ins"]]
    own_variables = {**of_its_process(), **of_newer_versions(task["resource_config"]), **of_tensorflow()}
    return {**short_enough(sagemaker.to_env_vars()), **own_variables, "PYTHONPATH": os.pathsep.join(path)}


def taken_by_the_library(hyperparameters: dict) -> dict:
    """Leave out these two where they are null, and make a text of a job's name: the library falls over others."""
    known = {key: hyperparameters.get(key) for key in ("sagemaker_job_name", "sagemaker_distribution_instance_groups")}
    rest = {key: value for key, value in hyperparameters.items() if key not in known}
    if isinstance(name := known["sagemaker_job_name"], int | float):
        known["sagemaker_job_name"] = str(name)
    return rest | {key: value for key, value in known.items() if value is not None}


def short_enough(entries: dict[str, str]) -> dict[str, str]:
    """Leave out entries that Linux does not start a program with. Legal hyperparameters can make SM_HPS one."""
    too_long = [k for k, value in entries.items() if len(f"{k}={value}".encode(errors="replace")) >= LONGEST_ENTRY]
    if too_long:
        print(f"warning: left out of the environment, as longer than 128 KiB: {', '.join(too_long)}", flush=True)
    return {key: value for key, value in entries.items() if key not in too_long}


def of_its_process() -> dict[str, str]:
    """Return what sagemaker-training sets in its own process, from which scripts inherit it."""
    return {name: os.environ[name] for name in ("CURRENT_HOST", "SAGEMAKER_JOB_NAME", "SAGEMAKER_REGION")}


def of_newer_versions(resource_config: dict) -> dict[str, str]:
    """Return what later versions of sagemaker-training add: where the hosts of an UltraServer are."""
    topology = resource_config.get("topology")
    return {"SM_TOPOLOGY": json.dumps(topology, sort_keys=True, separators=(",", ":"))} if topology else {}


def of_tensorflow() -> dict[str, str]:
    """Return what SageMaker's TensorFlow images set beside SM_*, unless the job's environment says otherwise.

    They ask AWS for the region of model_dir's bucket; this is the job's own. They also set TF_CPP_MIN_LOG_LEVEL, which
    is left to the script: TensorFlow reads it when it is imported.
    """
    region = os.environ.get("SAGEMAKER_REGION") or os.environ.get("AWS_REGION", "")  # the first is sagemaker-training's
    extras = {"S3_REGION": region, "S3_USE_HTTPS": "1"}
    return {key: value for key, value in extras.items() if value and key not in os.environ}


def write(target: Path, text: str) -> None:
    """Write it as a whole, for our eyes only: there can be secrets in it."""
    scratch = target.with_suffix(".new")
    try:
        scratch.touch(mode=0o600)
        scratch.write_text(text)
        scratch.rename(target)
    finally:
        scratch.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
