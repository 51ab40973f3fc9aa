"""Check a request for values that SageMaker, the SDK's scripts or our launcher refuse, drop or run differently."""

import json
import re
from collections.abc import Iterator

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.check_api import of_api
from entrypoint.check.doctor.check_distribution import joins_hosts_itself
from entrypoint.check.doctor.planned_job import Described, groups_in, our_launcher_runs, s3_source, unread_arguments
from entrypoint.check.doctor.request import Request, mappings
from entrypoint.check.doctor.rulebook import finding, variant
from entrypoint.check.doctor.subject import AWS_IMAGE, Case, tensorflow_of
from entrypoint.check.finding import Finding
from entrypoint.launcher.job import params
from entrypoint.launcher.job.channels import sources
from entrypoint.launcher.job.choices import HangAction, LogPrefix, Reaction
from entrypoint.launcher.job.config import SMDDP_ENABLED
from entrypoint.launcher.job.job import Mode
from entrypoint.launcher.job.settings import HYPERPARAMETER_PREFIX
from entrypoint.usercode.api_names import OUR_SHARDS, SESSIONS
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
KILLED_AFTER_SECONDS = 120  # by SageMaker, after SIGTERM
_SHELL = re.compile(r"[\s;&|<>`]|\$\(|^'.*'$")
_MPIRUN = re.compile(r"(\\?\[1,[^<]*\])?\\?<std(out|err)\\?>:?")  # what it puts before each line, in AWS's images


def of_request(described: Described, code: UserProgram | None, image: str) -> Iterator[Finding]:
    """Yield the findings of a request.

    `code`: its program, if that is on this machine. `image`: the image that the job will run on, if it differs from the
    request's.
    """
    request = described.request
    yield from of_api(request)
    yield from _of_entrypoint(request)
    yield from _of_our_reader(described, code)
    yield from _of_settings(described)
    yield from _of_groups(described)
    yield from _of_image(request, image)
    yield from _of_hyperparameters(described)
    yield from _of_the_rest(described, code)
    yield from _of_same_data(described, code)


def _of_same_data(described: Described, code: UserProgram | None) -> Iterator[Finding]:
    """Yield groups of channels with the same data of which the processes would not read disjoint shards."""
    plan, request = described.plan, described.request
    most = max((spec.reader.most for spec in described.processes if spec.reader), default=1)
    for group in sources(plan.channels, most) if plan else ():
        names = [each.name for each in group.channels]
        given = [request.channels[name] for name in names]
        uris = {str(s3_source(each).get("S3Uri")).rstrip("/") for each in given}
        if len(names) < 2 or len(uris) > 1 or uris == {"None"} or (code and not code.has(*OUR_SHARDS, ".shard")):
            continue
        seeds = [(each.get("ShuffleConfig") or {}).get("Seed") for each in given]
        shown = ", ".join(names)
        if len({*seeds}) > 1 and (code or not group.own_data):
            yield finding("shuffle-seeds", request.at("Seed"), channels=shown, seeds=", ".join(map(str, seeds)))
        if group.own_data and code and code.has(*OUR_SHARDS):
            yield finding("same-data", request.at("InputDataConfig"), channels=shown)


def _of_entrypoint(request: Request) -> Iterator[Finding]:
    launch, algorithm, drivers = request.launch, request.algorithm, "sm_drivers" in request.channels
    if our_launcher_runs(request):
        if launch.command == "train":
            yield finding("command-keeps-sigterm", request.at())
        if unread := unread_arguments(request):
            yield finding("arguments-unread", request.at("ContainerArguments"), words=unread)
    else:
        what = "the SDK's driver" if request.text else launch.distributed or "its basic driver"
        words = algorithm.get("ContainerEntrypoint") or algorithm.get("ContainerArguments")
        starts = f"SDK v3 starts a script of its own, with {what}" if drivers else f"the container starts {words}"
        asked = bool(launch.distributed) or any(key.startswith("ENTRYPOINT_") for key in request.environment)
        # Only our launcher and AWS's toolkit fetch the code that this hyperparameter names.
        asked = asked or (params.SUBMIT_DIR_PARAM in request.hyperparameters and "/opt/ml/code" in str(words))
        severity = Severity.ERROR if request.hosts > 1 or asked else Severity.WARNING
        key = "ContainerEntrypoint" if algorithm.get("ContainerEntrypoint") else "ContainerArguments"
        rule = "not-our-entrypoint" if drivers else "not-our-entrypoint/named"
        yield finding(rule, request.at(key), severity=severity, starts=starts, key=key)
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


