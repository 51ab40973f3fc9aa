"""Test channels.py: groups of channels, and which part of each a process reads.

The main property: for any hosts, ranks and channels, all training processes together read each record exactly once.
The records, and how S3 distributes them, are simulated. The shards are those that processes get.
"""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from builders import PROGRAM, names, read, resources, write_config
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.base.errors import ConfigError
from entrypoint.cli.main import run
from entrypoint.launcher.job.channels import (
    SHARDS,
    Channel,
    Channels,
    Distribution,
    InputMode,
    read_channels,
    readers,
    sources,
)
from entrypoint.launcher.job.choices import ChannelGroup
from entrypoint.launcher.job.config import read_job
from entrypoint.launcher.plan.planner import plan_for
from sagemaker_tf_data import channels as library
from sagemaker_tf_data.places import Place

RECORDS = range(60)  # of a data set; more than there are processes
PIPE, SHARDED = {"TrainingInputMode": "Pipe"}, {"S3DistributionType": "ShardedByS3Key"}


def channels(*names: str, groups: tuple[tuple[str, str], ...] = (), **described: str) -> Channels:
    return read_channels(dict.fromkeys(names, described), "inputdataconfig.json", groups)


# --- what inputdataconfig.json says ---


def test_missing_fields_of_channel_have_defaults_of_local_mode():
    found = read_channels({"a": {"TrainingInputMode": "File"}, "b": None, "c": {"S3DistributionType": None}}, "x")
    assert found.all == tuple(Channel(name=name) for name in "abc")
    assert (found.all[0].mode, found.all[0].distribution, found.all[0].wrapper) == ("File", "FullyReplicated", "None")


def test_fields_of_a_channel_are_read():
    (found,) = read_channels({"a": {**PIPE, **SHARDED, "RecordWrapperType": "RecordIO", "new": 1}}, "x").all
    assert (found.mode, found.distribution, found.wrapper) == ("Pipe", "ShardedByS3Key", "RecordIO")


DEEP = "[" * 200 + "]" * 200


@pytest.mark.parametrize(
    "described, said",
    [
        (
            {"train": {"TrainingInputMode": "Tape"}},
            'TrainingInputMode = "Tape" for channel "train"; wanted File or Pipe',
        ),
        (
            {"train": {"S3DistributionType": 3}},
            'S3DistributionType = 3 for channel "train"; wanted FullyReplicated or Sharded',
        ),
        (
            {"train": {"RecordWrapperType": ["x"]}},
            'RecordWrapperType = ["x"] for channel "train"; wanted None or RecordIO',
        ),
        ({"train": "File"}, '"File" for channel "train"; wanted an object'),
        ({"a=b": {}}, 'channel "a=b"'),
        (f'{{"a": {DEEP}}}', "holds values inside of values"),
    ],
)
def test_bad_channels_are_refused_in_one_line(tmp_path, described, said):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, channels=described)
    assert "inputdataconfig.json" in str(caught.value) and said in str(caught.value)
    assert "\n" not in str(caught.value)


# --- which channels are a group ---


@pytest.mark.parametrize(
    "listed",
    [
        ["train", "train-1"],
        ["training", "training-2"],
        ["train-1", "train-2"],
        ["train_0", "train_1"],
        ["train1", "train2"],
        ["a.b-c", "a.b-c-1", "a.b-c-2"],
        [*(f"train-{number}" for number in range(1, 13))],
        ["v2", "v3", "v4", "v"],
    ],
    ids=" ".join,
)
def test_channels_of_a_group_are_read_in_the_order_of_their_numbers(listed):
    (group,) = sources(channels(*listed), len(listed))
    in_order = sorted(listed, key=lambda name: int("".join(c for c in name if c.isdigit()) or -1))
    assert [channel.name for channel in group.channels] == in_order
    assert group.name == group.channels[-1].name.rstrip("0123456789").rstrip("-_")
    parts = [group.part(reader)[0].name for reader in readers(["algo-1"] * len(listed))]
    assert parts == in_order


@pytest.mark.parametrize(
    "listed, most",
    [
        (["train", "evaluation"], 2),
        (["train", "train-1"], 1),
        (["train", "train-1"], 3),
        (["train", "train-1", "train-2"], 2),
        (["train-2022", "train-2023"], 2),
        (["train-7", "train-8"], 2),
        (["train-1", "train-3"], 2),
        (["train-1", "train_1"], 2),
        (["1", "2"], 2),
    ],
    ids=str,
)
def test_channels_with_unfit_names_or_number_form_no_group(listed, most):
    assert [source.name for source in sources(channels(*listed), most)] == sorted(listed)


def test_channels_of_different_kinds_form_no_group():
    found = read_channels({"train": PIPE, "train-1": {}, "b-1": SHARDED, "b-2": {}}, "x")
    assert [source.name for source in sources(found, 2)] == ["b-1", "b-2", "train", "train-1"]


