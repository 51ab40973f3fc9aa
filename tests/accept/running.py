"""Run the cases' jobs: submit as many at once as the account allows, look at them, stop them, gather what they left."""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import epochs

from accept.account import Account, Refused, advice
from accept.cases import OWN, RECORDS, SHARED, Case
from accept.judging import Ran, complaints
from accept.requests import Where, request, submit_command

SUBMIT = str(Path(__file__).resolve().parents[2] / "examples" / "submit.py")
ENDED = ("Completed", "Failed", "Stopped")
SETTLE_S = 90.0  # CloudWatch shows the last lines of a job some time after its end
HOLD_S = 60.0  # before a job that exceeded a quota is submitted again
BROKEN = "no-such-package-of-accept==1.0\n"


def upload(account: Account, where: Where, cases: Sequence[Case]) -> None:
    """Upload the programs and the channels' records."""
    prefix = urlsplit(where.prefix).path.lstrip("/")
    with tempfile.TemporaryDirectory() as folder:
        for code in {case.code for case in cases}:
            programs = Path(folder, code)
            programs.mkdir()
            for source in (*OWN.glob("*.py"), *SHARED):
                (programs / source.name).write_bytes(source.read_bytes())
            if code != "code":
                (programs / "requirements.txt").write_text(BROKEN)
            account.upload(programs, where.bucket, f"{prefix}/{code}")
        for name in {each.name for case in cases for each in case.channels}:
            epochs.tfrecords(Path(folder, name), list(RECORDS), 0)
            account.upload(Path(folder, name), where.bucket, f"{prefix}/data/{name}")


@dataclass
class Job(Ran):
    """A case's job while the run goes on."""

    submitting: subprocess.Popen[str] | None = None  # an SDK
    printed: IO[str] | None = None  # by that SDK
    begun: float = 0.0
    created: bool = False
    ended: float = 0.0
    stopped: bool = False
    done: bool = False
    hold_until: float = 0.0


