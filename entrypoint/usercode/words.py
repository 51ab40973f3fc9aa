"""Find what code uses of TensorFlow by its words, as the prepare step does for every job before anything is parsed."""

import re

FIRST_WITH_KERAS_3 = (2, 16)  # of TensorFlow
# TensorFlow's, not that of SageMaker's SDK, which scripts that submit jobs use.
ESTIMATOR = re.compile(
    r"\btf\.estimator\b"
    r"|(?<!sagemaker\.)(?<!sagemaker\.tensorflow\.)\bestimator\.(Estimator|train_and_evaluate|RunConfig)\b"
)
TF1_SESSIONS = re.compile(
    rf"{ESTIMATOR.pattern}|\bMonitoredTrainingSession\b"
    r"|\bMonitoredSession\b|\bSessionCreator\b|\btrain\.Supervisor\b|\breplica_device_setter\b"
)
TRAIN, STARTS_SERVER = re.compile(r"\.train\("), re.compile(r"\btrain_and_evaluate\b|\bServer\(|\bstart_std_server\b")
TF2_COORDINATOR = re.compile(r"\bClusterCoordinator\b|(?<!v1\.)\bdistribute(\.experimental)?\.ParameterServerStrategy")
MASTER = re.compile(r"""(['"])master\1""")
CHIEF = re.compile(r"""(['"])chief\1""")
# A string, which is kept with its `#`, or a comment.
_STRING_OR_COMMENT = re.compile(
    r"""("{3}(?:\\.|[^\\])*?"{3}|'{3}(?:\\.|[^\\])*?'{3}"""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|[^\S\n]*#[^\n]*""",
    re.DOTALL,
)


def flags(text: str) -> list[str]:
    """Return flags of what code without comments uses: TF1's sessions or estimators. No flag decides a job's end."""
    if TF2_COORDINATOR.search(text) or not TF1_SESSIONS.search(text):
        return []
    # With `chief` in place of `master`, an Estimator neither evaluates nor exports; nor do scripts that check for it.
    for_aws = (ESTIMATOR.search(text) or MASTER.search(text)) and not CHIEF.search(text)
    serverless = ESTIMATOR.search(text) and TRAIN.search(text) and not STARTS_SERVER.search(text)
    return ["tf1-sessions", *(["tf1-train"] if serverless else []), *(["tf1-master"] if for_aws else [])]


def without_comments(text: str) -> str:
    """Return a program without comments. All lines stay, since findings are reported by line number."""
    return _STRING_OR_COMMENT.sub(r"\1", text)


def version_of(tensorflow: str) -> tuple[int, ...]:
    """Return (2, 16) for `2.16.1`."""
    return tuple(int(number) for number in re.findall(r"\d+", tensorflow)[:2])
