"""Offer the operations of SageMaker's training API, and keep its jobs and warm pools."""

import contextlib
import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
from containers import docker_bridge
from moto_server import moto

from stand_in_sagemaker.api import ApiError, check, hit, invalid, serving
from stand_in_sagemaker.job import Job
from stand_in_sagemaker.s3 import below

ACCOUNT = "123456789012"  # moto's
IN_RESOURCES = ("InstanceType", "InstanceCount", "VolumeSizeInGB")


@dataclass(kw_only=True)
class Faults:
    """Injected faults: of calls by operation, and of jobs by patterns of their names such as `second-*`."""

    throttled: dict[str, int] = field(default_factory=dict)  # operation: how many of its next calls
    denied: set[str] = field(default_factory=set)  # operations
    unassumable: list[str] = field(default_factory=list)  # the role of these jobs cannot be assumed
    without_capacity: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)  # the role of these jobs must not read the channels


@dataclass(kw_only=True)
class Pool:
    """The instances of a job that has ended, kept for the next one that matches."""

    job: Job
    since: float
    seconds: float

    def end(self, status: str, **more: str) -> None:
        retained = {"ResourceRetainedBillableTimeInSeconds": round(time.time() - self.since)}
        self.job.warm_pool = {"Status": status, **retained, **more}
        if status == "Terminated" and self.job.cache:
            shutil.rmtree(self.job.cache, ignore_errors=True)


def needs(request: Mapping[str, Any]) -> list[Any]:
    """Return the properties of a job that must equal those of a warm pool to run on it."""
    resources = request["ResourceConfig"]
    return [request["RoleArn"], request.get("VpcConfig"), *(resources.get(name) for name in IN_RESOURCES)]


