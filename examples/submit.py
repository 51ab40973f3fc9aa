"""Starts a training job on our image with SageMaker's Python SDK: v2 (Estimator) or v3 (ModelTrainer), as installed.

    python examples/submit.py examples/digits/train.py --mode mwms --instances 2 --local
    python examples/submit.py examples/deepfm/train.py --mode ps --instances 3 --env ENTRYPOINT_PS_WORKERS=server \\
        --channel training=s3://bucket/rows/ --image 123456789012.dkr.ecr.eu-west-1.amazonaws.com/my-training:1 \\
        --role arn:aws:iam::123456789012:role/Training

--local runs the same call in the SDK's local mode: Docker on this machine, no AWS account. --build builds the image
first, and pushes it unless the job is local. --dry-run prints the request that would be sent. The two functions
`with_...` are for copying; docs/sagemaker.md says more about each option.
"""

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

BUILD = Path(__file__).resolve().parents[1] / "build.sh"
LOCAL_IMAGE = "sagemaker-tf-entrypoint:latest"
NOBODY = "arn:aws:iam::000000000000:role/nobody"  # where no AWS account is asked


def with_estimator(args, boto_session):
    """Submit by SDK v2."""
    from sagemaker.estimator import Estimator
    from sagemaker.inputs import FileSystemInput, ShuffleConfig, TrainingInput
    from sagemaker.local import LocalSession
    from sagemaker.session import Session

    if args.local:
        session = LocalSession(boto_session)
        session.config = {"local": {"local_code": True}}  # the code is mounted, not uploaded to S3
        where = {"instance_type": "local", "output_path": f"file://{args.output}"}
    else:
        session = Session(boto_session)
        where = {
            "instance_type": args.instance_type,
            "volume_size": args.volume_size,
            "output_path": args.output,
            "max_run": args.max_run,
            "subnets": args.subnets,
            "security_group_ids": args.security_groups,
            "encrypt_inter_container_traffic": args.encrypt,
            "keep_alive_period_in_seconds": args.keep_alive,
            "enable_remote_debug": args.remote_debug,
            "use_spot_instances": args.spot,
            "max_wait": args.max_wait,
            "checkpoint_s3_uri": args.checkpoints,
            "tags": [{"Key": key, "Value": value} for key, value in args.tags],
            # SageMaker Debugger: this SDK asks for it by default, and no library of it is in our image.
            "debugger_hook_config": False,
            "disable_profiler": True,
        }

    estimator = Estimator(
        image_uri=args.image,
        role=args.role,
        instance_count=args.instances,
        entry_point=args.program.name,
        source_dir=str(args.program.parent),
        hyperparameters=args.hyperparameters,
        # The mode is here because Estimator takes `distribution=` and drops it without a word.
        environment=args.environment,
        metric_definitions=[{"Name": name, "Regex": regex} for name, regex in args.metrics],
        sagemaker_session=session,
        **where,
    )

    def source(channel):
        found = file_system(channel.source)
        if found:
            return FileSystemInput(found.id, found.type, found.path, channel.access, channel.content_type)
        if not channel.source.startswith("s3://"):
            return f"file://{Path(channel.source).resolve()}"
        return TrainingInput(
            channel.source,
            s3_data_type=channel.type,
            input_mode=channel.mode,
            distribution=channel.distribution,
            shuffle_config=None if channel.shuffle is None else ShuffleConfig(channel.shuffle),
            compression=channel.compression,
            record_wrapping=channel.wrapper,
            attribute_names=channel.attributes,
            content_type=channel.content_type,
        )

    estimator.fit({channel.name: source(channel) for channel in args.channels} or None, wait=args.wait)


