"""Test that commands and code in README.md, the documents and the examples do what they state, with both SDKs.

Blocks of Python and commands are read out of the documents and run. Their CreateTrainingJob requests
are written to a host's disk as by SageMaker. The launcher reads and plans the job from there.
"""

import argparse
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name
from botocore.validate import ParamValidator
from builders import names, resources, write_config
from local_mode import DRIVERS, ROOT, Job, docker, needed_python, python_of
from waiting import eventually

from entrypoint.base.errors import ConfigError
from entrypoint.launcher.job import job as jobs
from entrypoint.launcher.job.config import read_job
from entrypoint.launcher.plan.plan import Role
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.serving.serving_config import read_serving
from entrypoint.simulate.local_channels import parse_channel

sys.path.insert(0, str(ROOT / "examples"))
import submit

Request = dict[str, Any]
Sent = dict[str, list[list[Request]]]

DOCUMENTS = [
    ROOT / f"{name}.md"
    for name in (
        "README", "docs/sagemaker", "docs/serving", "docs/instance_groups", "docs/maskrcnn", "examples/README",
        "examples/deepfm/README", "examples/resnet/README",
    )
]  # fmt: skip
IMAGE, ROLE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/my-training:1", "arn:aws:iam::123456789012:role/Training"
NAMES = {"image": IMAGE, "role": ROLE, "IMAGE": IMAGE, "ROLE": ROLE}
IN_CONTAINER = "/opt/ml/input/data/sm_drivers"  # where SDK 3's own programs lie
PATIENCE = 400.0  # seconds: when to give up

# Beside what the documents show: no option, all options, and what does not go with the rest of them.
DEEPFM = f"{ROOT}/examples/deepfm/train.py"
PLAIN = f"{DEEPFM} --image {IMAGE} --role {ROLE}"
EVERYTHING = f"""
{PLAIN} --mode mpi --instances 2 --instance-type ml.c5.9xlarge --processes-per-host 4 --region eu-central-1
--env ENTRYPOINT_STOP_GRACE=110 --env ENTRYPOINT_RESTARTS=1
--hyperparameters epochs=3 rate=1e-3 'name=a b' flag=true --output s3://bucket/out --volume-size 200
--channel training=s3://bucket/rows/ --channel evaluation=efs://fs-0123456789abcdef0/rows
--channel more=fsx://fs-0123456789abcdef1/abcdefgh/rows,access=rw --metric 'auc=auc=([0-9.]+)' --tags team=ads cost=42
--subnets subnet-1 subnet-2 --security-groups sg-1 --encrypt --remote-debug
--max-run 7200 --spot --checkpoints s3://bucket/checkpoints
"""
WARM = f"{PLAIN} --mode ps --instances 2 --keep-alive 1800 --no-wait"
# Each cell of the matrix of channels (entrypoint/launcher/job/channels.py), and each option.
CHANNELS = f"""
{PLAIN} --mode mpi --instances 2 --processes-per-host 2
--channel training-1=s3://bucket/a/,mode=Pipe,distribution=ShardedByS3Key,shuffle=7,compression=Gzip
--channel training-2=s3://bucket/b/,mode=Pipe,distribution=ShardedByS3Key,shuffle=7,compression=Gzip
--channel own-1=s3://bucket/a.jsonl,mode=Pipe,attributes=image-ref:label,wrapper=RecordIO
--channel own-2=s3://bucket/b.jsonl,mode=Pipe,attributes=image-ref:label,wrapper=RecordIO
--channel part=s3://bucket/c/,mode=FastFile,distribution=ShardedByS3Key
--channel whole=s3://bucket/list.json,type=ManifestFile,content-type=application/x-recordio
"""
OURS = {"channels": CHANNELS, "plain": PLAIN, "everything": EVERYTHING, "warm": WARM}


def blocks_for(sdk: str) -> list[str]:
    """Return the documents' blocks of Python for this SDK or for both SDKs."""
    found = [
        block for path in DOCUMENTS for block in re.findall(r"^```python\n(.*?)^```", path.read_text(), re.M | re.S)
    ]
    return [block for block in found if sdk in sdks_of(block)]


def sdks_of(block: str) -> set[str]:
    if block.startswith("image = "):
        return {"v2", "v3"}
    modules = set(re.findall(r"^from sagemaker\.(\w+)", block, re.M))
    return {"v3" if modules & {"train", "core"} else "v2"} if modules else set()


