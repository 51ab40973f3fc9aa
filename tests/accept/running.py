"""Run the cases' jobs: submit as many at once as the account allows, poll them, stop them, collect their results."""

import re
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import epochs

from accept.account import Account, Refused
from accept.cases import OWN, RECORDS, SHARED, Case
from accept.judging import Ran, outcome
from accept.requests import Where, request
from accept.sdk import Submission

ENDED = ("Completed", "Failed", "Stopped")
QUIET_LOOKS, SETTLE_LOOKS = 3, 9  # looks without new lines; at most so many, as CloudWatch shows lines late
HOLD_LOOKS = 6  # before a job that exceeded a quota is submitted again
QUOTA_S = 300.0  # how long machines of jobs that have ended may still count against a quota
POOL_S = 60.0  # until AWS has said whether it keeps the machines of a job
FOUND_S = 60.0  # until ListTrainingJobs knows a job
CLOCKS = timedelta(minutes=10)  # between this machine's clock and AWS's
BROKEN = "no-such-package-of-accept==1.0\n"
print_status = partial(print, flush=True)  # also where the output is a file
NO_POOL = (
    "AWS kept no machines: ask in Service Quotas for 2 of '{} for training warm pool usage', which is 0 by default"
)


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
    """The state of a case's job during the run. Times are of the monotonic clock; 0 means not yet."""

    submission: Submission | None = None  # of an SDK
    begun: float = 0.0
    created: bool = False
    ended: float = 0.0
    stopped: bool = False
    done: bool = False
    hold_until: float = 0.0
    refused_since: float = 0.0  # by a quota
    same_log: int = 0  # looks since the last new line


