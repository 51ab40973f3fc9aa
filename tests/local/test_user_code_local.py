"""Test how the user's code reaches the host and how the launcher starts it."""

import io
import json
import os
import signal
import socket
import tarfile
import urllib.parse

import pytest
from builders import package
from hosts import LONG, write
from moto_server import moto
from package_index import Server
from processes import processes_with
from waiting import eventually

TELL = "import sys; print('told', __name__, *sys.argv[1:])\n"


def tarball(path, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(text.encode()), 10**9
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def pip_into(tmp_path) -> dict[str, str]:
    """Return an environment in which pip (not uv) installs into a folder of the test instead of this Python."""
    return {"PIP_TARGET": str(tmp_path / "site"), "PIP_NO_INDEX": "1"}


def test_program_can_come_from_a_folder(hosts, tmp_path):
    write(tmp_path / "source/train.py", TELL)
    write(tmp_path / "source/pkg/helper.py", "")
    job = hosts(1, code={}, hyperparameters={"sagemaker_submit_directory": f"{tmp_path}/source", "x": "1"})
    job.must_end(0)
    assert "[algo-1 script] told __main__ -x 1" in job[1].log
    assert (job[1].base / "code/pkg/helper.py").exists()


def test_failure_text_of_a_missing_program_lists_present_files(hosts):
    """unit/programs/test_user_code.py has other cases of unavailable code."""
    job = hosts(1, code={"other.py": ""})
    first = job.must_end(65, "algo-1 prepare (exit code 65): program train.py is not in ")
    assert "which holds other.py" in first and "sagemaker_program" in first
    assert "Traceback" not in job[1].log


def test_variable_wins_over_the_hyperparameter_for_the_program(hosts):
    """SAGEMAKER_PROGRAM wins over the hyperparameter, as with sagemaker-training."""
    job = hosts(1, "other.py", code={"train.py": TELL}, environment={"SAGEMAKER_PROGRAM": "train.py"})
    job.must_end(0)
    assert "told __main__" in job[1].log


def test_program_can_come_from_channel_code(hosts):
    """SDK v3 sends code this way. unit/programs/test_user_code.py tests archives."""
    hosts(1, code={}, base_files={"input/data/code/train.py": TELL}).must_end(0)


# ---- S3 -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def s3():
    """Return the environment of a job whose S3 is moto's, with a bucket `bucket`, and a client."""
    import boto3  # here and not above: collecting stays quick

    keys = {"AWS_ACCESS_KEY_ID": "AKIAGEHEIM", "AWS_SECRET_ACCESS_KEY": "geheim", "AWS_SESSION_TOKEN": "geheim"}
    with moto() as url:
        environment = {**keys, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_S3": url, "NO_PROXY": "*"}
        client = boto3.client(
            "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
        )
        client.create_bucket(Bucket="bucket")
        yield environment, client


@pytest.mark.xdist_group("s3")
def test_every_host_fetches_code_from_s3(hosts, s3, tmp_path):
    environment, client = s3
    client.upload_file(str(tarball(tmp_path / "a.tar.gz", {"train.py": TELL})), "bucket", "job/source/sourcedir.tar.gz")
    sent = {"sagemaker_submit_directory": '"s3://bucket/job/source/sourcedir.tar.gz"'}
    job = hosts(2, code={}, hyperparameters={**sent, "sagemaker_program": '"train.py"'}, environment=environment)
    job.must_end(0)
    assert all("told __main__" in job[number].log for number in (1, 2))


@pytest.mark.xdist_group("s3")
def test_every_host_reports_code_in_s3_that_cannot_be_fetched(hosts, s3, tmp_path):
    environment, client = s3
    bad = {"train.py": TELL, "../../outside.py": ""}
    client.upload_file(str(tarball(tmp_path / "bad.tar.gz", bad)), "bucket", "bad.tar.gz")
    sent = {"sagemaker_submit_directory": "s3://bucket/bad.tar.gz"}
    job = hosts(2, code={}, hyperparameters=sent, environment=environment)
    assert job.end() == [65, 65]
    for failure in job.failures:
        first = failure.splitlines()[0]
        assert (
            " prepare (exit code 65): the code at s3://bucket/bad.tar.gz is refused: it holds '../../outside" in first
        )
    assert "Traceback" not in str(job) and "geheim" not in str(job).lower()
    assert not list(tmp_path.rglob("outside.py"))


def test_every_host_names_the_host_without_code(hosts):
    job = hosts(2, code=TELL, absent=("algo-2",))
    (job.base("algo-2") / "code/train.py").unlink()
    job.start("algo-2")
    job.must_end(65, "algo-2 prepare (exit code 65): program train.py is not in")
    assert "told" not in str(job)


def test_killed_download_of_code_starts_anew(hosts, tmp_path):
    """The next container must not use an incomplete folder. The download blocks since S3 does not answer."""
    archive = tarball(tmp_path / "sourcedir.tar.gz", {"train.py": TELL})
    sent = {"sagemaker_program": "train.py", "sagemaker_submit_directory": "s3://bucket/sourcedir.tar.gz"}
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "geheim", "AWS_REGION": "us-east-1", "NO_PROXY": "*"}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        job = hosts(1, code={}, hyperparameters=sent, environment={**keys, "AWS_ENDPOINT_URL_S3": url})
        eventually(lambda: any((job[1].base / "code").iterdir()), LONG, "the fetch to begin")
        job[1].kill()
        job[1].process.wait()
        for pid in processes_with(str(job.folder)):  # in a container they die with PID 1
            os.kill(pid, signal.SIGKILL)
    (job[1].base / "code/train.py").write_text("prin")
    config = job[1].base / "input/config/hyperparameters.json"
    config.write_text(json.dumps({**sent, "sagemaker_submit_directory": str(archive)}))
    job.start("algo-1")
    job.must_end(0)
    assert "told __main__" in job[1].log


# ---- what is installed ----------------------------------------------------------------------------------------------


def test_requirements_are_installed_before_the_script_starts(hosts, tmp_path):
    library = {f"library/{name}": text for name, text in package("testlibrary", "answer = 42\n").items()}
    script = f"import sys; sys.path.append({str(tmp_path / 'site')!r})\n"
    script += "import testlibrary; print('answer', testlibrary.answer)\n"
    code = {"train.py": script, "requirements.txt": "./library\n", **library}
    code["pip.py"] = "raise SystemExit('not the real one')\n"
    job = hosts(1, code=code, environment=pip_into(tmp_path))
    job.must_end(0)
    assert "answer 42" in job[1].log
    assert "pip installs, and not uv: PIP_TARGET" in job[1].log


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
            "PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": f"{server.url}/simple", "PIP_EXTRA_INDEX_URL": "",
            "PIP_FIND_LINKS": "", "PIP_TARGET": str(tmp_path / "site"), "HOME": str(tmp_path / "home"), "NO_PROXY": "*",
        }  # fmt: skip


