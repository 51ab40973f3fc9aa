"""Test programs/prepare/efa.py: the variables and log lines for NCCL over Elastic Fabric Adapters."""

from pathlib import Path

import efa
import pytest
from efa import Efa, look

P4D = {"FI_PROVIDER": "efa", "NCCL_PROTO": "simple", "FI_EFA_USE_DEVICE_RDMA": "1"}


class Host:
    """A host with these devices below /sys and /dev, with or without NCCL's plugin for EFA."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.monkeypatch = root, monkeypatch

    def add(self, name: str, vendor: str = "0x1d0f", in_container: bool = True) -> "Host":
        device = self.root / "sys/class/infiniband" / name / "device"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        if in_container:
            (self.root / "dev/infiniband").mkdir(parents=True, exist_ok=True)
            (self.root / "dev/infiniband" / f"uverbs{len(name)}").touch()
        return self

    def add_plugin(self) -> "Host":
        self.monkeypatch.setattr(efa, "PLUGINS", ("libc.so.6",))  # a library that the linker finds
        return self

    def look(self, instance_type: str, mode: str = "mpi", **environment: str) -> Efa:
        return look(instance_type, mode, environment, self.root)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("instance_type", "variables"),
    [
        ("ml.p4d.24xlarge", P4D),
        ("ml.p5.48xlarge", {"FI_PROVIDER": "efa", "NCCL_PROTO": "simple"}),
        ("ml.p5en.48xlarge", {"FI_PROVIDER": "efa"}),  # of none of the toolkit's lists, which are older
        ("", {"FI_PROVIDER": "efa"}),
    ],
)
def test_efa_variables_are_set_where_the_device_exists(host, instance_type, variables):
    found = host.add("rdmap16s27").add("efa_1").add_plugin().look(instance_type)
    assert found.variables == variables
    assert found.describe(quiet=False) == [
        "EFA: efa_1, rdmap16s27; set for it: " + " ".join(f"{key}={value}" for key, value in variables.items())
    ]


def test_efa_variables_set_by_the_job_are_kept(host):
    found = host.add("efa_0").add_plugin().look("ml.p4d.24xlarge", FI_PROVIDER="tcp", NCCL_PROTO="LL,LL128,Simple")
    assert found.variables == {"FI_EFA_USE_DEVICE_RDMA": "1"}
    found = host.look("ml.p4d.24xlarge", **P4D)
    assert found.describe(quiet=False) == ["EFA: efa_0; set for it: nothing, as the job does it"]


@pytest.mark.parametrize("mode", ["mpi", "mwms"])
@pytest.mark.parametrize(
    ("devices", "doubt"),
    [
        ([], "ml.p4d.24xlarge should have EFA, but /sys/class/infiniband shows none"),
        ([("mlx5_0", "0x15b3", True)], "ml.p4d.24xlarge should have EFA, but /sys/class/infiniband shows none"),
        ([("efa_0", "0x1d0f", False)], "this host has EFA, but this container has no"),
        ([("efa_0", "0x1d0f", True)], "NCCL does not find EFA without aws-ofi-nccl, and libnccl-net.so cannot be"),
    ],
)
def test_tcp_traffic_in_place_of_efa_gives_a_warning(host, devices, doubt, mode):
    for device in devices:
        host.add(*device)
    found = host.look("ml.p4d.24xlarge", mode)
    (line,) = (line for line in found.describe(quiet=False) if line.startswith("warning: "))
    assert line.startswith(f"warning: {doubt}") and "uses TCP" in line
    assert not [line for line in found.describe(quiet=True) if line.startswith("warning: ")]
    assert bool(found.variables) == bool(found.devices)


def test_host_without_efa_or_mode_without_nccl_logs_nothing(host):
    assert host.look("ml.p4d.24xlarge", "ps").describe(quiet=False) == []
    assert host.look("ml.c5.xlarge").describe(quiet=False) == []
    assert host.look("local").variables == {}


def test_plugin_set_by_the_job_gives_no_warning(host):
    assert host.add("efa_0").look("ml.p5.48xlarge", NCCL_NET_PLUGIN="ofi").doubts == ()