@dataclass
class Run:
    """The jobs of all cases. `at_once`: instances. `sdks`: a Python for each SDK."""

    account: Account
    where: Where
    cases: Sequence[Case]
    sdks: Mapping[str, str]
    at_once: int
    look_every_s: float = 10.0
    jobs: list[Job] = field(default_factory=list)
    not_stopped: list[str] = field(default_factory=list)  # names of jobs
    limits: dict[tuple[str, bool], int] = field(default_factory=dict)  # instances at once, by type and spot

    def all(self) -> None:
        """Run all jobs. On KeyboardInterrupt, stop them and raise it again."""
        self.jobs = [Job(case, self.where.job(case)) for case in self.cases]
        self.begun = datetime.now(timezone.utc) - CLOCKS
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

    # ---- the life of a job

    def _advance(self, job: Job) -> None:
        if job.done:
            return
        if job.submission:
            self._find_job_of_sdk(job)
        elif job.begun:
            self._look(job)
        elif self._may_start(job):
            self._start(job)

    def _may_start(self, job: Job) -> bool:
        first = next((each for each in self.jobs if each.case.name == job.case.after), None)
        if first and not self._may_follow(job, first):
            return False
        taken, of_kind = self._taken(), self._taken(job)
        if taken + job.case.hosts > self.at_once or of_kind + job.case.hosts > self.limits.get(self._kind(job), 10**6):
            return False
        return time.monotonic() >= job.hold_until

    def _may_follow(self, job: Job, first: Job) -> bool:
        """Return whether `job` may start after `first`, which it follows.

        `first` must have ended, and its warm pool must be available if it keeps one. Finish `job` if it can never
        start.
        """
        if not first.done:
            return False
        if first.not_run:
            self._finish(job, f"it needs {first.case.name}, which was not run")
            return False
        if not first.case.keep_alive:
            return True
        pool = self._pool(first)
        if pool in ("Terminated", "Reused") or (not pool and time.monotonic() - first.ended > POOL_S):
            job.excused = True
            self._finish(job, NO_POOL.format(self.where.type_of(job.case)))
        return pool == "Available"

    def _kind(self, job: Job) -> tuple[str, bool]:
        """Return the key by which AWS counts instances for a quota."""
        return self.where.type_of(job.case), job.case.spot

    def _taken(self, like: Job | None = None) -> int:
        """Return how many instances run, of all kinds or of that of the given job."""
        running = [job for job in self.jobs if job.begun and not job.done and not job.ended]
        return sum(job.case.hosts for job in running if not like or self._kind(job) == self._kind(like))

    def _start(self, job: Job) -> None:
        job.begun = time.monotonic()
        if job.case.sdk:
            job.submission = Submission(job.case, self.where, self.sdks[job.case.sdk], self.account.region)
            return
        job.created = True  # before the call, which an interruption may cut short
        try:
            self.account.call("sagemaker", "create_training_job", **request(job.case, self.where))
        except Refused as refused:
            if refused.code != "ResourceInUse":  # botocore sent the request twice, and the first has arrived
                job.created = False
                if refused.code == "ResourceLimitExceeded" and self._wait_for_quota(job, refused):
                    return
                raise
        print_status(f"{job.case.name}: submitted as {job.job}")

    def _wait_for_quota(self, job: Job, refused: Refused) -> bool:
        """Return whether the quota may have room for the job later."""
        limit = re.search(r" is (\d+) Instance", str(refused))
        if limit and int(limit[1]) < job.case.hosts:
            return False
        job.begun = 0.0
        now = time.monotonic()
        taken = self._taken(job)
        if taken and taken != self.limits.get(self._kind(job)):
            self.limits[self._kind(job)] = taken
            print_status(f"{job.case.name}: AWS reports a quota; at most {taken} such instances run at once")
        job.refused_since = job.refused_since if job.refused_since and not taken else now
        job.hold_until = now + HOLD_LOOKS * self.look_every_s
        return now - job.refused_since < QUOTA_S

    def _find_job_of_sdk(self, job: Job) -> None:
        """Find the job that an SDK has submitted, under a name of its own."""
        assert job.submission
        if not job.submission.has_ended():
            return
        wanted = {"CreationTimeAfter": self.begun, "SortBy": "CreationTime", "SortOrder": "Descending"}
        for each in self.account.pages("sagemaker", "list_training_jobs", "TrainingJobSummaries", **wanted):
            name = each["TrainingJobName"]
            found = self.account.call("sagemaker", "describe_training_job", TrainingJobName=name)
            if found.get("Environment", {}).get("ACCEPT_RUN") == self.where.job(job.case):
                job.job, job.created, job.submission = name, True, None
                print_status(f"{job.case.name}: SDK {job.case.sdk} submitted it as {name}")
                return
        if time.monotonic() - job.submission.ended > FOUND_S:
            raise Refused(f"SDK {job.case.sdk} ended with 0, but ListTrainingJobs has no job of it")

    def _look(self, job: Job) -> None:
        before = job.description.get("SecondaryStatus")
        job.description = self.account.call("sagemaker", "describe_training_job", TrainingJobName=job.job)
        now = job.description.get("SecondaryStatus")
        if now != before:
            print_status(f"{job.case.name}: {now}")
        if job.status in ENDED:
            self._gather(job)
        elif job.case.stop_at and not job.stopped and now == "Training":
            self._read_log(job)
            if job.has(job.case.stop_at):
                self._stop(job)

    def _read_log(self, job: Job) -> None:
        before, job.log = len(job.log), self.account.log(job.job, self.begun)
        job.same_log = 0 if len(job.log) != before else job.same_log + 1

    def _gather(self, job: Job) -> None:
        """Read log and archives of an ended job until they are complete and as expected, or until a time limit."""
        job.ended = job.ended or time.monotonic()
        self._read_log(job)
        place = urlsplit(self.where.prefix)
        for archive in ("model", "output"):
            key = f"{place.path.lstrip('/')}/output/{job.job}/output/{archive}.tar.gz"
            if getattr(job.case.expected, archive):
                job.names[archive] = self.account.names_in(self.where.bucket, key)
        settled = job.same_log >= QUIET_LOOKS and outcome(job) != "FAILED"
        if settled or time.monotonic() - job.ended > SETTLE_LOOKS * self.look_every_s:
            self._finish(job)

    def _finish(self, job: Job, not_run: str = "") -> None:
        job.done, job.not_run = True, not_run
        if not_run:
            print_status(f"{job.case.name}: not run: {not_run}")

    # ---- ends

    def _stop(self, job: Job) -> None:
        job.stopped = True
        try:
            self.account.call("sagemaker", "stop_training_job", TrainingJobName=job.job)
            print_status(f"{job.case.name}: asked SageMaker to stop it")
        except Refused as refused:
            if "not found" in str(refused):  # the interruption came before the request
                return
            self.not_stopped.append(job.job)
            print_status(f"{job.case.name}: stop {job.job} in the console: {refused}")

    def _stop_all(self) -> None:
        """Stop all running jobs and release warm pools, even on a second Ctrl-C."""
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            for job in self.jobs:
                try:
                    if job.submission:
                        job.submission.wait()
                        self._find_job_of_sdk(job)
                    if job.created and not job.done and not job.ended:
                        self._stop(job)
                except Refused as refused:
                    print_status(f"{job.case.name}: {refused}")
            for job in self.jobs:
                if job.case.keep_alive and job.created:
                    self._give_back(job)
        finally:
            signal.signal(signal.SIGINT, handler)

    def _pool(self, job: Job) -> str:
        found = self.account.call("sagemaker", "describe_training_job", TrainingJobName=job.job)
        return str(found.get("WarmPoolStatus", {}).get("Status", ""))

    def _give_back(self, job: Job) -> None:
        """End the warm pool of a job, which costs as much as the job. The pool begins at the end of the job."""
        try:
            until = time.monotonic() + QUOTA_S
            while (pool := self._pool(job)) == "InUse" and time.monotonic() < until:
                time.sleep(self.look_every_s)
            if pool == "Available":
                config = {"KeepAlivePeriodInSeconds": 0}
                self.account.call("sagemaker", "update_training_job", TrainingJobName=job.job, ResourceConfig=config)
        except Refused as refused:
            print_status(f"{job.case.name}: its machines cost until {job.case.keep_alive} s have passed: {refused}")


def clean(account: Account, where: Where) -> int:
    """Delete what the run and its jobs have written to S3; return the number of objects."""
    return account.delete(where.bucket, urlsplit(where.prefix).path.lstrip("/") + "/")
