"""Test `import tensorflow_io` in the image, and s3:// for rows, checkpoints and models, against moto's S3 server."""

import json
import re
import uuid
from pathlib import Path

import boto3
import pytest
from containers import BUSY, MARKED, PROGRAMS, resources, run_alone, sh, write_config
from moto_server import moto
from sent import PARAMETER_SERVER, by_sdk

KEYS = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "eu-west-1"}
WHERE = "s3://bucket/job/model"  # as the SDK's TensorFlow class sends it
FOREIGN = Path(__file__).resolve().parents[1] / "programs/foreign"


def variables(endpoint: str) -> dict[str, str]:
    return {
        "S3_ENDPOINT": endpoint, "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "eu-west-1", "NO_PROXY": "*",
        "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip


@pytest.fixture
def s3(image):
    """Yield (network, endpoint, client) of a server on the network's own address on this machine."""
    network = f"tfe{uuid.uuid4().hex[:8]}"
    sh("docker", "network", "create", "--internal", *MARKED, network)
    try:
        address = json.loads(sh("docker", "network", "inspect", network).stdout)[0]["IPAM"]["Config"][0]["Gateway"]
        with moto(address) as endpoint:
            client = boto3.client("s3", **KEYS, endpoint_url=endpoint)
            client.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
            yield network, endpoint, client
    finally:
        sh("docker", "network", "rm", network)


def test_next_job_resumes_from_checkpoints_in_s3(image, s3, tmp_path):
    network, endpoint, client = s3
    environment = variables(endpoint)
    for run, begins in enumerate((r"begins at epoch 0 from None", f"begins at epoch 1 from {WHERE}/kept/")):
        ml = tmp_path / f"run-{run}"
        write_config(
            ml / "input/config",
            resources=resources(["algo-1"], "algo-1"),
            hyperparameters={"sagemaker_program": "keeps_in_s3.py", "model_dir": WHERE},
        )
        (ml / "code").mkdir()
        (ml / "code/keeps_in_s3.py").write_bytes((PROGRAMS / "keeps_in_s3.py").read_bytes())
        ended = run_alone(image, "train", mounts={ml: "/opt/ml"}, environment=environment, network=network, within=600)
        assert ended.returncode == 0, ended.stdout
        for said in ("rows 8", begins, "loaded, off by 0.0"):
            assert said in ended.stdout, ended.stdout
    keys = {entry["Key"] for entry in client.list_objects_v2(Bucket="bucket")["Contents"]}
    assert {"job/model/rows.tfrecord", "job/model/1/saved_model.pb", "job/model/weights/checkpoint"} <= keys
    assert any(key.startswith("job/model/kept/") for key in keys)


@pytest.mark.more
def test_ps_save_their_parts_to_s3(cluster, s3):
    """As in the DeepFM article, TF1 code runs unchanged with an S3 address as `model_dir`."""
    _, endpoint, client = s3
    code = (FOREIGN / "estimator.py").read_text()
    # tensorflow_io renames no folder that has one in it (FailedPreconditionError), as exporters do.
    for old, new in (("import tensorflow.compat.v1 as tf", "import tensorflow as tf"), (", exporters=[exporter]", "")):
        assert old in code
        code = code.replace(old, new)
    job = cluster(
        code=code,
        hosts=2,
        hyperparameters=by_sdk("train.py", PARAMETER_SERVER, model_dir=WHERE, steps=200),
        environment={**BUSY, **variables(endpoint), "ENTRYPOINT_TF1": "shim"},
    )
    with job:
        first, _ = job.all_end(within=600)
    keys = " ".join(entry["Key"] for entry in client.list_objects_v2(Bucket="bucket")["Contents"])
    for part in ("00000-of-00002", "00001-of-00002"):
        assert re.search(rf"job/model/model\.ckpt-\d+\.data-{part}\b", keys), keys
    assert list((first.ml / "model").glob("*/saved_model.pb"))