def _of_settings(described: Described) -> Iterator[Finding]:
    """Yield settings of our launcher that have no effect in this job."""
    request, job = described.request, described.job
    if job is None or described.problems or not our_launcher_runs(request):
        return
    settings, longest = job.settings, request.part("StoppingCondition").get("MaxRuntimeInSeconds")
    if type(longest) is int and settings.max_runtime > longest:
        place, asked = request.at("ENTRYPOINT_MAX_RUNTIME"), f"{settings.max_runtime:g}"
        yield finding("setting-unused/max-runtime", place, asked=asked, longest=longest)
    # With ENTRYPOINT_MAX_RUNTIME, the launcher begins as much earlier, and SageMaker does not interfere.
    if settings.stop_grace > KILLED_AFTER_SECONDS and not settings.max_runtime:
        yield finding(
            "setting-unused/stop-grace", request.at("ENTRYPOINT_STOP_GRACE"), asked=f"{settings.stop_grace:g}"
        )
    if settings.hang_action is HangAction.RESTART and not settings.restarts:
        yield finding("setting-unused/hang-action", request.at("ENTRYPOINT_HANG_ACTION"))


def _of_groups(described: Described) -> Iterator[Finding]:
    """Yield channels that only some of the hosts have that train together, by their instance groups."""
    request, job, plan = described.request, described.job, described.plan
    if job is None or plan is None or not our_launcher_runs(request):
        return
    readers = {spec.host for spec in plan.processes if spec.reader}
    names = [str(group.get("InstanceGroupName")) for group in request.groups]
    training = [group.name for group in groups_in(request) if readers.intersection(group.hosts)]
    for channel, each in request.channels.items():
        limited = s3_source(each).get("InstanceGroupNames") or names
        having, lacking = ([name for name in training if (name in limited) is there] for there in (True, False))
        if having and lacking:
            severity = Severity.WARNING if job.settings.differences is Reaction.WARN else None
            yield finding(
                "channels-differ",
                request.at(channel, "InstanceGroupNames"),
                severity=severity,
                lacking=", ".join(lacking),
                channel=channel,
                training=json.dumps(training),
            )


def _of_image(request: Request, image: str) -> Iterator[Finding]:
    if AWS_IMAGE.match(request.image) and not image:
        yield finding("image", request.at("TrainingImage"), image=request.image)
    elif AWS_IMAGE.match(request.image):
        yield finding("image/chosen", request.at("TrainingImage"), image=request.image, chosen=repr(image))
    runs_on = image or request.image
    name = runs_on.rpartition("/")[2].lower()
    for_gpus, for_cpus = re.search(r"gpu|cuda|cu1\d\d", name), "cpu" in name or tensorflow_of(runs_on)
    if request.gpus and runs_on and not for_gpus and not AWS_IMAGE.match(runs_on):
        key = "image-and-gpus" if for_cpus else "image-and-gpus/unsaid"
        severity = None if for_cpus else Severity.NOTE
        yield finding(key, request.at("InstanceType"), severity=severity, runs_on=runs_on)
    if not request.gpus and for_gpus:
        yield finding("image-and-gpus/no-gpus", request.at("InstanceType"), severity=Severity.NOTE, runs_on=runs_on)


def no_number(regex: str) -> str:
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
        of_mpirun = _MPIRUN.search(regex)
        if (regex.startswith("^") and prefixed) or of_mpirun:
            rule, name = "metric-anchored/stdout" if of_mpirun else "metric-anchored", str(each.get("Name"))
            without = repr(_MPIRUN.sub("", regex).removeprefix("^"))
            yield finding(rule, request.at(name), name=name, regex=repr(regex), without=without)
        if wrong := no_number(regex):
            name = str(each.get("Name"))
            yield finding("metric-unread", request.at(name), name=name, regex=repr(regex), wrong=wrong)
    profiler = request.body.get("ProfilerConfig") or {"DisableProfiler": True}
    profiler = profiler if isinstance(profiler, dict) else {"DisableProfiler": True}
    profiles = not profiler.get("DisableProfiler") and request.body.get("ProfilerRuleConfigurations")
    hook = request.part("DebugHookConfig")
    collects = hook.get("CollectionConfigurations") or hook.get("HookParameters")
    serves = code is not None and (code.imports("smdebug*") or code.mentions("output/tensors|smdebug"))
    asked = {
        "debugger/tensors": ("DebugHookConfig", collects),
        "debugger/rules": ("DebugRuleConfigurations", request.body.get("DebugRuleConfigurations")),
        "debugger/profile": ("ProfilingParameters", profiler.get("ProfilingParameters")),
    }
    wanted = {rule: key for rule, (key, is_asked) in asked.items() if is_asked and not serves}
    for rule, key in wanted.items():
        yield finding(rule, request.at(key), severity=Severity.WARNING)
    if not wanted and (hook or profiles):
        yield finding("debugger", request.at("DebugHookConfig"))
    source = described.job.program.source if described.job else ""
    if request.body.get("EnableNetworkIsolation") and source.startswith("s3://") and our_launcher_runs(request):
        yield finding("isolated-network/code", request.at("EnableNetworkIsolation"), source=source)
