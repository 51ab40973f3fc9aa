"""Check the data and the plain run: whether it ran, divided its data, and trained one model. Pure."""

from collections import Counter
from collections.abc import Iterator

from entrypoint.base.wording import duration, listed, size
from entrypoint.check.doctor.rulebook import remedy
from entrypoint.check.finding import Finding, error, fine, note, warning
from entrypoint.check.instance_types import memory_of
from entrypoint.check.rehearse.rehearsal import Rehearsal, figures
from entrypoint.check.rehearse.results import SeenHost, SeenRun
from entrypoint.launcher.job.job import Mode
from entrypoint.simulate.engine import EngineName
from entrypoint.simulate.local_channels import SHOWN_FILES

FULL = 0.8  # share of an instance's memory, above which little is left
_SHARDS: dict[str, str] = {
    Mode.MPI: remedy("no-shards"),
    # By hand, each worker would read a part of its part.
    Mode.MWMS: "nothing, if TensorFlow shards the dataset (AutoShardPolicy is not OFF); else sagemaker_tf_data.shard",
}
_NOT_ALONE = "the script must use what its mode starts: `entrypoint doctor` shows what is missing"


def of_request(case: Rehearsal) -> Iterator[Finding]:
    """Describe the rehearsed job, and its differences from the request."""
    request = case.request
    yield fine("plan", f"{request.title}")
    if not request.ours:
        yield warning(
            "plan", "the request does not start our launcher, but the rehearsal does",
            "see `entrypoint doctor` for why",
        )  # fmt: skip
    if case.hosts != request.hosts:
        yield note("hosts", f"{case.hosts} simulated hosts stand for {request.hosts}", "--hosts N for more")
    here = max((len(host.processes) for host in case.plain.hosts), default=0)
    if 0 < here < request.processes_per_host:
        yield note(
            "processes",
            f"{here} on each host, where the request makes {request.processes_per_host}: one for each GPU that it has",
        )
    if request.moved:
        names = ", ".join(request.moved)
        yield note("places", f"{names}: a folder of this machine instead of S3, so that nothing is written there")
    if request.unmoved:
        yield note(
            "places", f"{', '.join(request.unmoved)} name S3 and are not replaced: with your credentials, the script "
            "reads and writes there",
        )  # fmt: skip
    if request.fixed and not case.own_ml:
        yield warning(
            "places", f"the script names /opt/ml itself ({', '.join(request.fixed[:4])}), which here is this machine's "
            "own folder: the rehearsal does not see it", "run the rehearsal as root, or with --engine docker; or "
            "SM_MODEL_DIR, SM_CHANNEL_... instead",
        )  # fmt: skip
    if request.others:
        yield note("launch", f"{request.others} further requests of the launch script were not rehearsed")


def of_data(case: Rehearsal) -> Iterator[Finding]:
    """Report the sizes of the samples, and check whether a channel's files can be distributed evenly."""
    for sample in case.samples:
        name = sample.channel.name
        whole = "all of it" if sample.part >= 1 else f"{sample.part:.2%} of it by bytes"
        least = "" if sample.listed else "at least "
        yield fine(
            "data",
            f"{name}: {sample.records:,} records ({sample.kind}) in {sample.files:,} of {least}{sample.of_files:,} "
            f"files, {whole}; {least}{size(sample.of_size, 1024)} in all",
        )
        if sample.no_data:
            yield note(
                "data", f"{name}: {listed(sample.no_data, SHOWN_FILES)} are ignored, as they are not data; SageMaker "
                "delivers them: delete them there, or read with sagemaker_tf_data, which ignores them, too",
            )  # fmt: skip
        if sample.left_out:
            yield warning(
                "data", f"{name}: {sample.left_out} files were left out, too large to be taken whole",
                f"--channel {name}=FOLDER with smaller ones",
            )  # fmt: skip
        sharded = sample.channel.distribution.value == "ShardedByS3Key"
        if sharded and sample.of_files < case.request.hosts:
            yield error(
                "shards", f"{name} is ShardedByS3Key and has {sample.of_files} files for {case.request.hosts} hosts: "
                f"{case.request.hosts - sample.of_files} of them get nothing",
                "at least as many files as hosts, of like size; or FullyReplicated",
            )  # fmt: skip
        elif sharded and sample.of_files % case.request.hosts and sample.of_files < 10 * case.request.hosts:
            yield warning(
                "shards",
                f"{name}: {sample.of_files} files are divided among {case.request.hosts} hosts, some of which get "
                "one more",
                "a multiple of the number of hosts, or many small files",
            )


