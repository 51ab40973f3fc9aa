"""Test programs/prepare/sources.py and archives.py: sources of the user's code, and refused archives."""

import contextlib
import gzip
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import archives
import code_files
import installing
import pytest
import sources
import wanted
from builders import write_files
from unusable import Unusable

TRAIN = b"print('hello')\n"
NOISE = os.urandom(100_000)


def file(name: str, content: bytes = TRAIN, **more) -> tuple[tarfile.TarInfo, bytes]:
    """Return a member of an archive with its content."""
    info = tarfile.TarInfo(name)
    for key, value in {"size": len(content), **more}.items():
        setattr(info, key, value)
    return info, content


def other(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    return file(name, b"", type=kind, linkname=target)


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return other(name, tarfile.SYMTYPE, target)


def hard(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return other(name, tarfile.LNKTYPE, target)


def tarball(path: Path, *members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture(params=["with tarfile's filter", "without"])
def any_python(request, monkeypatch):
    """Run the test with and without extraction filters in tarfile; Python 3.11.2 has none."""
    if request.param == "without":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    elif not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python's tarfile has no filters")


@pytest.fixture
def place(tmp_path):
    """Return a folder for the test; the file beside its folder `code` must stay unchanged."""
    (tmp_path / "place" / "code").mkdir(parents=True)
    (tmp_path / "place" / "outside").write_text("untouched")
    return tmp_path / "place"


def unchanged(place: Path) -> bool:
    return sorted(path.name for path in place.iterdir()) == ["code", "outside"] and (
        (place / "outside").read_text() == "untouched"
    )


# ---- archives -------------------------------------------------------------------------------------------------------


def test_archive_with_all_allowed_members_is_unpacked(any_python, place):
    whole = tarball(
        place.parent / "a.tar.gz",
        other(".", tarfile.DIRTYPE),
        file("./train.py", uid=12345, gid=12345, uname="root", mode=0o4777),
        file("pkg/__init__.py", b"", mode=0o000),
        file("pkg/tool.sh", b"true", mode=0o755),
        link("pkg/main.py", "../train.py"),
        link("latest", "pkg"),
        hard("same.py", "train.py"),
    )
    archives.unpack(whole, place / "code", "s3://b/a.tar.gz")
    code = place / "code"
    assert (code / "train.py").read_bytes() == (code / "pkg/main.py").read_bytes() == TRAIN
    assert (code / "same.py").samefile(code / "train.py")
    assert (code / "latest/tool.sh").stat().st_mode & 0o777 == 0o755
    status = (code / "train.py").stat()
    assert (status.st_uid, status.st_mode & 0o7022) == (os.getuid(), 0)
    assert (code / "pkg/__init__.py").stat().st_mode & 0o600 == 0o600
    assert unchanged(place)


REFUSED = {
    # what: members, what is said of them
    "out": ([file("../outside")], "'../outside', which leads out of the archive"),
    "out, later": ([file("train.py"), file("pkg/../../outside")], "leads out of the archive"),
    "absolute": ([file("/tmp/evil.py")], "'/tmp/evil.py', which is absolute"),
    "link out": ([link("data", "../outside")], "'data', a link to '../outside', which leads out"),
    "link out of a folder": ([file("pkg/a.py"), link("pkg/data", "../../outside")], "leads out of the archive"),
    "absolute link": ([link("python", "/usr/bin/python3")], "a link to '/usr/bin/python3', which is absolute"),
    "hard link out": ([hard("data", "../outside")], "a link to '../outside'"),
    "absolute hard link": ([hard("data", "/etc/passwd")], "a link to '/etc/passwd', which is absolute"),
    "through a link": ([link("here", "."), file("here/train.py")], "leads through the link 'here'"),
    "links that lead out together": ([link("a", "."), link("b", "a/.."), file("b/outside")], "through the link 'a'"),
    "through a hard link": ([file("a"), hard("b", "a"), file("b/x")], "leads through the link 'b'"),
    "a hard link to a link": ([link("a/b/c", "../../x"), hard("h", "a/b/c")], "leads through the link 'a/b/c'"),
    "over a link": ([link("a", "x"), file("a")], "'a' twice, once as a link"),
    "device": ([other("null", tarfile.CHRTYPE)], "'null', which is a device or a pipe"),
    "pipe": ([file("train.py"), other("pipe", tarfile.FIFOTYPE)], "'pipe', which is a device or a pipe"),
    "a hard link to a later file": ([hard("b", "a"), file("a")], "'b', a hard link to 'a', of which there is no file"),
    "a hard link to nothing": ([file("a"), hard("b", "c")], "'b', a hard link to 'c', of which there is no file"),
    "a hard link to a folder": ([other("a", tarfile.DIRTYPE), hard("b", "a")], "of which there is no file before it"),
    "a path of thousands of parts": ([file("a/" * 1900 + "train.py")], "1900 folders in one another, of 100 at most"),
    "of no known kind": ([other("odd", b"Z")], "'odd', which is a device or a pipe"),
}


@pytest.mark.parametrize("members, said", REFUSED.values(), ids=REFUSED)
def test_archive_that_would_leave_its_folder_is_refused(any_python, place, members, said):
    bad = tarball(place.parent / "bad.tar.gz", *members)
    with pytest.raises(Unusable) as refused:
        archives.unpack(bad, place / "code", "s3://b/bad.tar.gz")
    assert said in str(refused.value) and "s3://b/bad.tar.gz is refused" in str(refused.value)
    assert list((place / "code").iterdir()) == [] and unchanged(place)


def contents(tmp_path: Path) -> dict[str, tuple[bytes, str]]:
    """Return damaged archives by a description of the damage: (the archive's bytes, part of the expected error)."""
    whole = tarball(tmp_path / "whole", file("train.py"), file("noise", NOISE)).read_bytes()
    plain = tarball(tmp_path / "plain", file("train.py"), file("more.py"), mode="w").read_bytes()

    gz = gzip.compress
    negative, _ = file("x", size=-1)
    return {
        "nothing": (b"", "it is an empty file"),
        "text": (b"hello, world, once more\n" * 100, "it is not compressed with gzip"),
        "a page": (b"<!DOCTYPE html><html>no</html>", "it is HTML or XML"),
        "zip": (b"PK\x03\x04" + NOISE, "it is a zip archive"),
        "bzip2": (tarball(tmp_path / "bz", file("a"), mode="w:bz2").read_bytes(), "compressed with bzip2"),
        "not compressed": (plain, "not compressed with gzip"),
        "no tar": (gz(TRAIN * 100), "is cut off or damaged"),
        "the first bytes": (whole[:10], "is cut off or damaged"),
        "a third": (whole[: len(whole) // 3], "is cut off or damaged"),
        "all but the last bytes": (whole[:-5], "is cut off or damaged"),
        "another byte": (whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:], "is cut off or damaged"),
        "another checksum": (whole[:-8] + b"abcd" + whole[-4:], "is cut off or damaged"),
        "a tar without its end": (gz(plain[:1024]), "without tar's end mark"),
        "garbage after the first file": (gz(plain[:1024] + b"garbage " * 512), "without tar's end mark"),
        # A tarfile that knows of it itself says so, as Debian's does, or we do.
        "a negative size": (gz(negative.tobuf(tarfile.GNU_FORMAT) + bytes(10240)), "is cut off or damaged"),
    }


def test_damaged_archive_is_refused(any_python, place):
    for what, (content, said) in contents(place.parent).items():
        (place.parent / "bad.tar.gz").write_bytes(content)
        with pytest.raises(Unusable) as refused:
            archives.unpack(place.parent / "bad.tar.gz", place / "code", "/bad.tar.gz")
        assert said in str(refused.value), what
        assert "\n" not in str(refused.value) and "wanted a .tar.gz" in str(refused.value), what


def test_code_larger_than_free_disk_is_refused(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", small], capture_output=True)
    if mounted.returncode:
        pytest.skip("needs root, to mount a small disk")
    try:
        zeros = tarball(tmp_path / "zeros.tar.gz", file("train.py"), file("zeros", bytes(2 << 20)))
        with pytest.raises(Unusable, match=r"does not fit: it has 2 MiB, and .*small.* has 1 MiB free"):
            archives.unpack(zeros, small, str(zeros))
        assert list(small.iterdir()) == []
        folder = tmp_path / "folder"
        folder.mkdir()
        (folder / "zeros").write_bytes(bytes(2 << 20))
        with pytest.raises(Unusable, match=r"does not fit: it has 2 MiB"):
            sources.fetch(str(folder), "train.py", small, tmp_path / "none")
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", small], check=True)


# ---- where the code comes from --------------------------------------------------------------------------------------


def fetch(place: Path, source: str = "", program: str = "train.py", channel: str = "channel") -> set[str]:
    """Fetch the user's code into the code folder; return its paths."""
    code = place / "code"
    origin = sources.fetch(source or str(code), program, code, place.parent / channel)
    sources.check(program, code, origin, installing.is_package(program, code))
    return {str(path.relative_to(code)) for path in code.rglob("*") if path.is_file()}


def test_links_in_a_folder_are_followed(place, tmp_path):
    """sagemaker-training follows links, too. Dangling links are left out."""
    write_files(tmp_path, {"real/lib.py": "", "source/train.py": ""})
    source = tmp_path / "source"
    (source / "lib").symlink_to(tmp_path / "real")
    (source / "gone").symlink_to(tmp_path / "nowhere")
    assert fetch(place, str(source)) == {"train.py", "lib/lib.py"}
    assert not (place / "code/lib").is_symlink()


FETCHED = {
    # where it is: what makes that in a folder and returns the source, if the job names one; what comes of it
    "an archive of any name": (lambda base: tarball(base / "model-code", file("train.py")), {"train.py"}),
    "the program itself": (lambda base: write_files(base, {"train.py": ""}) / "train.py", {"train.py"}),
    # As SDK v3 makes it. An archive beside the program is data.
    "channel code, files": (
        lambda base: write_files(base / "channel", {"train.py": "", "lib/x.py": "", "weights.tar.gz": "none"}) and "",
        {"train.py", "lib/x.py", "weights.tar.gz"},
    ),
    "channel code, an archive": (
        lambda base: tarball(base / "channel/sourcedir.tar.gz", file("train.py")) and "",
        {"train.py", "sourcedir.tar.gz"},
    ),
    # SDK v2 sends it as sagemaker_submit_directory.
    "network isolation, the archive in the channel": (
        lambda base: tarball(base / "channel/sourcedir.tar.gz", file("train.py")), {"train.py"}
    ),
    "an archive beside a channel, which is for jobs that name nothing": (
        lambda base: tarball(write_files(base, {"channel/other.py": ""}) / "a.tar.gz", file("train.py")), {"train.py"}
    ),
    # A container was killed while it fetched.
    "an archive, and half a folder is there": (
        lambda base: tarball(
            write_files(base, {f"place/code/{sources.UNFINISHED}": "", "place/code/half/a.py": ""}) / "a.tar.gz",
            file("train.py"),
        ),
        {"train.py"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("make, found", FETCHED.values(), ids=FETCHED)
def test_code_is_fetched_from_each_kind_of_source(place, tmp_path, make, found):
    (tmp_path / "channel").mkdir()
    assert fetch(place, str(make(tmp_path))) == found


def test_existing_program_is_not_replaced_by_code_from_s3(place):
    (place / "code/train.py").write_text("mine")
    assert fetch(place, "s3://no/such") == {"train.py"}
    assert (place / "code/train.py").read_text() == "mine"


def test_error_on_s3_code_names_the_wheels_extra(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.delitem(sys.modules, "s3", raising=False)
    with pytest.raises(Unusable, match=r"s3://bucket/code takes boto3.*pip install 'sagemaker-tf-entrypoint\[aws\]'"):
        fetch(place, "s3://bucket/code")


def cut_off(path: Path) -> Path:
    os.truncate(path, path.stat().st_size - 99)
    return path


WRONG = {
    # what makes it in a folder and returns the source: what is said
    "no such file": (
        lambda base: "/no/such/a.tar.gz", "the code at /no/such/a.tar.gz cannot be fetched: no such file or folder"
    ),
    "another scheme": (
        lambda base: "https://me:geheim@host/a.tar.gz?X-Amz-Signature=geheim",
        "the code is at https://host/a.tar.gz; wanted a folder",
    ),
    "a bucket": (lambda base: "s3://bucket", "the code is at s3://bucket; wanted the URI of a .tar.gz"),
    "a folder of S3": (lambda base: "s3://bucket/folder/", "wanted the URI of a .tar.gz, s3://BUCKET/KEY"),
    "nothing": (lambda base: "", "which holds nothing and was named nowhere else"),
    "cut off": (lambda base: cut_off(tarball(base / "a.tar.gz", file("train.py"), file("b", NOISE))), "cut off"),
    "without the program": (
        lambda base: tarball(write_files(base, {"place/code/other.py": ""}) / "a.tar.gz", file("train.py")),
        "which holds other.py and was there before the job;",
    ),
}  # fmt: skip


@pytest.mark.parametrize("make, said", WRONG.values(), ids=WRONG)
def test_source_without_the_program_is_refused(place, tmp_path, make, said):
    with pytest.raises(Unusable) as refused:
        fetch(place, str(make(tmp_path)))
    assert said in str(refused.value)
    assert "geheim" not in str(refused.value)
    assert {path.name for path in (place / "code").iterdir()} <= {"other.py"}  # which was there


def test_non_utf_8_name_is_escaped_in_missing_program_error(tmp_path):
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/tr\xe4in\n.py")).touch()
    with pytest.raises(Unusable) as refused:
        sources.check("train.py", tmp_path, "is from there", False)
    assert "which holds tr\\udce4in\\n.py and is from there" in str(refused.value).encode().decode()


def circle(folder: Path) -> None:
    for name in "ab":
        (folder / name).symlink_to(".")


def deep(folder: Path) -> None:
    there = os.open(folder, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("a", dir_fd=there)
        below = os.open("a", os.O_RDONLY, dir_fd=there)
        os.close(there)
        there = below
    os.close(there)


ENDLESS = {
    # what is beside train.py: what is said where it is copied, and where it lies in the code folder already
    "a named pipe": (lambda folder: os.mkfifo(folder / "data.py"), "py is a named pipe", "py is a named pipe"),
    "a device": (lambda folder: (folder / "x.py").symlink_to("/dev/zero"), "x.py is a device", "x.py is a device"),
    "circles of links": (circle, "is a link to a folder that it is in", ""),
    "a link to itself": (lambda folder: (folder / "x.py").symlink_to("x.py"), "", ""),
    "thousands of folders": (deep, "100 folders in one another and more", "100 folders in one another and more"),
    "a sparse file": (lambda folder: os.truncate(folder / "train.py", 1 << 43), "does not fit", ""),
}


@pytest.mark.parametrize("make, copied, there", ENDLESS.values(), ids=ENDLESS)
def test_endless_code_is_refused_at_once(place, tmp_path, make, copied, there):
    """The folder is first the job's source and then its code folder, from which nothing is copied."""
    folder = write_files(tmp_path / "source", {"train.py": TRAIN})
    make(folder)
    for said, work in ((copied, lambda: fetch(place, str(folder))), (there, lambda: list(code_files.texts(folder)))):
        with pytest.raises(Unusable, match=said) if said else contextlib.nullcontext():
            work()
    with contextlib.suppress(Unusable):
        code_files.digest_of_code(folder)
    subprocess.run(["rm", "-rf", folder], check=True)  # Python's own function calls itself for each folder


def test_links_to_dev_null_become_empty_files(place, tmp_path):
    folder = write_files(tmp_path / "source", {"train.py": TRAIN})
    for name in (".bash_history", "local_settings.py", "local.sh"):
        (folder / name).symlink_to("/dev/null")
    assert [name for name, _ in code_files.texts(folder)] == ["local_settings.py", "train.py"]
    fetch(place, str(folder))
    assert {path.name: path.read_bytes() for path in (place / "code").iterdir()} == {
        "train.py": TRAIN, ".bash_history": b"", "local_settings.py": b"", "local.sh": b"",
    }  # fmt: skip


@pytest.mark.parametrize("error", [PermissionError, FileNotFoundError])
def test_unreadable_or_vanished_folder_is_skipped(tmp_path, monkeypatch, error):
    """Root may read all folders, so the test makes the error itself."""
    scandir = os.scandir

    def refusing(path):
        if Path(path).name == "lost+found":
            raise error(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    write_files(tmp_path, {"lost+found/a.py": "", "package/a.py": ""})
    assert [name for name, _ in code_files.texts(tmp_path)] == ["package/a.py"]
    assert code_files.digest_of_code(tmp_path)


@pytest.mark.parametrize("name, reads", [("pyproject.toml", installing.is_package), ("requirements.txt", wanted.read)])
def test_file_too_large_to_read_is_refused(tmp_path, name, reads):
    (tmp_path / name).touch()
    os.truncate(tmp_path / name, 1 << 40)
    with pytest.raises(Unusable, match=f"{name} has 1048576 MB; wanted at most 64"):
        reads(*(("train", tmp_path) if reads is installing.is_package else (tmp_path / name,)))


# ---- what is a package ----------------------------------------------------------------------------------------------

PROJECT = "[project]\nname = 'x'\n"
PACKAGES = {
    # program, files: is it a module of a package
    "a file": ("train.py", {"train.py": ""}, False),
    "setup.py": ("train.py", {"train.py": "", "setup.py": ""}, True),
    "setup.py, a module": ("pkg.train", {"setup.py": ""}, True),
    "a shell script beside setup.py": ("train.sh", {"train.sh": "", "setup.py": ""}, False),
    "a file beside pyproject.toml": ("train.py", {"train.py": "", "pyproject.toml": PROJECT}, False),
    "pyproject.toml, a module": ("pkg.train", {"pyproject.toml": PROJECT}, True),
    "pyproject.toml without [project]": ("pkg", {"pyproject.toml": "[build-system]\nrequires = []\n"}, True),
    "pyproject.toml for tools only": ("pkg", {"pyproject.toml": "[tool.ruff]\n"}, False),
    "a command beside pyproject.toml": ("run", {"run": "", "pyproject.toml": PROJECT}, False),
}


@pytest.mark.parametrize("program, files, package", PACKAGES.values(), ids=PACKAGES)
def test_python_package_is_recognised(tmp_path, program, files, package):
    assert installing.is_package(program, write_files(tmp_path, files)) is package


def test_malformed_pyproject_is_refused(tmp_path):
    with pytest.raises(Unusable, match=r"pyproject\.toml is no TOML: .*line 1"):
        installing.is_package("pkg", write_files(tmp_path, {"pyproject.toml": "[project\n"}))


def test_program_of_another_user_runs_if_executable(tmp_path, monkeypatch):
    def refuse(path, mode):
        raise PermissionError(1, "Operation not permitted")

    program = tmp_path / "train.sh"
    program.write_text("echo told")
    monkeypatch.setattr(installing.Path, "chmod", refuse)
    with pytest.raises(Unusable, match=r"train\.sh cannot be made executable: .*not permitted; wanted it so \(chmod"):
        installing.install("train.sh", tmp_path)
    os.chmod(program, 0o755)  # noqa: PTH101
    installing.install("train.sh", tmp_path)


# ---- a package's program in a folder --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "files", "installed", "module"),
    [
        ("train.py", [], [], "train"),
        ("pkg.train", [], [], "pkg.train"),
        ("project/training/model.py", ["project/__init__.py", "project/training/__init__.py"], [], None),
        ("project/training/model", ["project/__init__.py"], [], "project.training.model"),
        ("./project/model.py", [], [], "project.model"),  # folders without __init__.py are packages, too
        ("src/project/model.py", ["src/project/__init__.py"], ["project"], "project.model"),
        ("src/project/model.py", ["src/project/__init__.py"], [], "src.project.model"),  # setup.py does not install it
    ],
)
def test_program_in_subfolders_runs_as_module_of_its_package(tmp_path, program, files, installed, module):
    code = write_files(tmp_path / "code", dict.fromkeys([program.removesuffix(".py") + ".py", *files], ""))
    site = write_files(tmp_path / "site", {f"{name}/__init__.py": "" for name in installed})
    found = installing.module_of(program, code, [str(code), str(site)])
    assert found == (module or "project.training.model")


def test_absolute_program_path_in_code_runs_as_module(tmp_path):
    assert installing.modules_of(f"{tmp_path}/scripts/train.py", tmp_path) == ["scripts.train"]
    with pytest.raises(Unusable, match=r"program /elsewhere/train\.py is .* not below .*; wanted its path from there"):
        installing.modules_of("/elsewhere/train.py", tmp_path)


def test_non_module_folder_is_refused_before_installing(tmp_path):
    with pytest.raises(Unusable, match=r"v1\.0/train\.py is to run as a module.* none can be called 'v1\.0'; wanted"):
        installing.modules_of("v1.0/train.py", tmp_path)


# ---- shell scripts --------------------------------------------------------------------------------------------------


def run_script(code: Path, program: str = "train.sh") -> str:
    """Run the prepare step and a script; return the script's output."""
    installing.install(program, code)
    return subprocess.check_output(["/bin/sh", "-c", 'exec "$0"', f"./{program}"], cwd=code, text=True)


def test_scripts_with_windows_line_ends_run(tmp_path, capsys):
    train = b"\xef\xbb\xbf#!/bin/bash\r\nset -e\r\n. lib/more.sh\r\nsaid here\r\n"
    more = 'said() {\r\n  echo "told $1"\r\n}\r\n'
    write_files(tmp_path, {"train.sh": train, "lib/more.sh": more, "data.bat": "echo\r\n"})
    assert run_script(tmp_path) == "told here\n"
    assert "removed line ends of Windows, which no shell accepts, from train.sh, lib/more.sh" in capsys.readouterr().out
    assert (tmp_path / "data.bat").read_bytes() == b"echo\r\n"


@pytest.mark.parametrize("content", [b"#!/bin/sh\nprintf 'a\r\n'\n", b"# text\nprintf 'a\r\n'\n"])
def test_scripts_with_linux_line_ends_stay_unchanged(tmp_path, capsys, content):
    (tmp_path / "train.sh").write_bytes(content)
    run_script(tmp_path)
    assert (tmp_path / "train.sh").read_bytes() == content
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("first", "asked"),
    [("#!/no/zsh -e", "/no/zsh, which"), ("#!/usr/bin/env no-such-shell", "no-such-shell, which"), ("#!", "nothing;"),
     ("#!/usr/bin/env -S A=1 no-such-shell -x", "no-such-shell, which"), ("#!/bin", "/bin, which"),
     ("#!/no/zsh\r", "/no/zsh, which")],
)  # fmt: skip
@pytest.mark.parametrize("program", ["train.sh", "train"])
def test_missing_interpreter_is_named_with_its_line(tmp_path, first, asked, program):
    (tmp_path / program).write_text(f"{first}\necho told\n", newline="")
    with pytest.raises(Unusable) as wrong:
        installing.install(program, tmp_path)
    assert f"the first line of {program}, {first.rstrip()!r}, names {asked}" in str(wrong.value)
    assert "such as #!/bin/bash" in str(wrong.value)


@pytest.mark.parametrize(
    "first", ["#!/bin/sh", "#! /bin/sh -e", "#!/usr/bin/env sh", "#!/usr/bin/env -S sh -e", "# no shebang", "#!./own"]
)
def test_script_runs_with_its_existing_interpreter(tmp_path, first):
    (tmp_path / "own").symlink_to("/bin/sh")
    (tmp_path / "train.sh").write_text(f"{first}\necho told\n")
    assert run_script(tmp_path) == "told\n"


def test_utf_16_script_is_refused(tmp_path):
    with pytest.raises(Unusable, match=r"train\.sh is in UTF-16"):
        installing.install("train.sh", write_files(tmp_path, {"train.sh": "#!/bin/sh\n".encode("utf-16")}))


def test_user_files_named_like_pip_modules_are_not_imported(tmp_path):
    names = ("pip.py", "runpy.py", "logging.py", "queue.py")
    write_files(tmp_path, dict.fromkeys(names, "raise SystemExit('the wrong one')\n"))
    pip = Path(installing.__file__).parents[1] / "run_pip.py"
    done = subprocess.run([sys.executable, pip, "--version"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("pip ")