def commands() -> list[list[str]]:
    """Return the arguments of each call of examples/submit.py in the documents, as a shell splits them."""
    texts = [*(path.read_text() for path in DOCUMENTS), submit.__doc__]
    lines = [block for text in texts for block in re.findall(r"(?:^    .*\n)+", text, re.M)]
    script = "".join(block for block in lines if "examples/submit.py" in block)
    shell = 'python() { printf "%s\\0" "$@"; printf "\\n"; }; aws() { :; }\n'
    said = subprocess.run(["bash", "-euc", shell + script], capture_output=True, text=True, check=True).stdout
    called = [line.split("\0")[:-1] for line in said.splitlines()]
    return [words[1:] for words in called if words[0] == "examples/submit.py"]


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


ON_SAGEMAKER = [command for command in commands() if "--local" not in command]
ON_THIS_MACHINE = [command for command in commands() if "--local" in command]


def requests_of(sdk: str, folder: Path) -> Sent:
    """Return the requests of all blocks and commands, by one process of the SDK, since importing it takes longest."""
    (folder / "src").mkdir()
    (folder / "src/train.py").touch()
    (folder / "examples").symlink_to(ROOT / "examples")
    task = {"commands": [*ON_SAGEMAKER, *map(shlex.split, OURS.values())], "blocks": blocks_for(sdk), "names": NAMES}
    nowhere = "http://127.0.0.1:9"  # no one listens there: what is not answered by then fails
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "AWS_ACCESS_KEY_ID": "invented",
        "AWS_SECRET_ACCESS_KEY": "invented",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",  # so that what is uploaded is not wrapped
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), nowhere),
    }
    driver = subprocess.run(
        [python_of(sdk), DRIVERS / "submit_calls.py"],
        input=json.dumps(task), capture_output=True, text=True, timeout=PATIENCE, cwd=folder, env=environment,
    )  # fmt: skip
    assert driver.returncode == 0, driver.stderr[-5000:]
    return dict(json.loads(driver.stdout))


@pytest.fixture(scope="module")
def all_sent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Sent]]]:
    """Run both SDKs at once, since each takes some 15 s of a CPU."""
    with ThreadPoolExecutor(2) as pool:
        yield {
            sdk: pool.submit(requests_of, sdk, tmp_path_factory.mktemp(sdk))
            for sdk in ("v2", "v3")
            if python_of(sdk).exists()
        }


@pytest.fixture(scope="module", params=["v2", "v3"])
def sdk(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def sent(sdk: str, all_sent: dict[str, Future[Sent]]) -> Sent:
    needed_python(sdk)
    return all_sent[sdk].result()


def read(request: Request, base: Path) -> jobs.Job:
    """Write the files that SageMaker makes of a request; return the job that the launcher reads from them."""
    write_config(base, resource_config(request), request["HyperParameters"], input_data_config(request))
    environment = {"TRAINING_JOB_NAME": request["TrainingJobName"], **request.get("Environment", {})}
    drivers = request.get("SmDrivers", {})
    if "distributed_drivers/launch.py" in drivers:
        environment |= launched(drivers, base / "drivers", environment)
    return read_job(base, environment, base / "run")


def input_data_config(request: Request) -> dict[str, dict[str, str]]:
    """Return a request's channels as in inputdataconfig.json, where SageMaker writes File for FastFile."""
    usual = request["AlgorithmSpecification"]["TrainingInputMode"]
    found = {}
    for each in request.get("InputDataConfig", []):
        source = each["DataSource"].get("S3DataSource", {})
        described = {
            "TrainingInputMode": "Pipe" if each.get("InputMode", usual) == "Pipe" else "File",
            "S3DistributionType": source.get("S3DataDistributionType", "FullyReplicated"),
            "RecordWrapperType": each.get("RecordWrapperType", "None"),
        }
        kind = {"ContentType": each["ContentType"]} if "ContentType" in each else {}
        found[each["ChannelName"]] = described | kind
    return found


def launched(drivers: dict[str, str], folder: Path, environment: dict[str, str]) -> dict[str, str]:
    """Start the driver of `Launcher` as the SDK's script does; return its arguments for `train`."""
    for name, text in drivers.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace("/opt/ml/output", str(folder)))
    (folder / "bin").mkdir(exist_ok=True)
    train = folder / "bin/train"
    train.write_text(f"#!{sys.executable}\nimport json, os\nprint(json.dumps(dict(os.environ)))\n")
    train.chmod(0o755)
    exported = {
        "SM_DISTRIBUTED_CONFIG": drivers["distributed.json"],
        "SM_ENTRY_SCRIPT": json.loads(drivers["sourcecode.json"])["entry_script"],
        "SM_PYTHON_CMD": sys.executable,
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
    }
    (line,) = re.findall(r"^\$SM_PYTHON_CMD (.*launch\.py.*)$", drivers["sm_train.sh"], re.M)
    script = f"set -e\n$SM_PYTHON_CMD {line}\nexit 99".replace(IN_CONTAINER, str(folder))
    environment = environment | exported
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, timeout=240)
    assert said.returncode == 0, said.stderr
    return dict(json.loads(said.stdout))