def of_end(case: Rehearsal) -> Iterator[Finding]:
    """Report how the plain run ended, and the failures that any run survived."""
    run = case.plain
    took = f"after {duration(run.seconds)}" if run.processes else "before the script began"
    if failed := next((each for each in case.runs if each.failures), None):
        yield warning(
            "end", f"it failed, and was started again: {listed(failed.failures, 3)}",
            f"correct this, since restarts are paid for, and few (ENTRYPOINT_RESTARTS); see {failed.log}",
        )  # fmt: skip
    if run.is_whole and run.ended.code:
        ends = [f"{host.name}: {host.kind or 'no end in its record'}" for host in run.hosts]
        yield error(
            "end", f"its hosts ended differently, with code {run.ended.code}: {listed(ends, 4)}", f"see {run.log}"
        )
    elif run.is_whole:
        yield fine("end", f"the sample was trained to its end {took}, exit code 0 on all hosts")
        if not any(host.saved for host in run.hosts) and not case.request.moved:
            yield warning("model", "it saved no model in /opt/ml/model", remedy("no-model"))
    elif run.has_failed:
        yield error("end", f"it failed {took}: {run.cause}", f"see {run.log}")
    elif run.kind and run.ended.acted is None:
        yield error(
            "end",
            "it was stopped after ten minutes, in which no training began",
            f"see {run.log} for what it waits for",
        )
    elif run.kind and _has_begun_nothing(case, run):
        yield error(
            "end",
            f"it ran {duration(run.trained)}, until it was stopped, read no file and printed no step: no training was "
            "seen", f"a longer --seconds, if it only starts slowly; else see {run.log}",
        )  # fmt: skip
    elif run.kind and not run.metrics and not (run.together and run.together[0]):
        yield warning(
            "end",
            f"it ran {duration(run.trained)}, until it was stopped, and no step was seen: it may not train yet",
            "a longer --seconds; or print(f'step={step} loss={loss}'), if it prints no steps",
        )  # fmt: skip
    elif run.kind:
        yield fine("end", f"it ran {duration(run.trained)}, until it was stopped")
    else:
        last = " | ".join(run.last_lines)
        yield error("end", f"it ended with code {run.ended.code} without an error message: {last}", f"see {run.log}")


def _has_begun_nothing(case: Rehearsal, run: SeenRun) -> bool:
    """Return whether a run with files shows no sign of training: no file read, no metric."""
    files = [name for sample in case.samples if (name := sample.channel.name) not in case.streamed]
    unread = all(host.read is not None and not any(_read(host, name) for name in files) for host in run.hosts)
    return bool(files) and unread and not run.metrics


def of_shards(case: Rehearsal) -> Iterator[Finding]:
    """Report the files that each host got and read, and the files that were read twice or not at all."""
    run = case.plain
    if not run.hosts or (run.kind and not run.is_whole and _has_begun_nothing(case, run)):
        return
    for sample in case.samples:
        name = sample.channel.name
        if name in case.streamed:
            yield note("shards", f"{name} is streamed by pipes: how much was read is not known")
            continue
        dealt = {host.name: dict(host.dealt).get(name, ()) for host in run.hosts}
        if empty := [host for host, files in dealt.items() if not files]:
            yield error(
                "shards", f"{name}: {', '.join(empty)} got no file of the sample",
                "at least as many files as hosts; or FullyReplicated",
            )  # fmt: skip
        if any(host.read is None for host in run.hosts):
            yield note("shards", f"{name}: this file system does not show which files were read")
            continue
        if not run.has_failed:
            yield from _of_reads(case, run, name, dealt)


