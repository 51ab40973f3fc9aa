"""Live the life of one training job: its states, its hosts from their start to their end, its results."""

import contextlib
import json
import threading
import time
import traceback
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from containers import LABEL, PATIENCE, SESSION, sh
from moto_server import moto

from entrypoint.simulate.local_channels import LocalChannel
from entrypoint.simulate.pipe_writer import feeding
from stand_in_sagemaker.api import MODEL, hit
from stand_in_sagemaker.host import CACHE, Host
from stand_in_sagemaker.logs import Logs
from stand_in_sagemaker.storage import Checkpoints, download, upload_archive

if TYPE_CHECKING:
    from stand_in_sagemaker.service import StandIn

POLL_SECONDS = 0.5
UPLOAD_SECONDS = 1.0  # between two looks at checkpoints and logs
MOST_REASON = 1024  # characters of FailureReason
NO_CAPACITY = (  # SageMaker's words, as users quote them in public issues
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML instance type."
)
SPOT_PRICE = 0.3  # of the ordinary price
DESCRIBED = set(MODEL.operation_model("DescribeTrainingJob").output_shape.members)
CUT_SHORT = ("Stopped", "MaxRuntimeExceeded")  # secondary statuses of a job that was ended before it was done


@contextmanager
def network() -> Iterator[tuple[str, str]]:
    """Yield (name, URL of moto there) of a new network, on which a job's hosts reach one another and moto alone."""
    name = f"tfe{uuid.uuid4().hex[:8]}"
    sh("docker", "network", "create", "--internal", "--label", f"{LABEL}={SESSION}", name, within=PATIENCE)
    try:
        gateway = json.loads(sh("docker", "network", "inspect", name).stdout)[0]["IPAM"]["Config"][0]["Gateway"]
        with moto(gateway) as url:
            yield name, url
    finally:
        sh("docker", "network", "rm", name, within=PATIENCE)


class Failed(Exception):
    """The job fails for this reason."""


class Closed(Exception):
    """The stand-in ends before the job."""