def resource_config(request: Request) -> dict[str, Any]:
    asked = request["ResourceConfig"]
    groups = asked.get("InstanceGroups") or [{"InstanceGroupName": "homogeneousCluster", **asked}]
    hosts = names(sum(group["InstanceCount"] for group in groups))
    left = iter(hosts)
    listed = [
        {
            "instance_group_name": group["InstanceGroupName"],
            "instance_type": group["InstanceType"],
            "hosts": [next(left) for _ in range(group["InstanceCount"])],
        }
        for group in groups
    ]
    return resources(hosts, current_group_name=listed[0]["instance_group_name"], instance_groups=listed)


def check_any(request: Request, base: Path) -> jobs.Job:
    """Check that the launcher reads a request's job without warnings, plans it, and finds its code."""
    job = read(request, base)
    assert not job.warnings
    assert sorted(plan_for(job).hosts) == resource_config(request)["hosts"]
    assert job.program.name == "train.py"
    channels = [each["ChannelName"] for each in request.get("InputDataConfig", [])]
    if job.program.source == str(job.paths.code):  # nothing was named, so channel `code` is looked at
        assert "code" in channels
    else:
        assert re.fullmatch(r"s3://.+/sourcedir\.tar\.gz", job.program.source)
    assert request["AlgorithmSpecification"]["TrainingImage"] == IMAGE
    assert request["RoleArn"] == ROLE
    return job


def requests_with(sent: Sent, sdk: str, words: str) -> list[Request]:
    """Return the requests of the only block or command with these words, or of this file's block of that name."""
    if words in OURS:
        return sent["commands"][len(ON_SAGEMAKER) + [*OURS].index(words)]
    texts = [*blocks_for(sdk), *map(shlex.join, ON_SAGEMAKER)]
    (found,) = [each for text, each in zip(texts, [*sent["blocks"], *sent["commands"]], strict=False) if words in text]
    return found