def _of_reads(case: Rehearsal, run: SeenRun, name: str, dealt: dict[str, tuple[str, ...]]) -> Iterator[Finding]:
    read = {host.name: _read(host, name) for host in run.hosts}
    times = Counter(file for files in read.values() for file in files)
    everything = {file for files in dealt.values() for file in files}
    if not times:
        yield warning(
            "shards", f"{name}: no host has read any file of it",
            f"the script is to read SM_CHANNEL_{name.upper().replace('-', '_')}; or leave the channel out",
        )  # fmt: skip
        return
    if unread := sorted(everything - times.keys()):
        words = f"{name}: {len(unread)} of {len(everything)} files were not read, such as {unread[0]}"
        if run.is_whole:
            yield warning("shards", f"{words}, though the script ran to its end", "does it look for other names?")
        else:
            yield note("shards", f"{words}, until it was stopped")
    idle = [host for host, files in read.items() if not files and dealt[host]]
    if idle and case.request.mode != "ps":
        yield warning("shards", f"{name}: {', '.join(idle)} read nothing of it", "let each host read its part")
    twice = [file for file, count in times.items() if count > 1]
    if len(read) > 1 and twice:
        yield note(
            "shards",
            f"{name}: {len(twice)} of {len(everything)} files were opened by several hosts: unless the script takes "
            "every Nth record of each, all of them train on the same",
            _SHARDS.get(case.request.mode, "sagemaker_tf_data.shard"),
        )
    elif not unread and not idle:
        counts = f" ({', '.join(f'{host} {len(files)}' for host, files in read.items())})" if len(read) > 1 else ""
        yield fine("shards", f"{name}: each of {len(everything)} files was read by one host{counts}")


def _read(host: SeenHost, name: str) -> tuple[str, ...]:
    return dict(host.read or ()).get(name, ())


def of_distributed(case: Rehearsal) -> Iterator[Finding]:
    """Check whether the hosts train one model."""
    run = case.plain
    if len(run.hosts) < 2:
        return
    if case.request.meant_alone:
        yield note("distributed", "each host trains alone, as ENTRYPOINT_MODE=single says")
    elif case.request.mode == Mode.MPI and case.engine == EngineName.PROCESS and not run.together:
        yield note(
            "distributed", "ranks of hosts that are processes of one machine share its memory: it is not seen whether "
            "they train together", "--engine netns or docker",
        )  # fmt: skip
    elif case.request.mode == "single" and not (run.together and run.together[0]):
        yield error(
            "distributed", f"no distribution was asked for: each of {case.request.hosts} hosts trains alone",
            remedy("nothing-shared"),
        )  # fmt: skip
    elif run.together is not None:
        together, words = run.together
        what = words.removeprefix("distributed: ")
        if together is None:
            yield note("distributed", what, "a longer run (--seconds)")
        else:
            yield fine("distributed", what) if together else error("distributed", what, run.missing or _NOT_ALONE)
    elif not run.has_failed:
        yield note(
            "distributed", f"it is not known: {size(run.exchanged, 1024)} were exchanged in {duration(run.trained)}",
            "a longer run (--seconds), or a script that prints its steps (step=300)",
        )  # fmt: skip


def of_speed(case: Rehearsal) -> Iterator[Finding]:
    """Report the steps per second that the script reports."""
    run = case.plain
    if run.has_failed:
        return
    if rate := run.rate_of("step"):
        yield fine("speed", f"{rate:.3g} steps a second here; at the end {figures(run.metrics)}")
    elif rate := run.rate_of("epoch"):
        yield fine("speed", f"{rate * 60:.3g} epochs a minute here; at the end {figures(run.metrics)}")
    else:
        yield note("speed", *case.no_rate(run))


def of_memory(case: Rehearsal) -> Iterator[Finding]:
    """Compare the peak of a host's memory with the memory of the instance type."""
    run = case.plain
    if not any(host.memory for host in run.hosts):
        return
    used = max(run.hosts, key=lambda host: host.memory)
    words = f"{size(used.memory, 1024)} at most on {used.name}"
    for instance_type in dict.fromkeys(case.request.instance_types):
        has = memory_of(instance_type)
        if has is None:
            yield note("memory", f"{words}; how much {instance_type or 'the instance type'} has is not known here")
        elif used.memory > has:
            yield error(
                "memory", f"{words}, and {instance_type} has {size(has, 1024)}", "a larger type, or smaller batches"
            )
        elif used.memory > FULL * has:
            yield warning(
                "memory", f"{words}, of the {size(has, 1024)} of {instance_type}", "a larger type: all data need more"
            )
        else:
            yield fine("memory", f"{words}, of the {size(has, 1024)} of {instance_type}")


CHECKS = (of_request, of_data, of_end, of_shards, of_distributed, of_speed, of_memory)
