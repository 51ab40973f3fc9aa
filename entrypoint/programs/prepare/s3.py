"""Download one object from S3, and explain a failure."""

import os
from pathlib import Path

import boto3
from boto3.exceptions import RetriesExceededError
from boto3.s3.transfer import TransferConfig
from botocore import exceptions
from botocore.client import BaseClient
from botocore.config import Config
from unusable import Unusable, reason

# All attempts together take some minutes at worst. The connect timeout applies to each of the bucket's addresses, of
# which there are up to eight: if no packet comes back, that makes 72 s.
PATIENCE = Config(connect_timeout=3, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 3})
TRANSFER = TransferConfig(num_download_attempts=4)  # for downloads that stop in between

NOT_THERE = {"NoSuchKey", "NoSuchVersion", "404"}
DENIED = {"AccessDenied", "AllAccessDisabled", "Forbidden", "403"}
NOT_ACCEPTED = {
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "RequestTimeTooSkewed",
}
ELSEWHERE = {
    "PermanentRedirect",
    "TemporaryRedirect",
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "301",
    "307",
}


def download(uri: str, target: Path) -> None:
    """Download the object at `uri` as the file `target`. boto3 resumes what is interrupted."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if not bucket or not key or key.endswith("/"):
        raise Unusable(f"the code is at {uri}; wanted the URI of a .tar.gz, s3://BUCKET/KEY")
    # AWS_ENDPOINT_URL_S3 and AWS_ENDPOINT_URL are botocore's own; S3_ENDPOINT_URL is sagemaker-training's.
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("S3_ENDPOINT_URL") or None
    region = next((os.environ[name] for name in ("AWS_REGION", "SAGEMAKER_REGION") if os.environ.get(name)), None)
    try:
        client = boto3.client("s3", region_name=region, endpoint_url=endpoint, config=PATIENCE)
        try:
            client.download_file(bucket, key, str(target), Config=TRANSFER)
            return
        except exceptions.ClientError as error:
            wrong = _refused(client, bucket, key, _in_full(client, bucket, key, error))
    except Exception as error:
        if isinstance(error, OSError) and not isinstance(error, exceptions.BotoCoreError):
            raise  # an error of our disk
        wrong = _no_answer(error)
    raise Unusable(f"the code at {uri} cannot be fetched: {wrong}")


def _in_full(client: BaseClient, bucket: str, key: str, error: exceptions.ClientError) -> exceptions.ClientError:
    """Return the error of a GET, which has a reason. A download begins with HEAD, and its error is a bare number."""
    try:
        client.get_object(Bucket=bucket, Key=key, Range="bytes=0-0")["Body"].close()
    except exceptions.ClientError as full:
        return full
    return error


def _refused(client: BaseClient, bucket: str, key: str, error: exceptions.ClientError) -> str:
    code, message = (str(error.response.get("Error", {}).get(name, "")) for name in ("Code", "Message"))
    reply = f"S3 answered {code}: {' '.join(message.split())}"
    arn = f"arn:{client.meta.partition}:s3:::{bucket}/{key}"
    if code in NOT_THERE:
        return f"there is no such object; wanted the key of an archive that is in bucket {bucket}. {reply}"
    if code == "NoSuchBucket":
        return f"there is no bucket {bucket}; wanted one that exists. {reply}"
    if code in DENIED:
        return (
            f"access is denied; wanted s3:GetObject on {arn} for the job's execution role. {reply}. If a key of "
            "yours encrypts it, kms:Decrypt is needed, too; and without s3:ListBucket, a missing object is denied"
        )
    if code in NOT_ACCEPTED:
        return f"the credentials are not accepted; wanted valid ones, of the job's execution role. {reply}"
    if code in ELSEWHERE:
        region = client.meta.region_name
        return f"bucket {bucket} is not in region {region}; wanted one in the region that AWS_REGION names. {reply}"
    return reply


def _no_answer(error: Exception) -> str:
    reply = reason(error)
    if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
        return f"there are no credentials; wanted the job's execution role, or AWS_ACCESS_KEY_ID and its like. {reply}"
    if isinstance(error, exceptions.CredentialRetrievalError | exceptions.MetadataRetrievalError):
        return f"the credentials of the job's execution role cannot be had. {reply}"
    if isinstance(error, RetriesExceededError):
        return f"the download was interrupted {TRANSFER.num_download_attempts} times. {reason(error.last_exception)}"
    if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError):
        return (
            "S3 does not answer; wanted a network that leads to it: in a VPC, an S3 endpoint or NAT; under network "
            f"isolation there is none, and code comes by channel `code`. {reply}"
        )
    return f"{type(error).__name__}: {reply}"