def part_of(request: Request, path: str) -> Any:
    """Return a part of a request by names between dots, None if it is not there; "@" and a name is a channel's."""
    found: Any = request
    for name in path.split("."):
        if name.startswith("@"):
            (found,) = [each for each in request["InputDataConfig"] if each["ChannelName"] == name[1:]]
            found = {**found, **next(iter(found["DataSource"].values()))}  # its options, and those of its source
        else:
            found = (found or {}).get(name)
    return found


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The expected requests of a block or command. See `requests_with` for `words`, and `part_of` for `first`.

    `titles`: those of the launcher's plans; `arguments`: the script's; `first`: parts of the first request.
    """

    words: str
    sdks: tuple[str, ...] = ("v2", "v3")
    titles: list[str] | None = None
    arguments: tuple[str, ...] | None = None
    first: dict[str, Any] = field(default_factory=dict)


SINGLE = "single: the script alone on each of 3 hosts"
PS = "parameter servers: 3 ps, 1 chief, 2 workers (scripts) on 3 hosts"
MWMS = "MultiWorkerMirrored: 3 workers on 3 hosts"
JAX = "JAX: 3 processes on 3 hosts"
MPI = "MPI: 6 ranks on 3 hosts, 2 on each"
ON_A_GROUP = "MPI: 16 ranks on 2 hosts, 8 on each; 2 hosts outside"
RATE = ("--learning_rate", "0.01")


def file_system(channel: str, number: int, kind: str, folder: str, mode: str = "ro") -> dict[str, Any]:
    """Return the parts of a request in which a channel is a folder of a file system."""
    found = {"FileSystemId": f"fs-0123456789abcdef{number}", "FileSystemType": kind, "DirectoryPath": folder}
    return {f"@{channel}.{name}": value for name, value in {**found, "FileSystemAccessMode": mode}.items()}


def s3(channel: str, kind: str = "S3Prefix", uri: str = "", **options: Any) -> dict[str, Any]:
    """Return the parts of a request in which a channel is in S3. Options that are not given are not sent."""
    absent = dict.fromkeys(("InputMode", "ShuffleConfig", "CompressionType", "RecordWrapperType", "ContentType"))
    found = {**absent, "S3DataType": kind, **({"S3Uri": uri} if uri else {}), **options}
    return {f"@{channel}.{name}": value for name, value in found.items()}


SPOT = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 7200, "MaxWaitTimeInSeconds": 14400},
}
PIPED = {"InputMode": "Pipe", "ShuffleConfig": {"Seed": 7}, "CompressionType": "Gzip"}
MANIFEST = {"InputMode": "Pipe", "RecordWrapperType": "RecordIO", "AttributeNames": ["image-ref", "label"]}
ASKED = {
    "every mode": Asked(words='"ENTRYPOINT_MODE": "single"', titles=[SINGLE, PS, MWMS, JAX, MPI], arguments=RATE),
    "a launcher of ours": Asked(words="Launcher(mode=", sdks=("v3",), titles=[PS, MWMS, MPI], arguments=RATE),
    "a file system": Asked(
        words='fs-0123456789abcdef0"',
        sdks=("v3",),
        first={"@training.FileSystemType": "EFS", "VpcConfig.SecurityGroupIds": ["sg-0123456789abcdef0"]},
    ),
    "two file systems": Asked(
        words='fs-0123456789abcdef0"',
        sdks=("v2",),
        first={
            "@training.FileSystemType": "EFS",
            "@evaluation.FileSystemType": "FSxLustre",
            "VpcConfig.SecurityGroupIds": ["sg-0123456789abcdef0"],
        },
    ),
    # v3 has no class for TensorFlow, which knows groups.
    "ranks on a group": Asked(words='"instance_groups": [gpus]', sdks=("v2",), titles=[ON_A_GROUP]),
    "spot instances": Asked(
        words='"s3://bucket/checkpoints/my-job"',
        first={
            **SPOT,
            "CheckpointConfig.S3Uri": "s3://bucket/checkpoints/my-job",
            "Environment.ENTRYPOINT_STOP_GRACE": "110",
        },
    ),
    "metrics and a shell": Asked(
        words='"test accuracy=',
        first={
            "RemoteDebugConfig.EnableRemoteDebug": True,
            "AlgorithmSpecification.MetricDefinitions": [{"Name": "accuracy", "Regex": "test accuracy=([0-9.]+)"}],
        },
    ),
    "Mask R-CNN in S3": Asked(
        words="=s3://bucket/coco/",
        first={**s3("training", uri="s3://bucket/coco/"), "HyperParameters.epochs": "12", "VpcConfig": None},
    ),
    "Mask R-CNN on EFS": Asked(
        words="=efs://fs-0123456789abcdef0/coco", first=file_system("training", 0, "EFS", "/coco")
    ),
    "Mask R-CNN on FSx": Asked(
        words="=fsx://fs-0123456789abcdef1/abcdefgh/coco",
        first=file_system("training", 1, "FSxLustre", "/abcdefgh/coco"),
    ),
    "no option": Asked(words="plain", titles=["single: the script alone"], arguments=()),
    "all options": Asked(
        words="everything",
        titles=["MPI: 8 ranks on 2 hosts, 4 on each"],
        # As sagemaker-training makes them of JSON values, with both SDKs alike.
        arguments=("--epochs", "3", "--flag", "True", "--name", "a b", "--rate", "0.001"),
        first={
            **SPOT,
            **s3("training", uri="s3://bucket/rows/"),
            **file_system("evaluation", 0, "EFS", "/rows"),
            **file_system("more", 1, "FSxLustre", "/abcdefgh/rows", "rw"),
            "Environment.ENTRYPOINT_STOP_GRACE": "110",
            "Environment.ENTRYPOINT_RESTARTS": "1",
            "ResourceConfig.InstanceType": "ml.c5.9xlarge",
            "ResourceConfig.VolumeSizeInGB": 200,
            "VpcConfig": {"Subnets": ["subnet-1", "subnet-2"], "SecurityGroupIds": ["sg-1"]},
            "EnableInterContainerTrafficEncryption": True,
            "RemoteDebugConfig.EnableRemoteDebug": True,
            "Tags": [{"Key": "team", "Value": "ads"}, {"Key": "cost", "Value": "42"}],
            "CheckpointConfig.S3Uri": "s3://bucket/checkpoints",
            "OutputDataConfig.S3OutputPath": "s3://bucket/out",
            "AlgorithmSpecification.MetricDefinitions": [{"Name": "auc", "Regex": "auc=([0-9.]+)"}],
        },
    ),
    "a warm pool": Asked(
        words="warm",
        titles=["parameter servers: 2 ps, 1 chief, 1 worker (scripts) on 2 hosts"],
        first={"ResourceConfig.KeepAlivePeriodInSeconds": 1800, "VpcConfig": None},
    ),
    "options of channels": Asked(
        words="channels",
        first={
            **s3("training-1", **PIPED),
            **s3("training-2", **PIPED),
            **s3("own-1", "AugmentedManifestFile", "s3://bucket/a.jsonl", **MANIFEST),
            **s3("part", InputMode="FastFile", S3DataDistributionType="ShardedByS3Key"),
            **s3("whole", "ManifestFile", ContentType="application/x-recordio"),
        },
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_documented_calls_send_the_expected_requests(sent: Sent, sdk: str, tmp_path: Path, name: str) -> None:
    asked = ASKED[name]
    if sdk not in asked.sdks:
        return
    requests = requests_with(sent, sdk, asked.words)
    assert {path: part_of(requests[0], path) for path in asked.first} == asked.first
    for request in requests:
        job = check_any(request, tmp_path)
        assert asked.arguments in (None, job.program.arguments)
    if asked.titles is not None:
        assert [plan_for(read(request, tmp_path)).title for request in requests] == asked.titles


def test_documented_blocks_request_their_named_modes(sent: Sent, sdk: str, tmp_path: Path) -> None:
    for block, requests in zip(blocks_for(sdk), sent["blocks"], strict=True):
        launcher, sdks = r'"ENTRYPOINT_MODE": "(\w+)"|Launcher\(mode="(\w+)"', r'distribution=\{"(\w+)"'
        named = re.findall(rf"{launcher}|{sdks}|sagemaker_(\w+)_enabled", block)
        words = {"parameter_server": "ps", "multi_worker_mirrored_strategy": "mwms"}
        expected = [words.get(word, word) for word in map("".join, named)] or ["single"] * len(requests)
        assert [str(check_any(request, tmp_path).mode) for request in requests] == expected, block
    assert sum(map(len, sent["blocks"])) >= 8


def test_documented_commands_request_their_described_jobs(sent: Sent, tmp_path: Path) -> None:
    assert len(ON_SAGEMAKER) >= 6
    for command, (request,) in zip(ON_SAGEMAKER, sent["commands"], strict=False):
        assert str(check_any(request, tmp_path).mode) == option(command, "--mode")
        assert "ContainerEntrypoint" not in request["AlgorithmSpecification"]  # so the image's own runs
        assert request["ResourceConfig"]["InstanceCount"] == int(option(command, "--instances"))
        if (option(command, "--mode"), command[0]) == ("ps", "examples/deepfm/train.py"):  # for the chief alone
            plan = plan_for(read(request, tmp_path))
            assert [spec.name for spec in plan.processes if spec.runs_program] == ["chief/0"]


def test_documents_push_the_image_of_their_jobs() -> None:
    (line,) = {
        line for path in DOCUMENTS for line in re.findall(r"^    (\./build\.sh --push .*)", path.read_text(), re.M)
    }
    said = subprocess.run([*shlex.split(line), "--dry-run"], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert said.returncode == 0, said.stderr
    assert f"+ docker push {IMAGE}" in said.stdout


def test_an_image_is_built_and_pushed_for_the_job(capfd: pytest.CaptureFixture[str]) -> None:
    submit.build(submit.parse([*shlex.split(PLAIN), "--build", "--dry-run"]))
    assert f"+ docker push {IMAGE}" in capfd.readouterr().err


def test_an_image_for_this_machine_is_not_pushed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    called: list[list[str]] = []

    def run(command: list[object], **_: object) -> subprocess.CompletedProcess[str]:
        called.append([str(word) for word in command])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(submit.subprocess, "run", run)
    submit.build(submit.parse([DEEPFM, "--local", "--build", "--output", str(tmp_path)]))
    assert called == [[str(ROOT / "build.sh")]]


def test_documented_aws_command_matches_the_api() -> None:
    """boto3's description of the API has the same names as options of the aws command."""
    (line,) = {line for path in DOCUMENTS for line in re.findall(r"^    aws (.*)", path.read_text(), re.M)}
    service, operation, *options = line.split()
    model = botocore.session.Session().get_service_model(service)
    (name,) = [each for each in model.operation_names if xform_name(each, "-") == operation]
    shape = model.operation_model(name).input_shape
    members = {f"--{xform_name(member, '-')}": member for member in shape.members}
    parameters = {members[option]: value for option, value in zip(options[::2], options[1::2], strict=True)}
    assert name == "StartSession" and not ParamValidator().validate(parameters, shape).has_errors()
    assert re.fullmatch(r"sagemaker-training-job:\w+_algo-1", parameters["Target"])  # as SageMaker's guide has it


