"""Translate pip's configuration into uv's options: variables PIP_*, pip.conf, and options in requirements files.

If uv lacks an option, pip installs.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unusable import Unusable, missing, reason

RUN_PIP = Path(__file__).parents[1] / "run_pip.py"
IGNORED = {
    "disable-pip-version-check", "root-user-action", "no-color", "progress-bar", "no-input", "quiet", "verbose",
    "no-warn-script-location", "no-python-version-warning", "no-compile", "exists-action", "config-file", "isolated",
}  # fmt: skip
IN_FILES = {"--index-url", "-i", "--pypi-url", "--extra-index-url", "--find-links", "-f", "--no-index", "--no-binary",
            "--only-binary"}  # fmt: skip
OF_INDEX = {"index-url", "extra-index-url", "no-index", "trusted-host", "cert", "proxy", "keyring-provider"}
FALSE = ("0", "false", "no", "off", "n", "f", "")
# So that a host without a network learns that within ten seconds.
PATIENCE = {"UV_HTTP_RETRIES": "1", "UV_HTTP_CONNECT_TIMEOUT": "3"}
ARN = re.compile(r"arn:[^:]+:codeartifact:(?P<region>[^:]+):(?P<owner>[^:]+):repository/(?P<domain>[^/]+)/(?P<name>.+)")
PERMISSIONS = (
    "wanted codeartifact:GetAuthorizationToken, codeartifact:GetRepositoryEndpoint, codeartifact:ReadFromRepository "
    "and sts:GetServiceBearerToken for the job's execution role, and a network that leads to that service"
)


@dataclass
class Uv:
    """Hold how uv is to be called."""

    arguments: list[str]
    lines: list[str]  # of a requirements file; they may hold passwords, which a command line would show
    environment: dict[str, str]


def configured(environment: Mapping[str, str]) -> dict[str, str]:
    """Return pip's options outside of requirements files: option -> value, without `--`."""
    home = Path(environment.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser())
    shared = [Path(each, "pip") for each in environment.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":") if each]
    folders = [*shared, Path("/etc"), home / "pip", Path("~/.pip").expanduser(), Path(sys.prefix)]
    given = environment.get("PIP_CONFIG_FILE", "")
    there = [each for each in folders if (each / "pip.conf").is_file()] if given != os.devnull else []
    found: dict[str, str] = {}
    if there or Path(given).is_file():  # pip knows best how to merge them; it takes half a second
        listed = subprocess.run(
            [sys.executable, str(RUN_PIP), "config", "list"], env=dict(environment), capture_output=True, text=True
        )
        lines = [line.partition("=") for line in listed.stdout.splitlines()]
        for section in ("global.", "install."):
            found |= {key.removeprefix(section): _literal(text) for key, _, text in lines if key.startswith(section)}
    for key, value in environment.items():
        if key.startswith("PIP_") and value:
            found[key.removeprefix("PIP_").lower().replace("_", "-")] = value
    return found


def variable_of(option: str) -> str:
    """Return the environment variable for an option of pip: PIP_NO_INDEX for `no-index`."""
    return f"PIP_{option.upper().replace('-', '_')}"


def _literal(text: str) -> str:
    try:
        return str(ast.literal_eval(text))
    except (SyntaxError, ValueError):
        return text


def for_uv(options: Mapping[str, str], in_files: Sequence[Sequence[str]], folder: Path | str = "") -> Uv | str:
    """Return pip's options as uv's; or the name of one that uv lacks. Relative paths are read from `folder`."""
    uv = Uv([], [], {})
    trusted = [words[1] for words in in_files if words[0] == "--trusted-host" and len(words) == 2]
    trusted += options.get("trusted-host", "").split()
    if trusted:
        uv.environment["UV_INSECURE_HOST"] = " ".join(trusted)
    indexes = [words for words in in_files if words[0] in ("--index-url", "-i", "--pypi-url")]
    if len(indexes) > 1:
        return "--index-url twice in requirements"
    for words in in_files:
        match words:
            case ["--pre"]:
                uv.arguments.append("--prerelease=allow")
            case ["--trusted-host", _]:
                pass
            case [name, *_] if name not in IN_FILES:
                return f"{name} in requirements"
    for name, value in options.items():
        values = value.split()
        off = value.lower() in FALSE
        match name:
            case "index-url" if not indexes:
                uv.lines.append(f"--index-url {value}")
            case "extra-index-url":
                uv.lines += [f"--extra-index-url {each}" for each in values]
            case "find-links":
                places = [each if "://" in each else Path(folder, each).absolute() for each in values]
                uv.lines += [f"--find-links {each}" for each in places]
            case "no-index":
                uv.lines += [] if off else ["--no-index"]
            case "no-binary" | "only-binary":
                uv.lines += [f"--{name} {each}" for each in value.replace(",", " ").split()]
            case "constraint":
                uv.arguments += [word for each in values for word in ("--constraints", each)]
            case "pre":
                uv.arguments += [] if off else ["--prerelease=allow"]
            case "no-build-isolation":  # for pip, "false" turns isolation off, and "true" leaves it on
                uv.arguments += ["--no-build-isolation"] if off else []
            case "no-deps" | "break-system-packages":
                uv.arguments += [] if off else [f"--{name}"]
            case "cert":
                uv.environment["SSL_CERT_FILE"] = value
            case "proxy":
                proxy = value if "://" in value else f"http://{value}"
                uv.environment |= {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}
            case "timeout" | "default-timeout":
                uv.environment["UV_HTTP_TIMEOUT"] = value.partition(".")[0] or "1"
            case "retries":
                uv.environment["UV_HTTP_RETRIES"] = value
            case "cache-dir":
                uv.environment["UV_CACHE_DIR"] = str(Path(value, "uv"))
            case "no-cache-dir":
                uv.environment["UV_NO_CACHE"] = "1"
            case "keyring-provider" if value in ("disabled", "subprocess"):
                uv.environment["UV_KEYRING_PROVIDER"] = value
            case "index-url" | "trusted-host":
                pass
            case _ if name not in IGNORED:
                return variable_of(name)
    return uv


def index_of(arn: str) -> str:
    """Return the repository's URL for pip, with a token, as sagemaker-training does. Raise Unusable if that fails."""
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
        raise Unusable(f"CA_REPOSITORY_ARN is set, and there is no index: {reason(error)}; {PERMISSIONS}") from None
    scheme, _, rest = endpoint["repositoryEndpoint"].rstrip("/").partition("://")
    return f"{scheme}://aws:{token}@{rest}/simple/"
