"""Run `entrypoint doctor` on the requests and short scripts that examples.toml and corpus/ describe."""

import contextlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomllib
from builders import write_files

from entrypoint.base.remedies import REMEDIES
from entrypoint.check.doctor.doctor import DoctorReport, examine
from entrypoint.check.doctor.rulebook import read_table

HERE = Path(__file__).parent
IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/my-training:2.14.1-cpu-py311"
# Nothing is amiss with these.
REQUEST: dict[str, Any] = {
    "TrainingJobName": "job",
    "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
    "RoleArn": "arn:aws:iam::123456789012:role/Training",
    "HyperParameters": {"sagemaker_program": "train.py", "sagemaker_submit_directory": "s3://bucket/source.tar.gz"},
    "Environment": {},
    "InputDataConfig": [
        {
            "ChannelName": "training",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/rows/"}},
        }
    ],
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
}
MPI = {"Environment": {"ENTRYPOINT_MODE": "mpi"}, "ResourceConfig": {"InstanceCount": 2}}
# Changes of the request, by the names of jobs.
JOBS: dict[str, Any] = {
    "none": None,
    "one": {},
    **{mode: {**MPI, "Environment": {"ENTRYPOINT_MODE": mode}} for mode in ("mpi", "mwms", "ps", "jax")},
}


def script(name: str) -> str:
    """Return one of the faultless scripts from which the examples are made."""
    return (HERE / f"scripts/{name}.txt").read_text()


SCRIPT, HOROVOD = script("single"), script("mpi")


def read_toml(name: str) -> dict[str, Any]:
    return tomllib.loads((HERE / name).read_text())


def channel(name: str, **source: Any) -> dict[str, Any]:
    place = {"S3DataType": "S3Prefix", "S3Uri": f"s3://bucket/{name}/", **source}
    return {"ChannelName": name, "DataSource": {"S3DataSource": place}}


def manifest(name: str, attributes: list[str]) -> dict[str, Any]:
    """Return a channel in Pipe mode with an augmented manifest of these attributes."""
    kind = {"S3DataType": "AugmentedManifestFile", "AttributeNames": attributes}
    return {**channel(name, **kind), "InputMode": "Pipe", "RecordWrapperType": "RecordIO"}


def change_of(example: dict[str, Any]) -> dict[str, Any] | None:
    """Return how the request of an example differs from the standard one; None without a request.

    Keys are `job`, of JOBS; `environment`, `hyperparameters`, `tag` or `image`, `instance`, `hosts`; `channels`, their
    names; `sharded`, whether each host gets a part of the channel's files; `manifests`, the attributes of each
    channel; and `request`, for all else, in which "none" takes a key away.
    """
    image = f"{IMAGE.rpartition(':')[0]}:{example['tag']}" if "tag" in example else example.get("image")
    channels = [channel(name) for name in example.get("channels", ())]
    channels += [manifest(name, attributes) for name, attributes in example.get("manifests", {}).items()]
    channels += [channel("training", S3DataDistributionType="ShardedByS3Key")] if example.get("sharded") else []
    given = {
        "Environment": example.get("environment"),
        "HyperParameters": example.get("hyperparameters"),
        "AlgorithmSpecification": image and {"TrainingImage": image},
        "ResourceConfig": {
            name: example[key]
            for key, name in (("instance", "InstanceType"), ("hosts", "InstanceCount"))
            if key in example
        },
        "InputDataConfig": channels,
    }
    job = JOBS[example.get("job", "none" if "sdk" in example else "one")]
    if job is None:
        return None
    return joined(job, {key: value for key, value in given.items() if value}, example.get("request", {}))


def script_of(example: dict[str, Any]) -> str:
    """Return the script of an example, or None: its `text`, or the file `script` of scripts/ with changes.

    `put` has pairs: a text that the file has once, and its replacement. `add` is appended to the file.
    """
    text: str = script(example["script"]) if "script" in example else example.get("text", "")
    for old, new in example.get("put", ()):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text + example.get("add", "").rstrip("\n") + "\n" * ("add" in example)


def fixed() -> list[tuple[str, dict[str, Any]]]:
    """Return the rule's name and the example, of each example with a remedy."""
    return [(rule, each) for rule, examples in read_toml("examples.toml").items() for each in examples if "fix" in each]


