"""Train in local mode with SageMaker Python SDK 3, as a user's script does; run by the Python of .venv-sdk-v3.

Standard input, as JSON: {"hosts": how many, "source_code": for SourceCode, or null, "launcher": for the Launcher of
examples/tf_launcher, if it is to be `distributed`, "arguments": for ModelTrainer, "inputs": {channel: folder}}.
"""

import json
import sys
from pathlib import Path

from sagemaker.core.training.configs import Compute, InputData, SourceCode
from sagemaker.train import ModelTrainer
from sagemaker.train.model_trainer import Mode

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))  # as of a script that lies there
from tf_launcher import Launcher

call = json.load(sys.stdin)
# What the SDK makes goes where this program was started.
trainer = ModelTrainer(
    training_mode=Mode.LOCAL_CONTAINER,
    compute=Compute(instance_type="local_cpu", instance_count=call["hosts"]),
    source_code=SourceCode(**call["source_code"]) if call["source_code"] else None,
    distributed=Launcher(**call["launcher"]) if "launcher" in call else None,
    input_data_config=[InputData(channel_name=name, data_source=folder) for name, folder in call["inputs"].items()],
    **call["arguments"],
)
trainer.train()
