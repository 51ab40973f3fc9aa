"""Test a job with a proxy in its environment: pip and S3 use the proxy, connections between hosts do not."""

import json

import pytest
from proxies import proxy

REFUSED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
# What a program of the environment asks of whom: of every host by name, and by the address at which it is reached.
ASKS = """
import json, os, socket, urllib.request
said = {name: os.environ.get(name) for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy")}
bypassed = [each for each in json.loads(os.environ["ASKED"]) if urllib.request.proxy_bypass_environment(each)]
print("told", json.dumps({**said, "bypassed": bypassed}), flush=True)
"""


def told(host) -> dict:
    return json.loads(next(line.partition(" told ")[2] for line in host.log.splitlines() if " told " in line))


@pytest.mark.parametrize("mode", ["mwms", "mpi"])  # what mpirun starts has its environment another way
def test_programs_reach_hosts_without_the_proxy(hosts, mode):
    asked = ["algo-1", "algo-2", "localhost", "127.0.0.1", "169.254.169.254", "index.example.com", "bucket.example.com"]
    with proxy() as (url, heard):
        given = {"http_proxy": url, "https_proxy": url, "no_proxy": "a.internal", "NO_PROXY": "", "no_grpc_proxy": "b"}
        job = hosts(2, code=ASKS, mode=mode, environment={**given, "ASKED": json.dumps(asked)})
        job.must_end(0)
    for number in (1, 2):
        found = told(job[number])
        assert found["bypassed"] == asked[:5]
        entries = found["no_proxy"].split(",")
        assert found["NO_PROXY"] == found["no_proxy"]
        assert {"a.internal", *job.addresses.values()} < set(entries) < set(found["no_grpc_proxy"].split(","))
        assert job[number].log.count("http_proxy, https_proxy name a proxy") == 1
        assert url not in job[number].log
    assert not heard


def test_the_no_proxy_variables_are_kept_if_the_setting_is_off(hosts):
    given = {"http_proxy": "http://127.0.0.1:1", "NO_PROXY": "b", "no_proxy": "a", "ASKED": "[]"}
    job = hosts(1, code=ASKS, environment=given, NO_PROXY="off")
    job.must_end(0)
    assert (told(job[1])["no_proxy"], told(job[1])["NO_PROXY"]) == ("a", "b")
    assert "name a proxy" not in job[1].log


def test_pip_and_s3_use_the_proxy(hosts):
    with proxy(answer=REFUSED) as (url, asked):
        proxies = {"http_proxy": url, "https_proxy": url, "no_proxy": "", "NO_PROXY": ""}
        index = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": "https://index.invalid/simple", "PIP_RETRIES": "0"}
        job = hosts(1, code={"train.py": "", "requirements.txt": "testlibrary\n"}, environment={**proxies, **index})
        job.must_end(65)
        assert any("CONNECT index.invalid:443" in each for each in asked)
        keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_ENDPOINT_URL_S3": "http://s3.invalid"}
        there = {"sagemaker_submit_directory": "s3://bucket/sourcedir.tar.gz"}
        job = hosts(1, code={}, hyperparameters=there, environment={**proxies, **keys, "AWS_REGION": "eu-west-1"})
        job.must_end(65)
        assert any("http://s3.invalid/bucket/sourcedir.tar.gz" in each for each in asked)
