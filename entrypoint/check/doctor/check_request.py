"""Check a request for what SageMaker, the SDK's scripts or our launcher refuse, drop or run differently."""

import functools
import re
from collections.abc import Iterator
from typing import Any

from entrypoint.base.extras import WHEEL
from entrypoint.check.doctor.api_names import SESSIONS
from entrypoint.check.doctor.check_distribution import joins_hosts_itself
from entrypoint.check.doctor.planned_job import Described, our_launcher_runs
from entrypoint.check.doctor.program import Code
from entrypoint.check.doctor.request import Request
from entrypoint.check.doctor.subject import tensorflow_of
from entrypoint.check.finding import Finding, error, note, warning
from entrypoint.launcher.job import params
from entrypoint.launcher.job.choices import LogPrefix
from entrypoint.launcher.job.config import SMDDP_ENABLED
from entrypoint.launcher.job.job import Mode
from entrypoint.launcher.job.settings import HYPERPARAMETER_PREFIX

AWS_IMAGE = re.compile(r"^\d{12}\.dkr\.ecr\.[^/]+/tensorflow-training[:@]|^public\.ecr\.aws/.*tensorflow")
# `sagemaker_*` hyperparameters that AWS's toolkit acts on and we do not: what they ask for, and what to use here.
_UNREAD = {
    "sagemaker_s3_output": "an upload of /opt/ml/output/intermediate while the job runs; wanted /opt/ml/checkpoints, "
    "or TensorBoardOutputConfig",
    "sagemaker_mpi_num_processes": "the number of all ranks; wanted sagemaker_mpi_num_of_processes_per_host",
    "sagemaker_training_compiler_enabled": "SageMaker's Training Compiler, which is for AWS's images",
    "sagemaker_pytorch_ddp_enabled": "PyTorch's launcher",
    "sagemaker_torch_distributed_enabled": "torchrun",
    "sagemaker_pytorch_xla_multi_worker_enabled": "PyTorch/XLA's launcher",
}
_READ = {
    *(params.USER_PROGRAM_PARAM, params.SUBMIT_DIR_PARAM, params.PARAMETER_SERVER_ENABLED),
    *(params.MPI_ENABLED, params.MPI_PROCESSES_PER_HOST, params.MPI_CUSTOM_OPTIONS, SMDDP_ENABLED),
    *(params.MULTI_WORKER_MIRRORED_STRATEGY_ENABLED, params.SMDATAPARALLEL_CUSTOM_MPI_OPTIONS),
    *(params.DISTRIBUTION_INSTANCE_GROUPS, "sagemaker_container_log_level", "sagemaker_job_name", "sagemaker_region"),
    "sagemaker_instance_type",
    "sagemaker_enable_cloudwatch_metrics",
    "sagemaker_estimator_module",
    "sagemaker_estimator_class_name",
}
_SHELL = re.compile(r"[\s;&|<>`]|\$\(|^'.*'$")
_ASSIGN = 'environment={"ENTRYPOINT_MODE": "ps"}, "mwms", "mpi" or "jax"; "single" if each host is to train alone'


def of_request(described: Described, code: Code | None, image: str) -> Iterator[Finding]:
    """Yield the findings of a request.

    `code`: its program, if that is on this machine. `image`: the image that the job will run on, if it is not the
    request's.
    """
    request = described.request
    yield from _of_api(request)
    yield from _of_entrypoint(request)
    yield from _of_our_reader(described, code)
    yield from _of_image(request, image)
    yield from _of_hyperparameters(request)
    yield from _of_quotes(described)
    yield from _of_the_rest(described, code)


def _of_api(request: Request) -> Iterator[Finding]:
    """Yield what botocore would refuse before sending. A launch script's request has already passed its check."""
    if not request.text or "TrainingJobStatus" in request.body:
        return
    try:
        from botocore import validate
    except ImportError:
        yield note(
            "api",
            "botocore is not installed",
            f"pip install '{WHEEL}[aws]', to check it against the API",
            place=request.at(),
        )
        return
    report = validate.ParamValidator().validate(request.body, _shape_of_a_request()).generate_report()
    for line in report.splitlines():
        word = re.search(r"(\w+)[^\w]*$", line.partition(",")[0])
        yield error(
            "api", line, "what the API of CreateTrainingJob has there", place=request.at(word[1] if word else "")
        )


@functools.cache  # reading the API's model takes a quarter of a second
def _shape_of_a_request() -> Any:
    import botocore.session

    model = botocore.session.get_session().get_service_model("sagemaker")
    return model.operation_model("CreateTrainingJob").input_shape


