"""Test how the user's code gets to the host and is run."""

import http.server
import io
import json
import os
import signal
import socket
import tarfile
import threading
import urllib.parse

import pytest
from builders import package
from hosts import LONG, PROGRAMS
from moto_server import moto
from package_index import Server
from processes import processes_with
from variants import variants
from waiting import eventually

TELL = "import sys; print('told', __name__, *sys.argv[1:])\n"


def folder(path, files):
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path


def tarball(path, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(text.encode()), 10**9
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def pip_into(tmp_path) -> dict[str, str]:
    """Return an environment in which pip, and not uv, installs into a folder of the test, not into this Python."""
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
    "no such folder": (
        {},
        "/no/such/folder",
        ["the code at /no/such/folder cannot be fetched", "no such file"],
    ),
    "not an archive": ({}, "/etc/hostname", ["the code at /etc/hostname is no .tar.gz: it is not compressed"]),
}


@pytest.mark.parametrize("code, source, said", variants(BROKEN, "program absent", "not an archive"))
def test_code_that_cannot_be_had(hosts, code, source, said):
    job = hosts(1, "train.py", code=code, hyperparameters={"sagemaker_submit_directory": source} if source else {})
    assert job.end() == [65]
    first = job.failures[0].splitlines()[0]
    assert first.startswith("algo-1 prepare (exit code 65): ")
    for part in said:
        assert part in first
    assert "Traceback" not in job[1].log


def test_the_programs_name_by_variable(hosts):
    """SAGEMAKER_PROGRAM wins over the hyperparameter, as with sagemaker-training."""
    job = hosts(1, "other.py", code={"train.py": TELL}, environment={"SAGEMAKER_PROGRAM": "train.py"})
    assert job.end() == [0]
    assert "told __main__" in job[1].log


@pytest.mark.parametrize("sent", ["files", pytest.param("archive", marks=pytest.mark.more), "archive, named"])
def test_code_by_channel(hosts, tmp_path, sent):
    """SDK v3 sends files; v2, under network isolation, an archive that it names."""
    archive = tmp_path / "job0/algo-1/input/data/code/sourcedir.tar.gz"
    named = {"sagemaker_submit_directory": json.dumps(str(archive))} if sent == "archive, named" else {}
    job = hosts(1, "train.py", code={}, hyperparameters=named, absent=("algo-1",))
    archive.parent.mkdir()
    if sent == "files":
        folder(archive.parent, {"train.py": TELL, "pkg/helper.py": ""})
    else:
        tarball(archive, {"train.py": TELL})
    job.start("algo-1")
    assert job.end() == [0]
    assert "told __main__" in job[1].log


# ---- S3 -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def s3():
    """Return the environment of a job whose S3 is moto's, with a bucket `bucket`, and a client."""
    import boto3  # here and not above: collecting stays quick

    keys = {"AWS_ACCESS_KEY_ID": "AKIAGEHEIM", "AWS_SECRET_ACCESS_KEY": "geheim", "AWS_SESSION_TOKEN": "geheim"}
    with moto() as url:
        environment = {**keys, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_S3": url, "NO_PROXY": "*"}
        client = boto3.client(
            "s3",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id="x",
            aws_secret_access_key="x",
        )
        client.create_bucket(Bucket="bucket")
        yield environment, client


@pytest.mark.xdist_group("s3")
def test_code_from_s3_on_every_host(hosts, s3, tmp_path):
    environment, client = s3
    client.upload_file(str(tarball(tmp_path / "a.tar.gz", {"train.py": TELL})), "bucket", "job/source/sourcedir.tar.gz")
    sent = {
        "sagemaker_submit_directory": '"s3://bucket/job/source/sourcedir.tar.gz"',
        "sagemaker_program": '"train.py"',
    }
    job = hosts(2, "train.py", code={}, hyperparameters=sent, environment=environment)
    assert job.end() == [0, 0]
    assert all("told __main__" in job[number].log for number in (1, 2))


BAD_OBJECTS = {
    # what: the object, what every host's failure file says
    "missing": (None, "cannot be fetched: there is no such object"),
    "climbs": ({"train.py": TELL, "../../outside.py": ""}, "is refused: it holds '../../outside.py', which leads out"),
    "cut off": (b"\x1f\x8b\x08 and no more", "is cut off or damaged"),
}


@pytest.mark.xdist_group("s3")
@pytest.mark.parametrize("bad, said", variants(BAD_OBJECTS, "climbs"))
def test_every_host_tells_of_code_that_cannot_be_had(hosts, s3, tmp_path, bad, said):
    environment, client = s3
    if isinstance(bad, dict):
        client.upload_file(str(tarball(tmp_path / "bad.tar.gz", bad)), "bucket", "bad.tar.gz")
    elif bad:
        client.put_object(Bucket="bucket", Key="bad.tar.gz", Body=bad)
    source = "s3://bucket/bad.tar.gz" if bad else "s3://bucket/none.tar.gz"
    sent = {"sagemaker_submit_directory": source}
    job = hosts(2, "train.py", code={}, hyperparameters=sent, environment=environment)
    assert job.end() == [65, 65]
    for failure in job.failures:
        first = failure.splitlines()[0]
        assert " prepare (exit code 65): the code at " + source in first and said in first
    assert "Traceback" not in str(job) and "geheim" not in str(job).lower()
    assert not list(tmp_path.rglob("outside.py"))


class Denies(http.server.BaseHTTPRequestHandler):
    """An S3 where the job's role may read nothing."""

    def do_GET(self) -> None:
        body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.xdist_group("s3")
def test_every_host_tells_of_denied_access(hosts, s3):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Denies) as server:
        threading.Thread(target=server.serve_forever).start()
        environment = {**s3[0], "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{server.server_port}"}
        sent = {"sagemaker_submit_directory": "s3://bucket/a.tar.gz"}
        job = hosts(2, "train.py", code={}, hyperparameters=sent, environment=environment)
        assert job.end() == [65, 65]
        server.shutdown()
    for failure in job.failures:
        assert "the code at s3://bucket/a.tar.gz cannot be fetched: access is denied; wanted s3:GetObject on" in failure


