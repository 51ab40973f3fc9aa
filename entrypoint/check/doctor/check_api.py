"""Check a request for values that SageMaker's API would refuse: by botocore's model, or because they conflict."""

import contextlib
import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from entrypoint.base.errors import WHEEL, clip, did_you_mean
from entrypoint.base.severity import Severity
from entrypoint.base.wording import listed
from entrypoint.check.doctor.request import Request
from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.finding import Finding

LONGEST_SECONDS = 28 * 86_400  # of a training job, as AWS's quotas have it
IMAGE = re.compile(r"(?P<account>[^.]+)\.dkr\.(?:ecr(?:-fips)?\.)?(?P<region>[^.]+)\.amazonaws\.com(?:\.cn)?/")
REGION = re.compile(
    r"(af|ap|ca|cn|eu|il|me|mx|sa|us)(-gov|-iso[a-z]?)?-(central|(north|south)?(east|west)|north|south)-\d"
)


def of_api(request: Request) -> Iterator[Finding]:
    """Yield the values that the API would refuse.

    The description of a job that has run yields nothing, since the API has accepted it.
    """
    if "TrainingJobStatus" in request.body or request.local:
        return
    try:
        from botocore import validate
    except ImportError:
        if request.text:  # else an SDK has made it, whose client has checked it
            yield finding("api/unchecked", request.at(), severity=Severity.NOTE, WHEEL=WHEEL)
    else:
        shape = _shape_of_a_request()
        report = validate.ParamValidator().validate(request.body, shape)
        for line in report.generate_report().splitlines() if request.text else ():
            word = re.search(r"(\w+)[^\w]*$", line.partition(",")[0])
            yield finding("api", request.at(word[1] if word else ""), found=line)
        if report.has_errors():  # what has the wrong type is not looked at further
            return
        for key, found, instead in _against(shape, request.body, ""):
            # A botocore that is older than an instance type does not know it.
            severity = Severity.WARNING if key == "InstanceType" else None
            yield finding("api", request.at(key), severity=severity, found=found, instead=instead)
    for check in (_of_limits, _of_channels, _of_image):
        with contextlib.suppress(AttributeError, TypeError, ValueError):  # without botocore, of wrong types
            for key, found, instead in check(request):
                yield finding("api", request.at(key), found=found, instead=instead)


@functools.cache  # reading the API's model takes a quarter of a second
def _shape_of_a_request() -> Any:
    import botocore.session

    model = botocore.session.get_session().get_service_model("sagemaker")
    return model.operation_model("CreateTrainingJob").input_shape


Problem = tuple[str, str, str]
"""The key where a request is wrong, what is found there, and what to put instead."""


def _against(shape: Any, value: Any, key: str) -> Iterator[Problem]:
    """Yield each value that is not in its shape's enumeration, or that breaks its pattern, length or range."""
    if value is None:
        return
    match shape.type_name:
        case "structure":
            for name, inside in value.items():
                if name in shape.members:
                    yield from _against(shape.members[name], inside, name)
        case "list":
            yield from _of_size(shape, len(value), f"{key} has {len(value)} entries", key)
            for inside in value:
                yield from _against(shape.member, inside, key)
        case "map":
            yield from _of_size(shape, len(value), f"{key} has {len(value)} entries", key)
            for name, inside in value.items():
                yield from _against(shape.key, name, name)
                yield from _against(shape.value, inside, name)
        case "integer" | "long":
            yield from _of_size(shape, value, f"{key} is {value}", key)
        case "string":
            shown = f"{key} is {clip(repr(value), 60)}"
            yield from _of_size(shape, len(value), f"{key} has {len(value)} characters", key)
            if shape.enum and value not in shape.enum:
                near = did_you_mean(value, shape.enum)
                known = "" if len(shape.enum) > 9 else f", which takes {listed(shape.enum, 9)}"
                yield key, f"{shown}{known or ', which AWS does not know'}{near}", "one of the names that AWS has"
            elif not _fits(shape.metadata.get("pattern", ""), value):
                yield key, f"{shown}, which does not fit {shape.metadata['pattern']}", "a value of that form"


def _of_size(shape: Any, size: int, found: str, key: str) -> Iterator[Problem]:
    least, most = (shape.metadata.get(name) for name in ("min", "max"))
    if most is not None and size > most:
        yield key, f"{found}; AWS takes {most} at most", f"{most} or fewer"
    elif least is not None and size < least:
        yield key, f"{found}; AWS wants {least} at least", f"{least} or more"


def _fits(pattern: str, value: str) -> bool:
    try:
        return not pattern or bool(re.fullmatch(pattern, value, re.DOTALL))
    except re.error:  # of another dialect, such as \p{Alnum}
        return True


