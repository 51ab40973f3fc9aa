"""Check a request for values that SageMaker's API would refuse: by botocore's model, or because they conflict."""

import contextlib
import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from entrypoint.base.errors import WHEEL, clip, did_you_mean, nearest
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
            unknown = re.search(r'Unknown parameter in .*: "(\w+)", must be one of: (.*)', line)
            near = nearest(unknown[1], unknown[2].split(", ")) if unknown else ""
            yield finding("api", request.at(word[1] if word else ""), found=line, instead=near)
        if report.has_errors():  # what has the wrong type is not looked at further
            return
        for problem in _against(shape, request.body, ()):
            yield _told(request, problem)
    for check in (_of_limits, _of_channels, _of_image):
        with contextlib.suppress(AttributeError, TypeError, ValueError):  # without botocore, of wrong types
            for problem in check(request):
                yield _told(request, problem)


class Problem(NamedTuple):
    """Describe what the API would refuse."""

    key: str | tuple[str, ...]  # where: a key, or the keys that lead to it
    found: str
    instead: str
    value: object = None  # of the key
    is_unsure: bool = False  # a botocore that is older than a name does not know it


def _told(request: Request, problem: Problem) -> Finding:
    path = (problem.key,) if isinstance(problem.key, str) else problem.key
    place = request.at(*path, value=problem.value)
    severity = Severity.WARNING if problem.is_unsure else None
    return finding("api", place, severity=severity, found=problem.found, instead=problem.instead)


@functools.cache  # reading the API's model takes a quarter of a second
def _shape_of_a_request() -> Any:
    import botocore.session

    model = botocore.session.get_session().get_service_model("sagemaker")
    return model.operation_model("CreateTrainingJob").input_shape


@functools.cache
def _regions() -> frozenset[str]:
    """Return the regions that botocore knows; none if it is missing or has no such table."""
    try:
        import botocore.session

        table = botocore.session.get_session().get_component("data_loader").load_data("partitions")
    except Exception:
        return frozenset()
    return frozenset(region for each in table["partitions"] for region in each["regions"] if region[-1].isdigit())


def _against(shape: Any, value: Any, path: tuple[str, ...]) -> Iterator[Problem]:
    """Yield each value that is not in its shape's enumeration, or that breaks its pattern, length or range."""
    if value is None:
        return
    key = ".".join(path[-2:])
    match shape.type_name:
        case "structure":
            for name, inside in value.items():
                if name in shape.members:
                    yield from _against(shape.members[name], inside, (*path, name))
        case "list":
            yield from _of_size(shape, len(value), f"{key} has {len(value)} entries", path)
            for inside in value:
                yield from _against(shape.member, inside, path)
        case "map":
            yield from _of_size(shape, len(value), f"{key} has {len(value)} entries", path)
            for name, inside in value.items():
                yield from _against(shape.key, name, (*path, name))
                yield from _against(shape.value, inside, (*path, name))
        case "integer" | "long":
            yield from _of_size(shape, value, f"{key} is {value}", path)
        case "string":
            shown = f"{key} is {clip(repr(value), 60)}"
            yield from _of_size(shape, len(value), f"{key} has {len(value)} characters", path)
            if shape.enum and value not in shape.enum:
                near = did_you_mean(value, shape.enum)
                known = f"takes {listed(shape.enum, 9)}" if len(shape.enum) <= 9 else "AWS does not know"
                instead, is_unsure = (
                    nearest(value, shape.enum) or "one of the names that AWS has",
                    path[-1] == "InstanceType",
                )
                yield Problem(path, f"{shown}, which {known}{near}", instead, value, is_unsure)
            elif not _fits(shape.metadata.get("pattern", ""), value):
                what = f"{shown}, which does not fit {shape.metadata['pattern']}"
                yield Problem(path, what, "a value of that form", value)