def with_model_trainer(args, boto_session):
    """Submit by SDK v3."""
    from sagemaker.core.helper.session_helper import Session
    from sagemaker.core.training import configs
    from sagemaker.train.model_trainer import Mode, ModelTrainer

    if args.local:
        where = {
            "training_mode": Mode.LOCAL_CONTAINER,
            "compute": configs.Compute(instance_type="local_cpu", instance_count=args.instances),
            "local_container_root": args.output,
        }
    else:
        where = {
            "sagemaker_session": Session(boto_session),
            "compute": configs.Compute(
                instance_type=args.instance_type,
                instance_count=args.instances,
                volume_size_in_gb=args.volume_size,
                keep_alive_period_in_seconds=args.keep_alive,
                enable_managed_spot_training=args.spot,
            ),
            "stopping_condition": configs.StoppingCondition(
                max_runtime_in_seconds=args.max_run, max_wait_time_in_seconds=args.max_wait
            ),
            "networking": configs.Networking(
                subnets=args.subnets,
                security_group_ids=args.security_groups,
                enable_inter_container_traffic_encryption=args.encrypt,
            ),
            "output_data_config": configs.OutputDataConfig(s3_output_path=args.output) if args.output else None,
            "checkpoint_config": configs.CheckpointConfig(s3_uri=args.checkpoints) if args.checkpoints else None,
            "tags": [configs.Tag(key=key, value=value) for key, value in args.tags] or None,
        }

    trainer = ModelTrainer(
        training_image=args.image,
        role=args.role,
        # No source_code: with it, SageMaker starts a script of the SDK's in the place of our image's entrypoint. So the
        # code comes as channel `code`, and what to run is said as SDK v2 says it by itself. (Another way: tf_launcher.)
        hyperparameters={"sagemaker_program": args.program.name, **args.hyperparameters},
        environment=args.environment,
        **where,
    )
    if args.metrics:
        trainer.with_metric_definitions([configs.MetricDefinition(name=n, regex=regex) for n, regex in args.metrics])
    if args.remote_debug:
        trainer.with_remote_debug_config(configs.RemoteDebugConfig(enable_remote_debug=True))

    def source(channel):
        found = file_system(channel.source)
        if found:
            system = configs.FileSystemDataSource(
                file_system_id=found.id,
                file_system_type=found.type,
                directory_path=found.path,
                file_system_access_mode=channel.access,
            )
            data = configs.DataSource(file_system_data_source=system)
            return configs.Channel(channel_name=channel.name, data_source=data, content_type=channel.content_type)
        if not channel.source.startswith("s3://"):
            return configs.InputData(channel_name=channel.name, data_source=channel.source)
        data = configs.S3DataSource(
            s3_data_type=channel.type,
            s3_uri=channel.source,
            s3_data_distribution_type=channel.distribution,
            attribute_names=channel.attributes,
        )
        return configs.Channel(
            channel_name=channel.name,
            data_source=configs.DataSource(s3_data_source=data),
            input_mode=channel.mode,
            shuffle_config=None if channel.shuffle is None else configs.ShuffleConfig(seed=channel.shuffle),
            compression_type=channel.compression,
            record_wrapper_type=channel.wrapper,
            content_type=channel.content_type,
        )

    code = configs.InputData(channel_name="code", data_source=str(args.program.parent))
    trainer.train(input_data_config=[code, *map(source, args.channels)], wait=args.wait)


def file_system(text):
    """Return what `efs://ID/FOLDER` or `fsx://ID/FOLDER` names; None for any other text."""
    url = urlsplit(text)
    types = {"efs": "EFS", "fsx": "FSxLustre"}
    return SimpleNamespace(id=url.netloc, type=types[url.scheme], path=url.path) if url.scheme in types else None


# --- channels: NAME=SOURCE[,OPTION=VALUE]..., as `entrypoint local --channel` has them ---

Wrong = argparse.ArgumentTypeError
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
OPTIONS_AT_THE_END = re.compile(r"(,content-type=[^,]*|,[a-z-]+=[^,/]*)*$")  # a slash ends a source like an option