def test_every_host_tells_of_the_one_without_code(hosts):
    job = hosts(2, "train.py", code={"train.py": TELL}, absent=("algo-2",))
    (job.base("algo-2") / "code/train.py").unlink()
    job.start("algo-2")
    assert job.end() == [65, 65]
    for failure in job.failures:
        assert failure.startswith("algo-2 prepare (exit code 65): program train.py is not in")
    assert "told" not in str(job)


def test_a_container_that_is_killed_while_it_fetches_begins_again(hosts, tmp_path):
    """The next container must not take half a folder for complete code. An S3 that does not answer gives no end."""
    archive = tarball(tmp_path / "sourcedir.tar.gz", {"train.py": TELL})
    sent = {"sagemaker_program": "train.py", "sagemaker_submit_directory": "s3://bucket/sourcedir.tar.gz"}
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "geheim", "AWS_REGION": "us-east-1", "NO_PROXY": "*"}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        job = hosts(1, "train.py", code={}, hyperparameters=sent, environment={**keys, "AWS_ENDPOINT_URL_S3": url})
        kill_while_it_fetches(job)
    (job[1].base / "code/train.py").write_text("prin")
    config = job[1].base / "input/config/hyperparameters.json"
    config.write_text(json.dumps({**sent, "sagemaker_submit_directory": str(archive)}))
    job.start("algo-1")
    assert job.end() == [0]
    assert "told __main__" in job[1].log


def kill_while_it_fetches(job):
    eventually(lambda: any((job[1].base / "code").iterdir()), LONG, "the fetch to begin")
    job[1].kill()
    job[1].process.wait()
    for pid in processes_with(str(job.folder)):  # in a container they die with PID 1
        os.kill(pid, signal.SIGKILL)


# ---- what is installed ----------------------------------------------------------------------------------------------


def test_requirements_are_installed_first(hosts, tmp_path):
    library = {f"library/{name}": text for name, text in package("testlibrary", "answer = 42\n").items()}
    script = f"import sys; sys.path.append({str(tmp_path / 'site')!r})\n"
    script += "import testlibrary; print('answer', testlibrary.answer)\n"
    code = {"train.py": script, "requirements.txt": "./library\n", **library}
    code["pip.py"] = "raise SystemExit('not the real one')\n"
    job = hosts(1, "train.py", code=code, environment=pip_into(tmp_path))
    assert job.end() == [0]
    assert "answer 42" in job[1].log
    assert "pip installs, and not uv: PIP_TARGET" in job[1].log


@pytest.mark.more  # test_several_hosts.py has it
def test_requirements_that_cannot_be_installed(hosts):
    code = {"train.py": TELL, "requirements.txt": "--no-index\nno-such-distribution-of-anybody\n"}
    job = hosts(1, "train.py", code=code)
    assert job.end() == [65]
    first = job.failures[0].splitlines()[0]
    assert "requirements.txt" in first and "cannot be installed" in first and "no-such-distribution-of-anybody" in first
    assert "told" not in job[1].log


