"""Simulate Amazon SageMaker's training API: accept boto3 calls, and run jobs as containers of the project's image.

    with StandIn(image="sagemaker-tf-entrypoint:latest") as service:
        subprocess.run([...], env={**os.environ, **service.environment()})

It offers only the operations of the acceptance run. `api.py` implements the protocol, `service.py` the operations and
the faults on demand, `job.py` the states of one job, whose hosts are those of cluster/containers.py, and `s3.py` the
transfers through S3, which is moto's. It needs Docker, and root, as the files of containers belong to root.
"""

import sys
from pathlib import Path

CLUSTER = str(Path(__file__).resolve().parents[1] / "cluster")
if CLUSTER not in sys.path:
    sys.path.append(CLUSTER)  # for containers.py

from stand_in_sagemaker.service import Faults, StandIn  # noqa: E402  (after the path is set)

__all__ = ["Faults", "StandIn"]