OPTIONS = {  # the pattern of each value, and what it wants in words; "": one of those in the pattern
    "mode": ("File|FastFile|Pipe", ""),
    "distribution": ("FullyReplicated|ShardedByS3Key", ""),
    "shuffle": ("[0-9]{1,18}", "a seed, a whole number"),
    "compression": ("None|Gzip", ""),
    "wrapper": ("None|RecordIO", ""),
    "attributes": ("[^:]+(:[^:]+){0,15}", "1 to 16 names with : between them"),
    "type": ("S3Prefix|ManifestFile|AugmentedManifestFile", ""),
    "content-type": (".+", "a type such as text/csv"),
    "access": ("ro|rw", ""),
}
OF_PIPES = ("shuffle", "compression", "wrapper", "attributes")
OF_FILE_SYSTEMS = ("access", "content-type")


def channel(text):
    """Read one --channel; raise ArgumentTypeError if SageMaker cannot provide it."""
    name, equals, rest = text.partition("=")
    found = OPTIONS_AT_THE_END.search(rest)
    source = rest[: found.start()]
    if not (NAME.fullmatch(name) and equals and source):
        raise Wrong(f"found {text!r}; wanted NAME=SOURCE and then options, NAME of 1 to 64 letters, digits, . - and _")
    if name == "code":
        raise Wrong("code is the channel of the script's own folder; wanted another name")
    given = {}
    for option in found[0].split(",")[1:]:
        key, _, value = option.partition("=")
        if key not in OPTIONS:
            ends = "add a / to a source that ends like an option"
            raise Wrong(f"{name} has option {key!r}; wanted one of {', '.join(OPTIONS)} ({ends})")
        pattern, wanted = OPTIONS[key]
        if not re.fullmatch(pattern, value):
            raise Wrong(f"{name} has {key}={value!r}; wanted {wanted or 'one of ' + pattern.replace('|', ', ')}")
        given[key] = int(value) if key == "shuffle" else value.split(":") if key == "attributes" else value
    for key in ("compression", "wrapper"):
        if given.get(key) == "None":
            given[key] = None
    check(name, source, given)
    made = {**dict.fromkeys(OPTIONS), "distribution": "FullyReplicated", "type": "S3Prefix", "access": "ro"}
    if given.get("attributes"):
        made["type"] = "AugmentedManifestFile"
    made |= given
    return SimpleNamespace(name=name, source=source, content_type=made.pop("content-type"), **made)


def check(name, source, given):
    """Raise ArgumentTypeError if options contradict the source or one another."""
    if file_system(source):
        for key in given:
            if key not in OF_FILE_SYSTEMS:
                raise Wrong(f"{name} has {key}, and is a file system; wanted {' and '.join(OF_FILE_SYSTEMS)} at most")
        return
    if "access" in given:
        raise Wrong(f"{name} has access, and is {source}; wanted that with efs:// or fsx:// only")
    mode, kind = given.get("mode"), given.get("type")
    for key in OF_PIPES:
        if mode != "Pipe" and given.get(key) is not None:
            raise Wrong(f"{name} has {key}, and its mode is {mode or 'File'}; wanted mode=Pipe, or no {key}")
    if kind == "AugmentedManifestFile" and "attributes" not in given:
        raise Wrong(f"{name} has type={kind}; wanted mode=Pipe and attributes=A:B, which of a line to send")
    if "attributes" in given and kind not in (None, "AugmentedManifestFile"):
        raise Wrong(f"{name} has attributes and type={kind}; wanted type=AugmentedManifestFile, or none")
    if mode == "FastFile" and kind == "ManifestFile":
        raise Wrong(f"{name} has mode=FastFile and type={kind}; wanted mode File or Pipe, or the prefix itself")


