"""Call AWS for the acceptance run, and explain each refusal in one line with a remedy."""

import io
import re
import tarfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, NoCredentialsError, NoRegionError

GROUP = "/aws/sagemaker/TrainingJobs"  # of CloudWatch's logs, and its metrics' namespace
# Jobs that run side by side are looked at so often that AWS may throttle.
PATIENCE = Config(retries={"mode": "standard", "max_attempts": 10}, connect_timeout=10, read_timeout=60)
POLICY = "`python tests/accept --policy` prints the rights that are needed"
ADVICE = (  # pattern in a code or message, and what to do
    (r"AccessDenied|not authorized|UnauthorizedOperation", f"add this right; {POLICY}"),
    (r"Could not assume role|RoleArn", f"pass a role that sagemaker.amazonaws.com may assume; {POLICY}"),
    (
        r"ResourceLimitExceeded",
        "ask for more in Service Quotas (SageMaker, 'for training job usage'), or pass another --instance-type",
    ),
    (
        r"CapacityError|Insufficient.*[Cc]apacity",
        "AWS has no such machines now: try later, in another --region, or with another --instance-type",
    ),
    (
        r"ExpiredToken|InvalidClientTokenId|UnrecognizedClient|InvalidSignature",
        "log in again: AWS takes these credentials no longer, or not in this region",
    ),
    (
        r"NoSuchBucket|does not exist.*bucket|^404",
        "pass --bucket with a bucket of this region, or create it with examples/cloudformation/accept.yaml",
    ),
    (
        r"PermanentRedirect|IllegalLocationConstraint|different region|No S3 objects found",
        "the bucket is in another region: pass --bucket with one of the job's region",
    ),
    (
        r"(?i)image.*(not exist|pull|not found|invalid)|(?i:repository).*not exist",
        "push the image to ECR in the job's region, and let the role pull it",
    ),
    (r"Access denied|AccessDenied|Forbidden|^403", f"the job's role lacks a right; {POLICY}"),
    (r"Throttling|TooManyRequests|RequestLimitExceeded", "AWS throttles this account: pass a smaller --at-once"),
)


class Refused(Exception):
    """AWS refused a call, or could not be reached. The text is one line with a remedy."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


def advice(text: str) -> str:
    """Return the remedy for an error, "" if none is known."""
    return next((words for pattern, words in ADVICE if re.search(pattern, text)), "")


def explained(error: Exception, call: str) -> Refused:
    """Return the error of a call as one line."""
    if isinstance(error, NoCredentialsError):
        return Refused(f"{call}: found no AWS credentials; wanted a profile, or the variables AWS_ACCESS_KEY_ID ...")
    if isinstance(error, NoRegionError):
        return Refused(f"{call}: found no region; wanted --region, or one in your AWS configuration")
    if isinstance(error, EndpointConnectionError):
        return Refused(f"{call}: {error}; check --region and the network")
    if not isinstance(error, ClientError):
        return Refused(f"{call}: {error}")
    found = error.response["Error"]
    code, message = found.get("Code", ""), " ".join(str(found.get("Message", "")).split())
    told = advice(f"{code} {message}")
    return Refused(f"{call}: {code}: {message}" + f" -- {told}" * bool(told), code)


class Account:
    """The operations on the AWS account that the run needs."""

    def __init__(self, session: Any) -> None:
        self.region = session.region_name
        names = ("sagemaker", "s3", "logs")
        try:
            self._clients = {name: session.client(name, config=PATIENCE) for name in names}
        except BotoCoreError as error:
            raise explained(error, "boto3") from None

    def call(self, service: str, operation: str, **parameters: Any) -> Any:
        """Call an operation by boto3's name. Raise Refused if AWS refuses."""
        try:
            return getattr(self._clients[service], operation)(**parameters)
        except (ClientError, BotoCoreError) as error:
            raise explained(error, f"{service} {operation}") from None

    def pages(self, service: str, operation: str, key: str, **parameters: Any) -> Iterator[Any]:
        """Yield the values under a key, from all pages of an operation."""
        try:
            for page in self._clients[service].get_paginator(operation).paginate(**parameters):
                yield from page.get(key, ())
        except (ClientError, BotoCoreError) as error:
            raise explained(error, f"{service} {operation}") from None

    def check_bucket(self, bucket: str) -> None:
        """Raise Refused if the bucket cannot be reached, or is in another region than the jobs."""
        headers = self.call("s3", "head_bucket", Bucket=bucket)["ResponseMetadata"]["HTTPHeaders"]
        region = headers.get("x-amz-bucket-region", self.region)
        if region != self.region:
            raise Refused(
                f"the bucket {bucket} is in {region}, the jobs would be in {self.region}; wanted the same region"
            )

    def upload(self, folder: Path, bucket: str, prefix: str) -> None:
        """Upload the files of a folder."""
        for file in sorted(folder.iterdir()):
            self.call("s3", "put_object", Bucket=bucket, Key=f"{prefix}/{file.name}", Body=file.read_bytes())

    def log(self, job: str, since: datetime) -> list[tuple[str, float, str]]:
        """Return the lines of a job's log: host, seconds since the epoch, text. `since`: before its first line."""
        try:
            wanted = {
                "logGroupName": GROUP,
                "logStreamNamePrefix": f"{job}/",
                "startTime": int(since.timestamp() * 1000),
            }
            events = list(self.pages("logs", "filter_log_events", "events", **wanted))
        except Refused as refused:
            if refused.code == "ResourceNotFoundException":  # no job of this account has printed anything yet
                return []
            raise
        events.sort(key=lambda event: event["timestamp"])
        return [(host_of(each["logStreamName"]), each["timestamp"] / 1000, each["message"]) for each in events]

    def names_in(self, bucket: str, key: str) -> list[str]:
        """Return the names in an archive in S3, [] if there is none."""
        try:
            body = self.call("s3", "get_object", Bucket=bucket, Key=key)["Body"].read()
        except Refused as refused:
            if refused.code in ("NoSuchKey", "404"):
                return []
            raise
        with tarfile.open(fileobj=io.BytesIO(body)) as archive:
            return [each.name.removeprefix("./") for each in archive if each.isfile()]

    def delete(self, bucket: str, prefix: str) -> int:
        """Delete all objects below a prefix; return how many there were. Raise Refused if some are left."""
        keys = [each["Key"] for each in self.pages("s3", "list_objects_v2", "Contents", Bucket=bucket, Prefix=prefix)]
        for first in range(0, len(keys), 1000):  # as many as one call takes
            objects = [{"Key": key} for key in keys[first : first + 1000]]
            told = self.call("s3", "delete_objects", Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
            for error in told.get("Errors", ()):
                raise Refused(f"s3 delete_objects: {error.get('Key')}: {error.get('Message')}")
        return len(keys)


def host_of(stream: str) -> str:
    """Return the host of a log stream: algo-1 of JOB/algo-1-1700000000."""
    return stream.rpartition("/")[2].rpartition("-")[0]
