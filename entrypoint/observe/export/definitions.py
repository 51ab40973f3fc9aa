"""Write SageMaker's metric definitions: expressions that find values in the log, which go to CloudWatch."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from entrypoint.record import lines

USUAL = ("loss", "accuracy", "val_loss", "val_accuracy", "steps_per_second")
NUMBER = r"[-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?"
_OF_KERAS = ("epochs", "epoch_step", "epoch_steps", "step_seconds")
MOST = 40  # definitions that SageMaker accepts for a job


def regex(name: str) -> str:
    """Return an expression for `name: 0.5` (of Keras) and `name=0.5`. A longer name with this end does not match."""
    if name == "epoch":
        return rf"\b[Ee]poch\s*[=:\s]\s*({NUMBER})"  # Keras's line is `Epoch 3/10`
    return rf"\b{re.escape(name)}\s*[=:]\s*({NUMBER})"


def definitions(names: Sequence[str], sdk: str) -> str:
    """Return the definitions as code for an SDK ("v2", "v3"), or as "json" for a request."""
    if sdk == "json":
        return json.dumps([{"Name": name, "Regex": regex(name)} for name in names], indent=1)
    form = "MetricDefinition(name={}, regex={})" if sdk == "v3" else '{{"Name": {}, "Regex": {}}}'
    quoted = [(json.dumps(name), repr(regex(name)) if '"' in name else f'r"{regex(name)}"') for name in names]
    rows = "".join(f"    {form.format(*each)},\n" for each in quoted)
    if sdk == "v3":
        return f"from sagemaker.core.training.configs import MetricDefinition\n\nmetrics = [\n{rows}]\n" + (
            "trainer = ModelTrainer(...).with_metric_definitions(metrics)"
        )
    return f"metrics = [\n{rows}]\nestimator = Estimator(..., metric_definitions=metrics)"


def metrics_in(all_lines: Iterable[lines.Line]) -> list[str]:
    """Return the names of all metrics in lines of records, the most frequent first.

    Leave out what the monitor computes from Keras's output, since no line of the log has it.
    """
    names = Counter(name for line in all_lines if isinstance(line, lines.Metric) for name in line.values)
    computed = {*_OF_KERAS, *(["step"] if "epoch_step" in names else [])}
    return sorted(names.keys() - computed, key=lambda name: (-names[name], name))[:MOST]
