"""Test proxies.py: which addresses need no proxy, and the variables that list them for programs."""

import pytest

from entrypoint.launcher.host import proxies
from entrypoint.launcher.job.cluster import Cluster, Host

HOSTS = (Host(name="algo-1", rank=0, address="algo-1"), Host(name="algo-2", rank=1, address="fd00::2"))
OURS = ["algo-1", "algo-2", "fd00::2", "localhost", "127.0.0.1", "::1", "169.254.169.254", "169.254.170.2"]


def names(**environment: str) -> list[str]:
    return proxies.names_of(Cluster(hosts=HOSTS, me=HOSTS[0]), environment)


def test_hosts_loopback_and_aws_services_need_no_proxy() -> None:
    assert names() == OURS
    elsewhere = names(
        AWS_CONTAINER_CREDENTIALS_FULL_URI="http://169.254.170.23/v1/credentials",
        AWS_EC2_METADATA_SERVICE_ENDPOINT="http://[broken",
    )
    assert elsewhere == [*OURS, "169.254.170.23"]


@pytest.mark.parametrize(
    "given, both, of_grpc",
    [
        ({}, "algo-1,algo-2", None),
        # gRPC takes a blank for a part of the name, and reads small letters only
        ({"no_proxy": "a.internal, algo-1,,"}, "a.internal,algo-1,algo-2", None),
        ({"NO_PROXY": ".amazonaws.com", "no_proxy": "b"}, "b,.amazonaws.com,algo-1,algo-2", None),
        # curl and Python know * only alone, and gRPC not at all
        ({"NO_PROXY": "*"}, "*", "algo-1,algo-2"),
        ({"no_proxy": "*, a.internal"}, "*", "a.internal,algo-1,algo-2"),
        # which gRPC prefers
        ({"no_grpc_proxy": "tpu"}, "algo-1,algo-2", "tpu,algo-1,algo-2"),
    ],
)
def test_variable_no_proxy_has_both_spellings_and_one_for_grpc(
    given: dict[str, str], both: str, of_grpc: str | None
) -> None:
    found = proxies.spared(given, ["algo-1", "algo-2"])
    assert (found["no_proxy"], found["NO_PROXY"]) == (both, both)
    assert found.get("no_grpc_proxy") == of_grpc
    assert proxies.spared(given | found, ["algo-1", "algo-2"]) == found


def test_all_nonempty_proxy_variables_are_found() -> None:
    assert proxies.proxies_in({"HTTPS_PROXY": "http://me:secret@p", "http_proxy": "", "GRPC_PROXY": "x"}) == [
        "HTTPS_PROXY",
        "GRPC_PROXY",
    ]
    assert "secret" not in proxies.describe(["HTTPS_PROXY"], 2)


def test_list_of_other_hosts_addresses_includes_loopback() -> None:
    assert proxies.addresses_with(["127.0.0.7", "", "fe80::1%eth0", "127.0.0.7"]) == [
        "127.0.0.1",
        "127.0.0.7",
        "fe80::1",
    ]
    assert proxies.addresses_with([]) == []


def test_addresses_of_thousands_of_hosts_fit_into_a_variable() -> None:
    addresses = [f"2001:db8:{number:x}:ffff:ffff:ffff:ffff:ffff" for number in range(4000)]
    assert len(",".join(proxies.addresses_with(addresses))) <= 1 << 16
