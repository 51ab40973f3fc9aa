"""Check the files of a job: read launch scripts and requests, plan their jobs, find their programs, run the checks."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.base.severity import Severity
from entrypoint.check.doctor.check_arguments import of_arguments
from entrypoint.check.doctor.check_checkpoints import of_keeping
from entrypoint.check.doctor.check_data import of_data
from entrypoint.check.doctor.check_distribution import of_code
from entrypoint.check.doctor.check_imports import of_names
from entrypoint.check.doctor.check_launch import of_launch
from entrypoint.check.doctor.check_modules import of_modules
from entrypoint.check.doctor.check_request import folder_said, of_request
from entrypoint.check.doctor.check_shell import of_shell
from entrypoint.check.doctor.planned_job import Described, described
from entrypoint.check.doctor.request import Request, read_request
from entrypoint.check.doctor.run_launch_script import Launched, launched, submits
from entrypoint.check.doctor.source import Code, read_code
from entrypoint.check.doctor.subject import SESSIONS, Case, tensorflow_of, ways_of
from entrypoint.check.finding import Finding, error
from entrypoint.launcher.job.job import Mode

CHECKS_OF_SCRIPTS = (of_shell, of_names, of_modules, of_arguments, of_code, of_data, of_keeping)
FIRST_LINE = (2, 14)  # TensorFlow's version if no image's tag has one


@dataclass(frozen=True, kw_only=True)
class Report:
    """Hold the jobs and programs that were checked, and the findings."""

    jobs: tuple[Described, ...]
    programs: tuple[Code, ...]
    unseen: frozenset[str]  # programs that are not on this machine, or not where the launch script names them
    findings: tuple[Finding, ...]  # the worst first
    unsealed: str = ""  # why the kernel did not isolate a launch script from the network

    @property
    def worst(self) -> Severity | None:
        return max((each.severity for each in self.findings), default=None)


@dataclass(frozen=True, kw_only=True)
class Files:
    """Hold the files of the command line, sorted by kind."""

    launches: tuple[tuple[Path, str], ...] = ()
    requests: tuple[tuple[Path, str], ...] = ()
    programs: tuple[tuple[Path, str], ...] = ()


def sort_out(names: Iterable[str]) -> Files:
    """Sort files into launch scripts, requests and training scripts; raise ConfigError if a file is none of these."""
    launches, requests, programs = [], [], []
    for name in names:
        path = Path(name)
        if not path.is_file():
            raise ConfigError(f"there is no file {name}; wanted a launch script, a request (JSON) or a training script")
        if path.suffix == ".json":
            requests.append((path, name))
        elif path.suffix not in (".py", ".sh"):
            more = " (of a notebook: `jupyter nbconvert --to script`)" if path.suffix == ".ipynb" else ""
            raise ConfigError(f"{name} ends with {path.suffix or 'nothing'}; wanted a .py, .sh or .json file{more}")
        elif submits(read_code(path, name, exported=True)):
            launches.append((path, name))
        else:
            programs.append((path, name))
    return Files(launches=tuple(launches), requests=tuple(requests), programs=tuple(programs))


def jobs_of(
    files: Files, arguments: Sequence[str], python: str, environment: Mapping[str, str]
) -> tuple[list[Described], list[Finding], str]:
    """Return the jobs of launch scripts and requests, the findings of the launch scripts, and `Report.unsealed`."""
    requests: list[Request] = []
    found: list[Finding] = []
    unsealed = ""
    for path, shown in files.launches:
        did = launched(path, shown, arguments, python, environment)
        found += of_launch(did, shown, python)
        requests += did.requests
        unsealed = unsealed or did.unsealed
    requests += [read_request(path, shown) for path, shown in files.requests]
    return [described(request) for request in requests], found, unsealed


def launched_jobs(
    script: Path, arguments: Sequence[str] = (), python: str = sys.executable, environment: Mapping[str, str] = {}
) -> tuple[Launched, list[Described]]:
    """Run a launch script while nothing leaves the machine; return what it did, and its requests as Jobs and plans."""
    did = launched(script, str(script), arguments, python, environment)
    return did, [described(request) for request in did.requests]


def program_of(job: Described, named: Sequence[tuple[Path, str]]) -> tuple[Path, str] | None:
    """Return (path, shown) of a job's program on this machine, by the command line or the launch script; else None."""
    program, folder = folder_said(job.request)
    name = program or (job.job.program.name if job.job else "")
    for path, shown in named:
        if path.name == Path(name).name:
            return path, shown
    base = Path(job.request.file).parent if job.request.launch else Path()
    # The SDKs take a relative path from the working directory. Users also start scripts from the script's folder.
    for root in (Path(), base):
        path = root / folder / name
        if name and "://" not in folder and path.is_file() and (folder or job.request.launch):
            return path, str(path)
    return None


