"""Define the arguments and the help text of each command of `entrypoint`."""

import argparse
import sys
from pathlib import Path

from entrypoint import __version__
from entrypoint.base.errors import ConfigError

_PLACE = "a job's output folder, its record folder, output.tar.gz, or one in s3://"
_EXAMPLES = {
    "": """\
examples:
  entrypoint plan --hosts 3 --mode ps
  entrypoint local train.py --hosts 2 --mode mwms --hyperparameters epochs=3
  entrypoint local --help
""",
    "plan": """\
examples:
  entrypoint plan --hosts 3 --mode parameter_server          # of a job that is made up
  entrypoint plan --hosts 200 --mode horovod --processes-per-host 8    # many hosts: by role; all with --all
  entrypoint plan --hosts 200 --mode horovod --host algo-2
  entrypoint plan --config input/config --json               # of a real job's files, for programs
""",
    "local": """\
examples:
  entrypoint local train.py --hosts 2
  entrypoint local train.py --hosts 3 --mode ps --channel training=data --hyperparameters lr=0.1 epochs=3
  entrypoint local train.py --hosts 2 --mode horovod --processes-per-host 2 --engine docker
  entrypoint local train.py --hosts 3 --mode mwms --fault 'kill algo-2 at 10'
""",
    "host": """\
example, as the command of a container of the image that is called algo-1, with another one called algo-2 beside it:
  entrypoint host algo-1 train.py --hosts 2 --mode mwms --hyperparameters epochs=3
""",
    "doctor": """\
examples, of this machine and of an image:
  entrypoint doctor
  docker run --rm IMAGE entrypoint doctor
and of a job that you have, before it costs anything; exit code 1 if there are errors:
  entrypoint doctor submit_job.py                    # its request, and the training script that it names
  entrypoint doctor request.json src/train.py
  entrypoint doctor train.py --json --strict
  entrypoint doctor --python venv/bin/python examples/submit.py --args train.py --mode mwms --image IMAGE --role ROLE
""",
    "metrics": """\
examples:
  entrypoint metrics                                            # of the names that Keras has
  entrypoint metrics out/train-mpi-20260101-120000 --sdk v3     # of what a job on this machine has told
  entrypoint metrics --name mAP --name images_per_second --sdk json
""",
    "tensorboard": """\
examples:
  entrypoint tensorboard s3://bucket/job/output/output.tar.gz --logdir runs/job
  entrypoint tensorboard /opt/ml --live --logdir /opt/ml/output/tensorboard     # beside a job, in its container
""",
    "mlflow": """\
examples:
  MLFLOW_TRACKING_URI=http://127.0.0.1:5000 entrypoint mlflow out/train-mpi-20260101-120000
  MLFLOW_TRACKING_URI=file:///home/me/mlruns entrypoint mlflow s3://bucket/job/output/output.tar.gz
""",
    "rehearse": """\
examples; exit code 0: go, 1: no-go, 2: it could not be begun:
  entrypoint rehearse submit_job.py --channel training=data/rows
  entrypoint rehearse submit_job.py --price 3.825 --speedup 40
  entrypoint rehearse --python venv/bin/python examples/submit.py --args train.py --mode mwms --image IMAGE --role ROLE
""",
    "replay": """\
examples; exit code 1 if this version would decide otherwise, or the second run ends otherwise:
  entrypoint replay output.tar.gz                 # of a job on SageMaker, as it lies in S3
  entrypoint replay out/train-ps-20260101-120000 --host algo-1
  entrypoint replay output.tar.gz --rerun src/train.py
""",
    "top": """\
examples:
  entrypoint top                                # in a container of the job, or where `entrypoint local` runs
  entrypoint top http://localhost:7979          # of a port that is forwarded to the coordinator's
  entrypoint top out/train-mpi-20260101-120000 --once
""",
    "report": """\
examples:
  entrypoint report out/train-ps-20270101-120000             # a folder of `entrypoint local`
  entrypoint report output.tar.gz --price 3.06               # USD for a host and hour
  entrypoint report s3://bucket/job/output/output.tar.gz --output job.html --rules straggler=1.2,idle=off
""",
    "settings": """\
examples:
  entrypoint settings
  entrypoint settings | grep TIMEOUT
""",
    "train": """\
example, of a host whose folder is another than /opt/ml:
  SAGEMAKER_BASE_DIR=ml entrypoint train
""",
}


