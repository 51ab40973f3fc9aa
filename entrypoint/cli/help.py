"""Run `entrypoint help`, which explains a command or a topic, and `entrypoint settings`, which lists all settings."""

import argparse
import re
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from entrypoint.base.terminal import width_of, wrapped
from entrypoint.cli import main

TOPICS = {
    "channels": """\
--channel NAME=DIR[,OPTION=VALUE]... gives every host a channel of input data:
  mode=M             File, FastFile or Pipe (FIFOs NAME_0, NAME_1, ..., one for
                     each pass); without it, --input-mode holds
  distribution=D     FullyReplicated, or ShardedByS3Key: each host gets a part
                     of the files, in order of their names
  shuffle=SEED       Pipe: the files in another order in each pass
  compression=Gzip   Pipe: the files are expanded
  wrapper=RecordIO   Pipe: each file becomes a record
  attributes=A:B     Pipe: DIR is an augmented manifest, of whose lines A and
                     then B are taken
DIR may be a manifest file, too. Put a / behind a name that ends like an option.
  --channel 'train=rows/,mode=Pipe,distribution=ShardedByS3Key,shuffle=7'
  --channel test=rows/test
""",
    "completion": """\
The extra `tools` lets the Tab key complete commands, options, values and files:
  pip install 'sagemaker-tf-entrypoint[tools]'
and one line in the file that the shell reads at its start: ~/.bashrc,
  eval "$(register-python-argcomplete entrypoint)"
~/.zshrc, behind `autoload -U compinit && compinit`,
  eval "$(register-python-argcomplete entrypoint)"
~/.config/fish/config.fish,
  register-python-argcomplete --shell fish entrypoint | source
""",
    "engines": """\
--engine says what a simulated host is:
  process   processes with a loopback address of their own. /opt/ml is a folder
            below --output, which scripts find by SM_MODEL_DIR and so on, and
            as root also by that name; otherwise, that is this machine's own
  netns     namespaces: eth0, /opt/ml, ports and plan as on SageMaker; needs
            root and iproute2. --ip: IPv4 alone (4), IPv6 alone (6), or both
  docker    a container of --image (of what ./build.sh made) on a private
            network; --shm-size: /dev/shm, such as 1g, instead of Docker's 64m
process is the default; on macOS docker, as the others need Linux. Each host
takes some 20 MB and a second to start.
""",
    "faults": """\
--fault 'ACTION TARGET [at SECONDS | when TEXT] [for SECONDS]'
  kill TARGET            SIGKILL      TARGET is HOST, HOST:PROCESS or all
  stop TARGET            SIGTERM
  pause TARGET           frozen       HOST or HOST:PROCESS
  stall HOST for S       its output is not read
  cut HOST               off the network: packets are dropped
  late HOST for S        starts S seconds after the others
  hide HOST [for S]      its name does not resolve on other hosts, from the
                         start (for S, then) or from a moment on
  fill HOST:FOLDER       no space left in its output or model
  readonly HOST:FOLDER   neither can be written to
PROCESS is a name that `entrypoint plan` shows, or a program that runs there.
Without `for`, pause, cut and hide are permanent. `at` counts from the start of
the first host (default: at 0), `when` waits for a line with that text.
  --fault "kill 'algo-2:rank 3' when 'epoch 2'"
  --fault 'cut algo-3 at 10 for 3'   --fault 'kill algo-1:orted'
Engine process can kill, stop, pause, stall and late; netns and docker all.
""",
    "modes": """\
--mode says how the work is spread over the hosts. Hyphens, underscores and case
do not matter.
  single   the script on every host, nothing shared
  ps       parameter_server: TensorFlow's parameter servers, a chief, workers
  mwms     multi_worker_mirrored: MultiWorkerMirroredStrategy
  mpi      horovod: mpirun and its ranks
  jax      jax.distributed
  auto     by the hyperparameters of SageMaker's SDK; the default
--processes-per-host: ranks (mpi), processes (jax) or workers (ps, mwms).
--group NAME=N[:TYPE] has N hosts of an instance group, instead of --hosts.
""",
    "settings": """\
ENTRYPOINT_NAME=VALUE in the environment (`--env` of local and host), or the
hyperparameter sagemaker_entrypoint_name=VALUE; the environment wins.
`entrypoint settings` prints each with its default and meaning. The names:
""",
}
EPILOGS = {
    "help": """\
examples:
  entrypoint help faults
  entrypoint help local
""",
    "settings": """\
examples:
  entrypoint settings
  entrypoint settings | grep TIMEOUT
""",
}


def add_help(parser: argparse.ArgumentParser) -> None:
    words = dict.fromkeys([*TOPICS, *main.COMMANDS])
    parser.add_argument("word", nargs="?", choices=words, metavar="WORD", help=f"{', '.join(TOPICS)}, or a command")


def run_help(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    if args.word not in TOPICS:
        return main.run([args.word, "--help"] if args.word else ["--help"])
    width = width_of(sys.stdout)
    print(wrapped(TOPICS[args.word], width), end="")
    if args.word == "settings":
        from entrypoint.launcher.job.settings import FOR_USERS

        names = ", ".join(map(str.upper, FOR_USERS))
        print(textwrap.fill(names, width or 79, initial_indent="  ", subsequent_indent="  "))
    return 0


def run_settings(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    from entrypoint.launcher.job import settings

    rows = Path(settings.__file__).with_suffix(".md").read_text("utf-8").splitlines()[2:]
    width = width_of(sys.stdout)
    for row in rows:
        name, default, meaning = (_plain(cell) for cell in row.strip("|").split(" | ", 2))
        if width:
            print(f"{name}={default}", *textwrap.wrap(meaning, max(40, width - 4)), sep="\n    ")
        else:  # a file or a pipe, such as grep's
            print(f"{name}={default}  {meaning}")
    return 0


def _plain(cell: str) -> str:
    """Return a cell of a table in Markdown as plain text, with the page's name for a link."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"docs/\1", cell).replace("`", "").strip(" |")
