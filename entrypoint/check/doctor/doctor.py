"""Check the files of a job: read launch scripts and requests, plan their jobs, find their programs, run the checks."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from entrypoint.base.errors import ConfigError, nearest
from entrypoint.base.severity import Severity
from entrypoint.check.doctor.check_arguments import of_arguments
from entrypoint.check.doctor.check_checkpoints import of_keeping
from entrypoint.check.doctor.check_data import of_data
from entrypoint.check.doctor.check_distribution import of_code
from entrypoint.check.doctor.check_folders import of_folders
from entrypoint.check.doctor.check_image import of_images
from entrypoint.check.doctor.check_losses import of_losses
from entrypoint.check.doctor.check_modes import of_modes
from entrypoint.check.doctor.check_modules import of_modules, of_shell
from entrypoint.check.doctor.check_names import of_names
from entrypoint.check.doctor.check_order import of_order
from entrypoint.check.doctor.check_pipes import of_pipes
from entrypoint.check.doctor.check_platform import of_platform
from entrypoint.check.doctor.check_request import of_request
from entrypoint.check.doctor.check_scope import of_scope
from entrypoint.check.doctor.launch_script import launched, of_launch, submits
from entrypoint.check.doctor.planned_job import Described, described
from entrypoint.check.doctor.request import read_request
from entrypoint.check.doctor.rulebook import finding
from entrypoint.check.doctor.subject import Case
from entrypoint.check.finding import Finding
from entrypoint.launcher.job.job import Mode
from entrypoint.launcher.job.params import USER_PROGRAM_ENV, USER_PROGRAM_PARAM
from entrypoint.usercode.reader import UserProgram, read_code

NEAR = 0.85  # of two names, of which one is probably a slip: train.py and trian.py, but not main.py
CHECKS_OF_SCRIPTS = (
    *(of_shell, of_order, of_names, of_modules, of_arguments, of_folders),
    *(of_code, of_modes, of_scope, of_data, of_losses, of_pipes, of_keeping, of_platform),
)


@dataclass(frozen=True, kw_only=True)
class DoctorReport:
    """Hold the jobs and programs that were checked, and the findings."""

    jobs: tuple[Described, ...]
    programs: tuple[UserProgram, ...]
    unseen: frozenset[str]  # programs that are not on this machine, or not where the launch script names them
    # (the jobs that have these findings, as people read it, "" if there are not several; the findings, the worst first)
    groups: tuple[tuple[str, tuple[Finding, ...]], ...]
    unsealed: str = ""  # why the kernel did not isolate a launch script from the network

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for _, findings in self.groups for finding in findings)

    @property
    def worst(self) -> Severity | None:
        return max((each.severity for each in self.findings), default=None)


@dataclass(frozen=True, kw_only=True)
class GivenFiles:
    """Hold the files of the command line, sorted by kind."""

    launches: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)


def sort_out(names: Iterable[str]) -> GivenFiles:
    """Sort files into launch scripts, requests and training scripts; raise ConfigError if a file is none of these."""
    files = GivenFiles()
    for name in names:
        path = Path(name)
        if not path.is_file():
            raise ConfigError(f"there is no file {name}; wanted a launch script, a request (JSON) or a training script")
        if path.suffix == ".json":
            files.requests.append(name)
        elif path.suffix not in (".py", ".sh"):
            more = " (of a notebook: `jupyter nbconvert --to script`)" if path.suffix == ".ipynb" else ""
            raise ConfigError(f"{name} ends with {path.suffix or 'nothing'}; wanted a .py, .sh or .json file{more}")
        elif submits(read_code(path, name, exported=True)):
            files.launches.append(name)
        else:
            files.programs.append(name)
    return files


def jobs_of(
    files: GivenFiles, arguments: Sequence[str], python: str, environment: Mapping[str, str]
) -> tuple[list[Described], list[Finding], str]:
    """Return the jobs of launch scripts and requests, the findings in launch scripts, and `DoctorReport.unsealed`."""
    did = {name: launched(Path(name), name, arguments, python, environment) for name in files.launches}
    requests = [request for each in did.values() for request in each.requests]
    requests += [read_request(name) for name in files.requests]
    found = [finding for name, each in did.items() for finding in of_launch(each, name, python)]
    unsealed = next((each.unsealed for each in did.values() if each.unsealed), "")
    return [described(request) for request in requests], found, unsealed


def program_of(job: Described, named: Sequence[str]) -> str | None:
    """Return the name of a job's program on this machine, by the command line or the launch script; else None."""
    name, folder = job.program
    for each in named:
        if Path(each).name == Path(name).name:
            return each
    by_script = not job.request.text
    base = Path(job.request.file).parent if by_script else Path()
    # The SDKs take a relative path from the working directory. Users also start scripts from the script's folder.
    for root in (Path(), base):
        path = root / folder / name
        if name and "://" not in folder and path.is_file() and (folder or by_script):
            return str(path)
    return None


