"""Test that the stand-in for SageMaker's training API behaves as the service does: states, files, S3, logs, faults."""

import io
import json
import tarfile
import time

import pytest
from botocore.exceptions import ClientError
from containers import PATIENCE
from stand_in_sagemaker import Faults, StandIn
from waiting import eventually

ROLE = "arn:aws:iam::123456789012:role/Training"
pytestmark = pytest.mark.more  # test_cluster_accept.py uses most of it in every run
OVER = {"Completed", "Failed", "Stopped"}


def request(service, name, *, hosts=1, **more):
    """Return a request for a job whose code is the channel `code`."""
    return {
        "TrainingJobName": name,
        "RoleArn": ROLE,
        "AlgorithmSpecification": {"TrainingImage": service.image_uri, "TrainingInputMode": "File"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": hosts, "VolumeSizeInGB": 5},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        **more,
    }


def bucket(service, **objects):
    s3 = service.client("s3")
    s3.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": service.region})
    for key, text in objects.items():
        s3.put_object(Bucket="bucket", Key=key.replace("__", "/"), Body=text.encode())
    return s3


def channel(name, prefix, **more):
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://bucket/{prefix}", **more.pop("source", {})}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, **more}


def shell(service, name, script, *, channels=(), hosts=1, **more):
    """Return a request for a job that runs a shell's script, from a channel, in place of `train`."""
    service.client("s3").put_object(Bucket="bucket", Key=f"code-{name}/run.sh", Body=script.encode())
    wanted = request(service, name, hosts=hosts, **more)
    wanted["AlgorithmSpecification"] |= {"ContainerEntrypoint": ["sh", "/opt/ml/input/data/code/run.sh"]}
    return {**wanted, "InputDataConfig": [channel("code", f"code-{name}/"), *channels]}


def ended(service, name, within=PATIENCE):
    sagemaker = service.client("sagemaker")

    def over():
        described = sagemaker.describe_training_job(TrainingJobName=name)
        return described if described["TrainingJobStatus"] in OVER else None

    return eventually(over, within, f"the end of {name}")


def statuses(described):
    return [each["Status"] for each in described["SecondaryStatusTransitions"]]


def refused(call, **request):
    with pytest.raises(ClientError) as refusal:
        call(**request)
    error = refusal.value.response["Error"]
    return error["Code"], error["Message"]


def packed(s3, uri):
    """Return the files of an archive in S3 with their texts."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        return {each.name: archive.extractfile(each).read().decode() for each in archive if each.isfile()}


def logged(service, name):
    """Return the lines of each host in CloudWatch Logs."""
    logs, lines = service.client("logs"), {}
    wanted = {"logGroupName": "/aws/sagemaker/TrainingJobs", "logStreamNamePrefix": f"{name}/"}
    try:
        for page in logs.get_paginator("filter_log_events").paginate(**wanted):
            for event in page["events"]:
                host = event["logStreamName"].removeprefix(f"{name}/").rpartition("-")[0]
                lines.setdefault(host, []).append(event["message"])
    except logs.exceptions.ResourceNotFoundException:  # before the first job prints anything
        pass
    return lines


LOOKS = """
h=$(sed 's/.*"current_host": "\\([^"]*\\)".*/\\1/' /opt/ml/input/config/resourceconfig.json); cd /opt/ml/input/data
echo "host $h of $(hostname); shard $(ls shard | tr '\\n' ' '); listed $(ls listed); fast $(cat fast/in/a)"
touch fast/b 2>/dev/null || echo read-only
echo "pipe $(cat pipe_0) $(cat pipe_1)"; tail -n +2 shard-manifest
echo "$TRAINING_JOB_NAME $TRAINING_JOB_ARN $AWS_REGION $MINE"
sleep 2; until [ "$(getent hosts algo-1 algo-2 | wc -l)" = 2 ]; do sleep 0.1; done
echo "loss=0.5;"; sleep 1; echo "loss=0.25;" >&2
cd /opt/ml/output/data; cp /opt/ml/input/config/*.json .; mv resourceconfig.json $h.json
mkdir /opt/ml/model/1; echo "$h" > /opt/ml/model/1/$h
"""


def test_two_hosts_get_their_channels_and_give_their_results(image):
    with StandIn(image) as service:
        s3 = bucket(service, data__a="1", data__b="2", data___c="3", fast__in__a="4", empty__="")
        s3.put_object(Bucket="bucket", Key="list.json", Body=b'[{"prefix": "s3://bucket/data/"}, "b"]')
        shard = {"source": {"S3DataDistributionType": "ShardedByS3Key"}, "ContentType": "text/csv"}
        wanted = shell(
            service,
            "looks",
            LOOKS,
            hosts=2,
            HyperParameters={"rate": "0.1", "flag": "true"},
            Environment={"MINE": "hers"},
            channels=[
                channel("shard", "data", **shard),
                channel("listed", "list.json", source={"S3DataType": "ManifestFile"}),
                channel("fast", "fast/", InputMode="FastFile"),
                channel("pipe", "data/", InputMode="Pipe"),
            ],
        )
        wanted["AlgorithmSpecification"]["MetricDefinitions"] = [{"Name": "loss", "Regex": "loss=(.*?);"}]
        service.client("sagemaker").create_training_job(**wanted)
        described = ended(service, "looks")
        lines = logged(service, "looks")
        assert described["TrainingJobStatus"] == "Completed", (described, lines)
        assert statuses(described) == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
        arn = "arn:aws:sagemaker:eu-west-1:123456789012:training-job/looks"
        for number, shard, uris in ((1, "_c b ", ["_c", "b"]), (2, "a ", ["a"])):
            said = lines[f"algo-{number}"]
            assert said[:3] == [
                f"host algo-{number} of ip-10-1-1-{number}; shard {shard}; listed b; fast 4",
                "read-only",
                "pipe 312 312",
            ]
            assert said[3 : 3 + len(uris)] == [f"s3://bucket/data/{key}" for key in uris]
            assert said[3 + len(uris) :] == [f"looks {arn} eu-west-1 hers", "loss=0.5;", "loss=0.25;"]
        assert described["ModelArtifacts"]["S3ModelArtifacts"] == "s3://bucket/out/looks/output/model.tar.gz"
        assert packed(s3, "s3://bucket/out/looks/output/model.tar.gz") == {
            "1/algo-1": "algo-1\n",
            "1/algo-2": "algo-2\n",
        }
        config = {
            name: json.loads(text) for name, text in packed(s3, "s3://bucket/out/looks/output/output.tar.gz").items()
        }
        assert config["hyperparameters.json"] == {"rate": "0.1", "flag": "true"}
        assert config["inputdataconfig.json"]["shard"]["ContentType"] == "text/csv"
        assert config["algo-2.json"]["hosts"] == ["algo-1", "algo-2"]
        assert [metric["Value"] for metric in described["FinalMetricDataList"]] == [0.25]
        metrics = service.client("cloudwatch").list_metrics(Namespace="/aws/sagemaker/TrainingJobs")["Metrics"]
        assert [metric["Dimensions"][0]["Value"] for metric in metrics] == ["looks"]
        assert described["TrainingTimeInSeconds"] == described["BillableTimeInSeconds"] >= 3


ENDS = "trap 'echo heard; echo kept > /opt/ml/model/kept; exit 0' TERM; echo waiting; while :; do sleep 0.1; done"


FAILS = f"""
grep -q '"current_host": "algo-2"' /opt/ml/input/config/resourceconfig.json || {{ {ENDS}; }}
sleep 3; echo "no {"x" * 2000}" > /opt/ml/output/failure; exit 3
"""


def test_jobs_that_fail_are_stopped_or_take_too_long(image):
    with StandIn(image, runtimes={"lo*": 4}) as service:
        bucket(service)
        sagemaker = service.client("sagemaker")
        sagemaker.create_training_job(**shell(service, "fails", FAILS, hosts=2))
        sagemaker.create_training_job(**shell(service, "stops", ENDS))
        sagemaker.create_training_job(**shell(service, "long", ENDS))
        eventually(lambda: "waiting" in logged(service, "stops").get("algo-1", []), PATIENCE)
        sagemaker.stop_training_job(TrainingJobName="stops")
        assert sagemaker.describe_training_job(TrainingJobName="stops")["TrainingJobStatus"] == "Stopping"

        described = ended(service, "fails")
        why = described["FailureReason"]
        assert why.startswith("AlgorithmError: no xxx") and why.endswith("x, exit code: 3") and len(why) == 1024
        assert statuses(described)[-2:] == ["Uploading", "Failed"]
        assert "heard" in logged(service, "fails")["algo-1"]
        for name, last in (("stops", "Stopped"), ("long", "MaxRuntimeExceeded")):
            described = ended(service, name)
            assert (described["TrainingJobStatus"], described["SecondaryStatus"]) == ("Stopped", last)
            assert statuses(described)[-4:] == ["Training", "Stopping", "Uploading", last]
            assert packed(service.client("s3"), described["ModelArtifacts"]["S3ModelArtifacts"]) == {"kept": "kept\n"}


def test_spot_jobs_go_on_with_their_checkpoints(image):
    script = """cd /opt/ml/checkpoints; ls; n=$(ls | wc -l); echo $n > step-$n; [ -e step-1 ] || exec sleep 600"""
    with StandIn(image, interrupt_spot=True, interrupt_grace=1) as service:
        s3 = bucket(service)
        wanted = shell(
            service,
            "spot",
            script,
            EnableManagedSpotTraining=True,
            CheckpointConfig={"S3Uri": "s3://bucket/checkpoints"},
            StoppingCondition={"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 900},
        )
        service.client("sagemaker").create_training_job(**wanted)
        described = ended(service, "spot")
        again = ["Starting", "Downloading", "Training"]
        assert statuses(described) == [*again, "Interrupted", *again, "Uploading", "Completed"]
        assert described["BillableTimeInSeconds"] < described["TrainingTimeInSeconds"]
        keys = [each["Key"] for each in s3.list_objects_v2(Bucket="bucket", Prefix="checkpoints/")["Contents"]]
        assert keys == ["checkpoints/step-0", "checkpoints/step-1"]


GROUPED = """
env | grep -c AWS_ACCESS_KEY_ID; cat /opt/ml/input/config/resourceconfig.json; echo; ls /opt/ml/input/data
[ ! -p /opt/ml/input/data/lines_0 ] || { cat /opt/ml/input/data/lines_0; echo; }
"""


def test_groups_isolation_and_augmented_manifests(image):
    with StandIn(image) as service:
        s3 = bucket(service, data__a="image")
        lines = [
            {"source-ref": "s3://bucket/data/a", "class": 1, "other": 2},
            {"source-ref": "s3://bucket/data/a", "class": 0},
        ]
        s3.put_object(Bucket="bucket", Key="lines", Body="\n".join(map(json.dumps, lines)).encode())
        source = {
            "S3DataType": "AugmentedManifestFile",
            "AttributeNames": ["source-ref", "class"],
            "InstanceGroupNames": ["small"],
        }
        groups = [("small", "ml.m5.large", 1), ("large", "ml.c5.xlarge", 2)]
        names = ("InstanceGroupName", "InstanceType", "InstanceCount")
        wanted = shell(
            service,
            "grouped",
            GROUPED,
            channels=[channel("lines", "lines", source=source, InputMode="Pipe")],
            EnableNetworkIsolation=True,
            ResourceConfig={
                "VolumeSizeInGB": 5,
                "InstanceGroups": [dict(zip(names, group, strict=True)) for group in groups],
            },
        )
        service.client("sagemaker").create_training_job(**wanted)
        described, said = ended(service, "grouped"), logged(service, "grouped")
        assert described["TrainingJobStatus"] == "Completed", (described, said)
        assert [lines[0] for _, lines in sorted(said.items())] == ["0"] * 3
        assert said["algo-2"][-1] == "image1image0" and "lines" not in said["algo-1"][-1]
        resources = json.loads(said["algo-2"][1])
        assert (resources["current_group_name"], resources["current_instance_type"]) == ("small", "ml.m5.large")
        listed = {group["instance_group_name"]: group["hosts"] for group in resources["instance_groups"]}
        assert listed == {"small": ["algo-2"], "large": ["algo-3", "algo-1"]}


def test_an_interruption_on_demand(image):
    with StandIn(image, interrupt_grace=1) as service:
        bucket(service)
        wanted = shell(service, "spot", ENDS, EnableManagedSpotTraining=True)
        wanted["StoppingCondition"]["MaxWaitTimeInSeconds"] = 600
        service.client("sagemaker").create_training_job(**wanted)
        waits = [lambda times=times: len(logged(service, "spot").get("algo-1", [])) >= times for times in (1, 3)]
        eventually(waits[0], PATIENCE)
        service.interrupt("spot")
        eventually(waits[1], PATIENCE)
        service.client("sagemaker").stop_training_job(TrainingJobName="spot")
        described = ended(service, "spot")
        assert "Interrupted" in statuses(described) and described["TrainingJobStatus"] == "Stopped"
        assert logged(service, "spot") == {"algo-1": ["waiting", "heard"] * 2}


def test_a_warm_pool_is_reused_and_ended(image):
    script = "cd $SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY; cat *; echo $TRAINING_JOB_NAME > it"
    with StandIn(image, quota=1) as service:
        bucket(service)
        sagemaker = service.client("sagemaker")
        for name in ("first", "second"):
            wanted = shell(service, name, script)
            wanted["ResourceConfig"]["KeepAlivePeriodInSeconds"] = 600
            sagemaker.create_training_job(**wanted)
            if name == "first":
                code, message = refused(sagemaker.create_training_job, **request(service, "third"))
                assert code == "ResourceLimitExceeded"
                assert "'ml.m5.large for training job usage' is 1 Instances, with current utilization of 1" in message
            assert ended(service, name)["WarmPoolStatus"]["Status"] == "Available"
        described = sagemaker.describe_training_job(TrainingJobName="first")["WarmPoolStatus"]
        assert (described["Status"], described["ReusedByJob"]) == ("Reused", "second")
        assert "first" in logged(service, "second")["algo-1"]
        sagemaker.update_training_job(TrainingJobName="second", ResourceConfig={"KeepAlivePeriodInSeconds": 0})
        assert ended(service, "second")["WarmPoolStatus"]["Status"] == "Terminated"


def test_faults_on_demand(image):
    faults = Faults(
        throttled={"DescribeTrainingJob": 2},
        denied={"PassRole"},
        unassumable=["role-*"],
        without_capacity=["capacity"],
        unreadable=["dark"],
    )
    with StandIn(image, faults=faults) as service:
        bucket(service, data__a="1")
        sagemaker = service.client("sagemaker")
        code, message = refused(sagemaker.create_training_job, **request(service, "role-1"))
        assert code == "AccessDeniedException" and f"iam:PassRole on resource: {ROLE}" in message
        faults.denied.clear()
        assert "Could not assume role" in refused(sagemaker.create_training_job, **request(service, "role-1"))[1]
        assert (
            "No S3 objects found"
            in refused(
                sagemaker.create_training_job, **request(service, "empty", InputDataConfig=[channel("train", "none/")])
            )[1]
        )
        unknown = request(service, "unknown")
        unknown["AlgorithmSpecification"]["TrainingImage"] = service.image_uri + "-none"
        sagemaker.create_training_job(**unknown)
        sagemaker.create_training_job(**request(service, "capacity"))
        sagemaker.create_training_job(**request(service, "dark", InputDataConfig=[channel("train", "data/")]))
        assert refused(sagemaker.create_training_job, **unknown)[0] == "ResourceInUse"
        assert refused(sagemaker.describe_training_job, TrainingJobName="nobody") == (
            "ValidationException",
            "Requested resource not found.",
        )
        code, message = refused(sagemaker.create_training_job, **request(service, "bad_name"))
        assert code == "ValidationException" and "at 'trainingJobName' failed to satisfy constraint" in message
        for name, why in (("unknown", "Cannot pull"), ("capacity", "CapacityError"), ("dark", "Access denied")):
            assert why in ended(service, name)["FailureReason"]
        assert not faults.throttled["DescribeTrainingJob"]


def test_train_runs_code_in_s3(image, tmp_path):
    """The image's own entrypoint, with code that it gets from moto's S3."""
    with StandIn(image) as service, tarfile.open(tmp_path / "code.tar.gz", "w:gz") as archive:
        s3 = bucket(service)
        (tmp_path / "train.py").write_text("import os\nprint('trains on', os.environ['SM_CURRENT_HOST'])\n")
        archive.add(tmp_path / "train.py", "train.py")
        archive.close()
        s3.upload_file(str(tmp_path / "code.tar.gz"), "bucket", "code.tar.gz")
        program = {"sagemaker_program": "train.py", "sagemaker_submit_directory": "s3://bucket/code.tar.gz"}
        wanted = request(service, "train", HyperParameters=program, Environment={"ENTRYPOINT_MODE": "single"})
        service.client("sagemaker").create_training_job(**wanted)
        described, lines = ended(service, "train"), logged(service, "train")["algo-1"]
        assert described["TrainingJobStatus"] == "Completed", (described, lines)
        assert any("trains on algo-1" in line for line in lines), lines


def test_the_end_of_the_block_ends_its_jobs(image):
    with StandIn(image) as service:
        bucket(service)
        service.client("sagemaker").create_training_job(**shell(service, "endless", ENDS))
        eventually(lambda: "waiting" in logged(service, "endless").get("algo-1", []), PATIENCE)
        began = time.monotonic()
    assert time.monotonic() - began < PATIENCE
    assert not service.folder.exists()