class StandIn:
    """A simulated SageMaker with S3 and other services, within a `with` block.

    `image`: the image that runs for `self.image_uri` in a request. `quota`: how many instances of one type may run at
    once. `interrupt_spot`: each managed spot job is interrupted once, after a checkpoint has reached S3. The graces are
    seconds between SIGTERM and SIGKILL. `runtimes`: by patterns of job names, seconds that replace MaxRuntimeInSeconds,
    for tests that cannot wait so long.
    """

    def __init__(
        self,
        image: str,
        *,
        quota: int | None = None,
        interrupt_spot: bool = False,
        warm_pools: bool = True,
        faults: Faults | None = None,
        runtimes: Mapping[str, float] | None = None,
        stop_grace: float = 120,
        interrupt_grace: float = 10,
    ) -> None:
        self.region = "eu-west-1"
        self.image, self.quota, self.interrupt_spot, self.warm_pools = image, quota, interrupt_spot, warm_pools
        self.image_uri = f"{ACCOUNT}.dkr.ecr.{self.region}.amazonaws.com/{image}"
        self.faults = faults or Faults()
        self._runtimes = dict(runtimes or {})
        self.jobs: dict[str, Job] = {}
        self.errors: list[str] = []  # faults of the stand-in itself; the end of the block raises them
        self.lock = threading.RLock()
        self.url = self.moto_url = self.moto_for_hosts = ""
        self.folder = Path()
        self._graces = {"Interrupted": interrupt_grace, "other": stop_grace}
        self._pools: list[Pool] = []
        self._clients: dict[str, Any] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "StandIn":
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # moto's server prints each request
        with contextlib.ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sagemaker-")))
            self.moto_url = stack.enter_context(moto())
            self.moto_for_hosts = stack.enter_context(moto(docker_bridge()))
            stack.callback(self._close)
            self.url = stack.enter_context(serving(self._answer))
            keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": self.region}
            # Here, as to make a client is not for several threads; to use it is.
            for name, url in (("sagemaker", self.url), ("s3", self.moto_url)):
                self._clients[name] = boto3.client(name, endpoint_url=url, **keys)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stack.close()
        if self.errors and kind is None:
            raise AssertionError("\n".join(self.errors))

    def _close(self) -> None:
        for job in self.jobs.values():
            job.closing.set()
        for job in self.jobs.values():
            job.thread.join()

    # --- for tests ---

    def environment(self) -> dict[str, str]:
        """Return the environment variables by which a program reaches only this service, and never AWS."""
        nothing = {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
        loopback = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        names = ("SAGEMAKER", "CLOUDWATCH_LOGS", "IAM")
        ours = {f"AWS_ENDPOINT_URL_{name}": self.url for name in names}
        others = {"AWS_REGION": self.region, "AWS_EC2_METADATA_DISABLED": "true"}
        return {**self.access(self.moto_url), **ours, **others, **nothing, **loopback}

    def access(self, endpoint: str) -> dict[str, str]:
        """Return invented keys, and the variables that lead to moto. S3_ENDPOINT is TensorFlow's name for it."""
        keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
        names = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "S3_ENDPOINT")
        return {**keys, "AWS_DEFAULT_REGION": self.region, **dict.fromkeys(names, endpoint)}

    def client(self, service: str) -> Any:
        """Return a boto3 client of this service, or of moto."""
        return self._clients[service]

    # --- for jobs ---

    def arn(self, resource: str) -> str:
        return f"arn:aws:sagemaker:{self.region}:{ACCOUNT}:{resource}"

    def runtime(self, name: str, asked: float) -> float:
        """Return the maximum run time of a job in seconds."""
        return next((seconds for pattern, seconds in self._runtimes.items() if hit([pattern], name)), asked)

    def grace(self, outcome: str) -> float:
        """Return the seconds between SIGTERM and SIGKILL."""
        return self._graces.get(outcome, self._graces["other"])

    def release(self, job: Job) -> None:
        """Keep the instances of a job that has ended as a warm pool, if it asked for one."""
        keep = job.request["ResourceConfig"].get("KeepAlivePeriodInSeconds", 0)
        if not job.cache:
            return
        pool = Pool(job=job, since=time.time(), seconds=keep)
        if keep and job.has_begun and self.warm_pools:
            job.warm_pool = {"Status": "Available"}
            self._pools.append(pool)
        else:
            pool.end("Terminated")

    # --- operations ---

    def _answer(self, target: str, request: dict[str, Any]) -> dict[str, Any]:
        service, _, operation = target.partition(".")
        if service.startswith("Logs"):
            return self._filter_log_events(request)
        operations = {
            "CreateTrainingJob": self._create,
            "DescribeTrainingJob": lambda request: self._known(request).describe(),
            "StopTrainingJob": self._stop,
            "UpdateTrainingJob": self._update,
            "ListTrainingJobs": self._list,
        }
        if operation not in operations:
            raise ApiError("UnknownOperationException", f"the stand-in has no {operation}")
        with self.lock:
            if self.faults.throttled.get(operation, 0) > 0:
                self.faults.throttled[operation] -= 1
                raise ApiError("ThrottlingException", "Rate exceeded")
            self._check_allowed(operation, request)
            check(operation, request)
            self._expire()
            return operations[operation](request)

    def _check_allowed(self, operation: str, request: Mapping[str, Any]) -> None:
        if operation in self.faults.denied:
            who = f"arn:aws:sts::{ACCOUNT}:assumed-role/Tester/session"
            job = self.arn(f"training-job/{request.get('TrainingJobName', '*').lower()}")
            raise ApiError(
                "AccessDeniedException",
                f"User: {who} is not authorized to perform: sagemaker:{operation} on resource: {job} because no "
                f"identity-based policy allows the sagemaker:{operation} action",
            )

    def _known(self, request: Mapping[str, Any]) -> Job:
        if request["TrainingJobName"] not in self.jobs:
            raise invalid("Requested resource not found.")
        return self.jobs[request["TrainingJobName"]]

    def _create(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request["TrainingJobName"]
        if name in self.jobs:
            raise ApiError(
                "ResourceInUse",
                "Training job names must be unique within an AWS account and region, and a training job with this "
                f"name already exists ({self.jobs[name].arn})",
            )
        if hit(self.faults.unassumable, name):
            raise invalid(
                f"Could not assume role {request['RoleArn']}. Please ensure that the role exists and allows principal "
                "'sagemaker.amazonaws.com' to assume the role."
            )
        self._check_channels(request)
        pool = self._matching(request)
        keep = request["ResourceConfig"].get("KeepAlivePeriodInSeconds", 0)
        cache = pool.job.cache if pool else self.folder / f"cache-{name}" if keep else None
        job = Job(self, request, cache)
        if not pool:
            self._check_quota(job)
        else:
            self._pools.remove(pool)
            pool.end("Reused", ReusedByJob=name)
        self.jobs[name] = job
        job.thread.start()
        return {"TrainingJobArn": job.arn}

    def _check_channels(self, request: Mapping[str, Any]) -> None:
        for channel in request.get("InputDataConfig", []):
            uri = channel["DataSource"]["S3DataSource"]["S3Uri"]
            if not below(self.client("s3"), uri):
                raise invalid(f'No S3 objects found under S3 URL "{uri}" given in input data source.')

    def _check_quota(self, job: Job) -> None:
        used = sum(other.instances for other in self.jobs.values() if not other.is_over and other.kind == job.kind)
        if self.quota is not None and used + job.instances > self.quota:
            instance_type, is_spot = job.kind
            usage = f"{instance_type} for {'spot ' if is_spot else ''}training job usage"
            raise ApiError(
                "ResourceLimitExceeded",
                f"The account-level service limit '{usage}' is {self.quota} Instances, with current utilization of "
                f"{used} Instances and a request delta of {job.instances} Instances.",
            )

    def _stop(self, request: Mapping[str, Any]) -> dict[str, Any]:
        job = self._known(request)
        if job.is_over:
            raise invalid(f"The request was rejected because the training job is in status {job.status}.")
        if job.status == "InProgress":
            job.stop()
        return {}

    def _update(self, request: Mapping[str, Any]) -> dict[str, Any]:
        job = self._known(request)
        if "ResourceConfig" in request:
            pool = next((pool for pool in self._pools if pool.job is job), None)
            if not pool:
                raise invalid(f"The training job {job.name} has no warm pool that is available.")
            pool.seconds = request["ResourceConfig"]["KeepAlivePeriodInSeconds"]
            job.request["ResourceConfig"]["KeepAlivePeriodInSeconds"] = pool.seconds
            self._expire()
        return {"TrainingJobArn": job.arn}

    def _list(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """List the jobs from new to old."""
        jobs = [
            job
            for job in reversed(self.jobs.values())
            if request.get("StatusEquals", job.status) == job.status
            and request.get("CreationTimeAfter", 0) <= job.created
        ]
        first = int(request.get("NextToken", 0))
        end = first + request.get("MaxResults", 10)
        more = {"NextToken": str(end)} if end < len(jobs) else {}
        return {"TrainingJobSummaries": [job.summary() for job in jobs[first:end]], **more}

    def _filter_log_events(self, request: Mapping[str, Any]) -> dict[str, Any]:
        events = [event for job in self.jobs.values() for event in job.events]
        if not events:
            raise ApiError("ResourceNotFoundException", "The specified log group does not exist.")
        prefix = request["logStreamNamePrefix"]
        return {"events": [event for event in events if event["logStreamName"].startswith(prefix)]}

    # --- warm pools ---

    def _matching(self, request: Mapping[str, Any]) -> Pool | None:
        if request.get("EnableManagedSpotTraining"):
            return None
        return next((pool for pool in self._pools if needs(pool.job.request) == needs(request)), None)

    def _expire(self) -> None:
        for pool in [pool for pool in self._pools if time.time() >= pool.since + pool.seconds]:
            self._pools.remove(pool)
            pool.end("Terminated")