def test_warm_pool_keeps_wheels_that_pip_built(hosts, index, tmp_path):
    warm = {**index, "SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY": str(tmp_path / "warm")}
    code = {"train.py": TELL, "requirements.txt": "testlibrary\n"}
    for cached in (False, True):
        job = hosts(1, code=code, environment={**warm, "PIP_TARGET": str(tmp_path / f"site-{cached}")})
        job.must_end(0)
        assert (tmp_path / f"site-{cached}/testlibrary.py").is_file()
        assert ("Building wheel for testlibrary" in job[1].log) is not cached
        assert job[1].log.count("Successfully installed testlibrary-1") == 1
    assert any((tmp_path / "warm/pip").rglob("*.whl"))


ONE = {"train.py": TELL, "requirements.txt": "testlibrary\n"}


@pytest.mark.parametrize(
    "repository, code, said",
    [
        ("mine", 0, "Successfully installed testlibrary-1"),
        ("others", 65, "sts:GetServiceBearerToken for the job's execution role"),
    ],
)
def test_codeartifact_provides_requirements_or_the_missing_permission_is_named(hosts, index, repository, code, said):
    url = urllib.parse.urlsplit(index["PIP_INDEX_URL"])
    environment = {
        **index,
        "PIP_INDEX_URL": "http://127.0.0.1:1/simple",
        "PIP_RETRIES": "0",
        "CA_REPOSITORY_ARN": f"arn:aws:codeartifact:us-east-1:123456789012:repository/domain/{repository}",
        "AWS_ENDPOINT_URL_CODEARTIFACT": f"{url.scheme}://{url.netloc}",
        **{"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"},
    }
    job = hosts(1, code=ONE, environment=environment)
    first = job.must_end(code)
    assert said in job[1].log and "geheim" not in job[1].log
    assert not code or ("requirements.txt in" in first and "not authorized" in first)


