"""Estimate how long the job takes and what it costs, if its rate and the size of its data are known. Pure."""

from collections.abc import Iterator

from entrypoint.base.wording import duration
from entrypoint.check.finding import Finding, fine, note
from entrypoint.check.rehearse.rehearsal import Rehearsal
from entrypoint.check.rehearse.results import COUNTED, SeenRun

TOTALS = ("max_steps", "total_steps", "train_steps", "num_steps")  # scripts' names for the number of all steps
EPOCHS = ("epochs", "num_epochs", "n_epochs", "max_epochs")  # hyperparameters with the number of epochs


def of_hours(case: Rehearsal) -> Iterator[Finding]:
    """Yield hours and price, with the figures that they are based on."""
    run = case.plain
    if run.has_failed:
        return
    found = whole(case, run)
    if found is None:
        yield note(
            "hours", "this run does not show how long the job takes",
            "a sample that is trained to its end (fewer --records, more --seconds), or a script that prints its step "
            "and max_steps",
        )  # fmt: skip
        return
    seconds, why = found
    here = f"{duration(seconds)} at the rate of this machine with {case.hosts} simulated hosts ({why})"
    if case.speedup is None:
        there = ", ".join(dict.fromkeys(filter(None, case.request.instance_types))) or "the real hosts"
        yield note(
            "hours", f"{here}: a laptop's cores are not {there}, so hours here do not predict hours there",
            "--speedup X, how many times as fast the real job is as this one",
        )  # fmt: skip
    else:
        seconds /= case.speedup
        yield fine("hours", f"{duration(seconds)} if the real job is {case.speedup:g} times as fast as here: {here}")
    if case.price is not None:
        cost = seconds / 3600 * case.price * case.request.hosts
        words = f"{cost:,.2f} USD for {case.request.hosts} hosts at {case.price:g} USD an hour each"
        if case.speedup is None:
            yield note("price", f"{words}, if they were as fast as this machine, which they are not", "--speedup X")
        else:
            yield fine("price", f"{words}, without data, storage and the start of instances")


def whole(case: Rehearsal, run: SeenRun) -> tuple[float, str] | None:
    """Return (seconds of the whole job, how they are computed) from the rate of this run; None if that is unknown."""
    rate, metrics = run.rate_of("step"), run.metrics
    hyperparameters = case.request.hyperparameters
    for name in TOTALS:
        total = metrics.get(name) or _number(hyperparameters.get(name, ""))
        if total and rate:
            return total / rate, f"{name} {total:g} at {rate:.3g} steps a second"
    part = min((sample.part for sample in case.samples), default=1.0)
    copies = [sample.channel.name for sample in case.samples if not sample.where.startswith(("s3://", "file://"))]
    of = f"{part:.2%} of the data" if part < 1 else "all of the data"
    of += f", if the copy of {', '.join(copies)} is whole" if copies else ""
    if run.is_whole and run.seconds:
        start = _start(run)
        of = f"{of}, plus {duration(start)} for the start" if start else of
        return start + (run.seconds - start) / part, f"{duration(run.seconds - start)} for {of}"
    asked = next((value for name in EPOCHS if (value := _number(hyperparameters.get(name, "")))), None)
    epochs, steps = metrics.get("epochs") or asked, metrics.get("epoch_steps")
    part, on, end = (1.0, "", ", as long with all data") if case.request.same_epochs else (part, f" on {of}", "")
    if rate and epochs and steps:
        why = f"{epochs:g} epochs of {steps:g} steps{on} at {rate:.3g} steps a second"
        return epochs * steps / rate / part, why
    by_epoch = run.rate_of("epoch")
    if by_epoch and epochs:
        return epochs / by_epoch / part, f"{epochs:g} epochs{on}, {by_epoch * 60:.3g} of them a minute{end}"
    return None


def _start(run: SeenRun) -> float:
    """Return the seconds until the first step or epoch, which do not grow with the data; 0 if none is reported."""
    reported = [at for host in run.hosts for at, _, values in host.metrics if values.keys() & set(COUNTED)]
    return max(0.0, min(reported, default=run.began) - run.began)


def _number(text: str) -> float | None:
    try:
        return float(text.strip('"')) or None
    except ValueError:
        return None
