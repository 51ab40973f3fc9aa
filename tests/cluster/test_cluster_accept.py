"""Test the acceptance run against a stand-in for SageMaker, whose jobs are containers of the image."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from stand_in_sagemaker import Faults, StandIn
from variants import variants
from waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
ROLE = "arn:aws:iam::123456789012:role/Training"
PATIENCE = 1200.0  # seconds
SOME = ["single", "raises", "stopped"]


@contextmanager
def accepting(service, folder, *words):
    """Start the acceptance run; yield its process, whose output is in the file `printed` of the folder."""
    where = {"CreateBucketConfiguration": {"LocationConstraint": service.region}}
    service.client("s3").create_bucket(Bucket="my-bucket", **where)
    command = [sys.executable, "tests/accept", "--image", service.image_uri, "--role", ROLE, "--bucket", "my-bucket"]
    command += ["--yes", "--look-every", "0.5", "--output", str(folder), *words]
    environment = {**os.environ, **service.environment()}
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        environment.pop(name, None)
    with (
        open(folder / "printed", "w") as printed,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=printed, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def accept(service, folder, *words):
    """Return the exit code of an acceptance run, its page as JSON, and its output."""
    with accepting(service, folder, *words) as process:
        code = process.wait(timeout=PATIENCE)
    printed, page = (folder / "printed").read_text(), folder / "accept.json"
    return code, json.loads(page.read_text()) if page.exists() else {}, printed


def outcomes(page):
    return {row["case"]: row["outcome"] for row in page["cases"]}


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("cases", variants({"some": SOME, "all": []}, "some"))
def test_every_case_of_the_acceptance_run_ends_as_expected(image, tmp_path, cases):
    """AWS throttles the run, and the quota of instances is smaller than the run needs."""
    faults = Faults(throttled={"DescribeTrainingJob": 2})
    runtimes = {"*-max-runtime": 20}
    with StandIn(image, quota=6, faults=faults, interrupt_spot=True, runtimes=runtimes) as service:
        code, page, printed = accept(service, tmp_path, *cases)
        left = service.client("s3").list_objects_v2(Bucket="my-bucket").get("Contents", [])
    wrong = {name: found for name, found in outcomes(page).items() if found != "as expected"}
    wrong.pop("jax", None)  # the image of 2.14 has none
    assert code == 0 and not wrong, printed
    assert left == []
    shown = (tmp_path / "accept.html").read_text()
    for name in ("123456789012", "my-bucket", "role/Training"):
        assert name not in shown and name not in json.dumps(page)
    beliefs = {each["text"]: each for each in page["beliefs"]}
    assert beliefs["current_host is one of hosts"]["so"]
    assert beliefs["/dev/shm has at least 64 MiB"]["found"] == '"64 MiB"'


def test_refusal_by_aws_ends_only_the_refused_case(image, tmp_path):
    faults = Faults(without_capacity=["*-raises"], unassumable=["*-killed"], unreadable=["*-mwms"])
    with StandIn(image, faults=faults) as service:
        code, page, printed = accept(service, tmp_path, "stopped", "raises", "killed", "mwms")
    assert code == 1
    assert outcomes(page)["stopped"] == "as expected", printed
    assert "Could not assume role" in outcomes(page)["killed"]
    assert "may assume" in printed and "try later" in printed and "lacks a right" in printed
    assert outcomes(page)["raises"] == outcomes(page)["mwms"] == "FAILED"


@pytest.mark.more
@pytest.mark.parametrize(
    ("case", "options", "code", "words"),
    [
        ("single", {"faults": Faults(denied={"CreateTrainingJob"})}, 1, "not authorized .*--policy"),
        ("single", {"quota": 1}, 1, "Service Quotas"),
        ("warm-again", {"warm_pools": False}, 0, "warm pool usage"),
    ],
    ids=["no right", "quota too small for any job", "no warm pools"],
)
def test_page_names_why_a_case_did_not_run(image, tmp_path, case, options, code, words):
    with StandIn(image, **options) as service:
        found, page, printed = accept(service, tmp_path, case)
    assert found == code, printed
    assert re.search(words, outcomes(page)[case])


@pytest.mark.more
@pytest.mark.parametrize("sdk", ["v2", "v3"])
def test_sdk_submits_a_case(image, tmp_path, sdk):
    python = ROOT / f".venv-sdk-{sdk}" / "bin" / "python"
    if not python.exists():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"no {python}; tests/run.sh makes it")
    with StandIn(image) as service:
        code, page, printed = accept(service, tmp_path, "--sdk-python", str(python), f"sdk-{sdk}")
        left = service.client("s3").list_objects_v2(Bucket="my-bucket").get("Contents", [])
    assert code == 0 and outcomes(page) == {f"sdk-{sdk}": "as expected"}, printed
    assert left == []


def test_interruption_stops_every_job(image, tmp_path):
    with StandIn(image, stop_grace=2) as service:
        with accepting(service, tmp_path, "grace", "stopped") as process:
            jobs = service.client("sagemaker").list_training_jobs
            eventually(lambda: len(jobs(StatusEquals="InProgress")["TrainingJobSummaries"]) == 2, within=PATIENCE)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=PATIENCE) == 130, (tmp_path / "printed").read_text()
        eventually(lambda: len(jobs(StatusEquals="Stopped")["TrainingJobSummaries"]) == 2, within=PATIENCE)
    assert "interrupted, SageMaker was asked to stop all jobs" in (tmp_path / "printed").read_text()