def test_documented_endpoints_start_serve(sent: Sent, sdk: str) -> None:
    """The image's `serve` serves a separate model and one of a job, and accepts all their variables."""
    if sdk == "v3":
        assert sent["endpoints"] == []
        return
    made = sent["endpoints"]
    assert [each["operation"] for each in made] == ["CreateModel", "CreateEndpointConfig", "CreateEndpoint"] * 2
    for model, config, endpoint in (made[:3], made[3:]):
        container = model["PrimaryContainer"]
        assert (container["Image"], model["ExecutionRoleArn"]) == (IMAGE, ROLE)
        assert container["ModelDataUrl"] == "s3://bucket/model.tar.gz"
        serving = read_serving(container["Environment"])
        assert (serving.port, serving.program, serving.default_name) == (8080, "", "")
        (variant,) = config["ProductionVariants"]
        assert (variant["ModelName"], variant["InitialInstanceCount"]) == (model["ModelName"], 1)
        assert variant["InstanceType"] == "ml.c5.large"
        assert endpoint["EndpointConfigName"] == config["EndpointConfigName"]


def parts(request: Request, base: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the (channel, mode, number of shards, which) of ranks 0, 1, ... in each channel or group but the code."""
    job = check_any(request, base)
    ranks = [job.channels.shards(spec.reader) for spec in plan_for(job).processes if spec.role is Role.RANK]
    return {name: [tuple(each[name].values()) for each in ranks] for name in ranks[0] if name != "code"}


DEALT = [("training-1", "Pipe", 1, 0), ("training-2", "Pipe", 1, 0)]


def test_each_rank_gets_its_part_of_each_kind_of_channel(sent: Sent, sdk: str, tmp_path: Path) -> None:
    """As in AWS's document on Pipe mode, each rank has a channel or all share one, with objects sharded or not."""
    (request,) = requests_with(sent, sdk, "channels")
    assert parts(request, tmp_path) == {
        "training": [*DEALT, *DEALT],
        "own": [("own-1", "Pipe", 2, 0), ("own-2", "Pipe", 2, 0), ("own-1", "Pipe", 2, 1), ("own-2", "Pipe", 2, 1)],
        "part": [("part", "File", 2, 0), ("part", "File", 2, 1)] * 2,
        "whole": [("whole", "File", 4, rank) for rank in range(4)],
    }


@pytest.mark.parametrize(("words", "hosts"), [('"s3://bucket/rows/a/"', 3), ("=s3://bucket/rows/a/", 2)])
def test_channel_of_each_rank_is_streamed(sent: Sent, sdk: str, tmp_path: Path, words: str, hosts: int) -> None:
    (request,) = requests_with(sent, sdk, words)
    shards = [("evaluation", "File", 2 * hosts, rank) for rank in range(2 * hosts)]
    assert parts(request, tmp_path) == {"training": DEALT * hosts, "evaluation": shards}
    assert request["Tags"] == [{"Key": "project", "Value": "clicks"}]
    for name, mode, seed in (("training-1", "Pipe", 7), ("training-2", "Pipe", 7), ("evaluation", "FastFile", None)):
        assert part_of(request, f"@{name}.InputMode") == mode
        assert part_of(request, f"@{name}.ShuffleConfig.Seed") == seed


def test_launcher_class_is_sent_as_a_script_of_sdk_3(sent: Sent, sdk: str, tmp_path: Path) -> None:
    """The script starts the launcher in the mode of `Launcher`. Two modes are refused."""
    if sdk == "v2":
        return
    for request in requests_with(sent, sdk, "Launcher(mode="):
        assert f"{IN_CONTAINER}/sm_train.sh" in request["AlgorithmSpecification"]["ContainerArguments"][-1]
        assert {each["ChannelName"] for each in request["InputDataConfig"]} == {"training", "code", "sm_drivers"}
        assert 'echo "Running Launcher Driver"' in request["SmDrivers"]["sm_train.sh"]
    problem = r"tf_launcher: environment has ENTRYPOINT_MODE=mpi, and Launcher\(...\) asks for ps; wanted one of them"
    with pytest.raises(AssertionError, match=problem):
        launched(requests_with(sent, sdk, "Launcher(mode=")[0]["SmDrivers"], tmp_path, {"ENTRYPOINT_MODE": "mpi"})
    assert re.fullmatch(problem.removeprefix("tf_launcher: "), (tmp_path / "failure").read_text())


def test_requests_leave_out_the_debugger(sent: Sent, sdk: str) -> None:
    """The image contains no part of the debugger."""
    modes = requests_with(sent, sdk, '"ENTRYPOINT_MODE": "single"')
    for request in [*itertools.chain(*sent["commands"]), *modes]:
        assert "DebugHookConfig" not in request
        assert request.get("ProfilerConfig", {"DisableProfiler": True}) == {"DisableProfiler": True}


def test_group_of_ps_runs_no_script(sent: Sent, sdk: str, tmp_path: Path) -> None:
    (request,) = requests_with(sent, sdk, "ENTRYPOINT_PS_GROUPS")
    plan = plan_for(read(request, tmp_path))
    assert {spec.name for spec in plan.on("algo-1")} == {"prepare", "ps/0"}
    assert {spec.name for spec in plan.processes if spec.runs_program} == {"chief/0", "worker/0"}


def test_metric_regex_matches_lines_of_mask_rcnn() -> None:
    (metric, *others) = {option(command, "--metric") for command in ON_SAGEMAKER if "maskrcnn" in command[0]}
    assert not others
    line = "[algo-1 rank 0] maskrcnn: mAP(segm)/IoU=0.5:0.95: 0.3412"
    assert re.findall(metric.partition("=")[2], line) == ["0.3412"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("nowhere.py --local", "there is no program nowhere.py"),
        (DEEPFM, "wanted --image and --role, or --local"),
        (
            f"{DEEPFM} --local --build --image mine",
            "the image built for this machine is sagemaker-tf-entrypoint:latest",
        ),
        (f"{DEEPFM} --local --dry-run", "sends no request"),
        (f"{DEEPFM} --local --output {ROOT}", f"--output {ROOT} is not empty"),
        (f"{DEEPFM} --local --no-wait", "SDK v3 would clean up while the job runs"),
        (f"{PLAIN} --subnets subnet-1", "--subnets and --security-groups: wanted both or neither"),
        (f"{PLAIN} --spot --keep-alive 60", "no warm pools of spot instances"),
        (f"{PLAIN} --channel s3://bucket/rows", "--channel: found 's3://bucket/rows'; wanted NAME=SOURCE"),
        (f"{PLAIN} --channel a=s3://b/x,mode=Stream", "a has mode='Stream'; wanted one of File, FastFile, Pipe"),
        (f"{PLAIN} --channel a=s3://b/x,mod=Pipe", "a has option 'mod'; wanted one of mode, distribution, shuffle,"),
        (f"{PLAIN} --channel a=s3://b/x,mode=Pipe,shuffle=no", "a has shuffle='no'; wanted a seed, a whole number"),
        (f"{PLAIN} --channel a=s3://b/x,shuffle=7", "a has shuffle, and its mode is File; wanted mode=Pipe, or no"),
        (f"{PLAIN} --channel a=s3://b/x,type=AugmentedManifestFile", "wanted mode=Pipe and attributes=A:B"),
        (f"{PLAIN} --channel a=s3://b/x,mode=FastFile,type=ManifestFile", "wanted mode File or Pipe"),
        (f"{PLAIN} --channel a=s3://b/x,access=rw", "wanted that with efs:// or fsx:// only"),
        (f"{PLAIN} --channel a=efs://fs-0/x,mode=Pipe", "a has mode, and is a file system; wanted access and"),
        (f"{PLAIN} --channel code=s3://b/x", "code is the channel of the script's own folder"),
        (f"{PLAIN} --channel a=s3://b/x --channel a=s3://b/y", "--channel names a twice"),
        (f"{PLAIN} --channel a=data", "--channel a is data; wanted s3://, efs:// or fsx://, or a folder with --local"),
        (
            f"{DEEPFM} --local --channel a=data,mode=Pipe",
            "mode=Pipe, and the SDK's local mode only mounts folders",
        ),
        (f"{PLAIN} --tags clicks", "--tags: found 'clicks'; wanted NAME=VALUE"),
    ],
)
def test_wrong_options_are_refused_in_one_line(
    arguments: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        submit.parse(shlex.split(arguments))
    assert end.value.code == 2
    assert complaint in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "options",
    [
        "",
        ",mode=Pipe",
        ",mode=FastFile,distribution=ShardedByS3Key",
        ",mode=Pipe,shuffle=7,compression=Gzip,wrapper=RecordIO",
        ",mode=Pipe,attributes=image-ref:label",
        ",compression=None,wrapper=None",
        "/,mode=Pipe",
        "/year=2026,month=11/",
        ",mode=pipe",
        ",distribution=Sharded",
        ",shuffle=7",
        ",wrapper=RecordIO",
        ",mode=Pipe,shuffle=-1",
        ",mode=Pipe,attributes=a:",
        ",mode=Pipe,attributes=" + ":".join("abcdefghijklmnopq"),
        ",colour=red",
    ],
)
def test_submit_py_and_entrypoint_local_read_channels_alike(options: str) -> None:
    """Both accept the same options with the same meaning, and refuse the same ones."""
    keys = ("mode", "distribution", "shuffle", "compression", "wrapper", "attributes")
    usual = {"mode": "File", "compression": "None", "wrapper": "None", "attributes": []}
    understood: list[Any] = []
    for read, source in ((submit.channel, "s3://bucket/rows"), (parse_channel, "/rows")):
        try:
            channel = read(f"training={source}{options}")
        except (argparse.ArgumentTypeError, ConfigError):
            understood.append("refused")
            continue
        values = {key: getattr(channel, key) for key in keys}
        said = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
        given = {key: usual.get(key) if value is None else value for key, value in said.items()}
        understood.append((str(channel.source).removeprefix(source).rstrip("/"), given))
    assert understood[0] == understood[1]


