"""Install requirements and the package of the code, one at a time: by uv, or by pip for forms that only pip reads.

Packages that were built for one another keep their versions (pins.py): requirements resolve to what fits, or are
refused before anything is downloaded. It is not part of installing.py, since most jobs install nothing, and its imports
take some milliseconds.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, NamedTuple

if (packages := str(Path(__file__).parents[3])) not in sys.path:  # as a program, on other images
    sys.path.append(packages)

from pins import TENSORFLOWS, Installed, add_aliases, changed, installed, pins
from pip_options import IN_FILES, OF_INDEX, PATIENCE, RUN_PIP, Uv, configured, for_uv, index_of
from refusals import built, of_build, of_own_build, of_pins, of_uv
from unusable import Unusable, masked
from wanted import Files, read

OUR_PROGRAMS = Path(__file__).parents[3] / "bin"  # uv lies there in images that are led by our entrypoint
UNREACHED = (
    " (no package index was reached: under network isolation, or in a VPC without a way to one, a job has only what "
    "the image or the code brings)"
)
LAST_RETRY = "Retry(total=0,"  # in pip's line about an index that it did not reach
UNTRUSTED = (
    " (the index was reached, and its certificate is of no CA that is known here: PIP_CERT names a file with one, and "
    "--trusted-host HOST in requirements.txt takes the index without one)"
)
NO_CONNECTION = re.compile(r"client error \(Connect\)|dns error|tcp connect error|operation timed out", re.IGNORECASE)
CHANGE = re.compile(r"^ ([-+~]) (\S+?)==(\S+)", re.MULTILINE)
DISAGREES = re.compile(r"^The package `([^`]+)` requires `([A-Za-z0-9._-]+)", re.MULTILINE)
RAISED = re.compile(r"[A-Za-z_][\w.]*(Error|Exception): ")
IMPORTS = {
    "TensorFlow": "import tensorflow",
    "Horovod": "import horovod.tensorflow as hvd; hvd.init",
}


class ToolEnd(NamedTuple):
    """Hold how a program ended, and what it wrote to stderr."""

    code: int
    text: str


def install(code: Path, *, package: bool = False, replace: Sequence[str] = (), mode: str = "") -> None:
    """Install the code's requirements.txt, and with `package` the code itself. Raise Unusable if that fails.

    `replace` names distributions that a requirement may replace although they were built for others.
    """
    requirements = code / "requirements.txt"
    files = read(requirements) if requirements.is_file() else Files([], [], [])
    Installation(code, package, requirements.is_file(), files, replace, mode).run()


class Installation:
    def __init__(
        self, code: Path, package: bool, listed: bool, files: Files, replace: Sequence[str], mode: str
    ) -> None:
        self.code, self.package, self.listed, self.files, self.mode = code, package, listed, files, mode
        self.what = "requirements.txt" if listed else "the package"
        self.words = [*(["."] if package else []), *(["-r", "requirements.txt"] if listed else [])]
        self.before = installed()
        self.pins = pins(self.before, replace)
        self.environment = dict(os.environ)

    def run(self) -> None:
        if refused := of_pins(self.files.wanted, self.pins, self.before):
            raise self._unusable(refused)
        with contextlib.suppress(OSError):  # without the names, whoever asks for them gets a twin of the same version
            for name in add_aliases(self.before):
                print(f"TensorFlow {self.before[name].version}, which is here, is known as {name}, too", flush=True)
        began = time.monotonic()
        with _one_at_a_time(), tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            constraints = folder / "constraints.txt"
            constraints.write_text(self.pins.constraints)
            tool = self._install(folder, constraints)
        self._say_what_changed(tool, time.monotonic() - began)

    def _install(self, folder: Path, constraints: Path) -> str:
        """Install with one of the two tools; return its name."""
        options = self._options()
        uv = find_uv()
        how = for_uv(options, self.files.options, self.code) if uv else "uv is not here"
        how = _only_pip(self.files, options) or how
        if isinstance(how, Uv):
            done = self._by_uv(str(uv), how, folder, constraints)
            if done.code == 0:
                return "uv"
            self._judge(str(uv), how, folder, constraints, done)
            how = "uv did not read something as pip may"
        print(f"pip installs, and not uv: {how}", flush=True)
        if uv and self._is_cut_off(uv, options, folder, constraints):
            self.environment |= {"PIP_RETRIES": "1", "PIP_TIMEOUT": "1"}
        self._by_pip(constraints)
        return "pip"

    def _is_cut_off(self, uv: str, options: Mapping[str, str], folder: Path, constraints: Path) -> bool:
        """Return whether no index can be reached. pip itself would try for minutes, as it does with a slow one."""
        in_files = [words for words in self.files.options if words[0] in IN_FILES]
        how = for_uv({name: value for name, value in options.items() if name in OF_INDEX}, in_files)
        if not isinstance(how, Uv):
            return False
        where = Uv(how.arguments, [*how.lines, *map(" ".join, in_files)], {**how.environment, "UV_HTTP_RETRIES": "0"})
        command, environment = self._uv(uv, where, folder, constraints)
        asked = [*command, "--dry-run", "--no-deps", "--reinstall", "pip"]
        return bool(NO_CONNECTION.search(_run(asked, self.code, environment, show=False).text))

    def _options(self) -> dict[str, str]:
        """Return pip's options. The job's own go into the environment, where no command line shows them."""
        environment = self.environment
        environment.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")  # without a network, that takes 15 s
        if cache := environment.get("SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY"):
            # The next job in the pool finds what this one has fetched and built.
            environment.setdefault("UV_CACHE_DIR", str(Path(environment.get("PIP_CACHE_DIR") or cache) / "uv"))
            environment.setdefault("PIP_CACHE_DIR", str(Path(cache) / "pip"))
        asks_for_more = self.listed or (self.code / "pyproject.toml").is_file()
        if self.package and not asks_for_more and find_spec("setuptools"):
            environment.setdefault("PIP_NO_BUILD_ISOLATION", "false")  # else a plain setup.py would take a network
        if self.listed and (arn := environment.get("CA_REPOSITORY_ARN")):
            try:
                environment["PIP_INDEX_URL"] = index_of(arn)
            except Unusable as wrong:
                raise self._unusable(str(wrong)) from None
        return configured(environment)

    def _by_uv(self, uv: str, how: Uv, folder: Path, constraints: Path) -> ToolEnd:
        command, environment = self._uv(uv, how, folder, constraints)
        names = {each.requirement.name.lower() for each in self.files.wanted if each.requirement}
        if names & self.pins.free & set(TENSORFLOWS):
            planned = _run([*command, "--dry-run", *self.words], self.code, environment, show=False)
            if planned.code:
                return planned
            twins = [name for name in TENSORFLOWS if name in self.before]
            _run([uv, "pip", "uninstall", "--python", sys.executable, *twins], self.code, environment)
        done = _run([*command, *self.words], self.code, environment)
        if done.code == 0 and CHANGE.search(done.text):
            self._mend(uv, command, environment, folder / "hurt.txt")
        return done

    def _mend(self, uv: str, command: Sequence[str], environment: Mapping[str, str], file: Path) -> None:
        """Resolve once more, together with those packages of the image that need something that was replaced.

        Like pip, uv does not check whether installed packages fit the new ones.
        """
        check = [uv, "pip", "check", "--python", sys.executable]
        found = DISAGREES.findall(_run(check, self.code, environment, show=False).text)
        new = changed(self.before, installed())
        hurt = {name for name, asked in found if asked in new and name in self.before}
        if hurt := hurt - self.pins.versions.keys():
            # In a file, since uv decides names of the command line before those of files.
            file.write_text("\n".join([*sorted(hurt), ""]))
            mended = _run([*command, *self.words, "-r", str(file)], self.code, environment)
            if mended.code:
                print(f"warning: pip check has something to say about {', '.join(sorted(hurt))}", flush=True)

    def _uv(self, uv: str, how: Uv, folder: Path, constraints: Path) -> tuple[list[str], dict[str, str]]:
        options = folder / "options.txt"
        options.touch(mode=0o600)  # it may hold passwords
        options.write_text("\n".join([*how.lines, ""]))
        own = {"UV_PYTHON_DOWNLOADS": "never", **PATIENCE, **self.environment}
        if ssl.get_default_verify_paths().cafile:  # pip trusts the system's CAs; uv has a list of its own
            own.setdefault("UV_SYSTEM_CERTS", "1")
        for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # which pip reads
            if own.get(name):
                own.setdefault("SSL_CERT_FILE", own[name])
        environment = {**own, **how.environment}
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
        cache = Path(environment.get("UV_CACHE_DIR") or caches / "uv")
        if not _is_writable(cache):
            environment["UV_NO_CACHE"] = "1"
        elif _device(cache) != _device(Path(sys.prefix)):
            environment.setdefault("UV_LINK_MODE", "copy")  # uv would try a link first, and warn
        command = [
            uv, "pip", "install", "--python", sys.executable, "--no-config", "--no-sources", "--no-progress",
            "--color", "never", "--index-strategy", "unsafe-best-match",  # as pip does
            *(["--constraints", str(constraints)] if constraints.stat().st_size else []),  # uv warns of an empty file
            *how.arguments, *(["-r", str(options)] if how.lines else []),
        ]  # fmt: skip
        return command, environment

    def _judge(self, uv: str, how: Uv, folder: Path, constraints: Path, done: ToolEnd) -> None:
        """Raise Unusable if pip could not install it either. Return where pip may succeed."""
        if NO_CONNECTION.search(done.text):
            why = UNTRUSTED if "invalid peer certificate" in done.text else UNREACHED
            raise self._unusable(_last_cause(done.text) + why)
        if done.code == 2 or "pre-release" in done.text:
            return
        where = Uv(how.arguments, [*how.lines, *map(" ".join, self.files.options)], how.environment)
        command, environment = self._uv(uv, where, folder, constraints)

        def resolve(requirements: Iterable[str]) -> dict[str, str] | None:
            with contextlib.suppress(subprocess.TimeoutExpired):  # a refusal is not to wait for advice
                return resolved(self._planned(command, requirements, environment, 15))
            return None

        self._refuse_own_build(done.text)
        raise self._unusable(of_uv(done.text, self.files.wanted, self.pins, self.before, resolve))

    def _planned(
        self, command: Sequence[str], words: Iterable[str], environment: Mapping[str, str], seconds: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Ask uv what it would install, as JSON. Raise TimeoutExpired if that takes longer than `seconds`."""
        call = [*command, "--dry-run", "--output-format", "json", *words]
        return subprocess.run(call, cwd=self.code, env=environment, capture_output=True, timeout=seconds)

    def _by_pip(self, constraints: Path) -> None:
        command = [sys.executable, str(RUN_PIP), "install", "-c", str(constraints), *self.words]
        pip = _run(command, self.code, self.environment)
        if pip.code:
            self._refuse_own_build(pip.text)
            found = [line.strip() for line in pip.text.splitlines() if line.lower().startswith("error:")]
            of_versions = [line for line in found if line.startswith("ERROR: Cannot install")]
            if (why := of_build(pip.text)) and not of_versions:
                found = [f"ERROR: {built(pip.text)[0] or 'a package'} could not be built from its sources: {why}"]
            text = (of_versions or found or [f"pip ended with exit code {pip.code}: see its lines above"])[-1]
            raise self._unusable(text + (UNREACHED if LAST_RETRY in pip.text else ""))

    def _say_what_changed(self, tool: str, seconds: float) -> None:
        """Log what changed. Raise Unusable if a pinned distribution did, or a replaced one does not load."""
        after = installed()
        stay = [name for name in self.pins.versions if name in self.before]
        moved = [name for name in stay if name not in after or after[name].version != self.pins.versions[name]]
        if moved:
            raise self._unusable(f"it has replaced {_changes(moved, self.before, after)}, which was to stay as built")
        new = changed(self.before, after)
        count = f"{len(new)} package{'s' if len(new) > 1 else ''}" if new else "nothing that was not here"
        print(f"installed {count} by {tool} in {seconds:.1f} s", flush=True)
        replaced = [name for name in new if name in self.before]
        if replaced:
            print(f"replaced in the image: {_changes(sorted(replaced), self.before, after)}", flush=True)
        if built := [name for name in replaced if name in self.pins.free]:
            self._check_what_loads(_changes(sorted(built), self.before, after), after)

    def _check_what_loads(self, replaced: str, after: Mapping[str, Installed]) -> None:
        for name, program in IMPORTS.items():
            if name.lower() not in after:
                continue
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, errors="replace")
            if done.returncode == 0:
                print(f"ENTRYPOINT_REPLACE: {name} still loads", flush=True)
                continue
            raised = [line for line in done.stderr.splitlines() if RAISED.match(line)]
            why = (raised or done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            text = f"ENTRYPOINT_REPLACE let it replace {replaced}, after which {name} does not load: {why}"
            if name == "TensorFlow" or self.mode == "mpi":
                raise self._unusable(text)
            print(f"warning: {text}", flush=True)

    def _refuse_own_build(self, text: str) -> None:
        if self.package and (why := of_own_build(text, self.code, self.files.wanted)):
            raise Unusable(why)

    def _unusable(self, why: str) -> Unusable:
        return Unusable(f"{self.what} in {self.code} cannot be installed: {masked(why)}")


def _changes(names: Iterable[str], before: Mapping[str, Installed], after: Mapping[str, Installed]) -> str:
    there = ((name, before[name].version, after[name].version if name in after else "none") for name in names)
    return ", ".join(f"{name} {old} -> {new}" for name, old, new in there)


def _only_pip(files: Files, options: Mapping[str, str]) -> str:
    """Return a form of requirements that only pip reads, or only pip installs as meant; "" if there is none."""
    if options.get("require-hashes") or any("--hash" in each.options for each in files.wanted):
        return "hashes in requirements"
    if other := next((each.options for each in files.wanted if each.options), ""):
        return f"{other.split('=')[0].split()[0]} in requirements"
    if files.missing:
        return f"{files.missing[0]} cannot be read"
    if not _is_writable(Path(next((entry for entry in sys.path if entry.endswith("-packages")), sys.prefix))):
        return "its folder of packages cannot be written, and pip takes the user's own"
    return ""


def find_uv() -> str | None:
    beside = Path(sys.executable).with_name("uv")
    return next((str(each) for each in (beside, OUR_PROGRAMS / "uv") if each.is_file()), shutil.which("uv"))


def _nearest(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next((each for each in (folder, *folder.parents) if each.exists()), Path("/"))


def _is_writable(folder: Path) -> bool:
    return os.access(_nearest(folder), os.W_OK)


def _device(folder: Path) -> int:
    return _nearest(folder).stat().st_dev


def resolved(done: subprocess.CompletedProcess[bytes]) -> dict[str, str] | None:
    """Return the versions that would be installed, by uv's report; None if there is no solution."""
    if done.returncode:
        return None
    changes = json.loads(done.stdout or b"{}").get("changes", [])
    return {each["name"]: each["version"] for each in changes if each["action"] != "uninstalled"}


def _last_cause(text: str) -> str:
    """Return which address was not reached, and why, by uv's chain of causes."""
    lines = [
        re.sub(r"^\s*(error|cause):\s*", "", line) for line in text.splitlines() if re.match(r"\s*(error|cause):", line)
    ]
    where = next((line for line in lines if line.startswith("Failed to")), "")
    return f"ERROR: {where}: {lines[-1]}" if where and lines else f"ERROR: {lines[-1] if lines else text.strip()}"


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str], *, show: bool = True) -> ToolEnd:
    """Run a tool and pass on what it writes to stderr, without the lines for single packages."""
    kept: list[str] = []
    tool = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE)
    copier = threading.Thread(target=_copy, args=(tool.stderr, kept, show), daemon=True)
    copier.start()
    tool.wait()
    copier.join(timeout=5)  # what a build has left running may keep the other end open for ever
    changes = [found for line in kept if (found := CHANGE.match(line))]
    if show and (added := [f"{found[2]}-{found[3]}" for found in changes if found[1] != "-"]):
        print(f"Successfully installed {' '.join(added)}", flush=True)
    return ToolEnd(tool.returncode, "".join(kept))


def _copy(lines: IO[bytes], kept: list[str], show: bool) -> None:
    for line in lines:
        text = line.decode("utf-8", "replace")
        kept.append(text)
        if show and not CHANGE.match(text):
            os.write(2, masked(text).encode("utf-8", "replace"))


def main() -> int:
    """Install the requirements of the folder that the command line names, for a program that is not a job."""
    replace = [name.strip() for name in os.environ.get("ENTRYPOINT_REPLACE", "").split(",") if name.strip()]
    try:
        install(Path(sys.argv[1]), replace=replace)
    except Unusable as wrong:
        print(wrong, flush=True)
        return 65
    return 0


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Let only one installation run at a time: hosts that are simulated on one machine share its Python."""
    name = re.sub(r"\W", "_", sys.prefix)
    with open(Path(tempfile.gettempdir()) / f"entrypoint-install{name}-{os.getuid()}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