_FAULTS = """\
faults: ACTION TARGET [at SECONDS | when TEXT] [for SECONDS]
  kill TARGET            SIGKILL      TARGET is HOST, HOST:PROCESS or all
  stop TARGET            SIGTERM
  pause TARGET           frozen       HOST or HOST:PROCESS
  stall HOST for S       its output is not read
  cut HOST               off the network: packets are dropped
  late HOST for S        starts S seconds after the others
  hide HOST [for S]      its name does not resolve on other hosts, from the start (for S, then) or from a moment on
  fill HOST:FOLDER       no space left in its output or model
  readonly HOST:FOLDER   neither can be written to
PROCESS is a name that `entrypoint plan` shows, or a program that runs there. Without `for`, pause, cut and hide
are permanent. `at` counts from the start of the first host (default: at 0), `when` waits for a line with that text.
  --fault "kill 'algo-2:rank 3' when 'epoch 2'"   --fault 'cut algo-3 at 10 for 3'   --fault 'kill algo-1:orted'
Engine process can kill, stop, pause, stall and late; netns (as root) and docker can do all.
"""


_CHANNELS = """\
channels: NAME=DIR[,OPTION=VALUE]...
  mode=M             File, FastFile or Pipe (FIFOs NAME_0, NAME_1, ..., one for each pass)
  distribution=D     FullyReplicated, or ShardedByS3Key: each host gets a part of the files, in order of their names
  shuffle=SEED       Pipe: the files in another order in each pass
  compression=Gzip   Pipe: the files are expanded
  wrapper=RecordIO   Pipe: each file becomes a record
  attributes=A:B     Pipe: DIR is an augmented manifest, of whose lines A and then B are taken
DIR may be a manifest file, too. Put a / behind a name that ends like an option.
  --channel 'train=rows/,mode=Pipe,distribution=ShardedByS3Key,shuffle=7'   --channel test=rows/test
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands. `command` of its result is the name of the chosen command."""
    raw = argparse.RawDescriptionHelpFormatter
    made = argparse.ArgumentParser(
        prog="entrypoint",
        description="Launches distributed TensorFlow training, on SageMaker and on this machine.",
        epilog=_EXAMPLES[""],
        formatter_class=raw,
    )
    made.add_argument("--version", action="version", version=f"sagemaker-tf-entrypoint {__version__}")
    commands = made.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(name: str, help: str, more: str = "") -> argparse.ArgumentParser:
        text = f"{help[0].upper()}{help[1:]}."
        epilog = "\n".join(filter(None, [_EXAMPLES[name], more]))
        return commands.add_parser(name, help=help, description=text, epilog=epilog, formatter_class=raw)

    _add_plan(add("plan", "print which processes a job starts, where and how; runs nothing"))
    _add_local(add("local", "run a script on simulated hosts of this machine", f"{_CHANNELS}\n{_FAULTS}"))
    _add_host(add("host", "run one host of a job of containers, as compose.yaml starts them", _CHANNELS))
    _add_top(add("top", "show a job while it runs: its hosts, processes, progress and last lines"))
    _add_doctor(
        add("doctor", "print what this machine or image has for each mode; for files, what their job would lack")
    )
    _add_rehearse(add("rehearse", "run what a launch script would submit for a minute on simulated hosts: go or no-go"))
    _add_replay(add("replay", "show what every host of a job knew and decided, second by second"))
    _add_report(add("report", "make a job's report again, from the records of its monitor"))
    _add_metrics(add("metrics", "print metric definitions, with which SageMaker sends a job's metrics to CloudWatch"))
    _add_tensorboard(add("tensorboard", "write a job's metrics and figures as TensorBoard's event files"))
    mlflow = add("mlflow", "write a job's parameters, metrics and figures as a run of MLflow")
    mlflow.set_defaults(command="mlflow")
    mlflow.add_argument("place", metavar="PLACE", help=_PLACE)
    add("settings", "print all settings with their defaults").set_defaults(command="settings")
    add("train", "run a host of the job in /opt/ml: what SageMaker starts on each").set_defaults(command="train")
    return made


def _add_plan(plan: argparse.ArgumentParser) -> None:
    plan.set_defaults(command="plan")
    add = plan.add_argument
    add("--config", type=Path, metavar="DIR", help="folder with resourceconfig.json, or one like /opt/ml")
    add("--hosts", type=int, metavar="N", help="plan an example job on N hosts")
    add("--program", metavar="FILE", help="program of the example job; default: train.py")
    _add_description(plan)
    add("--host", metavar="NAME", help="this host's processes only")
    add("--all", action="store_true", help="every process; else, with more than four hosts, a summary by role")
    add("--json", action="store_true", help="for programs")


