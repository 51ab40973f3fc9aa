"""Train in local mode with SageMaker Python SDK 2, as a user's script does; run by the Python of .venv-sdk-v2.

Standard input: {"estimator": the class, "arguments": for its constructor, "inputs": for fit}, as JSON.
"""

import json
import sys

from sagemaker.estimator import Estimator
from sagemaker.local import LocalSession
from sagemaker.tensorflow import TensorFlow

call = json.load(sys.stdin)
session = LocalSession()
# The program is mounted, not sent through S3. What the SDK makes goes where this program was started.
session.config = {"local": {"local_code": True, "container_root": "."}}
estimator = {"Estimator": Estimator, "TensorFlow": TensorFlow}[call["estimator"]](
    role="arn:aws:iam::111122223333:role/training",
    instance_type="local",
    sagemaker_session=session,
    **call["arguments"],
)
estimator.fit(call["inputs"])
