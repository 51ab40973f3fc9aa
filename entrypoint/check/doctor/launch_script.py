"""Run a launch script in its own process, and let nothing leave the machine; return the requests it would send.

That process runs `entrypoint/programs/caught.py`. No other part of the checks runs the user's code.
"""

import ast
import configparser
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from entrypoint.base.errors import clip, nearest
from entrypoint.base.severity import Severity
from entrypoint.check.doctor.request import Launch, Request, spelled
from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.finding import Finding
from entrypoint.usercode.notebooks import without_magics
from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.source import UNREADABLE, Place, UseKind, text_of

CAUGHT = Path(__file__).resolve().parents[2] / "programs" / "caught.py"
LONGEST_SECONDS = 300.0  # importing an SDK takes some fifteen
ENDS_SECONDS = 5.0  # for caught.py to end what the script has started
NOWHERE = "http://127.0.0.1:9"  # a proxy on the discard port, which has no listener
_CLASSES = ("Estimator", "EstimatorBase", "TensorFlow", "PyTorch", "Framework", "ModelTrainer", "HyperparameterTuner")
_OF_SDK = tuple(f"sagemaker.*{name}" for name in _CLASSES)
_OF_CORE = "sagemaker*.TrainingJob.create"
_OF_BOTO3 = (".create_training_job", ".create_hyper_parameter_tuning_job")
_SDK_MODULES = ("sagemaker", "boto3", "botocore")
_OF_V3 = ("sagemaker.train", "sagemaker.core", "sagemaker.mlops", "sagemaker.ai_registry")  # modules that v2 lacks
# Switches of `distribution=`, with the value of ENTRYPOINT_MODE for each.
_MODES = {"parameter_server": "ps", "multi_worker_mirrored_strategy": "mwms", "mpi": "mpi", "smdistributed": "mpi"}


@dataclass(frozen=True, kw_only=True)
class Launched:
    """Hold the results of a launch script."""

    requests: tuple[Request, ...]
    launches: tuple[Launch, ...]
    problem: str = ""  # what ended it early
    missing: str = ""  # the missing module, if that was the problem
    sdk: str = ""  # that its Python has: v2, v3, or nothing
    line: int = 0  # of the problem
    output: str = ""  # its last lines
    unsealed: str = ""  # why the kernel did not isolate it from the network


def submits(code: UserProgram) -> bool:
    """Return whether a program or a module beside it submits jobs: by an SDK's class, or by boto3's own calls."""
    if code.has(*_OF_SDK) or code.has(_OF_CORE, kind=UseKind.CALL):
        return True
    return code.has("boto3*", kind=UseKind.IMPORT) and code.has(*_OF_BOTO3, kind=UseKind.CALL)


