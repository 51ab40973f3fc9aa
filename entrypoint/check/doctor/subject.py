"""Collect the known facts of a job when its script is checked: from its request, else from the script's code."""

import ast
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.planned_job import Described
from entrypoint.check.doctor.request import Request
from entrypoint.launcher.job.job import Job, Mode
from entrypoint.launcher.plan.plan import Role
from entrypoint.usercode.api_names import HOROVOD, JOINS_JAX, PROCESSES, SERVERS, SERVERS_OF_TF1, WORKERS
from entrypoint.usercode.datasets import Followed, trained
from entrypoint.usercode.guards import fallback
from entrypoint.usercode.reached import reached
from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.shell import exports
from entrypoint.usercode.source import SourceFile, Use, UseKind, texts_of

LINES = ((2, 14), (2, 21))  # versions of TensorFlow that our image has; the first if no image's tag has one
AWS_IMAGE = re.compile(r"^\d{12}\.dkr\.ecr\.[^/]+/tensorflow-training[:@]|^public\.ecr\.aws/.*tensorflow")
TRAINING = (Role.RANK, Role.CHIEF, Role.WORKER, Role.SCRIPT)
NO_JOB = Described(request=Request(body={}, file=""))


@dataclass(frozen=True, kw_only=True)
class Case:
    """Pair a program with its job, as far as the job is known."""

    code: UserProgram
    described: Described = NO_JOB
    other_image: str = ""  # the one that the job is to run on, if not the request's

    @property
    def job(self) -> Job | None:
        return self.described.job

    @property
    def request(self) -> Request:
        return self.described.request

    @cached_property
    def environment(self) -> dict[str, str]:
        """Return the variables of the request, and those that a shell script sets."""
        main = self.code.main
        return {**self.request.environment, **(exports(main.text) if main.path.suffix == ".sh" else {})}

    @property
    def hyperparameters(self) -> Mapping[str, Any]:
        return self.job.hyperparameters if self.job else {}

    @property
    def channels(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the job's channels, as inputdataconfig.json has them."""
        return self.job.input_data_config if self.job else {}

    @property
    def image(self) -> str:
        return self.other_image or self.request.image

    @cached_property
    def tensorflow(self) -> tuple[int, int]:
        return tensorflow_of(self.other_image) or tensorflow_of(self.request.image) or LINES[0]

    @cached_property
    def ways(self) -> frozenset[Mode]:
        """Return the modes that the program is written for; only `single` if it does not distribute its work."""
        found = {
            Mode.MPI: self.code.imports(*HOROVOD, "mpi4py.*"),
            Mode.MWMS: self.code.has(*WORKERS),
            Mode.PS: self.code.has(*SERVERS, *SERVERS_OF_TF1),
            Mode.JAX: self.code.has(*PROCESSES),
        }
        return frozenset(mode for mode, there in found.items() if there) or frozenset([Mode.SINGLE])

    @cached_property
    def way(self) -> tuple[Mode, Use] | None:
        """Return the one mode that the program is written for, and the first call or import that shows it."""
        made = {Mode.MWMS: WORKERS, Mode.PS: SERVERS, Mode.JAX: JOINS_JAX}
        found = {mode: next(self.code.calls(*names), None) for mode, names in made.items()}
        found[Mode.MPI] = self.code.first(*HOROVOD, kind=UseKind.IMPORT)
        there = [(mode, use) for mode, use in found.items() if use]
        return there[0] if len(there) == 1 and self.ways == {there[0][0]} else None

    def is_sure(self, source: SourceFile, node: ast.AST) -> bool:
        """Return whether the program is sure to reach a node."""
        return any(each in reached(self.code).get(source, ()) for each in ast.walk(node))

    def is_plain(self, source: SourceFile, node: ast.AST) -> bool:
        """Return whether the program is sure to reach a node, and under no condition."""
        return self.is_sure(source, node) and next(source.guards(node), None) is None

    @cached_property
    def pipelines(self) -> list[Followed]:
        """Return the datasets that the program trains on, as far as they can be followed."""
        return list(trained(self.code.sources))

    @property
    def mode(self) -> Mode | None:
        return self.job.mode if self.job else None

    @property
    def hosts(self) -> int:
        return len(self.job.cluster.hosts) if self.job else 1

    @property
    def gpus(self) -> int | None:
        """Return the number of GPUs of each host; None if unknown."""
        return None if self.described is NO_JOB else self.request.gpus

    @property
    def hides_gpus(self) -> bool:
        """Return whether the job hides all GPUs from its processes."""
        return self.environment.get("CUDA_VISIBLE_DEVICES") in ("", "-1")

    @property
    def processes(self) -> int:
        """Return how many processes train together; 0 if unknown."""
        return sum(spec.role in TRAINING for spec in self.described.processes)

    def severity_of_lack(self, name: str, on_aws: Set[str]) -> Severity:
        """Return the severity if our image lacks a name; another image may have it. `on_aws`: names in AWS's images."""
        if AWS_IMAGE.match(self.image):
            return Severity.NOTE if name in on_aws else Severity.ERROR
        return Severity.ERROR if not self.image or tensorflow_of(self.image) else Severity.WARNING

    def gives(self, folder: str) -> bool:
        """Return whether the job passes a folder to the script, in a hyperparameter or an environment variable."""
        return any(
            str(each).startswith(folder) for each in (*self.hyperparameters.values(), *self.environment.values())
        )

    def may_be(self, mode: Mode) -> bool:
        """Return whether the job has this mode. Without a job, return whether the program is written for it."""
        return self.job.mode is mode if self.job else mode in self.ways

    def together(self, mode: Mode) -> bool:
        """Return whether several processes train in this mode. If their number is unknown, return whether they may."""
        return self.may_be(mode) and self.processes != 1

    @property
    def several(self) -> bool:
        return any(self.together(mode) for mode in (Mode.MPI, Mode.MWMS, Mode.PS, Mode.JAX))

    def never_takes(self, source: SourceFile, node: ast.AST) -> bool:
        """Return whether a node is a default that the job is known never to use, because the job sets the value."""
        where = fallback(source, node)
        if not isinstance(where, ast.Call):
            return where is not None
        words = texts_of(where.args)
        if not words or self.job is None:
            return source.last(where) != "add_argument"
        if words[0].startswith("-"):
            return any(word.lstrip("-") in self.hyperparameters for word in words)
        if words[0].startswith("SM_CHANNEL_"):
            return words[0].removeprefix("SM_CHANNEL_").lower() in {name.lower() for name in self.channels}
        return words[0].startswith("SM_") or words[0] in self.environment


def tensorflow_of(image: str) -> tuple[int, int] | None:
    """Return TensorFlow's version from an image's tag: ours, `2.21-gpu`, or AWS's, `2.14.1-cpu-py310-...`.

    Return None if the tag may be a version of the user's own, such as `1.0`.
    """
    found = re.search(r":(\d+)\.(\d+)(?:\.\d+)?(-[cg]pu\b.*)?$", image)
    version = (int(found[1]), int(found[2])) if found else None
    return version if found and (found[3] or version in LINES) else None