def check_together(channels, local):
    """Return the error in the channels of one job, or nothing."""
    listed = [each.name for each in channels]
    for each in channels:
        if listed.count(each.name) > 1:
            return f"--channel names {each.name} twice; wanted each channel once"
        if not local and urlsplit(each.source).scheme not in ("s3", "efs", "fsx"):
            return f"--channel {each.name} is {each.source}; wanted s3://, efs:// or fsx://, or a folder with --local"
        if local and (each.mode not in (None, "File") or each.distribution != "FullyReplicated"):
            found = each.distribution if each.mode in (None, "File") else f"mode={each.mode}"
            return (
                f"--channel {each.name} has {found}, and the SDK's local mode only mounts folders; wanted none, or "
                "`entrypoint local`, which has them"
            )
    return None


# --- what was asked for ---


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    pairs = {"action": "append", "default": [], "type": pair}
    add("program", type=Path, help="a .py or .sh file; its folder is the code")
    add("--mode", choices=["single", "ps", "mwms", "mpi", "jax"], default="single", help="default: single")
    add("--instances", type=int, default=1, metavar="N", help="default: 1")
    add("--instance-type", default="ml.c5.xlarge", help="default: ml.c5.xlarge")
    add("--processes-per-host", metavar="K", help="ranks (mpi), processes (jax) or workers (ps, mwms)")
    add("--image", help=f"in ECR; default with --local: {LOCAL_IMAGE}")
    add("--build", action="store_true", help="first run ./build.sh, with --push where the image is in ECR")
    add("--role", help="ARN of the role that the job has; not needed with --local")
    add("--region", help="default: that of your AWS configuration")
    sources = "s3://..., efs://FILE-SYSTEM/FOLDER, fsx://FILE-SYSTEM/MOUNT-NAME/FOLDER; with --local a folder"
    of_channels = {"dest": "channels", "metavar": "NAME=SOURCE[,OPTION=VALUE]...", "type": channel}
    add("--channel", **pairs | of_channels, help=f"{sources}. Options: {', '.join(OPTIONS)}")
    wanted = "for the script; JSON where V is JSON, else text"
    add("--hyperparameters", nargs="+", **pairs | {"action": "extend"}, metavar="K=V", help=wanted)
    add("--env", **pairs, metavar="K=V", help="such as ENTRYPOINT_STOP_GRACE=110; may be repeated")
    add("--volume-size", type=int, default=30, metavar="GB", help="disk of each host, for File mode; default: 30")
    add("--tags", nargs="+", **pairs | {"action": "extend"}, metavar="K=V", help="of the job, such as project=clicks")
    add("--output", help="where model and output go: s3://..., or a new folder with --local")
    add("--metric", **pairs, dest="metrics", metavar="NAME=REGEX", help="what CloudWatch is to find in the log")
    add("--max-run", type=int, default=86_400, metavar="S", help="default: a day")
    add("--subnets", nargs="+", metavar="ID")
    add("--security-groups", nargs="+", metavar="ID", help="members must be allowed to reach one another")
    add("--encrypt", action="store_true", help="the traffic between hosts")
    add("--keep-alive", type=int, metavar="S", help="keep the machines for the next job (a warm pool)")
    add("--remote-debug", action="store_true", help="allow a shell in the running containers, by SSM")
    add("--spot", action="store_true", help="spot instances: cheaper, but may be interrupted")
    add("--max-wait", type=int, metavar="S", help="with --spot: waiting included; default: twice --max-run")
    add("--checkpoints", metavar="S3-URI", help="copied to and from /opt/ml/checkpoints")
    add("--local", action="store_true", help="run on this machine, in Docker")
    add("--dry-run", action="store_true", help="print the request; send nothing but the SDK's own telemetry")
    add("--no-wait", action="store_false", dest="wait", help="do not wait for the end of the job")
    args = parser.parse_args(argv)

    if not args.program.is_file():
        parser.error(f"there is no program {args.program}")
    if not args.local and not (args.image and args.role):
        parser.error("wanted --image and --role, or --local")
    if args.local and args.build and args.image:
        parser.error(f"--local, --build and --image: the image built for this machine is {LOCAL_IMAGE}")
    if args.local and args.dry_run:
        parser.error("--local and --dry-run: a run on this machine sends no request")
    if args.local and not args.wait:
        parser.error("--local and --no-wait: SDK v3 would clean up while the job runs")
    if bool(args.subnets) != bool(args.security_groups):
        parser.error("--subnets and --security-groups: wanted both or neither")
    if args.spot and args.keep_alive:
        parser.error("--spot and --keep-alive: SageMaker keeps no warm pools of spot instances")
    if problem := check_together(args.channels, args.local):
        parser.error(problem)
    args.program = args.program.resolve()
    args.hyperparameters = {name: as_json(value) for name, value in args.hyperparameters}
    args.environment = {"ENTRYPOINT_MODE": args.mode, **dict(args.env)}
    if args.processes_per_host:
        args.environment["ENTRYPOINT_PROCESSES_PER_HOST"] = args.processes_per_host
    if args.spot and not args.max_wait:
        args.max_wait = 2 * args.max_run
    if args.local:
        args.image = args.image or LOCAL_IMAGE
        args.role = NOBODY
        output = Path(args.output or tempfile.mkdtemp(prefix="submit-")).resolve()
        output.mkdir(parents=True, exist_ok=True)
        if any(output.iterdir()):  # v3 would give the model in it to the new job
            parser.error(f"--output {output} is not empty; wanted a new folder")
        args.output = str(output)
    return args


