"""Check the platform of jobs' images that are on this machine. Without Docker, nothing is found."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from entrypoint.check.doctor.planned_job import Described
from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.finding import Finding, Severity

AMD64 = "linux/amd64"
ANSWER_SECONDS = 5.0
_ARM_HOSTS = "gb200"  # instance types whose CPUs are ARM's; all others are amd64


def of_images(jobs: Sequence[Described], image: str, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield jobs whose image, the request's or `image`, is here and for another platform than the job's hosts."""
    if not (docker := shutil.which("docker", path=environment.get("PATH", ""))):
        return
    platforms: dict[str, str] = {}
    for request in (job.request for job in jobs if not job.request.local):
        name, instances = image or request.image, [str(group.get("InstanceType")) for group in request.groups]
        if name and not any(_ARM_HOSTS in each for each in instances):
            if name not in platforms:
                platforms[name] = _platform_of(name, docker, environment)
            platform, _, digests = platforms[name].partition(" ")
            if platform not in ("", AMD64):
                place, hosts = request.at("TrainingImage"), ", ".join(dict.fromkeys(instances))
                # What was pulled may be one half of what the registry has.
                severity = Severity.WARNING if digests not in ("", "0") else Severity.ERROR
                yield finding("image-platform", place, severity=severity, image=name, platform=platform, hosts=hosts)


def _platform_of(image: str, docker: str, environment: Mapping[str, str]) -> str:
    """Return an image's platform, AMD64 if it has several, and how many digests of registries it has; "" if unknown."""

    def ask(*options: str) -> str:
        command = [
            docker,
            "image",
            "inspect",
            *options,
            "--format",
            "{{.Os}}/{{.Architecture}} {{len .RepoDigests}}",
            image,
        ]
        try:
            done = subprocess.run(
                command, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=ANSWER_SECONDS, start_new_session=True,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return "" if done.returncode else done.stdout.strip()

    found = ask()
    return found if not found or found.startswith(AMD64) else ask("--platform", AMD64) or found
