"""Provide images of the peers, and the commands that SageMaker or a user starts in their containers.

The toolkit's image is built on ours. SDK 3's drivers come from a request that its ModelTrainer really makes: the SDK
runs in .venv-sdk-v3, in one process for all cases, where tests/sdk/drivers/submit_calls.py answers for AWS. By hand, a
user starts mpirun or horovodrun over ssh, or the script on each host, in the toolkit's image, which has keys for ssh.
"""

import functools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.docker import docker
from benchmarks.machine import ROOT
from benchmarks.side_by_side.cases import CASES, DRIVERS, GLOO, HOROVODRUN, INSTALL, MPIRUN, PLAIN, Case

# ---- images ---------------------------------------------------------------------------------------------------------

DOCKERFILE = Path(__file__).with_name("Dockerfile.toolkit")
TOOLKIT_IMAGE = "sagemaker-toolkit-for-comparison"
# As build.sh has them.
CA_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")
BUILD_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL")


def build_toolkit(ours: str) -> str:
    """Build the peer image and return its name. This takes seconds with cached layers, else less than a minute."""
    docker("image", "inspect", "-f", "{{.Id}}", ours)  # raises if it is missing
    with tempfile.TemporaryDirectory(prefix="toolkit-") as context:
        shutil.copy(DOCKERFILE, context)
        if bundle := _ca_bundle():
            shutil.copy(bundle, Path(context) / "ca-bundle.pem")
        arguments = [word for name in BUILD_VARIABLES if os.environ.get(name) for word in ("--build-arg", name)]
        docker(
            "build", "--build-arg", f"OURS={ours}", *arguments, "--tag", TOOLKIT_IMAGE,
            "--file", f"{context}/{DOCKERFILE.name}", context, within=600,
        )  # fmt: skip
    return TOOLKIT_IMAGE


def _ca_bundle() -> str | None:
    """Return the certificates to trust while building, for archives behind a private CA; as build.sh finds them."""
    named = [str(ROOT / "ca-bundle.pem"), *(os.environ.get(name, "") for name in CA_VARIABLES)]
    return next((path for path in named if path and Path(path).is_file()), None)


# ---- SDK 3 ----------------------------------------------------------------------------------------------------------

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
    cases = [case for case in CASES if case.runs_on(DRIVERS)]
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
    """Return the case's SDK code as a user would write it.

    For mpirun, the SDK's -np is the number of all ranks, so --map-by spreads the ranks over the hosts.
    """
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


# ---- by hand --------------------------------------------------------------------------------------------------------

CODE = "/opt/ml/code"
PORT = 2222  # of a worker of MultiWorkerMirrored
STARTS = {
    # Horovod documents these options for mpirun; root takes the first.
    MPIRUN: "mpirun --allow-run-as-root -np {count} --host {slots} "
    "--bind-to none --map-by slot -x PATH --mca pml ob1 --mca btl ^openib",
    HOROVODRUN: "horovodrun -np {count} -H {slots}",
    GLOO: "horovodrun --gloo -np {count} -H {slots}",
}
FIRST = """
for host in {others}; do
    until (: < /dev/tcp/$host/22) 2> /dev/null; do sleep 0.01; done
done
cd {code}
{starts} "$@"
code=$?
for host in {others}; do
    ssh -o ConnectTimeout=10 $host "echo $code > /run/ended; kill \\$(cat /run/sshd.pid)" &
done
wait
exit $code
"""
OTHERS = "/usr/sbin/sshd -D; exit $(cat /run/ended || echo 1)"


def by_hand(case: Case, side: str, hosts: Sequence[str], host: str) -> list[str]:
    """Return the command of `docker run` on this host; the hyperparameters are the script's arguments.

    With mpirun and horovodrun the first host waits for the others' sshd and starts the ranks. After the ranks' end, it
    ends the others over ssh. If it dies before, the others keep running.
    """
    options = [word for name, value in case.arguments for word in (f"--{name}", value)]
    if side == PLAIN:
        return [*_tf_config(case, hosts, host), "python", f"{CODE}/{case.program}", *options]
    first, *others = hosts
    if host != first:
        return ["bash", "-c", OTHERS]
    slots = ",".join(f"{each}:{case.ranks}" for each in hosts)
    starts = STARTS[side].format(count=case.hosts * case.ranks, slots=slots)
    script = FIRST.format(others=" ".join(others), starts=starts, code=CODE)
    return ["bash", "-c", script, side, "python", case.program, *options]


def _tf_config(case: Case, hosts: Sequence[str], host: str) -> list[str]:
    """Return the words of the command that set TF_CONFIG; none if the script needs none."""
    if case.mode != "mwms":
        return []
    cluster = {"worker": [f"{each}:{PORT}" for each in hosts]}
    task = {"type": "worker", "index": list(hosts).index(host)}
    return ["env", f"TF_CONFIG={json.dumps({'cluster': cluster, 'task': task})}"]
