"""How the user's code gets to the host and is run."""

import io
import tarfile

import pytest

TELL = "import sys; print('told', __name__, *sys.argv[1:])\n"
# A package that is built by a few lines of its own: no network, no setuptools, and none of pip's settings.
BACKEND = """
import zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "NAME-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.write("NAME.py")
        wheel.writestr("NAME-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: NAME\\nVersion: 1\\n")
        wheel.writestr("NAME-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("NAME-1.dist-info/RECORD", "")
    return name
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def package(name: str, module: str) -> dict[str, str]:
    return {
        f"{name}.py": module,
        "setup.py": "",
        "backend.py": BACKEND.replace("NAME", name),
        "pyproject.toml": PROJECT,
    }


def folder(path, files):
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path


def tarball(path, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def pip_into(tmp_path) -> dict[str, str]:
    """Environment in which pip installs into a folder of the test and not into this Python."""
    return {"PIP_TARGET": str(tmp_path / "site"), "PIP_NO_INDEX": "1"}


def test_code_from_a_folder(hosts, tmp_path):
    source = folder(tmp_path / "source", {"train.py": TELL, "pkg/helper.py": ""})
    job = hosts(1, "train.py", code={}, hyperparameters={"sagemaker_submit_directory": str(source), "x": "1"})
    assert job.end() == [0]
    assert "[algo-1 script] told __main__ -x 1" in job[1].log
    assert (job[1].base / "code/pkg/helper.py").exists()


def test_code_from_an_archive(hosts, tmp_path):
    source = tarball(tmp_path / "sourcedir.tar.gz", {"train.py": TELL})
    job = hosts(1, "train.py", code={}, hyperparameters={"sagemaker_submit_directory": f'"{source}"'})
    assert job.end() == [0]
    assert "told __main__" in job[1].log


def test_code_that_is_there_is_not_fetched(hosts):
    job = hosts(1, "train.py", code={"train.py": TELL}, hyperparameters={"sagemaker_submit_directory": "s3://no/such"})
    assert job.end() == [0]


BROKEN = {
    # code, source: what the failure's first line says
    "program absent": (
        {"other.py": ""},
        None,
        ["program train.py is not in", "which holds other.py", "sagemaker_program"],
    ),
    "no code at all": ({}, None, ["program train.py is not in", "which holds nothing"]),
    "no such folder": ({}, "/no/such/folder", ["the code at /no/such/folder cannot be fetched", "No such file"]),
    "not an archive": ({}, "/etc/hostname", ["train.py"]),
}


@pytest.mark.parametrize("code, source, said", BROKEN.values(), ids=BROKEN)
def test_code_that_cannot_be_had(hosts, code, source, said):
    job = hosts(1, "train.py", code=code, hyperparameters={"sagemaker_submit_directory": source} if source else {})
    assert job.end() == [65]
    first = job.failures[0].splitlines()[0]
    assert first.startswith("algo-1 prepare (exit code 65): ")
    for part in said:
        assert part in first
    assert "Traceback" not in job[1].log


def test_requirements_are_installed_first(hosts, tmp_path):
    library = {f"library/{name}": text for name, text in package("testlibrary", "answer = 42\n").items()}
    script = f"import sys; sys.path.append({str(tmp_path / 'site')!r})\n"
    script += "import testlibrary; print('answer', testlibrary.answer)\n"
    code = {"train.py": script, "requirements.txt": "./library\n", **library}
    job = hosts(1, "train.py", code=code, environment=pip_into(tmp_path))
    assert job.end() == [0]
    assert "answer 42" in job[1].log


def test_requirements_that_cannot_be_installed(hosts):
    code = {"train.py": TELL, "requirements.txt": "--no-index\nno-such-distribution-of-anybody\n"}
    job = hosts(1, "train.py", code=code)
    assert job.end() == [65]
    first = job.failures[0].splitlines()[0]
    assert "requirements.txt" in first and "cannot be installed" in first and "no-such-distribution-of-anybody" in first
    assert "told" not in job[1].log


@pytest.mark.parametrize("program", ["train.py", "train"])
def test_a_package_with_setup_py_runs_as_a_module(hosts, tmp_path, program):
    code = package("train", "print('module', __spec__.name)\n" + TELL)
    job = hosts(1, program, code=code, hyperparameters={"x": "a b"}, environment=pip_into(tmp_path))
    assert job.end() == [0]
    assert "[algo-1 script] module train" in job[1].log
    assert "told __main__ -x a b" in job[1].log
    assert (tmp_path / "site/train-1.dist-info").is_dir()  # it was installed


SHELL = 'echo "told $1 $2"\n'


@pytest.mark.parametrize(
    "script", ["#!/bin/sh\n" + SHELL, "#!/bin/bash\n" + SHELL, SHELL], ids=["sh", "bash", "no first line"]
)
def test_a_shell_script(hosts, script):
    job = hosts(1, "train.sh", code={"train.sh": script}, hyperparameters={"x": '"a  b"'})
    assert job.end() == [0]
    assert "[algo-1 script] told -x a  b" in job[1].log


def test_a_shell_script_beside_a_setup_py_is_still_a_shell_script(hosts):
    job = hosts(1, "train.sh", code={"train.sh": SHELL, "setup.py": "raise SystemExit('not to be run')"})
    assert job.end() == [0]
    assert "told" in job[1].log


def test_the_exit_code_of_a_shell_script(hosts):
    job = hosts(1, "train.sh", code={"train.sh": "echo no; exit 42\n"})
    assert job.end() == [42]


def test_sigterm_reaches_what_a_shell_script_runs(hosts):
    """The whole group is asked: a shell would not pass the signal on."""
    import signal

    from hosts import PROGRAMS

    code = {"train.sh": "python3 saves.py\n", "saves.py": (PROGRAMS / "saves.py").read_text()}
    job = hosts(1, "train.sh", code=code)
    job.says("asleep")
    job.signal(signal.SIGTERM)
    job.end()
    assert "saved\n" in job[1].log


def test_a_module_of_the_users_may_be_called_like_one_of_ours(hosts):
    code = dict.fromkeys(("json.py", "prepare.py", "entrypoint.py", "queue.py"), "raise SystemExit('the wrong module')")
    job = hosts(1, "train.py", code={**code, "json.py": "", "train.py": TELL})
    assert job.end() == [0]


def test_a_huge_but_legal_set_of_hyperparameters(hosts):
    """The API's limit: 100 of 2,500 characters. One environment entry holds 128 KiB at most."""
    many = {f"name-{number}": "x" * 2500 for number in range(90)}
    job = hosts(1, "tells.py", hyperparameters=many)
    assert job.end() == [0]
    (told,) = job.json_of("told.json")
    assert len(told["argv"]) == 180


@pytest.mark.parametrize("content", ["{}", "null"])
def test_a_job_without_channels(hosts, content):
    files = {"input/config/inputdataconfig.json": content}
    job = hosts(1, "train.py", code={"train.py": TELL}, base_files=files)
    assert job.end() == [0]
