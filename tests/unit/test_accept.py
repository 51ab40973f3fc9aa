"""Test the acceptance run: its requests, its judgement of jobs, its advice, and pages without account numbers."""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from accept import pages, rights
from accept.__main__ import bound, main
from accept.account import explained
from accept.beliefs import compare
from accept.cases import CASES, chosen
from accept.judging import Ran, complaints, figures, outcome
from accept.requests import Where, request

ROOT = Path(__file__).resolve().parents[2]
botocore = pytest.importorskip("botocore")

ROLE = "arn:aws:iam::123456789012:role/Training"
IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/my-training:1"
WHERE = Where("accept-1128-120000", IMAGE, ROLE, "my-bucket", {"": "ml.m5.large", "gpu": "ml.g5.xlarge"})
BEGUN = datetime(2026, 11, 28, tzinfo=timezone.utc)
BY_NAME = {case.name: case for case in CASES}


def ran(name, *lines, **description):
    """Return the result of a case's job with these log lines: (host, seconds after the job's start, text)."""
    log = [(host, BEGUN.timestamp() + seconds, text) for host, seconds, text in lines]
    return Ran(BY_NAME[name], WHERE.job(BY_NAME[name]), description=description, log=log)


def test_boto3_accepts_each_request():
    from botocore.session import get_session
    from botocore.validate import ParamValidator

    shape = get_session().get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
    for case in CASES:
        made = request(case, Where(**{**vars(WHERE), "types": {"": "a", "gpu": "b", "efa": "c"}}))
        report = ParamValidator().validate(made, shape)
        assert not report.has_errors(), f"{case.name}: {report.generate_report()}"
        assert len(made["TrainingJobName"]) <= 63


def numbers(channel, number, records):
    """Return a line in which a job prints the numbers of the records that it has read."""
    told = {"channel": channel, "pass": number, "records": records}
    return ("algo-1", 1, f"[algo-1 rank 0] accept-numbers {json.dumps(told)}")


BOTH = [("algo-1", 1, "[algo-1] raises"), ("algo-2", 2, "[algo-2] raises")]
LATE = [*BOTH, ("algo-1", 95, "still here")]
WHY = "AlgorithmError: rank 1 on algo-2 failed: ValueError: row 17 of algo-2 has no label, exit code: 1"
FAILED = {"TrainingJobStatus": "Failed", "FailureReason": WHY}
NO_REASON = {"TrainingJobStatus": "Failed", "FailureReason": "AlgorithmError: , exit code: 1"}
COMPLETED = {"TrainingJobStatus": "Completed"}
NO_SPOT = {"TrainingJobStatus": "Stopped", "SecondaryStatus": "MaxWaitTimeExceeded"}
LACKS = "AlgorithmError: ENTRYPOINT_MODE is jax, and jax is not installed in this image, exit code: 78"
NO_JAX = {"TrainingJobStatus": "Failed", "FailureReason": LACKS}
ALL = [numbers(name, number, list(range(47))) for name in ("whole", "fast", "piped") for number in (0, 1)]
TWICE = [ALL[0], numbers("whole", 1, [0, 0, *range(2, 47)]), *ALL[2:]]
HERE = ("algo-2", 1, "here")
JUDGED = [
    # case, its log, what AWS says of its job: outcome, how its complaints begin
    ("raises", BOTH, FAILED, "as expected", []),
    ("raises", BOTH, NO_REASON, "FAILED", ["FailureReason lacks"]),
    ("raises", BOTH, COMPLETED, "FAILED", ["found status Completed, wanted Failed", "FailureReason lacks"]),
    ("raises", LATE, FAILED, "FAILED", ["the hosts ended 93 s apart, wanted at most 30"]),
    ("raises", BOTH[:1], FAILED, "FAILED", ["CloudWatch has no line of algo-2"]),
    ("channels", [*ALL, HERE], COMPLETED, "as expected", []),
    ("channels", [*TWICE, HERE], COMPLETED, "FAILED", ["channel whole, pass 1: missing [1], too often [0]"]),
    ("spot", [], NO_SPOT, "not run: AWS had no spot machines in time", None),
    ("jax", [], NO_JAX, "not run: the image lacks what it needs", None),
    ("jax", [], FAILED, "FAILED", None),
]


@pytest.mark.parametrize(("name", "lines", "description", "wanted", "begin"), JUDGED)
def test_accept_job_passes_only_without_complaints(name, lines, description, wanted, begin):
    job = ran(name, *lines, **description)
    assert outcome(job) == wanted
    if begin is not None:
        assert all(found.startswith(each) for found, each in zip(complaints(job), begin, strict=True))


def facts(**values):
    """Return lines in which a job prints facts."""
    told = [{"name": name, "value": value} for name, value in values.items()]
    return [("algo-1", 1, f"accept-fact {json.dumps(each)}") for each in told]


def compared(**jobs):
    return {each.text: each for each in compare({name: ran(name, *lines) for name, lines in jobs.items()})}


def test_truncated_log_line_is_left_out():
    cut = ("algo-1", 1, 'accept-fact {"name": "user", "val')
    assert compared(single=[cut, *facts(user=[0, 0])])["processes run as root"].so


def test_assumptions_on_peers_and_signals_are_judged():
    alive = [("algo-1", second, f"accept-alive {second} s") for second in range(240)]
    left = [("algo-2", second, f"accept-alive {second} s") for second in range(11)]
    killed = [("algo-1", second, f"accept-since-sigterm {second}.0") for second in range(119)]
    found = compared(**{"peer-fails": [*alive, *left], "grace": killed})
    of_peer = found["when a host fails, the other is ended by SageMaker"]
    assert (of_peer.so, of_peer.found) == (False, "it lived 229 s more, without SIGTERM")
    assert found["SIGKILL comes 120 s after SIGTERM"].so
    assert found["when a host ends with 0, the other goes on"].so is None