def pair(text):
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise Wrong(f"found {text!r}; wanted NAME=VALUE")
    return name, value


def as_json(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


# --- the AWS side ---


def build(args):
    """Build the image under the name that the job uses."""
    push = [] if args.local else ["--push", args.image]
    # What it prints is for people; stdout may be wanted for a dry run's request alone.
    built = subprocess.run([BUILD, *push, *(["--dry-run"] if args.dry_run else [])], stdout=sys.stderr)
    if built.returncode:
        sys.exit(f"submit.py: {BUILD} ended with {built.returncode}; see its output above")


def session_for(args):
    """Return a session of boto3, and the list to which a dry run's request will be added."""
    import boto3

    requests = []
    if not args.dry_run:
        region = args.region or ("us-east-1" if args.local and not boto3.Session().region_name else None)
        return boto3.Session(region_name=region), requests

    def answer(model, params, **_):
        if model.name == "CreateTrainingJob":  # checked by then against boto3's description of the API
            requests.append(json.loads(params["body"]))
        if model.service_model.service_name == "iam":  # v3 looks what the role may do, and goes on where it must not
            return SimpleNamespace(status_code=403), {"Error": {"Code": "AccessDenied", "Message": "a dry run"}}
        return SimpleNamespace(status_code=200), {
            "Account": "000000000000",
            "Buckets": [],
            "TrainingJobArn": "arn:aws:sagemaker:us-east-1:000000000000:training-job/dry-run",
            "TrainingJobName": "dry-run",
        }

    session = boto3.Session("nobody", "nothing", region_name=args.region or boto3.Session().region_name or "us-east-1")
    session.events.register("before-call", answer)
    return session, requests


def main(argv=None):
    args = parse(argv)
    if not importlib.util.find_spec("sagemaker"):
        sys.exit(
            "submit.py: found no SageMaker SDK; wanted `pip install sagemaker`, or `pip install 'sagemaker[local]<3'`"
        )
    if args.build:
        build(args)
    run = with_model_trainer if importlib.util.find_spec("sagemaker.train") else with_estimator
    session, requests = session_for(args)
    args.wait = args.wait and not args.dry_run
    run(args, session)
    for request in requests:
        print(json.dumps(request, indent=1))
    if args.local:
        print(f"model and output are in {args.output}")


if __name__ == "__main__":
    main()
