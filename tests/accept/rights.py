"""Write the IAM policies of the acceptance run, for the jobs' role and for the person who starts it."""

from typing import Any

from accept.requests import Where

Statement = dict[str, Any]
NETWORK = ("NetworkInterfaces", "Vpcs", "DhcpOptions", "Subnets", "SecurityGroups")
INTERFACE = ("NetworkInterface", "NetworkInterfacePermission")


def statement(sid: str, actions: list[str], *resources: str, **condition: Any) -> Statement:
    """Return one statement that allows actions."""
    made: Statement = {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": list(resources)}
    return made | ({"Condition": condition} if condition else {})


def policy(*statements: Statement) -> Statement:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def of_the_role(where: Where) -> Statement:
    """Return the policy that the jobs' role needs."""
    arn = f"arn:{where.partition}"
    log = ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"]
    pull = ["ecr:BatchCheckLayerAvailability", "ecr:GetDownloadUrlForLayer", "ecr:BatchGetImage"]
    statements = [
        statement("Bucket", ["s3:ListBucket"], f"{arn}:s3:::{where.bucket}"),
        statement(
            "Objects", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], f"{arn}:s3:::{where.bucket}/accept/*"
        ),
        statement("Image", pull, f"{arn}:ecr:*:*:repository/*"),
        statement("Registry", ["ecr:GetAuthorizationToken", "cloudwatch:PutMetricData"], "*"),
        statement("Log", log, f"{arn}:logs:*:*:log-group:/aws/sagemaker/TrainingJobs*"),
    ]
    if where.subnets:
        make = [f"ec2:{verb}{each}" for verb in ("Create", "Delete") for each in INTERFACE]
        statements.append(statement("Look", [f"ec2:Describe{each}" for each in NETWORK], "*"))
        statements.append(statement("Interfaces", make, "*"))
    return policy(*statements)


def of_the_caller(where: Where, sdks: bool) -> Statement:
    """Return the policy that the person who starts the run needs. `sdks`: allow any job name, since SDKs choose it."""
    arn = f"arn:{where.partition}"
    operations = ("CreateTrainingJob", "DescribeTrainingJob", "StopTrainingJob", "UpdateTrainingJob", "AddTags")
    return policy(
        statement(
            "Jobs",
            [f"sagemaker:{each}" for each in operations],
            f"{arn}:sagemaker:*:*:training-job/{'' if sdks else 'accept-'}*",
        ),
        statement("List", ["sagemaker:ListTrainingJobs"], "*"),
        statement(
            "Role", ["iam:PassRole"], where.role, StringEquals={"iam:PassedToService": "sagemaker.amazonaws.com"}
        ),
        statement("Bucket", ["s3:ListBucket"], f"{arn}:s3:::{where.bucket}"),
        statement(
            "Objects", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], f"{arn}:s3:::{where.bucket}/accept/*"
        ),
        statement("Log", ["logs:FilterLogEvents"], f"{arn}:logs:*:*:log-group:/aws/sagemaker/TrainingJobs*"),
    )
