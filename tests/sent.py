"""List the hyperparameters that SageMaker Python SDK v2 sends for its `TensorFlow` estimator, as in the file."""

import json

BUCKET = "s3://sagemaker-eu-west-1-123456789012"
PARAMETER_SERVER = {"sagemaker_parameter_server_enabled": True}
DATA_PARALLEL = {
    "sagemaker_distributed_dataparallel_enabled": True,
    "sagemaker_distributed_dataparallel_custom_mpi_options": "",
    "sagemaker_instance_type": "ml.p3.16xlarge",
    "model_dir": "/opt/ml/model",
}


def mpi(processes_per_host: int, options: str = "") -> dict[str, object]:
    return {
        "sagemaker_mpi_enabled": True,
        "sagemaker_mpi_num_of_processes_per_host": processes_per_host,
        "sagemaker_mpi_custom_mpi_options": options,
        "model_dir": "/opt/ml/model",
    }


def by_sdk(program: str, distribution: dict[str, object], **users: object) -> dict[str, str]:
    """Return what the SDK sends. The code is already in the container, so nothing is fetched from the named folder."""
    values = {
        "sagemaker_submit_directory": f"{BUCKET}/job/source/sourcedir.tar.gz",
        "sagemaker_program": program,
        "sagemaker_container_log_level": 20,
        "sagemaker_job_name": "job",
        "sagemaker_region": "eu-west-1",
        "model_dir": f"{BUCKET}/job/model",
        **distribution,
        **users,
    }
    return {key: json.dumps(value) for key, value in values.items()}