def _of_size(shape: Any, size: int, found: str, path: tuple[str, ...]) -> Iterator[Problem]:
    least, most = (shape.metadata.get(name) for name in ("min", "max"))
    if most is not None and size > most:
        yield Problem(path, f"{found}; AWS takes {most} at most", f"{most} or fewer")
    elif least is not None and size < least:
        yield Problem(path, f"{found}; AWS wants {least} at least", f"{least} or more")


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
        yield Problem(
            "EnableManagedSpotTraining", "spot instances without MaxWaitTimeInSeconds", "max_wait=, at least max_run"
        )
    if waits is not None and not is_spot:
        yield Problem(
            "MaxWaitTimeInSeconds", "MaxWaitTimeInSeconds without spot instances", "use_spot_instances=True, or none"
        )
    if is_spot and waits is not None and runs is not None and waits < runs:
        what = (
            f"MaxWaitTimeInSeconds is {waits}, less than MaxRuntimeInSeconds, {runs}: it counts the waiting and the run"
        )
        yield Problem("MaxWaitTimeInSeconds", what, f"{runs} or more")
    if runs is not None and runs > LONGEST_SECONDS:
        yield Problem(
            "MaxRuntimeInSeconds", f"MaxRuntimeInSeconds is {runs}; AWS allows 28 days", f"{LONGEST_SECONDS} or fewer"
        )
    groups, warm = asked.get("InstanceGroups") or [], asked.get("KeepAlivePeriodInSeconds")
    for is_there, what in ((is_spot, "spot instances"), (groups, "instance groups")):
        if warm and is_there:
            yield Problem(
                "KeepAlivePeriodInSeconds",
                f"KeepAlivePeriodInSeconds with {what}, which has no warm pool",
                "one of both",
            )
    if groups and is_spot:
        yield Problem("InstanceGroups", "InstanceGroups with spot instances, which AWS does not combine", "one of both")
    if groups and {"InstanceType", "InstanceCount"} & asked.keys():
        yield Problem("InstanceGroups", "InstanceGroups beside InstanceType and InstanceCount", "one of both")


def _of_channels(request: Request) -> Iterator[Problem]:
    """Yield faults of channels: names used twice, unknown groups, and modes that do not fit their source."""
    channels = list(request.body.get("InputDataConfig") or [])
    groups = {str(each.get("InstanceGroupName")) for each in request.groups}
    for name, count in Counter(str(each.get("ChannelName")) for each in channels).items():
        if count > 1:
            yield Problem(name, f"{count} channels are called {name}", "a name for each")
    for channel in channels:
        name, source = str(channel.get("ChannelName")), channel.get("DataSource") or {}
        files: Mapping[str, Any] = source.get("S3DataSource") or {}
        mode = channel.get("InputMode") or request.algorithm.get("TrainingInputMode") or "File"
        kind = files.get("S3DataType", "S3Prefix")
        for group in files.get("InstanceGroupNames") or []:
            if group not in groups:
                what = f"channel {name} is for instance group {group}, which the job does not have"
                yield Problem(group, f"{what}{did_you_mean(str(group), groups)}", f"one of {listed(sorted(groups), 5)}")
        if source.get("FileSystemDataSource") and not request.body.get("VpcConfig"):
            what = f"channel {name} is on a file system, which only a job in its VPC reaches, and there is no VpcConfig"
            yield Problem("FileSystemDataSource", what, "subnets= and security_group_ids=")
        if mode == "FastFile" and kind != "S3Prefix":
            yield Problem(
                "FastFile",
                f"channel {name} has InputMode FastFile and {kind}: it reads S3Prefix only",
                "File or Pipe",
            )
        if kind == "AugmentedManifestFile" and not files.get("AttributeNames"):
            yield Problem(
                "AugmentedManifestFile",
                f"channel {name} is an augmented manifest without AttributeNames",
                "its names",
            )
        if mode != "Pipe" and channel.get("CompressionType", "None") == "Gzip":
            what = f"channel {name} has CompressionType Gzip in {mode} mode, in which nothing decompresses"
            yield Problem("CompressionType", what, "Pipe mode, or no CompressionType")


def _of_image(request: Request) -> Iterator[Problem]:
    """Yield faults in the address of an image in ECR."""
    registry = request.image.partition("/")[0]
    found = IMAGE.match(request.image)
    if registry.endswith((".amazonaws.com", ".amazonaws.com.cn")) and not found:
        yield Problem("TrainingImage", f"the image's registry is {registry}", "ACCOUNT.dkr.ecr.REGION.amazonaws.com")
    if found and not re.fullmatch(r"\d{12}", found["account"]):
        yield Problem(
            "TrainingImage", f"the image's account is {found['account']}, which has not twelve digits", "the account"
        )
    if found and ".dkr.ecr" not in registry:
        yield Problem(
            "TrainingImage",
            f"the image's registry is {registry}, without .ecr.",
            registry.replace(".dkr.", ".dkr.ecr."),
        )
    region, known = found["region"] if found else "", _regions()
    if found and region not in known and (known or not REGION.fullmatch(region)):
        what = f"the image's region is {region}, which AWS does not have{did_you_mean(region, known)}"
        yield Problem(
            "TrainingImage", what, nearest(region, known) or "its region", is_unsure=bool(REGION.fullmatch(region))
        )
