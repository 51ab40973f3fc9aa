"""Make the network of one job, on which its hosts reach one another and moto's S3, and nobody else."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from containers import LABEL, PATIENCE, SESSION, sh
from moto_server import moto


@contextmanager
def network(isolated: bool) -> Iterator[tuple[str, str]]:
    """Yield (name, URL of moto there) of a new network; "" as the URL for a job with network isolation."""
    name = f"tfe{uuid.uuid4().hex[:8]}"
    sh("docker", "network", "create", "--internal", "--label", f"{LABEL}={SESSION}", name, within=PATIENCE)
    try:
        if isolated:
            yield name, ""
            return
        gateway = json.loads(sh("docker", "network", "inspect", name).stdout)[0]["IPAM"]["Config"][0]["Gateway"]
        with moto(gateway) as url:
            yield name, url
    finally:
        sh("docker", "network", "rm", name, within=PATIENCE)
