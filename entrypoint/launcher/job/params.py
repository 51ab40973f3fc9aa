"""Share names and encodings with SageMaker's SDKs and sagemaker-training, and select the script's hyperparameters.

They equal those of sagemaker-training 4.9.0 and 5.1.4, as test_parity.py checks. That library needs a C compiler.
"""

from collections.abc import Mapping
from typing import Any

PREFIX = "sagemaker_"
USER_PROGRAM_PARAM = "sagemaker_program"
USER_PROGRAM_ENV = "SAGEMAKER_PROGRAM"
SUBMIT_DIR_PARAM = "sagemaker_submit_directory"
SUBMIT_DIR_ENV = "SAGEMAKER_SUBMIT_DIRECTORY"
TRAINING_JOB_ENV = "TRAINING_JOB_NAME"
TUNING_METRIC_PARAM = "_tuning_objective_metric"
MPI_ENABLED = "sagemaker_mpi_enabled"
MPI_PROCESSES_PER_HOST = "sagemaker_mpi_num_of_processes_per_host"
MPI_CUSTOM_OPTIONS = "sagemaker_mpi_custom_mpi_options"
PARAMETER_SERVER_ENABLED = "sagemaker_parameter_server_enabled"
MULTI_WORKER_MIRRORED_STRATEGY_ENABLED = "sagemaker_multi_worker_mirrored_strategy_enabled"
SMDATAPARALLEL_CUSTOM_MPI_OPTIONS = "sagemaker_distributed_dataparallel_custom_mpi_options"
DISTRIBUTION_INSTANCE_GROUPS = "sagemaker_distribution_instance_groups"
# Used by the library itself, which passes them on to no framework.
_LIBRARYS_OWN = {
    USER_PROGRAM_PARAM,
    SUBMIT_DIR_PARAM,
    TUNING_METRIC_PARAM,
    "sagemaker_enable_cloudwatch_metrics",
    "sagemaker_region",
    "sagemaker_container_log_level",
    "sagemaker_job_name",
    "default_user_module_name",
    "sagemaker_s3_output",
}


def of_the_script(hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters that the user's script gets."""
    return {key: v for key, v in hyperparameters.items() if key not in _LIBRARYS_OWN and not key.startswith(PREFIX)}


def of_frameworks(hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the SDK's parameters for frameworks, such as the switches of the distributions."""
    return {key: v for key, v in hyperparameters.items() if key not in _LIBRARYS_OWN and key.startswith(PREFIX)}


def arguments(users: Mapping[str, Any]) -> list[str]:
    """Return the script's arguments, sorted by name: `--batch_size 32`, `-x 1`; for an object `--name a=1,b=2`."""
    words = []
    for key in sorted(users):
        value = users[key]
        if isinstance(value, Mapping):
            value = ",".join(f"{name}={each}" for name, each in sorted(value.items()))
        option = f"--{key}" if len(key) > 1 else key and f"-{key}"
        words += [option, "" if value is None else str(value)]
    return words
