"""Stand in for Amazon SageMaker's training API: real boto3 calls in, containers of the project's image out.

    with StandIn(image="sagemaker-tf-entrypoint:latest") as service:
        subprocess.run([...], env={**os.environ, **service.environment()})

`api.py` speaks the protocol, `service.py` has the operations, `job.py` is the life of one job, `network.py` its
network, `host.py` the container and the tree of one host, `storage.py` what goes through S3, `logs.py` what goes to
CloudWatch, `faults.py` what goes wrong on demand. S3, CloudWatch, STS and IAM are moto's. Needs Docker, and root, as
the files of containers belong to root.
"""

import sys
from pathlib import Path

CLUSTER = str(Path(__file__).resolve().parents[1] / "cluster")
if CLUSTER not in sys.path:
    sys.path.append(CLUSTER)  # for containers.py

from stand_in_sagemaker.faults import Faults  # noqa: E402  (after the path is set)
from stand_in_sagemaker.service import StandIn  # noqa: E402

__all__ = ["Faults", "StandIn"]
