"""List the benchmarks that have a page: their options, and how long each takes on a quiet machine of two cores."""

import shlex
import shutil
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.docker import MARK
from benchmarks.machine import ROOT, said
from benchmarks.side_by_side import cases

FILE = "{json}"  # stands for the JSON file in a command
IMAGE = "sagemaker-tf-entrypoint:latest"
OF_221, FOR_GPUS, FOR_GPUS_221 = (f"sagemaker-tf-entrypoint:{tag}" for tag in ("2.21", "2.14-gpu", "2.21-gpu"))
TOOLKIT = "sagemaker-toolkit-for-comparison:latest"
LIKE_AWS = "sagemaker-tf-entrypoint-like-aws:2.21"
ON_LIKE_AWS = "sagemaker-tf-entrypoint-for-comparison:latest"  # side_by_side_on makes it
PULLED = {  # the page's names of images; those that are there are pulled
    "ours": IMAGE, "toolkit": TOOLKIT, "ours, 2.21": OF_221, "ours on the stand-in for AWS, 2.21": ON_LIKE_AWS,
    "the stand-in with the toolkit, 2.21": LIKE_AWS,
    "ours for GPUs, 2.14": FOR_GPUS, "ours for GPUs, 2.21": FOR_GPUS_221,
}  # fmt: skip
HOW = {  # how to get an image
    IMAGE: "./build.sh", OF_221: "./build.sh --tensorflow 2.21", FOR_GPUS: "./build.sh --gpu",
    FOR_GPUS_221: "./build.sh --tensorflow 2.21 --gpu", TOOLKIT: "python -m benchmarks.all --only side_by_side",
    LIKE_AWS: "tests/cluster/make_aws.sh 2.21",
}  # fmt: skip
# Cases that show each mode's start, failure and stop; all cases on this image would take as long as side_by_side.
ON = (
    "start-single-1,start-mwms-2,start-mpi-2x1,start-mpi-8x1,raise-single-1,raise-mwms-2-worker-1,raise-mpi-2-rank-1,"
    "kill-mwms-2-worker-1,stop-single-1,stop-mwms-2"
)

ALL_SIDES = (*cases.SIDES, *(side for side in cases.ON_REQUEST if side != cases.TORCHRUN))