@pytest.fixture
def index(tmp_path):
    """Return an environment in which pip knows one package, testlibrary 1, which it builds and installs elsewhere."""
    files = package("testlibrary", "answer = 42\n")
    files["PKG-INFO"] = "Metadata-Version: 2.1\nName: testlibrary\nVersion: 1\n"
    place = tmp_path / "index/simple/testlibrary"
    place.mkdir(parents=True)
    tarball(place / "testlibrary-1.tar.gz", {f"testlibrary-1/{name}": text for name, text in files.items()})
    with Server(tmp_path / "index") as server:
        yield {
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_INDEX_URL": f"{server.url}/simple",
            "PIP_EXTRA_INDEX_URL": "",
            "PIP_FIND_LINKS": "",
            "PIP_TARGET": str(tmp_path / "site"),
            "HOME": str(tmp_path / "home"),
            "NO_PROXY": "*",
        }


def test_a_warm_pool_keeps_what_pip_has_built(hosts, index, tmp_path):
    warm = {**index, "SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY": str(tmp_path / "warm")}
    code = {"train.py": TELL, "requirements.txt": "testlibrary\n"}
    for cached in (False, True):
        job = hosts(1, "train.py", code=code, environment={**warm, "PIP_TARGET": str(tmp_path / f"site-{cached}")})
        assert job.end() == [0]
        assert (tmp_path / f"site-{cached}/testlibrary.py").is_file()
        assert ("Building wheel for testlibrary" in job[1].log) is not cached
        assert job[1].log.count("Successfully installed testlibrary-1") == 1
    assert any((tmp_path / "warm/pip").rglob("*.whl"))


CODE_ARTIFACT = {
    # the repository: exit code, what is said
    "mine": (0, "Successfully installed testlibrary-1"),
    "others": (65, "sts:GetServiceBearerToken for the job's execution role"),
}


@pytest.mark.parametrize("repository", ["mine", pytest.param("others", marks=pytest.mark.more)])
def test_requirements_from_codeartifact(hosts, index, repository):
    code, said = CODE_ARTIFACT[repository]
    url = urllib.parse.urlsplit(index["PIP_INDEX_URL"])
    environment = {
        **index,
        "PIP_INDEX_URL": "http://127.0.0.1:1/simple",
        "PIP_RETRIES": "0",
        "CA_REPOSITORY_ARN": f"arn:aws:codeartifact:us-east-1:123456789012:repository/domain/{repository}",
        "AWS_ENDPOINT_URL_CODEARTIFACT": f"{url.scheme}://{url.netloc}",
        **{"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"},
    }
    job = hosts(1, "train.py", code={"train.py": TELL, "requirements.txt": "testlibrary\n"}, environment=environment)
    assert job.end() == [code]
    assert said in job[1].log and "geheim" not in job[1].log
    if code:
        assert "requirements.txt in" in job.failures[0] and "not authorized" in job.failures[0]


def test_an_index_with_a_password(hosts):
    """It is not shown where the index does not answer."""
    environment = {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_INDEX_URL": "http://me:geheim@127.0.0.1:1/simple",
        "PIP_RETRIES": "0",
        "NO_PROXY": "*",
    }
    job = hosts(1, "train.py", code={"train.py": TELL, "requirements.txt": "testlibrary\n"}, environment=environment)
    assert job.end() == [65]
    assert "127.0.0.1:1/simple/testlibrary/" in job.failures[0]
    assert "no package index was reached: under network isolation" in job.failures[0]
    assert "geheim" not in job[1].log + job.failures[0]


# A network that drops all packets, as a VPC's without a way out does.
HOLE = (
    "ip link set lo up && ip link add hole0 type veth peer name hole1 && ip addr add 10.9.9.1/24 dev hole0 && "
    'ip link set hole0 arp off && ip link set hole0 up && ip link set hole1 up && exec "$@"'
)


