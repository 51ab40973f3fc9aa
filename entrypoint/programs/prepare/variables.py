"""Compute SM_* as sagemaker-training sets them for a script, without importing that library.

Names and values are those of `sagemaker_training/environment.py`, 5.1.4. docs/differences.md lists differences.
tests/unit/launcher/plan/test_parity.py compares ours with that version, and with 4.9.0.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

LONGEST_ENTRY_BYTES = 32 * 4096  # bytes of one argument or environment entry (MAX_ARG_STRLEN of execve(2))
WHOLE_CLUSTER = "homogeneousCluster"  # the group of a job without instance groups
SWITCHES = (
    "sagemaker_mpi_enabled", "sagemaker_parameter_server_enabled", "sagemaker_distributed_dataparallel_enabled",
    "sagemaker_pytorch_ddp_enabled", "sagemaker_pytorch_xla_multi_worker_enabled",
    "sagemaker_multi_worker_mirrored_strategy_enabled", "sagemaker_torch_distributed_enabled",
)  # fmt: skip
GROUPS = "sagemaker_distribution_instance_groups"
LOG_LEVEL = 20  # logging.INFO


def variables(task: dict[str, Any]) -> dict[str, str]:
    """Return the environment of a script: SM_*, and what sagemaker-training sets in its own process.

    `task` is what `plan/distributions/common.py` sends to the prepare step.
    """
    hyperparameters, users = task["hyperparameters"], task["of_the_script"]
    known = _of_job(task)
    about = {key: known[key] for key in known if key not in _ONLY_IN_TRAINING_ENV}
    about |= {"hps": users, "framework_params": about.pop("additional_framework_parameters")}
    about |= {
        "channels": sorted(about.pop("channel_input_dirs")),
        "user_args": task["arguments"],
        "training_env": known,
    }
    about |= {f"channel_{name}": path for name, path in known["channel_input_dirs"].items()}
    about |= {f"hp_{name}": value for name, value in users.items()}
    if not known["topology"]:
        del about["topology"]
    job_name = hyperparameters.get("sagemaker_job_name")
    inherited = {
        "SAGEMAKER_JOB_NAME": "" if job_name is None else str(job_name),
        "CURRENT_HOST": known["current_host"],
        "SAGEMAKER_REGION": _region(hyperparameters) or "",
    }
    return {**_short_enough({f"SM_{key.upper()}": _text(value) for key, value in about.items()}), **inherited}


_ONLY_IN_TRAINING_ENV = {
    "distribution_hosts", "hyperparameters", "is_master", "is_modelparallel_enabled", "is_smddpmprun_installed",
    "is_smddprun_installed", "job_name", "master_hostname",
}  # fmt: skip


def _of_job(task: dict[str, Any]) -> dict[str, Any]:
    """Return the content of SM_TRAINING_ENV."""
    resources, hyperparameters = task["resource_config"], task["hyperparameters"]
    base = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
    framework = {k: v for k, v in task["of_frameworks"].items() if not (k == GROUPS and v is None)}
    program = os.environ.get("SAGEMAKER_PROGRAM") or hyperparameters.get("sagemaker_program")
    groups = {group["instance_group_name"]: group for group in resources.get("instance_groups", [])}
    mine = resources.get("current_group_name", WHOLE_CLUSTER)
    training = framework.get(GROUPS, [mine] if any(framework.get(switch) for switch in SWITCHES) else [])
    hosts = resources["hosts"]
    trains = [host for name, group in groups.items() if name in training for host in group["hosts"]]
    trains = trains if groups else list(hosts)
    instance_type = resources.get("current_instance_type", "local")
    split_model = os.environ.get("SM_HP_MP_PARAMETERS")
    return {
        "additional_framework_parameters": framework,
        "channel_input_dirs": {name: str(base / "input/data" / name) for name in task["input_data_config"]},
        "current_host": resources["current_host"],
        "current_instance_group": mine,
        "current_instance_group_hosts": groups[mine]["hosts"] if mine in groups else [],
        "current_instance_type": instance_type,
        "distribution_hosts": trains,
        "distribution_instance_groups": training,
        "framework_module": os.environ.get("SAGEMAKER_TRAINING_MODULE"),
        "hosts": hosts,
        "hyperparameters": task["of_the_script"],
        "input_config_dir": str(base / "input/config"),
        "input_data_config": task["input_data_config"],
        "input_dir": str(base / "input"),
        "instance_groups": list(groups),
        "instance_groups_dict": groups,
        "is_hetero": len(groups) > 1,
        "is_master": resources["current_host"] == (trains or hosts)[0],
        "is_modelparallel_enabled": split_model and split_model != "{}",
        "is_smddpmprun_installed": bool(shutil.which("smddpmprun")),
        "is_smddprun_installed": bool(shutil.which("smddprun")),
        "job_name": os.environ.get("TRAINING_JOB_NAME"),
        "log_level": hyperparameters.get("sagemaker_container_log_level", LOG_LEVEL),
        "master_hostname": (trains or hosts)[0],
        "model_dir": str(base / "model"),
        "module_dir": str(hyperparameters.get("sagemaker_submit_directory", base / "code")),
        "module_name": str(program).removesuffix(".py"),
        "network_interface_name": resources.get("network_interface_name", "eth0"),
        "num_cpus": os.cpu_count(),
        "num_gpus": sum(line.startswith("GPU ") for line in _output("nvidia-smi", "--list-gpus").splitlines()),
        "num_neurons": _neurons(instance_type),
        "output_data_dir": str(base / "output/data"),
        "output_dir": str(base / "output"),
        "output_intermediate_dir": str(base / "output/intermediate"),
        "resource_config": resources,
        "topology": resources.get("topology", []),
        "user_entry_point": program,
    }


def _neurons(instance_type: str) -> int:
    if "trn2.48xlarge" in instance_type:
        return 64
    listed = _output("neuron-ls", "-j")
    return sum(device.get("nc_count", 0) for device in json.loads(listed)) if listed else 0


def _output(*command: str) -> str:
    """Return the output of a program; "" if it does not exist, or fails."""
    if not shutil.which(command[0]):
        return ""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return "" if done.returncode else done.stdout


def _region(hyperparameters: dict[str, Any]) -> str | None:
    """Return the region from the SDK's hyperparameter, else by boto3, which takes half a second to import."""
    if "sagemaker_region" in hyperparameters:
        region: str | None = hyperparameters["sagemaker_region"]
    elif os.path.exists(os.path.expanduser(os.environ.get("AWS_CONFIG_FILE", "~/.aws/config"))):  # noqa: PTH110, PTH111
        try:
            import boto3
        except ImportError:  # an extra of the wheel
            return os.environ.get("AWS_DEFAULT_REGION")
        region = boto3.session.Session().region_name
    else:
        region = os.environ.get("AWS_DEFAULT_REGION")
    return region


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _short_enough(entries: dict[str, str]) -> dict[str, str]:
    """Drop entries that Linux cannot pass to a program. Legal hyperparameters can make SM_HPS one of them."""
    too_long = [
        k for k, value in entries.items() if len(f"{k}={value}".encode(errors="replace")) >= LONGEST_ENTRY_BYTES
    ]
    if too_long:
        print(f"warning: left out of the environment, as longer than 128 KiB: {', '.join(too_long)}", flush=True)
    return {key: value for key, value in entries.items() if key not in too_long}
