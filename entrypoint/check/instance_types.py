"""Look up the memory and the GPUs of an instance type in a copy of AWS's tables of EC2 instance types."""

_GIB = 1 << 30
# GiB for each vCPU; a size has 2 (large), 4 (xlarge) or 4 N (Nxlarge) of these.
_BY_CPU = {
    **dict.fromkeys(("m4", "m5", "m5d", "m6i", "m6id", "m7i", "g4dn", "g5", "g6", "t3"), 4.0),
    **dict.fromkeys(("c5", "c5d", "c6i", "c6id", "c7i"), 2.0),
    **dict.fromkeys(("r5", "r5d", "r6i", "r7i", "g6e"), 8.0),
    "c4": 1.875,
}
_ODD = {  # GiB
    "c5n.xlarge": 10.5,
    "c5n.2xlarge": 21,
    "c5n.4xlarge": 42,
    "c5n.9xlarge": 96,
    "c5n.18xlarge": 192,
    **dict.fromkeys(("p2.xlarge", "p3.2xlarge"), 61),
    "p3.8xlarge": 244,
    **dict.fromkeys(("p2.8xlarge", "p3.16xlarge"), 488),
    "p2.16xlarge": 732,
    "p3dn.24xlarge": 768,
    **dict.fromkeys(("p4d.24xlarge", "p4de.24xlarge"), 1152),
    **dict.fromkeys(("p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge"), 2048),
    "t3.medium": 4,
}
# GPUs of instance types, by AWS's documentation. A type of families p and g that is not listed here has one.
_GPUS = {
    "p2": {"8xlarge": 8, "16xlarge": 16},
    "p3": {"8xlarge": 4, "16xlarge": 8},
    **{family: {"24xlarge": 8} for family in ("p3dn", "p4d", "p4de")},
    **{family: {"48xlarge": 8} for family in ("p5", "p5e", "p5en", "p6-b200")},
    "g4dn": {"12xlarge": 4, "metal": 8},
    **{family: {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8} for family in ("g5", "g6", "g6e")},
}


def memory_of(instance_type: str) -> int | None:
    """Return the memory of an instance type such as ml.m5.xlarge, in bytes; None if the type is not in the tables."""
    name = instance_type.removeprefix("ml.")
    if name in _ODD:
        return int(_ODD[name] * _GIB)
    family, _, of = name.partition(".")
    cpus = {"large": 2, "xlarge": 4}.get(of, 0)
    times = of.removesuffix("xlarge")
    if of.endswith("xlarge") and times.isdecimal():
        cpus = 4 * int(times)
    return int(_BY_CPU[family] * cpus * _GIB) if family in _BY_CPU and cpus else None


def gpus_of(instance_type: str) -> int:
    """Return how many GPUs an instance type has; `ml.p3.8xlarge` has 4."""
    family, _, size = instance_type.removeprefix("ml.").partition(".")
    return _GPUS.get(family, {}).get(size, 1 if family[:1] in ("p", "g") and family[1:2].isdigit() else 0)