def _of_entrypoint(request: Request) -> Iterator[Finding]:
    launch, algorithm, drivers = request.launch, request.algorithm, "sm_drivers" in request.channels
    if our_launcher_runs(request):
        if launch.command == "train":
            yield warning(
                "command-keeps-sigterm",
                'command="train" leaves bash as process 1, which keeps the SIGTERM '
                "of StopTrainingJob: the job is killed after 120 s with nothing saved",
                'command="exec train"',
                place=request.at(),
            )
    else:
        what = "the SDK's driver" if request.text else launch.distributed or "its basic driver"
        words = algorithm.get("ContainerEntrypoint") or algorithm.get("ContainerArguments")
        found = f"SDK v3 starts a script of its own, with {what}" if drivers else f"the container starts {words}"
        asked = bool(launch.distributed) or any(key.startswith("ENTRYPOINT_") for key in request.environment)
        yield (error if request.hosts > 1 or asked else warning)(
            "not-our-entrypoint",
            f"{found} in place of our launcher: no TF_CONFIG, no mode, no failure text of ours",
            "no source_code=: hyperparameter sagemaker_program and a channel `code`; or "
            'distributed=Launcher(mode="...") of examples/tf_launcher; or SourceCode(command="exec train")',
            place=request.at("ContainerEntrypoint"),
        )
    if drivers:
        wrong = [
            (key, f"hyperparameter {key} contains '", "a value without it")
            for key, value in request.hyperparameters.items()
            if "'" in str(value)
        ]
        wrong += [
            (name, f"channel {name} has a - in its name", name.replace("-", "_"))
            for name in request.channels
            if "-" in name
        ]
        for word, found, instead in wrong:
            found = f"{found}, on which SDK v3's script fails before anything runs"
            yield error("sdk-script-breaks", found, instead, place=request.at(word))


def _of_our_reader(described: Described, code: Code | None) -> Iterator[Finding]:
    request, job = described.request, described.job
    if not our_launcher_runs(request):
        return
    for problem in described.problems:
        # If the message names a hyperparameter or a variable, the place is that line.
        named = re.search(r"\b(sagemaker_\w+|ENTRYPOINT_[A-Z_]+|mp_parameters)\b", problem)
        found, _, wanted = problem.partition("; wanted ")
        yield error("job-refused", found, wanted or "see docs/settings.md", place=request.at(named[1] if named else ""))
    if job is None:
        return
    alone = job.mode is Mode.SINGLE and len(job.cluster.hosts) > 1 and not described.problems
    joined = code is not None and joins_hosts_itself(code)
    if alone and not joined and any("no distribution is configured" in text for text in job.warnings):
        yield error(
            "nothing-shared",
            f"{len(job.cluster.hosts)} hosts without a mode of distribution: each runs the script alone, and nothing "
            "is shared",
            _ASSIGN,
            place=request.at("InstanceCount"),
        )
    for text in job.warnings:
        if "no distribution is configured" not in text:
            yield warning("job-warning", text, "see docs/settings.md", place=request.at())
    # The chief of TensorFlow 1's sessions and Estimators trains, too: with parameter servers, it reads its part.
    chief_trains = job.mode is Mode.PS and code is not None and code.has(*SESSIONS)
    for text in described.plan.notes if described.plan else ():
        unread = "is ShardedByS3Key, and not all" in text
        if text not in job.warnings and not (unread and chief_trains):
            found, _, wanted = text.partition(": wanted ") if unread else (text, "", "")
            make = warning if unread else note
            yield make("plan-note", found, wanted or "nothing, if it is meant so", place=request.at())
    if not described.problems and job.program.source == str(job.paths.code) and "code" not in request.channels:
        yield warning(
            "no-code",
            f"nothing brings the code: {job.program.name} must lie in /opt/ml/code of the image",
            "hyperparameter sagemaker_submit_directory (source_dir=), or a channel `code`",
            place=request.at("HyperParameters"),
        )


def _of_image(request: Request, image: str) -> Iterator[Finding]:
    if AWS_IMAGE.match(request.image) and not image:
        yield note(
            "image",
            f"{request.image} is AWS's: it runs sagemaker-training, and none of our code. These findings are for a job "
            "on our image",
            "an image of build.sh, or of build.sh --on",
            place=request.at("TrainingImage"),
        )
    elif AWS_IMAGE.match(request.image):
        yield note("image", f"{request.image} is AWS's", f"image_uri={image!r}", place=request.at("TrainingImage"))
    runs_on = image or request.image
    tag = runs_on.rpartition(":")[2]
    if request.gpus and not AWS_IMAGE.match(runs_on) and tensorflow_of(runs_on) and "gpu" not in tag:
        yield warning(
            "image-and-gpus",
            f"the hosts have GPUs, but by its tag {runs_on} is for CPUs: TensorFlow would not use them",
            "build.sh --gpu, or instances without GPUs",
            place=request.at("InstanceType"),
        )
    if not request.gpus and "gpu" in tag:
        yield note(
            "image-and-gpus",
            f"{runs_on} is for GPUs, but the hosts have none",
            "the image for CPUs, which is smaller",
            place=request.at("InstanceType"),
        )


