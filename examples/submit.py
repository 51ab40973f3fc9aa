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
    """SDK v2."""
    from sagemaker.estimator import Estimator
    from sagemaker.inputs import FileSystemInput
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

    def source(text):
        found = file_system(text)
        if found:
            return FileSystemInput(found.id, found.type, found.path, "ro")
        return text if text.startswith("s3://") else f"file://{Path(text).resolve()}"

    estimator.fit({name: source(text) for name, text in args.channels} or None, wait=args.wait)


def with_model_trainer(args, boto_session):
    """SDK v3."""
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
        }

    trainer = ModelTrainer(
        training_image=args.image,
        role=args.role,
        # No source_code: with it, SageMaker starts a script of the SDK's in the place of our image's entrypoint. So the
        # code comes as channel `code`, and what to run is said as SDK v2 says it by itself.
        hyperparameters={"sagemaker_program": args.program.name, **args.hyperparameters},
        environment=args.environment,
        **where,
    )
    if args.metrics:
        trainer.with_metric_definitions([configs.MetricDefinition(name=n, regex=regex) for n, regex in args.metrics])
    if args.remote_debug:
        trainer.with_remote_debug_config(configs.RemoteDebugConfig(enable_remote_debug=True))

    def source(text):
        found = file_system(text)
        if found:
            return configs.FileSystemDataSource(
                file_system_id=found.id,
                file_system_type=found.type,
                directory_path=found.path,
                file_system_access_mode="ro",
            )
        return text

    sources = [("code", str(args.program.parent)), *args.channels]
    inputs = [configs.InputData(channel_name=name, data_source=source(text)) for name, text in sources]
    trainer.train(input_data_config=inputs, wait=args.wait)


def file_system(text):
    """What `efs://ID/FOLDER` or `fsx://ID/FOLDER` names; None for any other text."""
    url = urlsplit(text)
    types = {"efs": "EFS", "fsx": "FSxLustre"}
    return SimpleNamespace(id=url.netloc, type=types[url.scheme], path=url.path) if url.scheme in types else None


# --- what was asked for ---


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    pairs = {"action": "append", "default": [], "type": pair}
    add("program", type=Path, help="a .py or .sh file; its folder is the code")
    add("--mode", choices=["single", "ps", "mwms", "mpi"], default="single", help="default: single")
    add("--instances", type=int, default=1, metavar="N", help="default: 1")
    add("--instance-type", default="ml.c5.xlarge", help="default: ml.c5.xlarge")
    add("--processes-per-host", metavar="K", help="ranks (mpi) or workers (ps, mwms)")
    add("--image", help=f"in ECR; default with --local: {LOCAL_IMAGE}")
    add("--build", action="store_true", help="first run ./build.sh, with --push where the image is in ECR")
    add("--role", help="ARN of the role that the job has; not needed with --local")
    add("--region", help="default: that of your AWS configuration")
    sources = "s3://..., efs://FILE-SYSTEM/FOLDER, fsx://FILE-SYSTEM/MOUNT-NAME/FOLDER; with --local a folder"
    add("--channel", **pairs, dest="channels", metavar="NAME=SOURCE", help=sources)
    wanted = "for the script; JSON where V is JSON, else text"
    add("--hyperparameters", nargs="+", **pairs | {"action": "extend"}, metavar="K=V", help=wanted)
    add("--env", **pairs, metavar="K=V", help="such as ENTRYPOINT_STOP_GRACE=110; may be repeated")
    add("--output", help="where model and output go: s3://..., or a new folder with --local")
    add("--metric", **pairs, dest="metrics", metavar="NAME=REGEX", help="what CloudWatch is to find in the log")
    add("--max-run", type=int, default=86_400, metavar="S", help="default: a day")
    add("--subnets", nargs="+", metavar="ID")
    add("--security-groups", nargs="+", metavar="ID", help="members must be allowed to reach one another")
    add("--encrypt", action="store_true", help="the traffic between hosts")
    add("--keep-alive", type=int, metavar="S", help="keep the machines for the next job (a warm pool)")
    add("--remote-debug", action="store_true", help="allow a shell in the running containers, by SSM")
    add("--spot", action="store_true", help="spot instances: cheaper, and taken away at times")
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
        parser.error(f"--local, --build and --image: what is built for this machine is {LOCAL_IMAGE}")
    if args.local and args.dry_run:
        parser.error("--local and --dry-run: a run on this machine sends no request")
    if args.local and not args.wait:
        parser.error("--local and --no-wait: SDK v3 would clear up under the running job")
    if bool(args.subnets) != bool(args.security_groups):
        parser.error("--subnets and --security-groups: wanted both or neither")
    if args.spot and args.keep_alive:
        parser.error("--spot and --keep-alive: SageMaker keeps no warm pools of spot instances")
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
        raise argparse.ArgumentTypeError(f"found {text!r}; wanted NAME=VALUE")
    return name, value


def as_json(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


# --- the AWS side ---


def build(args):
    """The image, where the job will look for it."""
    push = [] if args.local else ["--push", args.image]
    # What it prints is for people; stdout may be wanted for a dry run's request alone.
    built = subprocess.run([BUILD, *push, *(["--dry-run"] if args.dry_run else [])], stdout=sys.stderr)
    if built.returncode:
        sys.exit(f"submit.py: {BUILD} ended with {built.returncode}; see what it says above")


def session_for(args):
    """A session of boto3, and the list to which a dry run's request will be added."""
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
