"""Serve a model in a container and call it through a port that Docker publishes."""

import base64
import json
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from containers import MARKED, PATIENCE, sh
from waiting import eventually


@contextmanager
def serving(
    image: str, model: Path, port: int = 8080, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield (container's name, URL) of `docker run IMAGE serve`, once it answers; remove it when the block ends."""
    name = f"tfe{uuid.uuid4().hex[:8]}-serve"
    variables = [f"--env={key}={value}" for key, value in (environment or {}).items()]
    try:
        sh(
            "docker", "run", "-d", "--name", name, *MARKED, *variables,
            "-p", f"127.0.0.1::{port}", "-v", f"{model}:/opt/ml/model:ro", image, "serve",
        )  # fmt: skip
        url = "http://" + sh("docker", "port", name, f"{port}/tcp").stdout.strip()

        def is_up() -> bool:
            with suppress(OSError), urllib.request.urlopen(f"{url}/ping", timeout=PATIENCE) as response:
                return response.status == 200
            assert sh("docker", "inspect", "-f", "{{.State.Running}}", name).stdout == "true\n"
            return False

        eventually(is_up, PATIENCE)
        yield name, url
    except BaseException:
        print(sh("docker", "logs", name, check=False).stdout)
        raise
    finally:
        sh("docker", "rm", "-f", "-v", name, check=False)


def ask(url: str, body: bytes | None = None) -> Any:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        return json.load(response)


def predictions(image: str, model: Path, instances: list[Any]) -> list[Any]:
    """Return the predictions of an endpoint with this model for these instances. A path is sent as the file's bytes."""
    rows = [
        {"b64": base64.b64encode(each.read_bytes()).decode()} if isinstance(each, Path) else each for each in instances
    ]
    with serving(image, model) as (_, url):
        return ask(f"{url}/invocations", json.dumps({"instances": rows}).encode())["predictions"]
