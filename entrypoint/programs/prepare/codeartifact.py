"""Find the index of a repository of AWS CodeArtifact, with a token for it."""

import re

from unusable import Unusable, missing, reason

ARN = re.compile(r"arn:[^:]+:codeartifact:(?P<region>[^:]+):(?P<owner>[^:]+):repository/(?P<domain>[^/]+)/(?P<name>.+)")
WANTED = (
    "wanted codeartifact:GetAuthorizationToken, codeartifact:GetRepositoryEndpoint, codeartifact:ReadFromRepository "
    "and sts:GetServiceBearerToken for the job's execution role, and a network that leads to that service"
)


def index_of(arn: str) -> str:
    """Return the repository's URL for pip, with a token. sagemaker-training takes the same. Raise Unusable."""
    try:
        import boto3
    except ImportError as error:
        raise missing(error.name, "CA_REPOSITORY_ARN") from None
    found = ARN.fullmatch(arn)
    if not found:
        raise Unusable(
            f"CA_REPOSITORY_ARN is {arn!r}; wanted arn:aws:codeartifact:REGION:ACCOUNT:repository/DOMAIN/REPOSITORY"
        )
    domain = {"domain": found["domain"], "domainOwner": found["owner"]}
    try:
        client = boto3.client("codeartifact", region_name=found["region"])
        token = client.get_authorization_token(**domain)["authorizationToken"]
        endpoint = client.get_repository_endpoint(**domain, repository=found["name"], format="pypi")
    except Exception as error:  # botocore has many kinds
        raise Unusable(f"CA_REPOSITORY_ARN is set, and there is no index: {reason(error)}; {WANTED}") from None
    scheme, _, rest = endpoint["repositoryEndpoint"].rstrip("/").partition("://")
    return f"{scheme}://aws:{token}@{rest}/simple/"