def _add_doctor(doctor: argparse.ArgumentParser) -> None:
    doctor.set_defaults(command="doctor")
    add = doctor.add_argument
    add(
        "files",
        nargs="*",
        metavar="FILE",
        help="a launch script (it runs, without a network), a CreateTrainingJob request (.json), "
        "training scripts (they are read, not run)",
    )
    add("--image", default="", metavar="IMAGE", help="the image of the job, if not the request's; judged by its tag")
    add("--strict", action="store_true", help="exit code 1 for warnings, too")
    _add_launch_script(doctor)


def _add_rehearse(rehearse: argparse.ArgumentParser) -> None:
    rehearse.set_defaults(command="rehearse")
    add = rehearse.add_argument
    add(
        "launch",
        metavar="LAUNCH",
        help="a launch script (it runs without a network), or a request, .json",
    )
    add(
        "--engine",
        choices=["process", "netns", "docker"],
        default="",
        help="what a host is; default: process, or netns if the script names /opt/ml itself",
    )
    add("--image", default="sagemaker-tf-entrypoint:latest", metavar="TAG", help="docker; default: %(default)s")
    add("--hosts", type=int, metavar="N", help="simulated hosts; default: the request's, at most 4")
    add("--seconds", type=float, default=60.0, metavar="S", help="of training in a run, at most; default: 60")
    add("--records", type=int, default=2000, metavar="N", help="of each channel, at about; default: 2000")
    add(
        "--channel",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="a local copy of a channel's data, or of some",
    )
    add(
        "--source",
        type=Path,
        metavar="DIR",
        help="the folder of the training script, if the launch script does not lead there",
    )
    add("--output", type=Path, metavar="DIR", help="logs, records, models; default: out/rehearse-LAUNCH-TIME")
    add("--price", type=float, metavar="USD", help="for one host for an hour")
    add("--speedup", type=float, metavar="X", help="how many times as fast the real job is as this one")
    _add_launch_script(rehearse)


def _add_local(local: argparse.ArgumentParser) -> None:
    local.set_defaults(command="local")
    add = local.add_argument
    _add_program(local)
    add("--hosts", type=int, metavar="N", help="1 to 1000; each takes some 20 MB and a second to start; default: 1")
    _add_description(local)
    add("--checkpoints", type=Path, metavar="DIR", help="a folder that every host has as /opt/ml/checkpoints")
    add("--env", action="append", default=[], metavar="K=V", help="for every host; may be repeated")
    add("--output", type=Path, metavar="DIR", help="default: out/PROGRAM-MODE-TIME")
    add("--engine", choices=["process", "netns", "docker"], default="process", help="what a host is; default: process")
    add("--ip", choices=["4", "6", "both"], default="4", help="netns: the hosts' addresses; default: 4, of IPv4 alone")
    add("--image", default="sagemaker-tf-entrypoint:latest", metavar="TAG", help="docker; default: %(default)s")
    add("--shm-size", metavar="SIZE", help="docker: size of /dev/shm, such as 1g; default: Docker's")
    add("--plan", action="store_true", help="print the plan of this run, and run nothing")
    add("--all", action="store_true", help="with --plan: every process, however many hosts there are")
    add("--timeout", type=float, metavar="S", help="stop after S seconds, as SageMaker would")
    add(
        "--watch",
        type=int,
        nargs="?",
        const=0,
        metavar="PORT",
        help="show the job while it runs, on a page at this port of localhost; without PORT: at any",
    )
    add(
        "--tensorboard",
        type=int,
        nargs="?",
        const=6006,
        metavar="PORT",
        help="write TensorBoard's event files of the job while it runs, and serve them; without PORT: at 6006",
    )
    add("--fault", action="append", default=[], metavar="FAULT", help="a fault to inject; may be repeated; see below")


def _add_host(host: argparse.ArgumentParser) -> None:
    host.set_defaults(command="host", group=[])
    add = host.add_argument
    add("host", metavar="HOST", help="this host's name: algo-1, algo-2, ...")
    _add_program(host)
    add("--hosts", default="2", metavar="N", help="hosts of the job; default: 2")
    add("--most", type=int, metavar="N", help="the largest number of hosts")
    _add_job(host)
    add("--env", action="append", default=[], metavar="K=V", help="for this host; may be repeated")