def examine(
    names: Sequence[str],
    *,
    image: str = "",
    arguments: Sequence[str] = (),
    python: str = sys.executable,
    environment: Mapping[str, str] = {},
) -> Report:
    """Check files and return the report; raise ConfigError if one cannot be read as its kind of file."""
    files = sort_out(names)
    jobs, found, unsealed = jobs_of(files, arguments, python, environment)
    programs: dict[Path, Code] = {}
    imported: set[Path] = set()
    for path, shown in files.programs:
        programs[path.absolute()] = read_code(path, shown)
    for code in programs.values():
        imported |= {source.path.absolute() for source in code.sources[1:]}
    looked: set[Path] = set()
    unseen: set[str] = set()
    for job in jobs:
        at = program_of(job, files.programs)
        requirements = chief_trains = False
        if at is not None:
            path, shown = at
            if path.absolute() not in programs:
                programs[path.absolute()] = read_code(path, shown)
            code = programs[path.absolute()]
            looked.add(path.absolute())
            requirements = (code.folder / "requirements.txt").is_file()
            chief_trains = code.has(*SESSIONS)
            found += _of_program(_case(code, job, image))
        else:
            unseen |= {job.job.program.name} if job.job else set()
            found += _entry_missing(job)
        found += of_request(job, image, requirements, chief_trains)
    for path, code in programs.items():
        # A file that another of these imports is a module of that program, not a program.
        if path not in looked and path not in imported:
            found += _of_program(_case(code, None, image))
    return Report(
        jobs=tuple(jobs),
        programs=tuple(programs.values()),
        unseen=frozenset(unseen),
        findings=_sorted(found),
        unsealed=unsealed,
    )


def _case(code: Code, job: Described | None, image: str) -> Case:
    request = job.request if job else None
    version = tensorflow_of(image) or (tensorflow_of(request.image) if request else None) or FIRST_LINE
    return Case(
        code=code,
        job=job.job if job else None,
        described=job,
        tensorflow=version,
        ways=ways_of(code),
        environment=request.environment if request else {},
        image=image or (request.image if request else ""),
    )


def _of_program(case: Case) -> list[Finding]:
    return [finding for check in CHECKS_OF_SCRIPTS for finding in check(case)]


def _entry_missing(job: Described) -> list[Finding]:
    """Return a finding if the code's folder is on this machine and the program is not in it."""
    program, folder = folder_said(job.request)
    name = program or (job.job.program.name if job.job else "")
    if not (folder and name and Path(folder).is_dir()):
        return []
    inside = sorted(Path(folder).glob(f"*/**/{Path(name).name}")) or sorted(Path(folder).glob("*.py"))
    near = ", ".join(str(path.relative_to(folder)) for path in inside[:5])
    return [
        error(
            "entry-missing",
            f"the program is {name}, but {folder} has no such file",
            f"one of {near}" if near else "a folder with the program in it",
            place=job.request.at("sagemaker_program"),
        )
    ]


def _sorted(found: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(dict.fromkeys(found), key=lambda each: each.order))


def title_of(job: Described) -> str:
    """Return one line that describes what would run."""
    if job.plan is None:
        return "nothing: our launcher refuses it" if job.job is None or job.problems else str(Mode(job.job.mode))
    return job.plan.title
