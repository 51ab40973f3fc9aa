"""Write a case's CreateTrainingJob request, with boto3's names."""

import json
from dataclasses import dataclass, field
from typing import Any

from accept.cases import Case, Channel
from entrypoint.observe.export.definitions import USUAL, definitions

Request = dict[str, Any]


@dataclass(frozen=True)
class Where:
    """Image, role, bucket, network and instance types of the jobs. All job names begin with `run`."""

    run: str
    image: str
    role: str
    bucket: str
    types: dict[str, str] = field(default_factory=dict)  # instance type by Case.only_with; "" for the usual
    subnets: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def prefix(self) -> str:
        """Return the S3 prefix of all files of the run."""
        return f"s3://{self.bucket}/accept/{self.run}"

    @property
    def partition(self) -> str:
        """Return the role's partition: aws, aws-cn or aws-us-gov."""
        return self.role.split(":")[1]

    def type_of(self, case: Case) -> str:
        return self.types[case.only_with]

    def job(self, case: Case) -> str:
        """Return the job's name."""
        return f"{self.run}-{case.name}"


def request(case: Case, where: Where) -> Request:
    """Return the request for the case's job."""
    made: Request = {
        "TrainingJobName": where.job(case),
        "RoleArn": where.role,
        "AlgorithmSpecification": {
            "TrainingImage": where.image,
            "TrainingInputMode": "File",
            "MetricDefinitions": metrics(),
        },
        "HyperParameters": {"sagemaker_program": case.program, **case.arguments},
        "Environment": {"ENTRYPOINT_MODE": case.mode, **case.environment},
        "InputDataConfig": [
            channel("code", f"{where.prefix}/{case.code}/"),
            *(channel(each.name, f"{where.prefix}/data/{each.name}/", each) for each in case.channels),
        ],
        "OutputDataConfig": {"S3OutputPath": f"{where.prefix}/output"},
        "ResourceConfig": {
            "InstanceType": where.type_of(case),
            "InstanceCount": case.hosts,
            "VolumeSizeInGB": 30,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": case.max_run},
        "Tags": [{"Key": "accept", "Value": where.run}],
    }
    if case.bare:
        options = " ".join(f"--{name} {value}" for name, value in case.arguments.items())
        command = f"exec python3 -u /opt/ml/input/data/code/{case.program} {options}"
        made["AlgorithmSpecification"] |= {"ContainerEntrypoint": ["/bin/bash", "-c", command]}
    if case.keep_alive:
        # Another size of the disk: else any job of the run might take the machines over.
        made["ResourceConfig"] |= {"KeepAlivePeriodInSeconds": case.keep_alive, "VolumeSizeInGB": 31}
    if case.spot:
        made["EnableManagedSpotTraining"] = True
        made["StoppingCondition"]["MaxWaitTimeInSeconds"] = 2 * case.max_run
    if case.checkpoints:
        made["CheckpointConfig"] = {"S3Uri": f"{where.prefix}/checkpoints"}
    if where.subnets:
        made["VpcConfig"] = {"Subnets": list(where.subnets), "SecurityGroupIds": list(where.groups)}
    return made


def channel(name: str, uri: str, data: Channel | None = None) -> Request:
    """Return a channel that holds all objects below a prefix."""
    kind = "ShardedByS3Key" if data and data.sharded else "FullyReplicated"
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": kind}
    made: Request = {"ChannelName": name, "DataSource": {"S3DataSource": source}}
    return made | ({"InputMode": data.mode} if data else {})


def metrics() -> list[dict[str, str]]:
    """Return the definitions that `entrypoint metrics --sdk json` prints."""
    found: list[dict[str, str]] = json.loads(definitions(USUAL, "json"))
    return found
