"""`import tensorflow_io` in the image, and with it s3:// for rows, checkpoints and models: against moto's S3 server."""

import json
import uuid

import boto3
import pytest
from containers import LABEL, PROGRAMS, SESSION, resources, run_alone, sh, write_config
from moto.server import ThreadedMotoServer

KEYS = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "eu-west-1"}
WHERE = "s3://bucket/job/model"  # as the SDK's TensorFlow class sends it


@pytest.fixture
def s3(image):
    """(network, endpoint, client): a server on the network's own address on this machine."""
    network = f"tfe{uuid.uuid4().hex[:8]}"
    sh("docker", "network", "create", "--internal", "--label", f"{LABEL}={SESSION}", network)
    try:
        address = json.loads(sh("docker", "network", "inspect", network).stdout)[0]["IPAM"]["Config"][0]["Gateway"]
        server = ThreadedMotoServer(ip_address=address, port=0, verbose=False)
        server.start()
        try:
            endpoint = "http://{}:{}".format(*server.get_host_and_port())
            client = boto3.client("s3", **KEYS, endpoint_url=endpoint)
            client.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
            yield network, endpoint, client
        finally:
            server.stop()
    finally:
        sh("docker", "network", "rm", network)


def test_a_job_keeps_all_in_s3_and_the_next_one_resumes(image, s3, tmp_path):
    network, endpoint, client = s3
    environment = {
        "S3_ENDPOINT": endpoint, "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "eu-west-1", "NO_PROXY": "*",
        "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip
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
