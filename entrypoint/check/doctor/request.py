"""Read a CreateTrainingJob request from a file or from a launch script, and give its keys one spelling."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from entrypoint.base.errors import ConfigError
from entrypoint.check.instance_types import gpus_of
from entrypoint.usercode.source import Place

# Below these keys, names are the user's own and must keep their spelling.
_USERS = {"HyperParameters", "StaticHyperParameters", "Environment", "HookParameters", "ProfilingParameters"}
_SPELLED = {"VolumeSizeInGb": "VolumeSizeInGB", "Hyperparameters": "HyperParameters"}


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Hold the arguments that a launch script passed to an SDK and that its request does not show."""

    sdk: str = ""  # v2, v3, or nothing: boto3
    maker: str = ""  # the class
    line: int = 0
    dropped: Mapping[str, str] = field(default_factory=dict)  # arguments that the SDK does not read
    renamed: Mapping[str, str] = field(default_factory=dict)  # v2: a name of v1, and that of v2
    dependencies: Sequence[str] = ()  # v2: what the SDK puts beside the program
    distributed: str = ""  # v3: the class
    command: str = ""
    entry_point: str = ""
    source_dir: str = ""
    unversioned: bool = False  # v2: multi_worker_mirrored_strategy without framework_version, on which fit fails
    uploads: Mapping[str, str] = field(default_factory=dict)  # v3: the files of channel sm_drivers


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return a value if it is a mapping, else an empty one. The check against the API reports the wrong type."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """Return the mappings in a list, without its other values; [] if the value is not a list."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list | tuple) else []


@dataclass(frozen=True, kw_only=True)
class Request:
    """Hold a request in boto3's spelling, and its origin."""

    body: Mapping[str, Any]
    file: str
    line: int = 0
    text: str = ""  # of a JSON file, to find the lines of words; a launch script's request has none
    launch: Launch = Launch()
    local: bool = False  # for the SDK's local mode

    @property
    def hyperparameters(self) -> dict[str, Any]:
        return dict(_mapping(self.body.get("HyperParameters")))

    @property
    def environment(self) -> dict[str, str]:
        return {key: str(value) for key, value in _mapping(self.body.get("Environment")).items()}

    def part(self, key: str) -> Mapping[str, Any]:
        """Return the mapping under a key; an empty one if there is none."""
        return _mapping(self.body.get(key))

    @property
    def algorithm(self) -> Mapping[str, Any]:
        return _mapping(self.body.get("AlgorithmSpecification"))

    @property
    def image(self) -> str:
        return str(self.algorithm.get("TrainingImage") or "")

    @property
    def channels(self) -> dict[str, Mapping[str, Any]]:
        return {str(each.get("ChannelName")): each for each in mappings(self.body.get("InputDataConfig"))}

    @property
    def groups(self) -> list[Mapping[str, Any]]:
        """Return the instance groups; one group if the request has only an instance type and a count."""
        asked = _mapping(self.body.get("ResourceConfig"))
        return mappings(asked.get("InstanceGroups")) or [{"InstanceGroupName": "homogeneousCluster", **asked}]

    @property
    def hosts(self) -> int:
        counts = (group.get("InstanceCount") for group in self.groups)
        return sum(count if type(count) is int and count > 0 else 1 for count in counts)

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of each host."""
        return max((gpus_of(str(group.get("InstanceType") or "")) for group in self.groups), default=0)

    def at(self, *words: str, value: object = None) -> Place:
        """Return where a word of the request stands: its line in a JSON file, else the line of the launch.

        If there are several words, each stands below the one before it. `value`: what the last word has, if it is text.
        """
        line, start = self.line, 0
        for at, word in enumerate(map(str, words)):
            more = rf"\s*:\s*{re.escape(json.dumps(value))}" if isinstance(value, str) and at == len(words) - 1 else ""
            spelt = "_?".join(re.escape(part) for part in re.split(r"(?<=.)(?=[A-Z])", word))  # as boto3, SDK v3, Java
            patterns = (f'"{re.escape(word)}"{more}', f'(?i)"{spelt}"{more}', f'(?i)"{spelt}"')
            found = (re.compile(each).search(self.text, start) for each in patterns if word and self.text)
            if hit := next(filter(None, found), None):
                line, start = self.text.count("\n", 0, hit.start()) + 1, hit.start() + 1
        return Place(file=self.file, line=line)


def read_request(shown: str) -> Request:
    """Read a request from JSON, in the spelling of boto3, SDK v3 or others.

    Raise ConfigError if the file holds none.
    """
    try:
        text = Path(shown).read_text("utf-8")
        value = json.loads(text)
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{shown} cannot be read: {problem}") from None
    except (ValueError, RecursionError) as problem:
        raise ConfigError(f"{shown} is not JSON ({problem}); wanted a CreateTrainingJob request") from None
    if not isinstance(value, dict) or not {"AlgorithmSpecification", "ResourceConfig"} & spelled(value).keys():
        raise ConfigError(
            f"{shown} has neither AlgorithmSpecification nor ResourceConfig; wanted a CreateTrainingJob request, as "
            "`python examples/submit.py ... --dry-run` prints one"
        )
    return Request(body=spelled(value), file=shown, line=1, text=text)


def spelled(value: Any) -> Any:
    """Return a request with boto3's keys: `training_job_name` and `trainingJobName` become TrainingJobName."""
    if isinstance(value, list):
        return [spelled(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for key, inside in value.items():
        words = "".join(word[:1].upper() + word[1:] for word in str(key).split("_"))
        name = _SPELLED.get(words, words)
        found[name] = inside if name in _USERS else spelled(inside)
    return found
