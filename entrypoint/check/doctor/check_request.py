"""Check a request for values that SageMaker, the SDK's scripts or our launcher refuse, drop or run differently."""

import re
from collections.abc import Iterator

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.check_api import of_api
from entrypoint.check.doctor.check_distribution import joins_hosts_itself
from entrypoint.check.doctor.planned_job import Described, our_launcher_runs
from entrypoint.check.doctor.request import Request, mappings
from entrypoint.check.doctor.rulebook import finding, variant
from entrypoint.check.doctor.subject import AWS_IMAGE, Case, tensorflow_of
from entrypoint.check.finding import Finding
from entrypoint.launcher.job import params
from entrypoint.launcher.job.choices import LogPrefix
from entrypoint.launcher.job.config import SMDDP_ENABLED
from entrypoint.launcher.job.job import Mode
from entrypoint.launcher.job.settings import HYPERPARAMETER_PREFIX
from entrypoint.usercode.api_names import SESSIONS
from entrypoint.usercode.reader import UserProgram

# `sagemaker_*` hyperparameters that our launcher reads, or may leave unread.
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


def of_request(described: Described, code: UserProgram | None, image: str) -> Iterator[Finding]:
    """Yield the findings of a request.

    `code`: its program, if that is on this machine. `image`: the image that the job will run on, if it differs from the
    request's.
    """
    request = described.request
    yield from of_api(request)
    yield from _of_entrypoint(request)
    yield from _of_our_reader(described, code)
    yield from _of_image(request, image)
    yield from _of_hyperparameters(described)
    yield from _of_the_rest(described, code)


def _of_entrypoint(request: Request) -> Iterator[Finding]:
    launch, algorithm, drivers = request.launch, request.algorithm, "sm_drivers" in request.channels
    if our_launcher_runs(request):
        if launch.command == "train":
            yield finding("command-keeps-sigterm", request.at())
    else:
        what = "the SDK's driver" if request.text else launch.distributed or "its basic driver"
        words = algorithm.get("ContainerEntrypoint") or algorithm.get("ContainerArguments")
        starts = f"SDK v3 starts a script of its own, with {what}" if drivers else f"the container starts {words}"
        asked = bool(launch.distributed) or any(key.startswith("ENTRYPOINT_") for key in request.environment)
        severity = Severity.ERROR if request.hosts > 1 or asked else Severity.WARNING
        yield finding("not-our-entrypoint", request.at("ContainerEntrypoint"), severity=severity, starts=starts)
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
            yield finding("sdk-script-breaks", request.at(word), found=found, instead=instead)


def _of_our_reader(described: Described, code: UserProgram | None) -> Iterator[Finding]:
    request, job = described.request, described.job
    if not our_launcher_runs(request):
        return
    for problem in described.problems:
        # If the message names a hyperparameter or a variable, the place is that line.
        named = re.search(r"\b(sagemaker_\w+|ENTRYPOINT_[A-Z_]+|mp_parameters)\b", problem)
        found, _, wanted = problem.partition("; wanted ")
        place = request.at(named[1] if named else "")
        yield finding("job-refused", place, found=found, instead=wanted or "see docs/settings.md")
    if job is None:
        return
    alone = job.mode is Mode.SINGLE and len(job.cluster.hosts) > 1 and not described.problems
    joined = code is not None and joins_hosts_itself(code)
    if alone and not joined and any("no distribution is configured" in text for text in job.warnings):
        way = Case(code=code, described=described).way if code else None
        key, (mode, written) = ("nothing-shared/way", (way[0], way[1].written)) if way else ("nothing-shared", ("", ""))
        yield finding(key, request.at("InstanceCount"), hosts=len(job.cluster.hosts), way=mode, written=written)
    for text in job.warnings:
        if "no distribution is configured" not in text:
            severity = Severity.NOTE if text.startswith("Horovod stands in") else None
            yield finding("job-warning", request.at(), severity=severity, found=text)
    # The chief of TensorFlow 1's sessions and Estimators trains, too: with parameter servers, it reads its part.
    chief_trains = job.mode is Mode.PS and code is not None and code.has(*SESSIONS)
    for text in described.plan.notes if described.plan else ():
        unread = "is ShardedByS3Key, and not all" in text
        if text not in job.warnings and not (unread and chief_trains):
            found, _, wanted = text.partition(": wanted ") if unread else (text, "", "")
            severity = Severity.WARNING if unread else Severity.NOTE
            yield finding("plan-note", request.at(), severity=severity, found=found, instead=wanted)
    if not described.problems and job.program.source == str(job.paths.code) and "code" not in request.channels:
        yield finding("no-code", request.at("HyperParameters"), name=job.program.name)


