"""Run one training job: its states, its hosts from start to end, and its results."""

import contextlib
import json
import re
import threading
import time
import traceback
import uuid
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from containers import Cluster, Ending, seconds_of, sh

from entrypoint.launcher.job.channels import Distribution
from entrypoint.simulate.local_channels import ChannelMode, LocalChannel
from stand_in_sagemaker import s3
from stand_in_sagemaker.api import MODEL, hit

if TYPE_CHECKING:
    from stand_in_sagemaker.service import StandIn

POLL_SECONDS = 0.5
MOST_REASON = 1024  # characters of FailureReason
NO_CAPACITY = (  # SageMaker's words, as users quote them in public issues
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML instance type."
)
SPOT_PRICE = 0.3  # of the ordinary price
DESCRIBED = set(MODEL.operation_model("DescribeTrainingJob").output_shape.members)
CUT_SHORT = ("Stopped", "MaxRuntimeExceeded")  # secondary statuses of a job that was ended before it was done
CACHE = "/opt/ml/sagemaker/warmpoolcache"
CHECKPOINTS = "/opt/ml/checkpoints"


class Failed(Exception):
    """The job fails with this FailureReason."""


class Job:
    """One training job. `run` runs it in a separate thread. All hosts share checkpoints and cache."""

    def __init__(self, service: "StandIn", request: dict[str, Any], cache: Path | None) -> None:
        self._service, self.request = service, request
        self.name: str = request["TrainingJobName"]
        self.arn = service.arn(f"training-job/{self.name.lower()}")
        self.created = self.modified = time.time()
        self.status, self.secondary, self.failure_reason = "InProgress", "", ""
        self.transitions: list[dict[str, Any]] = []
        self.has_begun = False
        self.training_end: float | None = None
        self.warm_pool: dict[str, Any] | None = {"Status": "InUse"} if cache else None
        self.cache = cache  # the warm pool's folder
        self.events: list[dict[str, Any]] = []  # lines as in CloudWatch Logs
        self.stop_asked, self.closing = threading.Event(), threading.Event()
        self._folder = service.folder / self.name
        self._s3 = service.client("s3")
        self._interrupted = False
        self._trained = 0.0  # seconds of earlier attempts
        self._attempts = 0
        self._endings: dict[str, Ending] = {}  # of the hosts of this attempt
        self._enter("Starting")
        self.thread = threading.Thread(target=self.run, name=f"job {self.name}")

    # --- what others see of it ---

    @property
    def is_over(self) -> bool:
        return self.status in ("Completed", "Failed", "Stopped")

    @property
    def is_spot(self) -> bool:
        return bool(self.request.get("EnableManagedSpotTraining"))

    @property
    def kind(self) -> tuple[str, bool]:
        """Return the key by which AWS counts instances: the instance type, and whether they are spot instances."""
        return self.request["ResourceConfig"]["InstanceType"], self.is_spot

    @property
    def instances(self) -> int:
        return int(self.request["ResourceConfig"]["InstanceCount"])

    def summary(self) -> dict[str, Any]:
        found = {
            "TrainingJobName": self.name,
            "TrainingJobArn": self.arn,
            "CreationTime": self.created,
            "LastModifiedTime": self.modified,
            "TrainingJobStatus": self.status,
            "SecondaryStatus": self.secondary,
            "TrainingEndTime": self.training_end,
            "WarmPoolStatus": self.warm_pool,
        }
        return {name: value for name, value in found.items() if value is not None}

    def describe(self) -> dict[str, Any]:
        found = {name: value for name, value in self.request.items() if name in DESCRIBED} | self.summary()
        found["SecondaryStatusTransitions"] = [dict(each) for each in self.transitions]
        found["FinalMetricDataList"] = self._metrics()
        if self.failure_reason:
            found["FailureReason"] = self.failure_reason
        if self.training_end:
            found["BillableTimeInSeconds"] = max(1, round(self._trained * (SPOT_PRICE if self.is_spot else 1)))
        return found

    def _metrics(self) -> list[dict[str, Any]]:
        """Return the last value of each metric, by the regular expressions of the request."""
        found = {}
        for definition in self.request["AlgorithmSpecification"].get("MetricDefinitions", []):
            name = definition["Name"]
            for event in self.events:
                for value in re.findall(definition["Regex"], event["message"]):
                    with contextlib.suppress(ValueError):  # it is no number
                        at = event["timestamp"] / 1000
                        found[name] = {"MetricName": name, "Value": float(value), "Timestamp": at}
        return list(found.values())

    def stop(self) -> None:
        """Begin to stop, as StopTrainingJob does."""
        self.status = "Stopping"
        self._enter("Stopping")
        self.stop_asked.set()

    # --- its life ---

    def run(self) -> None:
        try:
            self._live()
        except Failed as failure:
            self._end("Failed", str(failure))
        except Exception:
            self._service.errors.append(f"{self.name}: {traceback.format_exc()}")
            self._end("Failed", "InternalServerError: We encountered an internal error. Please try again.")

    def _live(self) -> None:
        if hit(self._service.faults.without_capacity, self.name):
            raise Failed(NO_CAPACITY)
        while (outcome := self._attempt()) == "Interrupted":
            self._enter("Interrupted")
            self._enter("Starting")
        if self.closing.is_set():
            return
        why = self._why_failed() if outcome == "Failed" else ""
        self._enter("Uploading")
        self._upload(outcome)
        self._end("Stopped" if outcome == "Completed" and self.stop_asked.is_set() else outcome, why)

    def _attempt(self) -> str:
        """Run all hosts once until all have ended; return the secondary status."""
        began = time.time()
        self.has_begun = True
        self._attempts += 1
        self._enter("Downloading")
        try:
            cluster = self._cluster()
            self._enter("Training")
            if self.stop_asked.is_set():
                return "Stopped"
            with cluster:
                return self._watch(cluster, began)
        finally:
            self._trained += time.time() - began

    def _cluster(self) -> Cluster:
        """Return the hosts of a new attempt, with their mounted files."""
        entrypoint = self.request["AlgorithmSpecification"].get("ContainerEntrypoint", [])
        cluster = Cluster(
            self._service.image,
            self._folder / str(self._attempts),
            program="",
            hosts=self.instances,
            hyperparameters=self.request.get("HyperParameters", {}),
            channels=self._channels,
            environment=self._environment(),
            mounts=[f"{self.cache}:{CACHE}"] if self.cache else [],
            shared=self._checkpoints,
            starts=entrypoint,
            command=() if entrypoint else ("train",),
        )
        if self._checkpoints:
            for host in cluster.hosts:
                path = cluster.ml(host) / "input/config/checkpointconfig.json"
                path.write_text(json.dumps({"LocalPath": CHECKPOINTS}))
        return cluster

    @cached_property
    def _channels(self) -> dict[str, LocalChannel]:
        """Download the channels; return them."""
        wanted = self.request.get("InputDataConfig", [])
        if wanted and hit(self._service.faults.unreadable, self.name):
            uri = wanted[0]["DataSource"]["S3DataSource"]["S3Uri"]
            raise Failed(f"ClientError: Data download failed: Access denied when reading {uri}")
        found = {}
        for each in wanted:
            name, source = each["ChannelName"], each["DataSource"]["S3DataSource"]
            folder = self._folder / "s3" / name
            try:
                s3.download(self._s3, source["S3Uri"], folder)
            except ClientError as error:
                raise Failed(f"ClientError: Data download failed: {error}") from None
            found[name] = LocalChannel(
                name=name,
                source=folder,
                mode=ChannelMode(each.get("InputMode", self.request["AlgorithmSpecification"]["TrainingInputMode"])),
                distribution=Distribution(source.get("S3DataDistributionType", "FullyReplicated")),
            )
        return found

    @cached_property
    def _checkpoints(self) -> Path | None:
        """Download the checkpoints; return their folder. None if the job keeps none."""
        if "CheckpointConfig" not in self.request:
            return None
        folder = self._folder / "checkpoints"
        folder.mkdir(parents=True)
        s3.download(self._s3, self.request["CheckpointConfig"]["S3Uri"], folder)
        return folder

    def _environment(self) -> dict[str, str]:
        """Return the variables of all hosts. No server answers at the URI of credentials; boto3 prefers the keys."""
        return {
            "TRAINING_JOB_NAME": self.name,
            "TRAINING_JOB_ARN": self.arn,
            "AWS_REGION": self._service.region,
            "AWS_EXECUTION_ENV": "AWS_ECS_EC2",
            "AWS_EC2_METADATA_DISABLED": "true",
            "DMLC_INTERFACE": "eth0",
            "NVIDIA_VISIBLE_DEVICES": "void",
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": f"/v2/credentials/{uuid.uuid4()}",
            **self._service.access(self._service.moto_for_hosts),
            **({"SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY": CACHE} if self.cache else {}),
            **self.request.get("Environment", {}),
        }

    def _watch(self, cluster: Cluster, began: float) -> str:
        """Wait until all hosts have ended, and stop them at a limit or a stop request; return the secondary status."""
        outcome, kill_at = "", float("inf")
        self._endings = {}
        before = len(self.events)
        while len(self._endings) < len(cluster.hosts) and not self.closing.is_set():
            time.sleep(POLL_SECONDS)
            for host in set(cluster.hosts) - self._endings.keys():
                if not cluster.is_up(host):
                    self._endings |= cluster.wait(host)
            self.events[before:] = [event for host in cluster.hosts for event in self._logged(cluster, host)]
            if self._checkpoints:
                s3.upload(self._s3, self._checkpoints, self.request["CheckpointConfig"]["S3Uri"])
            if not outcome and (outcome := self._time_to_end(began)):
                if outcome.startswith("Max"):
                    self._enter("Stopping")
                self._signal(cluster, "TERM")
                kill_at = time.time() + self._service.grace(outcome)
            elif time.time() > kill_at:
                self._signal(cluster, "KILL")
        failed = any(ending.exit_code for ending in self._endings.values())
        return outcome or ("Failed" if failed else "Completed")

    def _signal(self, cluster: Cluster, name: str) -> None:
        """Send a signal to all running hosts."""
        for host in set(cluster.hosts) - self._endings.keys():
            sh("docker", "kill", "--signal", name, cluster.container(host), check=False)

    def _logged(self, cluster: Cluster, host: str) -> list[dict[str, Any]]:
        """Return a host's complete lines so far, as CloudWatch Logs has them."""
        stream = f"{self.name}/{host}-{int(self.created)}{self._attempts}"
        lines = cluster.log(host, "--timestamps").split("\n")[:-1]
        rows = [line.rstrip("\r").partition(" ") for line in lines]
        return [
            {"logStreamName": stream, "timestamp": int(1000 * seconds_of(at)), "message": text}
            for at, _, text in rows
            if text
        ]

    def _time_to_end(self, began: float) -> str:
        """Return the secondary status with which to end the attempt now; "" if it continues."""
        limit = self.request["StoppingCondition"]["MaxRuntimeInSeconds"]
        if self.stop_asked.is_set():
            return "Stopped"
        if any(ending.exit_code for ending in self._endings.values()):
            return "Failed"
        kept = self._checkpoints and any(self._checkpoints.iterdir())
        if self._service.interrupt_spot and self.is_spot and not self._interrupted and kept:
            self._interrupted = True
            return "Interrupted"
        if self._trained + time.time() - began > self._service.runtime(self.name, limit):
            return "MaxRuntimeExceeded"
        return ""

    # --- its end ---

    def _why_failed(self) -> str:
        """Return the FailureReason from the host that failed first, cut to the API's limit."""
        first = min((each for each in self._endings.values() if each.exit_code), key=lambda each: each.finished)
        begin, end = "AlgorithmError: ", f", exit code: {first.exit_code}"
        return begin + (first.failure or "")[: MOST_REASON - len(begin) - len(end)] + end

    def _upload(self, outcome: str) -> None:
        place = f"{self.request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{self.name}/output"
        for archive, part in (("model", "model"), ("output", "output/data")):
            folders = [ending.ml / part for ending in self._endings.values()]
            if any(any(folder.iterdir()) for folder in folders) or (archive == "model" and outcome != "Failed"):
                s3.upload_archive(self._s3, folders, f"{place}/{archive}.tar.gz")

    def _end(self, outcome: str, why: str = "") -> None:
        """Enter the final state."""
        with self._service.lock:
            self.failure_reason = why[:MOST_REASON]
            if self.has_begun:
                self.training_end = time.time()
            self._enter(outcome)
            self._service.release(self)  # before the status: whoever sees the end sees the warm pool
            self.status = "Stopped" if outcome in CUT_SHORT else outcome

    def _enter(self, secondary: str) -> None:
        with self._service.lock:
            if self.status == "Stopping" and secondary in ("Starting", "Downloading", "Training"):
                return
            self.modified = time.time()
            if self.secondary != secondary:
                self.transitions.append({"Status": secondary, "StartTime": self.modified})
                self.secondary = secondary