odd_channels = st.dictionaries(
    st.sampled_from(["x", "x-1", "x-2", "x-3", "x_2", "y0", "y1", "y2", "y12", "1", "2", "z-2022", "z-2023"]),
    st.sampled_from([{}, PIPE, SHARDED, {"RecordWrapperType": "RecordIO"}]),
)


@given(described=odd_channels, most=st.integers(1, 4))
def test_each_channel_is_in_exactly_one_source(described, most):
    found = sources(read_channels(described, "x"), most)
    assert sorted(channel.name for source in found for channel in source.channels) == sorted(described)
    assert len({source.name for source in found}) == len(found)
    assert {len(source.channels) for source in found} <= {1, most}


@pytest.mark.parametrize(
    "text, own",
    [
        ("", {"train": True, "test": True}),
        ("own", {"train": True, "test": True}),
        ("same", {"train": False, "test": False}),
        ("off", {}),
        ("train=same", {"train": False, "test": True}),
        ("off, train=own", {"train": True}),
        ("train=off,test=same", {"test": False}),
    ],
)
def test_setting_chooses_groups_of_channels(tmp_path, text, own):
    write_config(
        tmp_path, resources(["algo-1"]), PROGRAM, {name: {} for name in ("train", "train-1", "test", "test-1")}
    )
    job = read_job(tmp_path, {"ENTRYPOINT_CHANNEL_GROUPS": text}, tmp_path / "run")
    assert {each.name: each.own_data for each in sources(job.channels, 2) if len(each.channels) > 1} == own
    as_hyperparameter = {**PROGRAM, "sagemaker_entrypoint_channel_groups": json.dumps(text)}
    write_config(tmp_path, resources(["algo-1"]), as_hyperparameter)
    assert read_job(tmp_path, {}, tmp_path / "run").channels == job.channels


# --- every record is read once ---


def dealt(records: range, channel: Channel, host: str, hosts: list[str]) -> list[int]:
    """Return the records that S3 sends to a host, in the order of reading."""
    if channel.distribution is Distribution.REPLICATED:
        return list(records)
    return list(records[hosts.index(host) :: len(hosts)])


def data_in(found: Channels, same: bool) -> dict[str, range]:
    """Return the records of each channel: different numbers for each, or the same numbers in all channels."""
    size = len(RECORDS)
    return {c.name: range(0, size) if same else range(n * size, (n + 1) * size) for n, c in enumerate(found.all)}


def read_by_all(found: Channels, places: list[str], data: dict[str, range]) -> Counter[int]:
    """Return how often the processes on the hosts `places` read each record of one source in an epoch."""
    hosts, times = sorted(set(places)), Counter()
    kind = {channel.name: channel for channel in found.all}
    for host, reader in zip(places, readers(places), strict=True):
        (shard,) = found.shards(reader).values()
        records = dealt(data[shard["channel"]], kind[shard["channel"]], host, hosts)
        times.update(records[shard["index"] :: shard["count"]])
    return times


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    distribution=st.sampled_from([*Distribution]),
    mode=st.sampled_from([*InputMode]),
    kind=st.sampled_from(["shared", ChannelGroup.OWN, ChannelGroup.SAME]),
)
def test_processes_read_every_record_once(sizes, distribution, mode, kind):
    """The processes share a channel, or each has a channel of a group, with different or the same data in all channels.

    Hosts may have different numbers of processes (`sizes`) if each host gets all data.
    """
    if distribution is not Distribution.REPLICATED:
        sizes = [sizes[0]] * len(sizes)
    listed = ["train"] if kind == "shared" else [f"train-{number + 1}" for number in range(max(sizes))]
    groups = () if kind == "shared" else (("train", kind),)
    found = channels(*listed, groups=groups, S3DistributionType=distribution, TrainingInputMode=mode)
    places = [name for name, local in zip(names(len(sizes)), sizes, strict=True) for _ in range(local)]
    data = data_in(found, same=kind is ChannelGroup.SAME)
    assert read_by_all(found, places, data) == Counter(set().union(*data.values()))


@given(st.data())
def test_ranks_moved_by_mpirun_read_every_record_once(data):
    """With --map-by node, mpirun places ranks on other hosts than the plan. Each record is still read once."""
    hosts, local = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 4))
    found = channels(*(f"train-{n}" for n in range(1, local + 1)), "x", "y", "z")
    planned = readers([name for name in names(hosts) for _ in range(local)])
    records, times = data_in(found, same=False), Counter()
    for rank, reader in enumerate(planned):
        local_rank, host = divmod(rank, hosts)
        moved = reader.at(host, len(planned), rank, local, local_rank)
        for shard in found.shards(moved).values():
            times.update(list(records[shard["channel"]])[shard["index"] :: shard["count"]])
    assert times == Counter(record for each in records.values() for record in each)


