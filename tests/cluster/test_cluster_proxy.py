"""Test a job whose environment names a proxy that refuses its hosts: no process uses it to reach another host."""

from collections.abc import Callable

import pytest
from containers import BUSY, Cluster, sh
from matrix import JAX_LINE
from proxies import proxy

from images import LINE


@pytest.mark.parametrize(
    "mode",
    ["jax"]  # which only the image of this line has
    if LINE == JAX_LINE
    else ["mwms", pytest.param("ps", marks=pytest.mark.more), pytest.param("mpi", marks=pytest.mark.more)],
)  # `mwms` shows it for gRPC
def test_hosts_meet_beside_a_proxy_that_swallows(cluster: Callable[..., Cluster], mode: str) -> None:
    gateway = sh("docker", "network", "inspect", "-f", "{{(index .IPAM.Config 0).Gateway}}", "bridge").stdout.strip()
    with proxy(gateway) as (url, asked):
        environment = {
            "http_proxy": url, "https_proxy": url, "HTTPS_PROXY": url, "NO_PROXY": "internal.example, .amazonaws.com",
            "ENTRYPOINT_PS_WORKERS": "server", "TF_CPP_MIN_LOG_LEVEL": "1", **BUSY,
        }  # fmt: skip
        with cluster(program="joins.py", mode=mode, hosts=2, environment=environment) as job:
            endings = job.wait(within=240)
            assert [ending.exit_code for ending in endings.values()] == [0, 0]
            assert "together: 2" in endings["algo-1"].log
            assert "no program may use for the 2 hosts of the job" in endings["algo-2"].line("name a proxy")
    assert not asked
