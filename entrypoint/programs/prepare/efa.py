"""Find Elastic Fabric Adapters on this host, without opening them, and report what NCCL lacks to use them.

They are found by their devices: lists of instance types grow old, and jobs on newer types used TCP without a warning
(sagemaker-training-toolkit#191, #219, #240).
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from gpus import loads

AMAZON = "0x1d0f"  # vendor of the device on the PCI bus
PLUGINS = ("libnccl-net.so", "libnccl-net-ofi.so")  # aws-ofi-nccl, by which NCCL reaches libfabric
USES_NCCL = ("mwms", "mpi", "jax")
SIZES_WITH_EFA = (
    "g4dn.8xlarge", "g4dn.12xlarge", "g5.48xlarge", "p3dn.24xlarge", "p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge",
    "trn1.32xlarge", "p6e-gb200.36xlarge",
)  # fmt: skip
SIZES_WITH_RDMA = ("p4d.24xlarge", "p4de.24xlarge", "trn1.32xlarge", "p6e-gb200.36xlarge")


class Efa(NamedTuple):
    devices: tuple[str, ...]
    variables: Mapping[str, str]  # for the user's programs, except those that the job sets itself
    doubts: tuple[str, ...]

    def describe(self, quiet: bool) -> list[str]:
        """Return lines for the log. `quiet`: leave out warnings, since NCCL will not be used."""
        made = " ".join(f"{key}={value}" for key, value in self.variables.items()) or "nothing, as the job does it"
        lines = [f"EFA: {', '.join(self.devices)}; set for it: {made}"] if self.devices else []
        return lines + [f"warning: {doubt}" for doubt in self.doubts if not quiet]


def look(instance_type: str, mode: str, environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Efa:
    """Return the adapters of this host, in a job of several hosts. `root`: the folder with /sys and /dev.

    The settings are those of sagemaker-training 5.1 (`mpi.py`, `_mpi_env_vars`); the job's own come first. What depends
    on the type is set only for the types in its lists: newer ones do better with the choice of libfabric and
    aws-ofi-nccl, and libfabric ends a program that asks for RDMA where there is none (fi_efa(7)).
    """
    size = instance_type.removeprefix("ml.")
    found = tuple(sorted(_devices(root)))
    usable = any((root / "dev/infiniband").glob("uverbs*"))
    wanted = {}
    if found and usable:
        wanted["FI_PROVIDER"] = "efa"
        if size in SIZES_WITH_EFA:
            wanted["NCCL_PROTO"] = "simple"
        if size in SIZES_WITH_RDMA:
            wanted["FI_EFA_USE_DEVICE_RDMA"] = "1"
    doubts = []
    if mode in USES_NCCL:
        if found and not usable:
            doubts.append("this host has EFA, but this container has no /dev/infiniband/uverbs*")
        elif not found and size in SIZES_WITH_EFA:
            doubts.append(f"{instance_type} should have EFA, but /sys/class/infiniband shows none")
        elif found and "NCCL_NET_PLUGIN" not in environment and not any(map(loads, PLUGINS)):
            doubts.append(f"NCCL does not find EFA without aws-ofi-nccl, and {PLUGINS[0]} cannot be loaded here")
    return Efa(
        devices=found if usable else (),
        variables={key: value for key, value in wanted.items() if key not in environment},
        doubts=tuple(f"{doubt}: NCCL uses TCP between hosts, which is slower" for doubt in doubts),
    )


def _devices(root: Path) -> Iterator[str]:
    for file in (root / "sys/class/infiniband").glob("*/device/vendor"):
        with contextlib.suppress(OSError):
            if file.read_text().strip() == AMAZON:
                yield file.parents[1].name