def test_rank_on_its_planned_host_reads_as_planned():
    for reader, host in zip(readers(["a", "a", "b"]), [0, 0, 1], strict=True):  # mpirun's numbers alone do not say it
        assert reader.at(host, reader.size, reader.rank, reader.local_size, reader.local_rank) is reader


# --- what is said of it; which process reads what is in tests/configs/*/plan.txt ---


def notes(base, environment: dict[str, str], inputs) -> list[str]:
    """Return the notes on a plan for two hosts."""
    write_config(base, resources(names(2)), PROGRAM, inputs)
    job = read_job(base, {f"ENTRYPOINT_{key}": value for key, value in environment.items()}, base / "run")
    return [note for note in plan_for(job).notes if "no distribution is configured" not in note]


TWO_RANKS = {"MODE": "mpi", "PROCESSES_PER_HOST": "2"}
WORKER_SERVERS = {"MODE": "ps", "PS_WORKERS": "server"}
TWO_SERVERS = {**WORKER_SERVERS, "PROCESSES_PER_HOST": "2"}


@pytest.mark.parametrize(
    "environment, inputs, said",
    [
        (TWO_RANKS, {"eval": PIPE}, "channel eval is a pipe, which one process"),
        ({"MODE": "mpi"}, {"eval": PIPE}, None),
        (TWO_RANKS, {"eval": {}}, None),
        (TWO_RANKS, {"eval": PIPE, "eval-1": PIPE}, "reads all of it: set ENTRYPOINT_CHANNEL_GROUPS=eval=same, and"),
        ({**TWO_RANKS, "CHANNEL_GROUPS": "eval=own"}, {"eval": PIPE, "eval-1": PIPE}, None),
        ({**TWO_RANKS, "CHANNEL_GROUPS": "same"}, {"eval": {}, "eval-1": {}}, None),
        (WORKER_SERVERS, {"train": SHARDED}, "not all of the part of algo-1 is read"),
        (WORKER_SERVERS, {"train": {}}, None),
        (TWO_SERVERS, {"train": SHARDED}, None),
        (
            TWO_SERVERS,
            {"train": SHARDED, "train-1": SHARDED},
            "channel train is ShardedByS3Key, and not all of the part of algo-1 is read",
        ),
        ({"MODE": "mpi", "CHANNEL_GROUPS": "trian=same"}, {"train": {}}, 'names "trian", and no group of channels is'),
        ({"MODE": "single"}, {"train": {**PIPE, **SHARDED}}, None),
    ],
)
def test_plan_notes_unexpected_reading_of_channels(tmp_path, environment, inputs, said):
    found = notes(tmp_path, environment, inputs)
    assert said in found[0] if said else not found


@given(described=odd_channels, hosts=st.integers(1, 3), local=st.integers(1, 4))
def test_script_library_computes_same_shards_as_launcher(described, hosts, local):
    """The library reads ENTRYPOINT_SHARDS. Without the launcher, it computes the shards by the same rules."""
    mine = read_channels(described, "x")
    theirs = [
        library.Channel(
            name=each.name, mode=each.mode, distribution=each.distribution, record_wrapper=each.wrapper, folder=Path()
        )
        for each in mine.all
    ]
    for reader in readers([name for name in names(hosts) for _ in range(local)]):
        place = Place(
            size=reader.size, rank=reader.rank, local_size=local, local_rank=reader.local_rank,
            hosts=hosts, host=reader.host_index,
        )  # fmt: skip
        environment = {library.SHARDS: json.dumps(mine.shards(reader))}
        assert library.parts(environment) == library.shares(theirs, place)


def test_shards_variable_has_name_and_form_for_script_library():
    assert SHARDS == "ENTRYPOINT_SHARDS"
    read = channels("train", TrainingInputMode="Pipe").shards(readers(["a", "b"])[1])
    assert read == {"train": {"channel": "train", "mode": "Pipe", "count": 2, "index": 1}}


def test_data_page_shows_output_of_plan_command(tmp_path, capsys):
    page = (Path(__file__).resolve().parents[4] / "docs" / "data.md").read_text()
    typed, shown = re.search(r"    \$ entrypoint (plan .*?)\n(    channels\n.*?)\n\n", page, re.DOTALL).groups()
    for folder in "abc":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rows").write_text("1")
    assert run([re.sub("=(?=[abc]/)", f"={tmp_path}/", word) for word in typed.replace("\\\n", "").split()]) == 0
    printed = capsys.readouterr().out.splitlines()
    lines = [line.removeprefix("    ") for line in shown.splitlines()]
    assert "..." in lines
    assert [line for line in lines if line not in printed] == ["..."]