def launched(
    script: Path,
    shown: str,
    arguments: Sequence[str],
    python: str = sys.executable,
    environment: Mapping[str, str] = {},
    longest: float = LONGEST_SECONDS,
) -> Launched:
    """Run a launch script in the current folder for at most `longest` seconds; return its requests, unsent."""
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch, "result.json")
        text = script.read_text("utf-8", errors="replace")
        if (plain := without_magics(text)) != text:
            target.with_name("script.py").write_text(plain)  # caught.py runs it instead of the script
        command = [python, str(CAUGHT), str(target), str(script), *arguments]
        given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        variables = _environment(environment, Path(scratch))
        try:
            process = subprocess.Popen(command, env=variables, start_new_session=True, **given)  # type: ignore[call-overload]
        except OSError as error:
            return Launched(requests=(), launches=(), problem=f"{python} cannot be started: {error}")
        late = False
        try:
            output = process.communicate(timeout=longest)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            output, late = "", True
        finally:  # also end whatever the script has started
            _end(process)
        last = "\n".join(output.strip().splitlines()[-5:])
        if not target.exists():
            why = f"did not end within {longest:g} s" if late else "ended unexpectedly"
            return Launched(requests=(), launches=(), problem=f"it {why}", output=last)
        return _result(json.loads(target.read_text()), shown, last)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()  # it ends what the script has started
    with suppress(subprocess.TimeoutExpired):
        process.wait(ENDS_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()


def _result(found: dict[str, Any], shown: str, output: str) -> Launched:
    launches = list[Launch]()
    for each in found["launches"]:
        code = each.pop("code", "")
        launches.append(Launch(maker=each.pop("class"), source_dir=each.pop("source_dir", "") or code, **each))
    requests: list[Request] = []
    for each in found["requests"]:
        asked = spelled(each["request"])
        bodies = _trials(asked) if each["operation"] == "CreateHyperParameterTuningJob" else [asked]
        launch = launches[each["launch"]] if each["launch"] is not None else Launch()
        launch = replace(launch, uploads=each["uploads"])
        local, line = each["operation"] == "local mode", each["line"] or launch.line
        requests += [Request(body=body, file=shown, line=line, launch=launch, local=local) for body in bodies]
    error = found["error"] or {}
    return Launched(
        requests=tuple(requests),
        launches=tuple(launches),
        problem=error.get("text", ""),
        missing=error.get("missing", ""),
        sdk=found["sdk"],
        line=error.get("line", 0),
        output=output,
        unsealed=found["unsealed"],
    )


def _trials(tuning: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a training request for each definition of a tuning job, with one value of each range."""
    common = (tuning.get("HyperParameterTuningJobConfig") or {}).get("ParameterRanges") or {}
    for definition in tuning.get("TrainingJobDefinitions") or [tuning.get("TrainingJobDefinition") or {}]:
        ranges = {**common, **(definition.get("HyperParameterRanges") or {})}
        tuned = {
            each["Name"]: each.get("MinValue") or each.get("ValueHint") or (each.get("Values") or [""])[0]
            for several in ranges.values()
            for each in several
        }
        hosts = definition.get("HyperParameterTuningResourceConfig") or {}
        hosts = {**hosts, **(hosts.get("InstanceConfigs") or [{}])[0]}
        yield {
            "TrainingJobName": "a-trial",
            "ResourceConfig": hosts,
            **definition,
            "HyperParameters": {
                **(definition.get("StaticHyperParameters") or {}),
                **tuned,
                "_tuning_objective_metric": "objective",
            },
        }


def _environment(given: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Return the user's environment without access to AWS.

    Credentials are invented, profiles have only their names and regions, and proxies are a port without a listener.
    """
    kept = {key: value for key, value in given.items() if not key.startswith("AWS_") and "proxy" not in key.lower()}
    region = given.get("AWS_REGION") or given.get("AWS_DEFAULT_REGION")
    home = Path(given.get("HOME") or "/nonexistent")
    config = scratch / "config"
    config.write_text(_profiles(Path(given.get("AWS_CONFIG_FILE") or home / ".aws/config"), region or "us-east-1"))
    return {
        **kept,
        **({"AWS_REGION": region, "AWS_DEFAULT_REGION": region} if region else {}),
        **({"AWS_PROFILE": given["AWS_PROFILE"]} if "AWS_PROFILE" in given else {}),
        "AWS_CONFIG_FILE": str(config),
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), NOWHERE),
    }


def _profiles(path: Path, region: str) -> str:
    """Return an AWS configuration with the names and regions of the user's profiles, and invented credentials."""
    config = configparser.RawConfigParser()
    with suppress(configparser.Error, OSError, UnicodeDecodeError):
        config.read(path)
    lines = []
    for section in dict.fromkeys(["default", *config.sections()]):
        where = config.get(section, "region", fallback=region)
        lines += [f"[{section}]", f"region = {where}", "aws_access_key_id = nobody", "aws_secret_access_key = nothing"]
    return "\n".join(lines) + "\n"


# --- what is told of it ---


def _told(launched: Launched) -> str:
    """Return how a launch script ended, with its last line of output if it only exited with a code."""
    last = launched.output.splitlines()[-1:] if launched.problem.startswith("it exits") else []
    return clip(" ".join(": ".join([launched.problem, *last]).split()))