def examine(
    names: Sequence[str],
    *,
    image: str = "",
    arguments: Sequence[str] = (),
    python: str = sys.executable,
    environment: Mapping[str, str] = {},
) -> DoctorReport:
    """Check files and return the report; raise ConfigError if one cannot be read as its kind of file."""
    files = sort_out(names)
    jobs, found, unsealed = jobs_of(files, arguments, python, environment)
    found += of_images(jobs, image, environment)
    programs = {Path(name).absolute(): read_code(Path(name), name) for name in files.programs}
    # A file that another of these imports is a module of that program, not a program.
    looked = {source.path.absolute() for code in programs.values() for source in code.sources[1:]}
    unseen: set[str] = set()
    owners: dict[Finding, list[str]] = {each: [] for each in found}
    for job in jobs:
        found = []
        name = program_of(job, files.programs)
        code = None
        if name is not None:
            path = Path(name).absolute()
            code = programs.get(path) or programs.setdefault(path, read_code(Path(name), name))
            looked.add(path)
            found += [*_of_program(Case(code=code, described=job, other_image=image)), *_in_another_folder(job, path)]
        else:
            unseen |= {job.job.program.name} if job.job else set()
            found += _entry_missing(job) or _not_given(job, files.programs)
        for each in (*found, *of_request(job, code, image)):
            _note_owner(owners, each, str(job.request.at()) if len(jobs) > 1 else "")
    for path, code in programs.items():
        if path not in looked:
            for each in _of_program(Case(code=code, other_image=image)):
                _note_owner(owners, each, code.main.shown if len(jobs) > 1 else "")
    groups: dict[str, list[Finding]] = {}
    for each, of in owners.items():
        groups.setdefault(", ".join(of), []).append(each)
    return DoctorReport(
        jobs=tuple(jobs),
        programs=tuple(programs.values()),
        unseen=frozenset(unseen),
        groups=tuple((of, tuple(sorted(each, key=lambda each: each.order))) for of, each in groups.items()),
        unsealed=unsealed,
    )


def _note_owner(owners: dict[Finding, list[str]], finding: Finding, owner: str) -> None:
    names = owners.setdefault(finding, [])
    if owner not in names:
        names.append(owner)


def _of_program(case: Case) -> list[Finding]:
    return [finding for check in CHECKS_OF_SCRIPTS for finding in check(case)]


def _entry_missing(job: Described) -> list[Finding]:
    """Return a finding if the code's folder is on this machine and the program is not in it."""
    name, folder = job.program
    if not (folder and name and Path(folder).is_dir()):
        return []
    inside = sorted(Path(folder).glob(f"*/**/{Path(name).name}")) or sorted(Path(folder).glob("*.py"))
    there = [str(path.relative_to(folder)) for path in inside[:5]]
    put = nearest(name, there) or (f"one of {', '.join(there)}" if there else "a folder with the program in it")
    return [finding("entry-missing", job.request.at("sagemaker_program"), name=name, folder=folder, put=put)]


def _not_given(job: Described, named: Sequence[str]) -> list[Finding]:
    """Return a finding if the job's program is none of the given files, and one of these is probably meant."""
    request, name = job.request, job.job.program.name if job.job else ""
    given = [Path(each).absolute() for each in named]
    if not name or any((path.parent / name).is_file() for path in given):
        return []
    by_parameter = str(request.hyperparameters.get(USER_PROGRAM_PARAM) or "")
    names = {path.name for path in given}
    if Path(by_parameter).name in names - {Path(name).name}:  # then a variable has another one
        place = request.at(USER_PROGRAM_ENV)
        return [finding("entry-missing/variable", place, name=name, other=by_parameter)]
    near = nearest(Path(name).name, names, least=NEAR)
    place = request.at(USER_PROGRAM_PARAM)
    return [finding("entry-missing/near", place, name=name, put=str(Path(name).with_name(near)))] if near else []


def _in_another_folder(job: Described, path: Path) -> list[Finding]:
    """Return a finding if a request names a folder of the code in which the program is not, as far as is seen here."""
    name, folder = job.job.program.name if job.job else "", job.program[1]
    parts = Path(name).parts
    if folder or path.name != Path(name).name or path.parts[-len(parts) :] == parts or Path(name).is_absolute():
        return []
    place = job.request.at(USER_PROGRAM_PARAM)
    return [finding("entry-missing/folder", place, severity=Severity.WARNING, name=name, put=path.name)]


def title_of(job: Described) -> str:
    """Return the title of the job's plan; without a plan, the job's mode, or a line if our launcher refuses the job."""
    if job.plan is None:
        return "nothing: our launcher refuses it" if job.job is None or job.problems else str(Mode(job.job.mode))
    return job.plan.title