def _of_image(request: Request, image: str) -> Iterator[Finding]:
    if AWS_IMAGE.match(request.image) and not image:
        yield finding("image", request.at("TrainingImage"), image=request.image)
    elif AWS_IMAGE.match(request.image):
        yield finding("image/chosen", request.at("TrainingImage"), image=request.image, chosen=repr(image))
    runs_on = image or request.image
    tag = runs_on.rpartition(":")[2]
    if request.gpus and not AWS_IMAGE.match(runs_on) and tensorflow_of(runs_on) and "gpu" not in tag:
        yield finding("image-and-gpus", request.at("InstanceType"), runs_on=runs_on)
    if not request.gpus and "gpu" in tag:
        yield finding("image-and-gpus/no-gpus", request.at("InstanceType"), severity=Severity.NOTE, runs_on=runs_on)


def _no_number(regex: str) -> str:
    """Return why a metric's regular expression can find no number; "" if it can."""
    try:
        return "" if re.compile(regex).groups else "has no group, whose text would be the number"
    except re.error as problem:
        return f"is no regular expression ({problem})"


def _of_hyperparameters(described: Described) -> Iterator[Finding]:
    request = described.request
    for key, value in request.hyperparameters.items():
        if key.startswith(params.PREFIX):
            key_of_rule = variant("hyperparameter-dropped", key)
            is_off = "/" in key_of_rule and str(value).strip('"').lower() in ("false", "", "none", "null")
            if not (is_off or key in _READ or key.startswith(HYPERPARAMETER_PREFIX)):
                yield finding(key_of_rule, request.at(key), key=key)
        elif isinstance(value, str) and _SHELL.search(value.strip('"')):
            yield finding("hyperparameter-as-argv", request.at(key), key=key)
    given = params.of_the_script(described.job.hyperparameters) if described.job else {}
    for key, value in sorted(given.items()):
        if isinstance(value, str) and re.fullmatch(r'"[^"]*"', value.strip()):
            plain = repr(value.strip()[1:-1])
            yield finding("encoded-twice", request.at(key), key=key, value=value, plain=plain)


def _of_the_rest(described: Described, code: UserProgram | None) -> Iterator[Finding]:
    request = described.request
    if request.local:
        yield finding("local-mode", request.at())
    if request.body.get("EnableManagedSpotTraining") and not request.body.get("CheckpointConfig"):
        yield finding("no-checkpoint-config", request.at("EnableManagedSpotTraining"))
    prefixed = described.job is None or described.job.settings.log_prefix is not LogPrefix.OFF
    for each in mappings(request.algorithm.get("MetricDefinitions")):
        if not isinstance(each.get("Regex"), str):
            continue
        regex = str(each.get("Regex"))
        if (regex.startswith("^") and prefixed) or "<stdout>" in regex or "<stderr>" in regex:
            without = re.sub(r"^\^|(\[1,[^<]*\])?<std(out|err)>:?", "", regex)
            name = str(each.get("Name"))
            yield finding("metric-anchored", request.at(name), name=name, regex=repr(regex), without=repr(without))
        if wrong := _no_number(regex):
            name = str(each.get("Name"))
            yield finding("metric-unread", request.at(name), name=name, regex=repr(regex), wrong=wrong)
    profiler = request.body.get("ProfilerConfig") or {"DisableProfiler": True}
    profiler = profiler if isinstance(profiler, dict) else {"DisableProfiler": True}
    profiles = not profiler.get("DisableProfiler") and request.body.get("ProfilerRuleConfigurations")
    if request.body.get("DebugHookConfig") or profiles:
        yield finding("debugger", request.at("DebugHookConfig"))
    if request.body.get("EnableNetworkIsolation") and code and (code.folder / "requirements.txt").is_file():
        yield finding("isolated-install", request.at("EnableNetworkIsolation"))
