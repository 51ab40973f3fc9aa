"""Test a job whose environment names a proxy that refuses its hosts: no process uses it to reach another host."""

from collections.abc import Callable

from containers import BUSY, Cluster, docker_bridge
from matrix import JAX_LINE
from proxies import proxy

from images import LINE


def test_hosts_connect_despite_an_unresponsive_proxy(cluster: Callable[..., Cluster]) -> None:
    """Workers test this for gRPC. Only the image of one line has jax."""
    mode = "jax" if LINE == JAX_LINE else "mwms"
    with proxy(docker_bridge()) as (url, asked):
        environment = {
            "http_proxy": url, "https_proxy": url, "HTTPS_PROXY": url, "NO_PROXY": "internal.example, .amazonaws.com",
            "TF_CPP_MIN_LOG_LEVEL": "1", **BUSY,
        }  # fmt: skip
        with cluster(program="joins.py", mode=mode, hosts=2, environment=environment) as job:
            first, second = job.all_end()
            assert "together: 2" in first.log
            assert "no program may use for the 2 hosts of the job" in second.line("name a proxy")
    assert not asked