Command = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A benchmark. `commands` run one after another and add to one JSON file, in which FILE is its place."""

    name: str
    what: str  # as its record has it: the name of its JSON file and page
    minutes: float  # on a quiet machine of two cores
    commands: Callable[[Collection[str]], tuple[Command, ...]]  # with these images
    images: tuple[str, ...] = ()  # without which it cannot run
    tools: tuple[str, ...] = ()  # programs that it needs
    in_image: bool = False  # it sees no git, so the record's commit is filled in afterwards
    resumes: bool = False  # it goes on from its JSON file

    def missing(self, images: Collection[str]) -> list[str]:
        """Return what it lacks on this machine, each with what to do."""
        lacks = [f"image {image} ({HOW.get(image, './build.sh')})" for image in self.images if image not in images]
        return lacks + [f"program {tool} (apt-get install {tool})" for tool in self.tools if not shutil.which(tool)]

    def used(self, images: Collection[str]) -> set[str]:
        """Return those of these images that it measures."""
        words = [word for command in self.commands(images) for word in command]
        return {image for image in images if image in self.images or any(word.endswith(image) for word in words)}

    def repeated_by(self, commands: tuple[Command, ...]) -> str:
        """Return the command for the page, without paths of this machine."""
        if len(commands) > 1 or self.in_image:
            return f"python -m benchmarks.all --only {self.name}"
        words = [word.replace(FILE, f"{self.what}.json") for word in commands[0] if word != "--resume"]
        return shlex.join(["python", *words[1:]])


def python(*words: str) -> Command:
    return ("python", "-m", *words)


def _is(*commands: Command) -> Callable[[Collection[str]], tuple[Command, ...]]:
    return lambda _: commands


def _pull(images: Collection[str]) -> tuple[Command, ...]:
    chosen = [f"{name}={image}" for name, image in PULLED.items() if image in images]
    words = ("benchmarks.pull", "--ways", "own", "--rounds", "1", "--images", *chosen, "--json", FILE)
    return (python(*words),)


def _allreduce(images: Collection[str]) -> tuple[Command, ...]:
    chosen = [image for image in (IMAGE, OF_221) if image in images]
    return (python("benchmarks.allreduce", "--rounds", "5", "--images", *chosen, "--json", FILE),)


def _pipe(_: Collection[str]) -> tuple[Command, ...]:
    mounts = ("-v", f"{ROOT / 'benchmarks'}:/benchmarks:ro", "-v", "{folder}:/out")
    words = ("python", "-m", "benchmarks.pipe", "--megabytes", "800", "--rounds", "5", "--json", "/out/{name}")
    return (("docker", "run", "--rm", "--network", "none", "--label", MARK, "-w", "/", *mounts, IMAGE, *words),)


def _deepfm(part: str, *words: str) -> Command:
    return python("benchmarks.deepfm", "--parts", part, *words, "--json", FILE, "--resume")


def _kills(mode: str) -> Command:
    few = ("--kills", "4", "--most", "2", "--unkilled", "2", "--minutes", "8")
    return python("benchmarks.kills", "--mode", mode, "--engine", "docker", *few, "--json", FILE, "--add")


STEPS = (  # the most important first; the sum is at most MOST_MINUTES
    Step(
        name="profile", what="profile", minutes=2, images=(IMAGE,),
        commands=_is(python("benchmarks.profile_start", "--rounds", "5", "--json", FILE)),
    ),
    Step(
        name="side_by_side", what="side-by-side", minutes=82, images=(IMAGE,), resumes=True,
        commands=_is(python(
            "benchmarks.side_by_side", "--sides", ",".join(ALL_SIDES), "--rounds", "2", "--json", FILE, "--resume",
        )),
    ),
    Step(
        name="monitor", what="monitor", minutes=6,
        commands=_is(python("benchmarks.monitor", "--rounds", "3", "--seconds", "20", "--json", FILE)),
    ),
    Step(
        name="many_hosts", what="many-hosts", minutes=4,
        commands=_is(python("benchmarks.many_hosts", "--json", FILE)),
    ),
    Step(
        name="chaos", what="chaos", minutes=22,
        commands=_is(python(
            "benchmarks.chaos", "--seed", "20261126", "--jobs", "1000", "--least-faults", "2", "--at-once", "8",
            "--shrink-seconds", "0", "--minutes", "45", "--json", FILE,
        )),
    ),
    Step(name="pipe", what="pipe", minutes=3, images=(IMAGE,), in_image=True, commands=_pipe),
    Step(
        name="pull", what="pull", minutes=7, images=(IMAGE, TOOLKIT), tools=("docker-registry", "dockerd"),
        commands=_pull,
    ),
    Step(name="allreduce", what="allreduce", minutes=4, images=(IMAGE,), commands=_allreduce),
    Step(
        name="side_by_side_on", what="side-by-side-on", minutes=15, images=(LIKE_AWS,), resumes=True,
        commands=_is(python(
            "benchmarks.side_by_side", "--on", LIKE_AWS, "--cases", ON, "--rounds", "2", "--json", FILE, "--resume",
        )),
    ),
    Step(
        name="installs", what="installs", minutes=30, images=(IMAGE,), resumes=True,
        commands=_is(python("benchmarks.side_by_side", "--installs", "--rounds", "2", "--json", FILE, "--resume")),
    ),
    Step(
        name="deepfm", what="deepfm", minutes=24, images=(IMAGE,), resumes=True,
        commands=_is(
            _deepfm("scaling", "--rounds", "2", "--processes", "1", "2", "4", "--embedding-sizes", "8"),
            _deepfm("hyperparameters", "--rounds", "2", "--rows", "50000"),
            _deepfm("threads", "--rounds", "2", "--rows", "30000", "--epochs", "3"),
        ),
    ),
    Step(
        name="kills", what="kills", minutes=7, images=(IMAGE,), resumes=True,
        commands=_is(_kills("ps"), _kills("mpi")),
    ),
)  # fmt: skip
MOST_MINUTES = 210


def chosen(names: Iterable[str], steps: tuple[Step, ...] = STEPS) -> list[Step]:
    """Return the steps of these names in the plan's order; all if there are none. Raise ValueError for an unknown."""
    wanted, known = set(names), [step.name for step in steps]
    if unknown := wanted - set(known):
        raise ValueError(f"--only: found {', '.join(sorted(unknown))}; wanted some of {', '.join(known)}")
    return [step for step in steps if step.name in wanted or not wanted]


def filled(command: Command, file: Path) -> list[str]:
    """Return the command with the place of its JSON file."""
    places = {FILE: str(file), "{folder}": str(file.parent), "{name}": file.name}
    words = list(command)
    for mark, place in places.items():
        words = [word.replace(mark, place) for word in words]
    return [sys.executable, *words[1:]] if words[0] == "python" else words


def images_here() -> set[str]:
    """Return the names of docker's images, with their tags."""
    return set(said("docker", "images", "--format", "{{.Repository}}:{{.Tag}}").split())


def is_ours(image: str) -> bool:
    return image in (IMAGE, OF_221, FOR_GPUS, FOR_GPUS_221, ON_LIKE_AWS)