def mended(example: dict[str, Any]) -> dict[str, Any]:
    """Return an example after its remedy: the table `fix`, merged over it; its `put` changes the example's script.

    The job of an example with `runs` fails before the remedy and runs after it: tests/local/test_doctor_remedies.py.
    """
    text = script_of({"text": script_of(example), "put": example["fix"].get("put", ())})
    return {
        **joined({key: value for key, value in example.items() if key not in {"script", "add", "fix"}}, example["fix"]),
        **{"text": text, "put": []},
    }


def check_remedy(rule: str, example: dict[str, Any], folder: Path, **options: Any) -> None:
    """Assert that a rule finds an example, by its `variant`, and after the remedy finds nothing, nor does another."""
    found = []
    for name, case in (("before", example), ("after", mended(example))):
        (folder / name).mkdir()
        with contextlib.chdir(folder / name):
            found.append(look_at(folder / name, case, **options).findings)
    before, after = found
    shown, of = [each for each in before if each.check == rule], f"{rule}/{example.get('variant')}"
    own = {**read_table("rules").get(of, {}), **({"instead": REMEDIES[of]} if of in REMEDIES else {})}
    for part in ("found", "instead") if own else ():
        form = re.sub(r"\\\$\\\{\w+\\\}", ".*", re.escape(own.get(part, "${ANY}")))
        assert any(re.fullmatch(form, getattr(each, part)) for each in shown), before
    # Tests have no index, so that the doctor says of each new requirement that it was not resolved.
    new = {each.check for each in after} - {each.check for each in before} - {"requirements-unresolved"}
    assert shown and not new and rule not in {each.check for each in after}, found


def look_at(folder: Path, example: dict[str, Any], **options: Any) -> DoctorReport:
    """Run the doctor on an example with its `files`, on the image that its key `on` names, if it has that key.

    `docker`: a shell script that stands for the command of this name, where the machine has one.
    """
    write_files(folder, example.get("files", {}))
    if "docker" in example:
        write_files(folder, {"bin/docker": f"#!/bin/sh\n{example['docker']}"})
        (folder / "bin/docker").chmod(0o755)
        options["environment"] = {"PATH": f"{folder}/bin:/usr/bin:/bin"}
    options |= {"image": example["on"]} if "on" in example else {}
    named = {"name": example["file"]} if "file" in example else {}
    program = example.get("hyperparameters", {}).get("sagemaker_program", "")
    asked = [program] if program in example.get("files", ()) else []  # which a user would name
    text, change = script_of(example), change_of(example)
    return look(folder, text, change, example.get("requirements", ""), programs=asked, **named, **options)


def joined(*changes: dict[str, Any]) -> dict[str, Any]:
    """Merge dictionaries; where several have the same key, merge the dictionaries below it."""
    made: dict[str, Any] = {}
    for key, value in (item for change in changes for item in change.items()):
        made[key] = joined(made[key], value) if isinstance(made.get(key), dict) and isinstance(value, dict) else value
    return made


def without_none(value: Any) -> Any:
    """Return a request without the keys whose value is "none"."""
    if not isinstance(value, dict):
        return value
    return {key: without_none(inside) for key, inside in value.items() if inside != "none"}


def look(
    folder: Path,
    script: str = "",
    change: dict[str, Any] | None = None,
    requirements: str = "",
    name: str = "train.py",
    programs: Sequence[str] = (),
    **options: Any,
) -> DoctorReport:
    """Examine a script, the standard request with a change, or both; with the change {}, the request as it stands."""
    files = [str(folder / each) for each in programs]
    if change is not None:
        path = folder / "request.json"
        path.write_text(json.dumps(without_none(joined(REQUEST, change)), indent=1))
        files.append(str(path))
    if script:
        path = folder / name
        path.write_bytes(script.encode())
        files.append(str(path))
    if requirements:
        (folder / "requirements.txt").write_text(requirements)
    return examine(files, **options)


def found(report: DoctorReport, check: str) -> list[tuple[str, int]]:
    """Return (severity, line) of each finding of a check."""
    return [(str(each.severity), each.place.line) for each in report.findings if each.check == check]