@pytest.mark.parametrize("tool", ["uv", pytest.param("pip", marks=pytest.mark.more)])
def test_an_index_that_no_packet_reaches(hosts, netns, tmp_path, tool):
    """It is given up within seconds: left alone, uv takes 45 s, and pip a minute and a half."""
    own = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": "https://10.9.9.9/simple", "NO_PROXY": "*"}
    own |= {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", **({} if tool == "uv" else {"PIP_TARGET": str(tmp_path)})}
    code = {"train.py": TELL, "requirements.txt": "testlibrary\n"}
    before = {"algo-1": ["unshare", "--net", "sh", "-c", HOLE, "sh"]}
    job = hosts(1, "train.py", code=code, environment=own, before=before)
    assert job.end(within=30) == [65]
    assert "no package index was reached: under network isolation" in job.failures[0]


def test_requirements_beside_a_shell_script_are_left_to_it(hosts):
    """As on the AWS images."""
    job = hosts(1, "train.sh", code={"train.sh": "echo told\n", "requirements.txt": "no-such-distribution\n"})
    assert job.end() == [0]
    assert "requirements.txt is installed for .py programs and packages only: train.sh" in job[1].log


def test_a_package_with_pyproject_only_runs_as_a_module(hosts, tmp_path):
    code = package("train", "print('module', __spec__.name)\n" + TELL)
    del code["setup.py"]
    job = hosts(1, "train", code=code, environment=pip_into(tmp_path))
    assert job.end() == [0]
    assert "[algo-1 script] module train" in job[1].log
    assert (tmp_path / "site/train-1.dist-info").is_dir()


def test_a_script_beside_a_pyproject_is_still_a_script(hosts):
    """It may be there for ruff or uv; the AWS images run the file."""
    job = hosts(1, "train.py", code={"train.py": TELL, "pyproject.toml": "[project]\nname = 'x'\nversion = '1'\n"})
    assert job.end() == [0]
    assert "told __main__" in job[1].log and "Successfully installed" not in job[1].log


@pytest.mark.parametrize("program", ["train.py", pytest.param("train", marks=pytest.mark.more)])
def test_a_package_with_setup_py_runs_as_a_module(hosts, tmp_path, program):
    code = package("train", "print('module', __spec__.name)\n" + TELL)
    job = hosts(1, program, code=code, hyperparameters={"x": "a b"}, environment=pip_into(tmp_path))
    assert job.end() == [0]
    assert "[algo-1 script] module train" in job[1].log
    assert "told __main__ -x a b" in job[1].log
    assert (tmp_path / "site/train-1.dist-info").is_dir()  # it was installed


def test_a_setup_py_of_setuptools_needs_no_package_index(hosts, tmp_path):
    pytest.importorskip("setuptools")
    code = {"mine/train.py": "print('module', __spec__.name)\n" + TELL, "mine/__init__.py": ""}
    code["setup.py"] = "from setuptools import setup\nsetup(name='mine', packages=['mine'])\n"
    job = hosts(1, "mine/train.py", code=code, hyperparameters={"x": "a b"}, environment=pip_into(tmp_path))
    assert job.end() == [0]
    assert "[algo-1 script] module mine.train" in job[1].log
    assert "told __main__ -x a b" in job[1].log
    assert list((tmp_path / "site").glob("mine-*.dist-info"))  # it was installed


READS = "from setuptools import setup\nsetup(name='mine', version='1', long_description=open('README.md').read())\n"
OWN_BUILDS = {
    "raises": (
        {"setup.py": READS},
        "cannot be installed: FileNotFoundError: [Errno 2] No such file or directory: 'README",
    ),
    "is empty": (
        {"setup.py": "", "requirements.txt": "pip\n"},
        "is empty: it calls no setup(); wanted one that calls it",
    ),
}


@pytest.mark.parametrize("code, said", variants(OWN_BUILDS, "is empty"))
def test_a_setup_py_that_fails_is_named_with_its_reason(hosts, tmp_path, code, said):
    pytest.importorskip("setuptools")
    environment = {**pip_into(tmp_path), "PIP_NO_BUILD_ISOLATION": "false"}
    job = hosts(1, "train.py", code={"train.py": TELL, **code}, environment=environment)
    assert job.end() == [65]
    assert f"setup.py in {job[1].base / 'code'} {said}" in job.failures[0].splitlines()[0]


SHELL = 'echo "told $1 $2"\n'


@pytest.mark.parametrize(
    "script",
    variants({"sh": "#!/bin/sh\n" + SHELL, "bash": "#!/bin/bash\n" + SHELL, "no first line": SHELL}, "no first line"),
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
    """The whole group gets the signal, since a shell would not pass it on."""
    code = {"train.sh": "python3 saves.py\n", "saves.py": (PROGRAMS / "saves.py").read_text()}
    job = hosts(1, "train.sh", code=code)
    job.says("asleep")
    job.signal(signal.SIGTERM)
    job.end()
    assert "saved\n" in job[1].log


def test_a_module_of_the_users_may_be_called_like_one_of_ours(hosts):
    names = ("json.py", "prepare.py", "sources.py", "s3.py", "entrypoint.py", "queue.py")
    code = dict.fromkeys(names, "raise SystemExit('the wrong module')")
    job = hosts(1, "train.py", code={**code, "json.py": "", "train.py": TELL})
    assert job.end() == [0]


@pytest.mark.parametrize("content", [pytest.param("{}", marks=pytest.mark.more), "null"])
def test_a_job_without_channels(hosts, content):
    files = {"input/config/inputdataconfig.json": content}
    job = hosts(1, "train.py", code={"train.py": TELL}, base_files=files)
    assert job.end() == [0]