def _of_hyperparameters(request: Request) -> Iterator[Finding]:
    for key, value in request.hyperparameters.items():
        if key.startswith(params.PREFIX):
            asks, _, instead = _UNREAD.get(key, "; wanted another name, or none").partition("; wanted ")
            if asks:
                found = f"asks AWS's toolkit for {asks}, and does nothing here"
                dropped = str(value).strip('"').lower() not in ("false", "", "none", "null")
            else:
                found = (
                    "is neither a known switch nor an argument of the script: names that begin with sagemaker_ never "
                    "are"
                )
                dropped = key not in _READ and not key.startswith(HYPERPARAMETER_PREFIX)
            if dropped:
                found = f"hyperparameter {key} {found}"
                yield warning("hyperparameter-dropped", found, instead or "none", place=request.at(key))
        elif isinstance(value, str) and _SHELL.search(value.strip('"')):
            yield note(
                "hyperparameter-as-argv",
                f"hyperparameter {key} has blanks or shell characters, which AWS's images split or run; here the "
                "script gets the value as it is",
                "the value without quotes for the shell",
                place=request.at(key),
            )


def _of_quotes(described: Described) -> Iterator[Finding]:
    given = params.of_the_script(described.job.hyperparameters) if described.job else {}
    for key, value in sorted(given.items()):
        if isinstance(value, str) and re.fullmatch(r'"[^"]*"', value.strip()):
            yield warning(
                "encoded-twice",
                f"hyperparameter {key} is encoded as JSON twice: the script gets {value}, with the quotes",
                f"{value.strip()[1:-1]!r}, without json.dumps: the SDK encodes it, and the launcher decodes once",
                place=described.request.at(key),
            )


def _of_the_rest(described: Described, code: Code | None) -> Iterator[Finding]:
    request = described.request
    if request.local:
        yield note(
            "local-mode",
            "the job is for the SDK's local mode: one machine, no spot instances, no checkpoints, no Pipe mode",
            "instance_type='ml...' for SageMaker",
            place=request.at(),
        )
    if request.body.get("EnableManagedSpotTraining") and not request.body.get("CheckpointConfig"):
        yield warning(
            "no-checkpoint-config",
            "spot instances without a CheckpointConfig: what was saved is lost at each interruption, and training "
            "starts from the beginning",
            'checkpoint_s3_uri="s3://..." (v3: checkpoint_config=CheckpointConfig(s3_uri=...))',
            place=request.at("EnableManagedSpotTraining"),
        )
    prefixed = described.job is None or described.job.settings.log_prefix is not LogPrefix.OFF
    for each in request.algorithm.get("MetricDefinitions") or []:
        regex = str(each.get("Regex"))
        if (regex.startswith("^") and prefixed) or "<stdout>" in regex or "<stderr>" in regex:
            without = re.sub(r"^\^|(\[1,[^<]*\])?<std(out|err)>:?", "", regex)
            yield warning(
                "metric-anchored",
                f"metric {each.get('Name')} looks for {regex!r}, but our lines begin with [host process]: it matches "
                "nothing",
                f'{without!r}, or environment={{"ENTRYPOINT_LOG_PREFIX": "false"}}',
                place=request.at(str(each.get("Name"))),
            )
    if request.body.get("DebugHookConfig") or _profiles(request.body):
        yield note(
            "debugger",
            "SageMaker Debugger or its profiler is asked for (SDK v2 does so by default), but no library in our image "
            "serves it",
            "debugger_hook_config=False, disable_profiler=True",
            place=request.at("DebugHookConfig"),
        )
    if request.body.get("EnableNetworkIsolation") and code and (code.folder / "requirements.txt").is_file():
        yield warning(
            "isolated-install",
            "the network is isolated, so that pip cannot install requirements.txt",
            "the packages in the image, or no isolation",
            place=request.at("EnableNetworkIsolation"),
        )


def _profiles(body: Any) -> bool:
    asked = body.get("ProfilerConfig") or {}
    return bool(asked) and not asked.get("DisableProfiler") and bool(body.get("ProfilerRuleConfigurations"))