def _add_top(top: argparse.ArgumentParser) -> None:
    top.set_defaults(command="top")
    top.add_argument(
        "where",
        nargs="?",
        default="",
        metavar="WHERE",
        help="http://HOST:PORT of a coordinator, or the output folder of `entrypoint local`; default: the job of this "
        "container, else the newest in out/",
    )
    top.add_argument("--once", action="store_true", help="print it once, as it is now")


def _add_metrics(metrics: argparse.ArgumentParser) -> None:
    metrics.set_defaults(command="metrics")
    add = metrics.add_argument
    add("place", nargs="?", metavar="PLACE", help="a job's output, as for `report`: define the metrics that it printed")
    add("--name", action="append", default=[], metavar="NAME", help="of this metric; may be repeated")
    add("--sdk", choices=["v2", "v3", "json"], default="v2", help="for which SageMaker SDK, or as JSON; default: v2")


def _add_tensorboard(tensorboard: argparse.ArgumentParser) -> None:
    tensorboard.set_defaults(command="tensorboard")
    add = tensorboard.add_argument
    add("place", metavar="PLACE", help=_PLACE)
    add("--logdir", type=Path, default=Path("tensorboard"), metavar="DIR", help="default: tensorboard")
    add("--live", action="store_true", help="follow the job while it runs; PLACE is then a folder")


def _add_replay(replay: argparse.ArgumentParser) -> None:
    replay.set_defaults(command="replay")
    add = replay.add_argument
    add("bundle", metavar="BUNDLE", help="what a job left: its output folder, output.tar.gz, or s3://.../output.tar.gz")
    add("--host", metavar="NAME", help="this host alone")
    add("--rerun", type=Path, metavar="SCRIPT", help="run it on simulated hosts, with the faults that the job had")
    add("--engine", choices=["process", "netns", "docker"], default="process", help="of --rerun; default: process")
    add("--output", type=Path, metavar="DIR", help="of --rerun; default: out/SCRIPT-rerun-TIME")


def _add_report(report: argparse.ArgumentParser) -> None:
    report.set_defaults(command="report")
    add = report.add_argument
    add("place", metavar="PLACE", help=_PLACE)
    add("--price", metavar="USD", help="of a host for an hour, for the bill")
    add("--output", type=Path, default=Path("report.html"), metavar="FILE", help="default: report.html")
    add("--rules", default="", metavar="NAME=N,...", help="thresholds instead of the job's; see docs/report.md")


def _add_launch_script(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--python", default=sys.executable, metavar="PYTHON", help="runs the launch script: that of the SageMaker SDK")
    add("--json", action="store_true", help="for programs")
    add(
        "--args",
        nargs=argparse.REMAINDER,
        default=[],
        metavar="...",
        help="all further words are arguments of the launch script",
    )


def _add_program(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("program", type=Path, metavar="PROGRAM", help="a .py or .sh file; its folder is the code")
    add("--source", type=Path, metavar="DIR", help="the code folder, if not that of the program")


def _add_description(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--group",
        action="append",
        default=[],
        metavar="NAME=N[:TYPE]",
        help="N hosts of an instance group, instead of --hosts; may be repeated",
    )
    _add_job(parser)


def _add_job(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--mode",
        metavar="M",
        type=_mode,
        help="single, ps (parameter_server), mwms (multi_worker_mirrored) or mpi (horovod); default: from the "
        "hyperparameters",
    )
    add("--processes-per-host", type=int, metavar="K", help="ranks (mpi) or workers (ps, mwms)")
    add(
        "--hyperparameters",
        nargs="*",
        action="extend",
        default=[],
        metavar="K=V",
        help="passed to the script unchanged; values may contain any text",
    )
    add(
        "--channel",
        action="append",
        default=[],
        metavar="NAME=DIR[,OPTION=VALUE]...",
        help="input data; may be repeated; options: `entrypoint local --help`",
    )
    add(
        "--input-mode",
        choices=["File", "FastFile", "Pipe"],
        default="File",
        metavar="M",
        help="File, FastFile or Pipe, of channels without mode=; default: File",
    )


def _mode(text: str) -> str:
    from entrypoint.launcher.job.settings import mode_named

    try:
        return mode_named(text)
    except ValueError as wanted:
        raise ConfigError(f"--mode is {text!r}; wanted {wanted}") from None
