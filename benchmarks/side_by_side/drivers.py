"""Find what SageMaker's Python SDK 3 starts in a container, from a request that its ModelTrainer really makes.

The SDK runs in .venv-sdk-v3, in one process for all cases, where tests/sdk/drivers/submit_calls.py answers for AWS.
"""

import functools
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.side_by_side.cases import CASES, DRIVERS, INSTALL, Case

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-sdk-v3/bin/python"
ALONE = {  # the SDK's environment: nothing of the user's, and no network
    "AWS_ACCESS_KEY_ID": "invented", "AWS_SECRET_ACCESS_KEY": "invented", "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_EC2_METADATA_DISABLED": "true", "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9"),
}  # fmt: skip
IMPORTS = """
from sagemaker.core.training.configs import Compute, SourceCode
from sagemaker.train import ModelTrainer
from sagemaker.train.distributed import MPI
"""


@dataclass(frozen=True)
class Asked:
    """A container's command, its hyperparameters and the files of its channel sm_drivers."""

    command: list[str]
    hyperparameters: dict[str, str]
    files: dict[str, str]

    def write(self, channel: Path) -> None:
        for name, text in self.files.items():
            (channel / name).parent.mkdir(parents=True, exist_ok=True)
            (channel / name).write_text(text)


@functools.cache
def asked() -> dict[str, Asked]:
    """Return {case: Asked} for all cases that the drivers can run."""
    if not PYTHON.exists():
        raise RuntimeError(f"no {PYTHON.relative_to(ROOT)}: tests/sdk/make_environments.sh makes it")
    cases = [case for case in CASES if not case.cannot(DRIVERS)]
    with tempfile.TemporaryDirectory(prefix="side-sdk-") as folder:
        (Path(folder) / "src").mkdir()
        for file in ("requirements.txt", *(case.program for case in cases)):
            (Path(folder) / "src" / file).touch()
        said = subprocess.run(
            [PYTHON, ROOT / "tests/sdk/drivers/submit_calls.py"],
            input=json.dumps({"commands": [], "names": {}, "blocks": [IMPORTS, *map(call, cases)]}),
            stdout=subprocess.PIPE, text=True, timeout=300, check=True, cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": folder, **ALONE},
        ).stdout  # fmt: skip
    _, *requests = json.loads(said)["blocks"]
    return {case.name: _of(request) for case, (request,) in zip(cases, requests, strict=True)}


def call(case: Case) -> str:
    """Return the user's code. The SDK's -np counts one host's ranks and fills the first host: so all, dealt out."""
    how = ""
    if case.mode == "mpi":
        dealt = ["--map-by", f"ppr:{case.ranks}:node"]
        how = f", distributed=MPI(process_count_per_node={case.processes}, mpi_additional_options={dealt})"
    needs = ", requirements='requirements.txt'" if case.event == INSTALL else ""
    return (
        "ModelTrainer(training_image='image', role='arn:aws:iam::123456789012:role/Training', "
        f"compute=Compute(instance_type='ml.c5.xlarge', instance_count={case.hosts}), "
        f"hyperparameters={dict(case.arguments)}, "
        f"source_code=SourceCode(source_dir='src', entry_script={case.program!r}{needs}){how}).train()"
    )


def _of(request: dict[str, Any]) -> Asked:
    starts = request["AlgorithmSpecification"]
    return Asked(
        [*starts["ContainerEntrypoint"], *starts["ContainerArguments"]],
        request.get("HyperParameters", {}),
        request["SmDrivers"],
    )