def _of_limits(request: Request) -> Iterator[Problem]:
    """Yield limits of time, spot instances, warm pools and instance groups that exclude each other."""
    body, asked = request.body, request.body.get("ResourceConfig") or {}
    stopping, is_spot = body.get("StoppingCondition") or {}, bool(body.get("EnableManagedSpotTraining"))
    runs, waits = stopping.get("MaxRuntimeInSeconds"), stopping.get("MaxWaitTimeInSeconds")
    if is_spot and waits is None:
        yield "EnableManagedSpotTraining", "spot instances without MaxWaitTimeInSeconds", "max_wait=, at least max_run"
    if waits is not None and not is_spot:
        yield "MaxWaitTimeInSeconds", "MaxWaitTimeInSeconds without spot instances", "use_spot_instances=True, or none"
    if is_spot and waits is not None and runs is not None and waits < runs:
        what = (
            f"MaxWaitTimeInSeconds is {waits}, less than MaxRuntimeInSeconds, {runs}: it counts the waiting and the run"
        )
        yield "MaxWaitTimeInSeconds", what, f"{runs} or more"
    if runs is not None and runs > LONGEST_SECONDS:
        yield "MaxRuntimeInSeconds", f"MaxRuntimeInSeconds is {runs}; AWS allows 28 days", f"{LONGEST_SECONDS} or fewer"
    groups, warm = asked.get("InstanceGroups") or [], asked.get("KeepAlivePeriodInSeconds")
    for is_there, what in ((is_spot, "spot instances"), (groups, "instance groups")):
        if warm and is_there:
            yield (
                "KeepAlivePeriodInSeconds",
                f"KeepAlivePeriodInSeconds with {what}, which has no warm pool",
                "one of both",
            )
    if groups and is_spot:
        yield "InstanceGroups", "InstanceGroups with spot instances, which AWS does not combine", "one of both"
    if groups and {"InstanceType", "InstanceCount"} & asked.keys():
        yield "InstanceGroups", "InstanceGroups beside InstanceType and InstanceCount", "one of both"


def _of_channels(request: Request) -> Iterator[Problem]:
    """Yield faults of channels: names used twice, unknown groups, and modes that do not fit their source."""
    channels = list(request.body.get("InputDataConfig") or [])
    groups = {str(each.get("InstanceGroupName")) for each in request.groups}
    for name, count in Counter(str(each.get("ChannelName")) for each in channels).items():
        if count > 1:
            yield name, f"{count} channels are called {name}", "a name for each"
    for channel in channels:
        name, source = str(channel.get("ChannelName")), channel.get("DataSource") or {}
        files: Mapping[str, Any] = source.get("S3DataSource") or {}
        mode = channel.get("InputMode") or request.algorithm.get("TrainingInputMode") or "File"
        kind = files.get("S3DataType", "S3Prefix")
        for group in files.get("InstanceGroupNames") or []:
            if group not in groups:
                what = f"channel {name} is for instance group {group}, which the job does not have"
                yield group, f"{what}{did_you_mean(str(group), groups)}", f"one of {listed(sorted(groups), 5)}"
        if source.get("FileSystemDataSource") and not request.body.get("VpcConfig"):
            what = f"channel {name} is on a file system, which only a job in its VPC reaches, and there is no VpcConfig"
            yield "FileSystemDataSource", what, "subnets= and security_group_ids="
        if mode == "FastFile" and kind != "S3Prefix":
            yield (
                "FastFile",
                f"channel {name} has InputMode FastFile and {kind}: it reads S3Prefix only",
                "File or Pipe",
            )
        if kind == "AugmentedManifestFile" and not files.get("AttributeNames"):
            yield (
                "AugmentedManifestFile",
                f"channel {name} is an augmented manifest without AttributeNames",
                "its names",
            )
        if mode != "Pipe" and channel.get("CompressionType", "None") == "Gzip":
            what = f"channel {name} has CompressionType Gzip in {mode} mode, in which nothing decompresses"
            yield "CompressionType", what, "Pipe mode, or no CompressionType"


def _of_image(request: Request) -> Iterator[Problem]:
    """Yield faults in the address of an image in ECR."""
    registry = request.image.partition("/")[0]
    found = IMAGE.match(request.image)
    if registry.endswith((".amazonaws.com", ".amazonaws.com.cn")) and not found:
        yield "TrainingImage", f"the image's registry is {registry}", "ACCOUNT.dkr.ecr.REGION.amazonaws.com"
    if found and not re.fullmatch(r"\d{12}", found["account"]):
        yield "TrainingImage", f"the image's account is {found['account']}, which has not twelve digits", "the account"
    if found and ".dkr.ecr" not in registry:
        yield (
            "TrainingImage",
            f"the image's registry is {registry}, without .ecr.",
            registry.replace(".dkr.", ".dkr.ecr."),
        )
    if found and not REGION.fullmatch(found["region"]):
        yield "TrainingImage", f"the image's region is {found['region']}, which AWS does not have", "its region"