def test_submit_py_without_an_sdk_prints_the_command_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="found no SageMaker SDK; wanted `pip install sagemaker`"):
        submit.main([DEEPFM, "--local", "--output", str(tmp_path)])


@pytest.mark.tensorflow
@pytest.mark.more  # the next one, with other programs
@pytest.mark.parametrize("name", ["v2", "v3"])
def test_documented_command_trains_in_local_mode(
    name: str, run: Callable[..., Job], image: str, tmp_path: Path
) -> None:
    command = ON_THIS_MACHINE[0]
    assert all(each == command for each in ON_THIS_MACHINE), "the documents show another command, which nobody tried"
    output = tmp_path / "result"
    more = ["--image", image, "--output", str(output), "--hyperparameters", "epochs=1"]
    job = run(name, [*command, *more], driver="submit_local")
    assert job.exit_code == 0, job.output
    assert list(output.rglob("model.tar.gz")), job.output
    # The metric that docs/sagemaker.md defines, in lines as they are.
    regex = option(next(each for each in ON_SAGEMAKER if "--metric" in each), "--metric").partition("=")[2]
    lines = [line for line in job.output.splitlines() if re.search(regex, line)]
    assert len(lines) == 1 and "worker/0]" in lines[0], job.output


@pytest.mark.parametrize(
    ("name", "mode", "parts"),
    [
        ("v2", "mpi", [f"rank {rank}] added up to 10" for rank in range(4)]),
        ("v3", "ps", ["chief/0] reached 2 parameter servers", "worker/0] reached 2 parameter servers"]),
    ],
)
def test_ranks_and_ps_run_in_local_mode(
    name: str, mode: str, parts: list[str], run: Callable[..., Job], image: str, tmp_path: Path
) -> None:
    program = ROOT / "tests/sdk/programs/takes_part.py"
    more = ["--image", image, "--output", str(tmp_path / "result")]
    more += ["--processes-per-host", "2"] if mode == "mpi" else []
    job = run(name, [str(program), "--mode", mode, "--instances", "2", "--local", *more], driver="submit_local")
    assert job.exit_code == 0, job.output
    for part in parts:
        assert len(re.findall(rf"{re.escape(part)}$", job.output, re.M)) == 1, job.output