def _other_sdk(launched: Launched) -> str:
    """Return the SDK that a script is for, if its Python has the other one; else ""."""
    if launched.sdk == "v3" and launched.missing.startswith("sagemaker."):
        return "" if launched.missing.startswith(_OF_V3) else "v2"
    if launched.sdk == "v3" and re.search(r"(module|from) 'sagemaker'", launched.problem):
        return "v2"
    return "v3" if launched.sdk == "v2" and launched.missing.startswith(_OF_V3) else ""


def _misspelt(problem: str, script: Path) -> str:
    """Return a remedy if the problem names a path of the script that is not there, and another one is near it."""
    with suppress(*UNREADABLE, OSError):
        texts = sorted({*map(text_of, ast.walk(ast.parse(script.read_text("utf-8", errors="replace"))))} - {""})
        named = [text for text in texts if re.search(rf"(?<![\w/.-]){re.escape(text)}(?![\w/-])", problem)]
        roots = [Path(), script.parent, *(script.parent / text for text in texts if (script.parent / text).is_dir())]
        missing = [Path(text) for text in named if not any((root / text).exists() for root in roots)]
        for path in missing if re.search(r"(?i)\b(file|director|folder|path)", problem) else ():
            beside = [
                each for root in roots if (root / path.parent).is_dir() for each in (root / path.parent).iterdir()
            ]
            if near := nearest(path.name, [each.name for each in beside if each.suffix == path.suffix]):
                return f"{path.with_name(near)} in place of {path}, which is not there"
    return ""


# Arguments of SDK v2's estimators of which another name may be a slip.
_ARGUMENTS = (
    *("instance_count", "instance_type", "volume_size", "max_run", "max_wait", "max_retry_attempts", "input_mode"),
    *("use_spot_instances", "checkpoint_s3_uri", "output_path", "metric_definitions", "environment", "hyperparameters"),
    *("entry_point", "source_dir", "dependencies", "framework_version", "security_group_ids", "subnets"),
)


def of_launch(launched: Launched, shown: str, python: str) -> Iterator[Finding]:
    """Yield reasons why a launch script fails or submits nothing, and its arguments that the SDK drops."""
    place = Place(file=shown, line=launched.line)
    if wanted := _other_sdk(launched):
        what = launched.missing or launched.problem.partition(": ")[2]
        package = {"v2": "sagemaker<3", "v3": "sagemaker>=3"}[wanted]
        yield finding(
            "no-sdk/other", place, missing=what, python=python, has=launched.sdk, wanted=wanted, package=package
        )
    elif launched.missing.partition(".")[0] in _SDK_MODULES:
        yield finding("no-sdk", place, missing=launched.missing, python=python)
    elif launched.problem:
        asked = bool(launched.requests)
        key, more = "launch-failed", " after it has asked for a job" if asked else ""
        if launched.problem.startswith("TypeError") and any(each.unversioned for each in launched.launches):
            key = "launch-failed/unversioned"
        severity = Severity.NOTE if asked else Severity.ERROR
        near = "" if asked else _misspelt(launched.problem, Path(shown))
        yield finding(key, place, severity=severity, more=more, why=_told(launched), instead=near)
    elif not launched.requests:
        yield finding("no-request", place)
    for launch in launched.launches:
        at = Place(file=shown, line=launch.line)
        if launch.renamed:
            new = ", ".join(f"{name}=" for name in launch.renamed.values())
            yield finding("argument-renamed", at, names=", ".join(launch.renamed), new=new)
        for name, value in launch.dropped.items():
            if name == "distribution":
                mode = next((ours for word, ours in _MODES.items() if word in value), "MODE")
                more = ', and "ENTRYPOINT_PROCESSES_PER_HOST"' if "processes_per_host" in value else ""
                yield finding("distribution-dropped", at, maker=launch.maker, value=value, mode=mode, more=more)
            else:
                near = f"{meant}={value}; or " if (meant := nearest(name, _ARGUMENTS, least=0.7)) else ""
                yield finding("argument-dropped", at, maker=launch.maker, name=name, value=value, near=near)
