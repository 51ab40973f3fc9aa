"""Write the IAM policies of the acceptance run: of the jobs' role, and of the person who starts it."""

from typing import Any

LOGS = "arn:aws:logs:*:*:log-group:/aws/sagemaker/TrainingJobs*"


def statement(sid: str, actions: list[str], *resources: str, **conditions: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": list(resources)}
    return made | ({"Condition": conditions} if conditions else {})


def policy(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def of_the_role(bucket: str) -> dict[str, Any]:
    """Return what the jobs' role must be allowed."""
    objects = f"arn:aws:s3:::{bucket}/accept/*"
    return policy(
        statement("Bucket", ["s3:ListBucket"], f"arn:aws:s3:::{bucket}"),
        statement("Objects", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], objects),
        statement(
            "Image",
            ["ecr:BatchCheckLayerAvailability", "ecr:GetDownloadUrlForLayer", "ecr:BatchGetImage"],
            "arn:aws:ecr:*:*:repository/*",
        ),
        statement("Registry", ["ecr:GetAuthorizationToken", "cloudwatch:PutMetricData"], "*"),
        statement(
            "Log", ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"], LOGS
        ),
    )


def of_the_person(bucket: str, role: str, sdks: bool) -> dict[str, Any]:
    """Return what the credentials of whoever starts the run must be allowed. `sdks`: SDKs choose their jobs' names."""
    jobs = f"arn:aws:sagemaker:*:*:training-job/{'' if sdks else 'accept-'}*"
    service = {"iam:PassedToService": "sagemaker.amazonaws.com"}
    operations = ("CreateTrainingJob", "DescribeTrainingJob", "StopTrainingJob", "UpdateTrainingJob", "AddTags")
    return policy(
        statement("Jobs", [f"sagemaker:{each}" for each in operations], jobs),
        statement("List", ["sagemaker:ListTrainingJobs", "sts:GetCallerIdentity"], "*"),
        statement("Role", ["iam:PassRole"], role, StringEquals=service),
        statement("Bucket", ["s3:ListBucket", "s3:GetBucketLocation"], f"arn:aws:s3:::{bucket}"),
        statement("Objects", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], f"arn:aws:s3:::{bucket}/accept/*"),
        statement("Log", ["logs:FilterLogEvents"], LOGS),
    )
