"""What the code uses and this way of distributing does not train, told before it is tried: docs/matrix.md has all."""

import os
import re
from collections.abc import Mapping

from findings import ESTIMATOR

FIT = re.compile(r"\.fit\(")
KERAS = re.compile(r"\bkeras\b")
KERAS_2 = re.compile(r"\btf_keras\b|\bTF_USE_LEGACY_KERAS\b")
FIRST_WITH_KERAS_3 = (2, 16)  # of TensorFlow
INSTEAD = "Set TF_USE_LEGACY_KERAS=1, with tf_keras installed, or train with a loop of your own"
NO_FIT = {"ps": "knows no parameter servers", "mwms": "does not train on several hosts"}


def doubts(
    files: list[tuple[str, str]],
    mode: str,
    ps_workers: str,
    tensorflow: str,
    environment: Mapping[str, str] = os.environ,
) -> list[str]:
    """Return a sentence for each file with something, found by its words, that does not train so; of several hosts.

    `files`: as `findings.texts` gives them. `tensorflow`: its version, "" if there is none. `environment` decides as
    TensorFlow has it decide.
    """
    found = []
    legacy = environment.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")  # tensorflow/__init__.py
    keras_3 = _version(tensorflow) >= FIRST_WITH_KERAS_3 and not legacy
    if (why := NO_FIT.get(mode)) and keras_3 and not any(KERAS_2.search(text) for _, text in files):
        found += [
            f"{name} calls fit, and that of Keras 3, which TensorFlow {tensorflow} has, {why}. {INSTEAD}"
            for name, text in files
            if KERAS.search(text) and FIT.search(text)
        ]
    if mode == "ps" and ps_workers == "server":
        found += [
            f"{name} has an Estimator, whose workers run the script, and here the chief alone does: it would wait for "
            "them for ever. Set ENTRYPOINT_PS_WORKERS=script"
            for name, text in files
            if ESTIMATOR.search(text)
        ]
    return found


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])