def test_command_of_v3_gets_sigterm_and_passes_its_exit_code(
    run: Callable[..., Job], image: str, tmp_path: Path
) -> None:
    """SDK 3 starts a command in a shell, which is process 1 and would not pass SIGTERM on."""
    (look,) = re.findall(r"^    (python -c .*)", (ROOT / "docs/sagemaker.md").read_text(), re.M)
    (command,) = re.findall(r'command="(.*?)"', "".join(blocks_for("v3")))
    source = tmp_path / "src"
    source.mkdir()
    shutil.copy(ROOT / "tests/programs/saves.py", source / "train.py")
    call = {
        "hosts": 1,
        "source_code": {"source_dir": str(source), "command": command},
        "arguments": {"training_image": image, "hyperparameters": {"sagemaker_program": "train.py"}},
        "inputs": {},
    }

    def asleep() -> list[str]:
        folder = "com.docker.compose.project.working_dir"
        found = (line.split() for line in docker("ps", "--format", '{{.ID}} {{.Label "' + folder + '"}}'))
        mine = [words[0] for words in found if words[1:] and words[1].startswith(str(tmp_path))]
        return [each for each in mine if any("asleep" in line for line in docker("logs", each))]

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, "v3", call)
        (container,) = eventually(asleep, within=120, what="the script runs")
        status = docker("exec", container, "sh", "-c", look)[0]
        docker("kill", "--signal", "TERM", container)  # whatever it said: the script would sleep on
        job = running.result()
    assert '"phase":"running"' in status
    assert job.exit_code == 0, job.output
    assert (job.artifact("model") / "saved-algo-1").read_text() == "weights"