class Job:
    """One training job. `run` is its life, in a thread of its own."""

    def __init__(self, service: "StandIn", request: dict[str, Any], number: int, cache: Path | None) -> None:
        self._service, self.request, self._number = service, request, number
        self.name: str = request["TrainingJobName"]
        self.arn = service.arn(f"training-job/{self.name.lower()}")
        self.created = self.modified = time.time()
        self.status, self.secondary, self.failure_reason = "InProgress", "", ""
        self.transitions: list[dict[str, Any]] = []
        self.training_start: float | None = None
        self.training_end: float | None = None
        self.warm_pool: dict[str, Any] | None = {"Status": "InUse"} if cache else None
        self.cache = cache  # the warm pool's folder, with one for each host
        self.stop_asked, self.closing = threading.Event(), threading.Event()
        self._interrupted = False
        self._trained = 0.0  # seconds of earlier attempts
        self._attempts = 0
        self._channels: list[LocalChannel] | None = None
        self._hosts: list[Host] = []
        definitions = request["AlgorithmSpecification"].get("MetricDefinitions", [])
        self.logs = Logs(definitions, service.of_moto("logs"))
        self._s3 = service.of_moto("s3")
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
        """Return what AWS counts together: the instance type, and whether these are spot instances."""
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
        found["FinalMetricDataList"] = list(self.logs.final.values())
        if self.failure_reason:
            found["FailureReason"] = self.failure_reason
        if self.training_end:
            seconds = max(1, round(self._trained))
            found["BillableTimeInSeconds"] = max(1, round(seconds * SPOT_PRICE)) if self.is_spot else seconds
        return found

    def stop(self) -> None:
        """Begin to stop, as StopTrainingJob does."""
        self.status = "Stopping"
        self._enter("Stopping")
        self.stop_asked.set()

    # --- its life ---

    def run(self) -> None:
        try:
            self._live()
        except Closed:
            pass
        except Failed as failure:
            self._end("Failed", str(failure))
        except Exception:
            self._service.errors.append(f"{self.name}: {traceback.format_exc()}")
            self._end("Failed", "InternalServerError: We encountered an internal error. Please try again.")

    def _live(self) -> None:
        if hit(self._service.faults.without_capacity, self.name):
            raise Failed(NO_CAPACITY)
        with network() as (name, endpoint):
            while (outcome := self._attempt(name, endpoint)) == "Interrupted":
                self._enter("Interrupted")
                self._enter("Starting")
        why = self._why_failed() if outcome == "Failed" else ""
        began = time.time()
        self._enter("Uploading")
        self._upload(outcome)
        self._trained += time.time() - began
        self._end("Stopped" if outcome == "Completed" and self.stop_asked.is_set() else outcome, why)

    def _attempt(self, network_name: str, endpoint: str) -> str:
        """Run all hosts once, until all have ended; return how that ended: a secondary status."""
        began = time.time()
        self.training_start = self.training_start or began
        self._enter("Downloading")
        try:
            checkpoints = self._lay_out(network_name)
            self._enter("Training")
            if self.stop_asked.is_set():
                return "Stopped"
            unfed: list[str] = []
            with contextlib.ExitStack() as stack:
                streams = [stream for host in self._hosts for stream in host.streams()]
                stack.enter_context(feeding(streams, unfed.append))
                for host in self._hosts:
                    stack.callback(host.remove)
                self._start(network_name, endpoint)
                outcome = self._watch(began, checkpoints)
            self._service.errors += unfed
            return outcome
        finally:
            self._trained += time.time() - began

    def _lay_out(self, network_name: str) -> Checkpoints | None:
        """Make the hosts of a new attempt with their trees; return their checkpoints, restored."""
        self._attempts += 1
        folder = self._service.folder / self.name / str(self._attempts)
        if self._channels is None:
            self._channels = self._download(folder.parent / "s3")
        names = [f"algo-{number}" for number in range(1, self.instances + 1)]
        self._hosts = [
            Host(
                name=name,
                rank=rank,
                names=names,
                base=folder / name / "ml",
                container=f"{network_name}-{self._attempts}-{name}",
                channels=self._channels,
            )
            for rank, name in enumerate(names)
        ]
        for host in self._hosts:
            host.write_tree(self.request)
        if "CheckpointConfig" not in self.request:
            return None
        uri = self.request["CheckpointConfig"]["S3Uri"].rstrip("/")
        folders = [host.base / "checkpoints" for host in self._hosts]
        checkpoints = Checkpoints(s3=self._s3, uri=uri, folders=folders)
        checkpoints.restore()
        return checkpoints

    def _download(self, folder: Path) -> list[LocalChannel]:
        wanted = self.request.get("InputDataConfig", [])
        if wanted and hit(self._service.faults.unreadable, self.name):
            uri = wanted[0]["DataSource"]["S3DataSource"]["S3Uri"]
            raise Failed(f"ClientError: Data download failed: Access denied when reading {uri}")
        mode = self.request["AlgorithmSpecification"]["TrainingInputMode"]
        try:
            return [download(self._s3, each, mode, folder / each["ChannelName"]) for each in wanted]
        except ClientError as error:
            raise Failed(f"ClientError: Data download failed: {error}") from None

    def _start(self, network_name: str, endpoint: str) -> None:
        environment = self._environment(endpoint)
        for number, host in enumerate(self._hosts, 1):
            stream = f"{self.name}/{host.name}-{int(time.time())}{self._attempts}"
            self.logs.open(stream)
            cache = self.cache / host.name if self.cache else None
            if cache:
                cache.mkdir(parents=True, exist_ok=True)
            host.start(
                self._service.image,
                self.request,
                network=network_name,
                hostname=f"ip-10-{self._attempts}-{self._number}-{number}",
                environment=environment,
                cache=cache,
                line=lambda text, stream=stream: self.logs.line(stream, text),
            )

    def _environment(self, endpoint: str) -> dict[str, str]:
        """Return the variables of all hosts. Nobody serves the URI of credentials; boto3 takes the keys before it."""
        credentials = {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": f"/v2/credentials/{uuid.uuid4()}"}
        return {
            "TRAINING_JOB_NAME": self.name,
            "TRAINING_JOB_ARN": self.arn,
            "AWS_REGION": self._service.region,
            "AWS_EXECUTION_ENV": "AWS_ECS_EC2",
            "AWS_EC2_METADATA_DISABLED": "true",
            "DMLC_INTERFACE": "eth0",
            "NVIDIA_VISIBLE_DEVICES": "void",
            **self._service.access(endpoint),
            **credentials,
            **({"SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY": CACHE} if self.cache else {}),
            **self.request.get("Environment", {}),
        }

    def _watch(self, began: float, checkpoints: Checkpoints | None) -> str:
        """Wait until all hosts have ended, and make them end when it is time; return how it ended."""
        outcome, kill_at, upload_at = "", 0.0, 0.0
        while running := [host for host in self._hosts if host.exit_code is None]:
            if self.closing.is_set():
                raise Closed
            now = time.time()
            if not outcome:
                if outcome := self._time_to_end(began, checkpoints):
                    if outcome.startswith("Max"):
                        self._enter("Stopping")
                    kill_at = now + self._service.grace(outcome)
                    for host in running:
                        host.signal("TERM")
            elif now > kill_at:
                for host in running:
                    host.signal("KILL")
            if now > upload_at:
                upload_at = now + UPLOAD_SECONDS
                self._send(checkpoints)
            time.sleep(POLL_SECONDS)
        self._send(checkpoints)
        return outcome or ("Failed" if any(host.exit_code for host in self._hosts) else "Completed")

    def _time_to_end(self, began: float, checkpoints: Checkpoints | None) -> str:
        """Return how the attempt is to be ended now; "" if it goes on."""
        limit = self.request["StoppingCondition"]["MaxRuntimeInSeconds"]
        due = self._service.interrupt_spot and self.is_spot and not self._interrupted
        if self.stop_asked.is_set():
            return "Stopped"
        if any(host.exit_code for host in self._hosts):
            return "Failed"
        if due and checkpoints is not None and checkpoints.sent:
            self._interrupted = True
            return "Interrupted"
        if self._trained + time.time() - began > self._service.runtime(self.name, limit):
            return "MaxRuntimeExceeded"
        return ""

    def _send(self, checkpoints: Checkpoints | None) -> None:
        self.logs.flush()
        if checkpoints:
            checkpoints.upload()

    # --- its end ---

    def _why_failed(self) -> str:
        """Return the FailureReason by the host that failed first; all of it keeps to the API's limit."""
        first = min((host for host in self._hosts if host.exit_code), key=lambda host: host.ended)
        begin, end = "AlgorithmError: ", f", exit code: {first.exit_code}"
        return begin + first.failure[: MOST_REASON - len(begin) - len(end)] + end

    def _upload(self, outcome: str) -> None:
        place = f"{self.request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{self.name}/output"
        models, outputs = [host.model for host in self._hosts], [host.output / "data" for host in self._hosts]
        if outcome != "Failed" or any(any(model.iterdir()) for model in models):
            upload_archive(self._s3, models, f"{place}/model.tar.gz")
        if any(any(output.iterdir()) for output in outputs):
            upload_archive(self._s3, outputs, f"{place}/output.tar.gz")

    def _end(self, outcome: str, why: str = "") -> None:
        """Enter the last state."""
        status = "Stopped" if outcome in CUT_SHORT else outcome
        with self._service.lock:
            self.failure_reason = why[:MOST_REASON]
            if self.training_start:
                self.training_end = time.time()
            self._enter(outcome)
            self._service.release(self)  # before the status: whoever sees the end sees the warm pool
            self.status = status

    def _enter(self, secondary: str) -> None:
        with self._service.lock:
            if self.status == "Stopping" and secondary in ("Starting", "Downloading", "Training"):
                return
            self.modified = time.time()
            if self.secondary != secondary:
                self.transitions.append({"Status": secondary, "StartTime": self.modified})
                self.secondary = secondary