def test_unresponsive_index_is_named_without_its_password(hosts):
    index = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": "http://me:geheim@127.0.0.1:1/simple"}
    job = hosts(1, code=ONE, environment={**index, "PIP_RETRIES": "0", "NO_PROXY": "*"})
    first = job.must_end(65)
    assert "127.0.0.1:1/simple/testlibrary/" in first
    assert "no package index was reached: under network isolation" in first
    assert "geheim" not in job[1].log + job.failures[0]


# A network that drops all packets, as a VPC's without a way out does.
HOLE = (
    "ip link set lo up && ip link add hole0 type veth peer name hole1 && ip addr add 10.9.9.1/24 dev hole0 && "
    'ip link set hole0 arp off && ip link set hole0 up && ip link set hole1 up && exec "$@"'
)


def test_unreachable_index_is_given_up_within_seconds(hosts, netns):
    """By default, uv gives up after 45 s, and pip after 90 s."""
    own = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": "https://10.9.9.9/simple", "NO_PROXY": "*"}
    own |= {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    before = {"algo-1": ["unshare", "--net", "sh", "-c", HOLE, "sh"]}
    job = hosts(1, code=ONE, environment=own, before=before)
    assert "no package index was reached: under network isolation" in job.must_end(65, within=30)


def test_requirements_beside_a_shell_script_are_not_installed(hosts):
    """AWS's images do the same."""
    job = hosts(1, "train.sh", code={"train.sh": "echo told\n", "requirements.txt": "no-such-distribution\n"})
    job.must_end(0)
    assert "requirements.txt is installed for .py programs and packages only: train.sh" in job[1].log


def test_package_with_only_pyproject_runs_as_a_module(hosts, tmp_path):
    code = package("train", "print('module', __spec__.name)\n" + TELL)
    del code["setup.py"]
    job = hosts(1, "train", code=code, environment=pip_into(tmp_path))
    job.must_end(0)
    assert "[algo-1 script] module train" in job[1].log
    assert (tmp_path / "site/train-1.dist-info").is_dir()


def test_a_setup_py_of_setuptools_needs_no_package_index(hosts, tmp_path):
    pytest.importorskip("setuptools")
    code = {"mine/train.py": "print('module', __spec__.name)\n" + TELL, "mine/__init__.py": ""}
    code["setup.py"] = "from setuptools import setup\nsetup(name='mine', packages=['mine'])\n"
    job = hosts(1, "mine/train.py", code=code, hyperparameters={"x": "a b"}, environment=pip_into(tmp_path))
    job.must_end(0)
    assert "[algo-1 script] module mine.train" in job[1].log
    assert "told __main__ -x a b" in job[1].log
    assert list((tmp_path / "site").glob("mine-*.dist-info"))  # it was installed


def test_empty_setup_py_is_reported_with_the_needed_content(hosts, tmp_path):
    pytest.importorskip("setuptools")
    environment = {**pip_into(tmp_path), "PIP_NO_BUILD_ISOLATION": "false"}
    job = hosts(1, code={"train.py": TELL, "setup.py": "", "requirements.txt": "pip\n"}, environment=environment)
    said = "is empty: it calls no setup(); wanted one that calls it"
    assert f"setup.py in {job.base('algo-1') / 'code'} {said}" in job.must_end(65)


SHELL = 'echo "told $1 $2"\n'


def test_shell_script_without_a_shebang_runs(hosts):
    job = hosts(1, "train.sh", code=SHELL, hyperparameters={"x": '"a  b"'})
    job.must_end(0)
    assert "[algo-1 script] told -x a  b" in job[1].log


def test_user_module_may_share_a_name_with_a_launcher_module(hosts):
    names = ("json.py", "prepare.py", "sources.py", "s3.py", "entrypoint.py", "queue.py")
    code = dict.fromkeys(names, "raise SystemExit('the wrong module')")
    job = hosts(1, code={**code, "json.py": "", "train.py": TELL})
    job.must_end(0)


def test_a_job_without_channels_runs(hosts):
    hosts(1, code=TELL, base_files={"input/config/inputdataconfig.json": "null"}).must_end(0)