def test_measured_facts_are_compared_with_assumptions_about_sagemaker():
    lines = facts(host="algo-1", hostname="algo-1", user=[0, 0], environment={"SM_HOSTS": "[]"})
    found = compared(single=lines)
    assert found["processes run as root"].so
    assert found["the hostname is not the host's name"].so is False
    assert found["SageMaker sets no SM_*"].found == '["SM_HOSTS"]'
    assert found["/dev/shm has at least 64 MiB"].so is None


def test_times_of_an_acceptance_job_are_measured():
    phases = [{"Status": "Training", "StartTime": BEGUN}]
    job = ran("single", ("algo-1", 3, "a"), ("algo-2", 9, "b"), SecondaryStatusTransitions=phases,
              TrainingEndTime=BEGUN + timedelta(seconds=40), BillableTimeInSeconds=80)  # fmt: skip
    assert figures(job) == {
        "Training to first line, s": 3.0,
        "last line to end, s": 31.0,
        "hosts' last lines apart, s": 6.0,
        "billed, s": 80.0,
    }


def test_published_pages_contain_no_account_number():
    names = [
        ROLE,
        "s3://my-bucket/accept",
        "ip-10-0-13-7.eu-west-1.compute.internal",
        "10.0.13.7",
        "sg-0123456789abcdef0",
    ]
    said = {"image": IMAGE, "facts": names, "role": "role/Training", "records": 47}
    hidden = json.dumps(pages.anonymous(said, WHERE))
    for name in ("123456789012", "role/Training", "my-bucket", "10-0-13-7", "10.0.13.7", "0123456789abcdef0"):
        assert name not in hidden
    assert "my-training:1" in hidden and '"records": 47' in hidden


REFUSALS = [
    ("AccessDeniedException", "User: x is not authorized to perform: sagemaker:CreateTrainingJob", "--policy"),
    ("ResourceLimitExceeded", "The account-level service limit 'ml.m5.large for training job usage'", "Service Quotas"),
    ("ValidationException", "Could not assume role arn:aws:iam::1:role/x.", "may assume"),
    ("ThrottlingException", "Rate exceeded", "--at-once"),
    ("NoSuchBucket", "The specified bucket does not exist", "--bucket"),
]


@pytest.mark.parametrize(("code", "message", "what_to_do"), REFUSALS)
def test_refusal_of_aws_is_one_line_with_a_remedy(code, message, what_to_do):
    error = botocore.exceptions.ClientError({"Error": {"Code": code, "Message": f"{message}\n"}}, "CreateTrainingJob")
    told = str(explained(error, "sagemaker create_training_job"))
    assert what_to_do in told and message in told and "\n" not in told


def test_cost_limit_equals_that_of_the_documents():
    cases, left_out = chosen([], [], [])
    words, dollars = bound(cases, WHERE, "us-east-1", {})
    assert (words, dollars) == ("at most 12.0 instance hours, $1.38", pytest.approx(1.38, abs=0.005))
    for page in ("README.md", "docs/accept.md"):
        assert "$1.38" in (ROOT / page).read_text()
    assert len(left_out) == 5
    words, dollars = bound(cases, WHERE, "eu-west-1", {})
    assert dollars is None and "wanted --price TYPE=USD for ml.m5.large in eu-west-1" in words
    assert bound(cases, WHERE, "eu-west-1", {"ml.m5.large": 0.0})[1] == 0


def test_dry_run_begins_with_cost_in_the_images_region(monkeypatch, capsys):
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    asks = ["--image", IMAGE, "--role", ROLE, "--dry-run"]
    assert main([*asks, "single", "raises"]) == 0
    first, *cases, last = capsys.readouterr().out.splitlines()
    assert first.startswith("2 jobs of two hosts each in eu-west-1: at most ")
    assert [case.split()[0] for case in cases] == ["single", "raises"] and "--requests prints" in last
    assert main([*asks, "--requests", "single"]) == 0
    assert len(json.loads(capsys.readouterr().out)["requests"]) == 1
    assert main([*asks, "--region", "us-east-1"]) == 2
    assert "the image is in eu-west-1, the jobs would be in us-east-1" in capsys.readouterr().err


def test_chosen_case_adds_its_prerequisite():
    assert [case.name for case in chosen(["spot-resumed"], [], [])[0]] == ["spot", "spot-resumed"]
    with pytest.raises(ValueError, match="found the case 'sopt'; wanted some of single"):
        chosen(["sopt"], [], [])


def test_cloudformation_role_allows_what_the_run_needs():
    yaml = pytest.importorskip("yaml")
    template = ROOT / "examples/cloudformation/accept.yaml"

    class Loader(yaml.SafeLoader):
        """A YAML loader that accepts CloudFormation's short forms."""

    Loader.add_multi_constructor("!", lambda loader, name, node: {name: node.value})
    stack = yaml.load(template.read_text(), Loader)
    (policy,) = stack["Resources"]["Role"]["Properties"]["Policies"]

    def actions(statements):
        return {
            each["Sid"]: [each["Action"]] if isinstance(each["Action"], str) else each["Action"] for each in statements
        }

    assert actions(policy["PolicyDocument"]["Statement"]) == actions(rights.of_the_role(WHERE)["Statement"])
    assert "--role ${Role.Arn} --bucket ${Bucket}" in stack["Outputs"]["Arguments"]["Value"]["Sub"]
