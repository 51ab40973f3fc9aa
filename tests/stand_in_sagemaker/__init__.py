"""Stand in for Amazon SageMaker's training API: real boto3 calls in, containers of the project's image out.

    with StandIn(image="sagemaker-tf-entrypoint:latest") as service:
        subprocess.run([...], env={**os.environ, **service.environment()})

It does what the acceptance run asks of SageMaker, and no more. `api.py` speaks the protocol, `service.py` has the
operations and what goes wrong on demand, `job.py` is the life of one job, whose hosts are those of
cluster/containers.py, `s3.py` what goes through S3, which is moto's. Needs Docker, and root, as the files of containers
belong to root.
"""

import sys
from pathlib import Path

CLUSTER = str(Path(__file__).resolve().parents[1] / "cluster")
if CLUSTER not in sys.path:
    sys.path.append(CLUSTER)  # for containers.py

from stand_in_sagemaker.service import Faults, StandIn  # noqa: E402  (after the path is set)

__all__ = ["Faults", "StandIn"]