@dataclass
class Run:
    """The jobs of all cases. `at_once`: instances; the account's quota may lower it. `sdks`: a Python for each."""

    account: Account
    where: Where
    cases: Sequence[Case]
    sdks: Mapping[str, str]
    at_once: int
    look_every_s: float = 10.0
    settle_s: float = SETTLE_S
    say: Callable[[str], None] = print
    jobs: list[Job] = field(default_factory=list)

    def all(self) -> list[Job]:
        """Run all jobs. On KeyboardInterrupt, stop them and raise it again."""
        self.jobs = [Job(case, self.where.job(case)) for case in self.cases]
        self.begun = datetime.now(timezone.utc)
        try:
            while any(not job.done for job in self.jobs):
                for job in self.jobs:
                    try:
                        self._advance(job)
                    except Refused as refused:
                        if job.created and not job.ended:
                            self._stop(job)
                        self._finish(job, str(refused))
                time.sleep(self.look_every_s)
        finally:
            self._stop_all()
        return self.jobs

    # ---- the life of a job

    def _advance(self, job: Job) -> None:
        if job.done:
            return
        if job.submitting:
            self._look_at_sdk(job)
        elif not job.begun:
            if self._may_start(job):
                self._start(job)
        else:
            self._look(job)

    def _may_start(self, job: Job) -> bool:
        first = next((each for each in self.jobs if each.case.name == job.case.after), None)
        if first and not first.done:
            return False
        if first and first.not_run:
            self._finish(job, f"it needs {first.case.name}, which was not run")
            return False
        taken = sum(each.case.hosts for each in self._running())
        return taken + job.case.hosts <= self.at_once and time.monotonic() >= job.hold_until

    def _running(self) -> list[Job]:
        return [job for job in self.jobs if job.begun and not job.done and not job.ended]

    def _start(self, job: Job) -> None:
        job.begun = time.monotonic()
        if job.case.sdk:
            python = self.sdks[job.case.sdk]
            words = submit_command(job.case, self.where, python, self.account.region, SUBMIT)
            job.printed = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed when the job is forgotten)
            job.submitting = subprocess.Popen(words, stdout=job.printed, stderr=subprocess.STDOUT, env=dict(os.environ))
            return
        try:
            self.account.call("sagemaker", "create_training_job", **request(job.case, self.where))
        except Refused as refused:
            if refused.code == "ResourceLimitExceeded" and self._wait_for_quota(job):
                return
            if refused.code != "ResourceInUse":  # botocore has sent the request again, and the first one has arrived
                raise
        job.created = True
        self.say(f"{job.case.name}: submitted as {job.job}")

    def _wait_for_quota(self, job: Job) -> bool:
        """Return whether other jobs of ours will make room for this one."""
        job.begun = 0.0
        taken = sum(each.case.hosts for each in self._running())
        if not taken:
            return False
        if taken < self.at_once:
            self.at_once = taken
            self.say(f"{job.case.name}: the quota is reached; at most {taken} instances run at once from now on")
        job.hold_until = time.monotonic() + min(HOLD_S, 6 * self.look_every_s)
        return True

    def _look_at_sdk(self, job: Job) -> None:
        """Find the job that the SDK has submitted."""
        assert job.submitting and job.printed
        if job.submitting.poll() is None:
            return
        code, job.submitting = job.submitting.returncode, None
        job.printed.seek(0)
        lines = [line.strip() for line in job.printed if line.strip()]
        if code:
            last = lines[-1] if lines else "it printed nothing"
            raise Refused(f"SDK {job.case.sdk} ended with {code}: {last}" + f" -- {advice(last)}" * bool(advice(last)))
        mark, wanted = job.job, {"CreationTimeAfter": self.begun, "SortBy": "CreationTime", "SortOrder": "Descending"}
        for each in self.account.pages("sagemaker", "list_training_jobs", "TrainingJobSummaries", **wanted):
            name = each["TrainingJobName"]
            found = self.account.call("sagemaker", "describe_training_job", TrainingJobName=name)
            if found.get("Environment", {}).get("ACCEPT_RUN") == mark:
                job.job, job.created = name, True
                self.say(f"{job.case.name}: SDK {job.case.sdk} submitted it as {name}")
                return
        raise Refused(f"SDK {job.case.sdk} ended with 0, but ListTrainingJobs has no job of it")

    def _look(self, job: Job) -> None:
        before = job.description.get("SecondaryStatus")
        job.description = self.account.call("sagemaker", "describe_training_job", TrainingJobName=job.job)
        now = job.description.get("SecondaryStatus")
        if now != before:
            self.say(f"{job.case.name}: {now}")
        if job.status in ENDED:
            self._gather(job)
        elif job.case.stop_at and not job.stopped and now == "Training":
            job.log = self.account.log(job.job)
            if job.has(job.case.stop_at):
                self._stop(job)

    def _gather(self, job: Job) -> None:
        """Read log and archives of a job that has ended, until they are as expected, or for SETTLE_S."""
        job.ended = job.ended or time.monotonic()
        job.log = self.account.log(job.job)
        place = urlsplit(self.where.prefix)
        for archive in ("model", "output"):
            key = f"{place.path.lstrip('/')}/output/{job.job}/output/{archive}.tar.gz"
            if getattr(job.case.expected, archive):
                job.names[archive] = self.account.names_in(self.where.bucket, key)
        if not complaints(job) or time.monotonic() - job.ended > self.settle_s or job.case.optional:
            self._finish(job)

    def _finish(self, job: Job, not_run: str = "") -> None:
        job.done, job.not_run = True, not_run
        if not_run:
            self.say(f"{job.case.name}: not run: {not_run}")

    # ---- ends

    def _stop(self, job: Job) -> None:
        job.stopped = True
        try:
            self.account.call("sagemaker", "stop_training_job", TrainingJobName=job.job)
            self.say(f"{job.case.name}: told to stop")
        except Refused as refused:
            self.say(f"{job.case.name}: could not be stopped, look at {job.job} yourself: {refused}")

    def _stop_all(self) -> None:
        """Stop what still runs, and give back machines that are kept."""
        for job in self.jobs:
            try:
                if job.submitting:
                    job.submitting.wait(timeout=60)  # its job is known only then
                    self._look_at_sdk(job)
                if job.created and not job.done and not job.ended:
                    self._stop(job)
                elif job.case.keep_alive and job.created:
                    self._give_back(job)
            except (Refused, subprocess.TimeoutExpired) as error:
                self.say(f"{job.case.name}: look at {job.job} yourself: {error}")

    def _give_back(self, job: Job) -> None:
        found = self.account.call("sagemaker", "describe_training_job", TrainingJobName=job.job)
        if found.get("WarmPoolStatus", {}).get("Status") in ("Available", "InUse"):
            config = {"KeepAlivePeriodInSeconds": 0}
            self.account.call("sagemaker", "update_training_job", TrainingJobName=job.job, ResourceConfig=config)


def clean(account: Account, where: Where, jobs: Sequence[Job]) -> int:
    """Delete what the run and its jobs have written to S3; return the number of objects."""
    places = {where.prefix + "/"}
    for job in jobs:
        if job.case.sdk:  # SDKs upload to places of their own
            hyperparameters = job.description.get("HyperParameters", {})
            uris = [str(hyperparameters.get("sagemaker_submit_directory", "")).strip('"')]
            for channel in job.description.get("InputDataConfig", ()):
                uris.append(channel["DataSource"].get("S3DataSource", {}).get("S3Uri", ""))
            places |= {uri for uri in uris if re.match(r"s3://[^/]+/.+", uri)}
    return sum(account.delete(urlsplit(each).netloc, urlsplit(each).path.lstrip("/")) for each in sorted(places))
